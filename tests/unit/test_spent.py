"""Wherever it is shown what is spent, the same words say what that is, and what it would be without adaptivity."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.common.privacy.account import limit
from parley.common.privacy.statement import SPENT_MEANS, in_words
from parley.common.wire.party_api import BudgetReport
from parley.learner.estimators.budget import PrivacyBudget
from parley.party.api.gauges import BudgetGauges
from parley.party.ledger.accounts import RowsUsage, Statement, Usage

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "place",
    [
        "common/wire/party_api.py",
        "docs/explanation/guarantees.md",
        "docs/monitoring.md",
        "docs/tutorials/privacy-officer.md",
        "learner/api/web/studies.js",
        "party/api/app.py",
        "party/owner/web/owner.html",
    ],
)
def test_a_place_that_shows_what_is_spent_says_what_it_is(place: str) -> None:
    assert SPENT_MEANS in " ".join((ROOT / place).read_text().split())


def test_so_do_the_command_and_the_metrics() -> None:
    account = limit(5.0, 1e-5)
    assert SPENT_MEANS in in_words(account, 0.5, 1e-6)[0]
    gauges = {gauge.name: gauge for gauge in BudgetGauges(lambda: [Statement("", account, (), {}, {})]).collect()}
    assert SPENT_MEANS in gauges["parley_epsilon_spent"].documentation
    assert "if no question had depended" in gauges["parley_epsilon_nonadaptive"].documentation
    assert SPENT_MEANS in " ".join((BudgetReport.__doc__ or "").split())
    assert "holds whenever it is read" in (PrivacyBudget.epsilon_spent.__doc__ or "")
    assert "if no fit depended" in (PrivacyBudget.epsilon_nonadaptive.__doc__ or "")


def test_gauges_tell_accounts_apart_by_people_and_learners_by_what_they_spent() -> None:
    accounts = {"": limit(5.0, 1e-5), "ward-7": limit(2.0, 1e-5)}
    statements = [
        Statement("", accounts[""], (Usage("biopsies", "south", 0.5, 0.25),), {}, {}),
        Statement(
            "ward-7",
            accounts["ward-7"],
            (Usage("stroke", "north", 0.25, 0),),
            {},
            {},
            (RowsUsage("stroke", "held-out rows", 0.25, 0.0, 1.5),),
        ),
    ]
    gauges = {gauge.name: gauge.samples for gauge in BudgetGauges(lambda: statements).collect()}
    limits = {sample.labels["people"]: sample.value for sample in gauges["parley_epsilon_limit"]}
    assert limits == {"": 5.0, "ward-7": 2.0}
    parts = {(sample.labels["people"], sample.labels["state"]): sample.value for sample in gauges["parley_budget_part"]}
    assert parts == {(people, state): state == "left" for people in accounts for state in ("spent", "reserved", "left")}
    spent = [(*sample.labels.values(), sample.value) for sample in gauges["parley_budget_spent_by"]]
    assert spent == [("", "biopsies", "south", 0.5), ("ward-7", "stroke", "north", 0.25)]
    (left,) = gauges["parley_epsilon_left_for"]
    assert (left.labels, left.value) == ({"people": "ward-7", "study": "stroke", "rows": "held-out rows"}, 1.5)
