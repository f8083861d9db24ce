"""What runs beside a server, and where the spans of a service go."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from starlette.types import Message, Receive, Scope, Send
from structlog.testing import capture_logs

from parley.common import parley_version
from parley.common.service import spans
from parley.common.service.http.connections import kept_up
from parley.common.service.serve import begin_tracing
from parley.common.service.spans import Spans
from parley.common.service.tracing import (
    TracedRequest,
    Tracing,
    current_trace,
    trace_with,
    traced_answers,
    traced_request,
    traced_round,
)
from tests.support.collector import remembered_spans

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
        await kept_up(start, "the server")  # type: ignore[arg-type]  # it is handed on
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


def test_spans_go_to_the_collector_alone_all_waiting_ones_at_once_within_two_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporters, made, batches = list[tuple[str, dict[str, Any]]](), list[dict[str, Any]](), list[Any]()
    gone: list[ReadableSpan] = []

    def exporter(endpoint: str, **options: Any) -> object:  # noqa: ANN401 -- any option
        exporters.append((endpoint, options))
        return SimpleNamespace(export=gone.extend, shutdown=lambda: None)

    def in_batches(exporter: Any, *sizes: int, **options: int) -> SimpleSpanProcessor:  # noqa: ANN401 -- stands for one
        batches.append((sizes, options))
        return SimpleSpanProcessor(exporter)

    def provider(**options: Any) -> TracerProvider:  # noqa: ANN401 -- any option
        made.append(dict(options["resource"].attributes))
        return TracerProvider(**options)

    monkeypatch.setattr(spans, "OTLPSpanExporter", exporter)
    monkeypatch.setattr(spans, "BatchSpanProcessor", in_batches)
    monkeypatch.setattr(spans, "TracerProvider", provider)
    with Spans.sent_to("http://collector/v1/traces", "clinic").of_round("r1", 3):
        pass
    ((endpoint, options),) = exporters
    assert (endpoint, options["timeout"], options["session"].trust_env) == ("http://collector/v1/traces", 2.0, False)
    assert set(options) == {"timeout", "session"}
    assert batches == [((2048,), {"max_export_batch_size": 2048})]
    named = {"service.name": "clinic", "service.namespace": "parley", "service.version": parley_version()}
    assert named.items() <= made[0].items()
    (span,) = gone
    assert span.instrumentation_scope is not None
    assert (span.instrumentation_scope.name, span.instrumentation_scope.version) == ("parley", parley_version())


def told(span: ReadableSpan) -> tuple[str, SpanKind, dict[str, Any], StatusCode]:
    """What a span says: its name, its kind, its attributes and its status."""
    assert (span.events, span.status.description) == ((), None)
    return span.name, span.kind, dict(span.attributes or {}), span.status.status_code


def asked(peer: str, status: int | None) -> TracedRequest:
    """A request that got an answer of this status."""
    with traced_request(peer, "PUT") as request:
        request.status = status
    return request


def test_a_round_and_the_requests_within_it_say_what_they_are() -> None:
    with remembered_spans() as remembered:
        assert asked("party-1", 200).headers == (), "outside a trace nothing is told to a peer"
        assert not remembered.get_finished_spans()
        with traced_round("r1", 3):
            trace = current_trace()
            ((name, parent),) = asked("party-1", 399).headers
            asked("party-2", 400)
            asked("party-3", None)
            with contextlib.suppress(RuntimeError), traced_request("party-4", "GET"):
                raise RuntimeError(SECRET)
            assert current_trace() == trace
            with traced_round("r1", 4):
                assert current_trace() != trace
        assert current_trace() is None
        *requests, inner, outer = remembered.get_finished_spans()
    facts = {"http.request.method": "PUT"}
    status = "http.response.status_code"
    assert list(map(told, requests)) == [
        ("ask party-1", SpanKind.CLIENT, facts | {"parley.peer": "party-1", status: 399}, StatusCode.UNSET),
        ("ask party-2", SpanKind.CLIENT, facts | {"parley.peer": "party-2", status: 400}, StatusCode.ERROR),
        ("ask party-3", SpanKind.CLIENT, facts | {"parley.peer": "party-3"}, StatusCode.UNSET),
        (
            "ask party-4",
            SpanKind.CLIENT,
            {"http.request.method": "GET", "parley.peer": "party-4", "error.type": "RuntimeError"},
            StatusCode.ERROR,
        ),
    ]
    assert told(outer) == ("round", SpanKind.INTERNAL, {"parley.run": "r1", "parley.round": 3}, StatusCode.UNSET)
    assert told(inner)[2] == {"parley.run": "r1", "parley.round": 4}
    assert (outer.parent, inner.parent) == (None, None)
    assert {span.parent.span_id for span in requests if span.parent} == {outer.context.span_id}
    assert (name, parent[:-3]) == ("traceparent", f"00-{trace}-{requests[0].context.span_id:016x}")


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def answered(messages: list[Message], **scope: Any) -> tuple[list[int], ReadableSpan]:  # noqa: ANN401 -- of ASGI
    """How many spans had ended after each message of an answer to a caller that traces, and its span."""
    ended: list[int] = []

    async def app(given: Scope, receive: Receive, send: Send) -> None:
        assert given is whole
        assert receive is ask
        assert current_trace() == PARENT.split("-")[1]
        for message in messages:
            await send(message)
            ended.append(len(remembered.get_finished_spans()))

    async def ask() -> Message:
        raise AssertionError

    async def take(message: Message) -> None:
        sent.append(message)

    whole: dict[str, Any] = {"type": "http", "method": "PUT", "headers": [(b"traceparent", PARENT.encode())], **scope}
    sent: list[Message] = []
    with remembered_spans() as remembered:
        await traced_answers(app)(whole, ask, take)
        (span,) = remembered.get_finished_spans()
    assert sent == messages
    assert (span.parent.span_id if span.parent else None) == int(PARENT.split("-")[2], 16)
    return ended, span


def start(status: int) -> Message:
    return {"type": "http.response.start", "status": status, "headers": []}


async def test_the_span_of_an_answer_ends_with_its_last_piece() -> None:
    pieces: list[Message] = [{"type": "http.response.body", "body": b"x", "more_body": more} for more in (True, False)]
    path = {"run": "r1", "round": "2", "session": "5"}
    route = SimpleNamespace(path="/v1/runs/{run}/rounds/{round}")
    scope = {"parley.caller": "learner", "route": route, "path_params": path}
    ended, span = await answered([start(200), *pieces, {"type": "http.response.debug"}], **scope)
    assert ended == [0, 0, 1, 1]
    assert told(span) == (
        "answer /v1/runs/{run}/rounds/{round}",
        SpanKind.SERVER,
        {
            "http.request.method": "PUT",
            "parley.caller": "learner",
            "http.route": "/v1/runs/{run}/rounds/{round}",
            "parley.run": "r1",
            "parley.round": 2,
            "parley.session": "5",
            "http.response.status_code": 200,
        },
        StatusCode.UNSET,
    )


async def test_the_span_of_a_refusal_names_no_route_that_there_is_not_and_no_odd_name() -> None:
    path = {"run": "a run", "round": "two", "session": "s" * 101}
    ended, span = await answered([start(404)], **{"parley.caller": "learner", "path_params": path})
    assert ended == [0]
    assert told(span) == (
        "answer none",
        SpanKind.SERVER,
        {
            "http.request.method": "PUT",
            "parley.caller": "learner",
            "http.route": "none",
            "parley.round": "two",
            "http.response.status_code": 404,
        },
        StatusCode.ERROR,
    )
    _, span = await answered([start(200), {"type": "http.response.body"}], **{"parley.caller": "learner"})
    assert dict(span.attributes or {}).keys() & {"parley.run", "parley.round", "parley.session"} == set()


@pytest.mark.parametrize("scope", [{"parley.caller": "learner", "headers": []}, {}], ids=["no trace", "a stranger"])
async def test_what_is_not_traced_passes_as_it_is_even_within_a_trace(scope: dict[str, Any]) -> None:
    seen: list[tuple[object, ...]] = []

    async def app(*given: object) -> None:
        seen.append(given)

    async def ask() -> Message:
        raise AssertionError

    async def take(_: Message) -> None:
        raise AssertionError

    whole = {"type": "http", "method": "GET", "headers": [(b"traceparent", PARENT.encode())], **scope}
    with remembered_spans() as remembered:
        with traced_round("r1", 1):
            await traced_answers(app)(whole, ask, take)
        assert [span.name for span in remembered.get_finished_spans()] == ["round"]
    assert seen == [(whole, ask, take)]


async def test_the_span_of_an_answer_that_fails_before_it_begins_has_the_errors_class() -> None:
    async def app(*_: object) -> None:
        raise RuntimeError(SECRET)

    async def none() -> Message:
        raise AssertionError

    async def take(_: Message) -> None:
        raise AssertionError

    whole = {
        "type": "http",
        "method": "GET",
        "headers": [(b"traceparent", PARENT.encode())],
        "parley.caller": "learner",
    }
    with remembered_spans() as remembered, contextlib.suppress(RuntimeError):
        await traced_answers(app)(whole, none, take)
    (span,) = remembered.get_finished_spans()
    facts = {"http.request.method": "GET", "parley.caller": "learner", "error.type": "RuntimeError"}
    assert told(span) == ("answer", SpanKind.SERVER, facts, StatusCode.ERROR)
