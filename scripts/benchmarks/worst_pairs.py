"""The worst pair of laws that a release has on neighbouring data, and what many releases come to, by dp_accounting.

A pair is told by its profile: delta at every epsilon, convex in e^epsilon, and the same in both directions. These
profiles are written from the mechanisms' proofs, apart from `parley.common.privacy`, whose covers are held against
them; only the profile of noise of density exp(-beta |b|) is that module's.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom

from parley.common.arrays import FloatArray
from parley.common.privacy.l2_laplace import l2_laplace_delta

_STEPS, _MOST_STEPS = 25, 500
"""Steps of the grid of losses in the deviation of the smallest release's loss, but at most in that of one of each."""
_NOTHING = 1e-13
"""A delta that counts as none: losses beyond it are taken as infinite, and a convolution has no smaller ones."""
_MOST = 10**6
"""The most times that a course is repeated."""


@dataclass(frozen=True, slots=True, eq=False)
class WorstPair:
    """The worst pair of a release: ``deltas`` of epsilons (m,) from 0 up, and the deviation of its loss, about."""

    deltas: Callable[[FloatArray], FloatArray]
    deviation: float

    def losses(self, interval: float) -> PrivacyLossDistribution:
        """Return its privacy loss on a grid of this ``interval``, none of it smaller than it is."""
        steps = math.ceil(self._longest() / interval)
        losses = interval * np.arange(steps + 1, dtype=np.float64)
        above = symmetric(losses, np.clip(self.deltas(losses), 0.0, 1.0))
        below = 1 - np.exp(-losses) * (1 - above)
        deltas = np.concatenate([below[:0:-1], above])
        grid = np.arange(-steps, steps + 1)
        return PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, grid, deltas))

    def _longest(self) -> float:
        """Return a loss beyond which next to none is finite."""
        longest = self.deviation
        while np.ptp(self.deltas(longest * np.array([1.0, 2.0]))) > _NOTHING:
            longest *= 1.1
        return longest


def symmetric(losses: FloatArray, deltas: FloatArray) -> FloatArray:
    """Return the largest profile below one that is proven in both directions, at losses (m,) from 0 up.

    A profile h of u = e^epsilon is convex, and h(u) = 1 - u + u h(1/u) if both directions have the same: so its slope
    at u = 1 is at least (h(1) - 1) / 2. It is the line of that slope up to the point where it meets the other.
    """
    rise = np.expm1(losses) / 2
    at_zero = (deltas + rise) / (1 + rise)
    met = int(at_zero.argmin())
    line = at_zero[met] + (at_zero[met] - 1) * rise
    return np.where(np.arange(len(losses)) < met, line, deltas)


# ── releases ─────────────────────────────────────────────────────────────────


def gaussian(mu: float) -> WorstPair:
    """Return the pair of a Gaussian release (Balle & Wang 2018, Theorem 5)."""

    def deltas(epsilons: FloatArray) -> FloatArray:
        upper = log_ndtr(mu / 2 - epsilons / mu)
        return np.asarray(np.exp(upper) * -np.expm1(epsilons + log_ndtr(-mu / 2 - epsilons / mu) - upper))

    return WorstPair(deltas, mu)


def pure(epsilon: float) -> WorstPair:
    """Return the pair of a pure release about which nothing more holds: randomised response."""
    return draws(epsilon * 2, 1)


def laplace(epsilon: float) -> WorstPair:
    """Return the pair of a Laplace release."""
    return WorstPair(lambda epsilons: np.maximum(0.0, -np.expm1((epsilons - epsilon) / 2)), min(epsilon, 1.4))


def l2_laplace(epsilon: float, dimension: int) -> WorstPair:
    """Return the pair of noise of density exp(-beta |b|)."""
    deviation = epsilon / math.sqrt(dimension)
    return WorstPair(lambda epsilons: l2_laplace_delta(epsilons, epsilon, dimension), deviation)


def draws(spread: float, number: int) -> WorstPair:
    """Return the pair of so many draws: as many answers of randomised response of half the spread."""
    chance = 1 / (1 + math.exp(-spread / 2))

    def deltas(epsilons: FloatArray) -> FloatArray:
        last = np.floor((epsilons / (spread / 2) + number) / 2 + 1e-9)  # of the answers that are as likely, or less
        ours, theirs = (binom.sf(last, number, p) for p in (chance, 1 - chance))
        return np.asarray(ours - np.exp(epsilons) * theirs)

    return WorstPair(deltas, spread / 2 * math.sqrt(number))


def objective(mu: float, determinant: float) -> WorstPair:
    """Return the pair of the exact minimiser under a Gaussian tilt of ``mu``, at which a determinant costs a loss r.

    delta(e) = E[(1 - exp(e - r - max(l, 0)))_+] with l ~ N(mu^2 / 2, mu^2), for e of 0 and more, either way.
    """

    def deltas(epsilons: FloatArray) -> FloatArray:
        left = epsilons - determinant
        kept = np.maximum(left, 0.0)
        beyond = ndtr(mu / 2 - kept / mu) - np.exp(left) * ndtr(-mu / 2 - kept / mu)  # of l above what is left
        return np.asarray(beyond + ndtr(-mu / 2) * np.maximum(0.0, -np.expm1(left)))

    return WorstPair(deltas, math.hypot(mu, determinant))


def either(one: WorstPair, other: WorstPair) -> WorstPair:
    """Return a pair as bad as both of these, if a record may bring about either."""
    return WorstPair(lambda at: np.maximum(one.deltas(at), other.deltas(at)), max(one.deviation, other.deviation))


def all_of(pairs: Mapping[WorstPair, int]) -> WorstPair:
    """Return the pair of a run that makes releases of these pairs, each as often as it says."""
    deviation = math.sqrt(sum(times * pair.deviation**2 for pair, times in pairs.items()))
    if len(pairs) == 1 and deviation == next(iter(pairs)).deviation:
        return next(iter(pairs))
    composed = together(pairs)
    return WorstPair(lambda epsilons: np.asarray(composed.get_delta_for_epsilon(epsilons)), deviation)


# ── many of them ─────────────────────────────────────────────────────────────


def together(pairs: Mapping[WorstPair, int]) -> PrivacyLossDistribution:
    """Return the privacy loss of so many releases of each pair together, if none depends on another's answer."""
    counted = {pair: times for pair, times in pairs.items() if times}
    deviations = [pair.deviation for pair in counted]
    interval = max(min(deviations) / _STEPS, math.hypot(*deviations) / _MOST_STEPS)
    composed = pld.identity(value_discretization_interval=interval)
    for pair, times in counted.items():
        composed = composed.compose(_losses(pair, interval).self_compose(times))
    return composed


@lru_cache(maxsize=256)
def _losses(pair: WorstPair, interval: float) -> PrivacyLossDistribution:
    return pair.losses(interval)


def most(holds: Callable[[int], bool]) -> int:
    """Return the largest number for which ``holds``, which holds up to some number and never beyond; 0 if none."""
    beyond = 1
    while beyond < _MOST and holds(beyond):
        beyond *= 2
    return bisect_left(range(beyond + 1), 1, lo=max(1, beyond // 2), key=lambda times: int(not holds(times))) - 1
