"""Whether a service can do its work: one look for all who ask, at most four times a second.

A look writes to the database and waits for the disk, as a round does, and a party's is a piece of work in the thread
that answers rounds. It belongs there: the ledger has one writer, so in another thread it would hold up rounds as much,
and it shows that this thread goes on. But everybody may ask for it, without a token: by ``/readyz`` and ``/metrics``.
So what a second of asking costs rounds must not grow with how many ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from parley.common.errors import ParleyError

_FRESH = 0.25  # seconds for which what a look showed stands


class Readiness:
    """Raises the ParleyError of the last look, if it raised one; looks again if that was a quarter of a second ago."""

    def __init__(self, look: Callable[[], Awaitable[None]], clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._clock = look, clock
        self._looking: asyncio.Task[None] | None = None
        self._problem: ParleyError | None = None
        self._seen_at: float | None = None

    async def __call__(self) -> None:
        """Raise the ParleyError that says why the service cannot do its work."""
        if self._seen_at is None or self._clock() - self._seen_at >= _FRESH:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._see())
            await asyncio.shield(self._looking)  # one who waits no longer does not end it for others
        if self._problem is not None:
            raise self._problem

    async def _see(self) -> None:
        problem = None
        try:
            await self._look()
        except ParleyError as error:
            problem = error
        self._problem, self._seen_at = problem, self._clock()
