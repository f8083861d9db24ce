"""What a party shows a learner when it opens a connection itself."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from pydantic import HttpUrl, SecretStr
from structlog.testing import capture_logs

from parley.common.client.endpoints import LearnerAddress
from parley.common.client.outbound import open_to, outbound, read_access, renewing
from parley.common.errors import UnavailableError
from parley.common.service.http.connections import BoundedServer
from parley.common.service.settings import Limits
from tests.support.certificates import make_certificates


async def test_what_was_read_and_found_good_is_what_is_shown(tmp_path: Path) -> None:
    """Though token and password change while the proxy connects."""
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("good\n")
    password.write_text("clinic:good\n")
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for status in (b"200 Connected", b"101 Switching Protocols"):
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            token.unlink(missing_ok=True)
            password.unlink(missing_ok=True)
            writer.write(b"HTTP/1.1 %b\r\n\r\n" % status)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        proxy = HttpUrl(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        url = HttpUrl("http://learner.example.org:8100")
        address = LearnerAddress(
            name="learner", url=url, plain_http=True, token_file=token, proxy=proxy, proxy_password_file=password
        )
        assert "good" not in repr(read_access(address))
        transport, _ = await open_to(address)
        transport.close()
    connect, upgrade = heads
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'clinic:good').decode()}\r\n" in connect
    assert "Authorization: Bearer good\r\n" in upgrade


async def test_a_head_that_does_not_end_is_not_read_for_ever() -> None:
    written = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        with suppress(OSError):
            while written < 2**25:
                writer.write(b"X-Endless: y\r\n" * 1000)
                await writer.drain()
                written += 14_000
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = HttpUrl(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(UnavailableError, match="the answer is no HTTP"):
            await open_to(LearnerAddress(name="learner", url=url, token=SecretStr("t")))
    assert written < 2**25, "most of it lies in the system's buffers"


def test_a_member_dials_and_renews_the_certificate_that_it_has(tmp_path: Path) -> None:
    plain = LearnerAddress(name="one", url=HttpUrl("http://127.0.0.1:1"), token=SecretStr("t"))
    files = {"certificate": tmp_path / "member.pem", "key": tmp_path / "member.key"}
    certified = LearnerAddress(name="two", url=HttpUrl("https://127.0.0.1:1"), token=SecretStr("t"), **files)
    assert len(outbound([plain])) == 1
    assert len(outbound([plain, certified])) == 3


async def _echo(scope: Any, _: Any, send: Any) -> None:  # noqa: ANN401 -- as ASGI has them
    """Answer with the path that was asked for."""
    body = scope["path"].encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _nothing() -> None:
    """Nothing has to be tended."""


@asynccontextmanager
async def _serving(address: LearnerAddress) -> AsyncIterator[None]:
    """A service that dials a learner."""
    config = uvicorn.Config(_echo, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none")
    server = BoundedServer(config, Limits(), _nothing, outbound([address]))
    running = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await running


async def _tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy: connects to where it is told."""
    place = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
    host, _, port = place.partition(":")
    far_reader, far_writer = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")

    async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(2**16):
                sink.write(piece)
        sink.close()

    await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))


class _Asking:
    """A learner that asks twice over the first connection, at once and again; others are spare."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.answers: list[bytes] = []
        self.is_answered, self.has_spare = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open a connection to the service that has connected."""
        with suppress(OSError, asyncio.IncompleteReadError):
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            is_first = len(self.heads) == 1
            ask = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + (ask % b"first" if is_first else b""))
            if is_first:
                self.answers.append(await reader.readuntil(b"/first"))
                writer.write(ask % b"second")
                self.answers.append(await reader.readuntil(b"/second"))
                self.is_answered.set()
            else:
                self.has_spare.set()
            await reader.read()


@pytest.mark.parametrize("by_proxy", [False, True])
async def test_a_learner_asks_over_connections_that_a_service_opens(tmp_path: Path, by_proxy: bool) -> None:  # noqa: FBT001
    """The first request may come with the answer that opens the connection; there is always a spare connection."""
    files = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    asking = _Asking()
    async with (
        await asyncio.start_server(asking.serve, "127.0.0.1", 0, ssl=context) as learner,
        await asyncio.start_server(_tunnel, "127.0.0.1", 0) as tunnel,
    ):
        port, proxy_port = (server.sockets[0].getsockname()[1] for server in (learner, tunnel))
        proxy = HttpUrl(f"http://127.0.0.1:{proxy_port}") if by_proxy else None
        url = HttpUrl(f"https://127.0.0.1:{port}")
        address = LearnerAddress(name="learner", url=url, token=SecretStr("t"), ca=files.authority, proxy=proxy)
        with capture_logs() as lines:
            async with asyncio.timeout(20), _serving(address):
                await asking.is_answered.wait()
                await asking.has_spare.wait()
    assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") for answer in asking.answers)
    assert b"Authorization: Bearer t\r\n" in asking.heads[0]
    assert f"Host: 127.0.0.1:{port}\r\n".encode() in asking.heads[0]
    logged = [line for line in lines if line["event"] == "outbound"]
    assert logged == [{"event": "outbound", "learner": "learner", "connected": True, "log_level": "info"}]


async def test_a_certificate_that_cannot_be_renewed_is_tried_every_hour_and_logged_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    reasons = ["away", "away", "", "away", "no certificate"]

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if not reasons:
            raise asyncio.CancelledError

    def renew() -> None:
        if reason := reasons.pop(0):
            raise UnavailableError(reason)

    monkeypatch.setattr(asyncio, "sleep", pause)
    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await renewing("learner", renew)(None)  # type: ignore[arg-type]  # it asks nothing of the server
    assert pauses == [3600.0] * 5
    line = {"event": "certificate", "learner": "learner", "renewed": False, "log_level": "warning"}
    assert lines == [line | {"reason": reason} for reason in ("away", "away", "no certificate")]


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (401, "HTTP status 401, the token is not known, or has expired"),
        (403, "HTTP status 403, its certificate is not shown, or not this party's"),
        (404, "HTTP status 404, nobody there takes connections"),
        (409, "HTTP status 409, the learner's operator has not confirmed this one"),
        (500, "HTTP status 500"),
    ],
)
async def test_a_refused_connection_says_what_the_status_means(status: int, meaning: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d No\r\n\r\n" % status)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = HttpUrl(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(UnavailableError) as refused:
            await open_to(LearnerAddress(name="learner", url=url, token=SecretStr("t")))
    assert refused.value.detail == f"learner does not take the connection: {meaning}"
