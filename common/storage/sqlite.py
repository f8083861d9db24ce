"""SQLite, set up to survive a crash and a power cut, and to let nobody race.

Write-ahead log with ``synchronous=FULL``: a commit is on the disk before it returns. Every transaction is ``BEGIN
IMMEDIATE``: it takes the write lock at once, so that what it read still holds when it writes. A process has one
connection, lent to one thread at a time (to close a connection that a thread uses crashes the process). SQLite before
3.51.3 may corrupt its log when two connections write and checkpoint at once, be they of one process or of two, so
processes take `WriterTurns` at whole transactions, within which all checkpoints are. Files carry the version of their
tables: an unknown one is refused, an older one is migrated.

What is committed counts only where somebody will find it: the names of the file and of its lock are looked at before a
transaction, and those of all open files at its end (see `OpenFiles`). A mismatch is an error, and from then on
nothing is read or written while it lasts.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from parley.common.errors import ParleyError, UnavailableError, VersionError
from parley.common.storage.fair_lock import FairLock
from parley.common.storage.open_files import OpenFiles
from parley.common.storage.room import keep_room, why_unwritable
from parley.common.storage.turns import WriterTurns

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA secure_delete = ON",  # what is deleted is overwritten: pads' seeds, sums that were opened
)

_PASSING = tuple(f"SQLITE_{kind}" for kind in ("BUSY", "LOCKED", "FULL", "IOERR", "CANTOPEN", "READONLY", "PERM"))
"""What SQLite calls troubles that may pass; what else it says is wrong with the file itself."""
_NO_ROOM = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"})
"""What SQLite calls a disk that is full: for the file, and for the memory that connections to it share."""

_LOG = "-wal"
_ALL_FILES = ("", _LOG, "-shm")
"""What the names of SQLite's own files end in: the database, its log, the memory that connections share."""
_FRAME_HEAD = 24  # bytes before each page in the log
_LEAST_ROOM = 2**20  # bytes for what goes with the largest answer: records, receipts, pages of trees


def is_full(error: sqlite3.Error) -> bool:
    """Whether what failed is that the disk has no room."""
    return getattr(error, "sqlite_errorname", "") in _NO_ROOM


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one kind of file.

    ``name`` says in words what the file is; ``application`` is the number that SQLite keeps in it as the kind of file.
    ``tables`` make an empty one of this ``version``; ``migrations`` lead to each later version from the one before, and
    may call ``functions`` by name.
    """

    name: str
    application: int
    version: int
    tables: Sequence[str]
    migrations: Mapping[int, Sequence[str]] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


class Database:
    """The process's only connection to a file. Threads wait for each other, as processes do.

    Every method raises UnavailableError while the file cannot be used, or is not the one that its name stands for, and
    once it is closed; ``damaged`` is the error for a file that is no database, or one that was changed.
    """

    def __init__(
        self, path: Path, schema: Schema, *, damaged: type[ParleyError] = UnavailableError, busy_seconds: float = 5.0
    ) -> None:
        """Open the file, or make it, readable by its owner alone; raises VersionError for one of an unknown version."""
        self.path = path
        self.files = OpenFiles(schema.name)
        self._schema = schema
        self._understood = _Understood(schema.name, damaged)
        self._lock = FairLock()
        with self._understood:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with suppress(FileExistsError):  # to close a file that is there gives up all of this process's locks on it
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            self._turns = WriterTurns(path, busy_seconds)
            try:
                self._connection = sqlite3.connect(
                    path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
                )
            except BaseException:
                self._turns.close()
                raise
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        structlog.get_logger().info("database", path=str(path), sqlite=sqlite3.sqlite_version)

    @contextmanager
    def transaction(
        self, read_back: Callable[[sqlite3.Connection], None] = lambda _: None
    ) -> Iterator[sqlite3.Connection]:
        """One transaction, committed at the end, rolled back by whatever is raised.

        ``read_back`` reads what was committed before any other thread.
        """
        with self._lock, self._understood, self._turns:
            connection = self._connection
            self.files.check_first(self.path, self._turns.path)  # else others may write, here or there, meanwhile
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self.files.check()  # a refusal may be one by the wrong file
                raise
            self.files.check()
            read_back(connection)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread: inside a transaction of this thread or without one."""
        with self._lock.briefly, self._understood:
            if not self._connection.in_transaction:
                self.files.check_first(self.path)
            yield self._connection

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Transactions of this thread, and what is done about them, before any other thread's."""
        with self._lock:
            yield

    def probe(self, room: int = 0) -> None:
        """Raise UnavailableError unless the next transaction can add so many bytes: room is kept for them and more."""
        with self.transaction() as connection:  # a version written anew is a page written, and changes nothing
            connection.execute(f"PRAGMA user_version = {self._schema.version}")
        with self._lock, self._understood, self._turns:
            _, frames, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            (page,) = self._connection.execute("PRAGMA page_size").fetchone()
            frames += (_LEAST_ROOM + room + room // 8) // page  # an eighth more: for what a page holds beside
            try:
                keep_room(self._named(_LOG), (frames + 1) * (page + _FRAME_HEAD))
            except OSError as error:
                why = why_unwritable(error)
                raise UnavailableError(f"the {self._schema.name} cannot be written: {why}") from None

    def close(self) -> None:
        """Close the file, once no thread uses it."""
        with self._lock:
            if self.files.are_others:  # SQLite would write its log into what others have put there, or delete theirs
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # so it is let go of as by a crash
            else:
                self._connection.close()
            self._turns.close()

    def _named(self, end: str) -> Path:
        """The path of one of the files."""
        return self.path.with_name(self.path.name + end)

    def _open(self) -> None:
        """Have the tables, and all files open whose names are to be watched."""
        with self._understood, self._turns:
            self.files.watch(self.path)
            for pragma in _PRAGMAS:
                self._connection.execute(pragma)
            self._connection.execute("BEGIN IMMEDIATE")  # which opens the log and the shared memory
            self._connection.execute("ROLLBACK")
            self.files.check()
            for end in _ALL_FILES:
                self.files.watch(self._named(end))
            self.files.watch(self._turns.path, self._turns.lock)
        with self.transaction() as connection:
            self._migrate(connection)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Have the tables of this version, from an empty file or from an older version."""
        schema = self._schema
        for name, function in schema.functions.items():
            connection.create_function(name, -1, function, deterministic=True)
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        if is_empty:
            steps = [schema.tables]
        elif application != schema.application:
            raise VersionError(f"{self.path} is not a {schema.name}, or one that no version of Parley reads any more")
        elif not 1 <= version <= schema.version:
            raise VersionError(
                f"{self.path} is a {schema.name} of version {version}; this Parley reads 1 to {schema.version}: "
                "use the Parley that wrote it, or a newer one"
            )
        else:
            steps = [schema.migrations[later] for later in range(version + 1, schema.version + 1)]
        for statement in (statement for step in steps for statement in step):
            connection.execute(statement)
        if steps:
            connection.execute(f"PRAGMA application_id = {schema.application}")
            connection.execute(f"PRAGMA user_version = {schema.version}")


@dataclass(frozen=True, slots=True)
class _Understood:
    """A context in which what SQLite and the file system raise about a file of this ``name`` is Parley's errors."""

    name: str
    damaged: type[ParleyError]

    def __enter__(self) -> None:
        """Nothing is done before."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Raise the error in Parley's words, if it is one of those."""
        match error:
            case UnicodeDecodeError():  # a name in the file that is none, in SQLite's own words
                raise self.damaged(f"the {self.name}'s database is damaged") from None
            case sqlite3.Error():
                raise self._of_sqlite(error) from None
            case TimeoutError():
                raise UnavailableError(f"the {self.name} is busy: another process writes to it") from None
            case OSError():
                raise UnavailableError(f"the {self.name} cannot be opened: {error.strerror}") from None

    def _of_sqlite(self, error: sqlite3.Error) -> ParleyError:
        kind = getattr(error, "sqlite_errorname", "")
        if isinstance(error, sqlite3.ProgrammingError) or kind.startswith(_PASSING):  # the first: it is closed
            why = "cannot be written: its disk is full" if is_full(error) else "is busy or cannot be written"
            return UnavailableError(f"the {self.name} {why}")
        return self.damaged(f"the {self.name}'s database is damaged")
