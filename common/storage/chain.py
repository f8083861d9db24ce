"""An append-only chain of records on disk: each link is a hash over the link before and over the record.

So one link names all that the chain holds up to there. A record is canonical JSON; bytes that are too long for it are
*attachments*, whose SHA-256 the record names, and which are compared with it whenever they are read. All that a
service knows it works out from its records, which it reads once when it starts and as they are added: there is nothing
stored that a link does not cover. Links stay in memory (see `Links`), so a record that is changed later is noticed when
it is read again.

The newest head also stands in a file beside the database, by which an old copy of the database alone is known.

A chain's head as a service keeps it outside its database, to know an old copy of the database by.

The file is written after each commit and before the answer is sent, in place and of fixed length, so that it is never
torn. It may lag behind the database, by a crash in between or by a power cut, and never runs ahead of it: if it does,
the database is an old copy.

The links of a chain as a process remembers them: all of the newest records, and every sixteenth of older ones.

A link is a hash over the link before and the record, so one that is remembered proves all that stands in the file
before it: hashed on from any link that is stored there, the records up to the next remembered link lead to it only if
neither they nor the stored link were changed. To look at an old record costs a few hashes more than at a new one, and
a record takes two bytes of memory in the place of 32.

A chain whose keeper signs its head into receipts, and knows an old copy of it by those that it is shown.

What is left of a chain that cannot be used any more: to read it as far as it is whole, and to put it aside.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from parley.common.encoding.canonical_json import canonical, own_json
from parley.common.errors import ConflictError, LedgerError, UnavailableError
from parley.common.protocol.receipts import (
    Answer,
    Binding,
    Head,
    Receipt,
    read_receipt,
    verify_receipt,
    write_receipt,
)
from parley.common.storage.sqlite import Database, Schema

if TYPE_CHECKING:
    from parley.common.secure_sum.session import Identity

_T = TypeVar("_T")
_LINE = re.compile(rb"(\d{20}) ([0-9a-f]{64})\n")


class HeadFile:
    """The file that names the newest head that a service showed anyone.

    Whoever has it open shares a lock on it, so that nobody puts another chain in the place of one that is in use.
    Raises UnavailableError while somebody does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self.descriptor)
            raise UnavailableError(f"{path.with_suffix('')} is being replaced: try again") from None

    def read(self) -> Head | None:
        """The head; None in a new file. Raises LedgerError when the file holds something else."""
        content = os.pread(self.descriptor, 4096, 0)
        line = _LINE.fullmatch(content)
        if content and not line:
            raise LedgerError("the head file is damaged")
        return Head(int(line[1]), line[2].decode()) if line else None

    def write(self, head: Head) -> None:
        """Replace the head."""
        os.pwrite(self.descriptor, f"{head.count:020d} {head.link}\n".encode(), 0)

    def sync(self) -> None:
        """Have the file on the disk, so that all later writes leave its length as it is."""
        os.fsync(self.descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


@contextmanager
def unused(path: Path) -> Iterator[None]:
    """For as long as nobody may open a head file, if there is one; raises ConflictError where somebody has it open."""
    if not path.exists():
        yield
        return
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"{path.with_suffix('.db')} is in use: stop the service first") from None
        yield


LINK_BYTES = 32
FIRST = bytes(LINK_BYTES)
"""The link before all records."""
SPACING = 16
"""Of older records, each of so many is remembered, the first record's among them."""
NEWEST = 1024
"""At least so many of the newest are remembered; a multiple of `SPACING`."""


class Links:
    """Links by the number of their record, (32,) each; 0 is before all. Any thread may look while one adds."""

    __slots__ = ("_newest", "_older", "head")

    def __init__(self) -> None:
        self._older = bytearray()
        """Those of records 1, 1 + `SPACING`, and so on."""
        self._newest = 1, bytearray()
        """The number of a record, and all links from that on."""
        self.head = Head(0, FIRST.hex())
        """The count of records, and the last link."""

    def add(self, link: bytes) -> None:
        """Remember the next record's link."""
        first, newest = self._newest
        newest += link
        self.head = Head(self.head.count + 1, link.hex())
        if len(newest) >= 2 * NEWEST * LINK_BYTES:
            for place in range(0, NEWEST * LINK_BYTES, SPACING * LINK_BYTES):
                self._older += newest[place : place + LINK_BYTES]
            self._newest = first + NEWEST, newest[NEWEST * LINK_BYTES :]

    def find(self, number: int) -> bytes | None:
        """The link of a record from 0 to the last, or None where it is not remembered."""
        if number == 0:
            return FIRST
        following, link = self.following(number)
        return link if following == number else None

    def following(self, number: int) -> tuple[int, bytes]:
        """The first record from this one on, of 1 to the last, whose link is remembered: its number, and the link."""
        first, newest = self._newest
        if number < first:
            number += (1 - number) % SPACING
        links, place = (newest, number - first) if number >= first else (self._older, number // SPACING)
        return number, bytes(links[place * LINK_BYTES : (place + 1) * LINK_BYTES])


_TABLES = (
    """CREATE TABLE entries (
        number INTEGER PRIMARY KEY,
        record BLOB NOT NULL,                         -- canonical JSON
        link BLOB NOT NULL                            -- SHA-256 over the link before and the record
    ) STRICT""",
    """CREATE TABLE attachments (
        number INTEGER NOT NULL REFERENCES entries,
        name TEXT NOT NULL,
        value BLOB NOT NULL,                          -- its SHA-256 stands in the record, under "attached"
        PRIMARY KEY (number, name)
    ) STRICT""",
)
_FROM = "SELECT number, record, link FROM entries WHERE number >= ? ORDER BY number"
_BETWEEN = "SELECT number, record, link FROM entries WHERE number BETWEEN ? AND ? ORDER BY number"
_ADD = "INSERT INTO entries (number, record, link) VALUES (?, ?, ?)"
_ATTACH = "INSERT INTO attachments (number, name, value) VALUES (?, ?, ?)"
_ATTACHED = "SELECT value FROM attachments WHERE number = ? AND name = ?"
_ERASE = "DELETE FROM attachments WHERE number = ? AND name = ?"

_Row = tuple[int, bytes, bytes]
"""A record's number, the record, and its link."""
ChainRecord = dict[str, Any]
Apply = Callable[[int, ChainRecord], None]
"""Is told each record, with its number, in order."""


def chain_schema(name: str, application: int) -> Schema:
    """The schema of a chain that is called so in words, with the number of its kind of file."""
    return Schema(name, application, 1, _TABLES)


def next_link(link: bytes, record: bytes) -> bytes:
    """The link after one more record, (32,)."""
    return hashlib.sha256(link + record).digest()


def attached(attachments: Mapping[str, bytes]) -> dict[str, str]:
    """What a record names its attachments by."""
    return {name: hashlib.sha256(value).hexdigest() for name, value in attachments.items()}


class Chain:
    """The chain in the files ``stem``.db and ``stem``.head; ``apply`` is told all records.

    Several processes may share the files. Every method raises UnavailableError while they cannot be used, and
    LedgerError where they were changed or are an old copy.
    """

    def __init__(self, stem: Path, schema: Schema, apply: Apply) -> None:
        """Read the chain; what is missing is begun: whether it may be is the caller's business."""
        self.name = schema.name
        self._apply = apply
        self._links = Links()
        self._newest: tuple[int, ChainRecord] = (0, {})
        self._forbidden = False
        self._database = Database(stem.with_suffix(".db"), schema, damaged=LedgerError)
        try:
            self._file = HeadFile(stem.with_suffix(".head"))
            self._database.files.watch(self._file.path, self._file.descriptor)
            try:
                self._begin()
            except BaseException:
                self._file.close()
                raise
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the files."""
        self._database.close()
        self._file.close()

    @property
    def head(self) -> Head:
        """The head, as this process knows it."""
        return self._links.head

    @property
    def origin(self) -> str:
        """The first link, by which the chain is told from others; it must have a record."""
        return self._links.following(1)[1].hex()

    def holds(self, head: Head) -> bool:
        """Whether the chain once had this head, as this process knows it; raises LedgerError where it was changed."""
        return 0 <= head.count <= self._count and self._link(head.count).hex() == head.link

    def forbid(self, head: Head) -> None:
        """Refuse from now on, after a restart too, because somebody has shown a later head than there is."""
        with self._database.reading():  # while no other thread writes the file
            self._forbidden = True
            self._file.write(head)
            self._file.sync()

    @contextmanager
    def transaction(self) -> Iterator[Appending]:
        """Look at the chain as it is now, and append: all or nothing. What was appended is read back at the end.

        Within it, `apply` has been told all that other processes appended, and not yet what is appended in it.
        """

        def read_back(connection: sqlite3.Connection) -> None:
            if appending.head != before:
                self._catch_up(connection)
                if not self._forbidden:
                    self._file.write(self.head)

        with self._database.transaction(read_back) as connection:
            if self._forbidden:
                raise self._old_copy()
            self._catch_up(connection)
            before = self.head
            appending = Appending(connection, before)
            yield appending

    def look(self) -> None:
        """Take what other processes have appended."""
        with self.transaction():
            pass

    def attachment(self, number: int, name: str) -> bytes:
        """An attachment of a record. Raises LedgerError where record or attachment were changed, or it is gone."""
        return self.read(number, name)[1]

    def read(self, number: int, name: str) -> tuple[ChainRecord, bytes]:
        """A record and one of its attachments; raises as `attachment` does."""
        newest, record = self._newest  # which each transaction reads again and compares
        if number != newest:
            record = self.record(number)
        with self._database.reading() as connection:
            value = connection.execute(_ATTACHED, (number, name)).fetchone()
        named = record.get("attached", {}).get(name)
        if value is None or not _is_blob(value[0]) or attached({name: value[0]})[name] != named:
            raise self._changed(number)
        return record, value[0]

    def record(self, number: int) -> ChainRecord:
        """A record; raises LedgerError where it was changed."""
        return dict(own_json(self._genuine(number)[0][1]))

    def records(self) -> Iterator[tuple[int, bytes]]:
        """All records as they are stored, checked, with their numbers; raises LedgerError at one that was changed."""
        read = 0
        while read < self._count:
            rows = self._genuine(read + 1)
            yield from ((number, record) for number, record, _ in rows)
            read += len(rows)

    def probe(self, room: int = 0) -> None:
        """Raise UnavailableError unless a record with so many bytes attached can be written next."""
        self._database.probe(room)

    @property
    def _count(self) -> int:
        return self._links.head.count

    def _link(self, count: int) -> bytes:
        """The link of record number ``count``; of 0, the one before all."""
        return self._links.find(count) or self._genuine(count)[0][2]

    def _genuine(self, number: int) -> list[_Row]:
        """A record as this process first read it, and all after it up to the first whose link is remembered."""
        if not 1 <= number <= self._count:
            raise self._changed(number)
        link, (last, proof) = self._links.find(number - 1), self._links.following(number)
        with self._database.reading() as connection:
            rows: list[_Row] = connection.execute(_BETWEEN, (number - (link is None), last)).fetchall()
        if link is None and rows:
            link = rows.pop(0)[2]  # as it is stored: the rows prove it
        if not _is_blob(link) or len(link) != LINK_BYTES:  # a longer one might take bytes from the record
            raise self._changed(number)
        for expected, row in zip_longest(range(number, last + 1), rows):
            if row is None or not _follows(row, expected, link):
                raise self._changed(expected)
            link = row[2]
        if link != proof:
            raise self._changed(last)
        return rows

    def _begin(self) -> None:
        outside = self._file.read()  # first: meanwhile another process may append, and write a later head
        with self._database.transaction() as connection:
            self._catch_up(connection)
        if outside is None and self._count:
            raise LedgerError(f"the {self.name}'s head file is missing")
        if outside is not None and not self.holds(outside):
            raise self._old_copy()
        self._file.write(self.head)
        self._file.sync()

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Tell `apply` what was appended since the last time; raises LedgerError where what was known is not there."""
        rows = iter(connection.execute(_FROM, (max(self._count, 1),)))
        if self._count and not self._is_last(next(rows, None)):
            raise self._old_copy()
        for number, record, link in rows:
            if not _follows((number, record, link), self._count + 1, self._link(self._count)):
                raise self._changed(number)
            told: ChainRecord = own_json(record)
            self._apply(number, told)
            self._links.add(link)
            self._newest = number, told

    def _is_last(self, row: _Row | None) -> bool:
        """Whether a row is the last record that this process knows."""
        if row is None or row[2] != self._link(self._count):
            return False
        return _follows(row, self._count, self._link(self._count - 1))

    def _changed(self, number: int) -> LedgerError:
        return LedgerError(f"the {self.name} was changed at entry {number}")

    def _old_copy(self) -> LedgerError:
        return LedgerError(f"the {self.name} on disk is older than the one last written: a restored copy is refused")


def _follows(row: _Row, number: int, before: bytes) -> bool:
    """Whether a row is record ``number``, and its link follows from the link before."""
    return row[0] == number and _is_blob(row[1]) and next_link(before, row[1]) == row[2]


def _is_blob(value: object) -> TypeGuard[bytes]:
    """Whether a value read can be what was written: a bit that flips may make another type of it."""
    return isinstance(value, bytes)


@dataclass(slots=True)
class Appending:
    """What a transaction appends; ``head`` is the chain's after it."""

    connection: sqlite3.Connection
    head: Head

    def append(self, record: ChainRecord, attachments: Mapping[str, bytes] | None = None) -> int:
        """Append a record with its attachments; its number."""
        whole = record | {"attached": attached(attachments)} if attachments else record
        content, number = canonical(whole), self.head.count + 1
        link = next_link(bytes.fromhex(self.head.link), content)
        self.connection.execute(_ADD, (number, content, link))
        if attachments:
            self.connection.executemany(_ATTACH, [(number, name, value) for name, value in attachments.items()])
        self.head = Head(number, link.hex())
        return number

    def erase(self, number: int, name: str) -> None:
        """Erase an attachment; its digest stays in the record."""
        self.connection.execute(_ERASE, (number, name))


class SignedChain(Chain):
    """A chain that ``identity`` keeps; ``way_out`` says in words what to do about an old copy."""

    def __init__(self, stem: Path, schema: Schema, apply: Apply, identity: Identity, way_out: str) -> None:
        """Read the chain, as `Chain` does."""
        self._identity = identity
        self._way_out = way_out
        self._written: Receipt | None = None
        super().__init__(stem, schema, apply)

    def totals(self) -> dict[str, Any]:
        """The keeper's own public sums, as receipts say them."""
        return {}

    def has_replaced(self, receipt: Receipt) -> bool:  # noqa: ARG002 -- for chains that replace others
        """Whether what a receipt of another chain of the same keeper says is accounted for in this one."""
        return False

    def witnessed(self, to: str, shown: str | None, work: Callable[[], _T]) -> tuple[_T, str]:
        """What some work gives somebody who has ``shown`` its newest receipt, and the chain's receipt after it.

        An `Answer` is bound by that receipt. Raises as `check_receipt` does, before anything is done.
        """
        receipt = None if shown is None else self.check_receipt(shown)
        value = work()
        return value, self.receipt(to, receipt, value.bound if isinstance(value, Answer) else None)

    def receipt(self, to: str = "", shown: Receipt | None = None, answer: Binding | None = None) -> str:
        """A receipt of the chain as it stands, for whom it is ``shown`` to; see `Receipt`."""
        written = write_receipt(
            self._identity.signing_key,
            signer=self._identity.name,
            ledger=self.origin,
            head=self.head,
            to=to,
            shown=None if shown is None else shown.head,
            answer=answer,
            totals=self.totals(),
        )
        self._written = written  # what it is shown next, most likely
        return written.text

    def check_receipt(self, text: str) -> Receipt:
        """A receipt whose history this chain contains, or has replaced.

        Raises InvalidReceiptError for a text that is no receipt, or that the keeper did not sign. Raises LedgerError
        for any other receipt of the keeper: the chain is an old copy, and refuses everybody from now on.
        """
        newest = self._written
        if newest and newest.text == text:  # as in most requests: it needs no second look at its signature
            return newest
        receipt = read_receipt(text)
        is_replaced = self.has_replaced(receipt)  # then it may be by an earlier key
        verify_receipt(text, self._identity.name, receipt.key if is_replaced else self._identity.key)
        if is_replaced or self._contains(receipt):
            return receipt
        self.look()
        if self._contains(receipt):  # as another process has written it
            return receipt
        self.forbid(receipt.head)
        raise LedgerError(
            f"a receipt shows that this {self.name} had {receipt.head.count} entries, and it does not hold them: it is "
            f"an old copy. {self._way_out}"
        )

    def _contains(self, receipt: Receipt) -> bool:
        return receipt.ledger == self.origin and self.holds(receipt.head)


_ENDS = (".db", ".db-wal", ".db-shm", ".head")


def salvage(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, record and link of all records of a chain's database before the first that was changed."""
    count, link = 0, bytes(32)
    for number, record, stored in _rows(path):
        if not isinstance(record, bytes) or number != count + 1 or stored != next_link(link, record):
            return
        yield number, record, stored
        count, link = number, stored


def set_aside(stem: Path) -> None:
    """Move what there is of a chain into a folder of its own beside it."""
    present = [path for end in _ENDS if (path := stem.with_suffix(end)).exists()]
    if not present:
        return
    number = 1
    while (aside := stem.parent / f"replaced-{number}").exists():
        number += 1
    aside.mkdir(mode=0o700)
    for path in present:
        path.rename(aside / path.name)


def _rows(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """The rows of a file's chain, as far as SQLite can read them."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path)) as connection:
            yield from connection.execute("SELECT number, record, link FROM entries ORDER BY number")
    except sqlite3.DatabaseError:
        return
