"""The worst pair of laws that a release has on neighbouring data, and what many releases come to, by dp_accounting.

A pair is told by its profile: delta at every epsilon, convex in e^epsilon, and the same in both directions. These
profiles are written from the mechanisms' proofs, apart from `parley.common.privacy`, whose covers are held against
them; only the profile of noise of density exp(-beta |b|) is that module's.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.signal import fftconvolve
from scipy.special import log_ndtr
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
    """The worst pair of a release: ``deltas`` of epsilons (m,) from 0 up, and the deviation of its loss, about.

    ``largest`` is the largest loss, infinite if there is none.
    """

    deltas: Callable[[FloatArray], FloatArray]
    deviation: float
    largest: float = math.inf

    def losses(self, interval: float) -> PrivacyLossDistribution:
        """Return its privacy loss on a grid of this ``interval``, none of it smaller than it is."""
        longest = math.ceil(min(self.largest, self._longest()) / interval)
        grid = np.arange(-longest, longest + 1)
        deltas = self._both_ways(np.asarray(grid * interval, dtype=np.float64))
        return PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, grid, deltas))

    def masses(self, interval: float) -> Masses:
        """Return the same in numbers, on a grid that ends at the largest loss.

        Between two points of the grid the profile is a line in e^epsilon, whose slope is minus the other law's chance
        of a larger loss; a loss's chance is e^loss times what the slope rises by at it.
        """
        longest = self._longest() if math.isinf(self.largest) else self.largest
        steps = math.ceil(2 * longest / interval)
        deltas = self._both_ways(longest - interval * np.arange(steps, -1, -1, dtype=np.float64))
        rises = np.diff(deltas)
        after = np.append(rises / math.expm1(interval), 0.0)
        before = np.append(deltas[0] - 1, rises / -math.expm1(-interval))
        return Masses(interval, longest, np.maximum(after - before, 0.0), float(deltas[-1]))

    def _both_ways(self, losses: FloatArray) -> FloatArray:
        """Return the profile (m,) at ascending losses, about as many below 0 as above."""
        grid = np.unique(np.append(np.abs(losses), 0.0))
        above = symmetric(grid, np.clip(self.deltas(grid), 0.0, 1.0))[np.searchsorted(grid, np.abs(losses))]
        return np.where(losses < 0, 1 - np.exp(np.minimum(losses, 0.0)) * (1 - above), above)

    def _longest(self) -> float:
        """Return a loss beyond which next to none is finite."""
        longest = self.deviation
        while np.ptp(self.deltas(longest * np.array([1.0, 2.0]))) > _NOTHING:
            longest *= 1.1
        return longest


@dataclass(frozen=True, slots=True, eq=False)
class Masses:
    """The chances (m,) of losses that ascend by ``interval`` up to ``largest``, and the chance of an infinite one."""

    interval: float
    largest: float
    chances: FloatArray
    infinite: float

    def and_then(self, other: Masses) -> Masses:
        """Return the losses of both releases together."""
        chances = np.maximum(fftconvolve(self.chances, other.chances), 0.0)
        infinite = self.infinite + other.infinite - self.infinite * other.infinite
        return Masses(self.interval, self.largest + other.largest, chances, infinite)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Return the profile at epsilons (m,)."""
        losses = self.largest - self.interval * np.arange(len(self.chances) - 1, -1, -1)
        first = np.searchsorted(losses, epsilons, side="right")
        ours, theirs = (
            np.append(np.cumsum(law[::-1])[::-1], 0.0)[first] for law in (self.chances, self.chances * np.exp(-losses))
        )
        return np.asarray(ours - np.exp(epsilons) * theirs + self.infinite)


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


def approximate(epsilon: float, delta: float) -> WorstPair:
    """Return the pair of an (epsilon, delta)-private release about which nothing more holds.

    It is randomised response, but tells all with chance delta (Kairouz, Oh & Viswanath 2015).
    """
    answer = draws(epsilon * 2, 1)
    return WorstPair(lambda epsilons: delta + (1 - delta) * answer.deltas(epsilons), epsilon, epsilon)


def laplace(epsilon: float) -> WorstPair:
    """Return the pair of a Laplace release."""
    profile = lambda epsilons: np.maximum(0.0, -np.expm1((epsilons - epsilon) / 2))  # noqa: E731
    return WorstPair(profile, min(epsilon, 1.4), epsilon)


def l2_laplace(epsilon: float, dimension: int) -> WorstPair:
    """Return the pair of noise of density exp(-beta |b|)."""
    deviation = epsilon / math.sqrt(dimension)
    return WorstPair(lambda epsilons: l2_laplace_delta(epsilons, epsilon, dimension), deviation, epsilon)


def draws(spread: float, number: int) -> WorstPair:
    """Return the pair of so many draws: as many answers of randomised response of half the spread."""
    chance = 1 / (1 + math.exp(-spread / 2))

    def deltas(epsilons: FloatArray) -> FloatArray:
        last = np.floor((epsilons / (spread / 2) + number) / 2 + 1e-9)  # of the answers that are as likely, or less
        ours, theirs = (binom.sf(last, number, p) for p in (chance, 1 - chance))
        return np.asarray(ours - np.exp(epsilons) * theirs)

    return WorstPair(deltas, spread / 2 * math.sqrt(number), spread / 2 * number)


def objective(mu: float, determinant: float) -> WorstPair:
    """Return the pair of the exact minimiser under a Gaussian tilt of ``mu``, at which a determinant costs a loss r.

    From one table to that with both records, and from there to the other, the tilt moves by half of it. So for
    losses y1 + y2 = e - r of these two, delta(e) = d(y1) + e^y1 d(y2), d being the profile of mu / 2: the best parts,
    (e - r -+ mu^2 / 4) / 2, give that of mu, and if one would be negative, it is 0. Of e below r nothing more is known.
    """
    whole, half = gaussian(mu).deltas, gaussian(mu / 2).deltas

    def deltas(epsilons: FloatArray) -> FloatArray:
        left = np.maximum(epsilons - determinant, 0.0)
        beyond = np.where(left < mu**2 / 4, half(np.zeros(1)) + half(left), whole(left))
        return np.where(epsilons < determinant * (1 - 1e-12), 1.0, beyond)

    return WorstPair(deltas, math.hypot(mu, determinant))


def either(one: WorstPair, other: WorstPair) -> WorstPair:
    """Return a pair as bad as both of these, if a record may bring about either."""
    deviation, largest = max(one.deviation, other.deviation), max(one.largest, other.largest)
    return WorstPair(lambda at: np.maximum(one.deltas(at), other.deltas(at)), deviation, largest)


def all_of(pairs: Mapping[WorstPair, int]) -> WorstPair:
    """Return the pair of a run that makes releases of these pairs, each as often as it says."""
    releases = [pair.masses(_interval(pairs)) for pair, times in pairs.items() for _ in range(times)]
    deviation = math.sqrt(sum(times * pair.deviation**2 for pair, times in pairs.items()))
    largest = sum(times * pair.largest for pair, times in pairs.items())
    return WorstPair(reduce(Masses.and_then, releases).deltas, deviation, largest)


# ── many of them ─────────────────────────────────────────────────────────────


def together(pairs: Mapping[WorstPair, int]) -> PrivacyLossDistribution:
    """Return the privacy loss of so many releases of each pair together, if none depends on another's answer."""
    counted = {pair: times for pair, times in pairs.items() if times}
    interval = _interval(counted)
    composed = pld.identity(value_discretization_interval=interval)
    for pair, times in counted.items():
        composed = composed.compose(_losses(pair, interval).self_compose(times))
    return composed


def _interval(pairs: Iterable[WorstPair]) -> float:
    """Return the step of the grid on which pairs are composed."""
    deviations = [pair.deviation for pair in pairs]
    return max(min(deviations) / _STEPS, math.hypot(*deviations) / _MOST_STEPS)


@lru_cache(maxsize=256)
def _losses(pair: WorstPair, interval: float) -> PrivacyLossDistribution:
    return pair.losses(interval)


def most(holds: Callable[[int], bool]) -> int:
    """Return the largest number for which ``holds``, which holds up to some number and never beyond; 0 if none."""
    beyond = 1
    while beyond < _MOST and holds(beyond):
        beyond *= 2
    return bisect_left(range(beyond + 1), 1, lo=max(1, beyond // 2), key=lambda times: int(not holds(times))) - 1
