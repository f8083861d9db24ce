"""The files that a process has open, and whether the names that it opened them by are still theirs.

A name can go to another file while the first is open: something is renamed over it (as rsync and restore tools do), it
is deleted, its folder is moved away, or something is mounted there. The process would go on reading and writing a file
that nobody else finds and that is gone with the process.

A folder of the owner's for what does not fit into memory: shut to others, and empty once the work is done.

Room on the disk that is kept for what is to be written next.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from parley.common.errors import InvalidInputError, UnavailableError

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
            import structlog  # noqa: PLC0415 -- asyncio with it, beside a shard that is being loaded

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


_PREFIX = "parley-scratch-"


@contextmanager
def scratch_folder(within: Path, key: str) -> Iterator[Path]:
    """A new folder, mode 0700, that is removed in the end; and whatever processes that were killed have left there.

    Raises InvalidInputError, which names the setting ``key``, unless ``within`` is a folder of this user's that nobody
    else may open and that can be written to.
    """
    check_private_folder(within, key)
    with ExitStack() as stack:
        try:
            with locked(within):  # so that nobody takes a folder that is not locked yet for one that was left
                for left in within.glob(f"{_PREFIX}*"):
                    with suppress(BlockingIOError), locked(left, fcntl.LOCK_NB):
                        shutil.rmtree(left)
                made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=within))
                stack.enter_context(locked(made))
        except OSError as error:
            raise InvalidInputError(f"{key}: {within} cannot be written: {error.strerror}") from None
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        yield made


def check_private_folder(path: Path, key: str) -> None:
    """Raise InvalidInputError, which names the setting, unless it is a folder of this user's, shut to all others."""
    try:
        found = path.stat()
    except OSError as error:
        raise InvalidInputError(f"{key}: {path}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise InvalidInputError(f"{key}: {path} is no folder")
    if found.st_uid != os.geteuid():
        raise InvalidInputError(f"{key}: {path} belongs to another user")
    if found.st_mode & 0o077:
        raise InvalidInputError(f"{key}: others can open {path}: chmod 700 {path}")


@contextmanager
def locked(folder: Path, flag: int = 0) -> Iterator[None]:
    """Hold a folder's lock, which goes with the process; raises BlockingIOError by LOCK_NB where another holds it."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | flag)
        yield
    finally:
        os.close(opened)


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
