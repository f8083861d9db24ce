"""Warm HTTP/1.1 connections to one service, straight on asyncio and httptools.

A round is one small request to each party. httpx spends more time on it than the network and the party together: it
parses addresses and copies headers, its pool is under locks, and each step has a timeout. Here a request is written at
once and its response is read as it comes; its caller bounds the time. Errors are httpx's exceptions.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import httptools
import httpx

LONGEST_ANSWER = 2**26
"""The most bytes of a response's body by default, so that a service cannot fill the memory of its clients."""

_CHUNK = 2**16
_LONGEST_HEAD = 2**16  # bytes that come without a piece of body: a head, trailers, the framing of chunks
_FINAL = 200  # statuses below are of responses that come before the response
_DELIMITED = frozenset({b"content-length", b"transfer-encoding"})


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """A request: its path and query as they go on the wire, and all of its headers but the body's length."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()
    content: bytes = b""
    longest: int = LONGEST_ANSWER
    """The most bytes of the response's body that are wanted."""

    def head(self) -> bytes:
        r"""Return the bytes before the body; raises httpx.LocalProtocolError if a header cannot be sent.

        >>> PeerRequest("PUT", "/v1/x", [("Host", "party")], b"hi").head()
        b'PUT /v1/x HTTP/1.1\r\nHost: party\r\nContent-Length: 2\r\n\r\n'
        """
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers)]
        if self.content or self.method in {"PUT", "POST"}:
            lines.append(f"Content-Length: {len(self.content)}")
        head, ends = "\r\n".join(lines), len(lines) - 1
        if (head.count("\r"), head.count("\n"), head.count("\0")) != (ends, ends, 0) or not head.isascii():
            raise httpx.LocalProtocolError("a request whose head holds the end of a line within a line, or no ASCII")
        return f"{head}\r\n\r\n".encode()


@dataclass(frozen=True, slots=True)
class PeerResponse:
    """A response: its status, the first header of each name, and its body, cut off past what was wanted at most.

    Names are in lower case.
    """

    status: int
    headers: Mapping[bytes, bytes]
    content: bytes


class Transport(Protocol):
    """Carries requests to one service."""

    async def send(self, request: PeerRequest) -> PeerResponse:
        """Return the response to a request; raises httpx.TransportError."""

    async def close(self) -> None:
        """Close the connections that are not in use."""


class ConnectionPool(ABC):
    """Connections to one service, kept open between requests; a subclass gets new ones."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []

    async def send(self, request: PeerRequest) -> PeerResponse:
        """Send a request and return the response.

        Raises httpx.NetworkError, httpx.RemoteProtocolError, httpx.LocalProtocolError.
        """
        head = request.head()
        connection = self._take() or await self._another()
        try:
            incoming = await connection.exchange(head, request)
        except (httpx.TransportError, asyncio.CancelledError):  # in mid-response, so of no use to the next request
            connection.close()
            raise
        if incoming.leaves_open:
            self._keep(connection)
        else:
            connection.close()
        return PeerResponse(incoming.status, incoming.headers, b"".join(incoming.pieces))

    async def close(self) -> None:
        """Close all connections that are not in use."""
        while connection := self._take():
            await connection.wait_closed()

    @abstractmethod
    async def _another(self) -> Connection:
        """Return one more connection than those in use; raises httpx.NetworkError."""

    def _keep(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        self._idle.append(connection)

    def _take(self) -> Connection | None:
        """Return an open idle connection, or None; those that the service has closed meanwhile are dropped."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                return connection
            connection.close()
        return None


class Connections(ConnectionPool):
    """Connections to the service of a URL; ``context`` is for https."""

    def __init__(self, url: httpx.URL, context: ssl.SSLContext) -> None:
        super().__init__()
        self._host, self._port = url.host, url.port or (443 if url.scheme == "https" else 80)
        self._context = context if url.scheme == "https" else None

    async def _another(self) -> Connection:
        with _httpx_errors():
            return Connection(*await asyncio.open_connection(self._host, self._port, ssl=self._context))


class _Incoming:
    """A response as it comes: ``status`` is 0 until its head has come; ``pieces`` are those of its body so far.

    httptools calls its ``on_...`` methods.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.pieces: list[bytes] = []
        self.is_complete = self._keeps_alive = self._has_more = False
        self._bare_bytes = self.size = 0
        self._parser = httptools.HttpResponseParser(self)

    @property
    def leaves_open(self) -> bool:
        """Whether the connection can take another request: the response was whole, and nothing came after it."""
        return self.is_complete and self._keeps_alive and not self._has_more

    def feed(self, data: bytes) -> None:
        """Take bytes that have come, none for the end; raises httpx.RemoteProtocolError if they are no response."""
        self._bare_bytes += len(data)
        try:
            if data:
                self._parser.feed_data(data)
            elif self.status and not self.headers.keys() & _DELIMITED:
                self.is_complete = True  # it lasts until the connection ends
            else:
                raise httpx.RemoteProtocolError("the connection was closed in mid-response")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        if self._bare_bytes > _LONGEST_HEAD and not self.is_complete:
            raise httpx.RemoteProtocolError("a response whose head or framing does not end")

    def on_message_begin(self) -> None:
        """Note whether the response that begins is one too many: neither the first nor the one after an interim one."""
        self._has_more = self.is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and drop a trailer."""
        if not self.status:
            self.headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        """Keep a final status when a head has ended, and drop the headers of an interim response."""
        if not self.is_complete:
            status = self._parser.get_status_code()
            if status >= _FINAL:
                self.status = status
            else:
                self.headers.clear()

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of a body."""
        if not self.is_complete:
            self._bare_bytes = 0
            self.size += len(piece)
            self.pieces.append(piece)

    def on_message_complete(self) -> None:
        """Note that a response has ended, the final or an interim one."""
        self.is_complete, self._keeps_alive = self.status >= _FINAL, self._parser.should_keep_alive()


class Connection:
    """A connection that carries one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.used_at = asyncio.get_running_loop().time()
        """When it was last in use, by the event loop's clock."""

    @property
    def is_closed(self) -> bool:
        """Whether the other side has closed it."""
        return self._reader.at_eof()

    async def exchange(self, head: bytes, request: PeerRequest) -> _Incoming:
        """Write a request, a short one in one piece; read as much of the response as is wanted."""
        incoming, content = _Incoming(), memoryview(request.content)
        with _httpx_errors():
            self._writer.write(head + content[:_CHUNK])
            await self._writer.drain()
            for start in range(_CHUNK, len(content), _CHUNK):
                self._writer.write(content[start : start + _CHUNK])
                await self._writer.drain()
            while not incoming.is_complete and incoming.size <= request.longest:
                incoming.feed(await self._reader.read(_CHUNK))
        self.used_at = asyncio.get_running_loop().time()
        return incoming

    def close(self) -> None:
        """Close the connection without waiting."""
        self._writer.close()

    async def wait_closed(self) -> None:
        """Close the connection and wait until it is."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """Turn errors of the network into httpx's."""
    try:
        yield
    except OSError as error:
        raise httpx.NetworkError(str(error)) from error
