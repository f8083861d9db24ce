"""A chain's head as a service keeps it outside its database, to know an old copy of the database by.

The file is written after each commit and before the answer is sent, in place and of fixed length, so that it is never
torn. It may lag behind the database, by a crash in between or by a power cut, and never runs ahead of it: if it does,
the database is an old copy.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from common.errors import LedgerError
from common.protocol.head import Head

_LINE = re.compile(rb"(\d{20}) ([0-9a-f]{64})\n")


class HeadFile:
    """The file that names the newest head that a service showed anyone."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)

    def read(self) -> Head | None:
        """The head; None in a new file. Raises LedgerError when the file holds something else."""
        content = os.pread(self._descriptor, 4096, 0)
        line = _LINE.fullmatch(content)
        if content and not line:
            raise LedgerError("the head file is damaged")
        return Head(int(line[1]), line[2].decode()) if line else None

    def write(self, head: Head) -> None:
        """Replace the head."""
        os.pwrite(self._descriptor, f"{head.count:020d} {head.link}\n".encode(), 0)

    def sync(self) -> None:
        """Have the file on the disk, so that all later writes leave its length as it is."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
