"""A lock with two lines of threads that wait: each is served in its order, and the lines in turn.

One that writes again and again keeps no reader out, and a reader waits for a writer or two, however many there are.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Self

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
