"""Drive a program to its model: ask only what the log does not hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from parley.common.errors import ReplayMismatchError
from parley.common.learning.model import Model
from parley.common.protocol.algorithm import Program
from parley.common.protocol.messages import Query, Reply


class Federation(Protocol):
    """Whoever answers queries: simulated shards, real services, or a log."""

    async def answer(self, run: str, query: Query) -> Reply:
        """All parties' answers to a query, or their sum."""


class Log(Protocol):
    """The replies of a run in order."""

    async def recall(self, query: Query) -> Reply | None:
        """The reply logged for this query; None for a new round; ReplayMismatchError if another was asked."""

    async def append(self, query: Query, reply: Reply) -> None:
        """Remember a reply, durably if the log is durable."""


class NoLog:
    """A log that holds nothing: for simulation, which is never resumed, and whose replies may fill the memory."""

    async def recall(self, query: Query) -> Reply | None:
        """None: every round is new."""
        return None

    async def append(self, query: Query, reply: Reply) -> None:
        """Forget a reply."""


class MemoryLog:
    """A log in memory: for who asks the same again after a restart, and for tests."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[str, Reply]] = {}

    async def recall(self, query: Query) -> Reply | None:
        """The reply logged for this query, or None."""
        return logged_reply(self.entries.get(query.round), query)

    async def append(self, query: Query, reply: Reply) -> None:
        """Remember a reply."""
        self.entries[query.round] = (query.digest, reply)


def logged_reply(entry: tuple[str, Reply] | None, query: Query) -> Reply | None:
    """The reply of a log's entry (query digest, reply) if it answers this query; None where there is no entry."""
    if entry is None:
        return None
    digest, reply = entry
    if digest != query.digest:
        raise ReplayMismatchError(f"the log of round {query.round} answers another query than the program asks")
    return reply


Advance = Callable[[Callable[[], Query]], Awaitable[Query]]
"""Has a program take its next step, which may take long: at once, or in a thread."""


async def at_once(step: Callable[[], Query]) -> Query:
    """The next query of a program, computed here and now."""
    return step()


async def drive(program: Program, federation: Federation, run: str, log: Log, advance: Advance = at_once) -> Model:
    """Run a program to its model, asking the federation only what the log does not hold."""
    try:
        query = await advance(partial(_next, program, None))
        while True:
            if (reply := await log.recall(query)) is None:
                reply = await federation.answer(run, query)
                await log.append(query, reply)
            query = await advance(partial(_next, program, reply))
    except _FinishedError as finished:
        return finished.model


class _FinishedError(Exception):
    """A program has come to its model; a thread could not hand a StopIteration over."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model


def _next(program: Program, reply: Reply | None) -> Query:
    """What the program asks next, told this reply; the first time it is told nothing."""
    try:
        return next(program) if reply is None else program.send(reply)
    except StopIteration as stop:
        raise _FinishedError(stop.value) from None
