"""Whether rounds are traced: by a setting alone. Without it OpenTelemetry is not loaded, and this does nothing.

A round is one trace across the services that have the setting: a span at the learner, in it one for each request to a
party or key holder, and in each of these one at whoever answers, which the header ``traceparent`` (W3C Trace Context)
ties to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Protocol, Self

from pydantic import Field, HttpUrl, model_validator
from starlette.types import ASGIApp

from parley.common.strict import Setting, is_loopback

SentHeaders = Sequence[tuple[str, str]]


class Tracing(Setting):
    """Where traces of rounds go."""

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
        if self.endpoint.scheme == "http" and not (self.plain_http or is_loopback(self.endpoint.host or "")):
            raise ValueError("http:// beyond this machine needs plain_http = true; https:// is better")
        return self


@dataclass(slots=True)
class TracedRequest:
    """A request in its span, if it has one: ``headers`` go with it, and ``status`` is set to that of its response."""

    headers: SentHeaders = ()
    status: int | None = None


class Tracer(Protocol):
    """Makes the spans of this process: `parley.common.service.spans`, which loads OpenTelemetry."""

    def of_round(self, run: str, round: int) -> AbstractContextManager[None]:
        """The span of a round, with a trace of its own."""

    def of_request(self, peer: str, method: str) -> AbstractContextManager[TracedRequest]:
        """The span of a request to a peer, if it is part of a trace."""

    def of_answers(self, app: ASGIApp) -> ASGIApp:
        """An application whose answers have spans where the asker traces its requests."""

    def current_trace(self) -> str | None:
        """The identifier of the trace that is on."""


class _Switch:
    """What makes this process's spans, if it makes any."""

    tracer: Tracer | None = None


def trace_with(tracer: Tracer | None) -> None:
    """Make spans by this from now on, or none."""
    _Switch.tracer = tracer


def traced_round(run: str, round: int) -> AbstractContextManager[None]:
    """The span of a round, with a trace of its own."""
    return _Switch.tracer.of_round(run, round) if _Switch.tracer else nullcontext()


def traced_request(peer: str, method: str) -> AbstractContextManager[TracedRequest]:
    """The span of a request to a ``peer``, where a trace is on: its headers then have the ``traceparent``."""
    return _Switch.tracer.of_request(peer, method) if _Switch.tracer else nullcontext(TracedRequest())


def traced_answers(app: ASGIApp) -> ASGIApp:
    """An application that answers in a span where the asker, whose token counts, traces its own."""
    return _Switch.tracer.of_answers(app) if _Switch.tracer else app


def current_trace() -> str | None:
    """The identifier of the trace that is on here, 32 hexadecimal digits; None without any."""
    return _Switch.tracer.current_trace() if _Switch.tracer else None
