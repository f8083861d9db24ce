"""Turns of processes that write to one database, in about the order in which they asked.

Two locks on two files beside the database, which the system takes back from a process that dies. A writer holds the
first, the queue, until it has the second, and lets go of that once it has written: so a process that writes
again and again has to queue behind those that wait, and none of them waits for ever. `flock` holds between processes of
one machine: a database must lie on a disk of this machine (SQLite's own log asks for the same).
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

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
