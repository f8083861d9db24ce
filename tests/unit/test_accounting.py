"""What releases cost, against closed forms, Monte Carlo and an accountant of the test's own that brackets the truth."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.special import betainc, comb

from parley.common.arrays import FloatArray
from parley.common.errors import InvalidInputError
from parley.common.privacy import accountant
from parley.common.privacy.accountant import epsilon_after, pure_epsilons
from parley.common.privacy.calibration import gaussian_epsilon
from parley.common.privacy.events import (
    ApproximateEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NonPrivateEvent,
)
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.l2_laplace import l2_laplace_delta
from parley.common.privacy.noise import SeededNoise

# ── one L2-Laplace release ───────────────────────────────────────────────────


@pytest.mark.parametrize("bound", [0.05, 1.0, 5.0])
def test_in_one_dimension_it_is_laplace_noise(bound: float) -> None:
    epsilons = np.linspace(0, 1.2 * bound, 50)
    laplace = np.maximum(0, 1 - np.exp((epsilons - bound) / 2))
    assert np.allclose(l2_laplace_delta(epsilons, bound, 1), laplace, rtol=0, atol=1e-15)


@cache
def nodes() -> tuple[FloatArray, FloatArray]:
    """Of Gauss and Legendre's quadrature, and their weights."""
    return np.polynomial.legendre.leggauss(400)


def profile_in_three_dimensions(epsilon: float, bound: float) -> float:
    """By the distances r and s to both ends of the shift a, whose density is r s e^-r / 4 a; r - s is the loss."""
    loss, weight = nodes()
    half = (bound - epsilon) / 2
    at = epsilon + half * (loss + 1)
    gain = np.exp((at - bound) / 2) * -np.expm1(epsilon - at) * (bound**2 + 4 * bound + 8 - at**2)
    return float((gain * weight).sum()) * half / (16 * bound)


@pytest.mark.parametrize("bound", [1e-3, 0.1, 1.0, 5.0, 20.0])
def test_in_three_dimensions_the_profile_is_an_integral_over_the_loss(bound: float) -> None:
    for epsilon in bound * np.array([-1.0, -0.9, -0.5, -0.1, 0.0, 1e-3, 0.3, 0.9, 0.999]):
        expected = profile_in_three_dimensions(epsilon, bound)
        assert l2_laplace_delta(np.array([epsilon]), bound, 3) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("bound", [50.0, 200.0])
def test_the_profile_of_hardly_any_noise_is_rounded_up(bound: float) -> None:
    """e^epsilon times what is left out of the quadrature is much there; it is counted as if it told all."""
    for epsilon in bound * np.array([-1.0, -0.5, 0.0, 0.3, 0.9, 0.99]):
        delta = float(l2_laplace_delta(np.array([epsilon]), bound, 3)[0])
        assert profile_in_three_dimensions(epsilon, bound) - 1e-11 <= delta <= 1


@pytest.mark.parametrize("d", [1, 2, 3, 10])
@pytest.mark.parametrize("bound", [0.1, 1.0, 5.0])
def test_the_profile_is_that_of_drawn_noise(d: int, bound: float) -> None:
    """Monte Carlo of E max(0, 1 - e^(epsilon - loss)), within Bernstein's bound at a false alarm of 1e-8."""
    n = 50_000
    alarm = math.log(2e8)
    noise = SeededNoise([d, int(10 * bound)]).l2_laplace(1.0, (n, d))
    shifted = noise + bound * np.eye(d)[0]
    loss = np.linalg.norm(shifted, axis=-1) - np.linalg.norm(noise, axis=-1)
    for epsilon in bound * np.array([-0.9, -0.3, 0.0, 0.3, 0.6, 0.9]):
        seen = float(np.maximum(0.0, 1 - np.exp(epsilon - loss)).mean())
        delta = float(l2_laplace_delta(np.array(epsilon), bound, d))
        assert abs(seen - delta) < math.sqrt(2 * delta * alarm / n) + 2 * alarm / (3 * n)


def loss_cdf(loss: FloatArray, bound: float, d: int) -> FloatArray:
    """P(loss <= l), by the trapezoid rule over the norm; for d >= 10, where the integrand is smooth."""
    norm = np.linspace(stats.gamma.ppf(1e-17, d), stats.gamma.isf(1e-17, d), 801)
    cosine = (loss[:, None] ** 2 + 2 * loss[:, None] * norm - bound**2) / (2 * bound * norm)
    direction = betainc((d - 1) / 2, (d - 1) / 2, (1 + np.clip(cosine, -1, 1)) / 2)
    return np.asarray(np.trapezoid(direction * stats.gamma.pdf(norm, d), norm, axis=-1))


@pytest.mark.parametrize("d", [10, 50, 1000])
@pytest.mark.parametrize("bound", [0.01, 0.1, 1.0])
def test_the_profile_is_that_of_another_quadrature(d: int, bound: float) -> None:
    epsilons = bound * np.linspace(-0.95, 0.95, 20)
    expected = 1 - loss_cdf(epsilons, bound, d) - np.exp(epsilons) * loss_cdf(-epsilons, bound, d)
    assert np.allclose(l2_laplace_delta(epsilons, bound, d), expected, rtol=0, atol=1e-10)


def test_the_profile_falls_convexly_to_zero_at_the_bound() -> None:
    for d in (1, 2, 3, 10, 1000, 20_000):
        deltas = l2_laplace_delta(np.linspace(0, 1.1, 100), 1.0, d)
        assert (np.diff(deltas) <= 1e-15).all()
        assert (deltas[91:] == 0).all()
        assert (l2_laplace_delta(np.linspace(0.9, 1, 1000), 1.0, d) >= 0).all()
    for bound in np.geomspace(0.01, 20, 300).tolist():
        assert l2_laplace_delta(np.array([bound]), bound, 2) == 0, "where a last place of the cosine is much"


# ── many releases ────────────────────────────────────────────────────────────


def composed(bound: float, d: int, times: int, grid: float) -> tuple[FloatArray, FloatArray]:
    """The loss of ``times`` L2-Laplace releases, each rounded down on a grid: support and probabilities, by FFT."""
    edges = np.arange(-math.ceil(bound / grid), math.ceil(bound / grid) + 1)
    cdf = loss_cdf(np.clip(edges * grid, -bound, bound), bound, d)
    cdf[0], cdf[-1] = 0.0, 1.0
    size = 2 ** math.ceil(math.log2((30 * math.sqrt(times) + 2 * times * bound) * bound / grid))
    mass = np.zeros(size)
    mass[edges[:-1] % size] = np.diff(cdf)
    total = np.fft.irfft(np.fft.rfft(mass) ** times, size)
    support = (np.arange(size) + size // 2) % size - size // 2
    likely = total > 1e-15  # what the transform leaves of zero is about 1e-17
    return support[likely] * grid, total[likely]


def epsilon_of(support: FloatArray, mass: FloatArray, delta: float) -> float:
    """The epsilon at which a loss distribution has this delta, by bisection."""
    low, high = 0.0, float(support.max())
    for _ in range(60):
        epsilon = (low + high) / 2
        spent = (np.maximum(0.0, -np.expm1(np.minimum(epsilon - support, 0))) * mass).sum()
        low, high = (epsilon, high) if spent > delta else (low, epsilon)
    return high


@pytest.mark.parametrize(
    ("epsilon", "times", "d", "expected"),
    [
        (0.1, 100, 10, 1.20),
        (0.1, 100, 50, 0.50),
        (0.1, 100, 1000, 0.10),
        (0.1, 1000, 10, 4.43),
        (0.1, 1000, 50, 1.81),
        (0.1, 1000, 1000, 0.344),  # the design says .39, which a coarser grid of losses gives
        (1.0, 100, 10, 17.7),
        (1.0, 100, 50, 6.6),
        (1.0, 100, 1000, 1.25),
    ],
)
@pytest.mark.slow
def test_the_table_of_the_honest_cost_of_psgd(epsilon: float, times: int, d: int, expected: float) -> None:
    claimed = epsilon_after([L2LaplaceEvent(epsilon, d)] * times, 1e-5)
    grid = epsilon / 1000
    support, mass = composed(epsilon, d, times, grid)
    low, high = epsilon_of(support, mass, 1e-5), epsilon_of(support + times * grid, mass, 1e-5)
    print(f"epsilon {epsilon} x {times} rounds, d = {d}: {claimed:.3f} at delta 1e-5, truly {low:.3f} to {high:.3f}")
    assert low <= claimed <= high  # never optimistic, and no more than the grid above the truth
    assert claimed == pytest.approx(expected, rel=0.04)


@pytest.mark.parametrize(("epsilon", "times"), [(0.0137, 60), (0.1, 20), (0.5, 30), (1.0, 5)])
def test_pure_releases_compose_optimally(epsilon: float, times: int) -> None:
    """Kairouz, Oh & Viswanath 2015, Theorem 3.3: the worst case is randomised response."""
    j = np.arange(times + 1)
    ways = comb(times, j)
    odds = (ways * np.exp(j * epsilon), ways * np.exp((times - j) * epsilon))
    scale = (1 + math.exp(epsilon)) ** times

    def delta_at(total: float) -> float:
        return float(np.maximum(0, odds[0] - math.exp(total) * odds[1]).sum() / scale)

    for delta in (1e-9, 1e-5, 1e-2):
        claimed = epsilon_after([ApproximateEvent(epsilon)] * times, delta)
        assert delta_at(claimed) <= delta * (1 + 1e-9)
        assert delta_at(claimed * 0.99) > delta
        assert epsilon_after([LaplaceEvent(epsilon)] * times, delta) <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("kind", [ApproximateEvent, LaplaceEvent, lambda epsilon: L2LaplaceEvent(epsilon, 3)])
@pytest.mark.parametrize("epsilon", [701.0, 1000.0, 1e5])
def test_epsilons_whose_exponential_is_no_number_add_up(kind: Callable[[float], Event], epsilon: float) -> None:
    three = [kind(epsilon), ApproximateEvent(0.1), kind(epsilon)]
    assert pure_epsilons(three) == pytest.approx([epsilon, epsilon + 0.1, 2 * epsilon + 0.1])
    assert epsilon_after(three, 1e-5) == pytest.approx(2 * epsilon + 0.1)
    assert epsilon_after([kind(epsilon)] * 2, 1e-5) == pytest.approx(2 * epsilon)
    assert epsilon_after([GaussianEvent(0.1), kind(2 * epsilon)], 1e-5) == math.inf, "of one that has none by itself"


def test_gaussians_compose_in_closed_form() -> None:
    events = [GaussianEvent(0.3), GaussianEvent(0.4)]
    assert epsilon_after(events, 1e-5) == gaussian_epsilon(0.5, 1e-5)
    mixed = epsilon_after([*events, ApproximateEvent(0.01)], 1e-5)  # by loss distributions: an upper bound
    assert gaussian_epsilon(0.5, 1e-5) < mixed < gaussian_epsilon(0.5, 1e-5) + 0.01 + 1e-3


def test_without_a_delta_epsilons_add_up_and_nothing_is_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accountant, "_loss_distribution", None)
    assert epsilon_after([LaplaceEvent(0.25), L2LaplaceEvent(0.5, 3)], 0.0) == 0.75
    assert pure_epsilons([LaplaceEvent(0.25), ApproximateEvent(0.5)]).tolist() == [0.25, 0.75]


RUNS: list[Sequence[Event]] = [
    [GaussianEvent(0.2)] * 30,
    [L2LaplaceEvent(0.1, 3)] * 70,
    [L2LaplaceEvent(0.1, 1), LaplaceEvent(0.1)] * 10,
    [GaussianEvent(0.2), LaplaceEvent(0.3), ApproximateEvent(0.1, 1e-7), L2LaplaceEvent(0.5, 4)] * 3,
    [ApproximateEvent(0.1, 1e-7)] * 4,
    [ApproximateEvent(0.0, 1e-7), LaplaceEvent(0.2)],
]


@pytest.mark.parametrize("events", RUNS, ids=range(len(RUNS)))
def test_each_release_adds_to_the_cost_and_no_more_than_its_own(events: Sequence[Event]) -> None:
    counts = sorted({1, 2, 7, len(events) - 1, len(events)} & set(range(1, len(events) + 1)))
    epsilons = np.array([epsilon_after(events[:count], 1e-5) for count in counts])
    assert (np.diff(epsilons) >= 0).all()
    assert epsilon_after(events, 1e-3) <= epsilons[-1] <= epsilon_after(events, 1e-8 + 1e-6)
    own = [event.epsilon for event in events if isinstance(event, LaplaceEvent | L2LaplaceEvent | ApproximateEvent)]
    if len(own) == len(events):
        assert (epsilons <= np.cumsum(own)[np.array(counts) - 1] * (1 + 1e-12)).all()


def test_one_dimension_costs_what_laplace_costs() -> None:
    one, other = (epsilon_after([event] * 50, 1e-5) for event in (L2LaplaceEvent(0.1, 1), LaplaceEvent(0.1)))
    assert one == pytest.approx(other, rel=1e-3)


def test_thousands_of_rounds_compose() -> None:
    approximation = gaussian_epsilon(0.01 / math.sqrt(10) * math.sqrt(20_000), 1e-5)
    assert epsilon_after([L2LaplaceEvent(0.01, 10)] * 20_000, 1e-5) == pytest.approx(approximation, rel=0.05)


def test_a_tiny_epsilon_beside_a_large_delta_composes_at_once() -> None:
    """A grid for the former would have 10^8 places for the latter."""
    tiny, large = ApproximateEvent(5e-7, 0.05), GaussianEvent(0.1)
    alone = epsilon_after([large], 0.01 / 0.95)
    together = epsilon_after([tiny, large], 0.06)
    print(f"epsilon {together:.5f} of both, {alone:.5f} of the larger at the delta that is left")
    assert alone <= together <= alone + 1e-3


def test_what_has_no_noise_has_no_bound() -> None:
    assert epsilon_after([], 1e-5) == 0
    assert pure_epsilons([]).shape == (0,)
    assert pure_epsilons([LaplaceEvent(0.1), NonPrivateEvent(), LaplaceEvent(0.1)]).tolist() == [
        0.1,
        math.inf,
        math.inf,
    ]
    assert epsilon_after([GaussianEvent(0.1)], 0.0) == math.inf
    assert epsilon_after([GaussianEvent(0.1), LaplaceEvent(0.1)], 0.0) == math.inf
    assert epsilon_after([ApproximateEvent(0.1, 1e-9)], 0.0) == math.inf
    assert epsilon_after([ApproximateEvent(0.1, 1e-3)], 1e-5) == math.inf


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    with pytest.raises(InvalidInputError, match=f"delta must be at least 0 and below 1, not {delta}"):
        epsilon_after([LaplaceEvent(0.1)], delta)


def test_a_guarantee_in_words_and_in_json() -> None:
    promise = Guarantee(0.5, 1e-5, "transcript", "tight", assumptions=("one",)).assuming("two")
    assert str(promise) == "(0.5, 1e-05) transcript replace_one [tight]"
    assert str(replace(promise, trust=1)) == "(0.5, 1e-05) transcript replace_one [tight], against 1 colluding too"
    assert promise.to_json()["assumptions"] == ("one", "two")
    none = Guarantee(math.inf, 0.0, "model", "paper")
    assert str(none) == "none model replace_one [paper]"
    assert json.loads(json.dumps(none.to_json(), allow_nan=False))["epsilon"] is None


@pytest.mark.parametrize("interval", [0.3, 0.07, 0.05])
def test_losses_on_a_grid_are_a_bound_and_end_as_soon_as_they_may(interval: float) -> None:
    distribution = accountant._loss_distribution.__wrapped__(L2LaplaceEvent(0.5, 3), interval)
    losses = np.linspace(0.0, 0.6, 50)
    exact = l2_laplace_delta(losses, 0.5, 3)
    assert all(distribution.get_delta_for_epsilon(losses) >= exact - 1e-15)
    assert distribution.get_delta_for_epsilon(math.ceil(0.5 / interval) * interval) <= 1e-15, "it is a pure mechanism"
