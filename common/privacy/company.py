"""How much of a Gaussian budget a release takes that is not Gaussian: by itself, and in company.

*Profiles.* The profile of a release is delta(y), the most by which P(S) exceeds e^y Q(S) for neighbours P and Q. G_b is
a Gaussian release of mu^2 = b. If a release's profile lies below that of G_b, b *covers* it. Curves are compared here
as u(y) = e^(-y/2) delta(y), y >= 0: if a profile holds for (P, Q) and (Q, P), losses below 0 mirror those above, and
the difference k of two such curves is even in y.

*In company of tau* a release is covered by b if the release and a Gaussian one of mu^2 = tau, together, are covered by
tau + b. Then so they are in all larger company: more Gaussian noise on both sides changes nothing. A release in company
costs less than alone. One that is epsilon-private for a small epsilon, for instance, is covered alone by b = (pi/2)
epsilon^2; in company, b comes near epsilon^2, the variance of its loss.

*One crossing is enough* (the proof is ours). With m(dl) = e^(-l/2) P(loss in dl), releases in sequence convolve their
m; that of G_tau is e^(-tau/8) N(0, tau). So a release and G_tau have the curve e^(-tau/8) N(0, tau) * u, and b covers
the release in company if and only if N(0, tau) * k <= 0 everywhere, for k = u - u of G_b. At x, and with s = x / tau,
that is

    F(s) = integral over y >= 0 of k(y) e^(-y^2 / (2 tau)) cosh(s y) dy <= 0.

Let k >= 0 up to some y0 and k <= 0 beyond. Then F(s) / cosh(s y0) falls as s grows, because cosh(s y) / cosh(s y0)
falls for y < y0 and grows for y > y0. So F(0) <= 0 is enough: a single number. For G_b the integral is known, because
the curve of G_(tau + b) at 0 is A(tau + b), with A(t) = 2 Phi(sqrt(t) / 2) - 1:

    integral of u of G_b = sqrt(pi tau / 2) e^(tau/8) (A(tau + b) - A(tau)).

So the least b follows from the integral of the release's own curve (`_least`).

*Bounds instead of curves.* In each cell of a grid a profile lies below its chord in e^y, because it is convex in e^y.
`_steps` gives cell j a B_j such that G_(B_j) lies above the chord on all of the cell; it compares the chord with the
tangent in the middle, whose ends decide. B_j falls from cell to cell. So the curve that follows G_(B_j) in cell j lies
above the release's everywhere, and crosses each G_b once, by construction. u is convex between the ends of a cell, so
the trapezium over it is no less than its integral. The cover alone is the largest B_j.

*Two numbers for all company.* A filter takes v + q / s for a release, s being what it leaves unused, as long as
tau = 11/4 s of its sum or more is left; from there on it takes 11/7 times as much (`parley.common.privacy.filter` says
why). What is left after a release, r, is its company, and what the filter takes must be at least b(r), the cover in
company of r, which falls with r and is the cover alone for r = 0. `Cover.variance` v and `Cover.excess` q are such that
for every s >= sqrt(q)

    v + q / s + 4/11 (tau - r) >= b(r) for 0 <= r <= tau,     and     v >= 7/11 of the cover alone.

The first is about a release that passes tau: it takes tau - r below it, and 4/11 of that comes on top. One that leaves
more than tau has more company; one that begins below tau takes 11/7 (v + q / s), which is its cover alone at least by
the second. v is about the variance of the loss; for an epsilon-private release it is 8 log cosh(epsilon / 2), or the
little more that the second inequality asks for where epsilon is about 1 or larger: pi/2 is less than 11/7.

*Concentrated releases* (`of_concentrated`). Let all Renyi divergences, of every order above 0 and in both directions,
be at most those of G_v: log E_Q[e^(a loss)] lies within v a (a - 1) / 2, below for a > 1 and above for a < 1. Then in
company of tau > v it is covered by b = v tau / (tau - v), if v <= 6 and v <= tau / phi, phi = 1.618 (the proof is
ours). With T the curve of the release less that of no release, the assumption says for every s that

    integral over all y of T(y) e^(s y) dy <= (1/2) integral from 0 to v of e^(r (s^2 - 1/4) / 2) dr.

As e^(-y^2 / (2 tau)) <= 1, it is enough that the right side is at most what G_b has at x = s tau, which is, over the
same factors, (1/2) the integral from 0 to b of sqrt(tau / (tau + r)) e^(-r/8 + s^2 r tau / (2 (tau + r))) dr. Put rho =
r tau / (tau + r), which runs from 0 to v: this integral becomes that of (1 - rho/tau)^(-3/2) e^(-rho^2 / (8 (tau -
rho))) e^(rho (s^2 - 1/4) / 2), and for rho <= v as above the first two factors together are at least 1.

With q = 4/7 v^2 such a release meets both inequalities, if its cover alone is at most 11/7 v: q / s is 11/7 v^2 / tau.
For r >= 11/4 v, b(r) - v + 4/11 r is v^2 / (r - v) + 4/11 r, which grows with r. So r = tau is the worst, and v^2 /
(tau - v) is at most 11/7 v^2 / tau. For less r, b(r) - v is at most 4/7 v, what it is at r = 11/4 v: so nothing is
worse than that if tau is larger; and if tau is less, 11/7 v^2 / tau is more than 4/7 v.

A draw of bounded range s is such a release, with v = s^2 / 4: the second derivative in a of that logarithm is a
variance of a loss that lies in a range of s (Popoviciu 1935), and it is 0 at a = 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import erf, log_ndtr, ndtr, ndtri

from parley.common.arrays import BoolArray, FloatArray
from parley.common.errors import check_not_negative
from parley.common.privacy.calibration import pure_mu
from parley.common.privacy.l2_laplace import l2_laplace_delta

Profile = Callable[[FloatArray], FloatArray]
"""A function from losses (m,), which are not negative, to deltas (m,): the same for neighbours in either order."""
_LEAST_DELTA = 1e-40
"""Smaller deltas of a profile are left out: a trillion times as much is lost in the rounding of an account's limit."""
AT_THE_END = 11 / 7
"""How much faster a filter takes from the last part of its sum: a little more than pi/2."""
_UNUSED = 1 - 1 / AT_THE_END  # the part of tau that is left unused
_CELLS = 250
DEVIATIONS = 14.0
"""Beyond so many, the delta of a Gaussian release is below the least."""
_MARGINS = (1e-3, 1e-2, 0.1)
"""By how much more than at its left end a cell's Gaussian release may be."""
_PASSES = 12
_COMPANIES = np.geomspace(0.03, 2000.0, 160)
"""Company that is tried, in parts of the cover alone."""
_ROUNDING = 1e-6
_LARGEST_COMPANY = 60.0  # beyond it, A(tau) is 1 to a float's precision
_MOST_CONCENTRATED = 6.0
_TINY, _LARGE = 1e-13, 9.0  # covers alone that are so small or large are not looked at in company


@dataclass(frozen=True, slots=True)
class Cover:
    """The mu^2 that covers a release alone, and its ``variance`` and ``excess`` in company.

    ``slack`` is the delta that none of them covers: that of a claim about which nothing more is known.
    """

    alone: float
    variance: float
    excess: float = 0.0
    slack: float = 0.0


def in_sequence(covers: Iterable[tuple[Cover, int]]) -> Cover:
    """Return the cover of several releases, each with how often there is one like it."""
    counted = list(covers)
    names = ("alone", "variance", "excess", "slack")
    return Cover(*(math.fsum(getattr(one, name) * times for one, times in counted) for name in names))


def of_concentrated(alone: float, variance: float, times: int = 1) -> Cover:
    """Return the cover of so many concentrated releases; ``alone`` covers one of them by itself.

    If ``variance``, of one, is more than the theorem allows, they count as they do alone.
    """
    if variance > _MOST_CONCENTRATED or alone > AT_THE_END * variance:
        return Cover(times * alone, times * alone)
    return Cover(times * alone, times * variance, times * (AT_THE_END - 1) * variance**2)


@lru_cache(maxsize=4096)
def of_pure(epsilon: float) -> Cover:
    """Return the cover of a release about which nothing is known but its pure epsilon.

    The worst one answers a bit truly with chance e^epsilon / (1 + e^epsilon).
    """
    likely = 1 / (1 + math.exp(-min(epsilon, 700.0)))
    least = of_concentrated(pure_mu(epsilon) ** 2, epsilon**2)

    def profile(losses: FloatArray) -> FloatArray:
        return likely * -np.expm1(np.minimum(losses - epsilon, 0.0))

    return of_profile(profile, epsilon, least)


@lru_cache(maxsize=4096)
def of_l2_laplace(bound: float, dimension: int) -> Cover:
    """Return the cover of noise of density exp(-beta |b|) in ``dimension`` d; ``bound`` is beta * sensitivity.

    In one dimension it is Laplace's.
    """
    check_not_negative(bound=bound)
    if bound == 0:
        return Cover(0.0, 0.0)
    return of_profile(lambda losses: l2_laplace_delta(losses, bound, dimension), bound, of_pure(bound))


def of_profile(profile: Profile, end: float, otherwise: Cover, bends: Sequence[float] = ()) -> Cover:
    """Return the cover of a release by its profile, which is 0 beyond ``end``, if that is finite.

    The profile may have ``bends`` at some losses; they become ends of cells.

    It is ``otherwise`` where the check of a cell fails, or a release is so large or small that company plays no part.
    ``otherwise`` is a cover too, so alone the lesser of both counts, unless it has slack.
    """
    alone = square_at_zero(float(profile(np.zeros(1))[0]))
    if not _TINY < alone < _LARGE:
        return otherwise
    reach = min(end, DEVIATIONS * math.sqrt(alone) + alone)
    losses = np.union1d(np.linspace(0.0, reach, _CELLS + 1), [bend for bend in bends if 0 < bend < reach])
    deltas = profile(losses)
    deltas[(deltas < _LEAST_DELTA) | (losses >= end)] = 0.0
    squares = _steps(losses, deltas) if deltas[-1] == 0 else None
    if squares is None:
        return otherwise
    alone = float(squares[0]) if otherwise.slack else min(float(squares[0]), otherwise.alone)
    return Cover(alone, *_least(losses, squares, alone))


def gaussian_deltas(losses: FloatArray, mus: FloatArray) -> FloatArray:
    """Return the profile of Gaussian releases, (...), as `parley.common.privacy.calibration.gaussian_delta` does."""
    upper = log_ndtr(mus / 2 - losses / mus)
    lower = losses + log_ndtr(-mus / 2 - losses / mus)
    return np.asarray(np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0)))


def square_at_zero(delta: float) -> float:
    """Return the mu^2 of the Gaussian release with this delta at loss 0."""
    return float(2 * ndtri((1 + delta) / 2)) ** 2


def _steps(losses: FloatArray, deltas: FloatArray) -> FloatArray | None:
    """Return B (m - 1,) of each cell, from the first to the last, which falls; None if a check fails for all margins.

    A cell that fails by itself, as the last one does, where a profile ends, takes the B of the one before it.
    """
    at_ends = _local_squares(losses[:-1], deltas[:-1])
    for margin in _MARGINS:
        squares = np.maximum.accumulate(at_ends[::-1])[::-1] * (1 + margin)
        for _ in range(_PASSES):
            is_above = _is_above(losses, deltas, squares)
            if is_above.all():
                return np.asarray(np.maximum.accumulate(squares[::-1])[::-1])
            squares[1:] = np.where(is_above[1:], squares[1:], np.maximum(squares[:-1], squares[1:]))
    return None


def _local_squares(losses: FloatArray, deltas: FloatArray) -> FloatArray:
    """Return the mu^2 (m,) of the Gaussian release that has each delta at its loss; 0 for a delta of 0."""
    low, high = np.full_like(losses, -20.0), np.full_like(losses, 3.0)  # of log mu
    for _ in range(60):
        middle = (low + high) / 2
        is_less = gaussian_deltas(losses, np.exp(middle)) < deltas
        low, high = np.where(is_less, middle, low), np.where(is_less, high, middle)
    return np.where(deltas > 0, np.exp(2 * high), 0.0)


def _is_above(losses: FloatArray, deltas: FloatArray, squares: FloatArray) -> BoolArray:
    """Return of each cell whether its Gaussian profile surely lies above the chord, by its tangent in the middle."""
    mus = np.sqrt(np.maximum(squares, 1e-300))
    middle = (losses[1:] + losses[:-1]) / 2
    slope = -ndtr(-mus / 2 - middle / mus)
    height = np.exp(log_ndtr(mus / 2 - middle / mus)) + np.exp(middle) * slope
    ends = ((deltas[:-1], losses[:-1]), (deltas[1:], losses[1:]))
    missing = [at_end - height - slope * (np.exp(at) - np.exp(middle)) for at_end, at in ends]
    return np.asarray((np.maximum(*missing) <= 0) | (deltas[:-1] == 0))


def _least(losses: FloatArray, squares: FloatArray, alone: float) -> tuple[float, float]:
    """Return ``(variance, excess)`` of the curve that follows the Gaussian release of ``squares`` in each cell."""
    company = squares[0] * _COMPANIES
    company = company[company < max(_LARGEST_COMPANY, 2 * squares[0])]
    integrals = _integrals(losses, squares, company)
    below = ndtr(-np.sqrt(company) / 2) - np.exp(-company / 8) / np.sqrt(2 * np.pi * company) * integrals
    covers = (2 * ndtri(below)) ** 2 - company
    covers = np.minimum.accumulate(np.where(np.isfinite(covers), covers, alone))
    variance = max(float(covers[-1]), alone / AT_THE_END)
    ends = np.append(company[1:], 2 * company[-1])  # of cells of tau: each begins at one that is tried
    below_tau = np.maximum(0.0, company[:, None] - np.append(company[0], ends))  # least tau - r, by cells of tau and r
    missing = (np.append(alone, covers) - variance - _UNUSED * below_tau).max(axis=1)
    excesses = np.maximum.accumulate((missing * _UNUSED * ends)[::-1])[::-1]
    valid = np.flatnonzero(np.sqrt(np.maximum(excesses, 0.0)) >= _UNUSED * company)  # what holds from this tau on
    if not valid.size:
        return alone, 0.0
    return variance * (1 + _ROUNDING), float(excesses[valid[-1]]) * (1 + _ROUNDING)


def _integrals(losses: FloatArray, squares: FloatArray, company: FloatArray) -> FloatArray:
    """Return bounds on the integrals of the curve times e^(-y^2 / (2 tau)), one for each tau of ``company``."""
    mus = np.sqrt(np.maximum(squares, 1e-300))
    left, right = (np.exp(-at / 2) * gaussian_deltas(at, mus) for at in (losses[:-1], losses[1:]))
    left, right = (np.where(squares > 0, value, 0.0) for value in (left, right))
    slope = (right - left) / np.diff(losses)
    spread = np.sqrt(company)[:, None]
    under = np.diff(np.sqrt(np.pi / 2) * spread * erf(losses / (spread * math.sqrt(2))), axis=1)
    fall = -np.diff(np.exp(-(losses**2) / (2 * company[:, None])), axis=1)
    pieces = (left - slope * losses[:-1]) * under + slope * company[:, None] * fall
    return np.asarray(pieces.sum(axis=1))
