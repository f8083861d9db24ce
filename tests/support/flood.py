"""One user with a thousand of something: connections in a process of their own, which all ask again and again."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

_CONTEXT = multiprocessing.get_context("forkserver")
_NICENESS = 19
_REST = 1.0  # seconds before who was refused, or closed, comes again


def request_of(method: str, path: str, token: str, body: bytes = b"", media: str = "application/json") -> bytes:
    """A request as it is sent."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: {media}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Flood:
    """A flood under way: ``seen`` is what came back, by status, once it is over."""

    pid: int
    seen: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing more is sent while the block lasts; what was sent is answered yet."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


@contextmanager
def flooded(port: int, request: bytes, count: int = 1000, pause: float = 0.0) -> Iterator[Flood]:
    """So many connections that send a request, empty for none, and again when it was answered, until the block ends.

    They pause for ``pause`` seconds before each. Their process is polite, as if it ran on another machine.
    """
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_flood, args=(port, request, count, pause, theirs), daemon=True)
    process.start()
    try:
        ours.recv()  # all have begun
        yield (flood := Flood(process.pid or 0))
        ours.send(None)
        flood.seen.update(ours.recv())
    finally:
        process.terminate()
        process.join()


def _flood(port: int, request: bytes, count: int, pause: float, pipe: Connection) -> None:
    os.nice(_NICENESS)
    asyncio.run(_attack(port, request, count, pause, pipe))


async def _attack(port: int, request: bytes, count: int, pause: float, pipe: Connection) -> None:
    seen, begun = Counter[str](), asyncio.Semaphore(0)

    async def one() -> None:
        is_first = True
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    while True:
                        writer.write(request)
                        if is_first:
                            begun.release()
                            is_first = False
                        await _answer(reader, seen)
                        await asyncio.sleep(pause)
                finally:
                    writer.close()
            seen["closed"] += 1
            await asyncio.sleep(_REST)

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    for _ in range(count):
        await begun.acquire()
    pipe.send(None)
    await asyncio.to_thread(pipe.recv)
    pipe.send(seen)
    await asyncio.wait(tasks)


async def _answer(reader: asyncio.StreamReader, seen: Counter[str]) -> None:
    """Read an answer to its end, and count it."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    seen[head.split()[1]] += 1
    if "content-length: " in head:
        await reader.readexactly(int(head.split("content-length: ")[1].split()[0]))
    else:
        while await reader.read(2**16):  # a stream, which does not end
            pass
