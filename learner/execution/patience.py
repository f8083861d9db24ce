"""How long a run that cannot go on is tried again: with growing pauses, until the operator's patience is spent."""

from __future__ import annotations

import asyncio
from contextlib import suppress

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 60.0  # seconds: doubled each time


class Patience:
    """Pauses of ``seconds`` in all, counted as they are slept: time in which this process was stopped does not count.

    >>> patience = Patience(0.02)
    >>> asyncio.run(patience.rest()), patience.is_spent
    (0.02, True)
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._woken = asyncio.Event()
        self.renew()

    @property
    def is_spent(self) -> bool:
        """Whether there is none left."""
        return self._left <= 0

    def renew(self) -> None:
        """Have all of it again: the run has moved, or somebody has asked for it."""
        self._left, self._pause = self._seconds, _FIRST_PAUSE

    def wake(self) -> None:
        """End the pause in progress, if there is one, and renew the patience."""
        self.renew()
        self._woken.set()

    async def rest(self) -> float:
        """Sleep until it is time to try again, or until woken; the seconds that were meant."""
        seconds = self._pause if self.is_spent else min(self._pause, self._left)
        self._left -= seconds
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        return seconds
