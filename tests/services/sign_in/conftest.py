"""A learner whose people sign in at a real identity provider, and a browser's part of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from parley.common.service.tokens import hash_token
from parley.learner.api.app import create_learner_app
from parley.learner.settings import LearnerSettings
from tests.support.cluster import USER, running
from tests.support.identity_provider import CLIENT, PASSWORD, SECRET, IdentityProvider, identity_provider

URL = "https://parley.hospital.example"
ROLES = {"parley-operators": "operator", "staff": "submitter"}
PAGE = {"Sec-Fetch-Site": "same-origin"}
"""What a browser says of a request that the page made."""


@dataclass
class Browser:
    """A browser at the page; cookies are kept as over https."""

    client: httpx.AsyncClient
    provider: IdentityProvider

    async def begin(self) -> str:
        """Go to the provider; returns the address that it is sent to."""
        response = await self.client.get("/sign-in")
        assert response.status_code == 303, response.text
        return response.headers["location"]

    async def log_in(self, address: str, person: str) -> str:
        """Give name and password at the provider; returns the address that it sends the browser back to."""
        async with httpx.AsyncClient() as client:
            form = (await client.get(address)).text
            token = re.search(r'name="token" value="([^"]*)"', form)
            assert token, form
            given = {"token": token[1], "username": person, "password": PASSWORD}
            response = await client.post(f"{self.provider.url}/verify", data=given)
        assert response.status_code == 303, response.text
        return response.headers["location"]

    async def sign_in(self, person: str = "sam") -> httpx.Response:
        """Sign in; returns the learner's answer to the browser that comes back."""
        return await self.client.get(await self.log_in(await self.begin(), person))

    async def user(self, **headers: str) -> httpx.Response:
        """Ask who is signed in, as the page does."""
        return await self.client.get("/v1/user", headers=PAGE | headers)


@pytest.fixture(scope="module")
def _provider() -> Iterator[IdentityProvider]:
    with identity_provider(URL) as provider:
        yield provider


@pytest.fixture
def provider(_provider: IdentityProvider) -> Iterator[IdentityProvider]:
    """The provider, as it should be."""
    context = _provider.server.context
    clients, people, post = deepcopy(_provider.clients), deepcopy(_provider.people), context.httpc
    yield _provider
    _provider.forge = None
    _provider.broken.clear()
    for held, before in ((_provider.clients, clients), (_provider.people, people)):
        held.clear()
        held.update(before)
    context.httpc = post


@pytest.fixture
def sign_in(provider: IdentityProvider, tmp_path: Path) -> dict[str, Any]:
    """The settings of sign-in."""
    secret = tmp_path / "client-secret"
    secret.write_text(f"{SECRET}\n")
    return {
        "issuer": provider.url,
        "client_id": CLIENT,
        "client_secret_file": secret,
        "url": URL,
        "provider": "St. Mary's",
        "roles": ROLES,
    }


def learner(state: Path, sign_in: dict[str, Any], **settings: object) -> FastAPI:
    """A learner without parties."""
    users = [{"name": "alice", "token_hash": hash_token(USER)}]
    fields: dict[str, Any] = {"name": "learner", "state": state / "learner", "users": users, "sign_in": sign_in}
    return create_learner_app(LearnerSettings(**(fields | settings)))


@pytest.fixture
async def app(sign_in: dict[str, Any], tmp_path: Path) -> AsyncIterator[FastAPI]:
    """The learner, running."""
    async with running(learner(tmp_path, sign_in, shares={"failed_sign_ins": 1000})) as app:
        yield app


@asynccontextmanager
async def visiting(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A learner that runs for as long as somebody visits its page."""
    async with running(app), httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL) as client:
        yield client


@pytest.fixture
async def browser(app: FastAPI, provider: IdentityProvider) -> AsyncIterator[Browser]:
    """A browser at the learner's page."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL) as client:
        yield Browser(client, provider)
