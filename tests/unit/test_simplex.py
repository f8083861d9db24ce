"""Draws from the minimiser over a simplex: near enough for certain, private as their event says, and honest."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp

from parley.common.algorithms import build_algorithm, settle
from parley.common.algorithms.simplex import SampledSimplex
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.data.sparse import SparseShard
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared
from parley.common.learning.metrics import fitness
from parley.common.learning.model import Model
from parley.common.learning.simplex import SimplexProblem, gradient_near_minimiser, log_theta, theta_near_minimiser
from parley.common.privacy.accountant import epsilon_after
from parley.common.privacy.draws import epsilon_of_draws
from parley.common.privacy.events import DrawEvent
from parley.common.privacy.mechanisms.sampling import (
    allowed,
    best_sampling,
    draws_of_theorem_3,
    range_of_a_draw,
    sampling,
)
from parley.common.privacy.noise import NoNoise, SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate

LOSSES: list[Loss] = [Logistic(), Huber(), Squared()]


def rows(n: int, d: int, seed: int = 0, *, corners: bool = False) -> Shard:
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], (n, d)) if corners else rng.uniform(-1, 1, (n, d))
    return Shard(X, np.where(X[:, 0] + 0.3 * X[:, -1] + 0.5 * rng.standard_normal(n) > 0, 1.0, -1.0), norm="max")


def problem_of(shard: Shard, loss: Loss, scale: float, strength: float) -> SimplexProblem:
    n, d = shard.shape
    return SimplexProblem(loss, n, d, d, scale, strength)


def normalised(problem: SimplexProblem, shard: Shard, error: float) -> FloatArray:
    """Log theta, (2d,)."""
    logs = log_theta(problem, gradient_near_minimiser(problem, shard, error)).reshape(-1)
    return np.asarray(logs - logsumexp(logs))


# ── near enough, for certain ─────────────────────────────────────────────────


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("scale", "strength"), [(1.0, 20.0), (5.0, 2.0), (20.0, 300.0)])
def test_it_is_the_minimiser_of_a_solver_that_knows_nothing_of_it(loss: Loss, scale: float, strength: float) -> None:
    shard = rows(60, 4)
    problem = problem_of(shard, loss, scale, strength)
    found = normalised(problem, shard, 1e-6)

    def objective(free: FloatArray) -> float:
        logs = free - logsumexp(free)
        theta = np.exp(logs)
        weights = scale * (theta[:4] - theta[4:])
        losses = loss.value(shard.X @ weights, shard.y).sum()
        return float(losses + strength * (theta * logs).sum())

    other = minimize(objective, np.zeros(8), tol=1e-12).x
    assert objective(found) <= objective(other) + 1e-9
    assert np.abs(np.exp(found) - np.exp(other - logsumexp(other))).max() < 1e-3


@pytest.mark.parametrize("loss", LOSSES)
def test_newtons_steps_and_damped_ones_end_within_the_error(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = rows(50, 6, corners=True)
    problem = problem_of(shard, loss, 3.0, 20.0)
    near = normalised(problem, shard, 1e-9)
    for error in (1e-3, 1e-6):
        by_newton = normalised(problem, shard, error)
        with monkeypatch.context() as patch:
            patch.setattr("parley.common.learning.simplex._NEWTON", 0)
            by_damped_steps = normalised(problem, shard, error)
        for found in (by_newton, by_damped_steps):
            assert np.ptp(found - near) <= error


def test_what_cannot_be_solved_for_certain_is_known_beforehand() -> None:
    shard = rows(50, 6)
    assert problem_of(shard, Logistic(), 3.0, 10.0).is_solvable(1e-6)
    assert not problem_of(shard, Logistic(), 1e4, 1e-6).is_solvable(1e-6)
    assert not problem_of(shard, Logistic(), 3.0, 10.0).is_solvable(1e-16)


def test_chances_too_small_for_a_float_make_no_error_for_any_labels() -> None:
    X = np.tile([1.0, 0.0], (400, 1))
    problem = SimplexProblem(Logistic(), 400, 2, 2, 0.1, 400 * 3e-5)
    assert problem.range > 4 * -math.log(5e-324)
    for ones in range(0, 401, 7):
        y = np.where(np.arange(400) < ones, 1.0, -1.0)
        _, exponents = theta_near_minimiser(problem, Shard(X, y, norm="max"), 1e-2)
        assert exponents.max() == 0
        assert -problem.range / math.log(2) - 1 <= exponents.min()


def test_dense_and_sparse_rows_make_the_same_draws() -> None:
    shard = rows(300, 7)
    facts = facts_of(300, 7, scale=3.0)
    algorithm = build_algorithm("simplex", {"scale": 3.0, "regularization": 0.5})
    dense, sparse = (
        simulate(algorithm, Shard.stack([each]), facts, SeededNoise(1)).weights
        for each in (shard, SparseShard.of(shard))
    )
    assert (dense == sparse).all()


# ── as private as its event says ─────────────────────────────────────────────


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("scale", "strength"), [(1.0, 3.0), (4.0, 10.0), (10.0, 500.0)])
@pytest.mark.slow
def test_neighbours_chances_differ_by_no_more_than_the_bound(loss: Loss, scale: float, strength: float) -> None:
    """60 pairs here, half of them of corners and of labels as far apart as can be: 540 in all."""
    worst = 0.0
    for seed in range(60):
        corners = seed % 2 == 0
        shard = rows(25, 3, seed, corners=corners)
        problem = problem_of(shard, loss, scale, strength)
        X, y = shard.X.copy(), shard.y.copy()
        if corners:
            X[0], y[0] = -X[0], y[0]
        else:
            X[0], y[0] = np.random.default_rng(seed + 1000).uniform(-1, 1, 3), -y[0]
        other = Shard(X, y, norm="max")
        bound = range_of_a_draw(problem)
        apart = normalised(problem, shard, 1e-6 * bound) - normalised(problem, other, 1e-6 * bound)
        worst = max(worst, float(np.ptp(apart)) / bound)
    print(f"{loss}, R = {scale:g}, lambda = {strength:g}: at most {worst:.3f} of the bound")
    assert worst <= 1


def test_a_worst_pair_comes_near_the_bound() -> None:
    """One record, which pulls as hard as a record can, and its opposite: a small a leaves the direct move alone."""
    one, other = (Shard(np.array([[1.0, -1.0]]), np.array([label]), norm="max") for label in (1.0, -1.0))
    problem = SimplexProblem(Squared(), 1, 2, 2, 0.01, 10.0)
    logs = [normalised(problem, each, 1e-9) for each in (one, other)]
    assert np.ptp(logs[0] - logs[1]) > 0.9 * range_of_a_draw(problem)


def log_chances(counts: FloatArray, logs: FloatArray) -> FloatArray:
    """Of counts, (...,), but for what is the same on both sides."""
    return np.asarray(counts @ logs)


def audited(draws: int, spread: float) -> float:
    """The delta at epsilon 1 of so many draws from the worst pair of that range, exactly: counts are binomial."""
    from scipy.stats import binom  # noqa: PLC0415 -- for one function

    q = 1 / (1 + math.exp(spread / 2))
    counts = np.arange(draws + 1)
    one, other = binom.pmf(counts, draws, 1 - q), binom.pmf(counts, draws, q)
    return float(np.maximum(one - math.e * other, 0).sum())


@pytest.mark.parametrize("strength", [500.0, 2000.0])
def test_the_density_of_counts_keeps_to_delta_and_a_doubled_number_of_draws_does_not(strength: float) -> None:
    problem = SimplexProblem(Logistic(), 400, 3, 3, 1.0, strength)
    delta = 1e-5
    site = sampling(problem, 1.0, delta, "tight")
    assert site.draws > 30
    assert audited(site.draws, site.spread) <= delta < audited(2 * site.draws, site.spread)


def test_theorem_3_allows_too_many_draws_as_it_is_printed_and_not_with_its_factor() -> None:
    """Its bullet for a delta lacks L R, here 30: laws within the range then part by more than delta."""
    problem, delta = SimplexProblem(Logistic(), 1000, 5, 5, 30.0, 1e5), 1e-5
    spread, mended = range_of_a_draw(problem), allowed(problem, 1.0, delta, "paper").draws
    printed = math.floor(draws_of_theorem_3(problem, 1.0, delta) * (problem.slope * problem.scale) ** 2)
    assert mended > 1
    assert audited(mended, spread) <= delta < audited(printed, spread)


@pytest.mark.parametrize("calibration", ["tight", "paper"])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@given(epsilon=st.floats(0.05, 20), strength=st.floats(50, 1e5), scale=st.sampled_from([0.5, 1.0, 5.0]))
@settings(max_examples=25)
def test_draws_keep_to_the_budget(
    calibration: str, delta: float, epsilon: float, strength: float, scale: float
) -> None:
    problem = SimplexProblem(Logistic(), 1000, 5, 5, scale, strength)
    site = allowed(problem, epsilon, delta, calibration)  # type: ignore[arg-type]
    if site.draws:
        assert epsilon_after([site.event], delta) <= epsilon * (1 + 1e-9)
        assert site.spread > range_of_a_draw(problem)
    if calibration == "paper":
        assert site.draws <= allowed(problem, epsilon, delta, "tight").draws


# ── as a user meets it ───────────────────────────────────────────────────────


def facts_of(n: int, d: int, scale: float = 1.0, **terms: object) -> FederationFacts:
    given_terms = {"epsilon": 4.0, "delta": 1e-4, "n_features": d, "loss": Logistic(), "norm": "max"} | terms
    return FederationFacts.uniform(np.array([n]), **given_terms)  # type: ignore[arg-type]


def test_too_small_a_lambda_is_refused_with_the_least_that_will_do() -> None:
    facts = facts_of(1000, 5)
    for parameters in (
        {"scale": 10.0, "regularization": 1e-4},
        {"scale": 10.0, "regularization": 0.01, "calibration": "paper"},
    ):
        with pytest.raises(InvalidInputError, match=r"not one draw fits 4.*regularization = ") as refused:
            build_algorithm("simplex", parameters).check_noise(facts.everyone)
        least = float(str(refused.value).rpartition("regularization = ")[2].split()[0])
        build_algorithm("simplex", parameters | {"regularization": least}).check_noise(facts.everyone)
        with pytest.raises(InvalidInputError, match="not one draw"):
            build_algorithm("simplex", parameters | {"regularization": 0.97 * least}).check_noise(facts.everyone)


@pytest.mark.parametrize(("loss", "words"), [(Hinge(), "bounded curvature"), (Softmax(3), "one score")])
def test_losses_without_a_proof_are_refused(loss: Loss, words: str) -> None:
    facts = facts_of(1000, 5, loss=loss)
    for refused in (partial(build_algorithm("simplex").questions, facts), partial(settle, "simplex", {}, facts)):
        with pytest.raises(InvalidInputError, match=words):
            refused()


@pytest.mark.parametrize("d", [3, pytest.param(2000, marks=pytest.mark.slow)])
def test_an_answer_lists_draws_where_that_is_shorter_and_counts_them_where_it_is_not(d: int) -> None:
    shard, facts = Shard.stack([rows(5000, d)]), facts_of(5000, d)
    algorithm, _ = settle("simplex", {}, facts)
    assert isinstance(algorithm, SampledSimplex)
    (site,) = algorithm.own_sites(facts.everyone)
    (question,) = algorithm.questions(facts)
    assert question.answer == min(site.draws, 2 * d)
    model = simulate(algorithm, shard, facts, SeededNoise(2))
    counts = model.weights * site.draws / algorithm.scale
    assert counts == pytest.approx(np.rint(counts))
    assert np.abs(counts).sum() <= site.draws + 1e-6
    assert np.abs(model.weights).sum() <= algorithm.scale * (1 + 1e-12)


def test_parties_of_several_sizes_are_weighed_by_them() -> None:
    stack = Shard.stack([rows(4000, 3), rows(1000, 3, 1)])
    facts = FederationFacts.uniform(
        np.array([4000, 1000]), epsilon=4.0, delta=1e-4, n_features=3, loss=Logistic(), norm="max"
    )
    algorithm, choices = settle("simplex", {}, facts)
    assert set(choices) == {"scale", "regularization"}
    model = simulate(algorithm, stack, facts, SeededNoise(2))
    alone = [
        simulate(algorithm, Shard.stack([stack.party(i)]), replace(facts_of(n, 3)), SeededNoise(2)).weights
        for i, n in enumerate((4000, 1000))
    ]
    assert np.abs(model.weights - (0.8 * alone[0] + 0.2 * alone[1])).max() < 0.5


@pytest.mark.parametrize("answer", [np.full((1, 6), 1e9), np.full((1, 6), -5.0), np.zeros((1, 6))])
def test_any_answer_of_a_party_makes_a_model_of_that_scale(answer: FloatArray) -> None:
    from parley.common.protocol.messages import Reply  # noqa: PLC0415 -- for one test

    facts = facts_of(100_000, 3)
    program = settle("simplex", {"scale": 2.0}, facts)[0].program(facts)
    next(program)
    with pytest.raises(StopIteration) as stop:
        program.send(Reply(answer, (0,)))
    assert np.abs(stop.value.value.weights).sum() <= 2 * (1 + 1e-9)


def test_measured_excess_is_below_the_bound() -> None:
    shard = rows(20_000, 20)
    facts = facts_of(20_000, 20)
    algorithm, _ = settle("simplex", {}, facts)
    assert isinstance(algorithm, SampledSimplex)
    (site,) = algorithm.own_sites(facts.everyone)
    free = replace(site.problem, strength=1e-3 * site.problem.strength)
    theta = np.exp(normalised(free, shard, 1e-4))
    best = Model(site.problem.scale * (theta[:20] - theta[20:]))
    base = fitness(Logistic(), best, shard, 0.0)
    stack = Shard.stack([shard])
    excess = [
        fitness(Logistic(), simulate(algorithm, stack, facts, SeededNoise(i)), shard, 0.0) - base for i in range(5)
    ]
    assert 0 < np.mean(excess) < site.excess


def test_the_best_lambda_is_no_worse_than_any_other() -> None:
    problem = SimplexProblem(Logistic(), 10_000, 50, 50, 3.0, 1.0)
    best = best_sampling(problem, 1.0, 1e-5, "tight")
    for strength in np.geomspace(1e-2, 1e5, 40):
        other = allowed(replace(problem, strength=float(strength)), 1.0, 1e-5, "tight")
        assert not other.problem.is_solvable(other.error) or best.excess <= other.excess * 1.02


@pytest.mark.parametrize("epsilon", [1.0, *(pytest.param(other, marks=pytest.mark.slow) for other in (0.1, 4.0, 10.0))])
@pytest.mark.parametrize("loss", [Logistic(), Squared()])
@pytest.mark.long
def test_the_chosen_lambda_allows_the_draws_that_it_was_chosen_for(epsilon: float, loss: Loss) -> None:
    """Rounded down, it was refused itself, or one draw fewer was made than the budget is for."""
    for n in (200, 1347, 30_000):
        facts = facts_of(n, 64, epsilon=epsilon, delta=1e-5, loss=loss)
        algorithm, choices = settle("simplex", {}, facts)
        assert isinstance(algorithm, SampledSimplex)
        (site,) = algorithm.own_sites(facts.everyone)
        assert choices["regularization"].why.endswith(f"; draws: {site.draws}")
        assert site.draws == algorithm.best(facts).draws


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "epsilon"), [((1000, 1000), (1.0, 0.1)), ((300, 3000), (1.0, 0.05)), ((100, 40_000), (10.0, 0.002))]
)
def test_what_is_chosen_satisfies_the_strictest_budget_of_a_large_party(
    sizes: tuple[int, ...], epsilon: tuple[float, ...]
) -> None:
    facts = FederationFacts.uniform(
        np.array(sizes), epsilon=1.0, delta=1e-5, n_features=20, loss=Logistic(), norm="max"
    )
    uneven = replace(facts, epsilon=np.array(epsilon))
    algorithm, _ = settle("simplex", {}, uneven)
    algorithm.check_noise(uneven.everyone)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_privacy_costs_a_regression_no_more_than_is_said_to_be_bearable(epsilon: float) -> None:
    """A draw of +-1 for labels in [-1, 1] is worse than no model."""
    facts = facts_of(300, 10, epsilon=epsilon, delta=1e-5, loss=Squared())
    algorithm, choices = settle("simplex", {}, facts)
    assert isinstance(algorithm, SampledSimplex)
    assert "at most 0.5 of loss" in choices["scale"].why
    assert algorithm.scale < 1
    assert algorithm.best(facts).excess <= 0.5


def test_no_noise_draws_the_likeliest_and_all_draws_are_charged() -> None:
    facts = facts_of(5000, 3)
    algorithm, _ = settle("simplex", {}, facts)
    event = algorithm.event(1, facts.of(0))
    assert isinstance(event, DrawEvent)
    assert epsilon_of_draws(event, 1e-4) <= 4.0
    weights = simulate(algorithm, Shard.stack([rows(5000, 3)]), facts, NoNoise()).weights
    assert np.count_nonzero(weights) == 1
