"""Models of persons: each counts as one example, whichever rows it has, and moves a minimiser no further than a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array

from parley.common.algorithms import AUTO, build_algorithm, settle
from parley.common.algorithms.feature import FeatureMethod
from parley.common.algorithms.ftrl import PrivateLeader
from parley.common.algorithms.release import PrivateRelease
from parley.common.algorithms.simplex import SampledSimplex
from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.data.sparse import SparseShard
from parley.common.encoding.classes import encode_classes
from parley.common.errors import InvalidInputError
from parley.common.learning.classifiers import LogisticRegression, Voter
from parley.common.learning.erm import MOST_STEPS, TOLERANCE, gradient_left, minimise
from parley.common.learning.losses import Huber, Logistic, Loss, Softmax
from parley.common.learning.simplex import SimplexProblem, gradient_near_minimiser, log_theta
from parley.common.learning.solvers import Risk, are_few, minimise_in_span
from parley.common.privacy.mechanisms.class_means import minimise_own
from parley.common.privacy.mechanisms.leader import COST_UNIT
from parley.common.privacy.mechanisms.output import output
from parley.common.privacy.mechanisms.sampling import range_of_a_draw
from parley.common.privacy.mechanisms.site import SiteTerms
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate

LOSSES = pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), Softmax(3)], ids=repr)
MOST = 40
UNLIKE = np.array([40, 1, 1, 20, 2])


def begins_of(sizes: IntArray) -> BoolArray:
    """Where persons of so many rows begin."""
    begins = np.zeros(int(sizes.sum()), dtype=np.bool_)
    begins[np.cumsum(sizes) - sizes] = True
    return begins


def persons(seed: int, sizes: IntArray, d: int, loss: Loss) -> Shard:
    """Persons of so many rows, on the unit sphere, each with labels of several classes."""
    rng, n = np.random.default_rng(seed), int(sizes.sum())
    X = rng.normal(size=(n, d))
    y = encode_classes(rng.integers(max(2, loss.outputs), size=n), max(2, loss.outputs))
    return Shard(X / np.linalg.norm(X, axis=1, keepdims=True), y, begins=begins_of(sizes))


# ── one example each ─────────────────────────────────────────────────────────


@LOSSES
@pytest.mark.parametrize(("n", "d"), [(30, 4), (5, 40), (12, 3000)], ids=["many", "few", "wide"])
def test_a_person_of_equal_rows_counts_as_one_row(loss: Loss, n: int, d: int) -> None:
    sizes = np.random.default_rng(1).integers(1, 6, n)
    rows = persons(0, np.ones(n, np.int64), d, loss)
    copies = Shard(rows.X.repeat(sizes, axis=0), rows.y.repeat(sizes), begins=begins_of(sizes))
    assert copies.n_examples == n
    single, repeated = (minimise(loss, shard, 0.3) for shard in (Shard(rows.X, rows.y), copies))
    assert np.abs(repeated - single).max() < 1e-8
    assert np.abs(minimise(loss, Shard(copies.X, copies.y), 0.3) - single).max() > 1e-3, "rows for themselves differ"


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=repr)
@pytest.mark.parametrize(("n", "d"), [(20, 3), (4, 60)], ids=["many", "few"])
def test_the_minimiser_of_weighted_rows_is_scipys(loss: Loss, n: int, d: int) -> None:
    shard = persons(2, np.random.default_rng(3).integers(1, 9, n), d, loss)
    shard = Shard(shard.X, shard.y, begins=shard.begins, row_weights=np.random.default_rng(4).random(len(shard.y)))

    def value(w: FloatArray) -> float:
        return float((shard.weights * loss.value(shard.X @ w, shard.y)).sum() + 0.2 * w @ w)

    ours = minimise(loss, shard, 0.4)
    theirs = minimize(value, np.zeros(d), method="BFGS", options={"gtol": 1e-7}).x
    assert value(ours) <= value(theirs) + 1e-12
    assert np.abs(ours - theirs).max() < 1e-3


@LOSSES
def test_persons_are_solved_alike_alone_in_a_stack_and_with_sparse_rows(loss: Loss) -> None:
    shards = [
        persons(seed, np.random.default_rng(seed).integers(1, 7, n), 4, loss) for seed, n in enumerate((2, 9, 40))
    ]
    strength = np.array([0.2, 1.0, 5.0])
    stacked = minimise(loss, Shard.stack(shards), strength)
    for shard, ridge, weights in zip(shards, strength.tolist(), stacked, strict=True):
        assert np.abs(minimise(loss, shard, ridge) - weights).max() < 1e-9
        sparse = SparseShard(csr_array(shard.X), shard.y, begins=shard.begins)
        assert np.array_equal(minimise(loss, sparse, ridge), minimise(loss, shard, ridge))


@LOSSES
def test_value_gradient_and_curvature_are_of_the_same_weighted_risk(loss: Loss) -> None:
    """A wrong one is no wrong model: the last steps go by the gradient. But there are a million of them."""
    rng, shape = np.random.default_rng(14), (4,) if loss.outputs == 1 else (loss.outputs, 4)
    shards = [persons(seed, rng.integers(1, 6, n), 4, loss) for seed, n in enumerate((30, 7))]
    risk = Risk(loss, Shard.stack(shards), np.array([0.3, 2.0]), rng.normal(size=(2, *shape)))
    w, step = rng.normal(size=(2, *shape)), rng.normal(size=(2, *shape)) * 1e-6
    ahead, back = risk.gradient(w + step), risk.gradient(w - step)
    slope = (risk.value(w + step) - risk.value(w - step)) / 2
    assert np.allclose(risk.total(risk.gradient(w) * step), slope, rtol=1e-3)
    assert np.allclose(risk.hessian_along(w)(step), (ahead - back) / 2, rtol=1e-3, atol=1e-10)
    if loss.outputs == 1:
        along = np.einsum("pij,pj->pi", risk.hessian(w), step)
        assert np.allclose(along, (ahead - back) / 2, rtol=1e-3, atol=1e-10)


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=repr)
def test_few_rows_are_solved_in_their_span_by_their_weights(loss: Loss) -> None:
    shard = persons(15, np.array([3, 1, 4]), 30, loss)
    with np.errstate(all="ignore"):  # as `minimise` calls it
        weights = minimise_in_span(loss, shard, np.array(0.2), np.zeros(30), TOLERANCE)
    assert np.linalg.norm(Risk(loss, shard, np.array(0.2)).gradient(weights)) <= TOLERANCE
    assert are_few(loss, shard)
    assert not are_few(loss, persons(15, np.array([3, 1, 40]), 30, loss)), "many rows, of three persons"
    assert not are_few(Softmax(3), shard), "of equal weight alone"


def test_fits_of_own_classes_keep_the_weights_of_their_rows() -> None:
    loss, sizes = Softmax(3), np.array([1, 3, 2, 5])
    two = persons(5, sizes, 3, Logistic())
    some = Shard(two.X, encode_classes(np.where(two.y > 0, 2, 0), 3), begins=two.begins)
    of_two = minimise(Softmax(2), Shard(two.X, encode_classes((two.y > 0).astype(np.int64), 2), begins=two.begins), 0.5)
    fits = minimise_own(loss, Shard.stack([some, some]), np.array([0.5, 0.5])).reshape(2, 3, 3)
    for fit in (*fits, minimise_own(loss, some, np.array(0.5)).reshape(3, 3)):
        assert np.abs(fit[[0, 2]] - of_two).max() < 1e-9
        assert not fit[1].any()


def test_a_voter_counts_a_person_once() -> None:
    sizes = np.array([9, 1, 1])
    X, classes = np.eye(3)[[0, 1, 2]].repeat(sizes, axis=0) / 2, np.array([0, 1, 1]).repeat(sizes)
    weights = np.repeat(1 / sizes, sizes)
    kind = LogisticRegression(kind="logistic", regularization=0.1)
    rows = np.random.default_rng(6).normal(size=(200, 3)) / 4
    single = Voter(kind, np.eye(3) / 2, np.array([0, 1, 1]), np.ones(3), 7).votes(rows)
    assert np.array_equal(Voter(kind, X, classes, weights, 7).votes(rows), single)
    assert not np.array_equal(Voter(kind, X, classes, np.ones(11), 7).votes(rows), single)
    alike = Voter(kind, np.zeros((11, 3)), classes, weights, 7).votes(rows)
    assert set(alike.tolist()) == {1}, "the class of most persons, not of most rows"


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=repr)
def test_persons_in_a_stack_vote_as_they_do_alone_beside_classifiers_of_other_kinds(loss: Loss) -> None:
    shards = [persons(seed, np.array([4, 1, 7, 2, 3]), 4, loss) for seed in range(3)]
    kinds = (None, LogisticRegression(kind="logistic"), None)
    rows, algorithm = np.random.default_rng(8).uniform(-0.5, 0.5, (60, 4)), build_algorithm("ensemble_vote")
    facts = FederationFacts.uniform(
        np.full(3, 5), epsilon=1.0, delta=1e-5, n_features=4, loss=loss, public_shape=rows.shape, public=rows,
        classifiers=kinds, unit="person", most_rows=MOST,
    )  # fmt: skip
    stacked = algorithm.prepare(Shard.stack(shards), facts.everyone).votes(rows)
    for place, shard in enumerate(shards):
        assert np.array_equal(algorithm.prepare(shard, facts.of(place)).votes(rows), stacked[place])
        single = Shard(shard.X[shard.begins], shard.y[shard.begins])
        copies = Shard(single.X.repeat(UNLIKE, axis=0), single.y.repeat(UNLIKE), begins=begins_of(UNLIKE))
        votes = [algorithm.prepare(one, facts.of(place)).votes(rows) for one in (copies, single)]
        assert np.array_equal(*votes)


WEIGHED: dict[str, dict[str, object]] = {
    "release": {"mechanism": "output"},
    "average": {},
    "local_average": {},
    "feature": {"mechanism": "output", "second": "full", "second_mechanism": "output", "aggregator": "party-3"},
    "multilevel_feature": {"mechanism": "output"},
    "parameter_average": {},
    "ensemble_vote": {},
    "ensemble_soft": {},
    "pooled": {},
    "local": {},
    "matrix_perturbation": {},
}


@pytest.mark.parametrize("name", WEIGHED)
def test_without_noise_a_run_takes_persons_of_equal_rows_for_records(name: str) -> None:
    k, n, d = 3, 40, 4
    rows = [persons(seed, np.ones(n, np.int64), d, Logistic()) for seed in range(k)]
    sizes = [np.random.default_rng(seed).integers(1, 9, n) for seed in range(k)]
    copies = [
        Shard(one.X.repeat(counts, axis=0), one.y.repeat(counts), begins=begins_of(counts))
        for one, counts in zip(rows, sizes, strict=True)
    ]
    public = np.random.default_rng(13).uniform(-0.5, 0.5, (30, d))
    facts = FederationFacts.uniform(
        np.full(k, n), epsilon=1e3, delta=1e-5, n_features=d, loss=Logistic(), public=public, public_shape=public.shape
    )
    algorithm = build_algorithm(name, WEIGHED[name] | ({} if "ensemble" in name else {"regularization": 0.1}))
    of_persons = replace(facts, unit="person", most_rows=9)
    model = simulate(algorithm, Shard.stack(copies), of_persons, NoNoise()).weights
    plain = simulate(algorithm, Shard.stack([Shard(one.X, one.y) for one in rows]), facts, NoNoise()).weights
    as_rows = replace(facts, n_examples=np.array([counts.sum() for counts in sizes]))
    lost = simulate(algorithm, Shard.stack([Shard(one.X, one.y) for one in copies]), as_rows, NoNoise()).weights
    assert np.abs(model - plain).max() < 1e-5 < np.abs(lost - plain).max()


# ── how far a person moves a minimiser ───────────────────────────────────────


def exchanged(seed: int, d: int, loss: Loss) -> Iterator[Shard]:
    """Three persons, whose last is exchanged: 40 rows for as many others, opposite ones or any, of any labels."""
    rng, k = np.random.default_rng(seed), max(2, loss.outputs)
    beside = rng.integers(1, 4, 2)
    fixed = rng.normal(size=(int(beside.sum()), d))
    labels = encode_classes(rng.integers(k, size=len(fixed)), k)
    centre, spread = rng.normal(size=d), float(rng.choice([0.0, 0.1, 3.0]))
    for sign, label in ((1, 0), (-1, rng.integers(k)) if seed % 2 else (1, k - 1)):
        rows = sign * centre + spread * rng.normal(size=(MOST, d))
        classes = np.full(MOST, label) if seed % 3 else rng.integers(k, size=MOST)
        X = np.concatenate([fixed, rows / np.linalg.norm(rows, axis=1, keepdims=True)])
        y = np.concatenate([labels, encode_classes(classes, k)])
        yield Shard(X, y, begins=begins_of(np.append(beside, MOST)))


@LOSSES
def test_a_person_of_forty_rows_moves_a_minimiser_no_further_than_a_record_may(loss: Loss) -> None:
    largest = 0.0
    for seed, strength in product(range(70), (0.05, 1.0, 20.0)):
        d = 2 + seed % 4
        site = output(SiteTerms(loss, 3, d, strength / 3, 1.0, 1e-5, most_rows=MOST))
        one, other = (
            minimise(loss, shard, strength, tolerance=TOLERANCE, most_steps=MOST_STEPS)
            for shard in exchanged(seed, d, loss)
        )
        largest = max(largest, float(np.linalg.norm(one - other)) / site.reach)
    assert 0.5 < largest <= 1.0


def test_rows_that_count_one_each_would_move_it_further() -> None:
    """The bound is for weights: without them the same persons break it."""
    site = output(SiteTerms(Logistic(), 3, 3, 20.0 / 3, 1.0, 1e-5, most_rows=MOST))
    pairs = ([Shard(shard.X, shard.y) for shard in exchanged(seed, 3, Logistic())] for seed in range(9))
    moved = [
        np.linalg.norm(minimise(Logistic(), one, 20.0) - minimise(Logistic(), other, 20.0)) for one, other in pairs
    ]
    assert max(moved) > 3 * site.reach


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=repr)
def test_a_person_moves_the_chances_of_columns_by_at_most_the_range_of_a_draw(loss: Loss) -> None:
    largest, d = 0.0, 3
    for seed, (scale, strength) in product(range(40), [(1.0, 20.0), (3.0, 3.0), (3.0, 300.0)]):
        problem = SimplexProblem(loss, 3, d, d, scale, strength, MOST)
        rng, pair = np.random.default_rng(seed), []
        beside = rng.choice([-1.0, 1.0], (2, d))
        for sign in (-1.0, 1.0):
            rows = rng.choice([-1.0, 1.0], (MOST, d)) if seed % 3 else np.ones((MOST, d))
            y = np.append([1.0, -1.0], rng.choice([-1.0, 1.0], MOST) if seed % 2 else np.full(MOST, sign))
            X = np.concatenate([beside, rows])
            pair.append(Shard(X, y, norm="max", begins=begins_of(np.array([1, 1, MOST]))))
        error = 1e-3 * range_of_a_draw(problem)
        logs = [log_theta(problem, gradient_near_minimiser(problem, shard, error)).reshape(-1) for shard in pair]
        largest = max(largest, float(np.ptp(logs[0] - logs[1])) / (range_of_a_draw(problem) + 2 * error))
    assert 0.3 < largest <= 1.0


def test_the_simplex_takes_a_person_of_equal_rows_for_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = np.array([30, 1, 12, 1])
    rng = np.random.default_rng(9)
    X, y = rng.uniform(-1, 1, (4, 5)), np.array([1.0, -1.0, 1.0, -1.0])
    copies = Shard(X.repeat(sizes, axis=0), y.repeat(sizes), norm="max", begins=begins_of(sizes))
    problem = SimplexProblem(Logistic(), 4, 5, 5, 6.0, 0.5, 30)
    one, other = (gradient_near_minimiser(problem, shard, 1e-9) for shard in (copies, Shard(X, y, norm="max")))
    assert np.abs(one - other).max() < 1e-8
    monkeypatch.setattr(SimplexProblem, "steps", lambda *_: 0)
    monkeypatch.setattr("parley.common.learning.simplex._NEWTON", 9)
    assert np.abs(gradient_near_minimiser(problem, copies, 1e-9) - one).max() < 1e-8, "a few of Newton's steps suffice"


# ── how near a solver surely comes ───────────────────────────────────────────


def test_more_rows_a_person_leave_a_longer_gradient_but_by_additions_alone() -> None:
    """Ten thousand persons of up to 100 rows are no million examples: these no solver surely finds."""
    terms = Logistic(), np.array(10_000), 50, np.array(10.0)
    one, hundred = float(gradient_left(*terms)), float(gradient_left(*terms, most_rows=100))
    assert one < hundred < 100 * one
    with pytest.raises(InvalidInputError, match="no solver surely finds"):
        gradient_left(Logistic(), np.array(1_000_000), 50, np.array(10.0))
    site = SiteTerms(Logistic(), 10_000, 50, 0.001, 1.0, 1e-5)
    assert output(site).reach < output(replace(site, most_rows=100)).reach
    problem = SimplexProblem(Logistic(), 10_000, 50, 50, 1.0, 10.0)
    more = replace(problem, most_rows=100)
    assert problem.rounding() < more.rounding()
    assert problem.range == more.range
    assert problem.condition == more.condition


def test_a_gradients_rounding_is_within_what_is_counted_for_long_persons() -> None:
    """Blocks of 256 rows end with a person, so they are longer: against the exact gradient, in extended precision."""
    sizes, d = np.full(40, MOST), 600
    shard = persons(10, sizes, d, Logistic())
    w = np.random.default_rng(11).normal(size=d)
    gradient = Risk(Logistic(), shard, np.array(1e-3)).gradient(w)
    X, y, weights = (part.astype(np.longdouble) for part in (shard.X, shard.y, shard.weights))
    exact = X.T @ (weights * -y / (1 + np.exp(y * (X @ w)))) + np.longdouble(1e-3) * w
    assert float(np.linalg.norm(gradient - exact)) < 1e-13
    assert max(block.y.shape[-1] for block in shard.blocks()) > 256, "as the bound allows"


# ── which algorithms ─────────────────────────────────────────────────────────


def facts_of(loss: Loss, **terms: object) -> FederationFacts:
    """Three parties of persons."""
    return FederationFacts.uniform(
        np.array([4000, 5000, 6000]), epsilon=1.0, delta=1e-5, n_features=5, loss=loss, unit="person", most_rows=MOST,
        **terms,
    )  # fmt: skip


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=repr)
@pytest.mark.parametrize("name", ["release", "average", "parameter_average"])
def test_what_is_chosen_for_persons_is_accepted_and_counts_rows_in_the_bound(name: str, loss: Loss) -> None:
    facts = facts_of(loss)
    algorithm, _ = settle(name, {"mechanism": AUTO} if name != "parameter_average" else {}, facts)
    algorithm.check_rows(facts)
    algorithm.questions(facts)
    if isinstance(algorithm, PrivateRelease):
        assert all(site.terms.most_rows == MOST for site in algorithm.own_sites(facts.everyone))


def test_the_simplex_counts_rows_in_what_its_solver_rounds() -> None:
    facts = facts_of(Logistic(), norm="max")
    algorithm, _ = settle("simplex", {"scale": AUTO, "regularization": AUTO}, facts)
    assert isinstance(algorithm, SampledSimplex)
    algorithm.check_rows(facts)
    assert {site.problem.most_rows for site in algorithm.own_sites(facts.everyone)} == {MOST}


def test_noise_inside_a_second_minimisation_counts_a_persons_rows() -> None:
    facts = facts_of(Logistic())
    full = FeatureMethod(mechanism="output", second="full", aggregator="party-1")
    for weighed in (full, replace(full, second_mechanism="output")):
        assert weighed.questions(facts)
        assert weighed.level.site(facts).terms.most_rows == MOST  # type: ignore[attr-defined]


# ── a leader ─────────────────────────────────────────────────────────────────


def test_a_leader_takes_persons_for_rounds_and_their_mean_rows_for_costs() -> None:
    sizes = np.array([1, 4, 2, 3, 1])
    rng = np.random.default_rng(12)
    X = rng.uniform(-1, 1, (11, 3))
    other = X.copy()
    other[1:5] = rng.choice([-1.0, 1.0], (4, 3))
    facts = FederationFacts.uniform(
        np.array([5]), epsilon=1.0, delta=1e-5, n_features=3, loss=Logistic(), norm="max", unit="person", most_rows=4
    ).of(0)
    shard, exchanged_one = (Shard(rows, np.ones(11), norm="max", begins=begins_of(sizes)) for rows in (X, other))
    leader = PrivateLeader(n_rounds=6)
    totals, moved = leader.prepare(shard, facts), leader.prepare(exchanged_one, facts)
    starts = np.cumsum(sizes) - sizes
    means = np.add.reduceat(shard.X * shard.weights[:, None], starts, axis=0)
    assert np.abs(np.diff(totals, axis=0) - np.floor(means * COST_UNIT)).max() == 0
    assert np.array_equal(totals[:2], moved[:2])
    assert np.abs(moved - totals).max() <= 2 * COST_UNIT
    assert len(np.unique(moved[2:] - totals[2:], axis=0)) == 1, "one round's costs differ"
    stacked = leader.prepare(Shard.stack([shard, exchanged_one]), facts)
    assert np.array_equal(stacked, [totals, moved])
