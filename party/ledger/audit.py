"""A ledger as a file that anyone can check with the party's public key alone: signed, whole, in order.

One JSON object a line: first the party, its key and a receipt of the head; then each record as the chain holds it, with
its attachments in base64, but for those that are no reader's: what an owner told runs of its own, which is data; the
salt by which a guess of the data could be confirmed; one-time noise, which hides what it was added to; and answers to a
secure sum, whose pads would show them to a key holder. A changed record breaks its link, a changed attachment its
digest, a missing tail the head that was signed; and charges are compared with the prices that were approved.

Who checks a file has it from somebody else, so it is read line by line, no further than its signed head goes, and no
line is longer than any that is written here: answers of more than `_MOST_BODY_BYTES` are named by their digests too.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from parley.common.encoding.canonical_json import check_counts, read_json
from parley.common.encoding.texts import text_of
from parley.common.errors import LedgerError, ParleyError, TooLargeError
from parley.common.privacy.account import Cost, Price
from parley.common.protocol.receipts import Head, Receipt, verify_receipt
from parley.common.storage.chain import attachment_digests, next_link
from parley.party.ledger.books import NOTHING, ONCE, Books, RunKey
from parley.party.ledger.ledger import SALT, TOLD, Ledger
from parley.party.ledger.records import Answered, Approved, Ended, Entry, Refused, from_json, read_price

AUDIT_FORMAT = "parley-audit-1"

_NEEDED = frozenset({"spec", "price"})
"""The attachments that charges are checked by."""
_MOST_BODY_BYTES = 2**25
"""Of an answer that is written whole: four million numbers."""
_LONGEST_LINE = 2**26
"""Bytes: an answer in base64, beside a record, a specification and a price."""
_PIECE = 2**20
"""Characters of a line that are read at once: one may take four bytes, and is refused where it does."""
_MOST_VALUES = 2**16  # of a line, or of the record in it


@dataclass(slots=True)
class RunSummary:
    """A run as its owner looks back on it; of one that was refused, the refusals alone, by rule."""

    learner: str
    run: str
    approved: Approved | None = None
    charged: Cost = NOTHING
    reserved: Cost = NOTHING
    rounds: int = 0
    steps: set[str] = field(default_factory=set)
    first: int = 0
    last: int = 0
    ended: str | None = None
    refusals: Counter[str] = field(default_factory=Counter)

    @property
    def seen(self) -> str:
        """What the learner saw, in words."""
        failed = "that work on the data failed" if self.ended == "failed" else ""
        if not self.rounds:
            return failed or "nothing"
        what = f"{self.rounds} noisy answers ({', '.join(sorted(self.steps))})"
        hidden = self.approved is not None and self.approved.secure_sum != "none"
        seen = f"sums alone, of {what} and others'" if hidden else what
        return f"{seen}; {failed}" if failed else seen


def by_run(entries: Iterable[Entry]) -> list[RunSummary]:
    """All runs that a ledger knows, in the order in which it first heard of them."""
    found: dict[RunKey, RunSummary] = {}
    for entry in entries:
        record = entry.record
        if not isinstance(record, Approved | Answered | Ended | Refused):
            continue
        key = record.learner, record.run
        run = found.setdefault(key, RunSummary(*key, first=entry.at))
        run.last = entry.at
        match record:
            case Approved():
                run.approved = record
            case Answered():
                run.charged, run.rounds = run.charged + record.cost, run.rounds + 1
                run.steps.add(record.step)
            case Ended():
                run.charged, run.ended = run.charged + record.cost, record.by
            case Refused():
                run.refusals[record.rule] += 1
    return list(found.values())


def export(ledger: Ledger, *, bodies: bool = True) -> Iterator[str]:
    """The lines of the file; without ``bodies``, answers are named by their digests alone, as very long ones are."""
    records, sums = list(ledger.records()), set[tuple[str, str]]()
    begin = {
        "format": AUDIT_FORMAT,
        "party": ledger.identity.name,
        "key": ledger.identity.key,
        "receipt": ledger.chain.receipt(),
    }
    yield json.dumps(begin)
    for number, record in records:
        told = json.loads(record)
        run = told.get("learner", ""), told.get("run", "")
        if told.get("secure_sum", "none") != "none":
            sums.add(run)
        kept = {SALT, TOLD, *(("body",) if run in sums else ())}
        wanted = [
            name
            for name in told.get("attached", {})
            if name in _NEEDED or (bodies and name not in kept and not name.startswith(ONCE))
        ]
        contents = {name: ledger.chain.attachment(number, name) for name in wanted}
        values = {
            name: base64.b64encode(content).decode()
            for name, content in contents.items()
            if name in _NEEDED or len(content) <= _MOST_BODY_BYTES
        }
        yield json.dumps({"number": number, "record": record.decode(), "attachments": values})


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, one at a time; raises LedgerError for one that is longer than any, OSError."""
    with text_of(path.open("rb")) as file:
        number, line = 1, ""
        while piece := _ascii_piece(file, number):
            line += piece
            if len(line) > _LONGEST_LINE:
                raise LedgerError(f"line {number} is longer than {_LONGEST_LINE:,} bytes: no export has such a line")
            if line.endswith("\n"):
                yield line
                number, line = number + 1, ""
        if line:
            yield line


def _ascii_piece(file: TextIO, number: int) -> str:
    """The next piece of line ``number``, of ASCII as all exports are; raises LedgerError for what is none."""
    try:
        piece = file.readline(_PIECE)
    except UnicodeDecodeError:
        piece = "\ufffd"
    if not piece.isascii():
        raise LedgerError(f"line {number} cannot be read")
    return piece


def verify(lines: Iterable[str], key: str) -> tuple[list[Entry], Receipt]:
    """The entries of a file, and the receipt of its head, if the holder of the public ``key`` wrote it, and no other.

    Raises LedgerError that says what is wrong.
    """
    given = iter(lines)
    receipt = _beginning(next(given, ""), key)
    books, entries, link = Books(), [], bytes(32)
    prices: dict[RunKey, Price] = {}
    for number, line in enumerate(given, 1):
        if number > receipt.head.count:
            raise LedgerError(f"line {number + 1} stands after the last entry that was signed for")
        try:
            row = _read_row(line)
            position, record = row["number"], row["record"].encode()
            values = {name: base64.b64decode(value, validate=True) for name, value in row["attachments"].items()}
            entry = from_json(number, _read_row(row["record"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ParleyError):
            raise LedgerError(f"line {number + 1} cannot be read") from None
        if position != number or any(entry.attached.get(n) != d for n, d in attachment_digests(values).items()):
            raise LedgerError(f"entry {number} was changed, or its order")
        link = next_link(link, record)
        _check_charge(entry, books, prices, values)
        books.tell(entry)
        entries.append(entry)
    if Head(len(entries), link.hex()) != receipt.head:
        raise LedgerError("an entry was changed, removed or added: the last link is not the one that was signed")
    return entries, receipt


def _read_row(text: str) -> Any:  # noqa: ANN401 -- any JSON value
    """A line, or the record in one; raises ValueError, RecursionError, and TooLargeError for more values than any."""
    content = text.encode()
    check_counts(content, _MOST_VALUES)
    return read_json(content)


def _beginning(line: str, key: str) -> Receipt:
    """The receipt of a file's first line."""
    try:
        begin = _read_row(line)
        if begin["format"] != AUDIT_FORMAT:
            raise LedgerError(f"the file is not of the format {AUDIT_FORMAT}")
        return verify_receipt(begin["receipt"], begin["party"], key)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, TooLargeError):
        raise LedgerError("the file does not begin as an audit does") from None


def _check_charge(entry: Entry, books: Books, prices: dict[RunKey, Price], values: dict[str, bytes]) -> None:
    """Raise LedgerError unless an answer was charged what its run's approved price says."""
    match entry.record:
        case Approved(learner, run):
            prices[learner, run] = read_price(values.get("price", b"{}"))
            if hashlib.sha256(values.get("spec", b"")).hexdigest() != entry.attached.get("spec"):
                raise LedgerError(f"entry {entry.number} comes without its specification")
        case Answered(learner, run, round):
            book = books.runs.get((learner, run))
            if (
                book is None
                or not book.last < round <= book.rounds
                or entry.record.cost != prices[learner, run].step(round, book.last)
            ):
                raise LedgerError(f"entry {entry.number} was not charged what was approved")
        case Ended(learner, run, by):
            book = books.runs.get((learner, run))
            due = prices[learner, run].remaining(book.last) if book and by == "failed" else NOTHING
            if entry.record.cost != due:
                raise LedgerError(f"entry {entry.number} was not charged what was approved")
