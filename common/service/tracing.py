"""The switch of tracing: rounds are traced only by a setting; without it OpenTelemetry is not loaded.

A round is one trace across the services that have the setting: the learner has a span for the round and, within it, one
for each request to a party or key holder; the service that answers adds a span within that. The header ``traceparent``
(W3C Trace Context) connects the spans of two services.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Protocol, Self

from pydantic import Field, HttpUrl, model_validator
from starlette.types import ASGIApp

from parley.common.strict import Setting, is_protected

SentHeaders = Sequence[tuple[str, str]]


class Tracing(Setting):
    """The settings that say where traces of rounds are sent."""

    endpoint: Annotated[
        HttpUrl, Field(description="where a collector takes traces by OTLP over HTTP: http://127.0.0.1:4318/v1/traces")
    ]
    plain_http: Annotated[
        bool, Field(description="whether http:// is meant beyond this machine, where something else protects it")
    ] = False

    @model_validator(mode="after")
    def _protected(self) -> Self:
        if self.endpoint.username or self.endpoint.password:
            raise ValueError("a password of the collector's belongs into the environment's OTEL_EXPORTER_OTLP_HEADERS")
        if not (self.plain_http or is_protected(str(self.endpoint))):
            raise ValueError("http:// beyond this machine needs plain_http = true; https:// is better")
        return self


@dataclass(slots=True)
class TracedRequest:
    """A request, perhaps in a span: ``headers`` are sent with it; the caller sets ``status`` from the response."""

    headers: SentHeaders = ()
    status: int | None = None


class Tracer(Protocol):
    """Makes the spans of this process: `parley.common.service.spans`, which loads OpenTelemetry."""

    def of_round(self, run: str, round: int) -> AbstractContextManager[None]:
        """Return the span of a round, which begins a trace."""

    def of_request(self, peer: str, method: str) -> AbstractContextManager[TracedRequest]:
        """Return the span of a request to a peer, if it is part of a trace."""

    def of_answers(self, app: ASGIApp) -> ASGIApp:
        """Wrap an application so that its answers have spans if the caller traces its requests."""

    def current_trace(self) -> str | None:
        """Return the identifier of the current trace, or None."""


class _Switch:
    """Holds the tracer of this process, if it traces."""

    tracer: Tracer | None = None


def trace_with(tracer: Tracer | None) -> None:
    """Make spans with this tracer from now on, or none without it."""
    _Switch.tracer = tracer


def traced_round(run: str, round: int) -> AbstractContextManager[None]:
    """Return the span of a round, which begins a trace."""
    return _Switch.tracer.of_round(run, round) if _Switch.tracer else nullcontext()


def traced_request(peer: str, method: str) -> AbstractContextManager[TracedRequest]:
    """Return the span of a request to a ``peer`` within a trace, whose headers then have the ``traceparent``."""
    return _Switch.tracer.of_request(peer, method) if _Switch.tracer else nullcontext(TracedRequest())


def traced_answers(app: ASGIApp) -> ASGIApp:
    """Wrap an application so that it answers in a span if an authenticated caller traces its requests."""
    return _Switch.tracer.of_answers(app) if _Switch.tracer else app


def current_trace() -> str | None:
    """Return the identifier of the current trace, 32 hexadecimal digits; None without one."""
    return _Switch.tracer.current_trace() if _Switch.tracer else None
