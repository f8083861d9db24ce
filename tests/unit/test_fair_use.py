"""Shares and turns: who waits for whom, and what is said to a caller that has all it may have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from parley.common.errors import ShareUsedUpError
from parley.common.service.fair_use import CallerTurns, Share, SignIns, Turn
from parley.learner.execution.fair_use import FairUse
from parley.learner.settings import LearnerShares

Work = Callable[[Turn], Awaitable[None]]


class Order:
    """Pieces of work, which take ``steps`` looks of the loop each; ``begun`` and ``most`` say what happened."""

    def __init__(self, turns: CallerTurns, steps: int = 3) -> None:
        self.turns, self.steps = turns, steps
        self.begun, self.under_way, self.most = list[str](), dict[str, int](), dict[str, int]()

    async def work(self, caller: str) -> None:
        async with self.turns.turn(caller):
            self.begun.append(caller)
            self.under_way[caller] = self.under_way.get(caller, 0) + 1
            self.most[caller] = max(self.most.get(caller, 0), self.under_way[caller])
            for _ in range(self.steps):
                await asyncio.sleep(0)
            self.under_way[caller] -= 1

    async def do(self, *callers: str) -> None:
        await asyncio.gather(*map(self.work, callers))


async def test_a_caller_with_one_piece_of_work_waits_for_nobody() -> None:
    order = Order(CallerTurns(per_caller=1))
    await order.do(*["many"] * 1000, "one", "other")
    assert order.begun[:3] == ["many", "one", "other"]
    assert order.most == {"many": 1, "one": 1, "other": 1}


async def test_a_caller_that_is_alone_has_more_and_gives_them_up_to_others() -> None:
    order = Order(CallerTurns(per_caller=3))
    await order.do(*["many"] * 10)
    assert order.most == {"many": 3}
    order = Order(CallerTurns(per_caller=3))
    await order.do("one", *["many"] * 10)
    assert order.begun[:2] == ["one", "many"]
    assert order.most["many"] == 3, "once the other has none"
    order = Order(CallerTurns(per_caller=3, memory_seconds=3600))
    await order.do("one", *["many"] * 10)
    assert order.most == {"one": 1, "many": 1}, "while the other may come back"


async def test_a_probe_makes_nobody_rest_once_it_is_over() -> None:
    order = Order(CallerTurns(per_caller=3, memory_seconds=3600))
    async with order.turns.turn("probe", is_probe=True):
        await order.do(*["many"] * 5)
    assert order.most == {"many": 1}
    await order.do(*["many"] * 5)
    assert order.most == {"many": 3}


async def test_who_is_seen_elsewhere_is_active() -> None:
    turns = CallerTurns(per_caller=3, memory_seconds=3600)
    turns.see("one")
    order = Order(turns)
    await order.do(*["many"] * 10)
    assert order.most == {"many": 1}


async def test_who_has_more_waiting_rests_between_turns_while_others_are_active() -> None:
    turns, began, ended = CallerTurns(per_caller=1, memory_seconds=3600, rest_seconds=10), list[float](), list[float]()

    async def work() -> None:
        async with turns.turn("many"):
            began.append(time.monotonic())
            await asyncio.sleep(0.05)
            ended.append(time.monotonic())

    await asyncio.gather(*(work() for _ in range(3)))
    alone = [begin - end for begin, end in zip(began[1:], ended, strict=False)]
    turns.see("one")
    began.clear()
    ended.clear()
    await asyncio.gather(*(work() for _ in range(3)))
    beside = [begin - end for begin, end in zip(began[1:], ended, strict=False)]
    print(f"pauses alone {alone}, beside another {beside}")
    assert min(beside) >= 0.045
    assert max(alone) < min(beside)
    async with asyncio.timeout(5):
        await Order(turns).do("one", "many")
    waiting = asyncio.gather(*(work() for _ in range(2)))
    await asyncio.sleep(0.07)
    async with asyncio.timeout(0.05):
        await Order(turns).do("one")
    await waiting


async def test_who_has_more_waiting_rests_between_slices_and_one_piece_of_work_does_not() -> None:
    async def pauses(count: int) -> list[float]:
        """Between two slices of ``count`` pieces of work, which have two slices each, while another is active."""
        turns, began, ended = (
            CallerTurns(per_caller=1, memory_seconds=3600, rest_seconds=10),
            list[float](),
            list[float](),
        )
        turns.see("one")

        async def work() -> None:
            async with turns.turn("many") as turn:
                for _ in range(2):
                    began.append(time.monotonic())
                    await asyncio.sleep(0.05)
                    ended.append(time.monotonic())
                    await turn.pass_on()

        await asyncio.gather(*(work() for _ in range(count)))
        return [begin - end for begin, end in zip(began[1:], ended, strict=False)]

    several, single = await pauses(2), await pauses(1)
    print(f"pauses of several {several}, of a single one {single}")
    assert several[0] >= 0.045
    assert single[0] < several[0]


async def test_all_together_have_so_many_beside_the_one_of_each() -> None:
    order = Order(CallerTurns(per_caller=9, total=2))
    await order.do(*["many"] * 9)
    assert order.most == {"many": 2}
    await order.do(*["many"] * 9, "one")
    assert order.begun.index("one") < 12


async def test_work_that_begins_at_once_counts_until_the_loop_has_looked_at_others() -> None:
    """Else a thousand requests that wait for nothing would all be answered before another caller's."""
    order = Order(CallerTurns(per_caller=1), steps=0)
    flood = asyncio.gather(*(order.work("many") for _ in range(1000)))
    for _ in range(3):
        await asyncio.sleep(0)
    await order.work("one")
    assert order.begun.index("one") < 5
    await flood
    assert len(order.begun) == 1001


async def test_between_slices_others_have_their_turn_and_what_has_begun_goes_on_first() -> None:
    turns, begun = CallerTurns(per_caller=2, total=2, slice_seconds=3600), list[str]()

    async def rounds(caller: str, name: str, count: int) -> None:
        async with turns.turn(caller) as turn:
            for _ in range(count):
                await turn.pass_on()
                begun.append(name)
                await asyncio.sleep(0)

    many = [asyncio.create_task(rounds("many", f"many-{number}", 6)) for number in range(4)]
    while len(begun) < 4:  # noqa: ASYNC110 -- they tell nobody
        await asyncio.sleep(0)
    assert set(begun) == {"many-0", "many-1"}, "alone it has two at a time"
    began = len(begun)
    await rounds("one", "one", 6)
    since = begun[began:]
    assert since.count("one") == 6
    assert len(since) <= 6 * 3, "about one round of the other for each"
    await asyncio.gather(*many)
    assert begun.index("many-2") > max(began, begun.index("one"))
    assert sorted(begun) == sorted([f"many-{number}" for number in range(4)] * 6 + ["one"] * 6)


async def test_a_turn_that_lasts_longer_than_its_slice_keeps_none_of_its_callers_waiting() -> None:
    turns, over = CallerTurns(per_caller=1, slice_seconds=0.01), asyncio.Event()

    async def wait() -> None:
        async with turns.turn("one"):
            await over.wait()

    waiting = [asyncio.create_task(wait()) for _ in range(3)]
    async with asyncio.timeout(10):
        async with turns.turn("one"):
            over.set()
        await asyncio.gather(*waiting)


async def test_who_goes_away_while_waiting_leaves_nothing_behind() -> None:
    turns = CallerTurns(per_caller=1)
    async with turns.turn("one"):
        gone = [asyncio.create_task(Order(turns).work("one")) for _ in range(3)]
        await asyncio.sleep(0)
        for task in gone[:2]:
            task.cancel()
        await asyncio.wait(gone[:2])
    async with asyncio.timeout(10):
        await gone[2]
        await Order(turns).do("one", "one", "other")


def test_a_share_says_what_it_is_and_what_helps() -> None:
    share = Share("streams", 2, "event streams open", "close some", 5)
    with share.taken_by("ann"), share.taken_by("ann"), share.taken_by("bob"):
        with pytest.raises(ShareUsedUpError) as caught, share.taken_by("ann"):
            pass
        assert caught.value.detail == (
            "ann has 2 event streams open, and one caller may have 2 (shares.streams): close some"
        )
        assert caught.value.facts == {"share": "streams", "most": 2, "retry_after": 5}
    with share.taken_by("ann"), share.taken_by("ann"):
        pass


def test_failed_sign_ins_are_counted_by_address_for_a_minute() -> None:
    now = 0.0
    sign_ins = SignIns(2, clock=lambda: now)
    assert [sign_ins.fail("192.0.2.1", "no") for _ in range(2)] == [False, True]
    now = 20.5
    with pytest.raises(ShareUsedUpError, match=r"^no; 2 sign-ins from this address") as caught:
        sign_ins.fail("192.0.2.1", "no")
    assert caught.value.facts["retry_after"] == 40
    assert not sign_ins.fail("192.0.2.2", "no"), "another address"
    now = 60.0
    assert not sign_ins.fail("192.0.2.1", "no")
    assert [sign_ins.fail(f"2001:db8::{number}", "no") for number in range(2)] == [False, True], "one customer's"


def test_a_learners_shares_are_those_of_its_settings() -> None:
    fair = FairUse.by(LearnerShares(streams=1, queued_runs=2, uploads=3, forecasts=4))
    assert (fair.streams, fair.queued_runs, fair.uploads, fair.forecasts) == (
        Share("streams", 1, "event streams open", "close some, or watch all runs by /v1/events", 5),
        Share("queued_runs", 2, "runs that have not come to an end", "wait until one ends, or cancel some", 60),
        Share("uploads", 3, "uploads under way", "wait until one is done", 5),
        Share("forecasts", 4, "forecasts under way", "wait until one is done", 5),
    )


async def test_long_work_of_a_user_is_done_one_after_the_other_and_counts_towards_its_share() -> None:
    fair, begun, ends = FairUse.by(LearnerShares(uploads=2)), list[str](), asyncio.Event()

    async def work(user: str) -> None:
        async with fair.turn(fair.uploads, user):
            begun.append(user)
            await ends.wait()

    first = [asyncio.create_task(work(user)) for user in ("ann", "ann", "bob")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert begun == ["ann", "bob"]
    with pytest.raises(ShareUsedUpError, match="ann has 2 uploads under way"):
        await work("ann")
    ends.set()
    await asyncio.gather(*first)
    await work("ann")
    assert begun == ["ann", "bob", "ann", "ann"]
