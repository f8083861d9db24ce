"""What watchers of a run are told: by memory, in order, once; from the store where they are behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parley.common.errors import DamagedError, UnavailableError
from parley.learner.execution import event_stream
from parley.learner.execution.event_stream import EventStream, RunNotifier, watch, watch_all
from parley.learner.runs.states import RunEvent
from parley.learner.storage.run_store import RunStore


class Store:
    """A store that counts how often it is read."""

    def __init__(self) -> None:
        self.all: list[RunEvent] = []
        self.has_ended = False
        self.reads = self.busy = 0

    def add(self, count: int = 1) -> list[RunEvent]:
        """Store ``count`` more events, and return them."""
        events = [RunEvent(len(self.all) + offset + 1, "round", "{}") for offset in range(count)]
        self.all += events
        return events

    def news(self, run: str, after: int) -> tuple[list[RunEvent], bool]:
        assert run == "run"
        self.reads += 1
        if self.busy:
            self.busy -= 1
            raise UnavailableError("busy")
        return [event for event in self.all if event.number > after], self.has_ended


class Watching:
    """A watcher of a run that has read what there was."""

    def __init__(self, store: Store, notifier: RunNotifier) -> None:
        self.store, self.notifier = store, notifier
        self.told: list[Sequence[RunEvent]] = []
        self.heard, self.has_ended = asyncio.Event(), False

    async def follow(self) -> None:
        async for news in watch(cast("RunStore", self.store), self.notifier, "run"):
            self.told.append(news)
            self.heard.set()
        self.has_ended = True

    @property
    def numbers(self) -> list[int]:
        """The numbers of all events that the watcher was sent."""
        return [event.number for news in self.told for event in news]

    async def until(self, count: int) -> None:
        """Wait until it was notified of so many."""
        async with asyncio.timeout(10):
            while len(self.numbers) < count:
                self.heard.clear()
                await self.heard.wait()


@asynccontextmanager
async def watching() -> AsyncIterator[Watching]:
    """A watcher that has heard of one event."""
    store = Store()
    store.add()
    watcher = Watching(store, RunNotifier())
    task = asyncio.create_task(watcher.follow())
    await watcher.until(1)
    yield watcher
    if store.has_ended:
        async with asyncio.timeout(10):
            await task
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_rounds_news_needs_no_look_into_the_store() -> None:
    async with watching() as watcher:
        for _ in range(20):
            watcher.notifier.notify("run", watcher.store.add(2))
        await watcher.until(41)
        assert watcher.store.reads == 1
    assert watcher.numbers == list(range(1, 42))


async def test_what_was_read_before_its_notice_is_not_sent_twice() -> None:
    async with watching() as watcher:
        events = watcher.store.add(3)
        watcher.notifier.notify("run", ())
        await watcher.until(4)
        watcher.notifier.notify("run", events)
        watcher.notifier.notify("run", watcher.store.add())
        await watcher.until(5)
    assert watcher.numbers == [1, 2, 3, 4, 5]


async def test_who_is_behind_reads_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_MOST_KEPT", 3)
    watcher = event_stream.Watcher(must_read=False)
    store = Store()
    for _ in range(3):
        watcher.add(store.add())
    assert ([event.number for event in watcher.events], watcher.must_read) == ([1, 2, 3], False)
    watcher.add(store.add())
    assert (list(watcher.events), watcher.must_read) == ([], True)
    watcher.add(store.add())
    assert (list(watcher.events), watcher.must_read) == ([], True), "until it has read"


async def test_an_end_is_read_and_ends_the_stream() -> None:
    async with watching() as watcher:
        watcher.store.add()
        watcher.store.has_ended = True
        watcher.notifier.notify("run", ())
        await watcher.until(2)
    assert watcher.has_ended
    assert not watcher.notifier._watchers


async def test_a_busy_store_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_PAUSE", 0.001)
    async with watching() as watcher:
        watcher.store.busy = 2
        watcher.store.add()
        watcher.notifier.notify("run", ())
        await watcher.until(2)
        assert watcher.store.reads == 4


async def test_long_silence_is_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_LONGEST_SILENCE", 0.01)
    store = Store()
    store.add(2)
    body = EventStream.of(watch(cast("RunStore", store), RunNotifier(), "run"), lambda: None).body_iterator
    first, second = [await anext(aiter(body)) for _ in range(2)]
    assert first == b"event: round\ndata: {}\nid: 1\n\nevent: round\ndata: {}\nid: 2\n\n"
    assert second == b": ping\n\n"
    await body.aclose()  # type: ignore[attr-defined]


async def test_a_stream_is_not_kept_by_proxies_and_says_when_it_ends() -> None:
    ended, sent = list[bool](), list[dict[str, Any]]()
    store = Store()
    store.add()
    store.has_ended = True
    stream = EventStream.of(watch(cast("RunStore", store), RunNotifier(), "run"), lambda: ended.append(True))
    assert (stream.status_code, stream.media_type) == (200, "text/event-stream")
    assert (stream.headers["cache-control"], stream.headers["x-accel-buffering"]) == ("no-cache", "no")

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await stream({"type": "http", "asgi": {"spec_version": "2.3"}}, cast("Any", receive), cast("Any", send))
    assert ended == [True]
    assert sent[0]["status"] == 200
    assert b"".join(message.get("body", b"") for message in sent) == b"event: round\ndata: {}\nid: 1\n\n"


async def test_watchers_of_one_run_are_told_together_and_forgotten_alone() -> None:
    notifier = RunNotifier()
    with notifier.listening("run") as first:
        with notifier.listening("run") as second, notifier.listening("other") as other:
            for watcher in (first, second, other):
                assert (watcher.must_read, list(watcher.events), watcher.has_news.is_set()) == (True, [], False)
                watcher.must_read = False
            news = [RunEvent(1, "round", "{}")]
            notifier.notify("run", news)
            async with asyncio.timeout(5):
                await first.has_news.wait()
            assert (list(first.events), list(second.events), list(other.events)) == (news, news, [])
            assert not other.has_news.is_set()
        assert set(notifier._watchers) == {"run"}
    assert not notifier._watchers
    assert not notifier._of_all
    with notifier.listening_to_all() as changed:
        for run in ("b", "a", "b"):
            notifier.notify(run, news)
        async with asyncio.timeout(5):
            await changed.has_news.wait()
        assert (changed.take(), changed.take(), changed.has_news.is_set()) == (["b", "a"], [], False)
    assert not notifier._of_all


async def test_a_damaged_run_ends_its_stream() -> None:
    class Damaged(Store):
        def news(self, run: str, after: int) -> tuple[list[RunEvent], bool]:
            raise DamagedError(f"{run} after {after}")

    assert [news async for news in watch(cast("RunStore", Damaged()), RunNotifier(), "run")] == []


class ListedStore:
    """A store of three runs."""

    def newest(self, limit: int) -> SimpleNamespace:
        return SimpleNamespace(runs=[SimpleNamespace(id=run) for run in ("c", "b", "a")[:limit]])


async def test_the_stream_of_all_runs_begins_with_the_newest_and_goes_on_with_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "_LONGEST_SILENCE", 0.2)
    monkeypatch.setattr(event_stream, "_GATHER", 0.0)
    monkeypatch.setattr(event_stream, "_PAUSE", 0.0)
    notifier, busy = RunNotifier(), [True]

    def read(runs: list[str]) -> list[str]:
        if busy:
            busy.pop()
            raise UnavailableError("busy")
        return [json.dumps({"id": run}) for run in runs]

    ended: list[bool] = []
    stream = EventStream.of_runs(watch_all(cast("Any", ListedStore()), notifier, 2, read), lambda: ended.append(True))
    events = cast("AsyncGenerator[bytes]", stream.body_iterator)
    assert await _runs(events) == ["b", "c"]
    notifier.notify("a", ())
    notifier.notify("a", ())
    assert await _runs(events) == ["a"]
    assert (await anext(events)).startswith(b":"), "after a long silence there is a comment"
    notifier.notify("c", ())
    assert await _runs(events) == ["c"]
    await events.aclose()
    assert not ended, "the response was not sent"


async def _runs(events: AsyncIterator[bytes]) -> list[str]:
    """The runs in the next event that is no comment."""
    while (event := await asyncio.wait_for(anext(events), 5)).startswith(b":"):
        pass
    fields = dict(line.split(": ", 1) for line in event.decode().splitlines() if line)
    assert fields["event"] == "runs"
    return [run["id"] for run in json.loads(fields["data"])]
