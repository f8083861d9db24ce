"""Connections that a service opens to those that send it requests, so that nobody has to reach the service.

A party behind a firewall connects to its learner and shows a token. From then on the learner sends requests on that
connection as it would on one to the party: HTTP/1.1 with the roles turned round. Requests, answers and their limits are
those of any other connection, and it costs neither side more. A connection carries one request at a time; the service
that connects keeps one to spare.

While no request is sent, neither side can see whether the other is still there. So a health check is sent on a
connection that was not in use for `PING_SECONDS`; if it fails, both sides close the connection.
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
"""How long a connection may be idle before it is tried; its other side closes it after three times that."""

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
        """Add a connection; if there are too many idle ones, the oldest is closed."""
        self._keep(connection)
        while len(self._idle) > _MOST_IDLE:
            self._idle.pop(0).close()

    def tend(self, tries: asyncio.TaskGroup) -> None:
        """Start to try the connections that were idle for a while, and those that the other side has closed."""
        now = asyncio.get_running_loop().time()
        to_try = [line for line in self._idle if line.is_closed or now - line.used_at >= PING_SECONDS]
        self._idle = [line for line in self._idle if line not in to_try]
        for connection in to_try:
            tries.create_task(self._try(connection))

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
        """Send a health check on a connection; keep it if it answers, otherwise close it."""
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
    """Makes lines to services: by ``direct`` to those with a URL, to others over the connections that they open."""

    def __init__(self, direct: Callable[[PeerEntry], Line] = Line) -> None:
        self._direct = direct
        self._awaited: dict[str, AwaitedConnections] = {}

    def connect(self, entry: PeerEntry) -> Line:
        """Return the line to a service; raises InvalidInputError for an entry whose files cannot be read."""
        if entry.connects_with is None:
            return self._direct(entry)
        return Line(entry, self._awaited.setdefault(entry.name, AwaitedConnections()))

    def add(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Add a connection that a service has opened; raises ConflictError unless a line to it waits for one."""
        self.check(name)
        self._awaited[name].add(Connection(reader, writer))

    def check(self, name: str) -> None:
        """Raise ConflictError unless a line to this service waits for its connections."""
        if name not in self._awaited:
            raise ConflictError(f"{name} is not expected to connect, or has not been confirmed yet")

    def is_connected(self, name: str) -> bool:
        """Return whether a service that connects itself has done so."""
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
