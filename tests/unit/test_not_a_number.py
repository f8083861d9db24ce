"""What counts privacy refuses NaN: every comparison with it is false, and a search that ends at once finds no cost."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from parley.common.errors import InvalidInputError
from parley.common.privacy import account, accountant, calibration, draws, l2_laplace
from parley.common.privacy.company import of_l2_laplace
from parley.common.privacy.events import ApproximateEvent, DrawEvent, GaussianEvent, L2LaplaceEvent, LaplaceEvent
from parley.common.privacy.filter import largest_square

GAUSSIAN, DRAWS, LAPLACE = [GaussianEvent(0.5)], DrawEvent(0.1, 5), [LaplaceEvent(0.5)]
COUNTS: list[tuple[Callable[..., object], tuple[float, ...]]] = [
    (GaussianEvent, (0.5,)),
    (LaplaceEvent, (0.5,)),
    (lambda epsilon: L2LaplaceEvent(epsilon, 3), (0.5,)),
    (ApproximateEvent, (0.5, 1e-6)),
    (DrawEvent, (0.1, 5)),
    (calibration.check_budget, (1.0, 1e-6)),
    (calibration.check_epsilon_delta, (1.0, 1e-6)),
    (lambda *it: calibration.sigma_star(3, *it), (1.0, 1e-6, 1.0)),
    (lambda epsilon, strength, smoothness: calibration.slack(epsilon, strength, 9, smoothness), (1.0, 0.1, 0.25)),
    (calibration.gaussian_delta, (1.0, 0.5)),
    (calibration.gaussian_mu, (1.0, 1e-6)),
    (calibration.gaussian_epsilon, (0.5, 1e-6)),
    (calibration.gaussian_sigma, (1.0, 1e-6, 2.0)),
    (calibration.pure_mu, (1.0,)),
    (calibration.mu_of_draws, (0.1, 5)),
    (draws.concentrated_epsilon, (0.1, 1e-6)),
    (lambda delta: draws.epsilon_of_draws(DRAWS, delta), (1e-6,)),
    (draws.most_draws, (0.1, 1.0, 1e-6)),
    (largest_square, (1.0, 1e-6, 1e-12)),
    (lambda bound: of_l2_laplace(bound, 3).alone, (0.5,)),
    (lambda epsilon, bound: l2_laplace.l2_laplace_delta(np.array([epsilon]), bound, 3), (0.1, 0.5)),
    (lambda epsilon, bound: l2_laplace.l2_laplace_delta(np.array([epsilon]), bound, 1), (0.1, 0.5)),
    (account.limit, (1.0, 1e-6)),
    (account.delta_units, (1e-6,)),
    *(
        (lambda delta, count=count, events=events: count(events, delta), (1e-6,))
        for count in (accountant.epsilon_after, accountant.added_epsilon)
        for events in (GAUSSIAN, [DRAWS], LAPLACE)
    ),
]


@pytest.mark.parametrize(("count", "numbers"), COUNTS)
def test_nothing_is_counted_of_nan(count: Callable[..., object], numbers: tuple[float, ...]) -> None:
    count(*numbers)
    for place in range(len(numbers)):
        with pytest.raises(InvalidInputError):
            count(*numbers[:place], math.nan, *numbers[place + 1 :])
