"""The lines that follow from records of a ledger, by whichever process they were written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from parley.common.privacy.account import Cost
from parley.party.ledger.books import NOTHING, RunBook, Use
from parley.party.ledger.ledger_log import log_records
from parley.party.ledger.records import (
    Answered,
    Ended,
    LedgerRecord,
    Limited,
    OwnerAsked,
    OwnerDenied,
    Released,
    to_json,
)

OF = ("ann", "run-1")
HALF = Cost(500_000, 0)
ANSWERED = Answered(*OF, 4, "query", "step", HALF, "replace_one")


def lines_of(record: LedgerRecord, others: LedgerRecord | None = None) -> list[dict[str, Any]]:
    book = RunBook(Use("", "study", "ann"), 1, HALF, 8, 60, NOTHING, 0, charged=250_000)
    book.answers.add(4, 2)
    books = cast("Any", SimpleNamespace(runs={OF: book}))
    with capture_logs() as lines:
        log_records(books, [to_json(others, 0)] if others else [], [to_json(record, 0)])
    return [dict(line) for line in lines]


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (OwnerAsked(*OF, "spec", HALF, 60), {"event": "pending", "epsilon": 0.5}),
        (OwnerDenied(*OF, "no"), {"event": "denied"}),
        (Released(*OF), {"event": "released"}),
        (ANSWERED, {"event": "charged", "round": 4, "epsilon": 0.25}),
        (Ended(*OF, "owner"), {"event": "ended", "by": "owner", "rounds": 1, "epsilon": 0.25}),
    ],
)
def test_a_record_of_a_run_has_a_line(record: LedgerRecord, line: dict[str, object]) -> None:
    assert lines_of(record) == [line | {"learner": "ann", "run": "run-1", "log_level": "info"}]


def test_few_rounds_and_no_limits_have_lines() -> None:
    assert lines_of(Answered(*OF, 5, "query", "step", HALF, "replace_one")) == []
    assert lines_of(Limited(1, 0, "replace_one", "basic")) == []


def test_what_other_processes_have_written_comes_first() -> None:
    lines = lines_of(ANSWERED, others=Ended(*OF, "owner"))
    assert [line["event"] for line in lines] == ["ended", "charged"]
