"""Connections are passed on to named places: bytes, ends and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import structlog
from typer.testing import CliRunner

from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.service.forward import Place, forward
from parley.party.cli.main import party_app
from tests.support.processes import free_port

LOOPBACK = "127.0.0.1"


@asynccontextmanager
async def forwarded(port: int) -> AsyncIterator[int]:
    """A port that leads to another, for as long as the block runs."""
    listen = free_port()
    task = asyncio.create_task(forward([Place(listen, LOOPBACK, port)], LOOPBACK))
    try:
        await asyncio.sleep(0)
        yield listen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        with suppress(ConnectionRefusedError):
            return await asyncio.open_connection(LOOPBACK, port)
        await asyncio.sleep(0.01)


async def test_bytes_pass_both_ways_and_an_end_is_passed_on() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read())[::-1])  # which needs the end of what is asked
        writer.close()

    async with await asyncio.start_server(answer, LOOPBACK, 0) as server, forwarded(port_of(server)) as port:
        reader, writer = await connect(port)
        question = bytes(range(256)) * 4096  # more than any buffer on the way
        writer.write(question)
        writer.write_eof()
        assert await reader.read() == question[::-1]
        writer.close()


async def test_an_end_that_is_gone_ends_the_other() -> None:
    async def vanish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with await asyncio.start_server(vanish, LOOPBACK, 0) as server, forwarded(port_of(server)) as port:
        reader, writer = await connect(port)
        writer.write(b"?")
        async with asyncio.timeout(5):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_who_cannot_be_reached_is_logged_once() -> None:
    with structlog.testing.capture_logs() as logged:
        async with forwarded(free_port()) as port:
            for _ in range(3):
                reader, writer = await connect(port)
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
    (refused,) = [line for line in logged if line.get("connected") is False]
    assert refused["to"].startswith(LOOPBACK)
    assert "refused" in refused["reason"] or "Connect call failed" in refused["reason"]


async def test_a_port_that_is_taken_is_named() -> None:
    async with await asyncio.start_server(lambda *_: None, LOOPBACK, 0) as server:
        port = port_of(server)
        with pytest.raises(UnavailableError, match=f"port {port} cannot be listened on"):
            await forward([Place(port, LOOPBACK, 1)], LOOPBACK)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


@pytest.mark.parametrize("text", ["learner", "learner:", ":8100", "https://learner:8100", "a b:1", "-a:1", "a:1:2:3"])
def test_a_place_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not HOST:PORT"):
        Place.parse(text)


def test_ports_are_ports_and_each_is_listened_on_once() -> None:
    for text in ("learner:0", "learner:65536", "0:learner:1"):
        with pytest.raises(InvalidInputError, match="a number from 1 to 65535"):
            Place.parse(text)
    assert Place.parse_all(["a:1", "a:1", "2:b:1"]) == (Place(1, "a", 1), Place(2, "b", 1))
    with pytest.raises(InvalidInputError, match="need the same port"):
        Place.parse_all(["a:443", "b:443"])


def test_the_command_refuses_what_is_no_place() -> None:
    done = CliRunner().invoke(party_app, ["forward", "learner"])
    assert done.exit_code == 3
    assert "learner is not HOST:PORT" in done.output
