"""SQLite, set up to survive a crash or a power cut, and to be shared by threads and processes.

Durability: write-ahead log with ``synchronous=FULL``: a commit is on disk before it returns. Every transaction is
``BEGIN IMMEDIATE``: it takes the write lock at once, so that what it has read still holds when it writes. Files carry
the version of their tables: an unknown version is refused, an older one is migrated.

Threads: a process has one connection, lent to one thread at a time by a `FairLock` (closing a connection that a thread
uses crashes the process). Readers and writers wait in two lines, each served in order, and the lines alternate: a
thread that writes again and again keeps no reader out, and a reader waits for a writer or two, however many there are.

Processes: SQLite before 3.51.3 may corrupt its log when two connections write and checkpoint at once, in one process or
in two. So processes take turns (`WriterTurns`) for whole transactions, which include all checkpoints. The turns are two
locks on two files beside the database, which the system releases when a process dies. A writer holds the first, the
queue, until it has the second, and releases that once it has written. So a process that writes again and again queues
behind the others, and turns come in about the order of requests. `flock` works between processes of one machine: a
database must be on a disk of this machine (SQLite's own log needs the same).

Files: a commit counts only if somebody can find it. The names of the file and of its lock are checked before a
transaction, and those of all open files at its end (`OpenFiles`). A name can come to refer to another file: something
is renamed over it (as rsync and restore tools do), it is deleted, its folder is moved away, or something is mounted
there. The process would go on reading and writing a file that nobody else sees and that disappears with the process. A
mismatch is an error, and nothing is read or written while it lasts. `keep_room` reserves disk space for the next write.

Damage: a disk, an interrupted copy, or somebody with an editor may change any byte. Rows are decoded within `decoding`,
so that each error of a decoder becomes a DamagedError, and none of them blames a request.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import shutil
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import structlog

from parley.common.errors import DamagedError, NotFoundError, ParleyError, UnavailableError, VersionError

_ADVICE = (
    "stop the service, put the newest files in place together, and start it again: it checks what it finds; a file "
    "that was moved may be moved back while the service runs"
)


class OpenFiles:
    """Open files by name; ``subject`` is what errors call them together."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._identities: dict[str, tuple[int, int]] = {}
        self._logged: str | None = None

    def watch(self, path: Path, descriptor: int | None = None) -> None:
        """Watch the name of a file: the one that is open as ``descriptor``, or the one that the name refers to now."""
        status = os.stat(path) if descriptor is None else os.fstat(descriptor)  # noqa: PTH116 -- one way for both
        self._identities[str(path)] = (status.st_dev, status.st_ino)

    def check(self) -> None:
        """Raise UnavailableError where a name no longer refers to the open file; the log says what to do."""
        for path, identity in self._identities.items():
            if _identity(path) != identity:
                raise self._replaced(path)
        self._logged = None

    def check_first(self, *paths: Path) -> None:
        """Check some names only; check all names once any of them has failed, so that no work goes on meanwhile."""
        if self._logged is not None:
            self.check()
        for name in map(str, paths):
            if _identity(name) != self._identities[name]:
                raise self._replaced(name)

    def _replaced(self, path: str) -> UnavailableError:
        """Return the error for a name that refers to another file, and log it once."""
        if self._logged != path:
            self._logged = path
            structlog.get_logger().error("replaced", what=self._subject, path=path, advice=_ADVICE)
        return UnavailableError(
            f"a file of the {self._subject} was replaced, moved or deleted while it was open: nothing is read from it "
            "or written until its service is started again"
        )

    @property
    def are_others(self) -> bool:
        """Whether a name refers to another file now, rather than to none."""
        now = {path: _identity(path) for path in self._identities}
        return any(now[path] not in {None, identity} for path, identity in self._identities.items())


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode that a name refers to; None where it cannot be read."""
    try:
        status = os.stat(path)  # noqa: PTH116 -- for each file in each transaction: a Path costs as much as the call
    except OSError:
        return None
    return status.st_dev, status.st_ino


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PIECE = 2**20
_ZEROS = bytes(_PIECE)


def keep_room(path: Path, size: int) -> None:
    """Make a file at least ``size`` bytes long, on blocks of its own, in a folder that can be written to.

    The new part is filled with zeros: syncing later writes over them takes about half the time that it takes on blocks
    that were never written. Raises OSError where the disk or a quota is full, the process may not write a file that
    long, or the folder cannot be written to.
    """
    longest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if longest != resource.RLIM_INFINITY and size > longest:
        raise OSError(errno.EFBIG, f"this process may write no file longer than {longest:,} bytes (RLIMIT_FSIZE)")
    if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise OSError(errno.EACCES, "its folder cannot be written to")
    descriptor = os.open(path, os.O_WRONLY)
    try:
        if (length := os.fstat(descriptor).st_size) < size:
            os.posix_fallocate(descriptor, length, size - length)
            for start in range(length, size, _PIECE):
                os.pwrite(descriptor, _ZEROS[: size - start], start)
    finally:
        os.close(descriptor)


def write_failure(error: OSError) -> str:
    """Return the reason why a write failed, in words."""
    return "its disk is full" if error.errno in _FULL else f"{error.strerror}"


_HANDED_OVER = 0  # no thread's identifier: the next owner is released and has not run yet
_LONG, _BRIEF = range(2)  # the two lines of waiting threads


class FairLock:
    """A reentrant lock, as a context manager for long work; `briefly` is the one for short work.

    >>> lock = FairLock()
    >>> with lock, lock.briefly, lock:
    ...     pass
    """

    def __init__(self) -> None:
        self.briefly = _Briefly(self)
        self._guard = threading.Lock()
        self._lines = (deque[threading.Lock](), deque[threading.Lock]())
        self._next = _LONG  # the line that is served next, if anybody waits in it
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        self.take(_LONG)
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def take(self, line: int) -> None:
        """Take the lock once it is free, through one of the lines; at once if this thread has it."""
        thread = threading.get_ident()
        if self._owner != thread:
            with self._guard:
                gate = None if self._owner is None else threading.Lock()
                if gate is None:
                    self._owner = thread
                else:
                    gate.acquire()
                    self._lines[line].append(gate)
            if gate is not None:
                self._wait_at(gate, line)
                self._owner = thread
        self._depth += 1

    def give_back(self) -> None:
        """Release the lock, if this is the outermost block of the thread."""
        self._depth -= 1
        if not self._depth:
            with self._guard:
                self._hand_over()

    def _wait_at(self, gate: threading.Lock, line: int) -> None:
        """Wait until a gate is opened; a thread that is interrupted meanwhile leaves the line."""
        try:
            gate.acquire()
        except BaseException:
            with self._guard:
                if gate in self._lines[line]:
                    self._lines[line].remove(gate)
                else:
                    self._hand_over()
            raise

    def _hand_over(self) -> None:
        """Make the next thread the owner, or nobody."""
        line = self._next if self._lines[self._next] else 1 - self._next
        if self._lines[line]:
            self._owner, self._next = _HANDED_OVER, 1 - line
            self._lines[line].popleft().release()
        else:
            self._owner = None


class _Briefly:
    """The lock for work that is short."""

    def __init__(self, lock: FairLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.take(_BRIEF)

    def __exit__(self, *_: object) -> None:
        self._lock.give_back()


_PAUSE = 0.0005  # seconds between two attempts to lock; a process that is not the next to write tries less often
_LONGEST_PAUSE = 0.01


class WriterTurns:
    """The turns of processes at a database, each a context; raises OSError where the lock files cannot be made."""

    def __init__(self, path: Path, seconds: float) -> None:
        """Open the lock files, or create them; ``seconds`` is how long to wait for a turn."""
        self._seconds = seconds
        self.path = path.with_name(f"{path.name}-lock")
        self.lock = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            self._queue = os.open(path.with_name(f"{path.name}-queue"), os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:
            os.close(self.lock)
            raise
        self._is_closed = False

    def __enter__(self) -> None:
        """Take a turn; raises TimeoutError where none came in time. For one thread of a process at a time."""
        deadline = time.monotonic() + self._seconds
        _take(self._queue, deadline, _LONGEST_PAUSE)
        try:
            _take(self.lock, deadline, _PAUSE)
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)

    def __exit__(self, *_: object) -> None:
        """End the turn."""
        fcntl.flock(self.lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self.lock)
            os.close(self._queue)


def _take(descriptor: int, deadline: float, longest_pause: float) -> None:
    """Lock a file once it is free; raises TimeoutError."""
    pause = _PAUSE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError from None
            time.sleep(pause)
            pause = min(2 * pause, longest_pause)
        else:
            return


_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA secure_delete = ON",  # overwrites deleted content: seeds of pads, opened sums
)

_MOST_UNUSED = 0.25  # of a file's pages, beyond which it is rewritten

_PASSING = tuple(f"SQLITE_{kind}" for kind in ("BUSY", "LOCKED", "FULL", "IOERR", "CANTOPEN", "READONLY", "PERM"))
"""SQLite's names of temporary troubles; all others are faults of the file itself."""
_NO_ROOM = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"})
"""SQLite's names of a full disk: for the file, and for the memory that its connections share."""

_LOG = "-wal"
_ALL_FILES = ("", _LOG, "-shm")
"""Endings of the names of SQLite's files: the database, its log, and the memory that connections share."""
_FRAME_HEAD = 24  # bytes before each page in the log
_LEAST_ROOM = 2**20  # bytes beside the largest answer: records, receipts, pages of trees


def is_full(error: sqlite3.Error) -> bool:
    """Return whether an error means that the disk has no room."""
    return getattr(error, "sqlite_errorname", "") in _NO_ROOM


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one kind of file.

    ``name`` is the kind in words; ``application`` is the number by which SQLite marks it. ``tables`` create an empty
    file of this ``version``; ``migrations`` lead to each later version from the previous one, the ``oldest`` first, and
    may call ``functions`` by name. ``way_out`` says in words what to do about an older file.
    """

    name: str
    application: int
    version: int
    tables: Sequence[str]
    migrations: Mapping[int, Sequence[str]] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    oldest: int = 1
    way_out: str = ""

    def check_kind(self, path: Path, application: int) -> None:
        """Raise VersionError for a file that is marked by another number: the first versions marked none."""
        if application != self.application:
            raise VersionError(
                f"{path} is not a {self.name} that this Parley reads: it is another file, or the first versions of "
                f"Parley wrote it. Nothing in it was changed. {self.way_out}".rstrip()
            )

    def check_version(self, path: Path, version: int) -> None:
        """Raise VersionError, which says what to do, for a version that cannot be migrated to this one."""
        if not self.oldest <= version <= self.version:
            way_out = self.way_out if version < self.oldest else "Use the Parley that wrote it, or a newer one"
            raise VersionError(
                f"{path} is a {self.name} of version {version}; this Parley reads {self.oldest} to {self.version}. "
                f"Nothing in it was changed. {way_out}"
            )


class Database:
    """The process's only connection to a file. Threads wait for each other, as processes do.

    Every method raises UnavailableError while the file cannot be used, or its name refers to another file, and once it
    is closed; ``damaged`` is the error for a file that is no database, or was changed.
    """

    def __init__(
        self, path: Path, schema: Schema, *, damaged: type[ParleyError] = UnavailableError, busy_seconds: float = 5.0
    ) -> None:
        """Open the file, or create it, readable by its owner alone; raises VersionError for an unknown version."""
        self.path = path
        self.files = OpenFiles(schema.name)
        self._schema = schema
        self._translated = _TranslatedErrors(schema.name, damaged)
        self._lock = FairLock()
        with self._translated:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with suppress(FileExistsError):  # closing an existing file would release this process's locks on it
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
        """Open one transaction, committed at the end, rolled back on any exception.

        ``read_back`` reads what was committed before any other thread does.
        """
        with self._lock, self._translated, self._turns:
            connection = self._connection
            self.files.check_first(self.path, self._turns.path)  # otherwise others may write to either file meanwhile
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self.files.check()  # the error may come from the wrong file
                raise
            self.files.check()
            read_back(connection)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection, for one thread, inside a transaction of this thread or without one."""
        with self._lock.briefly, self._translated:
            if not self._connection.in_transaction:
                self.files.check_first(self.path)
            yield self._connection

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Keep other threads out of several transactions of this thread, and of the work between them."""
        with self._lock:
            yield

    def probe(self, room: int = 0) -> None:
        """Raise UnavailableError unless the next transaction can add ``room`` bytes: more than these are reserved."""
        with self.transaction() as connection:  # writing the version again writes a page, and changes nothing
            connection.execute(f"PRAGMA user_version = {self._schema.version}")
        with self._lock, self._translated, self._turns:
            _, frames, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            (page,) = self._connection.execute("PRAGMA page_size").fetchone()
            frames += (_LEAST_ROOM + room + room // 8) // page  # an eighth more, for the rest of each page
            try:
                keep_room(self._named(_LOG), (frames + 1) * (page + _FRAME_HEAD))
            except OSError as error:
                reason = write_failure(error)
                raise UnavailableError(f"the {self._schema.name} cannot be written: {reason}") from None

    @property
    def size(self) -> int:
        """The bytes of the database, those in its log included."""
        with self.reading() as connection:
            (pages,), (page,) = (
                connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
            )
        return int(pages * page)

    def compact(self) -> int:
        """Rewrite the file without what nothing uses, if that is a quarter of it; return the bytes that the disk gets.

        Others wait meanwhile, for as long as the disk takes to write what stays three times. Less than a quarter stays
        as room for what is written next.

        The new content goes through a draft beside the file, which takes as much room as what stays: a plain VACUUM
        would have it in the system's folder for temporary files, which may be a small one in memory. From there it goes
        into the file itself, in one transaction: a crash leaves the old content or the new.
        """
        before = self.size
        with self._lock, self._translated, self._turns:
            self.files.check()
            scratch = self.path.with_name(f".{self.path.name}.compact")  # the dot keeps it out of backups
            shutil.rmtree(scratch, ignore_errors=True)  # what a killed process left
            (unused,), (pages,) = (
                self._connection.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_count")
            )
            if unused >= pages * _MOST_UNUSED:
                self._rewrite(scratch)
        return before - self.size

    def _rewrite(self, scratch: Path) -> None:
        """Rewrite the file by way of a draft in a folder that is made for it."""
        scratch.mkdir(mode=0o700)
        try:
            self._connection.execute("VACUUM INTO ?", (str(scratch / "draft"),))
            self.files.check()
            with closing(sqlite3.connect(scratch / "draft")) as draft:
                draft.backup(self._connection)
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def close(self) -> None:
        """Close the file, once no thread uses it."""
        with self._lock:
            if self.files.are_others:  # SQLite would write its log into the other file, or delete its log
                ctypes.pythonapi.Py_IncRef(
                    ctypes.py_object(self._connection)
                )  # so the connection is abandoned, as in a crash
            else:
                self._connection.close()
            self._turns.close()

    def _named(self, end: str) -> Path:
        """Return the path of one of SQLite's files."""
        return self.path.with_name(self.path.name + end)

    def _open(self) -> None:
        """Create or migrate the tables, and open all files whose names are watched."""
        with self._translated, self._turns:
            self.files.watch(self.path)
            for pragma in _PRAGMAS:
                self._connection.execute(pragma)
            self._connection.execute("BEGIN IMMEDIATE")  # this opens the log and the shared memory
            self._connection.execute("ROLLBACK")
            self.files.check()
            for end in _ALL_FILES:
                self.files.watch(self._named(end))
            self.files.watch(self._turns.path, self._turns.lock)
        with self.transaction() as connection:
            self._migrate(connection)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the tables to this version, from an empty file or an older version."""
        schema = self._schema
        for name, function in schema.functions.items():
            connection.create_function(name, -1, function, deterministic=True)
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        if is_empty:
            steps = [schema.tables]
        else:
            schema.check_kind(self.path, application)
            schema.check_version(self.path, version)
            steps = [schema.migrations[later] for later in range(version + 1, schema.version + 1)]
        for statement in (statement for step in steps for statement in step):
            connection.execute(statement)
        if steps:
            connection.execute(f"PRAGMA application_id = {schema.application}")
            connection.execute(f"PRAGMA user_version = {schema.version}")


@dataclass(frozen=True, slots=True)
class _TranslatedErrors:
    """A context that turns errors of SQLite and of the file system about a file of this ``name`` into Parley's."""

    name: str
    damaged: type[ParleyError]

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Raise Parley's error in place of one of SQLite or the file system."""
        match error:
            case UnicodeDecodeError():  # a damaged name in the file, quoted by SQLite
                raise self.damaged(f"the {self.name}'s database is damaged") from None
            case sqlite3.Error():
                raise self._of_sqlite(error) from None
            case TimeoutError():
                raise UnavailableError(f"the {self.name} is busy: another process writes to it") from None
            case OSError():
                raise UnavailableError(f"the {self.name} cannot be opened: {error.strerror}") from None

    def _of_sqlite(self, error: sqlite3.Error) -> ParleyError:
        kind = getattr(error, "sqlite_errorname", "")
        if isinstance(error, sqlite3.ProgrammingError) or kind.startswith(_PASSING):  # ProgrammingError: it is closed
            problem = "cannot be written: its disk is full" if is_full(error) else "is busy or cannot be written"
            return UnavailableError(f"the {self.name} {problem}")
        return self.damaged(f"the {self.name}'s database is damaged")


_FAULTS = (ArithmeticError, AttributeError, LookupError, ParleyError, RecursionError, TypeError, ValueError)


@contextmanager
def decoding(subject: str, remedy: str) -> Iterator[None]:
    """Decode the ``subject``, which a service wrote; raises DamagedError with the ``remedy`` where that fails.

    >>> with decoding("the row of run 7 in the table runs", "put back a copy"):
    ...     int("seven")
    Traceback (most recent call last):
    parley.common.errors.DamagedError: the row of run 7 in the table runs is damaged: put back a copy
    """
    try:
        yield
    except (DamagedError, NotFoundError, UnavailableError):  # no decoder raises these
        raise
    except _FAULTS:
        raise DamagedError(f"{subject} is damaged: {remedy}") from None
