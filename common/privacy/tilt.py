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
release of this mu at y - r, wherever y - r >= mu^2 / 4; below that, the smaller part is 0. For the other law the parts
are those of the Gaussian law with the same d(0), which need not be the best: all are valid. D and D' may change places;
so at losses between -r and r the profile, convex in e^y, lies below its chord. For two-sided slopes nothing is proven.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from parley.common.arrays import FloatArray
from parley.common.privacy.company import Cover, Profile, gaussian_deltas, of_profile, of_pure
from parley.common.privacy.events import GaussianEvent, L2LaplaceEvent, TiltEvent
from parley.common.privacy.l2_laplace import l2_laplace_delta


def tilt_profile(law: GaussianEvent | L2LaplaceEvent, determinant: float) -> Profile:
    """Return the profile, at losses of 0 and more; ``law`` and ``determinant`` are as in `TiltEvent`."""
    single = _profile_of(law)
    apart = (2 * ndtri((1 + single(np.zeros(1))[0]) / 2)) ** 2

    def beyond(losses: FloatArray) -> FloatArray:
        left = np.maximum(losses - determinant, 0.0)
        smaller = np.maximum((left - apart) / 2, 0.0)
        return np.asarray(np.minimum(single(smaller) + np.exp(smaller) * single(left - smaller), 1.0))

    at_factor, factor = float(beyond(np.array([determinant]))[0]), np.exp(determinant)

    def profile(losses: FloatArray) -> FloatArray:
        chord = (factor + at_factor - np.exp(np.minimum(losses, determinant)) * (1 - at_factor)) / (1 + factor)
        result: FloatArray = np.where(losses < determinant, chord, beyond(losses))
        return result

    return profile


@lru_cache(maxsize=4096)
def cover_of_tilt(event: TiltEvent) -> Cover:
    """Return the cover of the minimisations of an event, without their blur.

    If the profile gives none, it is that of an (epsilon, delta)-private release.
    """
    pure = of_pure(event.epsilon)
    claimed = Cover(pure.alone / event.times, pure.variance / event.times, pure.excess / event.times)
    end = math.inf if isinstance(event.law, GaussianEvent) else 2 * event.law.epsilon + event.determinant
    of_one = of_profile(tilt_profile(event.law, event.determinant), end, claimed, [event.determinant])
    slack = event.delta if of_one is claimed else 0.0
    return Cover(event.times * of_one.alone, event.times * of_one.variance, event.times * of_one.excess, slack)


def _profile_of(law: GaussianEvent | L2LaplaceEvent) -> Profile:
    """Return the profile of a release of this law."""
    if isinstance(law, GaussianEvent):
        mu = law.mu
        return lambda losses: gaussian_deltas(losses, np.full_like(losses, mu))
    bound, dimension = law.epsilon, law.dimension
    return lambda losses: l2_laplace_delta(losses, bound, dimension)
