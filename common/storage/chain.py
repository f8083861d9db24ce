"""An append-only chain of records on disk: each link is a hash over the link before and over the record.

So one link names all that the chain holds up to there. A record is canonical JSON; bytes that are too long for it are
*attachments*, whose SHA-256 the record names, and which are compared with it whenever they are read. All that a
service knows it works out from its records, which it reads once when it starts and as they are added: there is nothing
stored that a link does not cover. Links stay in memory (see `Links`), so a record that is changed later is noticed when
it is read again.

The newest head also stands in a file beside the database, by which an old copy of the database alone is known.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeGuard

from parley.common.encoding.canonical_json import canonical, own_json
from parley.common.errors import LedgerError
from parley.common.protocol.head import Head
from parley.common.storage.head_file import HeadFile
from parley.common.storage.links import LINK_BYTES, Links
from parley.common.storage.sqlite import Database, Schema

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
