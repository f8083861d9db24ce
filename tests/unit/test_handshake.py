"""What a party shows a learner when it opens a connection itself."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import HttpUrl, SecretStr

from parley.common.client.endpoints import LearnerAddress
from parley.common.client.outbound import open_to, outbound, read_access
from parley.common.errors import UnavailableError


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
