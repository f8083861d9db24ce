"""A chain's head as a service keeps it outside its database, to know an old copy of the database by.

The file is written after each commit and before the answer is sent, in place and of fixed length, so that it is never
torn. It may lag behind the database, by a crash in between or by a power cut, and never runs ahead of it: if it does,
the database is an old copy.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.common.errors import ConflictError, LedgerError, UnavailableError
from parley.common.protocol.head import Head

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
