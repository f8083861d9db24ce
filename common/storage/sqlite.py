"""SQLite, set up to survive a crash and a power cut, and to let nobody race.

Write-ahead log with ``synchronous=FULL``: a commit is on the disk before it returns. Every transaction is ``BEGIN
IMMEDIATE``: it takes the write lock at once, so that what it read still holds when it writes. A process has one
connection, lent to one thread at a time (to close a connection that a thread uses crashes the process). SQLite before
3.51.3 may corrupt its log when two connections write and checkpoint at once, be they of one process or of two, so
processes take `WriterTurns` at whole transactions, within which all checkpoints are. Files carry the version of their
tables: an unknown one is refused, an older one is migrated.

What is committed counts only where somebody will find it: the names of the file and of its lock are looked at before a
transaction, and those of all open files at its end (see `OpenFiles`). A mismatch is an error, and from then on
nothing is read or written while it lasts. A name can go to another file while the first is open: something is renamed
over it (as rsync and restore tools do), it is deleted, its folder is moved away, or something is mounted there. The
process would go on reading and writing a file that nobody else finds and that is gone with the process.

Room on the disk is kept for what is to be written next.

A lock with two lines of threads that wait: each is served in its order, and the lines in turn.

One that writes again and again keeps no reader out, and a reader waits for a writer or two, however many there are.

Turns of processes that write to one database, in about the order in which they asked.

Two locks on two files beside the database, which the system takes back from a process that dies. A writer holds the
first, the queue, until it has the second, and lets go of that once it has written: so a process that writes
again and again has to queue behind those that wait, and none of them waits for ever. `flock` holds between processes of
one machine: a database must lie on a disk of this machine (SQLite's own log asks for the same).

What a service finds damaged among what it wrote down itself: one error, whatever a decoder says of it.

A disk, a copy that was cut off, or somebody with an editor may change any byte. What is read of a row is decoded within
`decoding`, so that no error of a decoder leaves as it is, and none that says that a request was wrong.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
    """The open files of one thing, which is called ``what`` in errors, by name."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._identities: dict[str, tuple[int, int]] = {}
        self._logged: str | None = None

    def watch(self, path: Path, descriptor: int | None = None) -> None:
        """Watch the name of a file: of the one that is open as ``descriptor``, or of the one it stands for now."""
        status = os.stat(path) if descriptor is None else os.fstat(descriptor)  # noqa: PTH116 -- one way for both
        self._identities[str(path)] = (status.st_dev, status.st_ino)

    def check(self) -> None:
        """Raise UnavailableError where a name does not stand for the open file any more; the log says what to do."""
        for path, identity in self._identities.items():
            if _identity(path) != identity:
                raise self._replaced(path)
        self._logged = None

    def check_first(self, *paths: Path) -> None:
        """The same of some names; of all, once one of all was another file's, so that nothing more is done then."""
        if self._logged is not None:
            self.check()
        for name in map(str, paths):
            if _identity(name) != self._identities[name]:
                raise self._replaced(name)

    def _replaced(self, path: str) -> UnavailableError:
        """The error for a name of another file, which is logged once."""
        if self._logged != path:
            self._logged = path
            structlog.get_logger().error("replaced", what=self._what, path=path, advice=_ADVICE)
        return UnavailableError(
            f"a file of the {self._what} was replaced, moved or deleted while it was open: nothing is read from it or "
            "written until its service is started again"
        )

    @property
    def are_others(self) -> bool:
        """Whether a name stands for another file now; not where it stands for none."""
        now = {path: _identity(path) for path in self._identities}
        return any(now[path] not in {None, identity} for path, identity in self._identities.items())


def _identity(path: str) -> tuple[int, int] | None:
    """The device and the number of the file that a name stands for; None where it cannot be seen."""
    try:
        status = os.stat(path)  # noqa: PTH116 -- for each file in each transaction: a Path costs as much as the call
    except OSError:
        return None
    return status.st_dev, status.st_ino


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PIECE = 2**20
_ZEROS = bytes(_PIECE)


def keep_room(path: Path, size: int) -> None:
    """Have a file be at least ``size`` bytes long, on blocks that are its own, in a folder that can be written to.

    What it grows by is written, with zeros: to sync what is later written over them takes about half the time that it
    takes on blocks that were never written.

    Raises OSError where the disk or a quota is full, the process may write no file so long, or nothing at all there.
    """
    longest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if longest != resource.RLIM_INFINITY and size > longest:
        raise OSError(errno.EFBIG, f"this process may write no file longer than {longest:,} bytes (RLIMIT_FSIZE)")
    if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise OSError(errno.EACCES, "its folder cannot be written to")
    descriptor = os.open(path, os.O_WRONLY)
    try:
        if (there := os.fstat(descriptor).st_size) < size:
            os.posix_fallocate(descriptor, there, size - there)
            for start in range(there, size, _PIECE):
                os.pwrite(descriptor, _ZEROS[: size - start], start)
    finally:
        os.close(descriptor)


def why_unwritable(error: OSError) -> str:
    """Why nothing can be written, in words."""
    return "its disk is full" if error.errno in _FULL else f"{error.strerror}"


_HANDED_OVER = 0  # no thread's identifier: the next owner has been woken, and has yet to run
_LONG, _BRIEF = range(2)  # the lines


class FairLock:
    """A reentrant lock, as a context manager for what takes long; `briefly` is the one for what does not.

    >>> lock = FairLock()
    >>> with lock, lock.briefly, lock:
    ...     pass
    """

    def __init__(self) -> None:
        self.briefly = _Briefly(self)
        self._guard = threading.Lock()
        self._lines = (deque[threading.Lock](), deque[threading.Lock]())
        self._next = _LONG  # the line that is served next, if anybody stands in it
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        self.take(_LONG)
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def take(self, line: int) -> None:
        """Have the lock once it is free, by one of the lines, or at once if this thread has it."""
        own = threading.get_ident()
        if self._owner != own:
            with self._guard:
                gate = None if self._owner is None else threading.Lock()
                if gate is None:
                    self._owner = own
                else:
                    gate.acquire()
                    self._lines[line].append(gate)
            if gate is not None:
                self._wait_at(gate, line)
                self._owner = own
        self._depth += 1

    def give_back(self) -> None:
        """Let the next one have it, if this was the outermost of the thread's."""
        self._depth -= 1
        if not self._depth:
            with self._guard:
                self._hand_over()

    def _wait_at(self, gate: threading.Lock, line: int) -> None:
        """Wait until a gate is opened; who is interrupted meanwhile leaves the line as it was."""
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
        """Have the next one own the lock, or nobody."""
        line = self._next if self._lines[self._next] else 1 - self._next
        if self._lines[line]:
            self._owner, self._next = _HANDED_OVER, 1 - line
            self._lines[line].popleft().release()
        else:
            self._owner = None


class _Briefly:
    """The lock for what does not take long."""

    def __init__(self, lock: FairLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.take(_BRIEF)

    def __exit__(self, *_: object) -> None:
        self._lock.give_back()


_PAUSE = 0.0005  # seconds until the next look at whether a lock is free; who is not the next to write looks less often
_LONGEST_PAUSE = 0.01


class WriterTurns:
    """The turns at a database's path, each a context; raises OSError where the files cannot be made."""

    def __init__(self, path: Path, seconds: float) -> None:
        """``seconds`` is how long a turn is waited for."""
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
        """Take a turn; raises TimeoutError where none came in time. For one thread of this process at a time."""
        deadline = time.monotonic() + self._seconds
        _take(self._queue, deadline, _LONGEST_PAUSE)
        try:
            _take(self.lock, deadline, _PAUSE)
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        fcntl.flock(self.lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files; again, do nothing."""
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


_FAULTS = (ArithmeticError, AttributeError, LookupError, ParleyError, RecursionError, TypeError, ValueError)


@contextmanager
def decoding(what: str, remedy: str) -> Iterator[None]:
    """Decode ``what`` a service wrote; raises DamagedError, which names it and the ``remedy``, where that cannot be.

    >>> with decoding("the row of run 7 in the table runs", "put back a copy"):
    ...     int("seven")
    Traceback (most recent call last):
    parley.common.errors.DamagedError: the row of run 7 in the table runs is damaged: put back a copy
    """
    try:
        yield
    except (DamagedError, NotFoundError, UnavailableError):  # which no decoder raises
        raise
    except _FAULTS:
        raise DamagedError(f"{what} is damaged: {remedy}") from None
