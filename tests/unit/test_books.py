"""What follows from a ledger's records: the account to the unit, where each run stands, and what contradicts itself."""

from __future__ import annotations

import gc
import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from parley.common.errors import BudgetExhaustedError, InvalidInputError, LedgerError, VersionError
from parley.common.privacy.account import Account, Cost
from parley.common.privacy.guarantee import Adjacency
from parley.party.ledger.accounts import Accounts
from parley.party.ledger.books import Books, RoundEntries, learner_day
from parley.party.ledger.records import (
    Answered,
    Approved,
    Begun,
    Ended,
    EndReason,
    Entry,
    Joined,
    LedgerRecord,
    Limited,
    OwnerAsked,
    OwnerDenied,
    Pinned,
    Refused,
    Released,
    from_json,
    to_json,
)

DAY = 86_400
BEGUN = Begun("party", "key", "nonce", {}, Cost(0, 0), "replace_one")
LIMITED = Limited(100, 10, "replace_one", "basic")
NOTHING = Cost(0, 0)


def approved(run: str, reserved: Cost, learner: str = "ann", lasts: int = 50) -> Approved:
    return Approved(
        learner, run, "user", "purpose", "study", "dp_gd", "digest", "none", 3, reserved, "replace_one", lasts
    )


def answered(run: str, round: int, cost: Cost, adjacency: Adjacency = "replace_one") -> Answered:
    return Answered("ann", run, round, "query", "step", cost, adjacency)


def told(*records: LedgerRecord, begun: LedgerRecord = BEGUN) -> Books:
    """The books after a beginning, a limit, and some records, at 1000, 1001, ... seconds."""
    books = Books()
    for number, record in enumerate((begun, LIMITED, *records), 1):
        books.add(Entry(number, 999 + number, record))
    return books


def test_before_anything_is_told_there_is_nothing_to_spend() -> None:
    books = Books()
    assert (books.begun, books.account, dict(books.runs), dict(books.charges), books.refusals) == (
        None,
        Account(0, 0),
        {},
        {},
        {},
    )
    assert books.at == 0, "nothing was written"


def test_runs_and_questions_may_be_looked_at_while_more_are_told() -> None:
    """The owner's page looks in a thread of its own."""
    books = told(approved("one", NOTHING), OwnerAsked("ann", "two", "digest", NOTHING, 50))
    unended, pending = books.unended(), books.pending(1000)
    books.add(Entry(5, 1005, approved("three", NOTHING)))
    books.add(Entry(6, 1006, OwnerAsked("ann", "four", "digest", NOTHING, 50)))
    assert [key[1] for key, _ in unended] == ["one"]
    assert [key[1] for key, _ in pending] == ["two"]


def test_reserving_answering_and_ending_move_the_account_to_the_unit() -> None:
    steps: list[tuple[LedgerRecord, Cost, Cost]] = [
        (approved("one", Cost(10, 3)), NOTHING, Cost(10, 3)),
        (approved("two", Cost(20, 0)), NOTHING, Cost(30, 3)),
        (approved("three", Cost(7, 2)), NOTHING, Cost(37, 5)),
        (answered("one", 1, Cost(10, 3)), Cost(10, 3), Cost(27, 2)),
        (answered("two", 2, Cost(5, 0)), Cost(15, 3), Cost(22, 2)),
        (Released("ann", "two"), Cost(15, 3), Cost(7, 2)),
        (answered("two", 3, Cost(14, 0)), Cost(29, 3), Cost(7, 2)),
        (Ended("ann", "three", "owner"), Cost(29, 3), NOTHING),
        (Ended("ann", "one", "owner"), Cost(29, 3), NOTHING),
        (Ended("ann", "two", "learner"), Cost(29, 3), NOTHING),
    ]
    records: list[LedgerRecord] = []
    for record, spent, reserved in steps:
        records.append(record)
        account = told(*records).account
        assert (account.spent, account.reserved) == (spent, reserved), record
        assert (account.epsilon_limit, account.delta_limit, account.composition) == (100, 10, "basic")


def test_a_run_that_failed_is_charged_what_was_left_under_any_limit() -> None:
    failed = Ended("ann", "one", "failed", Cost(400, 0, 3), "replace_one")
    books = told(approved("one", Cost(404, 0, 4)), answered("one", 1, Cost(4, 0, 1)), failed)
    assert (books.account.spent, books.account.reserved) == (Cost(404, 0, 4), NOTHING)
    assert books.runs["ann", "one"].ended == "failed"
    assert books.charges["replace_one"] == 2
    assert told(approved("one", Cost(10, 3)), Ended("ann", "one", "learner")).hides() == "whole_party"


def test_an_answer_takes_no_more_of_what_is_reserved_than_is_its_runs() -> None:
    books = told(approved("one", Cost(10, 0, 5)), approved("two", Cost(7, 1)), answered("one", 1, Cost(12, 1, 3)))
    assert books.account.spent == Cost(12, 1, 3)
    assert books.runs["ann", "one"].reserved == Cost(0, 0, 2)
    assert books.account.reserved == Cost(7, 1, 2)


def test_a_run_stands_where_its_records_leave_it() -> None:
    books = told(approved("run", Cost(10, 3)))
    run = books.runs["ann", "run"]
    assert (run.number, run.reserved, run.expires) == (3, Cost(10, 3), 1002 + 50)
    assert (dict(run.answers), run.once, run.joined, run.ended, run.last) == ({}, {}, None, None, 0)
    attached = {"body": "b", "once:eta": "e", "other": "o"}
    for number, record, more in (
        (4, answered("run", 1, Cost(1, 3)), attached),
        (5, Joined("ann", "run"), {}),
        (6, answered("run", 3, Cost(2, 0)), {"body": "b", "once:more": "m"}),
    ):
        books.add(Entry(number, 2000 + number, record, more))
    assert (dict(run.answers), run.last, run.joined) == ({1: 4, 3: 6}, 3, 5)
    assert run.once == {"eta": 4, "more": 6}
    assert run.expires == 2006 + 50, "a run lasts from its last answer"
    assert [key for key, _ in books.unended()] == [("ann", "run")]
    books.add(Entry(7, 3000, Ended("ann", "run", "expired")))
    assert (run.ended, list(books.unended())) == ("expired", [])


@pytest.mark.parametrize("end", ["learner", "owner", "expired", "failed"])
def test_a_run_that_has_ended_stands_where_it_stood(end: EndReason) -> None:
    """Only that nothing is reserved for it; and it takes what an older version may have written after its end."""
    noise = {"body": "b", "once:eta": "e"}
    before = told(approved("run", Cost(10, 3, 2, 1)), approved("other", Cost(1, 0)))
    for number, record in (
        (5, answered("run", 2, Cost(4, 1))),
        (6, Joined("ann", "run")),
        (300, answered("run", 3, Cost(1, 0))),
    ):
        before.add(Entry(number, 2000, record, noise if number == 5 else {}))
    book = before.runs["ann", "run"]
    stood = replace(book, reserved=NOTHING, ended=end)
    before.add(Entry(301, 2001, Ended("ann", "run", end)))
    assert (before.runs["ann", "run"], set(before.runs), len(before.runs)) == (
        stood,
        {("ann", "run"), ("ann", "other")},
        2,
    )
    assert ("ann", "run") in before.runs
    assert ("ann", "no") not in before.runs
    assert before.runs.get(("ann", "no")) is None
    before.add(Entry(302, 2002, answered("run", 9, Cost(1, 0))))
    assert dict(before.runs["ann", "run"].answers) == {2: 5, 3: 300, 9: 302}
    assert before.runs["ann", "run"].ended == end


@pytest.mark.long
def test_what_is_remembered_of_a_run_that_has_ended_is_small() -> None:
    """Of the key and fifty answers, as records are read from a file."""
    books, runs, number = told(), 100, 2

    def tell(record: LedgerRecord) -> None:
        nonlocal number
        number += 1
        books.add(from_json(number, json.loads(json.dumps(to_json(record, 1000 + number)))))

    tracemalloc.start()
    try:
        for name in (f"run-{run:032d}" for run in range(runs)):
            tell(approved(name, Cost(50, 5)))
            for round in range(1, 51):
                tell(answered(name, round, Cost(1, 0)))
            tell(Ended("ann", name, "learner"))
        assert len(books.runs) == runs
        gc.collect()  # or what Python keeps to use again counts
        assert tracemalloc.get_traced_memory()[0] < 400 * runs, "bytes"
    finally:
        tracemalloc.stop()


def test_runs_that_have_not_ended_come_oldest_first() -> None:
    books = told(*(approved(name, NOTHING) for name in ("b", "a", "c")), Ended("ann", "a", "learner"))
    assert [key for key, _ in books.unended()] == [("ann", "b"), ("ann", "c")]


def test_a_ledger_begins_once_and_first() -> None:
    with pytest.raises(LedgerError, match="entry 1: a ledger begins once"):
        Books().add(Entry(1, 0, LIMITED))
    with pytest.raises(LedgerError, match="entry 3: a ledger begins once"):
        told(BEGUN)


@pytest.mark.parametrize(
    "record", [answered("no", 1, Cost(1, 0)), Joined("ann", "no"), Released("ann", "no"), Ended("ann", "no", "owner")]
)
def test_what_happens_to_a_run_takes_its_approval(record: LedgerRecord) -> None:
    with pytest.raises(LedgerError, match="entry 4 is of a run that was not approved"):
        told(approved("run", Cost(1, 0)), record)


def test_a_limit_says_all_that_charges_are_held_against() -> None:
    spent = Cost(3, 2, 1)
    books = told(Limited(7, 6, "whole_party", "filter"), begun=replace(BEGUN, spent=spent))
    assert books.account == Account(7, 6, spent, NOTHING, "whole_party", "filter")


@pytest.mark.parametrize(
    ("adjacency", "spent", "hides"),
    [
        ("replace_one", NOTHING, "whole_party"),
        ("replace_one", Cost(1, 0), "replace_one"),
        ("person", Cost(1, 0), "person"),
        ("whole_party", Cost(1, 0), "whole_party"),
    ],
)
def test_what_a_recovered_ledger_hides(adjacency: Adjacency, spent: Cost, hides: str) -> None:
    begun = replace(BEGUN, spent=spent, adjacency=adjacency, recovered={"old": (5, 10)})
    books = Books()
    books.add(Entry(1, 0, begun))
    assert (books.begun, books.account.spent, books.account.adjacency) == (begun, spent, adjacency)
    assert books.hides() == hides


def test_one_answer_that_hides_a_record_is_enough() -> None:
    adjacencies: list[Adjacency] = ["whole_party", "person", "whole_party", "replace_one", "person"]
    answers = [answered("run", round, Cost(1, 0), hidden) for round, hidden in enumerate(adjacencies, 1)]
    hidden = [told(approved("run", Cost(5, 0)), *answers[:count]).hides() for count in range(6)]
    assert hidden == ["whole_party", "whole_party", "person", "person", "replace_one", "replace_one"]
    assert told(approved("run", Cost(5, 0)), *answers).charges == {"whole_party": 2, "person": 2, "replace_one": 1}


def test_a_charge_is_taken_first_from_what_is_reserved_for_its_run() -> None:
    books = told(approved("one", Cost(60, 5)), approved("two", Cost(40, 5)))
    one = books.runs["ann", "one"]
    for allowed in (Cost(20, 5), Cost(100, 5)):  # the second: more than is reserved, and no more than the limit
        Accounts(books).require_charge(one, allowed)
    with pytest.raises(BudgetExhaustedError):
        Accounts(books).require_charge(one, Cost(101, 5))
    released = told(approved("one", Cost(60, 5)), approved("two", Cost(40, 5)), Released("ann", "one"))
    Accounts(released).require_charge(released.runs["ann", "one"], Cost(60, 5))
    for more in (Cost(61, 5), Cost(60, 6)):
        with pytest.raises(BudgetExhaustedError):
            Accounts(released).require_charge(released.runs["ann", "one"], more)


def test_a_limit_that_was_lowered_allows_what_fits_below_it() -> None:
    lowered = Limited(50, 10, "replace_one", "basic")
    books = told(approved("one", Cost(60, 0)), approved("two", Cost(40, 5)), approved("three", Cost(60, 5)), lowered)
    Accounts(books).require_charge(books.runs["ann", "one"], Cost(50, 0))
    Accounts(books).require_charge(books.runs["ann", "two"], Cost(40, 5))
    for run, cost in (("one", Cost(51, 0)), ("three", Cost(60, 5)), ("three", Cost(10, 5))):
        with pytest.raises(BudgetExhaustedError):
            Accounts(books).require_charge(books.runs["ann", run], cost)


OLD = [Cost(4, 3, 5), Cost(2, 0, 5), Cost(1, 0, 5)]
"""What older versions charged a run of (10, 3) round by round, with three rounds left."""


@pytest.mark.parametrize("answers", [1, 2, 3])
@pytest.mark.parametrize("end", ["learner", "owner", "expired", "failed", None])
def test_a_run_that_was_charged_round_by_round_counts_as_spent_with_its_first_answer(
    answers: int, end: EndReason | None
) -> None:
    """Whether it goes on or has ended: of an older ledger."""
    cost = Cost(10, 3, 20)
    records: list[LedgerRecord] = [approved("run", cost)]
    records += [answered("run", round + 1, OLD[round]) for round in range(answers)]
    gdp = 5 * answers
    if end is not None:
        rest = cost - sum(OLD[:answers], NOTHING) if end == "failed" else NOTHING
        records.append(Ended("ann", "run", end, rest))
        gdp += rest.gdp
    books = told(*records)
    assert books.account.spent == Cost(10, 3, gdp)
    assert books.account.reserved == (Cost(0, 0, 20 - gdp) if end is None else NOTHING)
    assert books.account.fits(Cost(90, 0))
    assert not books.account.fits(Cost(91, 0))
    late = [*records, Ended("ann", "run", "failed", cost - sum(OLD[:answers], NOTHING))]
    assert end == "failed" or told(*late).account.spent == cost, "the rest is charged once"


def test_what_waits_for_the_owner_is_what_it_has_not_answered_and_still_may() -> None:
    asked = {run: OwnerAsked("ann", run, "digest", Cost(1, 1), 50) for run in ("one", "two", "three", "four")}
    pinned = Pinned("data.csv", {}, "study", "rows")
    books = told(*asked.values(), OwnerDenied("ann", "two", "no"), approved("three", Cost(1, 1)), pinned)
    for run, number in zip(asked, range(3, 7), strict=True):
        book = books.owner["ann", run]
        assert (book.number, book.question, book.expires) == (number, asked[run], 999 + number + 50)
    assert (books.owner["ann", "two"].denied, books.owner["ann", "one"].denied) == ("no", None)
    assert books.pins == {"": [(9, pinned)]}
    for now, waiting in ((1002, ["one", "four"]), (1052, ["four"]), (1054, ["four"]), (1055, [])):
        assert [run for (_, run), _ in books.pending(now)] == waiting


def test_a_question_is_forgotten_when_its_run_has_ended() -> None:
    owner_asked = OwnerAsked("ann", "run", "digest", Cost(1, 1), 50)
    books = told(owner_asked, replace(owner_asked, run="other"), approved("run", Cost(1, 1)))
    assert set(books.owner) == {("ann", "run"), ("ann", "other")}
    books.add(Entry(6, 1010, Ended("ann", "run", "learner")))
    assert set(books.owner) == {("ann", "other")}
    assert [run for (_, run), _ in books.pending(1010)] == ["other"]


def test_refusals_and_approvals_are_counted_by_learner_and_day() -> None:
    books = told()
    for number, (learner, at) in enumerate([("ann", 0), ("ann", DAY - 1), ("ann", DAY), ("bob", 5)], 3):
        books.add(Entry(number, at, Refused(learner, "run", "dp_gd", "rule", "reason")))
    assert books.refusals == {"0:ann": 2, "1:ann": 1, "0:bob": 1}
    for number, (learner, at) in enumerate([("ann", 0), ("ann", DAY - 1), ("ann", DAY), ("bob", 5)], 7):
        books.add(Entry(number, at, replace(approved("run", Cost(0, 0)), run=f"run-{number}", learner=learner)))
    assert books.approvals == {"0:ann": 2, "1:ann": 1, "0:bob": 1}
    assert learner_day("ann", 3 * DAY - 1) == "2:ann"


RECORDS: list[LedgerRecord] = [
    replace(BEGUN, recovered={"old": (5, 10)}, spent=Cost(1, 2, 3, 4)),
    LIMITED,
    approved("run", Cost(4, 3, 2, 1)),
    answered("run", 1, Cost(5, 6, 7, 8)),
    Joined("ann", "run"),
    Released("ann", "run"),
    Ended("ann", "run", "expired"),
    Refused("ann", "run", "dp_gd", "rule", "reason"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_read_as_it_was_written(record: LedgerRecord) -> None:
    values = to_json(record, 1234)
    assert (values["kind"], values["at"]) == (type(record).__name__.lower(), 1234)
    given: dict[str, Any] = values | {"attached": {"body": "digest"}}
    assert from_json(7, given) == Entry(7, 1234, record, {"body": "digest"})
    assert from_json(7, values) == Entry(7, 1234, record, {})
    assert "attached" in given, "what is read is not changed"
    for name, value in (("kind", "other"), ("more", 1)):
        with pytest.raises(VersionError, match="entry 7 was written by another version"):
            from_json(7, values | {name: value})


def test_costs_are_spelt_as_six_units_and_read_as_four_of_earlier_versions() -> None:
    assert to_json(RECORDS[3], 1)["cost"] == [5, 6, 7, 8, 7, 0]
    assert from_json(1, to_json(RECORDS[3], 1) | {"cost": [5, 6, 7, 8]}).record == RECORDS[3]
    with pytest.raises(InvalidInputError):
        from_json(1, to_json(RECORDS[3], 1) | {"cost": [-1, 0, 0, 0]})
    with pytest.raises(InvalidInputError):
        from_json(1, to_json(RECORDS[3], 1) | {"cost": [1, 0, 0, 0, -1, 0]})
    with pytest.raises(VersionError):
        from_json(1, to_json(RECORDS[3], 1) | {"cost": [1, 0, 0, 0, 0]})


def test_answers_come_in_the_order_of_their_rounds() -> None:
    rounds = RoundEntries()
    for round, entry in ((2, 5), (3, 6), (9, 8)):
        rounds.add(round, entry)
    assert (dict(rounds), len(rounds), rounds.last) == ({2: 5, 3: 6, 9: 8}, 3, 9)
    assert [rounds.get(round) for round in range(11)] == [None, None, 5, 6, None, None, None, None, None, 8, None]
    books = told(approved("run", Cost(9, 0)), answered("run", 2, Cost(1, 0)))
    for round in (1, 2, 2**63):
        with pytest.raises(
            LedgerError, match=f"entry 5: an answer to round {round} does not come after one to round 2"
        ):
            books.add(Entry(5, 2000, answered("run", round, Cost(1, 0))))
