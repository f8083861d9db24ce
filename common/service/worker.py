"""Threads beside the event loop, for work that must not hold the loop: one where it is done piece after piece."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


class Worker:
    """Does pieces of work in the order in which they come, in one thread unless there are to be more."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def do(self, work: Callable[[], _T]) -> _T:
        """Do some work when a thread is free; it is done to its end even if nobody waits for it any more."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Finish what was begun."""
        self._threads.shutdown()
