"""An append-only chain of records on disk: each link is a hash over the previous link and the record.

So one link covers all records up to it. A record is canonical JSON; bytes that are too long for it are *attachments*:
the record holds their SHA-256, and they are compared with it whenever they are read. A service derives all its state
from the records, which it reads once when it starts and as they are appended: nothing is stored that no link covers.
Links stay in memory, so that a record that is changed later is noticed when it is read again.

Links in memory (`Links`): all links of the newest records, and every sixteenth of older ones. A link that is remembered
proves all that precedes it in the file: hashed on from any stored link, the records up to the next remembered link lead
to it only if neither they nor the stored link were changed. Reading an old record costs a few hashes more than reading
a new one, and a record takes 2 bytes of memory rather than 32.

The head file (`HeadFile`): the newest head also stands in a file beside the database, so that an old copy of the
database alone is recognised. It is written after each commit and before the answer is sent, in place and with a fixed
length, so that it is never torn. After a crash or a power cut it may lag behind the database. It is never ahead of it:
if it is, the database is an old copy.

Receipts (`SignedChain`): a keeper signs its head into receipts. One that holds a later head than the chain shows that
the chain is an old copy. A keeper may tell each recipient less, and seal the head for itself.

The beginning and the end: `begin_chain` creates a chain with its first record, all or nothing; `check_begun` tells a
chain that was never begun from one whose files are missing. `salvage` reads a damaged chain up to the first change, and
`set_aside` moves a chain out of the way.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
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
from parley.common.storage.folders import locked
from parley.common.storage.growth import Growth
from parley.common.storage.keys import sync_directory, writing
from parley.common.storage.sqlite import Database, Schema

if TYPE_CHECKING:
    from parley.common.secure_sum.session import Identity

_T = TypeVar("_T")
_LINE = re.compile(rb"(\d{20}) ([0-9a-f]{64})\n")


class HeadFile:
    """The file that holds the newest head that a service has shown to anyone.

    A process that has it open holds a shared lock, so that nobody can replace a chain that is in use; ``alone``, no
    other process can open it. Raises UnavailableError while the chain is being replaced, and ConflictError where it is
    in use and should be opened alone.
    """

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self.descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self.descriptor)
            if alone:
                raise _in_use(path) from None
            raise UnavailableError(f"{path.with_suffix('')} is being replaced: try again") from None

    def read(self) -> Head | None:
        """Read the head; None in a new file. Raises LedgerError for any other content."""
        content = os.pread(self.descriptor, 4096, 0)
        line = _LINE.fullmatch(content)
        if content and not line:
            raise LedgerError("the head file is damaged")
        return Head(int(line[1]), line[2].decode()) if line else None

    def write(self, head: Head) -> None:
        """Replace the head."""
        os.pwrite(self.descriptor, f"{head.count:020d} {head.link}\n".encode(), 0)

    def sync(self) -> None:
        """Flush the file to disk; no later write changes its length."""
        os.fsync(self.descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


@contextmanager
def unused(path: Path) -> Iterator[None]:
    """Keep a head file, if there is one, from being opened; raises ConflictError where a process has it open."""
    if not path.exists():
        yield
        return
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(path) from None
        yield


def _in_use(path: Path) -> ConflictError:
    return ConflictError(f"{path.with_suffix('.db')} is in use: stop the service first")


LINK_BYTES = 32
FIRST = bytes(LINK_BYTES)
"""The link before the first record."""
SPACING = 16
"""One older link in so many is remembered, counted from the first."""
NEWEST = 1024
"""At least so many of the newest links are remembered; a multiple of `SPACING`."""


class Links:
    """Links by the number of their record, (32,) each; 0 precedes all. Any thread may read while one adds."""

    __slots__ = ("_newest", "_older", "head")

    def __init__(self) -> None:
        self._older = bytearray()
        """The links of records 1, 1 + `SPACING`, and so on."""
        self._newest = 1, bytearray()
        """The number of a record, and all links from there on."""
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
        """Return the link of a record, from 0 to the last; None where it is not remembered."""
        if number == 0:
            return FIRST
        following, link = self.following(number)
        return link if following == number else None

    def following(self, number: int) -> tuple[int, bytes]:
        """Find the first record at or after this one (1 to the last) whose link is remembered: its number and link."""
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
NewRecord = tuple[ChainRecord, Mapping[str, bytes]]
"""A record and its attachments."""
Apply = Callable[[int, ChainRecord], None]
"""Called with each record and its number, in order."""
Hear = Callable[[Sequence[ChainRecord], Sequence[ChainRecord]], None]
"""Called with the records that other processes have appended, and those that a transaction of this one has."""


def chain_schema(name: str, application: int, way_out: str = "") -> Schema:
    """Return the schema of a chain: its name in words, the number of its kind of file, and `Schema.way_out`."""
    return Schema(name, application, 1, _TABLES, way_out=way_out)


def next_link(link: bytes, record: bytes) -> bytes:
    """Return the link after one more record, (32,)."""
    return hashlib.sha256(link + record).digest()


def attachment_digests(attachments: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of each attachment, as a record holds them."""
    return {name: hashlib.sha256(value).hexdigest() for name, value in attachments.items()}


class Chain:
    """The chain in the files ``stem``.db and ``stem``.head; ``apply`` is called with all records.

    Several processes may share the files. Every method raises UnavailableError while they cannot be used, and
    LedgerError where they were changed or are an old copy.
    """

    def __init__(self, stem: Path, schema: Schema, apply: Apply, *, alone: bool = False) -> None:
        """Read the chain; missing files are created: the caller decides before whether they may be.

        ``alone`` keeps all other processes out; it raises ConflictError where the chain is in use.
        """
        self.name = schema.name
        self._apply = apply
        self._links = Links()
        self._newest: tuple[int, ChainRecord] = (0, {})
        self.hear: Hear | None = None
        """Hears of all records from now on: after the transaction that read or committed them. It must not raise."""
        self._forbidden = False
        self._database = Database(stem.with_suffix(".db"), schema, damaged=LedgerError)
        try:
            self._file = HeadFile(stem.with_suffix(".head"), alone=alone)
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
        """The head, as far as this process has read."""
        return self._links.head

    @property
    def origin(self) -> str:
        """The first link, which identifies the chain; the chain must have a record."""
        return self._links.following(1)[1].hex()

    def holds(self, head: Head) -> bool:
        """Return whether the chain once had this head, as far as this process read; raises LedgerError for a change."""
        return 0 <= head.count <= self._count and self._link(head.count).hex() == head.link

    def forbid(self, head: Head) -> None:
        """Refuse all use from now on, also after a restart: somebody has shown a later head than the chain has."""
        with self._database.reading():  # while no other thread writes the file
            self._forbidden = True
            self._file.write(head)
            self._file.sync()

    @contextmanager
    def transaction(self) -> Iterator[Appending]:
        """Read the chain as it is now, and append: all or nothing. What was appended is read back at the end.

        Within the block, ``apply`` has seen all that other processes appended, and not yet what the block appends.
        """

        def read_back(connection: sqlite3.Connection) -> None:
            if appending.head != before:
                self._catch_up(connection, own.append)
                if not self._forbidden:
                    self._file.write(self.head)

        others, own = list[ChainRecord](), list[ChainRecord]()
        try:
            with self._database.transaction(read_back) as connection:
                if self._forbidden:
                    raise self._old_copy()
                self._catch_up(connection, others.append)
                before = self.head
                appending = Appending(connection, before)
                yield appending
        finally:
            if self.hear:
                self.hear(others, own)

    def look(self) -> None:
        """Read what other processes have appended."""
        with self.transaction():
            pass

    def attachment(self, number: int, name: str) -> bytes:
        """Read an attachment of a record. Raises LedgerError where either was changed, or the attachment is erased."""
        return self.read(number, name)[1]

    def read(self, number: int, name: str) -> tuple[ChainRecord, bytes]:
        """Read a record and one of its attachments; raises as `attachment` does."""
        newest, record = self._newest  # each transaction reads and compares it again
        if number != newest:
            record = self.record(number)
        with self._database.reading() as connection:
            value = connection.execute(_ATTACHED, (number, name)).fetchone()
        named = record.get("attached", {}).get(name)
        if value is None or not _is_blob(value[0]) or attachment_digests({name: value[0]})[name] != named:
            raise self._changed(number)
        return record, value[0]

    def record(self, number: int) -> ChainRecord:
        """Read a record; raises LedgerError where it was changed."""
        return dict(own_json(self._genuine(number)[0][1]))

    def note(self, record: bytes, content: ChainRecord) -> None:
        """Note a record as it is stored, after ``apply``: for chains that derive something from its bytes."""

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Read and check all records as they are stored, with their numbers; raises LedgerError at a changed one."""
        read = 0
        while read < self._count:
            rows = self._genuine(read + 1)
            yield from ((number, record) for number, record, _ in rows)
            read += len(rows)

    def growth(self) -> Growth:
        """Return how many records there are, the bytes that they take, and how many are free on their disk."""
        self.look()
        return Growth.of(self._file.path.parent, self._count, self._database.size)

    def probe(self, room: int) -> None:
        """Raise UnavailableError unless a record with so many attached bytes can be written next."""
        self._database.probe(room)

    @property
    def _count(self) -> int:
        return self._links.head.count

    def _link(self, count: int) -> bytes:
        """Return the link of record number ``count``; for 0, the link before the first record."""
        return self._links.find(count) or self._genuine(count)[0][2]

    def _genuine(self, number: int) -> list[_Row]:
        """Read a record and all up to the first whose link is remembered, proved equal to those read at first."""
        if not 1 <= number <= self._count:
            raise self._changed(number)
        link, (last, proof) = self._links.find(number - 1), self._links.following(number)
        with self._database.reading() as connection:
            rows: list[_Row] = connection.execute(_BETWEEN, (number - (link is None), last)).fetchall()
        if link is None and rows:
            link = rows.pop(0)[2]  # a stored link: the rows below prove it
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
        outside = self._file.read()  # before the database: another process may append, and write a later head
        with self._database.transaction() as connection:
            self._catch_up(connection)
        if outside is None and self._count:
            raise LedgerError(f"the {self.name}'s head file is missing")
        if outside is not None and not self.holds(outside):
            raise self._old_copy()
        self._file.write(self.head)
        self._file.sync()

    def _catch_up(self, connection: sqlite3.Connection, hear: Callable[[ChainRecord], None] = lambda _: None) -> None:
        """Apply what was appended since the last time; raises LedgerError where records read before are missing.

        ``hear`` is called with each record that was applied.
        """
        rows = iter(connection.execute(_FROM, (max(self._count, 1),)))
        if self._count and not self._is_last(next(rows, None)):
            raise self._old_copy()
        for number, record, link in rows:
            if not _follows((number, record, link), self._count + 1, self._link(self._count)):
                raise self._changed(number)
            content: ChainRecord = own_json(record)
            self._apply(number, content)
            self._links.add(link)
            self.note(record, content)
            self._newest = number, content
            hear(content)

    def _is_last(self, row: _Row | None) -> bool:
        """Return whether a row is the last record that this process has read."""
        if row is None or row[2] != self._link(self._count):
            return False
        return _follows(row, self._count, self._link(self._count - 1))

    def _changed(self, number: int) -> LedgerError:
        return LedgerError(f"the {self.name} was changed at entry {number}")

    def _old_copy(self) -> LedgerError:
        return LedgerError(f"the {self.name} on disk is older than the one last written: a restored copy is refused")


def _follows(row: _Row, number: int, before: bytes) -> bool:
    """Return whether a row is record ``number``, and its link follows from the previous link."""
    return row[0] == number and _is_blob(row[1]) and next_link(before, row[1]) == row[2]


def _is_blob(value: object) -> TypeGuard[bytes]:
    """Return whether a value can be one that was written: a flipped bit may change its type."""
    return isinstance(value, bytes)


@dataclass(slots=True)
class Appending:
    """The appending side of a transaction; ``head`` is the chain's head after what was appended."""

    connection: sqlite3.Connection
    head: Head

    def append(self, record: ChainRecord, attachments: Mapping[str, bytes] | None = None) -> int:
        """Append a record with its attachments; returns its number."""
        complete = record | {"attached": attachment_digests(attachments)} if attachments else record
        content, number = canonical(complete), self.head.count + 1
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

    def __init__(  # noqa: PLR0913 -- those of a chain, and who signs
        self, stem: Path, schema: Schema, apply: Apply, identity: Identity, way_out: str, *, alone: bool = False
    ) -> None:
        """Read the chain, as `Chain` does."""
        self._identity = identity
        self._way_out = way_out
        self._written: dict[str, Receipt] = {}
        """The last receipt of each recipient: most likely the next one that it shows."""
        super().__init__(stem, schema, apply, alone=alone)

    def totals(self) -> dict[str, Any]:
        """Return the keeper's own public sums, which its receipts state."""
        return {}

    def statement(self, to: str) -> dict[str, Any]:  # noqa: ARG002 -- for chains that tell each recipient its own part
        """Return what a receipt to somebody says of the chain: the claim's ``ledger``, ``head`` and ``totals``."""
        return {"ledger": self.origin, "head": self.head, "totals": self.totals()}

    def whole(self, receipt: Receipt) -> Receipt:
        """Return a receipt that the keeper may have signed, with what it says of the whole chain.

        Raises InvalidReceiptError if a part is sealed, and was not sealed by this keeper.
        """
        return receipt

    def has_replaced(self, receipt: Receipt) -> bool:  # noqa: ARG002 -- for chains that replace others
        """Return whether this chain accounts for a receipt of another chain of the same keeper."""
        return False

    def witnessed(self, to: str, shown_text: str | None, work: Callable[[], _T]) -> tuple[_T, str]:
        """Do some work for somebody who showed the receipt ``shown_text``; returns its result and the chain's next one.

        That receipt binds an `Answer`. Raises as `check_receipt` does, before any work.
        """
        receipt = None if shown_text is None else self.check_receipt(shown_text, to)
        value = work()
        return value, self.receipt(to, receipt, value.bound if isinstance(value, Answer) else None)

    def receipt(self, to: str = "", shown_before: Receipt | None = None, answer: Binding | None = None) -> str:
        """Sign a receipt of the chain for ``to``, who showed the receipt ``shown_before``; see `Receipt`."""
        written = write_receipt(
            self._identity.signing_key,
            signer=self._identity.name,
            to=to,
            shown=None if shown_before is None else shown_before.head,
            answer=answer,
            **self.statement(to),
        )
        self._written[to] = written
        return written.text

    def check_receipt(self, text: str, to: str = "") -> Receipt:
        """Check that this chain contains, or has replaced, the history of a receipt, most likely one that went ``to``.

        Raises InvalidReceiptError for a text that is no receipt, or that the keeper did not sign. Raises LedgerError
        for any other receipt of the keeper: the chain is an old copy, and refuses everybody from now on.
        """
        if (newest := self._written.get(to)) and newest.text == text:  # as in most requests: it needs no second check
            return newest
        receipt = read_receipt(text)
        whole = self.whole(receipt)
        is_replaced = self.has_replaced(whole)  # an earlier key may have signed it
        verify_receipt(text, self._identity.name, receipt.key if is_replaced else self._identity.key)
        if is_replaced or self._contains(whole):
            return receipt
        self.look()
        if self._contains(whole):  # another process has appended it
            return receipt
        self.forbid(whole.head)
        raise LedgerError(
            f"a receipt shows that this {self.name} had entries that it does not hold: it is an old copy. "
            f"{self._way_out}"
        )

    def _contains(self, receipt: Receipt) -> bool:
        return receipt.ledger == self.origin and self.holds(receipt.head)


_ENDS = (".db", ".db-wal", ".db-shm", ".head")


def salvage(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield number, record and link of all records of a chain's database before the first that was changed."""
    count, link = 0, bytes(32)
    for number, record, stored in _rows(path):
        if not isinstance(record, bytes) or number != count + 1 or stored != next_link(link, record):
            return
        yield number, record, stored
        count, link = number, stored


def salvage_attachment(path: Path, number: int, name: str) -> bytes | None:
    """Read an attachment of a record that `salvage` has yielded; None if it is not there as the record says."""
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.DatabaseError):
        row = connection.execute("SELECT record FROM entries WHERE number = ?", (number,)).fetchone()
        value = connection.execute(_ATTACHED, (number, name)).fetchone()
        if row and value and _is_blob(value[0]):
            named = own_json(row[0]).get("attached", {}).get(name)
            return bytes(value[0]) if attachment_digests({name: value[0]})[name] == named else None
    return None


def set_aside(stem: Path) -> None:
    """Move the files of a chain into a new folder beside it."""
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
    """Yield the rows of a file's chain, as far as SQLite can read them."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path)) as connection:
            yield from connection.execute("SELECT number, record, link FROM entries ORDER BY number")
    except sqlite3.DatabaseError:
        return


def begin_chain(
    stem: Path, schema: Schema, first: ChainRecord, *, replaces: bool, more: Sequence[NewRecord] = ()
) -> None:
    """Begin a chain with its first records. If it is interrupted, either all of it is there or nothing has begun.

    With ``replaces``, an existing chain is set aside once the new one is on disk. Raises LedgerError where any file of
    a chain exists otherwise, UnavailableError where the new one cannot be written.
    """
    with writing(f"the {schema.name}"):
        stem.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(stem.parent):
            _finish(stem)
            if _present(stem) and not replaces:
                raise LedgerError(f"there is a {schema.name} in {stem.parent} already, or a part of one")
            draft = stem.parent / f".{stem.name}.new"
            shutil.rmtree(draft, ignore_errors=True)
            try:
                _write(draft / stem.name, schema, [(first, {}), *more])
                draft.rename(_written(stem))
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
            sync_directory(stem.parent)
            _finish(stem)


def check_begun(stem: Path, schema: Schema, *, missing: str, recover: str) -> None:
    """Raise LedgerError where there is no chain, or only a part of one.

    The error says what to do about a ``missing`` chain, and which command can ``recover`` a part of one.
    """
    if not has_begun(stem):
        raise LedgerError(f"there is no {schema.name} in {stem.parent}: {missing}")
    present = _present(stem)
    if present == [f"{stem.name}.db"]:
        schema.check_kind(stem.with_suffix(".db"), _application(stem.with_suffix(".db"), schema))
    if len(present) == 1:
        raise LedgerError(f"of the {schema.name} in {stem.parent} only {present[0]} is left: run {recover}")


def _application(path: Path, schema: Schema) -> int:
    """Return the number that marks a file's kind; that of the schema for a file that cannot be read."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.DatabaseError:
        return schema.application
    return int(application)


def finish_beginning(stem: Path) -> None:
    """Move a chain into place whose beginning was interrupted after it had been written; call it before reading files.

    Raises UnavailableError where it cannot be moved.
    """
    if _written(stem).exists():
        with writing(stem), locked(stem.parent):
            _finish(stem)


def has_begun(stem: Path) -> bool:
    """Return whether any file of a chain exists; raises as `finish_beginning` does."""
    finish_beginning(stem)
    return bool(_present(stem))


def _present(stem: Path) -> list[str]:
    """Return the names of a chain's files that exist."""
    return [path.name for end in (".db", ".head") if (path := stem.with_suffix(end)).exists()]


def _written(stem: Path) -> Path:
    """Return the folder of a chain that is completely written, and not yet in place."""
    return stem.parent / f".{stem.name}.written"


def _finish(stem: Path) -> None:
    """Move a completely written chain into place; continues a move that was interrupted."""
    written = _written(stem)
    if not written.exists():
        return
    head, database = (written / stem.name).with_suffix(".head"), (written / stem.name).with_suffix(".db")
    if head.exists():
        set_aside(stem)
        head.rename(stem.with_suffix(".head"))
    if database.exists():
        database.rename(stem.with_suffix(".db"))
    sync_directory(stem.parent)
    shutil.rmtree(written)


def _write(stem: Path, schema: Schema, records: Sequence[NewRecord]) -> None:
    """Write a chain of these records to files that hold all of it; raises UnavailableError."""
    chain = Chain(stem, schema, lambda _number, _record: None)
    try:
        with chain.transaction() as appending:
            for record, attachments in records:
                appending.append(record, attachments)
    finally:
        chain.close()
    if stem.with_suffix(".db-wal").exists():  # closing a database empties its log, or fails silently
        raise UnavailableError(f"the {schema.name} cannot be written: its disk is full")
