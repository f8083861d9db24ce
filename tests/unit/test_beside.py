"""What runs beside a server, and where the spans of a service go."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from parley.common.service import spans
from parley.common.service.http.connections import _kept_up
from parley.common.service.serve import begin_tracing
from parley.common.service.tracing import Tracing, current_trace, trace_with

SECRET = "0.271828"


async def test_what_fails_beside_a_server_is_logged_by_its_place_and_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses, starts = list[float](), list[object]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def start(server: object) -> None:
        starts.append(server)
        if len(starts) == 1:
            raise RuntimeError(SECRET)
        if len(starts) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", pause)
    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await _kept_up(start, "the server")  # type: ignore[arg-type]  # it is handed on
    assert starts == ["the server"] * 3
    assert pauses == [1.0, 1.0]
    (line,) = lines
    assert (line["event"], line["error"], line["place"].rpartition(":")[0]) == ("internal", "RuntimeError", __file__)
    assert SECRET not in str(line)


def test_a_service_sends_its_spans_by_its_name_where_its_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[str, str]] = []

    class Noted:
        @classmethod
        def sent_to(cls, endpoint: str, service: str) -> Noted:
            begun.append((endpoint, service))
            return cls()

        def current_trace(self) -> str:
            return "a trace"

    monkeypatch.setattr(spans, "Spans", Noted)
    begin_tracing(None, "clinic")
    assert (begun, current_trace()) == ([], None)
    try:
        begin_tracing(Tracing.model_validate({"endpoint": "http://127.0.0.1:4318/v1/traces"}), "clinic")
        assert current_trace() == "a trace"
    finally:
        trace_with(None)
    assert begun == [("http://127.0.0.1:4318/v1/traces", "clinic")]
