"""Connections that nobody can fill, hold or crowd: what uvicorn leaves open is bounded here.

Three things are bounded by `Limits`: the bytes that come without a piece of body (a head, the trailers or the framing
of a body), the time for which a client is waited for, and the number of connections. When there are too many, one makes
room: a stranger's first, on which nobody has signed in, the one from which nothing was heard for longest; then one
whose client is waited for. Where all are busy, a new one is told so by the boundary. A connection counts from its
acceptance on, before TLS. There are never more than the process may have files open for (`connections_allowed`), and of
each caller no more than its share.
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
"""The key of a request's ``state`` whose value takes the connection that it came on: see `Taken`."""

CERTIFIED = "parley.certified"
"""The key of a request's ``state`` whose value tells for which names its client's certificate is: none without one."""

Taken = Callable[[bytes], tuple[asyncio.StreamReader, asyncio.StreamWriter]]
"""Sends a head that ends HTTP as it was on this connection, which is the caller's from then on."""

SIGNED_IN = "parley.signed-in"
"""The key of a request's ``state`` whose value is told who asks, and may refuse: see `Crowd.sign_in`."""

_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_MOST_PIPELINED = 100  # requests that wait for the answers to those before them; uvicorn keeps any number
_TICKS = 10  # of uvicorn's, a second
_ACCEPTED_AT_ONCE = 4  # connections, between two looks at all others
_BACKLOG = 2048  # connections that the system keeps until they are accepted
_BEYOND = 8  # connections above the bound, all of whose others are busy, that are told so
_OWN_FILES = 24
"""Files that a service may open while it runs, beside its connections: to listen, journals of SQLite, pipes."""
_FEWEST = 8  # connections, below which a service is of no use
_NO_FILES_LEFT_SECONDS = 0.1


def connections_allowed(limits: Limits, peers: int) -> int:
    """How many connections may be open at once: those of the limits, or as many as there may be files open for.

    ``peers`` are others whom this service connects to. Raises InvalidInputError where there may be too few files.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return limits.connections
    own = _count_open_files() + _OWN_FILES + peers
    if most < own + _FEWEST:
        raise InvalidInputError(
            f"this process may have {most} files open (ulimit -n), and needs {own + _FEWEST} at least: {own} of its "
            f"own and {_FEWEST} connections; limits.connections = {limits.connections} needs {own + limits.connections}"
        )
    return min(limits.connections, most - own)


def _count_open_files() -> int:
    """The files that this process has open."""
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        return _OWN_FILES


class Crowd:
    """All who are connected to one server, or about to be: ``most`` in all, and ``each`` of one caller.

    ``connections`` is uvicorn's set of them.
    """

    def __init__(self, connections: set[Any], most: int, each: int) -> None:
        self.most = most
        self.arrivals: dict[socket.socket, float] = {}
        """Those that are accepted, and have not finished TLS, the oldest first."""
        self._open = connections
        self._signed_in = 0
        self._share = Share(
            "connections",
            max(1, min(each, most // 2)),
            "connections open",
            "use those again, or close some",
            retry_seconds=5,
        )

    def make_room(self) -> bool:
        """Have one go, if there are too many; False where all have signed in and are busy, and many more than that."""
        if len(self._open) + len(self.arrivals) < self.most:
            return True
        strangers = [each for each in self._open if each.caller is None]
        silent = [each for each in self._open if each.waiting_since is not None]
        oldest = min(strangers or silent, key=lambda each: each.last_heard, default=None)
        accepted, arrived = next(iter(self.arrivals.items()), (None, math.inf))
        if accepted is not None and (oldest is None or not strangers or arrived < oldest.last_heard):
            del self.arrivals[accepted]
            with suppress(OSError):  # its client has gone by itself
                accepted.shutdown(socket.SHUT_RDWR)  # which ends TLS, and with it the connection
            return True
        if oldest is not None:
            oldest.transport.abort()
            oldest.leave()
            return True
        return len(self._open) < self.most + _BEYOND

    def sign_in(self, connection: BoundedProtocol, caller: Hashable, *, is_kept_room: bool) -> None:
        """Note who asks on a connection; there may ``is_kept_room`` for it where there are too many.

        Raises UnavailableError for a new one where all that there may be have signed in, and ShareUsedUpError where the
        caller has its share.
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
        """A connection is nobody's any more."""
        if connection.caller is not None:
            self._share.give_back(connection.caller)
            self._signed_in -= 1
            connection.caller = None


class LastCycle(RequestResponseCycle):
    """An answer after which the connection is closed: not before the request's body has come.

    To close it while a client still sends would reset it, and lose the answer on its way (RFC 9112, section 9.6).
    """

    is_waiting = False  # for the rest of the body

    async def send(self, message: Any) -> None:  # noqa: ANN401 -- any message of ASGI
        """Send a piece of the answer; the connection stays for a body that is on its way."""
        if message["type"] == "http.response.start":
            self.is_waiting = self.more_body and not self.waiting_for_100_continue and self._has_length(message)
        elif self.is_waiting and not message.get("more_body", False):
            self.is_waiting = self.keep_alive = self.more_body
        await super().send(message)

    def _has_length(self, message: Any) -> bool:  # noqa: ANN401 -- as above
        """Whether a client can tell where the answer ends."""
        return self.scope["http_version"] != "1.0" or any(n.lower() == b"content-length" for n, _ in message["headers"])


class CloseDelimitedCycle(LastCycle):
    """An answer to HTTP/1.0, which knows no chunks: a body of unknown length ends with its connection.

    RFC 9112, sections 6.1 and 6.3.
    """

    _ends_with_connection = False

    async def send(self, message: Any) -> None:  # noqa: ANN401 -- any message of ASGI
        """Send a piece of the answer, whose own length is all that uvicorn then expects of the body."""
        if message["type"] == "http.response.start":
            self._ends_with_connection = not self._has_length(message)
            if self._ends_with_connection:
                self.chunked_encoding = False
        elif self._ends_with_connection:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class _HostsError(Exception):
    """A head names no host, or several: which of two counts, a proxy on the way may have taken otherwise."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds; it costs a request about a microsecond more.

    A request that offers an upgrade is read as one that does not (RFC 9110, 7.8): its body is a body, and its route
    alone decides what the connection becomes. The parser would take what follows such a head for another protocol.
    """

    def __init__(self, *args: Any, limits: Limits, crowd: Crowd, **options: Any) -> None:  # noqa: ANN401 -- uvicorn's
        super().__init__(*args, **options)
        self._limits, self._crowd = limits, crowd
        self.caller: Hashable = None  # who signed in here last
        self.last_heard = 0.0  # when a request began to arrive, or the client to be waited for
        self._bare_bytes = 0  # since the last piece of body, or the last end of a head or of a message
        self.waiting_since: float | None = None  # when the client began to be waited for; None while it is not
        self._full_since: float | None = None  # when it ceased to take what is written
        self._overdue: float | None = None  # since when it was waited for, as it was last found to be overdue
        self._offers: list[tuple[bytes, bytes]] = []  # what a head said of an upgrade, while it is read once more

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the client."""
        super().connection_made(transport)
        self.waiting_since = self.last_heard = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        super().connection_lost(exc)
        self.leave()

    def leave(self) -> None:
        """Count no more among the connections."""
        self.connections.discard(self)
        self._crowd.sign_out(self)

    def data_received(self, data: bytes) -> None:
        """Refuse a head that does not end, a body that is all framing, and requests that do not wait for answers."""
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
        """A request begins to arrive."""
        super().on_message_begin()
        self.waiting_since = self.last_heard = self.loop.time()
        self.scope["state"][TAKE_OVER], self.scope["state"][CERTIFIED] = self._take_over, self._certified
        self.scope["state"][SIGNED_IN] = partial(self._crowd.sign_in, self)

    def on_headers_complete(self) -> None:
        """The head has ended."""
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
        if isinstance(self.cycle, LastCycle) and self.cycle.is_waiting and self.cycle.response_complete:
            self.transport.close()

    def on_response_complete(self) -> None:
        """The client is waited for again, unless its next request has come already."""
        if not self.pipeline:
            self.waiting_since = self.last_heard = self.loop.time()
        super().on_response_complete()

    def _take_over(self, head: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See `Taken`: whatever the application answers to this request afterwards is not sent."""
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


def _origin_form(target: bytes) -> bytes:
    """The path and the query of a whole address, as a proxy is asked for it, of which the path may be left out."""
    place = target.partition(b"://")[2].partition(b"?")
    path, query = place[0].partition(b"/")[2], place[2]
    return b"/" + path + place[1] + query


Beside = Callable[["BoundedServer"], Awaitable[None]]
"""What runs beside a server from its start until it stops."""


class Door:
    """Where connections are accepted, in place of asyncio's own way: a few at a time, and counted before TLS begins."""

    def __init__(self, server: BoundedServer, listening: int) -> None:
        """Accept on the socket with the descriptor ``listening``, of which this has one of its own."""
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
        """Accept a few connections, each in the place of one that says nothing where there are too many."""
        crowd = self._server.crowd
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file can be opened: some will be closed
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
        """Have uvicorn serve a connection, once TLS has begun on it."""
        server, context = self._server, self._server.config.ssl
        seconds = server.limits.receive_seconds if context else None
        try:
            await self._loop.connect_accepted_socket(
                server.protocol, accepted, ssl=context, ssl_handshake_timeout=seconds
            )
        except OSError:  # it was closed, spoke no TLS, or has made room
            return
        finally:
            server.crowd.arrivals.pop(accepted, None)


class BoundedServer(uvicorn.Server):
    """uvicorn's server with bounded connections, which does something else once a second, and other things beside.

    It has ``most`` connections at once, and ``each`` of one caller.
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- what a server is made of
        self,
        config: uvicorn.Config,
        limits: Limits,
        tend: Callable[[], Awaitable[None]],
        beside: Sequence[Beside] = (),
        most: int | None = None,
        each: int | None = None,
    ) -> None:
        super().__init__(config)
        most = most or limits.connections
        self.crowd = Crowd(self.server_state.connections, most, each or most)
        config.http = partial(BoundedProtocol, limits=limits, crowd=self.crowd)  # type: ignore[assignment]
        self.limits = limits
        self._doors: list[Door] = []
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
            listening = [each.fileno() for server in self.servers for each in server.sockets]
            self._doors = [Door(self, each) for each in listening]
            for server in self.servers:
                server.close()  # it would accept connections beside the doors, and count none in its TLS handshake
            self._running = [asyncio.create_task(_kept_up(start, self)) for start in self._beside]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop it before connections are closed."""
        for door in self._doors:
            door.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await super().shutdown(sockets)

    def protocol(self) -> asyncio.Protocol:
        """What serves one more connection."""
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

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
