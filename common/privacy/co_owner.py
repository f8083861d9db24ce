"""The cost of an answer to a co-owner, who knows a part of its noise and subtracts its own share of a sum's noise.

A co-owner gets the weights of each round, and can compute the noisy sum from two in a row. If the noise of the sum was
drawn in shares, and for no colluders, the noise that is left hides less.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincinv

from parley.common.privacy.calibration import bisect
from parley.common.privacy.company import gaussian_deltas
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
    SequentialEvent,
)


def with_part(event: Event, part: float, delta: float) -> Event:
    """Return the event of an answer when ``part`` of the shares of its noise are unknown; 0 < part < 1.

    Gaussian noise keeps that part of its variance. Of Laplace noise in shares no epsilon is left. Noise of density
    exp(-beta |b|) leaves a Gaussian mixture, which has no pure epsilon: its epsilon at ``delta`` is bounded. For other
    releases no bound is known, so nothing is promised.
    """
    match event:
        case NoEvent() | NonPrivateEvent() | LaplaceEvent(in_shares=False):
            return event
        case GaussianEvent(mu=mu):
            return GaussianEvent(mu / part**0.5)
        case L2LaplaceEvent():
            return _mixture(event, part, delta)
        case ApproximateEvent() | DrawEvent() | LaplaceEvent():
            return NonPrivateEvent()
        case SequentialEvent(events=parts):
            return SequentialEvent(tuple(with_part(inner, part, delta) for inner in parts))
        case ParallelEvent(events=parts):
            return ParallelEvent(tuple(with_part(inner, part, delta) for inner in parts))


def _mixture(event: L2LaplaceEvent, part: float, delta: float) -> Event:
    """Return the event of some shares of noise of density exp(-beta |b|).

    That noise is sqrt(V) g, V ~ Gamma(part (d+1)/2, scale 2/beta^2), g normal. Someone who sees V too sees a Gaussian
    release of mu = beta S / sqrt(2 G), G of scale 1. So the delta of an epsilon is at most the mean over G of the
    Gaussian's, which falls with G: a sum over bins of G's law, each at its lower end.
    """
    if delta == 0:
        return NonPrivateEvent()
    edges = np.geomspace(delta * 1e-3, 1.0, 4001)
    mus = event.epsilon / np.sqrt(2 * gammaincinv(part * (event.dimension + 1) / 2, edges[:-1]))
    chances = np.diff(edges)

    def exceeds(epsilon: float) -> bool:
        return float(edges[0] + (chances * gaussian_deltas(np.full_like(mus, epsilon), mus)).sum()) > delta

    return ApproximateEvent(bisect(exceeds)[1] if exceeds(0.0) else 0.0, delta, event.assumptions)
