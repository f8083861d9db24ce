"""Connections that others open: each is tried by itself while nothing is asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from parley.common.client.awaited import AwaitedConnections, Switchboard
from parley.common.client.endpoints import PeerEntry
from parley.common.client.peer import Line
from parley.common.client.transport import PeerRequest
from parley.common.errors import ConflictError
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


class Opened:
    """A connection, which stands for one that a service has opened; it answers when it is told to."""

    def __init__(self, idle: float = 0.0, *, is_closed: bool = False) -> None:
        self.used_at, self.is_closed = asyncio.get_running_loop().time() - idle, is_closed
        self.asked: list[tuple[bytes, PeerRequest]] = []
        self.answers: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def exchange(self, head: bytes, request: PeerRequest) -> Any:  # noqa: ANN401 -- stands for a response
        self.asked.append((head, request))
        return await self.answers

    def close(self) -> None:
        self.is_closed = True

    async def wait_closed(self) -> None:
        self.is_closed = True


def of(*connections: Opened) -> Any:  # noqa: ANN401 -- with parts that nobody else sees
    """The connections of a service."""
    made: Any = AwaitedConnections()
    for connection in connections:
        made.add(connection)
    return made


async def test_of_too_many_spare_connections_the_oldest_is_closed() -> None:
    opened = [Opened() for _ in range(18)]
    awaited = of(*opened[:16])
    assert not any(each.is_closed for each in opened)
    awaited.add(opened[16])
    awaited.add(opened[17])
    assert [each.is_closed for each in opened] == [True] * 2 + [False] * 16
    await awaited.close()
    assert all(each.is_closed for each in opened)


async def test_connections_are_tried_once_they_were_idle_for_a_while_or_are_closed() -> None:
    fresh, idle, closed, refusing = Opened(14.0), Opened(15.0), Opened(is_closed=True), Opened(16.0)
    awaited = of(fresh, idle, closed, refusing)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tries:
        awaited.tend(tries)
        assert awaited._idle == [fresh]
        await asyncio.sleep(0)
        fresh.is_closed = True
        assert awaited.is_connected, "two are in use while they are tried"
        refusing.answers.set_exception(httpx.ReadError("gone"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert awaited.is_connected, "one is"
        idle.answers.set_result(SimpleNamespace(leaves_open=True))
    ((head, request),) = idle.asked
    assert head == b"GET /healthz HTTP/1.1\r\nHost: peer\r\n\r\n"
    assert request.longest == 2**12
    assert awaited._idle == [fresh, idle]
    assert (closed.asked, fresh.asked) == ([], [])
    assert (idle.is_closed, refusing.is_closed) == (False, True)
    idle.is_closed = True
    assert not awaited.is_connected


async def test_a_request_waits_a_second_for_a_connection_of_a_service_that_has_none() -> None:
    awaited, opened = of(), Opened()
    opened.answers.set_result(SimpleNamespace(status=200, headers={}, pieces=[b"a", b"b"], leaves_open=True))
    asked = PeerRequest("GET", "/x")
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        sending = group.create_task(awaited.send(asked))
        await asyncio.sleep(0)
        awaited.add(Opened(is_closed=True))
        await asyncio.sleep(0)
        awaited.add(opened)
    assert sending.result().content == b"ab"
    assert opened.asked == [(asked.head(), asked)]


async def test_a_service_that_has_opened_nothing_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []

    def timeout(lasts: float) -> asyncio.Timeout:
        seconds.append(lasts)
        return asyncio.Timeout(asyncio.get_running_loop().time())

    awaited = of()
    monkeypatch.setattr(asyncio, "timeout", timeout)
    with pytest.raises(httpx.ConnectError, match=r"^it has opened no connection$"):
        await awaited.send(PeerRequest("GET", "/x"))
    silent = Opened(20)
    awaited.add(silent)
    async with asyncio.TaskGroup() as tries:
        awaited.tend(tries)
    assert (seconds, silent.is_closed, awaited._idle) == ([1.0, 10.0], True, [])


async def test_only_a_service_that_is_expected_connects() -> None:
    direct: list[PeerEntry] = []

    def line(entry: PeerEntry) -> Any:  # noqa: ANN401 -- stands for a line
        direct.append(entry)
        return "a line"

    board: Any = Switchboard(line)
    at_url = PeerEntry(name="url", url="http://127.0.0.1:1", token="t")
    itself = PeerEntry(name="itself", connects_with=hash_token("x"), token="t")
    assert board.connect(at_url) == "a line"
    assert direct == [at_url]
    for name in ("url", "itself"):
        with pytest.raises(ConflictError, match=f"^{name} is not expected to connect, or has not been confirmed yet$"):
            board.check(name)
        assert not board.is_connected(name)
    first, second = board.connect(itself), board.connect(itself)
    assert isinstance(first, Line)
    assert vars(first)["_transport"] is vars(second)["_transport"]
    board.check("itself")
    assert not board.is_connected("itself")
    reader, writer = await connect(board, "itself")
    assert board.is_connected("itself")
    await board.drop("itself")
    await board.drop("itself")
    assert await reader.read() == b""
    assert not board.is_connected("itself")
    writer.close()
    await writer.wait_closed()
