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
from parley.common.algorithms.feature import (
    All,
    FeatureMethod,
    Full,
    MultilevelFeature,
    Own,
    Public,
    _of_rows,
    best,
    in_span,
    spanned,
    weigh,
)
from parley.common.algorithms.release import DRIFTS, MECHANISMS
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import MAX_NORM, to_integers, to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Huber, Loss, Softmax
from parley.common.privacy.events import FLOATS, GaussianEvent, L2LaplaceEvent, NoEvent
from parley.common.privacy.mechanisms.objective import ObjectivePerturbation
from parley.common.privacy.mechanisms.output import output
from parley.common.privacy.mechanisms.site import SiteTerms
from parley.common.privacy.noise import NoNoise, SeededNoise
from parley.common.privacy.proofs import Additive, NoiseInside, PostProcessing
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Question, Reply
from parley.common.runs.pricing import transcript
from tests.support.noises import StackedNoise
from tests.unit.test_feature import FULL, NAMES, PUBLIC, SHARDS, TREE, D, K, N, facts

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


@pytest.mark.parametrize("second_mechanism", ["output", "objective"])
def test_the_proof_of_its_answer_is_that_of_a_release_of_its_rows_in_the_span(second_mechanism: Any) -> None:  # noqa: ANN401
    """Others answer zeros, about which there is nothing to prove; nor is anything proven of all at once."""
    of, algorithm = facts(), method(**FULL, second_mechanism=second_mechanism, second_regularization=0.05)
    basis = np.random.default_rng(5).normal(size=(K - 1, D))
    query = Query(2, "weigh", basis)
    assert [algorithm.proof(query, of.of(index)) for index in (0, 2, 3, 4)] == [None] * 4
    assert algorithm.proof(query, of.everyone) is None
    proof, rows = algorithm.proof(query, of.of(1)), SHARDS.party(1)
    site = MECHANISMS[second_mechanism](SiteTerms(Huber(), N, K - 1, 0.05, 1.0, 1e-5))
    if second_mechanism == "output":
        assert proof == Additive()
        return
    assert isinstance(site, ObjectivePerturbation)
    assert isinstance(proof, NoiseInside)
    answers = np.random.default_rng(6).normal(size=(3, K - 1))
    prepared = algorithm.prepare(rows, of.of(1))
    assert np.array_equal(proof.noise_of(prepared, answers), site.tilts_of(in_span(basis, rows), answers))
    assert (proof.law, proof.reach) == (GaussianEvent(2.0 / site.tilt), 2.0)
    assert algorithm.event(2, of.of(1)) == site.event


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


# ── the releases below ───────────────────────────────────────────────────────


def reach_of(index: int, part: float = 1.0) -> float:
    """How far a record moves the release of one of the sites that are unlike, at lambda .05 by a part of the budget."""
    size, epsilon, delta = int(SIZES[index]), EPSILONS[index] * part, DELTAS[index] * part
    return output(SiteTerms(Huber(), size, D, 0.05, epsilon, delta)).reach


@pytest.mark.parametrize(("second", "part"), [("public", 1.0), ("full", 1.0), ("own", 1.0), ("all", 0.25)])
def test_a_record_moves_the_release_of_every_site_that_has_one(second: str, part: float) -> None:
    """All but the aggregator, by output perturbation; of noise inside a minimisation nothing is said."""
    given = {"second": second, "first_part": 0.25, "aggregator": "party-2", "regularization": 0.05}
    of, query, algorithm = unlike(), Query(1, "release", np.zeros(0), "each"), method(mechanism="output", **given)
    due = [0.0 if second in {"full", "own"} and index == 1 else reach_of(index, part) for index in range(K)]
    assert np.asarray(algorithm.sensitivity(query, of.everyone)).tolist() == due
    assert [float(algorithm.sensitivity(query, of.of(index))) for index in range(K)] == due
    within = np.asarray(method(**given).sensitivity(query, of.everyone)).tolist()
    assert within == [math.inf if moved else 0.0 for moved in due]
    weigh = Query(2, "weigh", np.eye(K - 1, D))
    assert np.array_equal(algorithm.sensitivity(weigh, of.everyone), algorithm.level.sensitivity(weigh, of.everyone))


@pytest.mark.parametrize("secure_sum", [False, True])
def test_the_proof_of_a_release_puts_it_in_its_place(secure_sum: bool) -> None:  # noqa: FBT001
    of = facts(secure_sum=secure_sum)
    algorithm = method(**FULL | {"mechanism": "output", "regularization": 0.05})
    query, prepared = Query(1, "release", np.zeros(0), "each"), algorithm.prepare(SHARDS.party(2), of.of(2))
    proof = algorithm.proof(query, of.of(2))
    assert isinstance(proof, PostProcessing)
    assert (proof.of, proof.places_only) == (Additive(), True)
    released = proof.release(prepared, SeededNoise(1))
    assert released.shape == (D,)
    placed = proof.function(released)
    assert np.array_equal(placed, algorithm.local(query, prepared, of.of(2), SeededNoise(1)))
    assert placed.dtype == np.int64
    if secure_sum:
        assert np.array_equal(placed.reshape(K, D)[2], released)
        assert not np.delete(placed.reshape(K, D), 2, axis=0).any()
    else:
        assert np.array_equal(placed, released)


def test_an_owner_who_learns_weighs_by_its_own_rows_unless_it_says_otherwise() -> None:
    given = {"second": "own", "aggregator": "party-2"}
    assert FeatureMethod.for_owner("party-2", {}) == given
    assert FeatureMethod.for_owner("party-2", {"step": 0.5}) == given | {"step": 0.5}
    others = {"second": "full", "aggregator": "party-3"}
    assert FeatureMethod.for_owner("party-2", others) == others


# ── a tree ───────────────────────────────────────────────────────────────────


def tree(**parameters: object) -> MultilevelFeature:
    built = build_algorithm("multilevel_feature", {"tree": TREE, "regularization": 0.05} | parameters)
    assert isinstance(built, MultilevelFeature)
    return built


LEVELS = ("leaves", [0, 1, 2]), ("level-1", [3]), ("level-2", [4])


def asked(round: int) -> Query:
    """A round's question: at the leaves nothing, and above them models of all sites."""
    models = np.random.default_rng(9).normal(size=(K, D)) if round > 1 else np.zeros(0)
    return Query(round, LEVELS[round - 1][0], models, "each")


@pytest.mark.parametrize("secure_sum", [False, True])
def test_a_stack_answers_level_by_level_as_each_site_does_alone(secure_sum: bool) -> None:  # noqa: FBT001
    """From its own rows and its own noise, in its own place; sites of other levels answer zeros."""
    of, algorithm = facts(secure_sum=secure_sum), tree()
    for round, (step, members) in enumerate(LEVELS, start=1):
        query = asked(round)
        assert algorithm.questions(of)[round - 1].step == step
        noise = StackedNoise([SeededNoise(index) for index in range(K)])
        together = algorithm.local(query, algorithm.prepare(SHARDS, of.everyone), of.everyone, noise)
        alone = [algorithm.local(query, SHARDS.party(index), of.of(index), SeededNoise(index)) for index in range(K)]
        assert np.array_equal(together, alone)
        assert together.dtype == np.int64
        assert together.shape == (K, K * D if secure_sum else D)
        assert np.flatnonzero(together.any(axis=1)).tolist() == members
        for index in members if secure_sum else ():
            assert np.flatnonzero(together[index].reshape(K, D).any(axis=1)).tolist() == [index]


def test_a_record_moves_a_release_of_the_tree_in_its_round_alone() -> None:
    """In as many features as a node has children, or in those of the rows for a leaf."""
    of, algorithm, widths = unlike(), tree(mechanism="output"), [D, D, D, 2, 2]
    due = [
        output(SiteTerms(Huber(), int(SIZES[index]), width, 0.05, EPSILONS[index], DELTAS[index]))
        for index, width in enumerate(widths)
    ]
    for round, (_, members) in enumerate(LEVELS, start=1):
        moved = [due[index].reach if index in members else 0.0 for index in range(K)]
        assert algorithm.sensitivity(asked(round), of.everyone).tolist() == moved
        assert [float(algorithm.sensitivity(asked(round), of.of(index))) for index in range(K)] == moved
        events = [algorithm.event(round, of.of(index)) for index in range(K)]
        assert events == [due[index].event if index in members else NoEvent() for index in range(K)]


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_the_proof_of_a_nodes_release_is_in_the_views_of_its_rows(mechanism: Any) -> None:  # noqa: ANN401
    """The model of the rows themselves is a function of it."""
    of, algorithm, query, rows = facts(secure_sum=True), tree(mechanism=mechanism), asked(2), SHARDS.party(3)
    assert [algorithm.proof(query, of.of(index)) for index in (0, 1, 2, 4)] == [None] * 4
    proof, views = algorithm.proof(query, of.of(3)), in_span(spanned(query.message[:2]), rows)
    assert isinstance(proof, PostProcessing)
    site = MECHANISMS[mechanism](SiteTerms(Huber(), N, 2, 0.05, 1.0, 1e-5))
    released = proof.release(rows, SeededNoise(1))
    assert np.array_equal(released, site.answer([site], site.prepare([site], views), SeededNoise(1)))
    assert np.array_equal(proof.function(released), algorithm.local(query, rows, of.of(3), SeededNoise(1)))
    assert not proof.places_only
    if isinstance(site, ObjectivePerturbation):
        assert isinstance(proof.of, NoiseInside)
        answers = np.random.default_rng(6).normal(size=(3, 2))
        assert np.array_equal(proof.of.noise_of(rows, answers), site.tilts_of(views, answers))
    else:
        assert proof.of == Additive()


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
    assert level.proof(Query(2, "gradient", np.zeros(D)), unlike().everyone) == Additive()
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


# ── the methods as a whole ───────────────────────────────────────────────────


@pytest.mark.parametrize(("second", "part"), [("public", 1.0), ("full", 1.0), ("all", 0.25)])
def test_the_release_is_chosen_for_its_part_of_the_budget_and_the_second_level_with_it(
    second: Any,  # noqa: ANN401
    part: float,
) -> None:
    of, given = unlike(), {"second": second, "first_part": 0.25, "aggregator": "party-2"}
    release = FeatureMethod.choose_release(left(of, part), given)
    chosen = {name: choice.value for name, choice in release.items()}
    assert set(chosen) == {"mechanism", "law", "regularization"}
    level = method(**given | chosen).level
    assert FeatureMethod.choose(of, given, 20) == release | level.choose(of, given, 20)
    with pytest.raises(InvalidInputError, match="for a loss of one score"):
        FeatureMethod.choose(unlike(loss=Softmax(3)), given, 20)


@pytest.mark.parametrize("second", ["public", "full", "all"])
def test_each_site_adds_all_of_its_noise_but_to_sums_of_gradients(second: str) -> None:
    algorithm = method(second=second, aggregator="party-2")
    assert [algorithm.whole_noise(round) for round in (1, 2, 3)] == [True, *[second != "all"] * 2]
    assert algorithm.roles == (second == "full")
    assert method(second=second, sites=[{"party": "party-1", "law": "l2_laplace"}]).roles
    assert algorithm.public_rows == ("labelled" if second == "public" else "none")
    assert method(second=second, select="best").public_rows == "labelled"


def test_noise_in_floating_point_and_raw_models_are_assumptions() -> None:
    of = facts()
    raw = "the sites' models are released without noise: their raw minimisers show through every later step"
    seen = "the learner sees every site's release, and sites that are asked see those of the levels below them"
    assert method(mechanism="output").assumptions(of.of(0)) == ()
    assert FLOATS in transcript(method(mechanism="output", law="l2_laplace"), of.of(0)).assumptions
    assert method(mechanism="none").assumptions(of.of(0)) == (raw,)
    one = method(mechanism="output", sites=[{"party": "party-3", "mechanism": "none"}])
    assert [one.assumptions(of.of(index)) for index in (2, 3)] == [(raw,), ()]
    assert one.assumptions(of.everyone) == (raw,)
    assert tree(mechanism="output").assumptions(of.of(0)) == (seen,)
    assert FLOATS in transcript(tree(mechanism="output", law="l2_laplace"), of.of(4)).assumptions
    assert tree().roles


@pytest.mark.parametrize("secure_sum", [False, True])
def test_the_second_level_gets_the_models_that_were_selected_divided_by_a_number(secure_sum: bool) -> None:  # noqa: FBT001
    of = facts(secure_sum=secure_sum, minimum_contributors=4)
    models = np.random.default_rng(10).normal(size=(K, D))
    models[1] = models[0] + models[2]
    reply = Reply(models.ravel() if secure_sum else models, EVERYBODY)
    right = [float(((PUBLIC.X @ model > 0) == (PUBLIC.y > 0)).mean()) for model in models]
    for select, members in (
        ("all", [0, 1, 2, 3, 4]),
        ("best", sorted(np.argsort(right)[-2:].tolist())),
        ("independent", None),
    ):
        program = method(select=select, n_selected=2).program(of)
        query = next(program)
        assert (query.round, query.step, query.message.size) == (1, "release", 0)
        assert query.reveal == ("sum" if secure_sum else "each")
        span = ended(program, reply).made_of["span"]
        chosen = np.flatnonzero(span.any(axis=1)).tolist()
        assert len(chosen) == 4 if members is None else chosen == members
        assert span[chosen] / span[chosen[0], 0] == pytest.approx(models[chosen] / models[chosen[0], 0])
        assert np.linalg.norm(PUBLIC.X @ span.T, axis=1).mean() == pytest.approx(1.0)


@pytest.mark.parametrize("secure_sum", [False, True])
def test_a_tree_is_asked_level_by_level_about_the_releases_below(secure_sum: bool) -> None:  # noqa: FBT001
    """The model is the root's, beside which stand all releases."""
    of, algorithm = facts(secure_sum=secure_sum), tree()
    models, program = np.random.default_rng(11).normal(size=(K, D)), algorithm.program(of)
    width, reveal = (K * D, "sum") if secure_sum else (D, "each")
    assert (
        algorithm.questions(of)
        == (
            Question("leaves", (0,), width, reveal),  # type: ignore[arg-type]
            *(Question(step, (K, D), width, reveal) for step, _ in LEVELS[1:]),  # type: ignore[arg-type]
        )
    )
    known, query = np.zeros((K, D)), next(program)
    for round, (step, members) in enumerate(LEVELS, start=1):
        assert (query.round, query.step, query.reveal) == (round, step, reveal)
        assert np.array_equal(query.message, known if round > 1 else np.zeros(0))
        answer = np.zeros((K, D))
        answer[members] = models[members]
        reply, known = Reply(answer.ravel() if secure_sum else answer, EVERYBODY), known + answer
        if round < len(LEVELS):
            query = program.send(reply)
    model = ended(program, reply)
    assert np.array_equal(model.weights, models[4])
    assert np.array_equal(model.made_of["releases"], models)


def test_a_release_whose_noise_does_not_fit_is_refused_by_its_part_of_the_budget() -> None:
    given = {"mechanism": "output", "regularization": 1e-3, "first_part": 1e-3, "n_rounds": 1}
    small = facts(0.02).everyone
    method(**given).check_noise(small)
    with pytest.raises(InvalidInputError, match="epsilon is too small"):
        method(**given, second="all").check_noise(small)


# ── what is made of models and views ─────────────────────────────────────────


def test_of_models_that_are_right_as_often_the_first_are_best() -> None:
    equal = np.tile(np.random.default_rng(12).normal(size=D), (50, 1))
    assert np.flatnonzero(best(equal, PUBLIC, 3).any(axis=1)).tolist() == [0, 1, 2]
    equal[20] = 0.0
    assert np.flatnonzero(best(equal, PUBLIC, 40).any(axis=1)).tolist() == [*range(20), *range(21, 41)]


def test_public_rows_weigh_by_a_ridge_for_as_many_as_there_are() -> None:
    basis, rows = np.random.default_rng(13).normal(size=(K, D)), PUBLIC
    views = in_span(basis, rows)
    assert weigh(Huber(), basis, rows, 0.05) == pytest.approx(minimise(Huber(), views, 0.05 * len(rows.y)))
    padded = in_span(basis, Shard(rows.X, rows.y, np.arange(len(rows.y)) % 3 > 0))
    assert np.array_equal(padded.y[padded.mask], rows.y[padded.mask])
    assert np.flatnonzero(~padded.mask).tolist() == list(range(0, len(rows.y), 3))


def test_a_nodes_model_is_cut_off_at_the_largest_weights_on_both_sides() -> None:
    basis = np.array([[1e5, -1e5, 2.0], [0.0, 0.0, 1.0]])
    assert to_reals(_of_rows(basis, to_integers(np.array([1.0, 0.5])))).tolist() == [MAX_NORM, -MAX_NORM, 2.5]
