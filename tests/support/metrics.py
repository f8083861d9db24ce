"""All metrics of a service that a test runs in its own process."""

from __future__ import annotations

import httpx
from starlette.testclient import TestClient


def metrics_of(client: httpx.Client) -> str:
    """What the listener of ``[metrics]`` would show of the service that a test asks."""
    assert isinstance(client, TestClient)
    text: bytes = client.app.state.metrics.render()  # type: ignore[attr-defined]
    return text.decode()
