"""Per-run notification: watchers of a run wait until it has news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from common.errors import UnavailableError
from learner.run import RunEvent
from learner.storage.run_store import RunStore

_PAUSE = 1.0  # seconds between attempts to read a store that is busy


class RunNotifier:
    """Wakes the watchers of a run. They wait in one event loop; news comes from any thread."""

    def __init__(self) -> None:
        self._watched: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}

    def listen(self, run: str) -> asyncio.Event:
        """An event that is set at the run's next news; listen first, then read what there is, then wait."""
        _, heard = self._watched.setdefault(run, (asyncio.get_running_loop(), asyncio.Event()))
        return heard

    def notify(self, run: str) -> None:
        """Wake the watchers of a run."""
        if watched := self._watched.pop(run, None):
            loop, heard = watched
            loop.call_soon_threadsafe(heard.set)


async def watch(store: RunStore, notifier: RunNotifier, run: str, after: int = 0) -> AsyncIterator[RunEvent]:
    """A run's events after number ``after``, those to come as they come, until it ends."""
    while True:
        heard = notifier.listen(run)
        try:
            events, has_ended = await asyncio.to_thread(store.news, run, after)
        except UnavailableError:  # the stream has begun: it goes on when the store does
            await asyncio.sleep(_PAUSE)
            continue
        for event in events:
            after = event.number
            yield event
        if has_ended:
            notifier.notify(run)  # nobody need wait
            return
        await heard.wait()
