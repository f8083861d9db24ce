"""What is left of noise that was drawn in shares, against closed forms and quadratures of the test's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import gamma, norm

from parley.common.privacy.accountant import epsilon_after
from parley.common.privacy.calibration import gaussian_delta
from parley.common.privacy.co_owner import with_part
from parley.common.privacy.company import gaussian_deltas
from parley.common.privacy.events import (
    FLOATS,
    ApproximateEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NoEvent,
    NonPrivateEvent,
    ParallelEvent,
    SequentialEvent,
)


def epsilon_of(event: Event) -> float:
    """The epsilon of what is left."""
    assert isinstance(event, ApproximateEvent)
    return event.epsilon


def to_who_sees_the_variance(epsilon: float, bound: float, shape: float) -> float:
    """The delta to one who sees how wide the Gaussian is that was drawn: the trapezoid rule over the variance's log."""
    width = np.linspace(math.log(gamma.ppf(1e-30, shape)), math.log(gamma.isf(1e-30, shape)), 20_001)
    mu = bound / np.sqrt(2 * np.exp(width))
    deltas = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    return float(np.trapezoid(deltas * gamma.pdf(np.exp(width), shape) * np.exp(width), width))


@pytest.mark.parametrize(("bound", "d"), [(1.0, 1), (0.1, 3), (3.0, 10), (0.5, 200)])
@pytest.mark.parametrize("part", [0.5, 0.75])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-3])
def test_what_is_left_of_l2_laplace_noise_is_a_mixture_of_gaussians(
    bound: float, d: int, part: float, delta: float
) -> None:
    event = with_part(L2LaplaceEvent(bound, d), part, delta)
    assert event == ApproximateEvent(epsilon_of(event), delta, (FLOATS,))
    shape = part * (d + 1) / 2
    assert to_who_sees_the_variance(event.epsilon, bound, shape) <= delta
    assert to_who_sees_the_variance(event.epsilon * 0.99, bound, shape) > delta * 0.995, "and no more than it takes"


def test_a_part_of_gaussian_noise_has_that_part_of_its_variance() -> None:
    left = with_part(GaussianEvent(0.3), 0.25, 1e-5)
    assert left == GaussianEvent(0.6)


@pytest.mark.parametrize("event", [NoEvent(), NonPrivateEvent(), LaplaceEvent(0.3)])
def test_what_has_no_shares_costs_what_it_did(event: Event) -> None:
    assert with_part(event, 0.5, 1e-5) == event


def test_nothing_is_promised_of_what_is_left_of_other_noise_or_without_a_delta() -> None:
    assert with_part(ApproximateEvent(0.1, 1e-6), 0.5, 1e-5) == NonPrivateEvent()
    assert with_part(ApproximateEvent(0.1), 0.5, 1e-5) == NonPrivateEvent()
    assert with_part(L2LaplaceEvent(0.1, 3), 0.5, 0.0) == NonPrivateEvent()
    assert epsilon_after([with_part(L2LaplaceEvent(0.1, 3), 0.5, 0.0)], 1e-5) == math.inf


def test_where_the_delta_covers_all_of_it_no_epsilon_is_needed() -> None:
    assert to_who_sees_the_variance(0.0, 0.01, 0.5 * 10 / 2) <= 0.05
    assert with_part(L2LaplaceEvent(0.01, 9), 0.5, 0.05) == ApproximateEvent(0.0, 0.05, (FLOATS,))


@pytest.mark.parametrize("kind", [SequentialEvent, ParallelEvent])
def test_of_several_releases_a_part_of_each_is_left(kind: type[SequentialEvent | ParallelEvent]) -> None:
    parts = (GaussianEvent(0.3), L2LaplaceEvent(0.1, 3), NoEvent())
    left = with_part(kind(parts), 0.75, 1e-6)
    assert left == kind(tuple(with_part(part, 0.75, 1e-6) for part in parts))
    assert left != kind(tuple(with_part(part, 0.75, 1e-5) for part in parts))


def test_profiles_of_many_gaussians_are_those_of_each() -> None:
    mus = np.geomspace(1e-3, 100, 60)
    for epsilon in (0.0, 0.01, 1.0, 30.0):
        each = [gaussian_delta(epsilon, mu) for mu in mus.tolist()]
        assert gaussian_deltas(np.full_like(mus, epsilon), mus) == pytest.approx(each, rel=1e-12, abs=0)
