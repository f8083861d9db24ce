"""What counts as a caller's turn at a service: all work on an answer, refusals, and pages that need no token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import StreamingResponse

from parley.common.service.application import service
from parley.common.service.prometheus import Metrics
from parley.common.service.settings import Limits, Shares
from parley.common.service.tokens import KnownToken, NamedCaller, hash_token

TOKENS = [KnownToken(hash_token(f"of-{name}"), NamedCaller(name)) for name in ("one", "many")]


async def ready() -> None:
    pass


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
async def app(log: list[str]) -> FastAPI:
    """A service whose answer is made while it is sent, and whose page needs no token."""
    shares = Shares(requests=1)
    public = frozenset({"/healthz", "/page"})
    made = service(
        "t", "t", tokens=TOKENS, metrics=Metrics(), ready=ready, limits=Limits(), shares=shares, public_paths=public
    )

    async def pieces(name: str) -> AsyncIterator[bytes]:
        for _ in range(3):
            log.append(name)
            await asyncio.sleep(0.01)
            yield b"x"

    @made.get("/answer")
    async def answer(name: str) -> StreamingResponse:
        return StreamingResponse(pieces(name))

    @made.get("/page")
    async def page(name: str) -> str:
        log.append(name)
        await asyncio.sleep(0.05)
        return name

    return made


async def ask(app: FastAPI, path: str, name: str, user: str | None) -> int:
    headers = {"Authorization": f"Bearer of-{user}"} if user else {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t", headers=headers) as client:
        return (await client.get(path, params={"name": name})).status_code


async def test_a_turn_lasts_until_the_answer_is_sent(app: FastAPI, log: list[str]) -> None:
    await asyncio.gather(*(ask(app, "/answer", name, "many") for name in "abc"))
    assert "".join(log) == "aaabbbccc"


async def test_a_user_waits_for_no_stranger_at_a_page_that_needs_no_token(app: FastAPI, log: list[str]) -> None:
    strangers = [asyncio.create_task(ask(app, "/page", "stranger", None)) for _ in range(10)]
    while not log:  # noqa: ASYNC110 -- nobody tells
        await asyncio.sleep(0)
    assert await ask(app, "/page", "user", "one") == 200
    assert log.index("user") <= 2
    assert await ask(app, "/page", "stranger", "nobody") == 200, "a token that is none is no fault here"
    await asyncio.gather(*strangers)
