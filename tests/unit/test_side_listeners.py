"""The listener of metrics: who may read them, what it shows and the service's own port does not, and its address."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import Field
from pydantic_settings import SettingsConfigDict
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse
from structlog.testing import capture_logs

from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.service import prometheus, readiness, side_listeners
from parley.common.service.application import service
from parley.common.service.prometheus import Metrics
from parley.common.service.settings import ServiceSettings
from parley.common.service.side_listeners import create_metrics_app, listener
from parley.common.service.tokens import Caller, KnownToken, NamedCaller, hash_token

ANN, MONITOR = "of-ann", "of-the-monitor"


class Watched(ServiceSettings):
    """The settings of a service."""

    model_config = SettingsConfigDict(env_prefix="PARLEY_WATCHED_")

    learners: Annotated[tuple[Caller, ...], Field(description="who may ask")] = ()


class Service:
    """A service whose readiness is said here, and its metrics at both places."""

    def __init__(self, folder: Path, token: str | None, *, all_public: bool = False) -> None:
        self.error: Exception | None = None
        self.seconds = 0.0
        self.metrics = Metrics(all_public=all_public)
        metrics = {"port": 9464, "token_hash": token and hash_token(token)}
        self.settings = Watched(name="clinic", state=folder, metrics=metrics)
        tokens = [KnownToken(hash_token(ANN), NamedCaller("ann"))]
        self.app: FastAPI = service(
            "t", "t", tokens=tokens, metrics=self.metrics, ready=self.ready, limits=self.settings.limits
        )
        assert self.settings.metrics is not None
        self.aside = create_metrics_app(self.settings, self.settings.metrics, self.app)

    async def ready(self) -> None:
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error

    async def get(self, app: Any, token: str | None = None, path: str = "/metrics", method: str = "GET") -> Any:  # noqa: ANN401
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
            return await client.request(method, path, headers=headers)


async def test_a_monitor_shows_its_token_and_sees_times(tmp_path: Path) -> None:
    made = Service(tmp_path, MONITOR)
    for token, why in ((None, "absent"), (ANN, "unknown")):
        assert (await made.get(made.aside, token)).status_code == 401, why
    answer = await made.get(made.aside, MONITOR)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    for name in ("process_cpu_seconds_total", "parley_request_seconds_bucket", "parley_build_info", "parley_ready 1.0"):
        assert name in answer.text
    assert 'parley_failed_sign_ins_total{why="unknown"} 1.0' in answer.text
    assert (await made.get(made.aside, MONITOR, path="/v1/words")).status_code == 404
    assert (await made.get(made.aside, MONITOR, method="POST")).status_code == 405


async def test_without_a_token_all_of_the_machine_may_read_and_do_nothing_else(tmp_path: Path) -> None:
    made = Service(tmp_path, None)
    assert "process_open_fds" in (await made.get(made.aside)).text
    assert (await made.get(made.aside, path="/v1/words")).status_code == 401


@pytest.mark.parametrize("all_public", [False, True])
async def test_a_services_own_port_shows_what_callers_change_if_it_keeps_no_secret(
    tmp_path: Path, *, all_public: bool
) -> None:
    made = Service(tmp_path, MONITOR, all_public=all_public)
    first, text = [(await made.get(made.app)).text for _ in range(2)]
    assert ("parley_build_info" in text, "parley_ready 1.0" in text) == (True, True)
    counted = 'parley_requests_total{method="GET",route="/metrics",status="200"} 1.0'
    for name in (counted, "parley_failed_sign_ins", "parley_expiry_days", "process_cpu_seconds", "_seconds_bucket"):
        assert (name in text) == all_public, name
    assert (first == text) == (not all_public), "who asks changes nothing of it"


async def test_a_service_that_is_not_ready_says_so_and_one_that_is_busy_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_FRESH", 0.0)
    made = Service(tmp_path, None)
    made.error = UnavailableError("the disk is full")
    assert "parley_ready 0.0" in (await made.get(made.app)).text
    made.error = None
    assert "parley_ready 1.0" in (await made.get(made.aside)).text
    monkeypatch.setattr(prometheus, "_PATIENCE", 0.01)
    made.seconds, made.error = 60.0, UnavailableError("never said")
    assert "parley_ready 1.0" in (await made.get(made.app)).text


async def test_a_duration_ends_with_the_last_byte_and_a_streams_with_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("parley.common.service.application.time", SimpleNamespace(perf_counter=lambda: clock.now))
    made = Service(tmp_path, None)

    def later(seconds: float) -> None:
        clock.now += seconds

    @made.app.get("/healthz/slow")
    async def slow() -> PlainTextResponse:
        later(1.0)
        return PlainTextResponse("x", background=BackgroundTask(later, 100.0))

    @made.app.get("/healthz/events")
    async def events() -> StreamingResponse:
        async def pieces() -> Any:  # noqa: ANN401
            yield "data: 1\n\n"
            later(1000.0)

        return StreamingResponse(pieces(), media_type="text/event-stream")

    for path in ("slow", "events"):
        await made.get(made.app, ANN, f"/healthz/{path}")
    text = made.metrics.render().decode()
    assert 'parley_request_seconds_sum{method="GET",route="/healthz/slow"} 1.0' in text
    assert 'parley_request_seconds_sum{method="GET",route="/healthz/events"} 0.0' in text


async def test_an_address_that_is_taken_is_logged_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(side_listeners, "asyncio", SimpleNamespace(sleep=wait))
    with socket.create_server(("127.0.0.1", 0)) as taken, capture_logs() as lines:
        port = taken.getsockname()[1]
        await listener("metrics", "127.0.0.1", port, FastAPI)(SimpleNamespace())  # type: ignore[arg-type]
    failed = {"event": "metrics", "log_level": "warning", "host": "127.0.0.1", "port": port}
    assert lines == [failed | {"failed": "Address already in use"}], lines
    assert waits == [60.0]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "beyond this machine": ({"port": 9464, "host": "0.0.0.0"}, "0.0.0.0 is not this machine alone"),  # noqa: S104
    "beyond this machine for all": ({"port": 9464, "host": "0.0.0.0", "plain_http": 1}, "`parley-party token` makes"),  # noqa: S104
    "no port": ({}, "metrics.port"),
    "the service's port": ({"port": 8000}, "8000, 8000: each listener needs a port of its own"),
    "a caller's token": ({"port": 9464, "token_hash": hash_token(ANN)}, "its token is one of learners"),
    "a token, not its hash": ({"port": 9464, "token_hash": "secret-value"}, "metrics.token_hash"),
    "a misspelt key": ({"port": 9464, "tokenhash": "secret-value"}, "metrics.tokenhash"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_in_the_settings_is_named(tmp_path: Path, case: str) -> None:
    metrics, words = BAD[case]
    path = tmp_path / "watched.toml"
    lines = [f'name = "clinic"\nstate = "{tmp_path}"\n[metrics]']
    lines += [f"{name} = {value!r}" for name, value in metrics.items()]
    lines += [f'[[learners]]\nname = "ann"\ntoken_hash = "{hash_token(ANN)}"']
    path.write_text("\n".join(lines))
    with pytest.raises(InvalidInputError) as refused:
        Watched.load(path)
    assert words in refused.value.detail
    assert "secret-value" not in refused.value.detail


def test_a_container_sets_the_address_by_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "watched.toml"
    of_monitor = f'token_hash = "{hash_token(MONITOR)}"\n'
    path.write_text(f'name = "clinic"\nstate = "{tmp_path}"\n[metrics]\nport = 9464\n{of_monitor}')
    assert Watched.load(path).side_ports == {"PARLEY_WATCHED_METRICS": 9464}
    monkeypatch.setenv("PARLEY_WATCHED_METRICS__HOST", "0.0.0.0")  # noqa: S104
    monkeypatch.setenv("PARLEY_WATCHED_METRICS__PLAIN_HTTP", "true")
    metrics = Watched.load(path).metrics
    assert metrics is not None
    assert (metrics.host, metrics.port) == ("0.0.0.0", 9464)  # noqa: S104
