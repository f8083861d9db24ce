"""Writes a party's ledger into the log of its service: what was approved, charged and ended.

A line follows from a record, once it is committed. So the log says what the ledger says, including what the owner has
done by a command, in another process. Which rounds have a line depends on their number alone, and no line has a
duration: how long work on private values takes is not for a log.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from parley.common.privacy.account import MICRO
from parley.common.service import logs
from parley.common.storage.chain import ChainRecord
from parley.party.ledger.books import Books
from parley.party.ledger.records import (
    Answered,
    Approved,
    Ended,
    Joined,
    LedgerRecord,
    OwnerAsked,
    OwnerDenied,
    Released,
    from_json,
)


def log_records(books: Books, others: Sequence[ChainRecord], own: Sequence[ChainRecord]) -> None:
    """Log records that the ``books`` have taken; ``others`` were appended by other processes, for no request here."""
    if others:
        with logs.about():
            _log(books, others)
    _log(books, own)


def _log(books: Books, records: Sequence[ChainRecord]) -> None:
    for record in records:
        if record["kind"] != "answered" or logs.is_sampled(record["round"]):
            _log_record(books, from_json(0, record).record)


def _log_record(books: Books, record: LedgerRecord) -> None:
    """Log a record, if it is one of a run."""
    match record:
        case Approved():
            _info(
                "approved",
                record,
                user=record.user,
                study=record.study,
                algorithm=record.algorithm,
                rounds=record.rounds,
                epsilon=record.reserved.epsilon / MICRO,
            )
        case OwnerAsked():
            _info("pending", record, epsilon=record.cost.epsilon / MICRO)
        case OwnerDenied():
            _info("denied", record)
        case Joined():
            _info("joined", record)
        case Released():
            _info("released", record)
        case Answered():
            charged = books.runs[record.learner, record.run].charged
            _info("charged", record, round=record.round, epsilon=charged / MICRO)
        case Ended():
            book = books.runs[record.learner, record.run]
            _info("ended", record, by=record.by, rounds=len(book.answers), epsilon=book.charged / MICRO)


def _info(
    event: str, record: Approved | OwnerAsked | OwnerDenied | Joined | Released | Answered | Ended, **fields: object
) -> None:
    structlog.get_logger().info(event, run=record.run, learner=record.learner, **fields)
