"""An owner's stream: what the ledger says of it, what it hears, and what it refuses."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from parley.common.arrays import IntArray
from parley.common.errors import (
    BudgetExhaustedError,
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    UnavailableError,
)
from parley.common.online import Leader
from parley.common.privacy.account import limit
from parley.common.privacy.mechanisms.leader import COST_UNIT
from parley.common.privacy.noise import SeededNoise
from parley.party.api.app import create_party_app
from parley.party.ledger.audit import export, verify
from parley.party.ledger.books import OWNER
from parley.party.ledger.ledger import Ledger
from parley.party.ledger.records import Answered, Approved
from parley.party.owner.stream import Action, CostLine, Stream, StreamTerms, play, read_cost
from parley.party.settings import Policy
from tests.support.cluster import Cluster
from tests.support.ledgers import make_ledger, open_ledger

TERMS = StreamTerms(name="prices", actions=3, horizon=6, bound=2.0, epsilon=1.0, delta=1e-6)
POLICY = Policy(epsilon=3, delta=1e-5, max_epsilon_per_run=1.5, max_delta_per_run=1e-5)
COSTS = np.random.default_rng(6).uniform(-2, 2, (6, 3)).round(3).tolist()
LINES = [json.dumps(cost) for cost in COSTS]


def opened(ledger: Ledger, policy: Policy = POLICY, **terms: object) -> Stream:
    return Stream(ledger, policy, TERMS.model_copy(update=terms), lambda round: SeededNoise([3, round]))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger", limit(3, 1e-5)) as ledger:
        yield ledger


def actions_of_one() -> list[int]:
    """The actions of an uninterrupted leader with the same noise."""
    leader, actions = Leader(3, 6, 2.0, 1.0, 1e-6), []
    for round, cost in enumerate(COSTS, start=1):
        leader.noise = SeededNoise([3, round])
        actions.append(leader.act())
        leader.observe(cost)
    return actions


# ── the ledger ───────────────────────────────────────────────────────────────


def test_the_first_action_is_charged_for_all_and_each_is_stored_before_it_is_shown(ledger: Ledger) -> None:
    stream = opened(ledger)
    assert [entry.record for entry in ledger.entries() if isinstance(entry.record, Answered)] == []
    for done, action in enumerate(play(stream, LINES), start=1):
        answers = ledger.answers()
        assert len(answers) == action.round == done
        assert Action.read(ledger.chain.attachment(len(ledger.entries()), "body")) == action
        charged = sum(answer.cost.epsilon for answer in answers) / 1e6
        assert charged == pytest.approx(stream.leader.guarantee.epsilon, abs=1e-6)
        assert all(not any(answer.cost.units) for answer in answers[1:])
    assert not any(ledger.account().reserved.units)
    assert [action["action"] for action in _bodies(ledger)] == actions_of_one()
    with pytest.raises(ConflictError, match="prices has ended"):
        opened(ledger)


def _bodies(ledger: Ledger) -> list[dict[str, int]]:
    return [
        json.loads(ledger.chain.attachment(entry.number, "body"))
        for entry in ledger.entries()
        if isinstance(entry.record, Answered)
    ]


@pytest.mark.parametrize("stop", range(7))
def test_a_stream_that_is_taken_up_again_is_the_one_that_was_never_left(ledger: Ledger, stop: int) -> None:
    first = list(play(opened(ledger), LINES[:stop]))
    if stop < 6:
        again = opened(ledger)
        assert again.act() == first[-1], "what was stored is shown once more, for it may not have been seen"
        first += list(play(again, LINES))[1:]
    assert [action.action for action in first] == actions_of_one()
    assert [action.round for action in first] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("stop", range(6))
def test_the_rest_of_an_input_begins_with_the_round_that_is_open(ledger: Ledger, stop: int) -> None:
    first = list(play(opened(ledger), LINES[:stop]))
    first += list(play(opened(ledger), LINES[stop:], from_start=False))[1:]
    assert [action.action for action in first] == actions_of_one()


def test_no_row_is_heard_twice_however_often_its_file_is_read(ledger: Ledger) -> None:
    """What a file's first lines were taken for: the costs of later rounds."""
    for lines in (LINES[:2], LINES[:2], LINES[:1], LINES[:4], []):
        list(play(opened(ledger), lines))
    stream = opened(ledger)
    assert stream.leader.state.rounds == 4
    assert stream.leader.state.totals.tolist() == _units(COSTS[:4]).sum(axis=0).tolist()
    other = [*LINES[:1], "", LINES[0], *LINES[2:]]
    with pytest.raises(
        ConflictError, match=r"line 3 of the input, round 2: the ledger has another cost .* 5, say --input rest"
    ):
        list(play(stream, other))
    assert opened(ledger).leader.state.rounds == 4


def _units(costs: list[list[float]]) -> IntArray:
    return np.asarray(np.rint(np.array(costs) / 2 * COST_UNIT), dtype=np.int64)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_line_that_says_its_round_is_of_that(ledger: Ledger, is_whole: bool) -> None:  # noqa: FBT001
    lines = [json.dumps({"round": round, "cost": cost}) for round, cost in enumerate(COSTS, start=1)]
    list(play(opened(ledger), lines[:2], from_start=is_whole))
    actions = list(
        play(opened(ledger), [lines[1], lines[2], lines[0], lines[2], lines[3], LINES[4]], from_start=is_whole)
    )
    assert [action.round for action in actions] == [3, 4, 5, 6]
    with pytest.raises(
        ConflictError, match=r"line 1 of the input, round 4: the ledger has another cost of this round$"
    ):
        list(play(opened(ledger), [json.dumps({"round": 4, "cost": COSTS[0]})], from_start=is_whole))
    for ahead in (7, 8):
        with pytest.raises(InvalidInputError, match=f"line 2 .*, round {ahead}: the cost of round 6 comes next"):
            list(play(opened(ledger), [lines[3], json.dumps({"round": ahead, "cost": COSTS[0]})], from_start=is_whole))
    assert [action.round for action in play(opened(ledger), lines, from_start=is_whole)] == [6]


def test_a_program_of_ones_own_says_the_round_too(ledger: Ledger) -> None:
    stream, cost = opened(ledger), tuple(COSTS[0])
    stream.act()
    stream.observe(cost, 1)
    stream.observe(cost, 1)
    with pytest.raises(InvalidInputError, match="round 2 has no action yet"):
        stream.observe(cost, 2)
    for round in (0, -1, 3):
        with pytest.raises(InvalidInputError, match="the cost of round 2 comes next"):
            stream.observe(cost, round)
    with pytest.raises(ConflictError, match="another cost of this round"):
        stream.observe(tuple(COSTS[1]), 1)
    with pytest.raises(InvalidInputError, match="3 numbers"):
        stream.observe(cost[:2], 1)
    assert stream.act().round == 2
    stream.observe(cost, 1)
    assert stream.act().round == 2


def _raise(*_: object) -> None:
    raise UnavailableError("the ledger cannot be written: its disk is full")


def test_an_action_that_could_not_be_stored_is_drawn_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, actions = opened(ledger), []
    for cost in COSTS:
        with monkeypatch.context() as broken:
            broken.setattr("parley.party.ledger.ledger._append", _raise)
            with pytest.raises(UnavailableError):
                stream.act()
        actions.append(stream.act().action)
        stream.observe(tuple(cost))
    assert actions == actions_of_one()


def test_an_end_that_could_not_be_stored_is_told_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = opened(ledger)
    list(play(stream, LINES[:5]))
    with monkeypatch.context() as broken:
        broken.setattr("parley.party.ledger.ledger._append", _raise)
        with pytest.raises(UnavailableError):
            stream.observe(tuple(COSTS[5]), 6)
    assert stream.is_over
    assert ledger.books.runs[OWNER, "prices"].ended is None
    stream.observe(tuple(COSTS[5]), 6)
    assert ledger.books.runs[OWNER, "prices"].ended == "owner"


@pytest.mark.parametrize("stop", [1, 40, 99])
def test_a_stream_that_rarely_draws_keeps_its_action_over_a_restart(ledger: Ledger, stop: int) -> None:
    terms = TERMS.model_copy(update={"horizon": 100, "adversary": "oblivious"})
    costs = np.random.default_rng(7).uniform(-2, 2, (100, 3)).round(3).tolist()
    leader, expected = terms.leader(), []
    assert leader.terms.board is not None
    for round, cost in enumerate(costs, start=1):
        leader.noise = SeededNoise([3, round])
        expected.append(leader.act())
        leader.observe(cost)
    lines = [json.dumps(cost) for cost in costs]

    def taken_up() -> Stream:
        return opened(ledger, name="rare", horizon=100, adversary="oblivious")

    actions = [action.action for action in play(taken_up(), lines[:stop])]
    draws = taken_up().leader.state.draws
    assert draws == sum(
        Action.read(ledger.chain.attachment(answer, "body")).drawn
        for answer in ledger.books.runs[OWNER, "rare"].answers.values()
    )
    actions += [action.action for action in play(taken_up(), lines)][1:]
    assert actions == expected
    assert sum(one != other for one, other in itertools.pairwise(actions)) < 30


def test_two_processes_cannot_part(ledger: Ledger) -> None:
    one, other = opened(ledger), opened(ledger)
    assert one.act() == other.act()
    one.observe(tuple(COSTS[0]))
    other.observe(tuple(COSTS[0]))
    assert one.act() == other.act()
    other.observe(tuple(COSTS[1]))
    one.observe(tuple(COSTS[2]))
    other.act()
    with pytest.raises(ConflictError, match="another process has stored another cost of round 2 of prices"):
        one.act()


def test_other_terms_prices_and_owners_rules_are_refused_before_anything_is_reserved(ledger: Ledger) -> None:
    opened(ledger).act()
    spent = ledger.account()
    with pytest.raises(ConflictError, match="prices was begun with other terms, horizon 6, not 7: say"):
        opened(ledger, horizon=7)
    with pytest.raises(ConflictError, match=r"adversary adaptive, not oblivious, bound 2.0, not 3.0, horizon 6, not 5"):
        opened(ledger, horizon=5, bound=3.0, adversary="oblivious")
    with pytest.raises(ForbiddenError, match="costs epsilon 2 "):
        opened(ledger, name="dear", epsilon=2.0)
    with pytest.raises(ForbiddenError, match="protects all its data at once"):
        opened(ledger, POLICY.model_copy(update={"adjacency": "whole_party"}), name="narrow")
    with pytest.raises(InvalidInputError, match="actions must lie"):
        opened(ledger, name="single", actions=1)
    assert ledger.account() == spent
    fits = ledger.account().runs_left(spent.spent)
    for number in range(fits):
        opened(ledger, name=f"more-{number}")
    with pytest.raises(BudgetExhaustedError):
        opened(ledger, name="one-too-many")


def test_an_audit_reports_actions_and_never_costs(ledger: Ledger) -> None:
    list(play(opened(ledger), LINES[:4]))
    lines = list(export(ledger))
    attached = [name for line in lines[1:] for name in json.loads(line)["attachments"]]
    assert set(attached) == {"spec", "price", "body"}
    entries, _ = verify(lines, ledger.identity.key)
    assert sum(isinstance(entry.record, Answered) for entry in entries) == 5


def test_no_guess_of_a_cost_can_be_confirmed_by_an_audit(ledger: Ledger) -> None:
    """Of two costs that are 0 or 1 there are four guesses, and the records name what was told by its digest."""
    list(play(opened(ledger, actions=2, bound=1.0), ["[0, 1]", "[1, 1]"]))
    stored = [ledger.chain.attachment(entry.number, "told") for entry in ledger.entries() if "told" in entry.attached]
    audit = "\n".join(export(ledger))
    (spec,) = [ledger.chain.attachment(entry.number, "spec") for entry in ledger.entries() if "spec" in entry.attached]
    query, guesses = hashlib.sha256(spec).digest(), list[str]()
    for cost in itertools.product((0, 1), repeat=2):
        cost_bytes = (np.array(cost) * COST_UNIT).astype("<i4").tobytes()
        assert any(cost_bytes in content for content in stored) == (cost in {(0, 1), (1, 1)})
        guesses += [hashlib.sha256(cost_bytes).hexdigest(), hashlib.sha256(query + cost_bytes).hexdigest()]
    assert not [guess for guess in guesses if guess in audit]
    assert all(hashlib.sha256(content).hexdigest() in audit for content in stored)


def test_a_service_leaves_an_owners_streams_alone(cluster: Cluster) -> None:
    settings = make_ledger(cluster.party_settings("party-1"))
    from parley.party.answers.party import open_store  # noqa: PLC0415

    with open_store(settings) as ledger:
        opened(ledger, epsilon=0.1).act()
        assert ledger.consents.open_runs() == []
        assert ledger.books.runs[OWNER, "prices"].rounds == 6
    with TestClient(create_party_app(settings)) as client:
        assert client.get("/readyz").status_code == 200


def test_an_own_run_is_no_learners(ledger: Ledger) -> None:
    opened(ledger)
    (approved,) = [entry.record for entry in ledger.entries() if isinstance(entry.record, Approved)]
    assert approved.learner == OWNER
    assert ledger.consents.find("prices", "prices") is None


# ── lines ────────────────────────────────────────────────────────────────────


def test_costs_are_lists_or_have_a_name() -> None:
    assert read_cost("[1, -0.5, 0]") == read_cost('{"cost": [1, -0.5, 0.0]}\n') == CostLine(cost=(1.0, -0.5, 0.0))
    assert read_cost('{"cost": [1, 0], "round": 3}') == CostLine(round=3, cost=(1.0, 0.0))
    assert str(Action(3, 1)) == '{"round": 3, "action": 1}'


SECRET = "4111"


@pytest.mark.parametrize(
    "line",
    [
        f"[{SECRET}",
        f'"{SECRET}"',
        SECRET,
        f'{{"costs": [{SECRET}]}}',
        f'{{"cost": [{SECRET}], "x": 1}}',
        f'{{"cost": [1], "Jane Doe {SECRET}": 1}}',
        f'{{"cost": [1], "cost": [{SECRET}]}}',
        f'{{"cost": [1], "round": "{SECRET}"}}',
        f'{{"cost": [1], "round": {SECRET}000000000000}}',
        '{"cost": [1], "round": 0}',
        '{"cost": [1], "round": true}',
        f"[{SECRET}, NaN]",
        f"[{SECRET}, 1e400]",
        f"[{SECRET}, 1{'0' * 400}]",
        '["x"' + ', "x"' * 100_000 + "]",
        f'["{SECRET}"]',
        f"[[{SECRET}]]",
        f"[true, {SECRET}]",
        f"[null, {SECRET}]",
        "[" * 100_000,
        "{}",
    ],
)
def test_a_line_that_is_no_cost_is_refused_and_not_repeated(line: str) -> None:
    with pytest.raises(InvalidInputError, match="a line") as error:
        read_cost(line)
    assert SECRET not in error.value.detail
    assert len(error.value.detail) < 200
