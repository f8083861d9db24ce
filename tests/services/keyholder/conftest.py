"""A key holder's application, asked over ASGI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from parley.common.secure_sum.errors import Reason
from parley.party.keyholder.app import create_key_holder_app
from tests.support.keyholder import FreshKeys, keyholder_settings

Serve = Callable[[], AbstractContextManager[httpx.Client]]
Refused = Callable[[httpx.Response, Reason], None]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A key holder that all tests of a module share."""
    with TestClient(create_key_holder_app(keyholder_settings(tmp_path_factory.mktemp("state")), FreshKeys())) as client:
        yield client


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Starts a key holder on a state of its own; again means after a restart."""

    @contextmanager
    def start() -> Iterator[httpx.Client]:
        with TestClient(create_key_holder_app(keyholder_settings(tmp_path), FreshKeys())) as client:
            yield client

    return start


@pytest.fixture
def refused() -> Refused:
    """Checks that a response is a problem document with this reason."""

    def check(response: httpx.Response, reason: Reason) -> None:
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["reason"] == reason
        assert response.status_code in (403, 409, 422)

    return check
