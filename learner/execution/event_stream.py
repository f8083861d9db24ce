"""Per-run notification: watchers of a run wait until it has news.

FastAPI would turn what is told into a stream by itself, by way of two tasks and two queues for each event; here a
round's news is part of the round, and a stream is one generator.
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
_AFTER = 0.002  # seconds: the next round's questions leave first, and watchers are told while parties work
_LONGEST_SILENCE = 15.0  # seconds
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # the last: nginx
_GATHER = 0.1  # seconds in which news of many runs becomes one event
_MOST_KEPT = 1000  # events that are handed over by memory; a watcher that is slower reads them from the store


@dataclass(slots=True)
class Watcher:
    """What one watcher has yet to hear of a run: ``events``, or what the store has where it ``must_read``."""

    events: list[RunEvent] = field(default_factory=list)
    must_read: bool = True
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, events: Sequence[RunEvent]) -> None:
        """Take news, or that there is some in the store."""
        if not events or len(self.events) >= _MOST_KEPT:
            self.must_read = True
        if self.must_read:
            self.events.clear()
        else:
            self.events.extend(events)
        self.heard.set()


@dataclass(slots=True)
class ChangedRuns:
    """The runs that one watcher of all has yet to hear of, in the order of their news."""

    runs: dict[str, None] = field(default_factory=dict)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def hear(self, run: str) -> None:
        """Note that a run has news."""
        self.runs[run] = None
        self.heard.set()

    def take(self) -> list[str]:
        """All of them, once."""
        self.heard.clear()
        taken, self.runs = list(self.runs), {}
        return taken


class RunNotifier:
    """Wakes the watchers of a run, and those of all. They wait in event loops; news comes from any thread."""

    def __init__(self) -> None:
        self._of_all: list[ChangedRuns] = []
        self._watchers: dict[str, tuple[asyncio.AbstractEventLoop, list[Watcher]]] = {}

    @contextmanager
    def listening(self, run: str) -> Iterator[Watcher]:
        """A watcher that hears all news of a run from now on."""
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
        """What hears of each run that has news from now on."""
        changed = ChangedRuns()
        self._of_all.append(changed)
        try:
            yield changed
        finally:
            self._of_all.remove(changed)

    def notify(self, run: str, events: Sequence[RunEvent]) -> None:
        """Tell the watchers of a run its events, or, where there are none, that they find some in the store."""
        for changed in self._of_all:
            changed.loop.call_soon_threadsafe(changed.hear, run)
        if watched := self._watchers.get(run):
            loop, watchers = watched
            loop.call_soon_threadsafe(loop.call_later, _AFTER, _tell, watchers, events)


def _tell(watchers: Sequence[Watcher], events: Sequence[RunEvent]) -> None:
    for watcher in watchers:
        watcher.hear(events)


async def watch(store: RunStore, notifier: RunNotifier, run: str, after: int = 0) -> AsyncIterator[Sequence[RunEvent]]:
    """A run's events after number ``after``, those to come as they come, until it ends; nothing after long silence."""
    with notifier.listening(run) as watcher:
        while True:
            watcher.heard.clear()
            if watcher.must_read:
                watcher.must_read = False  # before it is read: what comes meanwhile is heard
                try:
                    events, has_ended = await asyncio.to_thread(store.news, run, after)
                except UnavailableError:  # the stream has begun: it goes on when the store does
                    watcher.must_read = True
                    await asyncio.sleep(_PAUSE)
                    continue
                except DamagedError:  # who asks again is told so
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
                    await watcher.heard.wait()
            except TimeoutError:
                yield ()


async def watch_all(
    store: RunStore, notifier: RunNotifier, limit: int, read: Callable[[list[str]], list[str]]
) -> AsyncIterator[Sequence[str]]:
    """The newest runs, as ``read`` spells them, oldest first; then those with news; nothing after long silence."""
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
                    await changed.heard.wait()
            except TimeoutError:
                runs = []
            else:
                await asyncio.sleep(_GATHER)
                runs = changed.take()


class EventStream(StreamingResponse):
    """A response that tells of a run as it goes; at its end it calls ``ended``, whatever ends it."""

    media_type = EVENTS_MEDIA_TYPE

    def __init__(self, content: AsyncIterator[bytes], ended: Callable[[], None], status_code: int = 200) -> None:
        super().__init__(content, status_code, headers=_UNBUFFERED)  # FastAPI looks for the status among the arguments
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()

    @classmethod
    def of(cls, news: AsyncIterator[Sequence[RunEvent]], ended: Callable[[], None]) -> Self:
        """Each piece of news as server-sent events; nothing is a comment, so that proxies go on waiting."""
        return cls(_spelt(news), ended)

    @classmethod
    def of_runs(cls, news: AsyncIterator[Sequence[str]], ended: Callable[[], None]) -> Self:
        """Each piece of news as one event ``runs``, a JSON array of what is told of each run."""
        return cls(_gathered(news), ended)


async def _spelt(news: AsyncIterator[Sequence[RunEvent]]) -> AsyncIterator[bytes]:
    async for events in news:
        spelt = [format_sse_event(data_str=event.data, event=event.kind, id=str(event.number)) for event in events]
        yield b"".join(spelt) or KEEPALIVE_COMMENT


async def _gathered(news: AsyncIterator[Sequence[str]]) -> AsyncIterator[bytes]:
    async for runs in news:
        yield format_sse_event(data_str=f"[{','.join(runs)}]", event="runs") if runs else KEEPALIVE_COMMENT
