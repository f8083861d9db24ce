"""Spans of OpenTelemetry; only a service that traces loads this module.

This module alone sets what a span holds, and all of it is public: names of services and callers, run and round, method,
route, status, and the class of an error. No message, array, path or traceback can get into one. The span of an answer
ends with its last byte: a party draws noise and obfuscators again after that, in a time that depends on what it drew
and that nobody may learn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Self

import requests
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.common import parley_version
from parley.common.service.tracing import TracedRequest

_PARENT = "traceparent"
_EXPORT_SECONDS = 2.0
_AT_ONCE = 2048
"""The most spans that wait, all sent at once: a service stops in twice these seconds, even if its collector hangs."""
_SANE = re.compile(r"[\w.-]{1,100}", re.ASCII)
_FAULT = 400  # the least status of a response that says that a request failed


class Spans:
    """Makes the spans of this process with a ``provider``."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("parley", parley_version())

    @classmethod
    def sent_to(cls, endpoint: str, service: str) -> Self:
        """Make spans that a thread sends to a collector; spans that it does not take are lost."""
        session = requests.Session()
        session.trust_env = False  # no proxy or password of the environment
        exporter = OTLPSpanExporter(endpoint, session=session, timeout=_EXPORT_SECONDS)
        named = {"service.name": service, "service.namespace": "parley", "service.version": parley_version()}
        provider = TracerProvider(resource=Resource(named))
        provider.add_span_processor(BatchSpanProcessor(exporter, _AT_ONCE, max_export_batch_size=_AT_ONCE))
        return cls(provider)

    @contextmanager
    def of_round(self, run: str, round: int) -> Iterator[None]:
        """Run the block in the span of a round, which begins a new trace even within another."""
        span = self._tracer.start_span(
            "round", Context(), SpanKind.INTERNAL, {"parley.run": run, "parley.round": round}
        )
        with _current(span):
            yield

    @contextmanager
    def of_request(self, peer: str, method: str) -> Iterator[TracedRequest]:
        """Run the block in the span of a request to a peer, if a trace is on; the request's headers then name it."""
        request = TracedRequest()
        if not trace.get_current_span().get_span_context().is_valid:
            yield request
            return
        attributes = {"parley.peer": peer, "http.request.method": method}
        span = self._tracer.start_span(f"ask {peer}", None, SpanKind.CLIENT, attributes)
        with _current(span):
            carrier: dict[str, str] = {}
            TraceContextTextMapPropagator().inject(carrier)
            request.headers = ((_PARENT, carrier[_PARENT]),)
            yield request
            if request.status is not None:
                _note_status(span, request.status)

    def of_answers(self, app: ASGIApp) -> ASGIApp:
        """Wrap an application: each answer to an authenticated caller that sent a ``traceparent`` gets a span."""
        return partial(self._answer, app)

    async def _answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        sent = Headers(scope=scope).getlist(_PARENT) if "parley.caller" in scope else []
        parent = TraceContextTextMapPropagator().extract({_PARENT: sent})
        if not trace.get_current_span(parent).get_span_context().is_valid:
            await app(scope, receive, send)
            return
        attributes = {"http.request.method": scope["method"], "parley.caller": str(scope["parley.caller"])}
        span = self._tracer.start_span("answer", parent, SpanKind.SERVER, attributes)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                _note_route(span, scope)
                _note_status(span, message["status"])
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                span.end()

        with _current(span):
            await app(scope, receive, sending)

    def current_trace(self) -> str | None:
        """Return the identifier of the current trace, or None."""
        context = trace.get_current_span().get_span_context()
        return trace.format_trace_id(context.trace_id) if context.is_valid else None


@contextmanager
def _current(span: Span) -> Iterator[None]:
    """Make a span current within the block, and end it there at the latest; of an error it records the class."""
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield
    except BaseException as error:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(StatusCode.ERROR)
        raise
    finally:
        if span.is_recording():
            span.end()


def _note_route(span: Span, scope: Scope) -> None:
    """Note the template of the route, and the run and round that its path names."""
    route = getattr(scope.get("route"), "path", "none")
    span.update_name(f"answer {route}")
    span.set_attribute("http.route", route)
    for name in ("run", "round", "session"):
        if _SANE.fullmatch(value := str(scope.get("path_params", {}).get(name, ""))):
            span.set_attribute(f"parley.{name}", int(value) if value.isdecimal() and name == "round" else value)


def _note_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= _FAULT:
        span.set_status(StatusCode.ERROR)
