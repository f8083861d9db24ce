"""A run's life as a table: its states, which may follow which, and what those who watch it are told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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

A paused run keeps the stage that it was in, and is paused anew where the reason changes; whatever it achieves when it
is carried on ends the pause. A run that recruits does so anew where other owners are waited for.
"""

ENDS: frozenset[RunState] = frozenset(state for state, followers in TRANSITIONS.items() if not followers)


def check_transition(run: str, state: RunState, follower: RunState) -> None:
    """Raise ConflictError unless a run may go from ``state`` to ``follower``."""
    if follower not in TRANSITIONS[state]:
        raise ConflictError(f"run {run} is {state} and cannot become {follower}", state=state)


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that whoever watches a run is told; ``number`` orders the events of all runs."""

    number: int
    kind: str
    data: str

    @property
    def news(self) -> dict[str, Any]:
        """What it tells, as a JSON object."""
        told: dict[str, Any] = json.loads(self.data)
        return told


@dataclass(frozen=True, slots=True)
class Notice:
    """An event that is not stored yet: its kind and public JSON values."""

    kind: str
    data: Mapping[str, Any]
