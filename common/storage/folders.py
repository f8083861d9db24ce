"""Folders on a disk: their locks, and one of the owner's for what does not fit into memory.

That one is shut to others, and empty once the work is done.
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
