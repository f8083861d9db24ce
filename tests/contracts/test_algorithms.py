"""What every algorithm of the registry promises its parties and learner; a new one is tested without more code."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from parley.common.algorithms import REGISTRY, build_algorithm, parameter_schema
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import MAX_INTEGER
from parley.common.errors import InvalidInputError, ReplayMismatchError
from parley.common.privacy.events import NonPrivateEvent
from parley.common.privacy.noise import Noise, NoNoise, SeededNoise, SystemNoise
from parley.common.protocol.driver import MemoryLog, drive, logged_reply
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import Simulation
from tests.contracts.algorithms import CASES, SIZES, Case, D, conversation, each_of, exact, federation
from tests.support.noises import StackedNoise

EVERY = each_of(CASES)
EVERY_NAME = pytest.mark.parametrize("name", REGISTRY)


# ── stacking ─────────────────────────────────────────────────────────────────


@EVERY
@pytest.mark.parametrize("source", [lambda _: NoNoise(), lambda i: SeededNoise([9, i])], ids=["noiseless", "noisy"])
def test_stacked_parties_answer_what_they_answer_alone(case: Case, source: Callable[[int], Noise]) -> None:
    shard, facts = federation(case)
    k = len(facts.parties)

    alone = [source(i) for i in range(k)]
    together = StackedNoise([source(i) for i in range(k)]) if k > 1 else source(0)
    for query in conversation(case, facts, seed=2)[0]:
        stacked = case.answer(query, shard, facts, together)
        answers_alone = [case.answer(query, shard.party(i), facts.of(i), alone[i]) for i in range(k)]
        assert np.array_equal(stacked, np.stack(answers_alone))


@EVERY
def test_an_answer_is_integers_in_range_and_leaves_the_shard_alone(case: Case) -> None:
    shard, facts = federation(case)
    before = shard.X.tobytes(), shard.y.tobytes()
    answer = case.answer(case.first_query(facts), shard, facts, SystemNoise())
    assert answer.dtype == np.int64
    assert answer.shape[:-1] == (len(facts.parties),)
    assert np.abs(answer).max() < MAX_INTEGER
    assert before == (shard.X.tobytes(), shard.y.tobytes())


@EVERY
def test_work_ends_in_no_error_on_any_data(case: Case) -> None:
    """Whether it does would say something about them."""
    shard, facts = federation(case)
    queries, rng = conversation(case, facts, seed=5)[0], np.random.default_rng(6)
    corners = rng.choice([-1.0, 1.0], shard.shape)
    one_label = np.broadcast_to(shard.y[..., :1], shard.y.shape)
    for X in (0 * corners, np.ones_like(corners), corners, corners[..., :1, :] * corners[..., :1], np.nan * corners):
        for y in (shard.y, one_label, -one_label):
            other = Shard(X, y, shard.mask, norm=shard.norm)
            for query in {1: queries[0], len(queries): queries[-1]}.values():
                case.answer(query, other, facts, SeededNoise(7))


# ── the program ──────────────────────────────────────────────────────────────


class Refuses:
    """A federation that must not be asked."""

    async def answer(self, run: str, query: Query) -> Reply:
        raise AssertionError(f"round {query.round} was asked again")


@EVERY
def test_a_replay_of_the_log_is_the_run(case: Case) -> None:
    shard, facts = federation(case)
    simulation, log = Simulation.of(case.algorithm, shard, facts, SeededNoise(7)), MemoryLog()
    model = asyncio.run(drive(case.algorithm.program(facts), simulation, "run", log))
    assert sorted(log.entries) == list(range(1, len(case.algorithm.questions(facts)) + 1))
    replayed = asyncio.run(drive(case.algorithm.program(facts), Refuses(), "run", log))
    assert replayed.weights.tobytes() == model.weights.tobytes()
    round, (digest, reply) = max(log.entries.items())
    log.entries[round] = (digest[::-1], reply)
    with pytest.raises(ReplayMismatchError, match=f"round {round} "):
        asyncio.run(drive(case.algorithm.program(facts), Refuses(), "run", log))


@EVERY
def test_a_program_asks_the_same_of_the_same_replies_as_often_as_it_says(case: Case) -> None:
    _, facts = federation(case)

    (queries, model), (again, _), (others, _) = (conversation(case, facts, seed) for seed in (1, 1, 2))
    assert [query.round for query in queries] == list(range(1, len(case.algorithm.questions(facts)) + 1))
    assert all(query.message.dtype == np.float64 for query in queries)
    assert np.isfinite(model.weights).all()
    digests = [query.digest for query in queries]
    assert digests == [query.digest for query in again]
    later = zip(case.algorithm.questions(facts)[1:], queries[1:], strict=True)
    # Of what it learns, which the replies are all of; what goes with public rows follows from larger ones than these.
    sends_values = any(query.message.size for question, query in later if not question.public)
    assert (digests == [query.digest for query in others]) == (not sends_values)


@EVERY
def test_a_program_asks_what_it_declares_and_parties_answer_as_long(case: Case) -> None:
    shard, facts = federation(case)
    questions = case.algorithm.questions(facts)
    queries, _ = conversation(case, facts, seed=3)
    for question, query in zip(questions, queries, strict=True):
        question.check(query)
        assert case.answer(query, shard, facts, NoNoise()).shape == (len(facts.parties), question.answer)
        assert not question.public or np.array_equal(query.message[: facts.public_size[0]], facts.public_rows)
        with pytest.raises(InvalidInputError, match="asks for"):
            question.check(dataclasses.replace(query, step="other"))
        with pytest.raises(InvalidInputError, match="shape"):
            question.check(dataclasses.replace(query, message=np.zeros((7, 7, 7))))


@EVERY
def test_who_a_party_is_makes_no_difference_unless_declared(case: Case) -> None:
    facts = case.equal_facts(1 if case.algorithm.curator else 3, 9)
    for round in range(1, len(case.algorithm.questions(facts)) + 1):
        events = {case.algorithm.event(round, facts.of(index)) for index in range(len(facts.parties))}
        assert case.algorithm.roles or len(events) == 1


@EVERY
def test_what_is_prepared_is_the_same_every_time(case: Case) -> None:
    shard, facts = federation(case)
    query = case.first_query(facts)
    one, other = (case.answer(query, shard, facts, SeededNoise(3)) for _ in range(2))
    assert np.array_equal(one, other)


@EVERY
def test_noise_that_does_not_fit_is_refused_before_anything_is_answered(case: Case) -> None:
    """An answer that would be refused for its noise is refused when the run is approved."""
    shard, facts = federation(case)
    tiny = dataclasses.replace(facts, epsilon=np.full_like(facts.epsilon, 1e-9))
    query = case.first_query(facts)
    try:
        case.answer(query, shard, tiny, NoNoise())
    except InvalidInputError:
        with pytest.raises(InvalidInputError, match="epsilon is too small"):
            case.algorithm.check_noise(tiny.everyone)
    case.algorithm.check_noise(facts.everyone)


async def test_each_part_of_a_query_is_in_its_digest() -> None:
    query = Query(1, "gradient", np.array([0.5, 2.0]))
    log = MemoryLog()
    await log.append(query, Reply(np.zeros(2), (0,)))
    assert await log.recall(dataclasses.replace(query, message=query.message.copy())) is log.entries[1][1]
    assert await log.recall(dataclasses.replace(query, round=2)) is None
    messages = [np.array([0.5, np.nextafter(2.0, 3)]), np.array([[0.5, 2.0]]), np.array([0.5, 2.0, 0.0])]
    for other in (
        dataclasses.replace(query, round=2),
        dataclasses.replace(query, step="minimise"),
        dataclasses.replace(query, reveal="each"),
        *(dataclasses.replace(query, message=message) for message in messages),
    ):
        with pytest.raises(ReplayMismatchError):
            logged_reply(log.entries[1], other)


HOSTILE = [
    *(np.full(D, bad) for bad in (np.nan, np.inf, -np.inf, 1e308, 70_000.0)),
    *(np.zeros(shape) for shape in ((0,), (D + 1,), (D, 2), (1, D), ())),
]


@EVERY
def test_hostile_messages_are_refused_or_make_no_difference(case: Case) -> None:
    shard, facts = federation(case)
    query, question = case.first_query(facts), case.algorithm.questions(facts)[0]
    expected = exact(case, query, shard, facts)
    for message in HOSTILE:
        hostile = dataclasses.replace(query, message=message)
        if query.message.shape == facts.shape:
            with pytest.raises(InvalidInputError, match="weights"):
                exact(case, hostile, shard, facts)
        elif not query.message.size:
            assert np.array_equal(exact(case, hostile, shard, facts), expected)
        if message.size and not (message.shape == query.message.shape and np.isfinite(message).all()):
            with pytest.raises(InvalidInputError, match="message"):
                question.check(hostile)


# ── the file ─────────────────────────────────────────────────────────────────


@EVERY_NAME
def test_an_algorithm_is_a_file_that_cites_its_paper(name: str) -> None:
    module = inspect.getmodule(REGISTRY[name])
    case = Case(name, build_algorithm(name), secure_sum=False)
    baseline = isinstance(case.algorithm.event(1, case.facts(SIZES).of(0)), NonPrivateEvent)
    assert baseline or re.search(r"(19|20)\d\d", inspect.getdoc(module) or "")


@EVERY_NAME
def test_parameters_are_documented_and_have_defaults(name: str) -> None:
    schema = parameter_schema(name)
    assert schema["additionalProperties"] is False
    assert schema["description"]
    for parameter, of_parameter in schema["properties"].items():
        assert of_parameter.get("description"), f"{name}.{parameter} is not described"
        assert "default" in of_parameter
    assert build_algorithm(name) == build_algorithm(name, {})
    assert build_algorithm(name) == REGISTRY[name]()


@EVERY_NAME
def test_parameters_are_checked_by_name_and_never_repeated(name: str) -> None:
    for parameter, schema in parameter_schema(name)["properties"].items():
        secret = "4111-1111"
        below = [schema["minimum"] - 1] if "minimum" in schema else []
        at_limit = [schema["exclusiveMinimum"]] if "exclusiveMinimum" in schema else []
        names_a_party = parameter == "aggregator"
        for bad in (
            *(() if names_a_party else (secret,)),
            [secret],
            {"a": secret},
            math.nan,
            -math.inf,
            *below,
            *at_limit,
        ):
            with pytest.raises(InvalidInputError, match=parameter) as error:
                build_algorithm(name, {parameter: bad})
            assert secret not in error.value.detail
    with pytest.raises(InvalidInputError, match=rf"{name}: unknown: no_such_parameter"):
        build_algorithm(name, {"no_such_parameter": 1})
    for parameter in parameter_schema(name)["properties"]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(build_algorithm(name), parameter, 1)


def test_an_unknown_algorithm_is_told_which_are_known() -> None:
    with pytest.raises(InvalidInputError, match=r"unknown algorithm 'psdg'.*psgd"):
        build_algorithm("psdg")
