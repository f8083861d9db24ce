"""A ledger as a file that anyone can check with the party's public key alone: signed, complete, in order.

There is one JSON object a line: first the party, its key and a receipt of the head; then each record as the chain holds
it, with its attachments in base64. Four kinds of attachments are left out: the costs that an owner gave to runs of its
own, which are data; the salt that would let a reader confirm a guess of the data; one-time noise, which hides what it
was added to; and answers to a secure sum, because their pads would show them to a key holder.

A changed record breaks its link, a changed attachment its digest, and a missing tail contradicts the signed head.
Charges are compared with the prices that were approved, those of a ledger that joins others with their receipts.

A reader has the file from somebody else. So it is read line by line, no further than its signed head, and no line may
be longer than any that is written here: answers of more than `_MOST_BODY_BYTES` are also named by their digests alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from parley.common.encoding.canonical_json import check_counts, read_json
from parley.common.encoding.texts import so_many, text_of
from parley.common.errors import LedgerError, ParleyError, TooLargeError
from parley.common.privacy.account import Account, Cost, Price
from parley.common.protocol.receipts import Head, Receipt, verify_receipt
from parley.common.runs.specification import RunSpec
from parley.common.storage.chain import attachment_digests, next_link
from parley.party.ledger.books import NOTHING, ONCE, Books, RunKey
from parley.party.ledger.ledger import OWNER_INPUT, SALT, Ledger
from parley.party.ledger.merging import check_merged
from parley.party.ledger.records import Answered, Approved, Begun, Ended, Entry, Refused, from_json, read_price

AUDIT_FORMAT = "parley-audit-1"

_NEEDED = frozenset({"spec", "price"})
"""The attachments that a check of the charges needs."""
_MOST_BODY_BYTES = 2**25
"""The length of the longest answer that is written out, four million numbers."""
_LONGEST_LINE = 2**26
"""The length of the longest line, in bytes: an answer in base64, a record, a specification and a price."""
_PIECE = 2**20
"""How many characters of a line are read at once; all must be ASCII."""
_MOST_VALUES = 2**16  # JSON values in a line, or in the record in it


@dataclass(slots=True)
class RunSummary:
    """A run in its owner's overview; a run that was refused has only its refusals, counted by rule."""

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
        """Say what the learner saw."""
        failed = "that work on the data failed" if self.ended == "failed" else ""
        if not self.rounds:
            return failed or "nothing"
        answers = f"{so_many(self.rounds, 'noisy answer')} ({', '.join(sorted(self.steps))})"
        hidden = self.approved is not None and self.approved.secure_sum != "none"
        seen = f"only sums of {answers} and of other owners' answers" if hidden else answers
        return f"{seen}; {failed}" if failed else seen


def by_run(entries: Iterable[Entry]) -> list[RunSummary]:
    """Summarise all runs in a ledger's entries, in the order of their first entries."""
    runs: dict[RunKey, RunSummary] = {}
    for entry in entries:
        record = entry.record
        if not isinstance(record, Approved | Answered | Ended | Refused):
            continue
        key = record.learner, record.run
        run = runs.setdefault(key, RunSummary(*key, first=entry.at))
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
    return list(runs.values())


def standing(entries: Iterable[Entry]) -> dict[str, Account]:
    """Return each account as entries leave it, by its people: what a file that holds allows and has spent."""
    books = Books()
    for entry in entries:
        books.add(entry)
    return dict(books.accounts)


def export(ledger: Ledger, *, bodies: bool = True) -> Iterator[str]:
    """Yield the lines of the file; without ``bodies``, all answers are named by their digests alone."""
    records, sums = list(ledger.records()), set[tuple[str, str]]()
    begin = {
        "format": AUDIT_FORMAT,
        "party": ledger.identity.name,
        "key": ledger.identity.key,
        "receipt": ledger.chain.receipt(),
    }
    yield json.dumps(begin)
    for number, record in records:
        record_fields = json.loads(record)
        run = record_fields.get("learner", ""), record_fields.get("run", "")
        if record_fields.get("secure_sum", "none") != "none":
            sums.add(run)
        withheld = {SALT, OWNER_INPUT, *(("body",) if run in sums else ())}
        wanted = [
            name
            for name in record_fields.get("attached", {})
            if name in _NEEDED or (bodies and name not in withheld and not name.startswith(ONCE))
        ]
        contents = {name: ledger.chain.attachment(number, name) for name in wanted}
        values = {
            name: base64.b64encode(content).decode()
            for name, content in contents.items()
            if name in _NEEDED or len(content) <= _MOST_BODY_BYTES
        }
        yield json.dumps({"number": number, "record": record.decode(), "attachments": values})


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a file, one at a time. Raises LedgerError for one longer than any export has, and OSError."""
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
    """Read the next piece of line ``number``. Raises LedgerError unless it is ASCII, as all exports are."""
    try:
        piece = file.readline(_PIECE)
    except UnicodeDecodeError:
        piece = "\ufffd"
    if not piece.isascii():
        raise LedgerError(f"line {number} cannot be read")
    return piece


def verify(lines: Iterable[str], key: str) -> tuple[list[Entry], Receipt]:
    """Return a file's entries and the receipt of its head, if the owner of the public ``key`` wrote it, unchanged.

    Raises LedgerError, which says what is wrong.
    """
    remaining = iter(lines)
    receipt = _beginning(next(remaining, ""), key)
    books, entries, link = Books(), [], bytes(32)
    prices: dict[RunKey, Price] = {}
    for number, line in enumerate(remaining, 1):
        if number > receipt.head.count:
            raise LedgerError(f"line {number + 1} comes after the last signed entry")
        try:
            row = _read_row(line)
            position, record = row["number"], row["record"].encode()
            values = {name: base64.b64decode(value, validate=True) for name, value in row["attachments"].items()}
            entry = from_json(number, _read_row(row["record"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ParleyError):
            raise LedgerError(f"line {number + 1} cannot be read") from None
        if position != number or any(entry.attached.get(n) != d for n, d in attachment_digests(values).items()):
            raise LedgerError(f"entry {number} or its order was changed")
        link = next_link(link, record)
        if isinstance(entry.record, Begun):
            check_merged(entry.record)
        _check_charge(entry, books, prices, values)
        books.add(entry)
        entries.append(entry)
    if Head(len(entries), link.hex()) != receipt.head:
        raise LedgerError("an entry was changed, removed or added: the last link is not the one that was signed")
    return entries, receipt


def _read_row(text: str) -> Any:  # noqa: ANN401 -- any JSON value
    """Parse a line, or the record in one. Raises ValueError, RecursionError, and TooLargeError for too many values."""
    content = text.encode()
    check_counts(content, _MOST_VALUES)
    return read_json(content)


def _beginning(line: str, key: str) -> Receipt:
    """Check a file's first line, and return its receipt. Raises LedgerError."""
    try:
        begin = _read_row(line)
        if begin["format"] != AUDIT_FORMAT:
            raise LedgerError(f"the file is not of the format {AUDIT_FORMAT}")
        return verify_receipt(begin["receipt"], begin["party"], key)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, TooLargeError):
        raise LedgerError("the file does not begin as an audit file does") from None


def _check_charge(entry: Entry, books: Books, prices: dict[RunKey, Price], values: dict[str, bytes]) -> None:
    """Raise LedgerError unless an answer or a failure was charged what the run's approved price says."""
    match entry.record:
        case Approved(learner, run):
            prices[learner, run] = read_price(values.get("price", b"{}"))
            if hashlib.sha256(values.get("spec", b"")).hexdigest() != entry.attached.get("spec"):
                raise LedgerError(f"entry {entry.number} comes without its specification")
            if entry.record.rows in {"training", "held_out"} and entry.record.rows != _rows_of(values["spec"]):
                raise LedgerError(f"entry {entry.number} is charged to other rows than its run is about")
        case Answered(learner, run, round):
            book = books.runs.get((learner, run))
            if (
                book is None
                or not book.last < round <= book.rounds
                or entry.record.cost != prices[learner, run].step(round, book.last)
                or entry.record.adjacency != prices[learner, run].adjacency
            ):
                raise LedgerError(f"entry {entry.number} was not charged what was approved")
        case Ended(learner, run, by):
            book = books.runs.get((learner, run))
            expected = prices[learner, run].remaining(book.last) if book and by == "failed" else NOTHING
            if entry.record.cost != expected:
                raise LedgerError(f"entry {entry.number} was not charged what was approved")


def _rows_of(spec: bytes) -> str | None:
    """Return the rows to which a run is charged; None for any, and if its specification cannot be read."""
    with suppress(ValueError, ParleyError):
        return RunSpec.model_validate_json(spec).charged_rows
    return None
