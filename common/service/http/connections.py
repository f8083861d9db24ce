"""Bounds on connections, which uvicorn leaves unbounded, so that no client can fill, block or crowd a service.

`Limits` bound three things: the bytes that come without a piece of body (a head, trailers, or the framing of a body),
the time to wait for a client, and the number of connections. When there are too many, one makes room. Connections on
which nobody has signed in go first, the one from which nothing was received for longest; then those that wait for their
client. Where all are busy, a new connection is answered by the boundary with a refusal. A connection counts from its
acceptance on, before TLS. There are never more than the process may have files open for (`connections_allowed`), and no
caller has more than its share.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httptools
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.service.fair_use import Share
from parley.common.service.logs import place_of
from parley.common.service.settings import Limits
from parley.common.strict import spelt_address

TAKE_OVER = "parley.take-over"
"""The key of a request's ``state`` whose value takes over the connection of the request: see `Taken`."""

CERTIFIED = "parley.certified"
"""The key of a request's ``state`` whose value returns the names in its client's certificate, none without one."""

Taken = Callable[[bytes], tuple[asyncio.StreamReader, asyncio.StreamWriter]]
"""Sends a head that ends HTTP on this connection, and returns its streams, which the caller owns from then on."""

SIGNED_IN = "parley.signed-in"
"""The key of a request's ``state`` whose value takes the caller's name, and may refuse it: see `Crowd.sign_in`."""

_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_MOST_PIPELINED = 100  # requests that wait for previous answers; uvicorn allows any number
_TICKS = 10  # of uvicorn in a second
_ACCEPTED_AT_ONCE = 4  # connections, before the loop runs other work
_BACKLOG = 2048  # connections that the system queues until they are accepted
_BEYOND = 8  # connections above the bound that are answered with a refusal
_OWN_FILES = 24
"""Files that a service may open besides its connections: sockets that listen, journals of SQLite, pipes."""
_FEWEST = 8  # connections, without which a service is useless
_NO_FILES_LEFT_SECONDS = 0.1


def connections_allowed(limits: Limits, peers: int) -> int:
    """Return the number of connections that may be open at once: the limits', or what the limit on files allows.

    ``peers`` are services that this one connects to. Raises InvalidInputError where the limit on files is too low.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return limits.connections
    own_files = _count_open_files() + _OWN_FILES + peers
    if limit < own_files + _FEWEST:
        raise InvalidInputError(
            f"this process may have {limit} files open (ulimit -n), and needs {own_files + _FEWEST} at least: "
            f"{own_files} of its own and {_FEWEST} connections; limits.connections = {limits.connections} needs "
            f"{own_files + limits.connections}"
        )
    return min(limits.connections, limit - own_files)


def _count_open_files() -> int:
    """Count the files that this process has open."""
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        return _OWN_FILES


class Crowd:
    """All connections of a server, those in a TLS handshake included: ``most`` in all, ``per_caller`` of one caller.

    ``connections`` is uvicorn's set of them.
    """

    def __init__(self, connections: set[Any], most: int, per_caller: int) -> None:
        self.most = most
        self.arrivals: dict[socket.socket, float] = {}
        """Accepted connections that have not finished TLS, the oldest first, and when they came."""
        self._open = connections
        self._signed_in = 0
        self._share = Share(
            "connections",
            max(1, min(per_caller, most // 2)),
            "connections open",
            "use those again, or close some",
            retry_seconds=5,
        )

    def make_room(self) -> bool:
        """Close one if there are too many; returns False if all are signed in and busy, and there are many too many."""
        if len(self._open) + len(self.arrivals) < self.most:
            return True
        strangers = [connection for connection in self._open if connection.caller is None]
        silent = [connection for connection in self._open if connection.waiting_since is not None]
        oldest = min(strangers or silent, key=lambda connection: connection.last_heard, default=None)
        accepted, arrived = next(iter(self.arrivals.items()), (None, math.inf))
        if accepted is not None and (oldest is None or not strangers or arrived < oldest.last_heard):
            del self.arrivals[accepted]
            with suppress(OSError):  # its client has closed it
                accepted.shutdown(socket.SHUT_RDWR)  # ends TLS, and so the connection
            return True
        if oldest is not None:
            oldest.transport.abort()
            oldest.leave()
            return True
        return len(self._open) < self.most + _BEYOND

    def sign_in(self, connection: BoundedProtocol, caller: Hashable, *, is_kept_room: bool) -> None:
        """Note the caller of a connection; if ``is_kept_room``, also where there are too many.

        Raises UnavailableError where as many as there may be have signed in, and ShareUsedUpError where the caller has
        its share.
        """
        if connection.caller == caller:
            return
        self.sign_out(connection)
        if self._signed_in >= self.most and not is_kept_room:
            raise UnavailableError("too many connections are open; try again later")
        self._share.take(caller)
        self._signed_in += 1
        connection.caller = caller

    def sign_out(self, connection: BoundedProtocol) -> None:
        """Note that a connection has no caller any more."""
        if connection.caller is not None:
            self._share.give_back(connection.caller)
            self._signed_in -= 1
            connection.caller = None


class LastCycle(RequestResponseCycle):
    """An answer after which the connection is closed, but not before the request's body has come.

    Closing it while a client still sends would reset it, and lose the answer on its way (RFC 9112, section 9.6).
    """

    is_waiting = False  # for the remaining body

    async def send(self, message: Any) -> None:  # noqa: ANN401 -- any message of ASGI
        """Send a piece of the answer; the connection stays open for a body that is on its way."""
        if message["type"] == "http.response.start":
            self.is_waiting = self.more_body and not self.waiting_for_100_continue and self._has_length(message)
        elif self.is_waiting and not message.get("more_body", False):
            self.is_waiting = self.keep_alive = self.more_body
        await super().send(message)

    def _has_length(self, message: Any) -> bool:  # noqa: ANN401 -- as above
        """Say whether a client can tell where the answer ends."""
        return self.scope["http_version"] != "1.0" or any(n.lower() == b"content-length" for n, _ in message["headers"])


class CloseDelimitedCycle(LastCycle):
    """An answer to HTTP/1.0, which has no chunks: the end of its connection ends a body of unknown length.

    RFC 9112, sections 6.1 and 6.3.
    """

    _ends_with_connection = False

    async def send(self, message: Any) -> None:  # noqa: ANN401 -- any message of ASGI
        """Send a piece of the answer; uvicorn expects no more of the body than its length."""
        if message["type"] == "http.response.start":
            self._ends_with_connection = not self._has_length(message)
            if self._ends_with_connection:
                self.chunked_encoding = False
        elif self._ends_with_connection:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class _HostsError(Exception):
    """A head names no host, or several: a proxy on the way may have chosen another of them."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds; they cost about a microsecond a request.

    A request that offers an upgrade is read as one that does not (RFC 9110, 7.8): its body is a body, and its route
    alone decides what the connection becomes. The parser would take the bytes after such a head for another protocol.
    """

    def __init__(self, *args: Any, limits: Limits, crowd: Crowd, **options: Any) -> None:  # noqa: ANN401 -- uvicorn's
        super().__init__(*args, **options)
        self._limits, self._crowd = limits, crowd
        self.caller: Hashable = None  # the one who signed in last
        self.last_heard = 0.0  # when a request began to arrive, or the wait for the client began
        self._bare_bytes = 0  # since the last piece of body, or end of a head or message
        self.waiting_since: float | None = None  # when the wait for the client began; None without a wait
        self._full_since: float | None = None  # when the send buffer became full
        self._overdue: float | None = None  # when the wait began that was too long at the last check
        self._offers: list[tuple[bytes, bytes]] = []  # headers that offer an upgrade, while their head is parsed again

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the client when a connection begins."""
        super().connection_made(transport)
        self.waiting_since = self.last_heard = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the count once it has ended."""
        super().connection_lost(exc)
        self.leave()

    def leave(self) -> None:
        """Remove this connection from the count."""
        self.connections.discard(self)
        self._crowd.sign_out(self)

    def data_received(self, data: bytes) -> None:
        """Refuse a head that does not end, a body that is all framing, and too many requests ahead of their answers."""
        self._bare_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            of_hosts = isinstance(error.__context__, _HostsError)
            self.send_400_response(str(error.__context__) if of_hosts else "Invalid HTTP request received.")
            return
        if self._bare_bytes > self._limits.head_bytes and not self.transport.is_closing():
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()
        if len(self.pipeline) > _MOST_PIPELINED:
            self.transport.abort()

    def _parse(self, data: bytes) -> None:
        """Parse received bytes; where the parser stops at an offer to upgrade, parse that head again without it."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:
                data = self._head_without_offer() + data[stop.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
            else:
                return

    def _head_without_offer(self) -> bytes:
        """Return the last head as one of a plain request, and keep the headers of the offer aside."""
        self._offers = [(name, value) for name, value in self.headers if name == b"upgrade"]
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    @property
    def _is_read_again(self) -> bool:
        """Whether the parser stops after this head, so that `_parse` parses it again without its offer."""
        return bool(self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT"

    def on_message_begin(self) -> None:
        """Note when a request begins to arrive, and let the application take the connection over."""
        super().on_message_begin()
        self.waiting_since = self.last_heard = self.loop.time()
        self.scope["state"][TAKE_OVER], self.scope["state"][CERTIFIED] = self._take_over, self._certified
        self.scope["state"][SIGNED_IN] = partial(self._crowd.sign_in, self)

    def on_headers_complete(self) -> None:
        """Complete and check a head once all of it has come."""
        self._bare_bytes = 0
        if self._is_read_again:
            return
        self.headers += self._offers
        self._offers = []
        if self.url[:8].lower().startswith((b"http://", b"https://")):
            self.url = _origin_form(self.url)
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            raise _HostsError(f"Host is named {hosts} times, and once is right (RFC 9112, 3.2).")
        super().on_headers_complete()
        if not self.cycle.keep_alive:
            self.cycle.__class__ = CloseDelimitedCycle if self.scope["http_version"] == "1.0" else LastCycle

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._bare_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the wait for the client at the end of a request: the client now waits for the service."""
        self._bare_bytes = 0
        if self._is_read_again:
            return
        self.waiting_since = None
        super().on_message_complete()
        if isinstance(self.cycle, LastCycle) and self.cycle.is_waiting and self.cycle.response_complete:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the client at the end of an answer, unless its next request has come already."""
        if not self.pipeline:
            self.waiting_since = self.last_heard = self.loop.time()
        super().on_response_complete()

    def _take_over(self, head: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See `Taken`: any later answer of the application to this request is dropped."""
        self._unset_keepalive_if_required()
        self.leave()
        self.cycle.disconnected = True
        self.transport.write(head)
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.flow.resume_reading()
        return reader, asyncio.StreamWriter(self.transport, protocol, reader, self.loop)

    def _certified(self) -> tuple[str, ...]:
        """Return the names in the client's certificate."""
        certificate = (tls.getpeercert() if (tls := self.transport.get_extra_info("ssl_object")) else None) or {}
        return tuple(str(name) for _, name in certificate.get("subjectAltName", ()))

    def pause_writing(self) -> None:
        """Note since when the send buffer is full: the client reads too slowly."""
        self._full_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the send buffer has drained."""
        self._full_since = None
        super().resume_writing()

    def expire(self) -> None:
        """Close the connection after too long a wait for its client, unless the wait is for this service to read.

        Two checks in a row must find it: while the loop was blocked, what the client sent may not have been read yet.
        """
        since = self._full_since if self.flow.read_paused or self._full_since else self.waiting_since
        if since is None or self.loop.time() - since <= self._limits.receive_seconds:
            return
        if self._overdue == since:
            self.transport.abort()
        self._overdue = since


def _origin_form(target: bytes) -> bytes:
    """Return the path and query of an absolute URL, as a client sends it to a proxy; its path may be missing."""
    place = target.partition(b"://")[2].partition(b"?")
    path, query = place[0].partition(b"/")[2], place[2]
    return b"/" + path + place[1] + query


Beside = Callable[["BoundedServer"], Awaitable[None]]
"""A coroutine that runs beside a server from its start until it stops."""


class Door:
    """Accepts connections in place of asyncio: a few at a time, and counted before TLS begins."""

    def __init__(self, server: BoundedServer, listening: int) -> None:
        """Accept on the socket with the descriptor ``listening``, which is duplicated."""
        self._server, self._loop = server, asyncio.get_running_loop()
        self._socket = socket.socket(fileno=os.dup(listening))
        self._socket.setblocking(False)  # noqa: FBT003 -- as sockets have it
        self._socket.listen(_BACKLOG)
        self._welcomed: set[asyncio.Task[None]] = set()
        self._open()

    def close(self) -> None:
        """Accept no more."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _open(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        """Accept a few connections; where there are too many, each replaces an idle one."""
        crowd = self._server.crowd
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file can be opened until some are closed
                structlog.get_logger().warning("connections", accepted=False, reason=error.strerror)
                crowd.make_room()
                self._loop.remove_reader(self._socket)
                self._loop.call_later(_NO_FILES_LEFT_SECONDS, self._open)
                return
            if not crowd.make_room():
                accepted.close()
                continue
            accepted.setblocking(False)  # noqa: FBT003 -- as sockets have it
            crowd.arrivals[accepted] = self._loop.time()
            task = self._loop.create_task(self._welcome(accepted))
            self._welcomed.add(task)
            task.add_done_callback(self._welcomed.discard)

    async def _welcome(self, accepted: socket.socket) -> None:
        """Have uvicorn serve a connection after its TLS handshake."""
        server, context = self._server, self._server.config.ssl
        seconds = server.limits.receive_seconds if context else None
        try:
            await self._loop.connect_accepted_socket(
                server.protocol, accepted, ssl=context, ssl_handshake_timeout=seconds
            )
        except OSError:  # it was closed, sent no TLS, or has made room
            return
        finally:
            server.crowd.arrivals.pop(accepted, None)


class BoundedServer(uvicorn.Server):
    """uvicorn's server with bounded connections, a task once a second, and coroutines beside it.

    It has ``most`` connections at once, and ``per_caller`` of one caller.
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- the parts of a server
        self,
        config: uvicorn.Config,
        limits: Limits,
        tend: Callable[[], Awaitable[None]],
        beside: Sequence[Beside] = (),
        most: int | None = None,
        per_caller: int | None = None,
    ) -> None:
        super().__init__(config)
        most = most or limits.connections
        self.crowd = Crowd(self.server_state.connections, most, per_caller or most)
        config.http = partial(BoundedProtocol, limits=limits, crowd=self.crowd)  # type: ignore[assignment]
        self.limits = limits
        self._doors: list[Door] = []
        self._tend = tend
        self._beside = beside
        self._running: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, then what runs beside; raises InvalidInputError where the address cannot be used."""
        try:
            await super().startup(sockets)
        except SystemExit as ended:
            if isinstance(cause := ended.__context__, OSError):  # uvicorn only logs it
                place = spelt_address(self.config.host, self.config.port)
                reason = cause.strerror if isinstance(cause, socket.gaierror) else os.strerror(cause.errno or 0)
                raise InvalidInputError(f"{place} cannot be listened on: {reason}") from None
            raise
        if self.started:
            descriptors = [listener.fileno() for server in self.servers for listener in server.sockets]
            self._doors = [Door(self, descriptor) for descriptor in descriptors]
            for server in self.servers:
                server.close()  # it would also accept connections, and not count those in their TLS handshake
            self._running = [asyncio.create_task(kept_up(start, self)) for start in self._beside]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting and what runs beside, then close the connections."""
        for door in self._doors:
            door.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await super().shutdown(sockets)

    def protocol(self) -> asyncio.Protocol:
        """Make the protocol for one more connection."""
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    async def on_tick(self, counter: int) -> bool:
        """Close connections that have waited too long for their client, once a second."""
        if counter % _TICKS == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.expire()
            await self._tend()
        return await super().on_tick(counter)


async def kept_up(start: Beside, server: BoundedServer) -> None:
    """Run something beside a server; an unforeseen error is logged, and it is started again."""
    while True:
        try:
            await start(server)
        except Exception as error:  # noqa: BLE001 -- a boundary: the service goes on
            structlog.get_logger().error("internal", error=type(error).__name__, place=place_of(error))
        await asyncio.sleep(1.0)
