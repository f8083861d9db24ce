"""Notifies the watchers of runs: they wait until a run has news, and read it as server-sent events.

News of a round passes through memory, from the thread that commits it to the watchers' event loops. A watcher that
begins, that is slow, or whose run has ended reads the store instead. A stream is one generator: FastAPI's own streams
take two tasks and two queues for each event, and sending a round's news takes time from the round.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from parley.common.errors import DamagedError, UnavailableError
from parley.common.service.application import EVENTS_MEDIA_TYPE
from parley.learner.runs.states import RunEvent
from parley.learner.storage.run_store import RunStore

_PAUSE = 1.0  # seconds between attempts to read a store that is busy
_AFTER = 0.002  # seconds: the next round's questions leave first, and watchers get the news while parties work
_LONGEST_SILENCE = 15.0  # seconds
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # the last: nginx
_GATHER = 0.1  # seconds in which news of many runs becomes one event
_MOST_KEPT = 1000  # events that are handed over in memory; a slower watcher reads them from the store


@dataclass(slots=True)
class Watcher:
    """The news of a run that one watcher has not seen: ``events``, or if it ``must_read``, those in the store."""

    events: list[RunEvent] = field(default_factory=list)
    must_read: bool = True
    has_news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, events: Sequence[RunEvent]) -> None:
        """Take new events; an empty sequence means that they are in the store."""
        if not events or len(self.events) >= _MOST_KEPT:
            self.must_read = True
        if self.must_read:
            self.events.clear()
        else:
            self.events.extend(events)
        self.has_news.set()


@dataclass(slots=True)
class ChangedRuns:
    """The runs whose news one watcher of all runs has not seen, in the order of their news."""

    runs: dict[str, None] = field(default_factory=dict)
    has_news: asyncio.Event = field(default_factory=asyncio.Event)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def add(self, run: str) -> None:
        """Note that a run has news."""
        self.runs[run] = None
        self.has_news.set()

    def take(self) -> list[str]:
        """Remove and return all of them."""
        self.has_news.clear()
        taken, self.runs = list(self.runs), {}
        return taken


class RunNotifier:
    """Wakes the watchers of a run, and those of all runs. They wait in event loops; news comes from any thread."""

    def __init__(self) -> None:
        self._of_all: list[ChangedRuns] = []
        self._watchers: dict[str, tuple[asyncio.AbstractEventLoop, list[Watcher]]] = {}

    @contextmanager
    def listening(self, run: str) -> Iterator[Watcher]:
        """Yield a watcher that gets all news of a run from now on."""
        watcher = Watcher()
        _, watchers = self._watchers.setdefault(run, (asyncio.get_running_loop(), []))
        watchers.append(watcher)
        try:
            yield watcher
        finally:
            watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(run, None)

    @contextmanager
    def listening_to_all(self) -> Iterator[ChangedRuns]:
        """Yield a collection to which each run with news is added from now on."""
        changed = ChangedRuns()
        self._of_all.append(changed)
        try:
            yield changed
        finally:
            self._of_all.remove(changed)

    def notify(self, run: str, events: Sequence[RunEvent]) -> None:
        """Give the watchers of a run its new ``events``; none means that they must read the store."""
        for changed in self._of_all:
            changed.loop.call_soon_threadsafe(changed.add, run)
        if watched := self._watchers.get(run):
            loop, watchers = watched
            loop.call_soon_threadsafe(loop.call_later, _AFTER, _tell, watchers, events)


def _tell(watchers: Sequence[Watcher], events: Sequence[RunEvent]) -> None:
    for watcher in watchers:
        watcher.add(events)


async def watch(store: RunStore, notifier: RunNotifier, run: str, after: int = 0) -> AsyncIterator[Sequence[RunEvent]]:
    """Yield a run's events after ``after``, and new ones as they come, until it ends; nothing after a long silence."""
    with notifier.listening(run) as watcher:
        while True:
            watcher.has_news.clear()
            if watcher.must_read:
                watcher.must_read = False  # before the store is read: what comes meanwhile is not lost
                try:
                    events, has_ended = await asyncio.to_thread(store.news, run, after)
                except UnavailableError:  # the stream has begun: it goes on when the store does
                    watcher.must_read = True
                    await asyncio.sleep(_PAUSE)
                    continue
                except DamagedError:  # the next request for this run gets the error
                    return
            else:
                events, has_ended = watcher.events, False  # an end is always read
                watcher.events = []
            if news := [event for event in events if event.number > after]:
                after = news[-1].number
                yield news
            if has_ended:
                return
            try:
                async with asyncio.timeout(_LONGEST_SILENCE):
                    await watcher.has_news.wait()
            except TimeoutError:
                yield ()


async def watch_all(
    store: RunStore, notifier: RunNotifier, limit: int, read: Callable[[list[str]], list[str]]
) -> AsyncIterator[Sequence[str]]:
    """Yield the newest runs as ``read`` writes them, oldest first; then any with news; nothing after a long silence."""
    with notifier.listening_to_all() as changed:
        runs = [run.id for run in reversed((await asyncio.to_thread(store.newest, limit)).runs)]
        while True:
            try:
                yield await asyncio.to_thread(read, runs)
            except UnavailableError:  # the stream has begun: it goes on when the store does
                await asyncio.sleep(_PAUSE)
                continue
            try:
                async with asyncio.timeout(_LONGEST_SILENCE):
                    await changed.has_news.wait()
            except TimeoutError:
                runs = []
            else:
                await asyncio.sleep(_GATHER)
                runs = changed.take()


class EventStream(StreamingResponse):
    """A response that streams events; when it ends, for any reason, it calls ``ended``."""

    media_type = EVENTS_MEDIA_TYPE

    def __init__(self, content: AsyncIterator[bytes], ended: Callable[[], None], status_code: int = 200) -> None:
        super().__init__(content, status_code, headers=_UNBUFFERED)  # FastAPI looks for the status among the arguments
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()

    @classmethod
    def of(cls, news: AsyncIterator[Sequence[RunEvent]], ended: Callable[[], None]) -> Self:
        """Send a run's news as server-sent events; empty news as a comment, so that proxies go on waiting."""
        return cls(_encoded_events(news), ended)

    @classmethod
    def of_runs(cls, news: AsyncIterator[Sequence[str]], ended: Callable[[], None]) -> Self:
        """Send news of many runs as one event ``runs``, a JSON array with an object for each run."""
        return cls(_encoded_runs(news), ended)


async def _encoded_events(news: AsyncIterator[Sequence[RunEvent]]) -> AsyncIterator[bytes]:
    async for events in news:
        encoded = [format_sse_event(data_str=event.data, event=event.kind, id=str(event.number)) for event in events]
        yield b"".join(encoded) or KEEPALIVE_COMMENT


async def _encoded_runs(news: AsyncIterator[Sequence[str]]) -> AsyncIterator[bytes]:
    async for runs in news:
        yield format_sse_event(data_str=f"[{','.join(runs)}]", event="runs") if runs else KEEPALIVE_COMMENT
