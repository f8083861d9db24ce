"""A proxy for HTTP/1.1 that misbehaves, request by request, as networks do: pure asyncio, reproducible by its seed.

What befalls a request: ``cut_before`` drops it before the service sees it; ``cut_after`` lets the service do its work
and loses the response; ``truncate`` loses the response's second half; ``duplicate`` sends the request twice and
returns the second response; ``delay`` lets it wait. Every cut closes the client's connection. A partition lets no
request through until it is over; and a status may be answered in the service's place.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

FAULTS = ("cut_before", "cut_after", "truncate", "duplicate", "delay")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CutError(Exception):
    """The client's connection is to be closed."""


@dataclass
class FaultyProxy:
    """``url`` is where it listens; ``done`` counts what it did, "none" included; ``faulty`` may change at any time.

    ``is_open`` is cleared while there is a partition; ``status`` is answered to every request unless it is 0.
    """

    upstream_port: int
    random: random.Random
    faults: Sequence[str] = FAULTS
    faulty: float = 0.5
    delay_seconds: float = 0.02
    url: str = ""
    done: Counter[str] = field(default_factory=Counter)
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    status: int = 0
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.is_open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, with one of its own to the service."""
        task = asyncio.current_task()
        assert task
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        with suppress(CutError, ConnectionError, asyncio.IncompleteReadError):
            async with self._opened(writer):
                upstream = await asyncio.open_connection("127.0.0.1", self.upstream_port)
                async with self._opened(upstream[1]):
                    while request := await _message(reader):
                        await self._befall(request, writer, upstream)

    @asynccontextmanager
    async def _opened(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        self.open.add(writer)
        try:
            yield
        finally:
            self.open.discard(writer)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _befall(self, request: bytes, writer: asyncio.StreamWriter, upstream: Streams) -> None:
        if self.status:
            self.done[str(self.status)] += 1
            writer.write(b"HTTP/1.1 %d No\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n" % self.status)
            await writer.drain()
            return
        await self.is_open.wait()
        fault = self.random.choice(self.faults) if self.random.random() < self.faulty else "none"
        self.done[fault] += 1
        if fault == "cut_before":
            raise CutError
        if fault == "delay":
            await asyncio.sleep(self.random.random() * self.delay_seconds)
        if fault == "duplicate":
            await _exchange(request, upstream)
        response = await _exchange(request, upstream)
        if fault == "cut_after":
            raise CutError
        writer.write(response[: len(response) // 2] if fault == "truncate" else response)
        await writer.drain()
        if fault == "truncate":
            raise CutError


@asynccontextmanager
async def faulty_proxy(upstream_port: int, seed: int, faulty: float = 0.5) -> AsyncIterator[FaultyProxy]:
    """A proxy before the service on ``upstream_port`` of this machine; of its requests the share ``faulty`` fails."""
    proxy = FaultyProxy(upstream_port, random.Random(seed), faulty=faulty)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            server.close()
            proxy.is_open.set()
            while proxy.tasks:
                for writer in proxy.open:
                    writer.transport.abort()
                await asyncio.wait(proxy.tasks, timeout=0.1)


async def _exchange(request: bytes, upstream: Streams) -> bytes:
    """The service's whole response; raises CutError where there is none."""
    reader, writer = upstream
    writer.write(request)
    await writer.drain()
    if not (response := await _message(reader)):
        raise CutError
    return response


async def _message(reader: asyncio.StreamReader) -> bytes:
    """One HTTP message whose body, if any, has a Content-Length; nothing at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    headers = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    return head + await reader.readexactly(int(headers.get(b"content-length", b"0")))
