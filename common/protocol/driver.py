"""Drives a program to its model.

A program is a generator that yields queries and takes replies. `drive` looks for each reply in the log first, and asks
the federation only for replies that the log does not hold, so a run that was interrupted resumes without asking twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from parley.common.errors import ReplayMismatchError
from parley.common.learning.model import Model
from parley.common.protocol.algorithm import Program
from parley.common.protocol.messages import Query, Reply


class Federation(Protocol):
    """Answers queries: simulated shards, real services, or a log."""

    async def answer(self, run: str, query: Query) -> Reply:
        """Return all parties' answers to a query, or their sum."""


class Log(Protocol):
    """Keeps the replies of a run in order."""

    async def recall(self, query: Query) -> Reply | None:
        """Return the reply logged for this query, or None for a new round.

        Raises ReplayMismatchError if the log answers another query in this round.
        """

    async def append(self, query: Query, reply: Reply) -> None:
        """Add a reply, durably if the log is durable."""


class NoLog:
    """A log that holds nothing: for simulation, which is never resumed, and whose replies may fill the memory."""

    async def recall(self, query: Query) -> Reply | None:
        """Return None: every round is new."""
        return None

    async def append(self, query: Query, reply: Reply) -> None:
        """Do nothing: the log keeps no replies."""


class MemoryLog:
    """A log in memory: for callers that repeat their queries after a restart, and for tests."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[str, Reply]] = {}

    async def recall(self, query: Query) -> Reply | None:
        """Return the reply logged for this query, or None for a new round."""
        return logged_reply(self.entries.get(query.round), query)

    async def append(self, query: Query, reply: Reply) -> None:
        """Keep a reply under its query's round."""
        self.entries[query.round] = (query.digest, reply)


def logged_reply(entry: tuple[str, Reply] | None, query: Query) -> Reply | None:
    """Return the reply of a log's entry (query digest, reply), or None without an entry.

    Raises ReplayMismatchError if the entry answers another query.
    """
    if entry is None:
        return None
    digest, reply = entry
    if digest != query.digest:
        raise ReplayMismatchError(
            f"the log of round {query.round} answers another query than the program asks: another version of Parley "
            "began the run, or its log was changed. Begin it again; what was charged stays charged"
        )
    return reply


Advance = Callable[[Callable[[], Query]], Awaitable[Query]]
"""Runs a program's next step, which may take long: at once, or in a thread."""


async def at_once(step: Callable[[], Query]) -> Query:
    """Compute the next query of a program in this thread."""
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
    """A program has returned its model; a StopIteration cannot cross from a thread to a coroutine."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model


def _next(program: Program, reply: Reply | None) -> Query:
    """Send the program a reply, or None to start it, and return its next query."""
    try:
        return next(program) if reply is None else program.send(reply)
    except StopIteration as stop:
        raise _FinishedError(stop.value) from None
