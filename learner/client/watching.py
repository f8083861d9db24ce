"""A run watched over a connection that may break: what to ask for, what came, and how long to wait before asking again.

No input or output here: `parley.learner.client.connection` and its asynchronous twin carry the bytes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from parley.common.errors import ParleyError
from parley.learner.run_states import ENDS, RunEvent

PATIENCE = 60.0
"""Seconds without an answer before a watcher gives up, unless it says otherwise."""
_FIRST, _LONGEST = 0.1, 5.0  # seconds between attempts
AWAY = frozenset({502, 503, 504})
"""HTTP statuses that a learner which is being restarted may show, and a proxy before it."""


@dataclass(slots=True)
class EventParser:
    """Lines of a stream of server-sent events into events."""

    _fields: dict[str, str] = field(default_factory=dict)

    def take(self, line: str) -> RunEvent | None:
        """The event that a line ends, if it ends one."""
        name, _, value = line.partition(": ")
        if line and name:
            self._fields[name] = value
        if line or not {"data", "event", "id"} <= self._fields.keys():
            return None
        fields, self._fields = self._fields, {}
        return RunEvent(int(fields["id"]), fields["event"], fields["data"])


def parse_events(lines: Iterable[str]) -> Iterator[RunEvent]:
    """The server-sent events of a stream's lines.

    >>> list(parse_events([": ping", "", "event: state", "data: {}", "id: 3", ""]))
    [RunEvent(number=3, kind='state', data='{}')]
    """
    parser = EventParser()
    yield from (event for line in lines if (event := parser.take(line)) is not None)


@dataclass(slots=True)
class Watching:
    """How far a run has been watched.

    ``patience`` is how many seconds may pass without a word from the learner, once the connection is lost.
    """

    run: str
    patience: float = PATIENCE
    has_ended: bool = False
    _after: int = 0
    _pause: float = _FIRST
    _lost: float | None = None
    _parser: EventParser = field(default_factory=EventParser)

    @property
    def headers(self) -> dict[str, str]:
        """What to ask for: the events after the last one that came."""
        self._parser = EventParser()  # half an event that was cut off is told anew
        return {"Last-Event-ID": str(self._after), "Accept": "text/event-stream"}

    def take(self, line: str) -> Iterator[RunEvent]:
        """The event that a line of the stream ends, if it ends one that has not come before."""
        self._lost = None
        event = self._parser.take(line)
        if event is None or event.number <= self._after:
            return
        self._after, self._pause = event.number, _FIRST
        self.has_ended = event.kind == "state" and event.news.get("state") in ENDS
        yield event

    def pause(self, error: ParleyError) -> float:
        """How many seconds to wait before asking again, longer each time; raises the error where patience is spent."""
        now = time.monotonic()
        self._lost = self._lost or now
        if now - self._lost >= self.patience:
            raise error
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 -- so that watchers do not return as one
        self._pause = min(2 * self._pause, _LONGEST)
        return min(pause, max(self._lost + self.patience - now, 0.0))
