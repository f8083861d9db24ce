"""What draws of an index cost, and that they are made exactly."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from parley.common.arrays import FloatArray, IntArray
from parley.common.errors import InvalidInputError
from parley.common.privacy.accountant import epsilon_after, pure_epsilons
from parley.common.privacy.calibration import gaussian_delta, mu_of_draws
from parley.common.privacy.draws import (
    Categories,
    Words,
    concentrated_epsilon,
    epsilon_of_draws,
    most_draws,
    rho_of_draws,
)
from parley.common.privacy.events import DrawEvent, GaussianEvent, LaplaceEvent
from parley.common.privacy.filter import cover
from parley.common.privacy.noise import Noise, NoNoise, SeededNoise, SystemNoise

DELTA = 1e-5


# ── what they cost ───────────────────────────────────────────────────────────


def worst_pair(spread: float, t: float) -> tuple[float, float]:
    """The chances of the first of two indices whose log-ratios are t and t - spread, on either of two neighbours."""
    q = math.expm1(-(t - spread)) / (math.exp(-(t - spread)) - math.exp(-t))
    return q * math.exp(-t), q  # of Q the sum over indices of Q e^-loss is P's


def delta_of_draws(spread: float, draws: int, epsilon: float, t: float) -> float:
    """The delta of independent draws of the worst pair, exactly: how many of them are the first index is binomial."""
    first, other = worst_pair(spread, t)
    from scipy.stats import binom  # noqa: PLC0415 -- for one function

    counts = np.arange(draws + 1)
    p, q = binom.pmf(counts, draws, other), binom.pmf(counts, draws, first)
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@pytest.mark.parametrize("spread", [0.01, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("draws", [1, 7, 60])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-5, 1e-2])
def test_no_pair_of_laws_of_that_range_costs_more(spread: float, draws: int, delta: float) -> None:
    epsilon = epsilon_of_draws(DrawEvent(spread, draws), delta)
    for part in np.linspace(0.02, 0.98, 25):
        assert delta_of_draws(spread, draws, epsilon, part * spread) <= delta + 1e-12


@pytest.mark.parametrize("spread", [1e-3, 0.1, 1.0, 5.0])
def test_a_gaussian_release_covers_a_draw_around_any_centre(spread: float) -> None:
    mu = mu_of_draws(spread, 1)
    for part in np.linspace(0.02, 0.98, 25):
        for epsilon in np.linspace(0.0, spread, 20):
            assert (
                delta_of_draws(spread, 1, float(epsilon), part * spread) <= gaussian_delta(float(epsilon), mu) + 1e-12
            )


@given(st.floats(1e-4, 3), st.floats(0.01, 20), st.sampled_from([0.0, 1e-9, 1e-3]))
def test_the_most_draws_are_within_the_budget_and_one_more_is_not(spread: float, epsilon: float, delta: float) -> None:
    draws = most_draws(spread, epsilon, delta)
    assert not draws or epsilon_of_draws(DrawEvent(spread, draws), delta) <= epsilon
    more = draws + 1 + int(draws * 1e-8)  # of billions, some are rounded away
    assert epsilon_of_draws(DrawEvent(spread, more), delta) > epsilon * (1 - 1e-9)


def test_a_quarter_of_a_million_draws_are_one_event() -> None:
    n, strength = 42_000, 1e4
    spread = (4 + 2 * math.sqrt(n / strength)) / strength
    root = math.sqrt(1 - math.log(DELTA)) - math.sqrt(-math.log(DELTA))
    by_the_common_conversion = math.floor(8 * (root / spread) ** 2)
    assert 253_000 < by_the_common_conversion < 255_000 < most_draws(spread, 1.0, DELTA)


def test_draws_compose_in_closed_form() -> None:
    one, many = DrawEvent(0.01, 100), DrawEvent(0.01, 300)
    assert epsilon_after([one, one, one], DELTA) == pytest.approx(epsilon_after([many], DELTA), rel=1e-9)
    assert epsilon_after([one], 0.0) == one.epsilon
    assert pure_epsilons([one, one, one]) == pytest.approx([one.epsilon, 2 * one.epsilon, 3 * one.epsilon])
    gaussian = GaussianEvent(0.2)
    assert epsilon_after([one], DELTA) < epsilon_after([one, gaussian], DELTA)
    assert epsilon_after([one, gaussian], DELTA) < epsilon_after([one], DELTA / 2) + epsilon_after(
        [gaussian], DELTA / 2
    )
    assert epsilon_after([one, LaplaceEvent(0.1)], DELTA) < one.epsilon + 0.1
    covered = cover(one)
    assert covered.alone == pytest.approx(mu_of_draws(0.01, 100) ** 2)
    assert covered.variance == pytest.approx(100 * 0.01**2 / 4)
    assert covered.slack == 0
    assert math.isinf(concentrated_epsilon(rho_of_draws(one), 0.0))


def test_an_epsilon_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="epsilon"):
        most_draws(0.1, 0.0, DELTA)
    assert most_draws(3.0, 1.0, 0.0) == 0


# ── how they are made ────────────────────────────────────────────────────────


def parts_of(weights: FloatArray) -> tuple[IntArray, IntArray]:
    """Floats as mantissas and exponents."""
    mantissas, exponents = np.frexp(weights)
    return (mantissas * 2.0**53).astype(np.int64), exponents.astype(np.int64) - 53


WEIGHTS = np.array([0.1, 0.2, 0.3, 1e-3, 0.4, 0.1, 2.0**-300, 0.37, 0.9999])


@pytest.mark.parametrize("noise", [SystemNoise(), SeededNoise(5)])
def test_draws_have_their_chances(noise: Noise) -> None:
    n = 200_000
    counts = np.bincount(noise.categorical(*parts_of(WEIGHTS), n), minlength=len(WEIGHTS))
    expected = n * WEIGHTS / WEIGHTS.sum()
    likely = expected > 1
    assert counts[~likely].sum() == 0
    statistic = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    assert chi2.sf(statistic, likely.sum() - 1) > 1e-7


def test_one_index_is_always_drawn_and_no_noise_draws_a_likely_one() -> None:
    assert SystemNoise().categorical(*parts_of(np.array([3e-200])), 5).tolist() == [0] * 5
    assert NoNoise().categorical(*parts_of(WEIGHTS), 3).tolist() == [8] * 3


class Tape:
    """Words from a list, and how many were read."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def __call__(self, n: int) -> Words:
        taken, self.words = self.words[:n], self.words[n:]
        return np.array(taken, np.uint64)


def test_weights_however_far_apart_take_no_more_memory_than_weights_that_are_near() -> None:
    def peak(widest: int) -> int:
        tracemalloc.start()
        categories = Categories(np.full(2_000, 2**52), np.linspace(0, -widest, 2_000).astype(np.int64))
        assert categories.draw(SystemNoise()._source.words, 9).shape == (9,)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(400_000) < peak(2_000) + 10 * 400_000 / 8  # some numbers of as many bits, not 2,000


def test_a_uniform_that_meets_a_bound_is_read_on() -> None:
    """Weights 2 and 1: the bound is 2/3, in binary .101010…, which no word of 64 bits tells apart from itself."""
    categories = Categories(*parts_of(np.array([2.0, 1.0])))
    meets = int("10" * 32, 2)
    for following, index in ((meets - 1, 0), (meets + 1, 1)):
        tape = Tape(meets, meets, following, 0, 0)
        assert categories.draw(tape_then_first(tape), 1).tolist() == [index]
        assert not tape.words


def tape_then_first(tape: Tape) -> Tape:
    """The tape, whose last two words are read by as many proposals as are made at least."""

    class Padded(Tape):
        def __call__(self, n: int) -> Words:
            return tape(n) if n <= 2 else np.resize(tape(2), n)

    return Padded()


@pytest.mark.parametrize(
    ("mantissas", "exponents"),
    [([], []), ([2**52], [0, 1]), ([2**53], [0]), ([2**52 - 1], [0]), ([0], [0]), ([[2**52]], [[0]])],
)
def test_weights_that_are_none_are_refused(mantissas: list[int], exponents: list[int]) -> None:
    with pytest.raises(ValueError, match="mantissa"):
        NoNoise().categorical(np.array(mantissas, dtype=np.int64), np.array(exponents, dtype=np.int64), 1)
