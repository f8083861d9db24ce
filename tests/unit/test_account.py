"""An account to the unit: what just fits, what does not by one unit, and what it says is left."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.privacy.account import (
    DELTA_UNITS,
    MICRO,
    SQUARE_UNITS,
    Account,
    Cost,
    Price,
    delta_units,
    exhausted,
    limit,
)
from parley.common.privacy.calibration import gaussian_delta, gaussian_epsilon

FILTER = limit(1.0, 1e-5)
BASIC = limit(1.0, 1e-5, composition="basic")
WHOLE = FILTER.square_limit(slack=False)
HALF = FILTER.square_limit(slack=True)
HALF_DELTA = 10**13 // 2
NOTHING = Cost(0, 0)


def of(gdp: int, slack: int = 0) -> Cost:
    """A cost beyond every sum of epsilons, so that the filter decides."""
    return Cost(2 * MICRO, 1, gdp, slack)


def test_a_budget_is_of_records_and_composed_by_the_filter_unless_it_says_otherwise() -> None:
    assert Account(10**6, 10**13, adjacency="replace_one", composition="filter") == FILTER
    assert limit(0.5, 0.0, "whole_party", "basic") == Account(500_000, 0, adjacency="whole_party", composition="basic")


def test_costs_are_reckoned_unit_by_unit_and_never_negative() -> None:
    one, other = Cost(10, 20, 30, 40), Cost(1, 2, 3, 4)
    assert one + other == Cost(11, 22, 33, 44)
    assert one - other == Cost(9, 18, 27, 36)
    assert other * 3 == Cost(3, 6, 9, 12)
    assert one - one == NOTHING
    for unit in range(4):
        with pytest.raises(InvalidInputError, match="must not be negative"):
            Cost(*(-int(place == unit) for place in range(4)))


def test_a_basic_account_allows_its_limits_and_not_a_unit_more() -> None:
    limits = Cost(MICRO, 10**13)
    assert BASIC.fits(limits)
    assert BASIC.fits(replace(limits, gdp=10**20, slack=10**20)), "these do not count"
    for more in (Cost(1, 0), Cost(0, 1)):
        assert not BASIC.fits(limits + more)
        assert not replace(BASIC, spent=limits).fits(more)
        assert not replace(BASIC, spent=Cost(1, 0), reserved=limits - Cost(1, 0)).fits(more)
    assert replace(BASIC, spent=limits).fits(NOTHING)


def test_what_is_pure_may_add_up_to_epsilon() -> None:
    assert FILTER.fits(Cost(MICRO, 0, gdp=10**20))
    assert not FILTER.fits(Cost(MICRO + 1, 0, gdp=10**20))
    assert not FILTER.fits(Cost(MICRO, 1, gdp=10**20))
    assert not FILTER.fits(Cost(MICRO, 0, gdp=10**20, slack=1))
    assert not replace(FILTER, spent=Cost(1, 0)).fits(Cost(MICRO, 0, gdp=10**20))
    nothing = limit(1.0, 0.0)
    assert nothing.fits(Cost(MICRO, 0, gdp=1))
    assert not nothing.fits(Cost(MICRO + 1, 0, gdp=1))
    assert nothing.square_limit(slack=False) == nothing.square_limit(slack=True) == 0


def test_a_filter_allows_its_square_and_not_a_unit_more() -> None:
    assert FILTER.fits(of(WHOLE))
    assert not FILTER.fits(of(WHOLE + 1))
    assert replace(FILTER, spent=of(WHOLE - 5)).fits(of(5))
    assert not replace(FILTER, spent=of(WHOLE - 5)).fits(of(6))
    assert not replace(FILTER, spent=of(WHOLE - 5), reserved=of(1)).fits(of(5))
    for units, delta in ((WHOLE, 1e-5), (HALF, 5e-6)):
        assert gaussian_delta(1.0, math.sqrt(units / SQUARE_UNITS)) <= delta
        assert gaussian_delta(1.0, math.sqrt((units + 10) / SQUARE_UNITS)) > delta * (1 - 1e-8)


def test_slack_has_half_of_delta_and_takes_half_of_it_from_the_rest() -> None:
    assert FILTER.fits(of(HALF, HALF_DELTA))
    assert not FILTER.fits(of(HALF, HALF_DELTA + 1))
    assert not FILTER.fits(of(HALF + 1, 1))
    odd = replace(FILTER, delta_limit=7)
    assert odd.fits(of(0, 3))
    assert not odd.fits(of(0, 4)), "half of 7 is 3"
    largest = replace(FILTER, delta_limit=10**18 - 1)  # half of it is no float
    assert largest.fits(of(0, 10**18 // 2 - 1))
    assert not largest.fits(of(0, 10**18 // 2))


@pytest.mark.parametrize(
    ("spent", "reserved", "cost", "fits"),
    [
        (of(10), NOTHING, of(0, 1), False),  # slack never comes after a Gaussian part ...
        (NOTHING, of(10), of(0, 1), False),
        (of(1), NOTHING, of(0, 1), False),
        (of(0), NOTHING, of(0, 1), True),  # ... but after what has none
        (of(10, 1), NOTHING, of(0, 1), True),
        (of(10, 1), NOTHING, of(10), True),
        (NOTHING, of(0, 1), of(10), False),  # nor does a Gaussian part come before slack that is reserved
        (NOTHING, of(0, 1), of(1), False),
        (NOTHING, of(0, 2), of(10, 1), True),
        (NOTHING, of(0, 2), of(0), True),
        (of(0, 1), of(0, 1), of(10), True),
    ],
)
def test_slack_comes_first_or_never(spent: Cost, reserved: Cost, cost: Cost, *, fits: bool) -> None:
    assert replace(FILTER, spent=spent, reserved=reserved).fits(cost) == fits


def test_what_is_reserved_is_spent_from_or_released() -> None:
    account = BASIC.reserve(Cost(MICRO, 5))
    assert (account.reserved, account.spent) == (Cost(MICRO, 5), NOTHING)
    with pytest.raises(BudgetExhaustedError):
        account.reserve(Cost(1, 0))
    with pytest.raises(BudgetExhaustedError):
        account.charge(Cost(1, 0))
    charged = account.release(Cost(7, 2)).charge(Cost(7, 2))
    assert (charged.reserved, charged.spent) == (Cost(MICRO - 7, 3), Cost(7, 2))
    assert charged.release(charged.reserved).reserved == NOTHING
    with pytest.raises(InvalidInputError):
        charged.release(Cost(MICRO, 0))
    with pytest.raises(BudgetExhaustedError):
        account.release(Cost(7, 2)).charge(Cost(8, 2))


@pytest.mark.parametrize(("cost", "runs"), [(3, 333_333), (MICRO, 1), (MICRO + 1, 0), (1, MICRO)])
def test_runs_left_are_counted(cost: int, runs: int) -> None:
    assert BASIC.runs_left(Cost(cost, 0)) == runs
    assert BASIC.runs_left(NOTHING) == 10**9


def test_what_was_spent_is_told_at_the_budgets_delta() -> None:
    gaussian = gaussian_epsilon(math.sqrt(0.01), 1e-5)
    halved = gaussian_epsilon(math.sqrt(0.01), HALF_DELTA / DELTA_UNITS)
    assert gaussian < halved < 1
    ten = Cost(900_000, 7, SQUARE_UNITS // 100)
    for account, cost, epsilon in (
        (BASIC, ten, 0.9),
        (FILTER, ten, gaussian),
        (FILTER, replace(ten, slack=1), halved),
        (FILTER, replace(ten, slack=HALF_DELTA), halved),
        (FILTER, replace(ten, slack=HALF_DELTA + 1), 0.9),
        (FILTER, replace(ten, epsilon=1, delta=0), 1e-6),  # pure, it adds up to less
        (FILTER, replace(ten, epsilon=1, delta=1), gaussian),
        (FILTER, replace(ten, epsilon=10 * MICRO, delta=0), gaussian),
        (limit(1.0, 0.0), ten, 0.9),  # no Gaussian release is pure
    ):
        assert replace(account, spent=cost).epsilon_nonadaptive == epsilon
    odd = replace(FILTER, delta_limit=10**13 + 1, spent=replace(ten, slack=HALF_DELTA))
    assert odd.epsilon_nonadaptive == halved
    largest = replace(FILTER, delta_limit=10**18 - 1, spent=replace(ten, slack=10**18 // 2))
    assert largest.epsilon_nonadaptive == 0.9
    assert replace(largest, spent=replace(ten, slack=10**18 // 2 - 1)).epsilon_nonadaptive < 0.9


def test_a_refusal_says_what_is_asked_and_left() -> None:
    spent = replace(BASIC, spent=Cost(250_000, 10**12))
    refusal = exhausted(spent, Cost(800_000, 2 * 10**13))
    assert refusal.detail == "epsilon 0.8, delta 2e-05 are asked for; epsilon 0.75, delta 9e-06 are left"
    assert refusal.facts == {"epsilon_left": 0.75, "delta_left": 9e-06}
    account = replace(FILTER, spent=Cost(1, 1, WHOLE // 2), reserved=Cost(1, 1, WHOLE // 4))
    room, left = (WHOLE - WHOLE // 2 - WHOLE // 4) / SQUARE_UNITS, account.epsilon_left
    begin = f"epsilon 2, delta 1e-06 are asked for; epsilon {left:g}, delta 1e-05 are left to a Gaussian run; "
    squares = f"across runs mu^2 0.5 counts, and {room:.3g} is left"
    assert exhausted(account, Cost(2 * MICRO, 10**12, SQUARE_UNITS // 2)).detail == begin + squares
    nothing = limit(1.0, 0.0)
    assert exhausted(nothing, of(5)).detail.endswith("epsilon 1, delta 0 are left"), "there is no Gaussian run"
    assert "delta 1e-18 are left to a Gaussian run" in exhausted(replace(FILTER, delta_limit=1), of(5)).detail


def test_a_refusal_of_slack_says_what_slack_has() -> None:
    first = replace(FILTER, spent=of(HALF // 2, 1))
    refusal = exhausted(first, of(SQUARE_UNITS, 3 * 10**12))
    assert f"and {(HALF - HALF // 2) / SQUARE_UNITS:.3g} is left, and delta 3e-06 as slack" in refusal.detail
    least = exhausted(replace(FILTER, spent=of(WHOLE, 1)), of(0, 1))
    assert "is left, and delta 1e-18 as slack, which has half of the budget's delta in an account" in least.detail
    assert "and 0 is left" in least.detail
    began = exhausted(replace(FILTER, spent=of(0, 1)), of(2 * WHOLE))
    assert f"and {HALF / SQUARE_UNITS:.3g} is left" in began.detail
    assert "slack" not in began.detail


def test_slack_after_a_gaussian_run_is_refused_in_words_that_help() -> None:
    late = exhausted(replace(FILTER, spent=of(5)), of(5, 7))
    assert "an account that began with other runs does not accept" in late.detail
    assert "composition = basic" in late.detail
    ahead = exhausted(replace(FILTER, reserved=of(0, 7)), of(5))
    assert "runs with slack are reserved, and none is charged yet" in ahead.detail
    for account, cost in ((replace(BASIC, spent=of(5)), of(5, 7)), (replace(FILTER, spent=of(0, 7)), of(5))):
        assert not account.trades(cost)


@pytest.mark.parametrize(
    ("delta", "units"),
    [(0.0, 0), (1e-25, 1), (1e-18, 1), (1.0000005e-18, 1), (1.00001e-18, 2), (1.5e-18, 2), (1e-5, 10**13), (1, 10**18)],
)
def test_a_delta_is_charged_in_whole_units_rounded_up(delta: float, units: int) -> None:
    assert delta_units(delta) == units


@pytest.mark.parametrize(("units", "whole"), [(4.5, 4), (4.9999995, 5), (4.99999, 4), (5.0, 5), (0.0, 0)])
def test_a_budget_is_rounded_down_to_whole_units(units: float, whole: int) -> None:
    assert limit(units / MICRO, units / DELTA_UNITS, "whole_party", "basic") == Account(
        whole, whole, adjacency="whole_party", composition="basic"
    )
    assert limit(1, 0) == Account(MICRO, 0, NOTHING, NOTHING, "replace_one", "filter")


@pytest.mark.parametrize(
    ("account", "spent", "reserved", "parts"),
    [
        (limit(4, 0.1), Cost(0, 0), Cost(0, 0), (0, 0, 1)),
        (limit(4, 0.1, composition="basic"), Cost(MICRO, 0), Cost(2 * MICRO, 0), (0.25, 0.5, 0.25)),
        (limit(4, 0.1, composition="basic"), Cost(MICRO, DELTA_UNITS // 20), Cost(0, 0), (0.5, 0, 0.5)),
        (limit(4, 0), Cost(MICRO, 0, 5), Cost(MICRO, 0, 5), (0.25, 0.25, 0.5)),
        (limit(4, 0.1), Cost(9 * MICRO, 1, 300), Cost(MICRO, 1, 100), (0.3, 0.1, 0.6)),
        (limit(4, 0.1), Cost(MICRO, 0, 900), Cost(0, 0), (0.25, 0, 0.75)),
        (limit(4, 0.1), Cost(MICRO, 1, 100, DELTA_UNITS // 25), Cost(0, 0), (0.8, 0, 0.2)),
        (limit(0, 0), Cost(1, 0), Cost(0, 0), (1, 0, 0)),
    ],
)
def test_the_parts_of_a_budget_add_up_to_all_of_it(
    monkeypatch: pytest.MonkeyPatch, account: Account, spent: Cost, reserved: Cost, parts: tuple[float, float, float]
) -> None:
    monkeypatch.setattr(Account, "square_limit", lambda _, *, slack: 1000)
    shown = replace(account, spent=spent, reserved=reserved).parts
    assert list(shown) == ["spent", "reserved", "left"]
    assert tuple(shown.values()) == pytest.approx(parts)
    assert sum(shown.values()) == pytest.approx(1)


def test_a_step_pays_for_what_was_skipped() -> None:
    price = Price((1, 5, 12), (2, 2, 3), (3, 30, 300), (4, 4, 40))
    assert price.total == price.step(3, 0) == price.remaining(0) == Cost(12, 3, 300, 40)
    assert price.step(1, 0) == Cost(1, 2, 3, 4)
    assert price.step(2, 1) == Cost(4, 0, 27, 0)
    assert price.remaining(2) == price.step(3, 2) == Cost(7, 1, 270, 36)
    assert price.remaining(3) == NOTHING
    with pytest.raises(InvalidInputError, match="negative"):
        price.step(1, 2)


@pytest.mark.parametrize("delta", [7e-5, 3e-8, 6e-8, 1e-5, 0.1])
def test_a_budget_allows_what_costs_as_much_as_it_is_written(delta: float) -> None:
    assert delta_units(delta) == limit(1.0, delta).delta_limit


def test_what_an_earlier_version_agreed_is_compared_by_what_covers_a_run_alone() -> None:
    agreed = Cost(5, 6, 100, 7)
    assert not Cost(5, 6, 99, 7, 60, 10**9).is_more_than_agreed(agreed), "it knew no cost in company"
    assert Cost(5, 6, 101, 7, 60, 0).is_more_than_agreed(agreed)
    assert Cost(5, 6, 99, 7, 60, 10**9).is_more_than_agreed(Cost(5, 6, 99, 7, 60, 10**8))
