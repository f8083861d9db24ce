"""The cost of answers across runs: the square of a Gaussian release's mu that covers them, and a slack of delta.

A release is *covered* by mu and slack s if, except for an event of probability s, no test distinguishes its neighbours
better than N(0, 1) from N(mu, 1). If each release may be chosen by all answers before it, those whose squares add up to
at most B have together the privacy of one Gaussian release of mu = sqrt(B) (Smith & Thakurta, "Fully Adaptive
Composition for Gaussian Differential Privacy", 2022: the filter sum mu^2 <= B), and slack adds up. So runs need not be
known ahead, and none depends on what the others ask. `parley.common.privacy.account` says how B and slack share one
delta.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from parley.common.arrays import FloatArray
from parley.common.errors import BudgetExhaustedError, check_not_negative
from parley.common.privacy.calibration import ROUNDING, gaussian_delta, mu_of_draws, pure_mu
from parley.common.privacy.events import (
    ApproximateEvent,
    DrawEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NoEvent,
    NonPrivateEvent,
    ParallelEvent,
    Release,
    SequentialEvent,
)
from parley.common.privacy.l2_laplace import l2_laplace_delta

_QUADRATURE = 2e-15  # absolute error of a profile in the tail
_BOUNDS = 1e-6, 20.0  # beyond these a release is covered by its bound alone


def cover(event: Event) -> tuple[Fraction, Fraction]:
    """Return ``(mu^2, slack)`` of an answer.

    Releases in sequence add up. Of those in parallel the worst of each counts: they use disjoint data, and neighbours
    change one of them, so the worst of each covers every case. Raises BudgetExhaustedError for a release without noise.
    """
    match event:
        case NoEvent():
            return Fraction(0), Fraction(0)
        case SequentialEvent(events=parts):
            squares, slacks = _columns(parts)
            return sum(squares, Fraction(0)), sum(slacks, Fraction(0))
        case ParallelEvent(events=parts):
            squares, slacks = _columns(parts)
            return max(squares, default=Fraction(0)), max(slacks, default=Fraction(0))
        case _:
            mu, slack = _cover_of_release(event)
            return Fraction(mu) ** 2, Fraction(slack)


def _cover_of_release(release: Release) -> tuple[float, float]:
    """Return ``(mu, slack)`` of one release."""
    match release:
        case GaussianEvent(mu=mu):
            return mu, 0.0
        case LaplaceEvent(epsilon=epsilon):
            return l2_laplace_mu(epsilon, 1), 0.0
        case L2LaplaceEvent(epsilon=epsilon, dimension=dimension):
            return l2_laplace_mu(epsilon, dimension), 0.0
        case ApproximateEvent(epsilon=epsilon, delta=delta):
            return pure_mu(epsilon), delta
        case DrawEvent(spread=spread, draws=draws):
            return mu_of_draws(spread, draws), 0.0
        case NonPrivateEvent():
            raise BudgetExhaustedError("the run releases answers without noise; no budget allows that")


@lru_cache(maxsize=4096)
def l2_laplace_mu(bound: float, dimension: int) -> float:
    """Return the mu of a Gaussian release that covers noise of density exp(-beta |b|) in ``dimension`` d.

    It has no slack. ``bound`` is beta * sensitivity. The result is about bound / sqrt(d), while `pure_mu` does not
    depend on d: the mu of the Gaussian release whose profile has the same value at loss 0, and a five-hundredth more.
    That its profile then lies above the other everywhere is not assumed but checked on a grid, to the rounding of the
    quadrature. Profiles are convex in e^loss, so that between two points the Gaussian's lies above its tangent and the
    other below its chord, and the ends of both lines decide; losses below 0 mirror those above. If the check fails the
    result is `pure_mu`.
    """
    pure = pure_mu(bound)
    if not _BOUNDS[0] <= bound <= _BOUNDS[1]:
        return pure
    at_zero = float(l2_laplace_delta(np.zeros(1), bound, dimension)[0])
    mu = 2 * float(ndtri((1 + at_zero) / 2)) * (1 + 1 / 500)
    if not 0 < mu < pure:
        return pure
    step = min(mu, 1.0) / 10
    losses = np.unique(np.minimum(np.append(np.arange(0.0, 9 * mu + step, step), bound), bound))
    missing = _missing(losses, l2_laplace_delta(losses, bound, dimension), mu)
    return mu if missing <= _QUADRATURE else pure


def _missing(losses: FloatArray, deltas: FloatArray, mu: float) -> float:
    """Return by how much a convex profile, given at some losses (m,), exceeds a Gaussian release's between them."""
    middle = (losses[1:] + losses[:-1]) / 2
    slope = -ndtr(-mu / 2 - middle / mu)  # of the Gaussian's profile, by e^loss
    height = np.exp(log_ndtr(mu / 2 - middle / mu)) + np.exp(middle) * slope
    above_tangent = [
        ends - height - slope * (np.exp(at) - np.exp(middle))
        for ends, at in ((deltas[:-1], losses[:-1]), (deltas[1:], losses[1:]))
    ]
    missing = np.minimum(np.maximum(*above_tangent), deltas[:-1])  # 0 is below the Gaussian's profile too
    return max(0.0, float(missing.max()))


@lru_cache(maxsize=4096)
def largest_square(epsilon: float, delta: float, unit: float) -> int:
    """Return the largest mu^2, in whole units of ``unit``, of a Gaussian release that is (epsilon, delta)-private.

    It is computed from the exact profile (Balle & Wang 2018), with a margin for rounding; 0 for delta = 0.
    """
    check_not_negative(epsilon=epsilon, delta=delta, unit=unit)
    if delta == 0:
        return 0
    allowed = delta * (1 - ROUNDING)

    def beyond(square: int) -> int:
        return int(gaussian_delta(epsilon, math.sqrt(square * unit)) > allowed)

    return bisect_left(range(2**63 - 1), 1, key=beyond) - 1


def _columns(parts: tuple[Event, ...]) -> tuple[list[Fraction], list[Fraction]]:
    """Return the squares and the slacks of several answers."""
    covers = [cover(part) for part in parts]
    return [square for square, _ in covers], [slack for _, slack in covers]
