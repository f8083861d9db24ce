"""The second levels of the feature methods: who is asked what, by which terms, and what each choice follows from."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.algorithms._parameters import rounded
from parley.common.algorithms._regularization import choose_regularization
from parley.common.algorithms.dp_gd import DpGd
from parley.common.algorithms.feature import All, FeatureMethod, Full, Own, Public
from parley.common.algorithms.release import DRIFTS, MECHANISMS
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Huber, Loss
from parley.common.privacy.events import L2LaplaceEvent
from parley.common.privacy.mechanisms.output import output
from parley.common.privacy.mechanisms.site import SiteTerms
from parley.common.privacy.noise import NoNoise, SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Question, Reply
from tests.support.noises import StackedNoise
from tests.unit.test_feature import FULL, NAMES, PUBLIC, SHARDS, D, K, N, facts

SIZES = np.array([300, 200, 100, 400, 50])
EPSILONS, DELTAS = np.array([1.0, 2.0, 0.5, 4.0, 3.0]), np.array([1e-5, 1e-6, 1e-7, 1e-5, 1e-4])
EVERYBODY = tuple(range(K))


def unlike(**terms: Any) -> FederationFacts:  # noqa: ANN401 -- fields
    """Sites of different sizes and budgets."""
    return replace(facts(**terms), n_examples=SIZES, epsilon=EPSILONS, delta=DELTAS)


def method(**parameters: object) -> FeatureMethod:
    built = build_algorithm("feature", parameters)
    assert isinstance(built, FeatureMethod)
    return built


def full(**parameters: object) -> Full:
    level = method(**FULL | parameters).level
    assert isinstance(level, Full)
    return level


def ended(program: Generator[Query, Reply, Any], reply: Reply) -> Any:  # noqa: ANN401 -- a model
    with pytest.raises(StopIteration) as stop:
        program.send(reply)
    return stop.value.value


# ── public rows ──────────────────────────────────────────────────────────────


def test_of_public_rows_lambda_is_a_third_of_a_rows_share() -> None:
    level, of = method().level, unlike()
    assert type(level) is Public
    choice = level.choose(of, {}, 10)["second_regularization"]
    assert choice.value == rounded(0.3 / len(PUBLIC.y))
    assert choice.why.startswith("0.3 / n")
    assert level.choose(of, {"second_regularization": 0.5}, 10) == {}
    assert level.sensitivity(Query(2, "none", np.zeros(0)), of.everyone) == 0.0
    assert level.questions(of) == ()


# ── an aggregator ────────────────────────────────────────────────────────────


def test_an_aggregator_is_asked_for_a_weight_of_each_other_model() -> None:
    assert full().questions(unlike()) == (Question("weigh", (K - 1, D), K - 1),)
    two = FederationFacts.uniform(np.full(2, 9), epsilon=1.0, delta=1e-5, n_features=D, loss=Huber())
    assert full().questions(two) == (Question("weigh", (1, D), 1),)
    alone = replace(two, parties=("party-2",), minimum_contributors=1)
    with pytest.raises(InvalidInputError, match="an aggregator alone"):
        full().questions(alone)


@pytest.mark.parametrize("second", ["full", "own"])
def test_a_model_is_the_others_by_the_aggregators_weights(second: str) -> None:
    of, basis = unlike(), np.random.default_rng(3).normal(size=(K, D))
    level = method(second=second, aggregator="party-2").level
    program = level.program(basis, of, None)
    query = next(program)
    assert (query.round, query.step) == (2, "weigh")
    assert (query.message == basis[[0, 2, 3, 4]]).all()
    level.questions(of)[0].check(replace(query, message=query.message / 10))
    model = ended(program, Reply(np.array([1.0, 2.0, 3.0, 4.0]), (1,)))
    assert model.made_of["site_weights"].tolist() == [1.0, 0.0, 2.0, 3.0, 4.0]
    assert model.weights == pytest.approx(np.array([1.0, 0, 2, 3, 4]) @ basis)


def test_its_mechanism_is_told_its_own_size_and_budget_and_as_many_features_as_other_sites() -> None:
    level = full(second_regularization=0.05, law="l2_laplace", calibration="paper", second_mechanism="output")
    site_terms = SiteTerms(Huber(), 200, K - 1, 0.05, 2.0, 1e-6, "l2_laplace", "paper")
    assert level.site_terms(unlike()) == site_terms
    assert level.site_terms(unlike(), 3.0) == replace(site_terms, regularization=3.0)
    assert level.site(unlike()) == output(site_terms)
    assert level.event(2, unlike().of(1)) == L2LaplaceEvent(2.0, K - 1)


def test_only_the_aggregators_records_move_what_it_answers() -> None:
    of, query = unlike(), Query(2, "weigh", np.eye(K - 1, D))
    level = full(second_mechanism="output", second_regularization=0.05)
    reach = output(level.site_terms(of)).reach
    assert np.asarray(level.sensitivity(query, of.everyone)).tolist() == [0.0, reach, 0.0, 0.0, 0.0]
    assert [float(level.sensitivity(query, of.of(index))) for index in range(K)] == [0.0, reach, 0.0, 0.0, 0.0]
    within = full().sensitivity(query, of.of(1))
    assert float(within) == math.inf, "noise inside a minimisation"


def test_an_aggregator_answers_in_a_stack_as_by_itself() -> None:
    """From its own rows and its own noise."""
    of, level = facts(), full()
    query = Query(2, "weigh", np.random.default_rng(5).normal(size=(K - 1, D)))
    for seeded in (False, True):
        sources = [SeededNoise(index) if seeded else NoNoise() for index in range(K)]
        together = level.local(query, SHARDS, of.everyone, StackedNoise(sources))
        alone = level.local(query, SHARDS.party(1), of.of(1), SeededNoise(1) if seeded else NoNoise())
        assert (together[1] == alone).all()
        assert not together[[0, 2, 3, 4]].any()


def test_noise_that_does_not_fit_is_refused_but_where_none_is_added() -> None:
    given = {"second_mechanism": "output", "second_regularization": 1e-3, "aggregator": "party-2"}
    small = replace(facts(), epsilon=np.full(K, 1e-6))
    for second in ("full", "own"):
        method(second=second, **given).level.check_noise(facts().everyone)
    with pytest.raises(InvalidInputError, match="epsilon is too small"):
        method(second="full", **given).level.check_noise(small.everyone)
    method(second="own", **given).level.check_noise(small.everyone)


@pytest.mark.parametrize("second_mechanism", ["output", "objective"])
def test_its_lambda_follows_the_rule_of_releases(second_mechanism: Any) -> None:  # noqa: ANN401
    """Of its own noise at lambda = 1, and a quarter of the drift of releases."""
    of, level = unlike(), full(second_mechanism=second_mechanism)
    at_1 = MECHANISMS[second_mechanism](replace(level.site_terms(of), regularization=1.0)).deviation
    due = choose_regularization({}, at_1, DRIFTS[second_mechanism] / 4)
    assert level.choose(of, {}, 10) == {"second_regularization": due["regularization"]}
    assert level.choose(of, {"second_regularization": 0.5}, 10) == {}
    assert full(aggregator="party-9").choose(of, {}, 10) == {}


def test_a_lambda_that_no_solver_surely_does_with_is_raised() -> None:
    loss: Loss = Huber(1e-4)
    of = replace(unlike(loss=loss), epsilon=np.full(K, 1e3))
    level = full(second_mechanism="output", second_regularization=10.0)
    by_rule = choose_regularization({}, level.site(of, 1.0).deviation, DRIFTS["output"] / 4)["regularization"].value
    choice = level.choose(of, {}, 10)["second_regularization"]
    assert isinstance(choice.value, float)
    assert isinstance(by_rule, float)
    assert choice.value > by_rule
    assert choice.why.startswith("the least with which a solver surely finds")
    level.site(of, choice.value)
    with pytest.raises(InvalidInputError, match=r"^party-2: no solver surely finds .* regularization = .* it would do"):
        level.site(of, 0.97 * choice.value)


def test_an_owner_asks_its_own_data_and_anybody_else_gets_the_models() -> None:
    level = method(second="own", aggregator="party-2").level
    assert type(level) is Own
    assert level.questions(unlike()) == full().questions(unlike())
    others = replace(unlike(), parties=("a", "b", "c", "d", "e"))
    assert level.questions(others) == ()
    basis = np.random.default_rng(6).normal(size=(K, D))
    with pytest.raises(StopIteration) as stop:
        next(level.program(basis, others, None))
    assert stop.value.value.kind == "members"
    assert stop.value.value.weights is basis


# ── all sites ────────────────────────────────────────────────────────────────


def everyones(**parameters: object) -> All:
    level = method(second="all", first_part=0.25, **parameters).level
    assert isinstance(level, All)
    return level


def left(of: FederationFacts, part: float) -> FederationFacts:
    return replace(of, epsilon=of.epsilon * part, delta=of.delta * part)


@pytest.mark.parametrize("given", [{}, {"n_rounds": 7}, {"step": 0.5, "momentum": 0.5}, {"n_rounds": 3, "step": 0.1}])
def test_the_descent_is_chosen_as_dp_gd_would_with_what_is_left(given: dict[str, Any]) -> None:
    of, level = unlike(), everyones(second_regularization=0.02)
    fixed = {"regularization": 0.02, "averaging": 0.5, "clip_norm": 1.0}
    due = DpGd.choose(left(of, 0.75), given | fixed, 50)
    assert level.choose(of, given | {"mechanism": "output"}, 50) == due
    assert not set(due) & set(given)


def test_the_descent_has_the_terms_that_are_given() -> None:
    level = everyones(second_regularization=0.02, n_rounds=7, step=0.5, momentum=0.25)
    dp_gd = DpGd(n_rounds=7, step=0.5, momentum=0.25, regularization=0.02)
    assert level.descent == dp_gd
    assert level.sensitivity(Query(2, "gradient", np.zeros(D)), unlike().everyone) == 2 * dp_gd.clip_norm == 2.0
    assert level.questions(unlike()) == dp_gd.questions(unlike())
    first = level.first_facts(unlike())
    assert (first.epsilon / EPSILONS).tolist() == pytest.approx([0.25] * K)
    assert (first.delta / DELTAS).tolist() == pytest.approx([0.25] * K)


def test_noise_on_a_sum_that_does_not_fit_is_refused_by_what_is_left() -> None:
    level, fits = everyones(), 1.0
    level.check_noise(facts().everyone)
    while True:  # down to where a quarter less no longer fits
        of = replace(facts(), epsilon=np.full(K, fits))
        try:
            level.descent.check_noise(left(of, 0.75).everyone)
        except InvalidInputError:
            break
        level.check_noise(of.everyone)
        fits *= 0.9
    with pytest.raises(InvalidInputError, match="epsilon is too small"):
        level.check_noise(of.everyone)


def test_a_descent_begins_with_round_2_and_never_leaves_the_span() -> None:
    of, basis = facts(), np.random.default_rng(7).normal(size=(K, D))
    basis[:, 3:] = 0.0
    level = everyones(n_rounds=3, momentum=0.5)
    program = level.program(basis, of, None)
    query, asked = next(program), []
    rng = np.random.default_rng(8)
    for _ in range(3):
        asked.append(query)
        answer = Reply(rng.normal(size=D) * N, EVERYBODY)
        if len(asked) < 3:
            query = program.send(answer)
    model = ended(program, answer)
    assert [each.round for each in asked] == [2, 3, 4]
    assert [each.step for each in asked] == ["gradient"] * 3
    assert asked[1].message[:3].all()
    for weights in (asked[1].message, asked[2].message, model.weights):
        assert np.abs(weights[3:]).max() < 1e-12
    assert model.made_of["site_weights"] @ basis == pytest.approx(model.weights)


def test_names_are_those_of_the_run() -> None:
    assert full().aggregator == NAMES[1]
    assert method(second="full").level.aggregator == ""  # type: ignore[attr-defined]
