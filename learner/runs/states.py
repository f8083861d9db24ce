"""Lists the states of a run, which state may follow which, and the events that watchers get."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal

from typing_extensions import TypeVar  # typing's has no default before Python 3.13

from parley.common.errors import ConflictError

RunState = Literal["queued", "recruiting", "running", "paused", "completed", "failed", "cancelled"]

TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    "queued": frozenset({"recruiting", "paused", "failed", "cancelled"}),
    "recruiting": frozenset({"recruiting", "running", "paused", "failed", "cancelled"}),
    "running": frozenset({"completed", "paused", "failed", "cancelled"}),
    "paused": frozenset({"recruiting", "running", "completed", "paused", "failed", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}
"""Which states may follow each; a state that nothing follows is an end.

A paused run keeps its stage, and enters the state again if the reason changes; any progress ends the pause. A run that
recruits enters the state again if it waits for other owners.
"""

ENDS: frozenset[RunState] = frozenset(state for state, followers in TRANSITIONS.items() if not followers)


def check_transition(run: str, state: RunState, follower: RunState) -> None:
    """Raise ConflictError unless a run may go from ``state`` to ``follower``."""
    if follower not in TRANSITIONS[state]:
        raise ConflictError(f"run {run} is {state} and cannot become {follower}", state=state)


Kind_co = TypeVar("Kind_co", bound=str, default=str, covariant=True)
News_co = TypeVar("News_co", bound=Mapping[str, Any], default=Mapping[str, Any], covariant=True)


@dataclass(frozen=True, slots=True)
class RunEvent(Generic[Kind_co, News_co]):
    """An event that watchers of a run get; ``number`` orders the events of all runs, ``data`` is JSON.

    `parley.learner.runs.news` says what each kind holds.
    """

    number: int
    kind: Kind_co
    data: str

    @property
    def news(self) -> News_co:
        """The event's data as a JSON object."""
        fields: News_co = json.loads(self.data)
        return fields


@dataclass(frozen=True, slots=True)
class Notice:
    """An event that is not stored yet: its kind and public JSON values."""

    kind: str
    data: Mapping[str, Any]
