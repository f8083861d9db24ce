"""Writes the events of runs into the learner's log, so that its lines tell how each run went.

The events are those that watchers get, and as public. A run's terms are logged once, when it is submitted. A sample of
its rounds is logged, with the seconds that they took here: each that doubles the number of the last, the last of all,
and at least one a minute. Lists and texts are cut, because a run may have thousands of parties.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog

from parley.common.service.logs import is_sampled
from parley.learner.runs.run import RunTerms
from parley.learner.runs.states import ENDS, Notice

_MOST_NAMED, _LONGEST = 20, 1000  # names, and characters of a text
_AT_LATEST = 60.0  # seconds after which another round is logged
_FIELDS: Mapping[str, Sequence[str]] = {
    "recruiting": ("reason", "who"),
    "running": ("rounds", "key_holders"),
    "paused": ("reason", "who"),
    "completed": ("evaluated_by",),
    "problem": ("detail", "party", "key_holder", "rule", "reason", "silent"),
    "dropped": ("party", "round", "reason"),
    "round": ("stragglers", "missed"),
}
"""The fields of events, and of the problem of a failed run, that lines have; others are longer, or said in short."""


class RunLog:
    """Logs what happens to runs, after it is committed; for one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: dict[str, float] = {}
        """When a round of a run was last logged."""

    def submitted(self, run: str, user: str, terms: RunTerms, evaluates: str | None) -> None:
        """Log a new run: whose it is, what it is to train, and the most that it may cost a party."""
        structlog.get_logger().info(
            "submitted",
            run=run,
            user=user,
            study=terms.study,
            algorithm="auto" if terms.any_algorithm else terms.algorithm,
            epsilon=max(terms.epsilon.values()),
            parties=len(terms.parties),
            secure_sum=terms.secure_sum,
            **({"evaluates": evaluates} if evaluates else {}),
        )

    def moved(self, run: str, data: Mapping[str, Any], rounds: int, *, was_paused: bool) -> None:
        """Log a change of state, with the event's ``data``; ``rounds`` have been logged so far."""
        log, state = structlog.get_logger().bind(run=run), data["state"]
        if was_paused and state not in {"paused", "failed", "cancelled"}:
            log.info("resumed", rounds=rounds)
        if state == "running":
            absent = [f"{name}: {reason}" for name, reason in data.get("absent", {}).items()]
            log.info("approved", by=_cut(data.get("epsilon", ())), **({"absent": _cut(absent)} if absent else {}))
        fields: dict[str, Any] = {"rounds": rounds} if state in ENDS or state == "paused" else {}
        if problem := data.get("problem"):
            fields |= {"kind": str(problem.get("type")).rpartition(":")[2], **_picked("problem", problem)}
        (log.warning if state in {"paused", "failed"} else log.info)(state, **fields, **_picked(state, data))
        if state in ENDS:
            self._logged.pop(run, None)

    def noticed(self, run: str, number: int, notices: Sequence[Notice]) -> None:
        """Log the news of round ``number``: that the run goes on, lost parties, the round if it is sampled."""
        for notice in notices:
            data = notice.data
            if notice.kind == "state":
                structlog.get_logger().info("resumed", run=run, rounds=number - 1)
            elif notice.kind == "dropped":
                structlog.get_logger().warning("dropped", run=run, **_picked("dropped", data))
            elif self._takes(run, number, is_last=number == data.get("of")):
                charged, contributors = data.get("epsilon", {}).values(), len(data.get("contributors", ()))
                structlog.get_logger().info(
                    "round",
                    run=run,
                    round=number,
                    of=data.get("of"),
                    seconds=round(data.get("ms", 0) / 1000, 6),
                    contributors=contributors,
                    epsilon=max(charged, default=0.0),
                    **_picked("round", data),
                )

    def _takes(self, run: str, number: int, *, is_last: bool) -> bool:
        """Say whether a round is logged, by its number and by the time since the last that was; note that it is."""
        now = self._clock()
        if takes := is_sampled(number) or is_last or now - self._logged.setdefault(run, now) >= _AT_LATEST:
            self._logged[run] = now
        return takes


def _picked(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of an event that its line has; lists and texts are cut, and empty lists left out."""
    picked = {name: data[name] for name in _FIELDS.get(kind, ()) if name in data and data[name] not in ([], ())}
    for name, value in picked.items():
        if isinstance(value, str):
            picked[name] = value[:_LONGEST]
        elif isinstance(value, list | tuple):
            picked[name] = _cut(value)
    return picked


def _cut(texts: Iterable[str]) -> list[str]:
    """Return the first texts, and how many more there are."""
    listed = list(texts)
    more = len(listed) - _MOST_NAMED
    return [*listed[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
