"""One thread beside the event loop, for work that must not hold the loop and must be done one piece after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


class Worker:
    """Does pieces of work in one thread, in the order in which they come."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def do(self, work: Callable[[], _T]) -> _T:
        """Do some work when those before are done; it is done to its end even if nobody waits for it any more."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Finish what was begun."""
        self._thread.shutdown()
