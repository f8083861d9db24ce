"""Warm HTTP/1.1 connections to one party, straight on asyncio and h11.

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

import h11
import httpx

_CHUNK = 2**16


class Transport(httpx.AsyncBaseTransport):
    """Connections to one party, kept open between requests; ``context`` is for https URLs."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The response to a request, whose body streams; closing it gives the connection back.

        Raises httpx.NetworkError, httpx.RemoteProtocolError.
        """
        connection = self._take() or await _open(request.url, self._context)
        body = _Body(connection, self._idle)
        try:
            head = await connection.exchange(request, await request.aread())
        except (httpx.TransportError, asyncio.CancelledError):  # in mid-response, so of no use to the next request
            connection.close()
            raise
        return httpx.Response(head.status_code, headers=list(head.headers.raw_items()), stream=body)

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


class _Connection:
    """A connection and its side of the protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.CLIENT)

    @property
    def is_closed(self) -> bool:
        """Whether the other side has closed it."""
        return self._reader.at_eof()

    async def exchange(self, request: httpx.Request, content: bytes) -> h11.Response:
        """Write a request in one piece; read the response's head."""
        with _httpx_errors():
            head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
            parts = [self._protocol.send(event) for event in (head, h11.Data(content), h11.EndOfMessage())]
            self._writer.write(b"".join(part for part in parts if part))
            await self._writer.drain()
        while not isinstance(event := await self.next_event(), h11.Response):
            pass  # an informational response
        return event

    async def next_event(self) -> h11.Event:
        """The next piece of the response."""
        with _httpx_errors():
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                self._protocol.receive_data(await self._reader.read(_CHUNK))
        if not isinstance(event, h11.Event) or isinstance(event, h11.ConnectionClosed):
            raise httpx.RemoteProtocolError("the connection was closed in mid-response")
        return event

    def renew(self) -> bool:
        """Make ready for another request, if the response has ended and the connection stays open."""
        if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE:
            self._protocol.start_next_cycle()
            return True
        return False

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
        while isinstance(event := await self._connection.next_event(), h11.Data):
            yield bytes(event.data)

    async def aclose(self) -> None:
        """Give the connection back, or close it where the rest of the response is not wanted."""
        if self._connection.renew():
            self._idle.append(self._connection)
        else:
            self._connection.close()


async def _open(url: httpx.URL, context: ssl.SSLContext) -> _Connection:
    """A new connection."""
    is_https = url.scheme == "https"
    with _httpx_errors():
        port = url.port or (443 if is_https else 80)
        return _Connection(*await asyncio.open_connection(url.host, port, ssl=context if is_https else None))


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """Errors of the network and of the protocol as httpx's own."""
    try:
        yield
    except OSError as error:
        raise httpx.NetworkError(str(error)) from error
    except h11.ProtocolError as error:
        raise httpx.RemoteProtocolError(str(error)) from error
