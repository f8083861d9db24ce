"""The odometer is what its docstring defines and says; `tests/audit/test_stopping.py` holds it to the promise."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from parley.common.privacy import odometer as module
from parley.common.privacy.account import MICRO, SQUARE_UNITS, Account, Cost, delta_units, limit
from parley.common.privacy.calibration import gaussian_epsilon, gaussian_mu
from parley.common.privacy.odometer import odometer
from parley.common.wire.party_api import BudgetReport

FILTER = limit(3.0, 1e-5)
PURE, GAUSSIAN = Cost(50_000, 0, SQUARE_UNITS // 250), Cost(300_000, delta_units(1e-6), SQUARE_UNITS // 10)
SLACK = replace(GAUSSIAN, slack=delta_units(1e-6))


@pytest.mark.parametrize("square", [1e-9, 1e-4, 0.01, 0.7, 20.0, 1e4])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.02])
def test_no_loss_passes_it_by_more_than_the_mixture_has_for_it(square: float, delta: float) -> None:
    steps = range(21)
    chances = [1 / (16 + (step - 9) ** 2) for step in steps]
    orders = [1 + 2 ** (step / 2) for step in steps]
    reading = odometer(square, delta)
    missing = []
    for loss in reading + np.geomspace(1e-6, 20, 4000):
        terms = [
            chance * math.exp(min(700.0, (order - 1) * (loss - order * square / 2)))
            for chance, order in zip(chances, orders, strict=True)
        ]
        missing.append(-math.expm1(reading - loss) - delta * sum(terms) / sum(chances))
    assert max(missing) <= 0
    if reading > 0:
        assert max(missing) > -1e-4, "it is the least such figure"


def test_it_grows_with_what_is_asked_and_with_less_delta() -> None:
    squares = np.concatenate([[0.0], np.geomspace(1e-12, 1e6, 60)])
    readings = np.array([[odometer(float(square), delta) for square in squares] for delta in (1e-15, 1e-5)])
    assert (np.diff(readings, axis=1) >= 0).all()
    assert (readings[0] >= readings[1]).all()
    assert (readings[:, 0] == 0).all()
    assert all(odometer(float(square), 1e-5) > gaussian_epsilon(math.sqrt(square), 1e-5) for square in squares[1:])
    assert odometer(0.1, 0.0) == math.inf


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_it_is_as_near_the_nonadaptive_figure_as_it_says(epsilon: float) -> None:
    square = gaussian_mu(epsilon, 1e-5) ** 2
    computed = [
        odometer(part * square, 1e-5) / gaussian_epsilon(math.sqrt(part * square), 1e-5) for part in (0.01, 0.1, 0.5, 1)
    ]
    row = re.search(rf"of \({epsilon:g}, 1e-5\) \|(.*)\|$", module.__doc__ or "", re.MULTILINE)
    assert row
    assert [f"{ratio:.2f}" for ratio in computed] == [cell.strip() for cell in row[1].split("|")]


def test_pure_answers_cost_no_more_than_their_sum_until_another_comes() -> None:
    assert replace(FILTER, spent=PURE).epsilon_spent == 0.05
    assert replace(FILTER, spent=PURE * 200).epsilon_spent == odometer(0.8, 1e-5) < 10
    assert replace(FILTER, spent=PURE + GAUSSIAN).epsilon_spent == odometer(0.104, 1e-5) > 0.35
    assert replace(FILTER, spent=PURE + SLACK).epsilon_spent == odometer(0.104, 5e-6)
    assert replace(limit(3.0, 0.0), spent=PURE).epsilon_spent == 0.05


def test_the_sum_holds_at_any_time_if_each_run_is_added_up() -> None:
    account = replace(limit(3.0, 1e-5, composition="basic"), spent=GAUSSIAN)
    assert account.epsilon_spent == account.epsilon_nonadaptive == 0.3


@pytest.mark.parametrize("account", [
    replace(FILTER, spent=replace(SLACK, slack=delta_units(6e-6))),
    replace(FILTER, composition="basic", spent=replace(GAUSSIAN, delta=delta_units(2e-5))),
    replace(limit(3.0, 0.0), spent=GAUSSIAN),
])  # fmt: skip
def test_nothing_holds_once_more_delta_is_charged_than_allowed(account: Account) -> None:
    assert account.epsilon_spent == math.inf
    report = BudgetReport.of(account)
    assert report.epsilon_spent is None
    assert BudgetReport.model_validate_json(report.model_dump_json()) == report


def test_what_an_older_party_says_is_spent_is_the_nonadaptive_figure() -> None:
    account = replace(FILTER, spent=GAUSSIAN, reserved=PURE)
    report = BudgetReport.of(account)
    older = report.model_dump(mode="json", exclude={"epsilon_nonadaptive"})
    older["epsilon_spent"] = account.epsilon_nonadaptive
    assert BudgetReport.model_validate(older) == report
    assert report.epsilon_spent == account.epsilon_spent > account.epsilon_nonadaptive
    assert account.spent.epsilon / MICRO < account.epsilon_nonadaptive
