"""Per-run notification: watchers of a run wait until it has news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from learner.run import ENDS, RunEvent
from learner.storage.run_store import RunStore


class RunNotifier:
    """Wakes the watchers of a run, within one event loop."""

    def __init__(self) -> None:
        self._watched: dict[str, asyncio.Event] = {}

    def listen(self, run: str) -> asyncio.Event:
        """An event that is set at the run's next news; listen first, then read what there is, then wait."""
        return self._watched.setdefault(run, asyncio.Event())

    def notify(self, run: str) -> None:
        """Wake the watchers of a run."""
        if heard := self._watched.pop(run, None):
            heard.set()


async def watch(store: RunStore, notifier: RunNotifier, run: str, after: int = 0) -> AsyncIterator[RunEvent]:
    """A run's events after number ``after``, those to come as they come, until it ends."""
    while True:
        heard = None if store.state(run) in ENDS else notifier.listen(run)
        for event in store.events(run, after):
            after = event.number
            yield event
        if heard is None:
            return
        await heard.wait()
