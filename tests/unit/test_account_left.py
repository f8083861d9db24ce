"""What an account says is spent, reserved and left: by the formulas, and as runs that are then charged find it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from parley.common.privacy.account import DELTA_UNITS, MICRO, SQUARE_UNITS, Account, Cost, delta_units, limit
from parley.common.privacy.calibration import gaussian_epsilon, gaussian_mu

FILTER = limit(3.0, 1e-5)
BASIC = limit(3.0, 1e-5, composition="basic")
TENTH, FIFTH = Cost(300_000, delta_units(1e-6), SQUARE_UNITS // 10), Cost(500_000, delta_units(2e-6), SQUARE_UNITS // 5)
SLACK = Cost(400_000, delta_units(1e-6), SQUARE_UNITS // 10, slack=delta_units(1e-6))


def gaussian_run(epsilon: float, delta: float) -> Cost:
    """What a run of one Gaussian release that is just (epsilon, delta)-private costs."""
    square = gaussian_mu(epsilon, delta) ** 2
    return Cost(math.ceil(epsilon * MICRO), delta_units(delta), math.ceil(square * SQUARE_UNITS))


def test_added_up_what_is_spent_reserved_and_left_is_the_budget() -> None:
    account = replace(BASIC, spent=TENTH, reserved=FIFTH)
    assert (account.epsilon_nonadaptive, account.epsilon_reserved, account.epsilon_left) == pytest.approx(
        (0.3, 0.5, 2.2)
    )
    assert (account.delta_spent, account.delta_left) == pytest.approx((1e-6, 7e-6))
    over = replace(BASIC, spent=Cost(4 * MICRO, 2 * BASIC.delta_limit))
    assert (over.epsilon_left, over.delta_left, over.epsilon_reserved) == (0, 0, 0)


def test_squares_add_up_under_a_filter() -> None:
    account = replace(FILTER, spent=TENTH, reserved=FIFTH)
    spent, both = (gaussian_epsilon(math.sqrt(square), 1e-5) for square in (0.1, 0.3))
    assert account.epsilon_nonadaptive == pytest.approx(spent)
    assert account.epsilon_reserved == pytest.approx(both - spent)
    assert replace(FILTER, spent=TENTH).epsilon_reserved == 0
    assert replace(FILTER, reserved=FIFTH).epsilon_reserved == pytest.approx(gaussian_epsilon(math.sqrt(0.2), 1e-5))
    assert (account.delta_spent, account.delta_left) == (0, 1e-5), "a Gaussian run uses nobody's delta up"


@pytest.mark.parametrize("reserved", [False, True])
def test_slack_is_told_as_delta_spent_and_halves_what_a_gaussian_run_has(*, reserved: bool) -> None:
    account = replace(FILTER, reserved=SLACK) if reserved else replace(FILTER, spent=SLACK)
    assert account.delta_spent == (0 if reserved else pytest.approx(1e-6))
    assert account.delta_left == pytest.approx(5e-6)
    told = account.epsilon_reserved if reserved else account.epsilon_nonadaptive
    assert told == pytest.approx(gaussian_epsilon(math.sqrt(0.1), 5e-6))


@pytest.mark.parametrize("account", [
    replace(FILTER, spent=TENTH), replace(FILTER, reserved=TENTH), replace(FILTER, spent=TENTH, reserved=FIFTH),
    replace(FILTER, spent=SLACK), replace(FILTER, spent=TENTH * 3, reserved=FIFTH),
])  # fmt: skip
def test_a_gaussian_run_of_what_is_left_fits_and_one_of_a_little_more_does_not(account: Account) -> None:
    left, delta = account.epsilon_left, account.delta_left
    assert 0 < left < account.epsilon_limit / MICRO
    run = gaussian_run(left, delta)
    assert account.fits(run)
    assert not account.fits(gaussian_run(left + 1e-4, delta))
    after = account.charge(run)
    assert after.epsilon_left < 2e-3, "it is used up"


def test_of_an_untouched_budget_all_is_left_and_of_a_spent_one_nothing() -> None:
    for account in (FILTER, BASIC, limit(3.0, 0.0)):
        assert account.epsilon_left == 3.0
        assert account.delta_left == pytest.approx(account.delta_limit / DELTA_UNITS)
        assert (account.epsilon_nonadaptive, account.epsilon_reserved, account.delta_spent) == (0, 0, 0)
    whole = FILTER.square_limit(slack=False)
    for gdp in (whole, whole - 1, 2 * whole):
        assert replace(FILTER, spent=Cost(4 * MICRO, 1, gdp)).epsilon_left == 0
    pure = replace(limit(3.0, 0.0), spent=Cost(500_000, 0, SQUARE_UNITS))
    assert pure.epsilon_left == 2.5
