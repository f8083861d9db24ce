"""A round is one trace across all services that trace, and no span holds what is not public."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import ValidationError
from starlette.types import Message, Receive, Scope, Send

from parley.common.errors import InvalidInputError
from parley.common.service import logs
from parley.common.service.serve import begin_tracing
from parley.common.service.tokens import hash_token
from parley.common.service.tracing import Tracing, traced_answers, traced_round
from tests.support.cluster import AUTHORIZED, LEARNER, Cluster, party_apps, submit, train, watch
from tests.support.collector import collecting, remembered_spans
from tests.support.intercepted import learner_of
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services

ROUNDS = 3
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NAME = re.compile(r"[\w.-]{1,100}")
PUBLIC: dict[str, re.Pattern[str]] = {
    "parley.run": NAME,
    "parley.session": NAME,
    "parley.round": re.compile(r"\d{1,9}"),
    "parley.peer": NAME,
    "parley.caller": NAME,
    "http.request.method": re.compile("GET|PUT|POST|DELETE"),
    "http.route": re.compile(r"[\w/{}]+"),
    "http.response.status_code": re.compile(r"\d{3}"),
    "error.type": re.compile(r"\w+"),
}


def check_public(spans: list[ReadableSpan]) -> None:
    """Spans hold the public facts that are listed here, and nothing else."""
    for span in spans:
        assert not span.events
        assert not span.links
        assert span.status.description is None
        assert not span.context.trace_state
        assert re.fullmatch(r"(round|ask|answer)( [\w/{}.-]+)?", span.name)
        for key, value in (span.attributes or {}).items():
            assert PUBLIC[key].fullmatch(str(value)), f"{key} of {span.name}"


def of_kind(spans: list[ReadableSpan], kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in spans if span.kind == kind]


async def test_a_round_is_one_trace_across_learner_parties_and_key_holder(tmp_path: Path) -> None:
    cluster = SecureCluster(tmp_path, n_parties=2)
    with remembered_spans() as remembered:
        async with secure_services(cluster) as services, learner_of(cluster, services) as client:
            run = await submit(client, parameters={"n_rounds": ROUNDS}, **SUMS)
            assert (await watch(client, run))[-1][1]["state"] == "completed"
        spans = list(remembered.get_finished_spans())
    check_public(spans)
    rounds = of_kind(spans, SpanKind.INTERNAL)
    assert [dict(round_span.attributes or {}) for round_span in rounds] == [
        {"parley.run": run, "parley.round": number + 1} for number in range(ROUNDS)
    ]
    assert len({round_span.context.trace_id for round_span in rounds}) == ROUNDS
    client_spans, answered = of_kind(spans, SpanKind.CLIENT), of_kind(spans, SpanKind.SERVER)
    for round_span in rounds:
        children = [span for span in client_spans if span.parent and span.parent.span_id == round_span.context.span_id]
        assert sorted(str((span.attributes or {})["parley.peer"]) for span in children) == [
            "key-holder-1",
            "party-1",
            "party-2",
        ]
        for span in children:
            (answer,) = [a for a in answered if a.parent and a.parent.span_id == span.context.span_id]
            attributes = answer.attributes or {}
            assert answer.context.trace_id == round_span.context.trace_id
            assert (attributes["parley.round"], attributes["parley.caller"]) == (
                (round_span.attributes or {})["parley.round"],
                "learner",
            )
            assert (attributes["http.response.status_code"], answer.status.status_code) == (200, StatusCode.UNSET)
    assert len(client_spans) == len(answered) == 3 * ROUNDS


def test_an_error_leaves_its_class_alone() -> None:
    with remembered_spans() as remembered, pytest.raises(ValueError, match="17"), traced_round("run", 1):
        raise ValueError("the patient is 17")
    (span,) = spans = list(remembered.get_finished_spans())
    check_public(spans)
    assert (span.attributes or {})["error.type"] == "ValueError"


async def answered_with(headers: dict[str, str], caller: str | None = "learner") -> list[ReadableSpan]:
    """The spans of an answer after which its service goes on for a while."""

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})
        ended.append(len(remembered.get_finished_spans()))
        await asyncio.sleep(0.3)  # such as noise that is drawn again

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Message) -> None:
        pass

    scope: dict[str, Any] = {"type": "http", "method": "PUT", "path_params": {"run": "r<", "round": "2"}}
    scope["headers"] = [(key.encode(), value.encode()) for key, value in headers.items()]
    ended: list[int] = []
    with remembered_spans() as remembered:
        await traced_answers(app)(scope | ({"parley.caller": caller} if caller else {}), receive, send)
        spans = list(remembered.get_finished_spans())
    assert ended == [len(spans)]
    return spans


async def test_a_span_ends_with_the_answer_and_not_with_what_is_drawn_after_it() -> None:
    (span,) = await answered_with({"traceparent": PARENT, "tracestate": "a=secret", "baggage": "name=secret"})
    check_public([span])
    assert span.start_time
    assert span.end_time
    assert span.end_time - span.start_time < 0.2e9
    assert f"{span.context.trace_id:032x}" in PARENT
    assert "parley.run" not in (span.attributes or {})  # what no run is called is not repeated


@pytest.mark.parametrize("parent", ["", "00-zz", "0" * 55, PARENT[:-4], "x" * 5000, f"00-{'0' * 32}-{'0' * 16}-01"])
async def test_who_traces_nothing_is_not_traced(parent: str) -> None:
    assert not await answered_with({"traceparent": parent})


async def test_a_stranger_is_not_traced() -> None:
    assert not await answered_with({"traceparent": PARENT}, caller=None)


async def test_the_frameworks_own_telemetry_is_off_in_every_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would time what follows an answer, and send the messages of errors."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    other = FastAPI()
    async with party_apps(Cluster(tmp_path, n_parties=1)) as apps:
        for app in (other, apps["party-1"]):
            exporter.clear()
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://party") as client:
                await client.get("/healthz", headers={"traceparent": PARENT})
            assert bool(exporter.get_finished_spans()) == (app is other)


async def test_without_the_setting_nothing_is_sent(tmp_path: Path) -> None:
    cluster = SecureCluster(tmp_path, n_parties=2)
    headers: list[httpx.Headers] = []

    async def look(request: httpx.Request) -> None:
        headers.append(request.headers)

    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        for service in services.values():
            service.intercept = look
        await train(client, parameters={"n_rounds": 1}, **SUMS)
    assert headers
    assert not any("traceparent" in header for header in headers)


def test_without_the_setting_no_part_of_it_is_loaded() -> None:
    program = "import sys, parley.learner.api.app, parley.party.api.app, parley.party.keyholder.app\n"
    program += "import parley.common.service.serve\n"
    program += "print([name for name in sys.modules if name.endswith('.spans') or 'opentelemetry.sdk' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_collector_that_hangs_does_not_keep_a_service_from_stopping() -> None:
    program = """
import sys, time
from parley.common.service.serve import begin_tracing
from parley.common.service.tracing import Tracing, traced_round
begin_tracing(Tracing(endpoint=sys.argv[1]), "learner")
for round in range(5000):
    with traced_round("run", round):
        pass
print(time.time())
"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        done = subprocess.run(
            [sys.executable, "-c", program, url], capture_output=True, text=True, check=True, timeout=60
        )
    assert time.time() - float(done.stdout) < 12  # twice two seconds, on a busy machine


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "parley.common.service.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'parley-learning\[tracing\]'"):
        begin_tracing(Tracing.model_validate({"endpoint": "http://127.0.0.1:4318/v1/traces"}), "party")


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [("http://collector:4318/v1/traces", "plain_http"), ("https://u:secret@c/v1", "HEADERS"), ("ftp://c/", "URL")],
)
def test_a_collector_that_cannot_be_meant_is_refused(endpoint: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words) as refused:
        Tracing.model_validate({"endpoint": endpoint})
    assert "secret" not in str(refused.value)


def test_lines_of_the_log_name_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", lines := StringIO())
    logs.configure()
    with remembered_spans() as remembered:
        with traced_round("run", 1):
            structlog.get_logger().info("within")
        structlog.get_logger().info("after")
    (span,) = remembered.get_finished_spans()
    within, after = map(json.loads, lines.getvalue().splitlines())
    assert within["trace"] == f"{span.context.trace_id:032x}"
    assert "trace" not in after


@pytest.mark.parametrize("is_outbound", [pytest.param(False, marks=pytest.mark.slow), True], ids=["direct", "outbound"])
async def test_real_services_send_their_spans_over_either_kind_of_connection(
    tmp_path: Path, *, is_outbound: bool
) -> None:
    cluster, port, ports = Cluster(tmp_path, n_parties=2), free_port(), {}
    url = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        collector = stack.enter_context(collecting())
        tracing = {"endpoint": collector.url}
        for name in cluster.names:
            ports[name] = free_port()
            address = [{"name": "learner", "url": url, "token": f"of-{name}"}] if is_outbound else []
            party = cluster.party_settings(name, port=ports[name], outbound=address, tracing=tracing)
            stack.enter_context(stopped_at_exit(start_party(party)))
        urls = {name: f"http://127.0.0.1:{ports[name]}" for name in cluster.names}
        roster = [{"name": n, "connects_with": hash_token(f"of-{n}"), "token": LEARNER} for n in cluster.names]
        changes: dict[str, Any] = {"parties": roster} if is_outbound else {}
        settings = cluster.learner_settings(urls, port=port, tracing=tracing, **changes)
        with stopped_at_exit(start_learner(settings)):
            wait_until_ready(url)
            async with httpx.AsyncClient(base_url=url, headers=AUTHORIZED, trust_env=False, timeout=60) as client:
                await train(client, parameters={"n_rounds": ROUNDS})
            async with asyncio.timeout(30):
                while len(collector.spans) < 5 * ROUNDS:  # noqa: ASYNC110 -- spans are sent in batches
                    await asyncio.sleep(0.1)
    roots = [span for name, span in collector.spans if name == "learner" and not span.parent_span_id]
    assert [span.name for span in roots] == ["round"] * ROUNDS
    for root in roots:
        names = [(name, span.name) for name, span in collector.spans if span.trace_id == root.trace_id]
        route = "answer /v1/runs/{run}/rounds/{round}"
        requests = [("learner", f"ask {name}") for name in cluster.names]
        assert sorted(names) == sorted([("learner", "round"), *requests, *((name, route) for name in cluster.names)])
    for private in (LEARNER, "of-party-1", *cluster.study.feature_names):
        assert not any(private in body for body in collector.said)
    assert any("learner" in body for body in collector.said), "what is looked through is there"
