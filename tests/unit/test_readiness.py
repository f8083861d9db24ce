"""One look at whether a service can work stands for a quarter of a second, and for all who ask meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from parley.common.errors import UnavailableError
from parley.common.service.readiness import Readiness


class Disk:
    """What is looked at: it may be full, and looks may wait for it."""

    def __init__(self) -> None:
        self.looks = 0
        self.is_full = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def look(self) -> None:
        self.looks += 1
        await self.answers.wait()
        if self.is_full:
            raise UnavailableError("the disk is full")


async def test_a_good_look_and_a_bad_one_stand_for_a_quarter_of_a_second() -> None:
    disk, now = Disk(), [0.0]
    ready = Readiness(disk.look, lambda: now[0])
    for _ in range(3):
        await ready()
    disk.is_full = True
    now[0] += 0.24
    await ready()
    assert disk.looks == 1
    now[0] += 0.02
    for _ in range(2):
        with pytest.raises(UnavailableError, match="the disk is full"):
            await ready()
    assert disk.looks == 2
    disk.is_full = False
    now[0] += 0.25
    await ready()
    assert disk.looks == 3


async def test_all_who_ask_wait_for_one_look_even_if_the_first_gives_up() -> None:
    disk, now = Disk(), [0.0]
    ready = Readiness(disk.look, lambda: now[0])
    disk.answers.clear()
    with suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await ready()
    others = [asyncio.create_task(ready()) for _ in range(100)]
    await asyncio.sleep(0)
    now[0] += 5.0
    disk.answers.set()
    await asyncio.gather(*others, ready())
    assert disk.looks == 1
