"""A lock that threads get in the order in which they asked: one that writes again and again keeps no reader out."""

from __future__ import annotations

import threading
from collections import deque
from typing import Self

_HANDED_OVER = 0  # no thread's identifier: the next owner has been woken, and has yet to run


class FairLock:
    """A reentrant lock, as a context manager.

    >>> lock = FairLock()
    >>> with lock, lock:
    ...     pass
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        own = threading.get_ident()
        if self._owner != own:
            with self._guard:
                gate = None if self._owner is None else threading.Lock()
                if gate is None:
                    self._owner = own
                else:
                    gate.acquire()
                    self._waiting.append(gate)
            if gate is not None:
                self._wait_at(gate)
                self._owner = own
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            with self._guard:
                self._hand_over()

    def _wait_at(self, gate: threading.Lock) -> None:
        """Wait until a gate is opened; who is interrupted meanwhile leaves the queue as it was."""
        try:
            gate.acquire()
        except BaseException:
            with self._guard:
                if gate in self._waiting:
                    self._waiting.remove(gate)
                else:
                    self._hand_over()
            raise

    def _hand_over(self) -> None:
        """Have the next one own the lock, or nobody."""
        self._owner = _HANDED_OVER if self._waiting else None
        if self._waiting:
            self._waiting.popleft().release()
