"""Threads beside the event loop, for work that would block it: a queue of pieces that are done one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

_T = TypeVar("_T")
_Piece = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Context, Callable[[], Any]]


class Worker:
    """Does pieces of work in the order in which they come, in one thread or several.

    Every round passes through here: handing over a piece costs a fraction of what an executor of the standard library
    takes, which makes two futures, one for threads and one for the loop, and chains them.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self._pieces: SimpleQueue[_Piece | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, name=f"{name}_{number}") for number in range(threads)]
        self._is_closed = False
        for thread in self._threads:
            thread.daemon = True  # `close` waits for work that has begun; a program that ends without it does not
            thread.start()

    async def do(self, work: Callable[[], _T]) -> _T:
        """Do some work when a thread is free; it is finished even if nobody waits for it any more."""
        if self._is_closed:
            raise RuntimeError("the worker is closed")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_T] = loop.create_future()
        self._pieces.put((loop, done, copy_context(), work))  # so that lines of its log name the request
        return await done

    def close(self) -> None:
        """Finish the work that has begun, and end the threads."""
        self._is_closed = True
        for _ in self._threads:
            self._pieces.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        """Do one piece after another, until the worker is closed."""
        while (piece := self._pieces.get()) is not None:
            loop, done, context, work = piece
            try:
                value, error = context.run(work), None
            except BaseException as raised:  # noqa: BLE001 -- it is raised again in the coroutine that waits
                value, error = None, raised
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(_settle, done, value, error)
            del piece, done, context, work, value, error  # no reference is kept while the thread waits


def _settle(done: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    """Give the result of a piece of work to the coroutine that waits for it."""
    if done.cancelled():
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)
