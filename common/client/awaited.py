"""Connections that a service opens to whoever asks it, so that nobody has to reach it.

A party behind a firewall connects to its learner, says with a token who it is, and then is asked on that connection as
it would be on one to itself: HTTP/1.1 with the roles turned round. Requests, answers and their limits are those of any
other connection, and it costs neither side more. A connection carries one request at a time; who connects sees to it
that one is to spare.

What cannot be seen is whether the other side is still there while nothing is asked. So a connection that was not in use
for `PING_SECONDS` is asked for its health: both sides close one on which that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import httpx

from parley.common.client.endpoints import PeerEntry
from parley.common.client.peer import Line
from parley.common.client.transport import Connection, ConnectionPool, PeerRequest
from parley.common.errors import ConflictError

PING_SECONDS = 15.0
"""How long a connection is not in use before it is tried; after three times that its other side gives it up."""

_PONG_SECONDS = 10.0
_ARRIVAL_SECONDS = 1.0  # for which a request waits for a connection of a service that has none to spare
_MOST_IDLE = 16
_TICK = 1.0
_PING = PeerRequest("GET", "/healthz", (("Host", "peer"),), longest=2**12)


class AwaitedConnections(ConnectionPool):
    """The connections that one service has opened."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived = asyncio.Event()
        self._in_use = 0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, in use or not."""
        return bool(self._in_use) or any(not connection.is_closed for connection in self._idle)

    def add(self, connection: Connection) -> None:
        """One more has come; the oldest goes where there are too many."""
        self._keep(connection)
        while len(self._idle) > _MOST_IDLE:
            self._idle.pop(0).close()

    def tend(self, tries: asyncio.TaskGroup) -> None:
        """Close what the other side has closed, and begin to try what was not in use for a while."""
        now = asyncio.get_running_loop().time()
        due = [each for each in self._idle if each.is_closed or now - each.used_at >= PING_SECONDS]
        self._idle = [each for each in self._idle if each not in due]
        for each in due:
            tries.create_task(self._try(each))

    async def _another(self) -> Connection:
        try:
            async with asyncio.timeout(_ARRIVAL_SECONDS):
                while not (connection := self._take()):
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise httpx.ConnectError("it has opened no connection") from None
        return connection

    def _keep(self, connection: Connection) -> None:
        super()._keep(connection)
        self._arrived.set()

    async def _try(self, connection: Connection) -> None:
        """Keep a connection that answers."""
        self._in_use += 1
        alive = False
        try:
            with suppress(httpx.TransportError, TimeoutError):
                async with asyncio.timeout(_PONG_SECONDS):
                    alive = not connection.is_closed and (await connection.exchange(_PING.head(), _PING)).leaves_open
        finally:
            self._in_use -= 1
            if alive:
                self._keep(connection)
            else:
                connection.close()


class Switchboard:
    """Lines to services by their entries: to those with a URL by ``direct``, to others by the connections they open."""

    def __init__(self, direct: Callable[[PeerEntry], Line] = Line) -> None:
        self._direct = direct
        self._awaited: dict[str, AwaitedConnections] = {}

    def connect(self, entry: PeerEntry) -> Line:
        """The line to a service; raises InvalidInputError."""
        if entry.connects_with is None:
            return self._direct(entry)
        return Line(entry, self._awaited.setdefault(entry.name, AwaitedConnections()))

    def add(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A service has connected; raises ConflictError unless a line to it waits for that."""
        self.check(name)
        self._awaited[name].add(Connection(reader, writer))

    def check(self, name: str) -> None:
        """Raise ConflictError unless a line to a service waits for its connections."""
        if name not in self._awaited:
            raise ConflictError(f"{name} is not expected to connect, or has not been confirmed yet")

    def is_connected(self, name: str) -> bool:
        """Whether a service that connects itself has done so."""
        return name in self._awaited and self._awaited[name].is_connected

    async def drop(self, name: str) -> None:
        """Expect a service no more."""
        if awaited := self._awaited.pop(name, None):
            await awaited.close()

    async def keep_alive(self) -> None:
        """Tend all connections, again and again: one that is silent keeps none of the others waiting."""
        async with asyncio.TaskGroup() as tries:
            while True:
                await asyncio.sleep(_TICK)
                for awaited in self._awaited.values():
                    awaited.tend(tries)
