"""What answers of several owners about the same person cost together.

A person, or a record, may be with up to s owners (a run's ``overlap``), and is to be hidden at all of them. Replacing
it changes s answers:

- Where each owner adds all of its own noise, the s answers are s releases, in sequence. Gaussian ones cost the root of
  s times the mu of one, others compose as they do in one ledger.
- Where a secure sum's noise is drawn once, in shares, the sum moves s times as far: s times the mu, or the epsilon.

Each owner charges what all s cost together, as if the others' budgets were its own: a ledger that charged its own
answer alone would keep its promise to nobody with s owners. So that the run costs no more than was agreed,
`for_one_owner` says for which budget each owner sets its noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from parley.common.privacy.calibration import gaussian_delta, gaussian_epsilon, gaussian_mu
from parley.common.privacy.events import (
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

_INWARDS = 1 - 1e-9
"""What rounding may take from an epsilon, so that s answers cost no more than what they were set for."""


def at_owners(event: Event, overlap: int, *, in_one_sum: bool) -> Event:
    """Return the event of the answers of ``overlap`` owners, each of this event; ``in_one_sum`` if noise is in shares.

    If noise is inside a minimisation, or nothing but an (epsilon, delta) is known, there is no proof for a sum that
    moves further: it counts as not private.
    """
    if overlap == 1 or isinstance(event, NoEvent | NonPrivateEvent):
        return event
    if isinstance(event, DrawEvent):  # each owner makes its own
        return DrawEvent(event.spread, event.draws * overlap)
    if in_one_sum:
        return _moved(event, overlap)
    if isinstance(event, GaussianEvent):
        return GaussianEvent(event.mu * math.sqrt(overlap))
    return SequentialEvent((event,) * overlap)


def _moved(event: Event, times: int) -> Event:
    """Return the event of a release that a neighbour moves so many times as far."""
    match event:
        case GaussianEvent(mu=mu):
            return GaussianEvent(mu * times)
        case LaplaceEvent(epsilon=epsilon) | L2LaplaceEvent(epsilon=epsilon):
            return replace(event, epsilon=epsilon * times)
        case SequentialEvent(events=parts) | ParallelEvent(events=parts):
            return type(event)(tuple(_moved(part, times) for part in parts))
        case NoEvent():
            return event
        case _:
            return NonPrivateEvent()


@lru_cache(maxsize=4096)
def for_one_owner(
    epsilon: float, delta: float, overlap: int, *, is_gaussian: bool, in_one_sum: bool
) -> tuple[float, float]:
    """Return the (epsilon, delta) for which each of ``overlap`` owners sets its noise, if all may spend this together.

    If all noise is Gaussian, it is a part of its mu: 1 / s, or 1 / sqrt(s) where answers are apart. Where an epsilon of
    0 would do for that at this delta, it is a part of epsilon, at less of a delta. Otherwise it is a part 1 / s of
    both. Raises InvalidInputError for an invalid budget.

    >>> for_one_owner(1.0, 0.0, 2, is_gaussian=False, in_one_sum=True)
    (0.5, 0.0)
    >>> round(for_one_owner(1.0, 1e-5, 4, is_gaussian=True, in_one_sum=False)[0], 3)
    0.469
    """
    if overlap == 1:
        return epsilon, delta
    if delta == 0 or not is_gaussian:
        return epsilon / overlap, delta / overlap
    part = overlap if in_one_sum else math.sqrt(overlap)
    mu = gaussian_mu(epsilon, delta) / part
    if own := gaussian_epsilon(mu, delta):
        return own * _INWARDS, delta
    return epsilon / part, gaussian_delta(epsilon / part, mu) * _INWARDS
