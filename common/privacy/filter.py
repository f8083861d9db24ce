"""The cost of answers across runs: sums of covers, and two filters on them.

A release is *covered* by b and slack s if its profile lies below that of a Gaussian release of mu^2 = b, but for s
(`parley.common.privacy.company`). If each release may be chosen by all answers before it, those whose covers add up to
at most B have together the privacy of one Gaussian release of mu = sqrt(B) (Smith & Thakurta, "Fully Adaptive
Composition for Gaussian Differential Privacy", 2022), and slack adds up. So runs need not be known ahead, and none
depends on what the others ask. An account (`parley.common.privacy.account`) accepts what either of two filters accepts:

- *alone*: covers alone add up to at most B;
- *in company*: V + 2 sqrt(Q) <= B, where V and Q are the sums of the `Cover.variance` and `Cover.excess` of all.

*Why both are one filter.* Let delta_R be the profile of a Gaussian release of mu^2 = R, and let R be what is left of B.
A learner that may still take what R allows gets at most delta_R(y), y being the loss that is left: this holds at the
end, where nothing more is taken, and it holds before a release if

    E[delta_R'(y - loss)] <= delta_R(y),    R' what is left after it,

which is what it means that R - R' covers the release in company of R'. For s > 0 and tau = 11/4 s, let S be V + Q / s,
to which a release adds v + q / s, and let what is left be

    R_s = B - S, but where that is less than tau, tau - 11/7 (S - (B - tau)).

Releases that leave tau or more have that company; later ones take as much as they do alone; and nothing is left where
S = B - s. `parley.common.privacy.company` shows that what R_s falls by covers a release if s >= sqrt(q), also one that
passes tau. Covers alone leave R_0 = B less their sum. Let R be the largest of R_0 and of R_s for all s >= sqrt(Q), and
let a release be accepted if R is 0 or more after it: if V + Q / s + s <= B for such an s, and sqrt(Q) is the best, or
if covers alone add up to B at most. The inequality holds, because R' is R_0, or R_s of some s, and before the release R
was no less than that of the same s. The sums do not depend on the order of releases, nor does what is accepted.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from functools import lru_cache

from parley.common.errors import BudgetExhaustedError, check_not_negative
from parley.common.privacy.calibration import ROUNDING, gaussian_delta, pure_mu
from parley.common.privacy.company import Cover, in_sequence, of_concentrated, of_l2_laplace, of_pure
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
    TiltEvent,
)
from parley.common.privacy.tilt import cover_of_tilt

NOTHING_TAKEN = Cover(0.0, 0.0)


def cover(event: Event) -> Cover:
    """Return the cover of an answer.

    Releases in sequence add up. Of those in parallel the worst of each number counts: they use disjoint data, and
    neighbours change one of them, so the worst of each covers every case. Raises BudgetExhaustedError for a release
    without noise.
    """
    match event:
        case NoEvent():
            return NOTHING_TAKEN
        case SequentialEvent(events=parts):
            return in_sequence((cover(part), times) for part, times in Counter(parts).items())
        case ParallelEvent(events=parts):
            covers = [cover(part) for part in parts]
            columns = zip(*((one.alone, one.variance, one.excess, one.slack) for one in covers), strict=True)
            return Cover(*map(max, columns)) if covers else NOTHING_TAKEN
        case _:
            return _cover_of_release(event)


def _cover_of_release(release: Release) -> Cover:
    """Return the cover of one release."""
    match release:
        case GaussianEvent(mu=mu):
            return Cover(mu**2, mu**2)
        case LaplaceEvent(epsilon=epsilon):
            return of_l2_laplace(epsilon, 1)
        case L2LaplaceEvent(epsilon=epsilon, dimension=dimension):
            return of_l2_laplace(epsilon, dimension)
        case TiltEvent(blur=blur, times=times):
            return in_sequence([(cover_of_tilt(release), 1), (cover(blur), times)])
        case ApproximateEvent(epsilon=epsilon, delta=delta):
            pure = of_pure(epsilon)
            return Cover(pure.alone, pure.variance, pure.excess, delta)
        case DrawEvent(spread=spread, draws=draws):
            return of_concentrated(pure_mu(spread / 2) ** 2, spread**2 / 4, draws)
        case NonPrivateEvent():
            raise BudgetExhaustedError("the run releases answers without noise; no budget allows that")


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
