"""Runs about rows that are apart lose in parallel: what one record may have lost counts, not the sum."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import product
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.common.errors import BudgetExhaustedError
from parley.common.privacy.account import Account, Cost, limit
from parley.common.privacy.guarantee import Adjacency
from parley.common.runs.certificate import SignedApproval
from parley.common.wire.party_api import Approval, assumptions_of, is_of_people
from parley.party.ledger.accounts import Accounts, StudyTerms
from parley.party.ledger.books import ANYWHERE, OWNER, Books, Places, Use
from parley.party.ledger.records import (
    Answered,
    Approved,
    Begun,
    Ended,
    Entry,
    LedgerRecord,
    Limited,
    Pinned,
    from_json,
    to_json,
)

LIMIT = 1_000_000
BOTH = ("training", "held_out")


def pinned(study: str = "one", n_examples: int = 100) -> Pinned:
    return Pinned("table.csv", {}, "digest", "rows", study, "", n_examples)


def approved(  # noqa: PLR0913, PLR0917 -- what a record says
    run: str,
    epsilon: int,
    rows: str = "",
    study: str = "one",
    learner: str = "ann",
    adjacency: Adjacency = "replace_one",
) -> Approved:
    cost = Cost(epsilon, 0)
    return Approved(learner, run, "", "", study, "dp_gd", "0", "none", 1, cost, adjacency, 10**6, "", rows)


def answered(run: str, epsilon: int, learner: str = "ann") -> Answered:
    return Answered(learner, run, 1, "query", "step", Cost(epsilon, 0), "replace_one")


def told(*records: LedgerRecord) -> Accounts:
    """The accounts after these records, of a budget of epsilon 1."""
    books = Books()
    begun = Begun("party", "key", "nonce", {}, Cost(0, 0), "replace_one")
    for number, record in enumerate((begun, Limited(LIMIT, 0, "replace_one", "basic"), *records), 1):
        books.add(Entry(number, 1000 + number, record))
    return Accounts(books)


def left(accounts: Accounts, rows: str | None = None, study: str = "one") -> float:
    return accounts.epsilon_left(accounts.use("ann", study, rows))  # type: ignore[arg-type]


def test_an_evaluation_costs_nothing_up_to_what_training_has_cost_and_what_is_more_counts_once() -> None:
    trained = (pinned(), approved("a", 600_000, "training"), answered("a", 600_000))
    accounts = told(*trained)
    assert (left(accounts, "training"), left(accounts, "held_out"), left(accounts)) == (0.4, 1.0, 0.4)
    accounts = told(*trained, approved("b", 500_000, "held_out"))
    assert accounts.of("one") == Account(LIMIT, 0, Cost(600_000, 0), composition="basic")
    accounts = told(*trained, approved("b", 900_000, "held_out"))
    assert accounts.of("one") == Account(LIMIT, 0, Cost(600_000, 0), Cost(300_000, 0), composition="basic")
    assert (left(accounts, "training"), left(accounts, "held_out"), left(accounts)) == (0.4, 0.1, 0.1)
    with pytest.raises(BudgetExhaustedError, match=r"epsilon 0\.1, delta 0 are left"):
        accounts.require(accounts.use("ann", "one", "held_out"), Cost(100_001, 0))


@pytest.mark.parametrize(
    "other",
    [
        approved("b", 300_000),
        approved("b", 300_000, "held_out", study="two"),
        approved("b", 300_000, "held_out", learner=OWNER),
        approved("b", 300_000, "held_out", adjacency="whole_party"),
    ],
    ids=["without rows", "another study", "the owner's own", "about all that is held"],
)
def test_what_may_be_about_the_same_record_adds_up(other: Approved) -> None:
    accounts = told(pinned(), pinned("two"), approved("a", 600_000, "training"), other)
    assert accounts.of("one").reserved == Cost(900_000, 0)
    assert left(accounts, "training") == 0.1


def test_other_data_are_divided_otherwise() -> None:
    """Rows, order or share may have changed: a record held out now may have been one for training before."""
    before = (
        pinned(),
        approved("a", 600_000, "training"),
        Ended("ann", "a", "owner"),
        approved("b", 600_000, "training"),
    )
    accounts = told(*before, pinned(), approved("c", 300_000, "held_out"))
    assert accounts.of("one").reserved == Cost(900_000, 0)
    assert (left(accounts, "training"), left(accounts, "held_out")) == (0.4, 0.1)


def test_a_run_of_earlier_data_that_fails_is_charged_to_their_places() -> None:
    records = (pinned(), approved("a", 600_000, "held_out"), Ended("ann", "a", "owner"), pinned())
    failed = Ended("ann", "a", "failed", Cost(600_000, 0), "replace_one")
    accounts = told(*records, failed, approved("b", 300_000, "held_out"))
    assert (accounts.of("one").spent, accounts.of("one").reserved) == (Cost(600_000, 0), Cost(300_000, 0))


def test_runs_without_pinned_data_are_about_anything() -> None:
    accounts = told(approved("a", 600_000, "training"), approved("b", 300_000, "held_out"))
    assert accounts.of("one").reserved == Cost(900_000, 0)
    assert accounts.use("ann", "one", "training").places == ANYWHERE


def test_a_learner_sees_what_its_own_runs_have_left_for_rows() -> None:
    own = (pinned(), approved("a", 300_000, "training"), approved("b", 200_000, "held_out"))
    others = (approved("c", 500_000, "training", learner="bob"), approved("d", 500_000, "held_out", learner="bob"))
    for accounts in (told(*own), told(*own, *others)):
        seen = [accounts.seen_by("ann", "one", rows).epsilon_left for rows in (None, "training", "held_out")]
        assert seen == [0.7, 0.7, 0.8]


def test_a_share_holds_what_the_worst_off_rows_of_its_study_have_lost() -> None:
    accounts = told(pinned(), approved("a", 400_000, "training"), approved("b", 400_000, "held_out"))
    accounts.terms = {"one": StudyTerms(share=400_000)}
    accounts.check_shares()
    assert (left(accounts, "training"), left(accounts, study="two")) == (0.0, 0.6)


def test_an_owner_is_shown_what_each_kind_of_rows_has_lost_and_parts_that_add_up() -> None:
    accounts = told(
        pinned(),
        approved("a", 600_000, "training"),
        answered("a", 600_000),
        approved("b", 200_000, "held_out", learner="bob"),
        approved("c", 100_000, "training", learner="bob"),
    )
    statement = accounts.statement("")
    assert [(part.kind, part.learner, part.percent) for part in statement.parts] == [
        ("spent", "ann", 60.0),
        ("reserved", "bob", 10.0),
        ("left", "", 30.0),
    ]
    assert [(usage.rows, usage.spent, usage.reserved, usage.one_more) for usage in statement.rows] == [
        ("training rows", 0.6, 0.1, 0.3),
        ("held-out rows", 0.0, 0.2, 0.8),
    ]


def test_what_older_versions_wrote_counts_for_all_rows_of_its_data() -> None:
    older = [to_json(record, 1000) for record in (pinned(), approved("a", 600_000), approved("b", 300_000))]
    for record in older:
        record.pop("rows" if record["kind"] == "approved" else "first")
    accounts = told(*(from_json(number, record).record for number, record in enumerate(older)))
    assert accounts.of("one").reserved == Cost(900_000, 0)
    assert [left(accounts, rows) for rows in (None, "training", "held_out")] == [0.1, 0.1, 0.1]


def test_what_is_asked_about_several_periods_counts_in_each() -> None:
    later = Pinned("table.csv", {}, "digest", "rows", "one", "", 50, first=100)
    periods = (pinned(), approved("a", 600_000, "training"), later, approved("b", 700_000, "held_out"))
    accounts = told(*periods)
    assert accounts.of("one").reserved == Cost(700_000, 0)
    assert (left(accounts, "training"), left(accounts, "held_out")) == (1.0, 0.3)
    accounts = told(*periods, pinned("one", 150), approved("c", 100_000))
    assert (accounts.of("one").reserved, left(accounts)) == (Cost(800_000, 0), 0.2)


def test_rows_of_one_study_are_apart_from_those_of_no_other() -> None:
    """Though each begins at a place: two studies are of two tables, or one table in two orders."""
    later = Pinned("table.csv", {}, "digest", "rows", "two", "", 50, first=100)
    accounts = told(pinned(), later, approved("a", 600_000), approved("b", 300_000, study="two"))
    assert (left(accounts, "all", "one"), left(accounts, "all", "two")) == (0.1, 0.1)
    assert accounts.seen_by("ann", "two", "all").epsilon_left == 0.1


def test_slack_comes_before_what_is_charged_to_any_record_or_never() -> None:
    """Otherwise a record could lose mu^2 in one study, and then slack in another where it is elsewhere."""
    books = Books()
    books.accounts[""] = limit(1.0, 1e-5)
    accounts = Accounts(books)
    square, slack = Cost(100_000, 10**12, gdp=10**9), Cost(100_000, 10**12, slack=10**12)
    training, held_out = (Use("", "one", "ann", Places(3, rows, 0, 100)) for rows in BOTH)
    books._settle(held_out, partial(Account.settle, cost=square, reserved=Cost(0, 0)))
    accounts.require(training, square)
    with pytest.raises(BudgetExhaustedError):
        accounts.require(training, slack)
    books = Books()
    books.accounts[""] = limit(1.0, 1e-5)
    accounts = Accounts(books)
    books._settle(training, partial(Account.settle, cost=slack * 4, reserved=Cost(0, 0)))
    accounts.require(held_out, slack)
    with pytest.raises(BudgetExhaustedError):
        accounts.require(held_out, slack * 2)


def test_a_model_says_after_which_rows_its_own_come() -> None:
    said = Approval(run="r", spec_digest="", rounds=1, epsilon=1.0, delta=0.0, adjacency="replace_one", prepared=True)
    assert "earlier_rows" not in said.model_dump_json(), "older learners do not know it"
    later = said.model_copy(update={"earlier_rows": 12_000, "people": "ward-7"})
    approvals = {
        name: SignedApproval(approval=approval.model_dump_json(), receipt="a.b")
        for name, approval in (("a", said), ("b", later))
    }
    of_people, of_period = assumptions_of(approvals)
    assert is_of_people(of_people)
    assert is_of_people(of_period)
    assert of_period == (
        "no record that earlier runs were about is among the rows of b after its first 12,000, which have a budget of "
        "their own, as the owner says: what all runs together promise a person rests on it"
    )


COSTS = st.builds(Cost, *[st.integers(0, 9)] * 4)
SPANS = {1: (0, 10), 2: (0, 12), 3: (12, 20)}
"""The places of the rows that each of a study's pins is about: the third begins a period."""
PLACES = st.just(ANYWHERE) | st.builds(
    lambda since, rows: Places(since, rows, *SPANS[since]), st.sampled_from([*SPANS]), st.sampled_from(["", *BOTH])
)
CHARGES = st.lists(st.tuples(st.sampled_from(["one", "two"]), PLACES, COSTS), max_size=12)
RECORDS = [(place, dict(zip(SPANS, kinds, strict=True))) for place in (0, 11, 15) for kinds in product(BOTH, repeat=3)]
"""The places that a record of a study's table can have: one in the table, and one of both kinds in each pin's data."""


def loses(study: str, record: tuple[int, dict[int, str]], charges: Iterable[tuple[str, Places, Cost]]) -> Cost:
    """What a record of a study's table may have lost."""
    place, kinds = record
    return sum(
        (
            cost
            for other, places, cost in charges
            if other == study
            and places.first <= place < places.end
            and (not places.rows or places.rows == kinds[places.since])
        ),
        Cost(0, 0),
    )


def most(study: str, charges: Iterable[tuple[str, Places, Cost]]) -> list[int]:
    """The most that a record of a study's table may have lost, in each unit."""
    losses = [loses(study, record, charges).units for record in RECORDS]
    return [max(units) for units in zip(*losses, strict=True)]


@given(CHARGES)
def test_no_record_has_lost_more_than_its_account_says(charges: list[tuple[str, Places, Cost]]) -> None:
    """Nor is any unit of the cost more than the most that some record has lost."""
    books = Books()
    books.accounts[""] = Account(10**6, 0)
    for study, places, cost in charges:
        books._settle(Use("", study, "ann", places), partial(Account.settle, cost=cost, reserved=Cost(0, 0)))
    spent, added = books.account.spent, books.added("")
    assert sum((account.spent for account in added.values()), Cost(0, 0)) == spent
    assert books.used("", lambda _: True).spent == spent
    assert list(spent.units) == list(map(add, most("one", charges), most("two", charges)))


@given(CHARGES)
def test_a_run_fits_if_and_only_if_no_record_would_lose_more_than_the_limit(
    asked: list[tuple[str, Places, Cost]],
) -> None:
    books = Books()
    books.accounts[""] = Account(20, 10**6, composition="basic")
    charges: list[tuple[str, Places, Cost]] = []
    for study, places, cost in asked:
        use = Use("", study, "ann", places)
        fits = books.left_to(use).fits(cost)
        after = [*charges, (study, places, cost)]
        assert fits == (most("one", after)[0] + most("two", after)[0] <= 20) or cost.epsilon == 0
        if fits:
            charges = after
            books._settle(use, partial(Account.settle, cost=cost, reserved=Cost(0, 0)))
    assert most("one", charges)[0] + most("two", charges)[0] <= 20
