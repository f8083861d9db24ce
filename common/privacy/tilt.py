"""The profile of a minimiser whose noise is inside the minimisation.

The minimiser w of a risk with a ridge Lambda and a random tilt b tells b: it is minus the gradient at w. So the density
of w is that of b at this place, times the determinant of the gradient's derivative. Let D and D' differ in one record,
x for x', and let E hold both. D' and E, like D and E, differ by one record more, for a loss of one score whose slope
has one sign.

- *The tilt.* For the same w, the tilts of D and E differ by s x', s between 0 and L. The logarithm of the ratio of the
  tilt's densities, at the b of D, is convex in s, for a Gaussian tilt and for density exp(-beta |b|). So it is at most
  max(0, l), l being its value for s = L: the loss of an ordinary release of b that one record moves by L.
- *The determinant* grows with a record, by a factor of 1 + c / Lambda at most. From D to E it lowers the loss; from E
  to D' it adds r = log(1 + c / Lambda) at most.

With d the profile of that ordinary release, that of D against E lies below d at losses y >= 0, and that of E against D'
below d(y - r) at y >= r. Profiles of P against Q against R compose: P(S) - e^(y1 + y2) R(S) is at most delta_PQ(y1) +
e^y1 delta_QR(y2). So for y >= r, and every y1 + y2 = y - r without a negative part,

    delta(y) <= d(y1) + e^y1 d(y2).

For a Gaussian tilt of mu = 2 L / sigma, the best parts are (y - r -+ mu^2 / 4) / 2, and the bound is that of a Gaussian
release of this mu at y - r, wherever y - r >= mu^2 / 4; below that, the smaller part is 0. For the other law
the best parts are taken on a grid, and a chord between its points. D and D' may change places;
so at losses between -r and r the profile, convex in e^y, lies below its chord. For two-sided slopes nothing is proven.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.privacy.company import (
    DEVIATIONS,
    Cover,
    Profile,
    gaussian_deltas,
    in_sequence,
    of_profile,
    of_pure,
    square_at_zero,
)
from parley.common.privacy.events import GaussianEvent, L2LaplaceEvent, TiltEvent
from parley.common.privacy.l2_laplace import l2_laplace_delta

_MOST = 300.0  # of larger epsilons nothing is looked at but the claim
_STEPS = 250
"""The parts of a loss that are tried."""


def tilt_profile(law: GaussianEvent | L2LaplaceEvent, determinant: float) -> Profile:
    """Return the profile, at losses of 0 and more; ``law`` and ``determinant`` are as in `TiltEvent`."""
    two_moves = _gaussian_moves(law.mu) if isinstance(law, GaussianEvent) else _vector_moves(law)
    at_factor, factor = float(two_moves(np.zeros(1))[0]), np.exp(determinant)

    def profile(losses: FloatArray) -> FloatArray:
        chord = (factor + at_factor - np.exp(np.minimum(losses, determinant)) * (1 - at_factor)) / (1 + factor)
        beyond = two_moves(np.maximum(losses - determinant, 0.0))
        result: FloatArray = np.where(losses < determinant, chord, beyond)
        return result

    return profile


def _gaussian_moves(mu: float) -> Profile:
    """Return the bound for two moves of mu each, by the best parts of a loss."""

    def bound(losses: FloatArray) -> FloatArray:
        smaller = np.maximum((losses - mu**2) / 2, 0.0)
        first, second = (gaussian_deltas(part, np.full_like(part, mu)) for part in (smaller, losses - smaller))
        return np.asarray(np.minimum(first + np.exp(smaller) * second, 1.0))

    return bound


def _vector_moves(law: L2LaplaceEvent) -> Profile:
    """Return the bound for two moves of density exp(-beta |b|): the best parts on a grid, and chords between."""
    at_zero = square_at_zero(float(l2_laplace_delta(np.zeros(1), law.epsilon, law.dimension)[0]))
    step = min(law.epsilon, DEVIATIONS * math.sqrt(at_zero) + at_zero) / _STEPS
    parts: FloatArray = step * np.arange(_STEPS + 1, dtype=np.float64)
    deltas = l2_laplace_delta(parts, law.epsilon, law.dimension)
    sums = np.full(2 * _STEPS + 1, np.inf)
    for first in range(_STEPS + 1):  # the smaller part
        seconds = np.arange(first, _STEPS + 1)
        both = deltas[first] + math.exp(parts[first]) * deltas[seconds]
        sums[first + seconds] = np.minimum(sums[first + seconds], both)
    ends = np.exp(step * np.arange(len(sums)))
    return lambda losses: np.asarray(np.interp(np.exp(losses), ends, np.minimum(sums, 1.0)))


@lru_cache(maxsize=4096)
def cover_of_tilt(event: TiltEvent) -> Cover:
    """Return the cover of the minimisations of an event, without their blur.

    If the profile gives none, it is that of an (epsilon, delta)-private release.
    """
    pure = of_pure(event.epsilon)
    claimed = Cover(*(part / event.times for part in (pure.alone, pure.variance, pure.excess, event.delta)))
    if event.epsilon > _MOST:
        return Cover(pure.alone, pure.variance, pure.excess, event.delta)
    end = math.inf if isinstance(event.law, GaussianEvent) else 2 * event.law.epsilon + event.determinant
    of_one = of_profile(tilt_profile(event.law, event.determinant), end, claimed, [event.determinant])
    return in_sequence([(of_one, event.times)])
