"""Noise scales against the published tables, their defining equations and an independent implementation."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from scipy import stats

from parley.common.errors import InvalidInputError
from parley.common.privacy.calibration import (
    bisect,
    check_budget,
    cliff_caution,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_sigma,
    gaussian_sigmas,
    sigma_star,
    slack,
    tilted_mu,
)

BUDGETS = [(float(e), float(d)) for e, d in itertools.product(np.geomspace(1e-3, 50, 12), [1e-12, 1e-5, 0.05, 0.4])]


@pytest.mark.parametrize(
    ("epsilon", "delta", "published", "tight"),
    [
        (0.1, 0.05, {10: 85.8, 50: 164, 1000: 656}, 8.97),
        (0.1, 1e-5, {10: 129, 50: 205, 1000: 694}, 61.5),
        (0.2, 0.05, {10: 43.0, 50: 82.3, 1000: 328}, 6.65),
        (0.2, 1e-5, {10: 64.4, 50: 102, 1000: 347}, 32.6),
        (1.0, 0.05, {10: 8.79, 50: 16.6, 1000: 65.6}, 2.67),
        (1.0, 1e-5, {10: 13.0, 50: 20.6, 1000: 69.4}, 7.46),
    ],
)
def test_the_table_of_deviations(epsilon: float, delta: float, published: dict[int, float], tight: float) -> None:
    assert {d: sigma_star(d, epsilon, delta) for d in published} == pytest.approx(published, rel=4e-3)
    assert gaussian_sigma(epsilon, delta, 2) == pytest.approx(tight, rel=2e-3)


@pytest.mark.parametrize("lipschitz", [0.3, 1.0])
@pytest.mark.parametrize("d", [1, 10, 1000])
def test_sigma_star_is_the_large_root_of_procedure_3(d: int, lipschitz: float) -> None:
    for epsilon, delta in BUDGETS:
        sigma = sigma_star(d, epsilon, delta, lipschitz)
        q = stats.chi2(d).isf(delta)
        assert ((sigma**2 * epsilon - 2 * lipschitz**2) / (2 * lipschitz * sigma)) ** 2 == pytest.approx(q, rel=1e-9)
        assert sigma**2 > 2 * lipschitz**2 / epsilon  # the small root lies below the product of both


def test_slack_as_published() -> None:
    c, n = 0.25, 1000
    assert slack(0.1, 0.1, n, c, "paper") == pytest.approx((0.0, 0.1 - 2 * math.log(1 + c / (n * 0.1))))
    delta, left = slack(0.1, 0.001, n, c, "paper")  # 2 log(1 + 1/4) > 0.1: nothing would be left
    assert left == 0.05
    assert n * (0.001 + delta) == pytest.approx(c / (math.exp(0.1 / 4) - 1))
    exactly = 2 * math.log1p(c / (100 * 0.1))  # with nothing left of it
    delta, left = slack(exactly, 0.1, 100, c, "paper")
    assert left == exactly / 2
    assert 100 * (0.1 + delta) == pytest.approx(c / (math.exp(exactly / 4) - 1))


@pytest.mark.parametrize(("n", "regularization"), [(1000, 0.01), (1000, 0.001), (30, 0.5), (10**6, 1e-6)])
def test_the_better_branch_has_no_cliff(n: int, regularization: float) -> None:
    """Just above it next to nothing is left as published; elsewhere both are as one, and no budget leaves less."""
    c = 0.25
    cliff = 2 * math.log1p(c / (n * regularization))
    assert slack(cliff * (1 + 1e-6), regularization, n, c, "paper")[1] < 2e-6 * cliff
    lefts = []
    for epsilon in cliff * np.linspace(0.5, 4.0, 351):
        (added, left), (raised, published) = (
            slack(float(epsilon), regularization, n, c, each) for each in ("better_branch", "paper")
        )
        assert left >= max(published, epsilon / 2 * (1 - 1e-12))
        if left == published:
            assert added == raised
        else:
            assert cliff < epsilon < 2 * cliff * (1 + 1e-12)
            assert cliff_caution(float(epsilon), regularization, n, c, "tight") != ()
        lefts.append(left)
        assert left + 2 * math.log1p(c / (n * (regularization + added))) <= epsilon * (1 + 1e-9), "private"
    assert 0 < np.diff(lefts).max() <= 0.01 * cliff * (1 + 1e-9), "no leap: a budget more leaves no more than it has"
    assert np.diff(lefts).min() > 0
    assert cliff_caution(cliff * 0.99, regularization, n, c, "tight") == ()
    assert cliff_caution(cliff * 2.01, regularization, n, c, "tight") == ()
    assert cliff_caution(1.0, regularization, n, math.inf, "tight") == (), "of hinges there is no such slack"


def test_tight_slack_pays_for_the_determinant_once_and_keeps_nearly_all() -> None:
    c, n = 0.25, 1000
    cost = math.log(1 + c / (n * 0.015))
    assert slack(0.1, 0.015, n, c, "tight") == pytest.approx((0.0, 0.1 - cost)), "a little more than 5/6"
    assert 0.1 * 5 / 6 < 0.1 - cost < 0.1 * 5 / 6 + 0.0005
    delta, left = slack(0.1, 0.001, n, c, "tight")
    assert left == pytest.approx(0.1 * 5 / 6)
    assert n * (0.001 + delta) == pytest.approx(c / (math.exp(0.1 / 6) - 1))


@pytest.mark.parametrize("regularization", [1e-9, 1e-6, 1e-4, 2.5e-3, 0.01, 1.0, 1e6])
@pytest.mark.parametrize("n", [1, 1000, 10**6])
def test_slack_pays_for_the_determinant(regularization: float, n: int) -> None:
    for (epsilon, _), c in itertools.product(BUDGETS, [0.25, 5.0]):
        for calibration, factor in (("paper", 2), ("better_branch", 2), ("tight", 1)):
            delta, left = slack(epsilon, regularization, n, c, calibration)  # type: ignore[arg-type]
            cost = factor * math.log1p(c / (n * (regularization + delta)))
            assert delta >= 0
            assert left > 0
            assert left + cost <= epsilon * (1 + 1e-9)
            assert left >= {"paper": 0, "better_branch": 1 / 2, "tight": 5 / 6}[calibration] * epsilon


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.3, 1.0, 4.0])
def test_the_gaussian_profile_is_that_of_dp_accounting(mu: float) -> None:
    oracle = GaussianPrivacyLoss(1 / mu)
    for epsilon in (0.0, 0.01, 0.1, 1.0, 5.0):
        theirs = oracle.get_delta_for_epsilon(epsilon)
        assert gaussian_delta(epsilon, mu) == pytest.approx(theirs, rel=1e-6, abs=1e-14)


def test_mu_and_epsilon_are_the_best_there_is_and_rounded_to_the_safe_side() -> None:
    for epsilon, delta in BUDGETS:
        mu = gaussian_mu(epsilon, delta)
        assert gaussian_delta(epsilon, mu) <= delta
        assert gaussian_delta(epsilon, mu * (1 + 1e-6)) > delta
        again = gaussian_epsilon(mu, delta)
        assert gaussian_delta(again, mu) <= delta
        assert gaussian_delta(again * (1 - 1e-6), mu) > delta
        assert again <= epsilon


@pytest.mark.parametrize("root", [1e-300, 0.3, 1.0, 1.5, 2.0, 1e6])
@pytest.mark.parametrize("beyond", [operator.lt, operator.le])
def test_a_bisection_ends_at_the_numbers_on_both_sides(root: float, beyond: Callable[[float, float], bool]) -> None:
    tried = []

    def holds(number: float) -> bool:
        tried.append(number)
        assert len(tried) < 2000, "it ends"
        return beyond(number, root)

    low, high = bisect(holds)
    assert beyond(low, root)
    assert not beyond(high, root)
    assert high == math.nextafter(low, math.inf)


def test_a_gaussian_at_the_ends_of_its_profile() -> None:
    assert gaussian_delta(1.0, 0.0) == 0
    assert gaussian_epsilon(0.0, 0.0) == 0
    assert gaussian_epsilon(0.1, 0.9) == 0  # nothing is left to hide
    assert gaussian_epsilon(0.1, gaussian_delta(0.0, 0.1)) == 0  # nor at the very end
    assert 0 < gaussian_epsilon(0.1, gaussian_delta(0.0, 0.1) * (1 - 1e-6)) < 1e-6
    assert gaussian_epsilon(0.1, 0.0) == math.inf  # no Gaussian is purely private
    assert gaussian_delta(0.0, 1.0) == pytest.approx(2 * stats.norm.cdf(0.5) - 1)


def test_each_stacked_party_gets_the_deviation_of_its_own_budget() -> None:
    epsilon, delta = np.array([[1.0, 0.1], [0.1, 1.0]]), np.array([[1e-5, 0.05], [0.05, 1e-9]])
    sigmas = gaussian_sigmas(epsilon, delta, 2.0)
    assert sigmas.shape == (2, 2)
    for place in np.ndindex(2, 2):
        assert sigmas[place] == gaussian_sigma(float(epsilon[place]), float(delta[place]), 2.0)
    assert gaussian_sigmas(np.array(0.1), np.array(0.05), 2.0).shape == ()
    for epsilons, deltas in ((2, 3), (3, 2)):
        with pytest.raises(ValueError, match="zip"):
            gaussian_sigmas(np.full(epsilons, 0.1), np.full(deltas, 0.05), 2.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_an_epsilon_that_is_no_budget_is_refused(epsilon: float) -> None:
    refusal = f"epsilon must be positive and finite, not {epsilon}"
    with pytest.raises(InvalidInputError, match=refusal):
        sigma_star(10, epsilon, 0.05)
    with pytest.raises(InvalidInputError, match=refusal):
        gaussian_sigma(epsilon, 0.05, 2)
    with pytest.raises(InvalidInputError, match=refusal):
        slack(epsilon, 0.1, 100, 0.25)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, math.inf])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    refusal = f"delta must lie strictly between 0 and 1, not {delta:g}"
    with pytest.raises(InvalidInputError, match=refusal):
        sigma_star(10, 1.0, delta)
    with pytest.raises(InvalidInputError, match=refusal):
        gaussian_sigma(1.0, delta, 2)


def test_scales_that_mean_nothing_are_refused() -> None:
    for sensitivity in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidInputError, match="sensitivity"):
            gaussian_sigma(1.0, 1e-5, sensitivity)
    with pytest.raises(InvalidInputError, match="number of features"):
        sigma_star(0, 1.0, 1e-5)
    for regularization, n in ((0.0, 10), (-1.0, 10), (math.nan, 10), (0.1, 0)):
        with pytest.raises(InvalidInputError, match="regularization and the number of examples"):
            slack(1.0, regularization, n, 0.25)
    with pytest.raises(InvalidInputError, match="bounded curvature"):
        slack(1.0, 0.1, 10, math.inf)


def test_budgets_are_those_that_are_counted() -> None:
    for epsilon in (1e-6, 1.0, 1e12):
        check_budget(epsilon, 1e-5)
    for epsilon in (0.99e-6, 1.01e12):
        with pytest.raises(InvalidInputError, match="epsilon must lie between 1e-06 and 1e\\+12"):
            check_budget(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [1e-18, 1e-5, 0.9])
def test_the_largest_epsilons_need_some_noise(delta: float) -> None:
    sigmas = [gaussian_sigma(epsilon, delta, 2.0) for epsilon in (1e3, 1e50, 1e100, 1e160, 1.7e308)]
    assert sigmas == sorted(sigmas, reverse=True)
    assert sigmas[-1] > 0


@pytest.mark.parametrize("sensitivity", [1e101, 1e308])
def test_noise_that_cannot_be_drawn_is_refused(sensitivity: float) -> None:
    with pytest.raises(InvalidInputError, match="more noise than can be drawn"):
        gaussian_sigmas(np.array([1.0, 1e-9]), np.array([1e-5, 1e-18]), sensitivity)
    with pytest.raises(InvalidInputError, match="more noise than can be drawn"):
        gaussian_sigma(1.0, 1e-5, sensitivity)
    allowed = 1e100 * gaussian_mu(1.0, 1e-5)
    assert gaussian_sigma(1.0, 1e-5, allowed) == 1e100


@pytest.mark.parametrize("mu", [1e-3, 0.1, 0.5, 2.0, 8.0])
@pytest.mark.parametrize("determinant", [0.0, 1e-4, 0.01, 0.1, 1.0, 4.0])
def test_a_tilt_with_its_determinant_is_covered_by_the_least_gaussian_release(mu: float, determinant: float) -> None:
    """By delta at each epsilon from where it is proven; below, by the two lines that meet on the diagonal."""
    cover, start, slope = tilted_mu(mu, determinant), determinant + mu**2 / 4, math.exp(mu**2 / 4)
    at_ends = stats.norm.cdf(-mu / 4) + slope * stats.norm.cdf(-3 * mu / 4)
    meets = at_ends / (1 + slope * math.exp(determinant))
    far = [start + step for step in (0.0, *np.geomspace(1e-3, 20, 60))]
    due = {epsilon: gaussian_delta(epsilon - determinant, mu) for epsilon in far}
    due |= {part * start: 1 - (1 + math.exp(part * start)) * meets for part in (0.0, 0.3, 0.7)}
    assert all(gaussian_delta(epsilon, cover) >= delta * (1 - 1e-9) for epsilon, delta in due.items())
    assert any(gaussian_delta(epsilon, cover * (1 - 1e-6)) < delta for epsilon, delta in due.items())
    assert mu <= cover <= mu + math.sqrt(math.pi / 2) * (determinant + mu**3)
