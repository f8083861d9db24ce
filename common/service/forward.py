"""Pass TCP connections on to named places: the one way out of a container that has no other.

The Compose file of a site (`parley.common.service.compose`) puts the service on a network that leads nowhere, with a
forwarder that answers there to the learner's name. Bytes pass as they come: TLS is between the service and the learner,
and the forwarder sees when they speak, and how much.
"""

from __future__ import annotations

import asyncio
import re
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import structlog

from parley.common.errors import InvalidInputError, UnavailableError

_SPELT = re.compile(
    r"(?:(?P<listen>\d{1,5}):)?(?P<host>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?):(?P<port>\d{1,5})", re.ASCII
)
_LAST_PORT = 2**16 - 1
_CONNECT_SECONDS = 10.0
_MOST_AT_ONCE = 2**16  # bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where connections to ``listen``, a port of this machine, are passed on to."""

    listen: int
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``HOST:PORT`` or ``LISTEN:HOST:PORT``; raises InvalidInputError.

        >>> Place.parse("learner.example.org:8100"), Place.parse("9101:party:9100").listen
        (Place(listen=8100, host='learner.example.org', port=8100), 9101)
        """
        spelt = _SPELT.fullmatch(text)
        if spelt is None:
            raise InvalidInputError(f"{text} is not HOST:PORT, such as learner.example.org:8100")
        port = int(spelt["port"])
        place = cls(int(spelt["listen"] or port), spelt["host"], port)
        if not (0 < place.listen <= _LAST_PORT and 0 < place.port <= _LAST_PORT):
            raise InvalidInputError(f"{text}: a port is a number from 1 to {_LAST_PORT}")
        return place

    @classmethod
    def parse_all(cls, texts: Sequence[str]) -> tuple[Self, ...]:
        """Parse several, each once; raises InvalidInputError, also for two places that need the same port here."""
        places = tuple(dict.fromkeys(map(cls.parse, texts)))
        if len({place.listen for place in places}) < len(places):
            raise InvalidInputError(f"{', '.join(texts)}: two places need the same port, and one listens there")
        return places


async def forward(places: Sequence[Place], address: str) -> None:
    """Listen on the places' ports and pass connections on, until the task is cancelled.

    Raises UnavailableError where a port is taken or may not be listened on.
    """
    with ExitStack() as stack:
        for place in places:
            try:
                server = await asyncio.start_server(_Forwarder(place).pass_on, address, place.listen)
            except OSError as error:
                raise UnavailableError(f"port {place.listen} cannot be listened on: {error.strerror}") from None
            stack.callback(server.close)
            structlog.get_logger().info("forwarding", port=place.listen, to=f"{place.host}:{place.port}")
        await asyncio.get_running_loop().create_future()  # until cancelled


class _Forwarder:
    """Passes connections on to one place; logs once that it cannot be reached, and once that it can again."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._last_problem: str | None = None

    async def pass_on(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Connect to the place and copy both ways until both ends are done; an end that is gone ends the other."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                their_reader, their_writer = await asyncio.open_connection(self._place.host, self._place.port)
        except (OSError, TimeoutError) as error:
            self._tell(str(error) or "nobody answers in time")
            writer.transport.abort()
            return
        self._tell(None)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, their_writer))
                both.create_task(_copy(their_reader, writer))
        except* OSError:
            pass  # who waits at the other end sees it end
        finally:
            their_writer.close()
            writer.close()

    def _tell(self, problem: str | None) -> None:
        if problem != self._last_problem:
            self._last_problem = problem
            log = structlog.get_logger().bind(to=f"{self._place.host}:{self._place.port}")
            if problem:
                log.warning("forwarding", connected=False, reason=problem)
            else:
                log.info("forwarding", connected=True)


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    """Copy what comes until its end, and pass the end on; raises OSError where either connection is gone."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    while data := await reader.read(_MOST_AT_ONCE):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
