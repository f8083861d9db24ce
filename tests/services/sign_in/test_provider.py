"""The way to the provider: its certificate is verified, it is given seconds, and a proxy may be between."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.common.errors import InvalidInputError, RefusedError, UnavailableError
from parley.learner.api.sign_in import provider as identity
from parley.learner.settings import SignIn
from tests.support.certificates import make_certificates

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def listening(answer: Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server of this process, which answers by a function; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def nothing_here(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(NOT_FOUND)
    await writer.drain()


async def check(issuer: str, **settings: Any) -> None:  # noqa: ANN401 -- any setting
    """Ask a provider once."""
    fields = {"client_id": "parley", "url": "https://parley.hospital.example", "roles": {"staff": "viewer"}}
    provider = identity.Provider(SignIn.model_validate({"issuer": issuer, **fields, **settings}))
    try:
        await provider.check()
    finally:
        await provider.close()


async def test_the_providers_certificate_is_verified(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    async with listening(nothing_here, context) as port:
        with pytest.raises(UnavailableError, match="ConnectError"):
            await check(f"https://127.0.0.1:{port}")
        with pytest.raises(RefusedError, match="no document at its issuer: HTTP status 404"):
            await check(f"https://127.0.0.1:{port}", ca=files.authority)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        await check("https://127.0.0.1:9", ca=tmp_path / "none")


async def test_a_provider_that_is_silent_or_slow_is_given_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_SECONDS", 0.2)

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _piece in range(100):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with listening(drip) as port, asyncio.timeout(2):
        with pytest.raises(UnavailableError, match="does not answer"):
            await check(f"http://127.0.0.1:{port}")


async def test_a_compressed_answer_is_not_unpacked() -> None:
    async def bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"accept-encoding: identity" in (await reader.readuntil(b"\r\n\r\n")).lower()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00")
        await writer.drain()

    async with listening(bomb) as port:
        with pytest.raises(RefusedError, match="not OpenID Connect's"):
            await check(f"http://127.0.0.1:{port}")


async def test_a_proxy_is_asked_for_the_provider() -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        await nothing_here(reader, writer)

    async with listening(proxy) as port:
        with pytest.raises(UnavailableError):
            await check("https://login.hospital.example", proxy=f"http://127.0.0.1:{port}")
    assert asked == [b"CONNECT login.hospital.example:443 HTTP/1.1\r\n"]


async def test_a_document_that_leads_elsewhere_is_refused() -> None:
    async def document(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        places = '"token_endpoint": "http://evil.example/", "jwks_uri": "https://x/"'
        body = f'{{"issuer": "x", "authorization_endpoint": "javascript:alert(1)", {places}}}'.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    async with listening(document) as port:
        with pytest.raises(RefusedError, match=r"authorization_endpoint: https.*token_endpoint: https"):
            await check(f"http://127.0.0.1:{port}")
