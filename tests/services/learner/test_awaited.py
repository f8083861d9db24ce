"""Connections that others open: each is tried by itself while nothing is asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from parley.common.client.awaited import Switchboard
from parley.common.client.endpoints import PeerEntry
from parley.common.service.tokens import hash_token

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ALIVE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
async def board(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Switchboard]:
    """A board that tries connections after a fifth of a second, and waits ten for an answer."""
    monkeypatch.setattr("parley.common.client.awaited.PING_SECONDS", 0.2)
    monkeypatch.setattr("parley.common.client.awaited._TICK", 0.05)
    made = Switchboard()
    tending = asyncio.create_task(made.keep_alive())
    yield made
    tending.cancel()
    await asyncio.wait([tending])
    for name in ("silent", "alive", "gone"):
        await made.drop(name)
    await asyncio.sleep(0.05)  # until what was closed is gone


async def connect(board: Switchboard, name: str) -> Streams:
    """A service's own end of a connection that it has opened."""
    board.connect(PeerEntry(name=name, connects_with=hash_token(name), token="t"))
    ours, theirs = socket.socketpair()
    board.add(name, *await asyncio.open_connection(sock=ours))
    return await asyncio.open_connection(sock=theirs)


async def test_a_silent_connection_keeps_no_other_waiting(board: Switchboard) -> None:
    silent, alive = await connect(board, "silent"), await connect(board, "alive")
    async with asyncio.timeout(5):
        for _ in range(3):
            assert (await alive[0].readuntil(b"\r\n\r\n")).startswith(b"GET /healthz ")
            alive[1].write(ALIVE)
    assert board.is_connected("alive")
    for _, writer in (silent, alive):
        writer.close()
        await writer.wait_closed()


async def test_one_that_stays_silent_is_given_up(board: Switchboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.common.client.awaited._PONG_SECONDS", 0.1)
    reader, writer = await connect(board, "silent")
    assert board.is_connected("silent")
    async with asyncio.timeout(5):
        assert (await reader.read()).startswith(b"GET /healthz ")
    assert not board.is_connected("silent")
    writer.close()
    await writer.wait_closed()


async def test_one_that_is_closed_is_let_go(board: Switchboard) -> None:
    _, writer = await connect(board, "gone")
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(5):
        while board.is_connected("gone"):  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.01)
