"""Rajkumar & Agarwal's section 5: numbers worked out apart, bounds against draws, and what a forecast says."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.algorithms.gop import Gop
from parley.common.algorithms.psgd import Psgd
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.forecast.forecast import Forecast, forecast
from parley.common.forecast.tilted_risk import (
    FAILURE,
    OF_TAIL,
    Proposition52,
    TiltedRisk,
    chi_square_tail,
    squared_length,
    theorem53,
)
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Logistic, Softmax
from parley.common.learning.metrics import fitness
from parley.common.learning.model import Model
from parley.common.privacy.calibration import delta_of_sigma, sigma_star, slack
from parley.common.privacy.events import L2LaplaceEvent
from parley.common.protocol.facts import FederationFacts

WORKED = [
    # N, d, lambda, epsilon, delta: epsilon~, sigma*, T^, Theorem 5.1, sharper, (5), (8)
    ((1000, 10, 0.1, 0.1, 0.05), (0.0950062, 90.3045, 149_292, 2.61261, 0.746461, 219_678, 1.98853e7)),
    ((1000, 10, 0.1, 0.2, 0.05), (0.195006, 44.1149, 35_627.8, 0.623486, 0.178139, 52_424.9, 4.71997e6)),
    ((455, 31, 0.1, 0.2, 0.05), (0.189041, 71.1081, 227_462, 19.2276, 5.49359, 284_496, 4.82666e7)),
    ((100_000, 10, 0.01, 1.0, 1e-5), (0.9995, 13.0126, 3099.90, 4.02987e-4, 1.54995e-5, 4561.39, 690_483)),
    ((1000, 10, 0.01, 0.1, 0.05), (0.0506148, 169.302, 524_735, 682.155, 26.2367, 772_127, 7.00618e7)),
]


@pytest.mark.parametrize(("terms", "worked"), WORKED)
def test_the_bounds_are_those_that_were_worked_out(
    terms: tuple[int, int, float, float, float], worked: tuple[float, ...]
) -> None:
    n, d, regularization, epsilon, delta = terms
    extra, epsilon_tilde = slack(epsilon, regularization, n, 0.25, "paper")
    sigma, risk = sigma_star(d, epsilon_tilde, delta), TiltedRisk(n, regularization)
    t, chain = squared_length(d, sigma), Proposition52.of(d, epsilon_tilde, delta)
    computed = (epsilon_tilde, sigma, t, risk.theorem51(t), risk.sharper(t), chain.by_tail, chain.stated)
    assert extra == 0
    assert computed == pytest.approx(worked, rel=1e-5)
    assert chain.t == t
    assert risk.theorem51(t) / risk.sharper(t) == pytest.approx((0.25 + regularization) / regularization)


@pytest.mark.parametrize("d", [1, 10, 1000])
@pytest.mark.parametrize("chance", [1 / math.e, 0.05, 1e-9])
def test_each_step_of_the_proposition_bounds_the_one_before(d: int, chance: float) -> None:
    assert chi_square_tail(d, chance) <= OF_TAIL * d * math.log(1 / chance)
    for epsilon_tilde in (1e-3, 0.1, 5.0):
        chain = Proposition52.of(d, epsilon_tilde, chance, chance)
        steps = (chain.t, chain.by_tail, chain.by_both_tails, chain.stated)
        assert all(one <= other for one, other in pairwise(steps)), steps
        assert chain.variance <= chain.variance_by_tail


@pytest.mark.parametrize(
    ("epsilon", "explicit", "terms"),
    [
        (0.5, False, (1198, 20, 1524)),
        (0.1, False, (1198, 100, 7542)),
        (0.5, True, (895_900, 80, 4198)),
        (0.1, True, (895_900, 400, 20_770)),
    ],
)
def test_the_examples_that_suffice_are_those_that_were_worked_out(
    epsilon: float,
    explicit: bool,  # noqa: FBT001 -- a case
    terms: tuple[float, ...],
) -> None:
    solved = theorem53(2.0, 0.1, 10, epsilon, 0.05, explicit=explicit)
    assert solved.terms == pytest.approx(terms, rel=1e-3)
    assert solved.n_examples == max(solved.terms)
    if epsilon == 0.5 and not explicit:
        assert (solved.epsilon_tilde, solved.t) == pytest.approx((0.48692, 5804), rel=1e-4)


def test_fewer_failures_or_closer_risks_need_more_examples() -> None:
    usual = theorem53(2.0, 0.1, 10, 0.5, 0.05).n_examples
    assert theorem53(2.0, 0.1, 10, 0.5, 0.05, failure=1e-6).n_examples > usual
    assert theorem53(2.0, 0.05, 10, 0.5, 0.05).n_examples > usual


@pytest.mark.parametrize(("extra", "least"), [(0.0, 0.01), (0.5, 0.0)])
def test_tilted_minimisers_are_within_the_bounds_about_as_often_as_stated(extra: float, least: float) -> None:
    """With Delta too, where the bound on |w*| leaves more room; ``least`` of draws come near the sharper bound."""
    rng, n, d, regularization, sigma = np.random.default_rng(1), 200, 4, 0.05, 8.0
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X @ np.ones(d) + rng.normal(size=n) > 0, 1.0, -1.0)
    shard, loss, risk = Shard(X, y), Logistic(), TiltedRisk(n, regularization, 0.25, extra)

    def risk_of(ridge: float, eta: FloatArray) -> float:
        return fitness(loss, Model(minimise(loss, shard, n * ridge, eta)), shard, regularization)

    best, drawn = risk_of(regularization, np.zeros(d)), rng.normal(0, sigma, (300, d))
    excess = np.array([risk_of(regularization + extra, eta) for eta in drawn]) - best
    t = squared_length(d, sigma)
    assert (excess <= risk.theorem51(t)).mean() >= 1 - FAILURE
    assert (excess <= risk.sharper(t)).mean() >= 1 - FAILURE
    assert (excess > risk.sharper(t) / 3).mean() >= least
    assert risk.sharper(t) < risk.theorem51(t)


def test_the_delta_of_a_deviation_is_that_which_asks_for_it() -> None:
    for delta in (0.3, 0.05, 1e-6):
        for lipschitz in (0.5, 1.0):
            sigma = sigma_star(10, 0.1, delta, lipschitz)
            assert delta_of_sigma(10, 0.1, sigma, lipschitz) == pytest.approx(delta)
            assert delta_of_sigma(10, 0.1, sigma / 2, lipschitz) > delta
    assert delta_of_sigma(10, -0.1, 90.0) == delta_of_sigma(10, 0.0, 90.0) == 1
    assert delta_of_sigma(10, 0.1, math.sqrt(2 / 0.1)) == 1
    assert delta_of_sigma(10, 0.1, 1.0) == 1, "the small root is not private"


def facts(parties: int, epsilon: float, n: int = 1000, **more: object) -> FederationFacts:
    sizes = np.full(parties, n // parties)
    terms: dict[str, Any] = {"loss": Logistic(), "delta": 0.05, "n_features": 10, "secure_sum": True} | more
    return FederationFacts.uniform(sizes, epsilon=epsilon, **terms)


@pytest.mark.parametrize(
    ("parties", "epsilon", "delta"),
    [(2, 0.1, 0.612), (2, 0.2, 0.571), (5, 0.1, 0.994), (5, 0.2, 0.985), (15, 0.1, 1.0)],
)
def test_shares_of_noise_promise_a_party_nothing_without_a_secure_sum(
    parties: int, epsilon: float, delta: float
) -> None:
    n = 1000 // parties * parties
    assert Psgd(regularization=0.1).delta_alone(facts(parties, epsilon, n).of(0)) == pytest.approx(delta, abs=2e-3)


RIDGE = {"regularization": 0.1, "calibration": "paper"}


def stated(name: str, of: FederationFacts, **parameters: object) -> Forecast:
    answer = forecast(build_algorithm(name, RIDGE | parameters), of)
    assert isinstance(answer, Forecast)
    return answer


def test_a_forecast_of_psgd_has_the_theorem() -> None:
    (_, worked), *_ = WORKED
    bound = stated("psgd", facts(5, 0.1)).likely
    assert bound is not None
    assert (bound.chance, bound.at_zero) == (0.95, math.log(2))
    assert (bound.excess, bound.printed) == pytest.approx((worked[4], worked[3]), rel=1e-5)
    uneven = FederationFacts.uniform(
        np.array([10, 290, 200, 250, 250]), epsilon=0.1, delta=0.05, n_features=10, loss=Logistic(), secure_sum=True
    )
    for of in (uneven, facts(10, 0.1)):
        other = stated("psgd", of).likely
        assert other is not None
        assert (other.excess, other.printed) == pytest.approx((bound.excess, bound.printed), rel=1e-12)


def test_whole_noise_of_each_party_counts_as_often() -> None:
    summed, seen = (stated("psgd", facts(5, 0.1, secure_sum=secure)).likely for secure in (True, False))
    assert summed is not None
    assert seen is not None
    assert seen.excess == pytest.approx(5 * summed.excess)


def test_a_forecast_of_gop_has_it_for_the_noise_that_is_drawn() -> None:
    """Its tilt has 99 parts of a hundred of the budget."""
    of = facts(5, 0.1)
    for calibration in ("paper", "tight"):
        bound = stated("gop", of, calibration=calibration).likely
        tilt = replace(Gop(regularization=0.1), calibration=calibration).mechanism(of.curated().of(0)).tilt
        assert bound is not None
        assert bound.excess == pytest.approx(TiltedRisk(1000, 0.1).sharper(squared_length(10, tilt)))
        assert bound.printed == pytest.approx(3.5 * bound.excess)


@pytest.mark.parametrize("name", ["psgd", "gop"])
def test_with_more_regularization_nothing_is_printed(name: str) -> None:
    of = facts(5, 0.1)
    bound = stated(name, of, regularization=1e-4).likely
    assert bound is not None
    assert bound.printed is None
    assert bound.excess > bound.at_zero * 0.9, "J(0) Delta / (lambda + Delta) at least"


@pytest.mark.parametrize(
    ("name", "of", "parameters"),
    [
        ("psgd", facts(5, 0.1), {"clip_norm": 0.5}),
        ("psgd", facts(5, 0.1, loss=Logistic(class_weights=(0.5, 1.0))), {}),
        ("dp_gd", facts(5, 0.1), {}),
        ("dp_gd", facts(5, 0.1, loss=Softmax(3)), {}),
        ("pooled", facts(5, 0.1), {}),
    ],
    ids=["clipped", "class weights", "fresh noise", "several scores", "no noise"],
)
def test_of_other_models_a_forecast_says_nothing_of_the_kind(
    name: str, of: FederationFacts, parameters: dict[str, Any]
) -> None:
    answer = forecast(build_algorithm(name, {"regularization": 0.1} | parameters), of)
    assert isinstance(answer, Forecast)
    assert answer.likely is None


def test_rho_takes_the_epsilon_that_was_asked_for_where_the_listing_has_it() -> None:
    of, left = facts(5, 0.1).of(0), slack(0.1, 0.1, 1000, 0.25)[1]
    printed = Psgd(regularization=0.1, calibration="paper")
    better = Psgd(regularization=0.1, calibration="better_branch")
    for psgd, epsilon in ((printed, 0.1), (better, left)):
        assert psgd.scales(of) == pytest.approx((sigma_star(10, left, 0.05), epsilon / 2))
        assert psgd.event(1, of) == L2LaplaceEvent(epsilon, 10)
