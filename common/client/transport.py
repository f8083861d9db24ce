"""Warm HTTP/1.1 connections to one party, straight on asyncio and httptools.

A round is one small request to each party. httpx's own transport spends more time on it than the network and the party
together: a pool under locks, a timeout for every step, one write for the head and another for the body. This one writes
a request at once and reads the response as it comes. It serves an `httpx.AsyncClient`, which stays in charge of URLs,
headers and redirects, and relies on its caller to bound the time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import httptools
import httpx

_CHUNK = 2**16
_LONGEST_HEAD = 2**16  # bytes that come without a piece of body: a head, trailers, the framing of chunks
_FINAL = 200  # statuses below are of responses that come before the response
_DELIMITED = frozenset({b"content-length", b"transfer-encoding"})


class Transport(httpx.AsyncBaseTransport):
    """Connections to one party, kept open between requests; ``context`` is for https URLs."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The response to a request, whose body streams; closing it gives the connection back.

        Raises httpx.NetworkError, httpx.RemoteProtocolError.
        """
        spelt = _spelt(request, await request.aread())
        connection = self._take() or await _open(request.url, self._context)
        try:
            response = await connection.exchange(spelt)
        except (httpx.TransportError, asyncio.CancelledError):  # in mid-response, so of no use to the next request
            connection.close()
            raise
        return httpx.Response(response.status, headers=response.headers, stream=_Body(connection, self._idle))

    async def aclose(self) -> None:
        """Close all connections that are not in use."""
        while connection := self._take():
            await connection.wait_closed()

    def _take(self) -> _Connection | None:
        """An open connection that is not in use; those that the party has closed meanwhile are dropped."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                return connection
            connection.close()
        return None


class _Incoming:
    """A response as it comes: ``status`` is 0 until its head has come; ``pieces`` are those of its body not yet taken.

    Its methods are those that httptools calls.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.is_complete = self._keeps_alive = self._has_more = False
        self._bare_bytes = 0
        self._parser = httptools.HttpResponseParser(self)

    @property
    def leaves_open(self) -> bool:
        """Whether the connection can take another request: the response was whole, and nothing came after it."""
        return self.is_complete and self._keeps_alive and not self._has_more

    def feed(self, data: bytes) -> None:
        """Take what has come, nothing for the end. Raises httpx.RemoteProtocolError for what is no response."""
        self._bare_bytes += len(data)
        try:
            if data:
                self._parser.feed_data(data)
            elif self.status and not any(name.lower() in _DELIMITED for name, _ in self.headers):
                self.is_complete = True  # it lasts until the connection ends
            else:
                raise httpx.RemoteProtocolError("the connection was closed in mid-response")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        if self._bare_bytes > _LONGEST_HEAD and not self.is_complete:
            raise httpx.RemoteProtocolError("a response whose head or framing does not end")

    def on_message_begin(self) -> None:
        """Another response begins: after one that goes before the response, or after all that was asked for."""
        self._has_more = self.is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come, or a trailer, which nobody needs."""
        if not self.status:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head has ended."""
        if not self.is_complete:
            status = self._parser.get_status_code()
            if status >= _FINAL:
                self.status = status
            else:
                self.headers.clear()

    def on_body(self, piece: bytes) -> None:
        """A piece of body has come."""
        if not self.is_complete:
            self._bare_bytes = 0
            self.pieces.append(piece)

    def on_message_complete(self) -> None:
        """The response has ended, or one that goes before it has."""
        self.is_complete, self._keeps_alive = self.status >= _FINAL, self._parser.should_keep_alive()


class _Connection:
    """A connection, and the response that comes over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.incoming = _Incoming()

    @property
    def is_closed(self) -> bool:
        """Whether the other side has closed it."""
        return self._reader.at_eof()

    async def exchange(self, request: bytes) -> _Incoming:
        """Write a request in one piece; read the response up to the end of its head at least."""
        self.incoming = incoming = _Incoming()
        with _httpx_errors():
            self._writer.write(request)
            await self._writer.drain()
            while not incoming.status:
                incoming.feed(await self._reader.read(_CHUNK))
        return incoming

    async def read(self) -> list[bytes]:
        """What has come of the response's body since the last time; nothing at its end."""
        incoming = self.incoming
        with _httpx_errors():
            while not incoming.pieces and not incoming.is_complete:
                incoming.feed(await self._reader.read(_CHUNK))
        pieces, incoming.pieces = incoming.pieces, []
        return pieces

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def wait_closed(self) -> None:
        """Close the connection and wait until it is."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class _Body(httpx.AsyncByteStream):
    """A response's body; its connection goes back to ``idle`` once all of it was read."""

    def __init__(self, connection: _Connection, idle: list[_Connection]) -> None:
        self._connection = connection
        self._idle = idle

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while pieces := await self._connection.read():
            for piece in pieces:
                yield piece

    async def aclose(self) -> None:
        """Give the connection back, or close it where the rest of the response is not wanted."""
        if self._connection.incoming.leaves_open:
            self._idle.append(self._connection)
        else:
            self._connection.close()


def _spelt(request: httpx.Request, content: bytes) -> bytes:
    r"""A request on the wire, its head and its body in one piece; raises httpx.LocalProtocolError for one that is none.

    >>> _spelt(httpx.Request("GET", "http://party/v1/budget", headers=[]), b"")
    b'GET /v1/budget HTTP/1.1\r\nHost: party\r\n\r\n'
    """
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += [b"%s: %s" % header for header in request.headers.raw]
    head = b"\r\n".join(lines)
    ends = len(lines) - 1
    if (head.count(b"\r"), head.count(b"\n"), head.count(b"\0")) != (ends, ends, 0):
        raise httpx.LocalProtocolError("a request whose head holds the end of a line within a line")
    if "transfer-encoding" in request.headers:
        raise httpx.LocalProtocolError("a request whose body's length is not known beforehand")
    return head + b"\r\n\r\n" + content


async def _open(url: httpx.URL, context: ssl.SSLContext) -> _Connection:
    """A new connection."""
    is_https = url.scheme == "https"
    with _httpx_errors():
        port = url.port or (443 if is_https else 80)
        return _Connection(*await asyncio.open_connection(url.host, port, ssl=context if is_https else None))


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """Errors of the network as httpx's own."""
    try:
        yield
    except OSError as error:
        raise httpx.NetworkError(str(error)) from error
