"""Private folders, locks of folders, and scratch folders.

A scratch folder holds what does not fit into memory: it is closed to others, and removed after the work.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from parley.common.errors import InvalidInputError

_PREFIX = "parley-scratch-"


@contextmanager
def scratch_folder(within: Path, key: str) -> Iterator[Path]:
    """Make a new folder, mode 0700, that is removed at the end, as are those that killed processes have left.

    Raises InvalidInputError, which names the setting ``key``, unless ``within`` is a folder of this user that nobody
    else may open and that can be written to.
    """
    check_private_folder(within, key)
    with ExitStack() as stack:
        try:
            with locked(within):  # so that nobody removes a new folder before it is locked
                for abandoned in within.glob(f"{_PREFIX}*"):
                    with suppress(BlockingIOError), locked(abandoned, fcntl.LOCK_NB):
                        shutil.rmtree(abandoned)
                folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=within))
                stack.enter_context(locked(folder))
        except OSError as error:
            raise InvalidInputError(f"{key}: {within} cannot be written: {error.strerror}") from None
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def check_private_folder(path: Path, key: str) -> None:
    """Raise InvalidInputError, which names the setting, unless a folder is this user's and closed to others."""
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidInputError(f"{key}: {path}: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidInputError(f"{key}: {path} is no folder")
    if status.st_uid != os.geteuid():
        raise InvalidInputError(f"{key}: {path} belongs to another user")
    if status.st_mode & 0o077:
        raise InvalidInputError(f"{key}: others can open {path}: chmod 700 {path}")


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, each with mode 0700; raises OSError."""
    for one in (*reversed(folder.parents), folder):
        one.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def locked(folder: Path, flag: int = 0) -> Iterator[None]:
    """Lock a folder until the block or the process ends; with LOCK_NB, raise BlockingIOError where it is locked."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | flag)
        yield
    finally:
        os.close(opened)
