"""The epsilon of releases at a delta, and how the costs of several releases compose.

An *event* is the cost of one answer of one party: the privacy-loss distribution of the worst pair of neighbouring
shards. Events are frozen data, independent of the shard's values. Gaussian events compose in closed form (mu adds in
squares; Dong, Roth & Su 2022, Corollary 3.3), and so do draws (`parley.common.privacy.draws`). Everything else composes
through the privacy-loss distributions of `dp_accounting` (pessimistic, connect-the-dots), which is imported at its
first use because it is slow to load.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.errors import InvalidInputError
from parley.common.privacy.calibration import gaussian_epsilon, mu_of_draws
from parley.common.privacy.composition import branches
from parley.common.privacy.draws import concentrated_epsilon, rho_of_draws
from parley.common.privacy.events import (
    ApproximateEvent,
    DrawEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NonPrivateEvent,
    Release,
)
from parley.common.privacy.l2_laplace import l2_laplace_delta

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_WIDEST_INTERVAL = 1e-2
"""The widest grid of privacy losses."""
_NARROWEST_PART = 1e-4
"""The narrowest grid, as a part of the scale of all losses together: smaller losses need no finer grid beside that."""


_LEAST_DELTA = 1e-30
"""Smaller deltas of a profile count as much: `dp_accounting` takes logarithms of their differences."""
_LARGEST_SCALE = 700.0
"""The largest loss that is composed, whose exponential is still a float. For larger ones, epsilons are added up."""


def epsilon_after(events: Sequence[Event], delta: float) -> float:
    """Return the epsilon at ``delta`` of all these events together; 0 for none, infinite if one has no noise."""
    _check_delta(delta)
    return max(_epsilon(list(chain.from_iterable(branch)), delta) for branch in branches(events))


def pure_epsilons(events: Sequence[Event]) -> FloatArray:
    """Return the epsilon without a delta after the first event, the first two, and so on: their sums, (T,).

    It is infinite from the first event on that has none. Of parts in parallel the worst so far counts.
    """
    by_branch = []
    for branch in branches(events):
        totals = np.concatenate([[0.0], _basic_composition(list(chain.from_iterable(branch)), 0.0)])
        by_branch.append(totals[np.cumsum([len(answer) for answer in branch], dtype=np.int64)])
    return np.asarray(np.max(by_branch, axis=0))


def added_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return a quick bound on `epsilon_after`: the sum of epsilons; infinite if one has none."""
    _check_delta(delta)
    flat = (list(chain.from_iterable(branch)) for branch in branches(events))
    return max(float(_basic_composition(releases, delta)[-1]) if releases else 0.0 for releases in flat)


def _epsilon(releases: Sequence[Release], delta: float) -> float:
    """Return `epsilon_after` of plain releases."""
    if not releases:
        return 0.0
    if any(isinstance(release, NonPrivateEvent) for release in releases):
        return math.inf
    if all(isinstance(release, GaussianEvent | DrawEvent) for release in releases):
        return _in_closed_form(releases, delta)
    added = float(_basic_composition(releases, delta)[-1])
    if _adds_up(releases, delta):
        return added
    composed = _composed(tuple(releases), _interval(tuple(releases)))
    return min(added, float(composed.get_epsilon_for_delta(delta)))


def _adds_up(releases: Sequence[Release], delta: float) -> bool:
    """Return whether the releases' epsilons simply add up, because no better bound can be computed."""
    return delta == 0 or any(_loss_scale(release) > _LARGEST_SCALE for release in releases)


def _in_closed_form(releases: Sequence[Release], delta: float) -> float:
    """Return the epsilon of Gaussian releases and draws: by the square of mu, and by zCDP."""
    by_profile = gaussian_epsilon(math.sqrt(np.cumsum([_loss_scale(release) ** 2 for release in releases])[-1]), delta)
    if not any(isinstance(release, DrawEvent) for release in releases):
        return by_profile
    concentrated = concentrated_epsilon(np.cumsum([_rho(release) for release in releases])[-1], delta)
    return min(by_profile, concentrated, float(_basic_composition(releases, delta)[-1]))


def _rho(release: Release) -> float:
    """Return the zCDP of a Gaussian release, or of draws."""
    return rho_of_draws(release) if isinstance(release, DrawEvent) else _loss_scale(release) ** 2 / 2


def _check_delta(delta: float) -> None:
    """Raise InvalidInputError for a delta outside [0, 1)."""
    if not 0 <= delta < 1:
        raise InvalidInputError(f"delta must be at least 0 and below 1, not {delta}")


def _basic_composition(events: Sequence[Release], delta: float) -> FloatArray:
    """Return the running sums of epsilons, (T,); infinite if the deltas exceed ``delta`` or an event has no epsilon."""
    epsilons = [math.inf if isinstance(event, GaussianEvent | NonPrivateEvent) else event.epsilon for event in events]
    deltas = [event.delta if isinstance(event, ApproximateEvent) else 0.0 for event in events]
    return np.where(np.cumsum(deltas) <= delta, np.cumsum(epsilons), np.inf)


@lru_cache(maxsize=16)
def _composed(events: tuple[Release, ...], interval: float) -> PrivacyLossDistribution:
    """Compose the privacy-loss distributions of all these events, on a grid of ``interval``."""
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 -- two seconds to import

    distribution = pld.identity(value_discretization_interval=interval)
    for event, times in Counter(events).items():
        distribution = distribution.compose(_loss_distribution(event, interval).self_compose(times))
    return distribution


def _interval(events: tuple[Release, ...]) -> float:
    """Return the grid's step: a hundredth of the least loss, or wider if the grid would be too long."""
    scales = [_loss_scale(event) for event in events]
    finest = min(_WIDEST_INTERVAL, *(scale / 100 or _WIDEST_INTERVAL for scale in scales))
    return max(finest, min(_WIDEST_INTERVAL, _NARROWEST_PART * math.hypot(*scales)))


def _loss_scale(event: Release) -> float:
    """Return a typical privacy loss of an event, by which the grid is chosen."""
    match event:
        case GaussianEvent(mu=mu):
            return mu
        case DrawEvent(spread=spread, draws=draws):
            return mu_of_draws(spread, draws)
        case LaplaceEvent(epsilon=epsilon) | L2LaplaceEvent(epsilon=epsilon) | ApproximateEvent(epsilon=epsilon):
            return epsilon
        case NonPrivateEvent():
            return math.inf


@lru_cache(maxsize=64)
def _loss_distribution(event: Release, interval: float) -> PrivacyLossDistribution:
    """Return the privacy-loss distribution of one event on a grid of ``interval``."""
    from dp_accounting.pld import pld_pmf  # noqa: PLC0415 -- two seconds to import
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415

    match event:
        case GaussianEvent() | DrawEvent():
            return pld.from_gaussian_mechanism(1.0 / _loss_scale(event), value_discretization_interval=interval)
        case LaplaceEvent(epsilon=epsilon):
            return pld.from_laplace_mechanism(1.0 / epsilon, value_discretization_interval=interval)
        case ApproximateEvent(epsilon=epsilon, delta=delta):
            parameters = pld.common.DifferentialPrivacyParameters(epsilon, delta)
            return pld.from_privacy_parameters(parameters, value_discretization_interval=interval)
        case L2LaplaceEvent(epsilon=epsilon, dimension=dimension):
            steps = math.ceil(epsilon / interval)
            grid = np.arange(-steps, steps + 1)
            deltas = l2_laplace_delta(np.asarray(grid * interval, dtype=np.float64), epsilon, dimension)
            deltas = np.maximum(deltas, np.where(grid < steps, _LEAST_DELTA, 0.0))
            return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, grid, deltas))
        case NonPrivateEvent():
            raise InvalidInputError("an event without noise has no privacy-loss distribution")
