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
    log = structlog.get_logger()
    match record:
        case Approved():
            log = log.bind(user=record.user, study=record.study, algorithm=record.algorithm, rounds=record.rounds)
            log.info("approved", learner=record.learner, run=record.run, epsilon=record.reserved.epsilon / MICRO)
        case OwnerAsked():
            log.info("pending", learner=record.learner, run=record.run, epsilon=record.cost.epsilon / MICRO)
        case OwnerDenied():
            log.info("denied", learner=record.learner, run=record.run)
        case Joined():
            log.info("joined", learner=record.learner, run=record.run)
        case Released():
            log.info("released", learner=record.learner, run=record.run)
        case Answered():
            epsilon = books.runs[record.learner, record.run].charged / MICRO
            log.info("charged", learner=record.learner, run=record.run, round=record.round, epsilon=epsilon)
        case Ended():
            book = books.runs[record.learner, record.run]
            log = log.bind(by=record.by, rounds=len(book.answers), epsilon=book.charged / MICRO)
            log.info("ended", learner=record.learner, run=record.run)
