"""Work beside the event loop: in order, to its end, and told to all who still wait."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import closing

import pytest

from parley.common.service.worker import Worker


async def test_pieces_are_done_in_the_order_in_which_they_come() -> None:
    done: list[tuple[int, str]] = []
    with closing(Worker("test")) as worker:
        pieces = [worker.do(lambda n=n: done.append((n, threading.current_thread().name))) for n in range(50)]  # type: ignore[misc]
        await asyncio.gather(*pieces)
    assert done == [(number, "test_0") for number in range(50)]


async def test_what_goes_wrong_is_told_to_who_waits_and_stops_nobody_else() -> None:
    with closing(Worker("test")) as worker:
        with pytest.raises(ZeroDivisionError):
            await worker.do(lambda: 1 // 0)
        assert await worker.do(lambda: 7) == 7


async def test_work_goes_to_its_end_though_nobody_waits_any_more() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(10)
        ended.set()

    with closing(Worker("test")) as worker:
        waiting = asyncio.create_task(worker.do(work))
        await asyncio.to_thread(begun.wait, 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not ended.is_set()
        may_end.set()
        assert await worker.do(lambda: "next") == "next"
        assert ended.is_set()


async def test_it_closes_when_all_that_was_begun_is_done() -> None:
    done: list[int] = []

    def slow(number: int) -> None:
        time.sleep(0.01)
        done.append(number)

    worker = Worker("test", threads=3)
    tasks = [asyncio.create_task(worker.do(lambda n=n: slow(n))) for n in range(9)]  # type: ignore[misc]
    await asyncio.sleep(0)
    await asyncio.to_thread(worker.close)
    assert sorted(done) == list(range(9))
    await asyncio.gather(*tasks)
    with pytest.raises(RuntimeError, match="closed"):
        await worker.do(lambda: 1)


async def test_several_threads_do_not_wait_for_each_other() -> None:
    both = threading.Barrier(2, timeout=10)
    with closing(Worker("test", threads=2)) as worker:
        await asyncio.gather(worker.do(both.wait), worker.do(both.wait))


def test_a_loop_that_is_gone_is_no_trouble() -> None:
    may_end = threading.Event()
    with closing(Worker("test")) as worker:

        async def leave() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(worker.do(lambda: may_end.wait(10)), 0.01)

        asyncio.run(leave())
        may_end.set()
        assert asyncio.run(worker.do(lambda: 7)) == 7
