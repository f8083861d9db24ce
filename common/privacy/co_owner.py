"""What an answer costs when part of its noise is known: to a co-owner, who subtracts its own share of a sum's noise.

A co-owner gets the weights of each round, and works out the noisy sum from two in a row. Where the noise of the sum was
drawn in shares, and no colluder reckoned with, what is left of it hides less.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincinv, log_ndtr

from parley.common.arrays import FloatArray
from parley.common.privacy.calibration import bisect
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
    """What an answer costs when ``part`` of the shares of its noise are unknown; 0 < part < 1.

    Of Gaussian noise that part of the variance is left. No mechanism draws Laplace's in shares. Of noise of density
    exp(-beta |b|) a Gaussian mixture is left, which has no pure epsilon: its epsilon at ``delta`` is bounded. Of other
    releases nothing is known, so nothing is promised.
    """
    match event:
        case NoEvent() | NonPrivateEvent() | LaplaceEvent():
            return event
        case GaussianEvent(mu=mu):
            return GaussianEvent(mu / part**0.5)
        case L2LaplaceEvent():
            return _mixture(event, part, delta)
        case ApproximateEvent() | DrawEvent():
            return NonPrivateEvent()
        case SequentialEvent(events=parts):
            return SequentialEvent(tuple(with_part(each, part, delta) for each in parts))
        case ParallelEvent(events=parts):
            return ParallelEvent(tuple(with_part(each, part, delta) for each in parts))


def _mixture(event: L2LaplaceEvent, part: float, delta: float) -> Event:
    """Some shares of noise of density exp(-beta |b|): sqrt(V) g, V ~ Gamma(part (d+1)/2, scale 2/beta^2), g normal.

    Whoever sees V too sees a Gaussian release of mu = beta S / sqrt(2 G), G of scale 1. So the delta of an epsilon is
    at most the mean over G of the Gaussian's, which falls with G: a sum over bins of G's law, each at its lower end.
    """
    if delta == 0:
        return NonPrivateEvent()
    edges = np.geomspace(delta * 1e-3, 1.0, 4001)
    mus = event.epsilon / np.sqrt(2 * gammaincinv(part * (event.dimension + 1) / 2, edges[:-1]))
    chances = np.diff(edges)

    def exceeds(epsilon: float) -> bool:
        return float(edges[0] + (chances * _gaussian_deltas(epsilon, mus)).sum()) > delta

    return ApproximateEvent(bisect(exceeds)[1] if exceeds(0.0) else 0.0, delta)


def _gaussian_deltas(epsilon: float, mus: FloatArray) -> FloatArray:
    """`gaussian_delta` for each mu, (...)."""
    upper = log_ndtr(mus / 2 - epsilon / mus)
    lower = epsilon + log_ndtr(-mus / 2 - epsilon / mus)
    return np.asarray(np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0)))
