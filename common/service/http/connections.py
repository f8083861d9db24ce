"""Connections that nobody can fill, hold or crowd: what uvicorn leaves open is bounded here.

Three things are bounded by `Limits`: the bytes that come without a piece of body (a head, the trailers or the framing
of a body), the time for which a client is waited for, and the number of connections. When there are too many, the one
whose client has been waited for longest makes room; where all are busy, a request is told so by the boundary.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import httptools
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from common.errors import InvalidInputError
from common.service.logs import place_of
from common.service.settings import Limits
from common.strict import spelt_address

CROWDED = "parley.crowded"
"""The key of a request's ``state`` that says that too many connections are open."""
TAKE_OVER = "parley.take-over"
"""The key of a request's ``state`` whose value takes the connection that it came on: see `Taken`."""

CERTIFIED = "parley.certified"
"""The key of a request's ``state`` whose value tells for which names its client's certificate is: none without one."""

Taken = Callable[[bytes], tuple[asyncio.StreamReader, asyncio.StreamWriter]]
"""Sends a head that ends HTTP as it was on this connection, which is the caller's from then on."""

_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_MOST_PIPELINED = 100  # requests that wait for the answers to those before them; uvicorn keeps any number
_TICKS = 10  # of uvicorn's, a second


class CloseDelimitedCycle(RequestResponseCycle):
    """An answer to HTTP/1.0, which knows no chunks: a body of unknown length ends with its connection.

    RFC 9112, sections 6.1 and 6.3.
    """

    _ends_with_connection = False

    async def send(self, message: Any) -> None:  # noqa: ANN401 -- any message of ASGI
        """Send a piece of the answer, whose own length is all that uvicorn then expects of the body."""
        if message["type"] == "http.response.start":
            self._ends_with_connection = all(name.lower() != b"content-length" for name, _ in message["headers"])
            if self._ends_with_connection:
                self.chunked_encoding = False
        elif self._ends_with_connection:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds; it costs a request about a microsecond more.

    A request that offers an upgrade is read as one that does not (RFC 9110, 7.8): its body is a body, and its route
    alone decides what the connection becomes. The parser would take what follows such a head for another protocol.
    """

    def __init__(self, *args: Any, limits: Limits, **options: Any) -> None:  # noqa: ANN401 -- as uvicorn calls it
        super().__init__(*args, **options)
        self._limits = limits
        self._bare_bytes = 0  # since the last piece of body, or the last end of a head or of a message
        self.waiting_since: float | None = None  # when the client began to be waited for; None while it is not
        self._full_since: float | None = None  # when it ceased to take what is written
        self._overdue: float | None = None  # since when it was waited for, as it was last found to be overdue
        self._offers: list[tuple[bytes, bytes]] = []  # what a head said of an upgrade, while it is read once more

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the client, and have another connection make room if there are too many."""
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        if len(self.connections) > self._limits.connections:
            waited_for = (other for other in self.connections if getattr(other, "waiting_since", None) is not None)
            oldest = min(waited_for, key=lambda other: getattr(other, "waiting_since", 0.0))
            if oldest is not self:
                oldest.transport.abort()
                self.connections.discard(oldest)

    def data_received(self, data: bytes) -> None:
        """Refuse a head that does not end, a body that is all framing, and requests that do not wait for answers."""
        self._bare_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._bare_bytes > self._limits.head_bytes and not self.transport.is_closing():
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()
        if len(self.pipeline) > _MOST_PIPELINED:
            self.transport.abort()

    def _parse(self, data: bytes) -> None:
        """Have the parser read what has come; where it stops at an offer to upgrade, it reads that head without it."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:
                data = self._head_without_offer() + data[stop.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
            else:
                return

    def _head_without_offer(self) -> bytes:
        """The head that was read last as the parser takes it for one of a plain request; notes what it leaves out."""
        self._offers = [(name, value) for name, value in self.headers if name == b"upgrade"]
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    @property
    def _is_read_again(self) -> bool:
        """Whether the parser stops after the head that it reads, so that `_parse` has it read without its offer."""
        return bool(self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT"

    def on_message_begin(self) -> None:
        """A request begins to arrive; note whether it comes to a crowd."""
        super().on_message_begin()
        self.waiting_since = self.loop.time()
        self.scope["state"][TAKE_OVER], self.scope["state"][CERTIFIED] = self._take_over, self._certified
        if len(self.connections) > self._limits.connections:
            self.scope["state"][CROWDED] = True

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self._bare_bytes = 0
        if self._is_read_again:
            return
        self.headers += self._offers
        self._offers = []
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self.cycle.__class__ = CloseDelimitedCycle

    def on_body(self, body: bytes) -> None:
        """A piece of body has come."""
        self._bare_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has arrived, and the client waits for us."""
        self._bare_bytes = 0
        if self._is_read_again:
            return
        self.waiting_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The client is waited for again, unless its next request has come already."""
        if not self.pipeline:
            self.waiting_since = self.loop.time()
        super().on_response_complete()

    def _take_over(self, head: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See `Taken`: whatever the application answers to this request afterwards is not sent."""
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self.cycle.disconnected = True
        self.transport.write(head)
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.flow.resume_reading()
        return reader, asyncio.StreamWriter(self.transport, protocol, reader, self.loop)

    def _certified(self) -> tuple[str, ...]:
        """The names of the client's certificate."""
        shown = (tls.getpeercert() if (tls := self.transport.get_extra_info("ssl_object")) else None) or {}
        return tuple(str(name) for _, name in shown.get("subjectAltName", ()))

    def pause_writing(self) -> None:
        """The client does not take what is written."""
        self._full_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._full_since = None
        super().resume_writing()

    def expire(self) -> None:
        """Close the connection if its client has been waited for too long, and not because we do not read.

        It must be so twice in a row: what it sent while the loop was held up may not have been read yet.
        """
        since = self._full_since if self.flow.read_paused or self._full_since else self.waiting_since
        if since is None or self.loop.time() - since <= self._limits.receive_seconds:
            return
        if self._overdue == since:
            self.transport.abort()
        self._overdue = since


Beside = Callable[["BoundedServer"], Awaitable[None]]
"""What runs beside a server from its start until it stops."""


class BoundedServer(uvicorn.Server):
    """uvicorn's server with bounded connections, which does something else once a second, and other things beside."""

    def __init__(
        self,
        config: uvicorn.Config,
        limits: Limits,
        tend: Callable[[], Awaitable[None]],
        beside: Sequence[Beside] = (),
    ) -> None:
        config.http = partial(BoundedProtocol, limits=limits)  # type: ignore[assignment]
        super().__init__(config)
        self.limits = limits
        self._tend = tend
        self._beside = beside
        self._running: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start what runs beside when requests can be served; InvalidInputError where the address cannot be had."""
        try:
            await super().startup(sockets)
        except SystemExit as ended:
            if isinstance(why := ended.__context__, OSError):  # which uvicorn logs, and no more
                place = spelt_address(self.config.host, self.config.port)
                reason = why.strerror if isinstance(why, socket.gaierror) else os.strerror(why.errno or 0)
                raise InvalidInputError(f"{place} cannot be listened on: {reason}") from None
            raise
        if self.started:
            self._running = [asyncio.create_task(_kept_up(start, self)) for start in self._beside]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop it before connections are closed."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Close what has been waited for too long."""
        if counter % _TICKS == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.expire()
            await self._tend()
        return await super().on_tick(counter)


async def _kept_up(start: Beside, server: BoundedServer) -> None:
    """Run something beside a server; what it did not foresee is logged, and it is started again."""
    while True:
        try:
            await start(server)
        except Exception as error:  # noqa: BLE001 -- a boundary: the service goes on
            structlog.get_logger().error("internal", error=type(error).__name__, place=place_of(error))
        await asyncio.sleep(1.0)
