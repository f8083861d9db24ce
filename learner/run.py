"""A run's life as a table: the states it passes through, and which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from common.errors import ConflictError
from common.runs.specification import RunSpec

RunState = Literal["queued", "recruiting", "running", "completed", "failed", "cancelled"]

TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    "queued": frozenset({"recruiting", "failed", "cancelled"}),
    "recruiting": frozenset({"running", "failed", "cancelled"}),
    "running": frozenset({"completed", "failed", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}
"""Which states may follow each; a state that nothing follows is an end."""

ENDS: frozenset[RunState] = frozenset(state for state, followers in TRANSITIONS.items() if not followers)


def check_transition(run: str, state: RunState, follower: RunState) -> None:
    """Raise ConflictError unless a run may go from ``state`` to ``follower``."""
    if follower not in TRANSITIONS[state]:
        raise ConflictError(f"run {run} is {state} and cannot become {follower}", state=state)


@dataclass(frozen=True, slots=True)
class Run:
    """A run as the store holds it.

    Until the run is settled (it has a plan), ``spec`` is a draft: the sizes of the shards are not known yet, and stand
    as 1. ``rounds`` counts the rounds logged; ``problem`` says why a run failed; ``key_holders`` are the names of those
    who have been asked to open its sums.
    """

    id: str
    user: str
    created: str
    state: RunState
    spec: RunSpec
    rounds: int
    problem: Mapping[str, Any] | None
    key_holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that whoever watches a run is told; ``number`` orders the events of all runs."""

    number: int
    kind: str
    data: str


@dataclass(frozen=True, slots=True)
class Notice:
    """An event that is not stored yet: its kind and public JSON values."""

    kind: str
    data: Mapping[str, Any]
