"""A relay of bytes between two ports that closes connections, forgets them without a word, delays and doubles bytes."""

from __future__ import annotations

import asyncio
import base64
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

_PIECE = 2**14
_LONGEST_DELAY = 0.3  # seconds


@dataclass
class Relay:
    """``port`` is where it listens. Something befalls the share ``faulty`` of the pieces that come.

    ``cut`` closes both sides; ``half`` passes a part on first; ``forget`` passes nothing on from then on and closes
    neither side, as a firewall does that has lost its state; ``delay`` lets a piece wait; ``twice`` passes it on twice.
    ``is_open`` lets nobody in while unset.
    """

    upstream_port: int
    random: random.Random
    faulty: float = 0.0
    faults: tuple[str, ...] = ("cut", "half", "forget")
    port: int = 0
    done: Counter[str] = field(default_factory=Counter)
    is_open: bool = True
    password: str | None = None
    """Of an HTTP proxy, which wants ``CONNECT`` and this ``user:password`` first."""
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, with another behind it."""
        task = asyncio.current_task()
        assert task
        self.tasks.add(task)
        self.writers.add(writer)
        task.add_done_callback(self.tasks.discard)
        try:
            if self.is_open:
                await self._relay(reader, writer)
        finally:
            self.writers.discard(writer)
            await _aborted(writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if self.password is not None and not await self._connect(reader, writer, self.password):
                return
            upstream = await asyncio.open_connection("127.0.0.1", self.upstream_port)
            both = {writer, upstream[1]}
            self.writers |= both
            try:
                await asyncio.gather(self._pass(reader, upstream[1], both), self._pass(upstream[0], writer, both))
            finally:
                for end in both:
                    await _aborted(end)
                self.writers -= both

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, password: str) -> bool:
        """What a proxy is asked first."""
        head = await reader.readuntil(b"\r\n\r\n")
        knows = f"Proxy-Authorization: Basic {base64.b64encode(password.encode()).decode()}".encode() in head
        connects = head.startswith(f"CONNECT 127.0.0.1:{self.upstream_port} HTTP/1.1\r\n".encode())
        status = b"407 Who are you" if not knows else b"200 Go on" if connects else b"403 No"
        self.done[status[:3].decode()] += 1
        writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n")
        await writer.drain()
        return knows and connects

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, both: set[asyncio.StreamWriter]
    ) -> None:
        """Pass on what comes one way."""
        while piece := await reader.read(_PIECE):
            fault = self.random.choice(self.faults) if self.random.random() < self.faulty else "none"
            self.done[fault] += 1
            if fault == "forget":
                await self.ended.wait()
                return
            if fault == "delay":
                await asyncio.sleep(self.random.uniform(0, _LONGEST_DELAY))
            part = {"cut": 0, "half": self.random.randrange(len(piece))}.get(fault, len(piece))
            writer.write(piece[:part] * (2 if fault == "twice" else 1))
            await writer.drain()
            if fault in {"cut", "half"}:
                raise ConnectionResetError
        for end in both:
            end.close()

    def lose(self) -> None:
        """End all connections at once."""
        for writer in list(self.writers):
            writer.transport.abort()


async def _aborted(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once, and see it closed."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def relay(upstream_port: int, seed: int, faulty: float = 0.0) -> AsyncIterator[Relay]:
    """A relay to a port of this machine."""
    made = Relay(upstream_port, random.Random(seed), faulty)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        made.is_open = False
        made.ended.set()
        while made.tasks:
            made.lose()
            await asyncio.wait(made.tasks, timeout=0.1)
