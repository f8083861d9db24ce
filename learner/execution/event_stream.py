"""Per-run notification: watchers of a run wait until it has news.

FastAPI would turn what is told into a stream by itself, by way of two tasks and two queues for each event; here a
round's news is part of the round, and a stream is one generator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import StreamingResponse

from common.errors import UnavailableError
from common.service.openapi import EVENTS_MEDIA_TYPE
from learner.run import RunEvent
from learner.storage.run_store import RunStore

_PAUSE = 1.0  # seconds between attempts to read a store that is busy
_AFTER = 0.002  # seconds: the next round's questions leave first, and watchers are told while parties work
_LONGEST_SILENCE = 15.0  # seconds
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


class RunNotifier:
    """Wakes the watchers of a run. They wait in one event loop; news comes from any thread."""

    def __init__(self) -> None:
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

    def notify(self, run: str, events: Sequence[RunEvent]) -> None:
        """Tell the watchers of a run its events, or, where there are none, that they find some in the store."""
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


class EventStream(StreamingResponse):
    """A response that tells of a run as it goes."""

    media_type = EVENTS_MEDIA_TYPE

    @classmethod
    def of(cls, news: AsyncIterator[Sequence[RunEvent]]) -> Self:
        """Each piece of news as server-sent events; nothing is a comment, so that proxies go on waiting."""
        return cls(_spelt(news), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})  # the last: nginx


async def _spelt(news: AsyncIterator[Sequence[RunEvent]]) -> AsyncIterator[bytes]:
    async for events in news:
        spelt = [format_sse_event(data_str=event.data, event=event.kind, id=str(event.number)) for event in events]
        yield b"".join(spelt) or KEEPALIVE_COMMENT
