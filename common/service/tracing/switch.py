"""Whether rounds are traced: by a setting alone. Without it OpenTelemetry is not loaded, and this does nothing.

A round is one trace across the services that have the setting: a span at the learner, in it one for each request to a
party or key holder, and in each of these one at whoever answers, which the header ``traceparent`` (W3C Trace Context)
ties to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Protocol, Self, TypeVar

from pydantic import Field, HttpUrl, model_validator
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.common.extras import require_extra
from parley.common.strict import Setting, is_loopback

if TYPE_CHECKING:
    from parley.common.service.tracing.spans import Spans

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


class HasStatus(Protocol):
    """A response."""

    @property
    def status(self) -> int:
        """Of HTTP."""


_R = TypeVar("_R", bound=HasStatus)


class _Switch:
    """What makes this process's spans, if it makes any."""

    spans: Spans | None = None


def begin_tracing(settings: Tracing | None, service: str) -> None:
    """Trace from now on, as the service of this name, if there are settings for it.

    Raises MissingExtraError without the extra ``tracing``.
    """
    if settings is not None:
        trace_with(require_tracing().sent_to(str(settings.endpoint), service))


def require_tracing() -> type[Spans]:
    """What makes spans; raises MissingExtraError without the extra ``tracing``."""
    require_extra("tracing", "settings: tracing")
    from parley.common.service.tracing.spans import Spans  # noqa: PLC0415 -- costs nobody who does not trace

    return Spans


def trace_with(spans: Spans | None) -> None:
    """Make spans by this from now on, or none."""
    _Switch.spans = spans


def traced_round(run: str, round: int) -> AbstractContextManager[None]:
    """The span of a round, with a trace of its own."""
    return _Switch.spans.of_round(run, round) if _Switch.spans else nullcontext()


async def traced_request(peer: str, method: str, ask: Callable[[SentHeaders], Awaitable[_R]]) -> _R:
    """The response of a ``peer`` that is asked with further headers: where a trace is on, with its ``traceparent``."""
    return await (_Switch.spans.of_request(peer, method, ask) if _Switch.spans else ask(()))


async def traced_answer(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Have an application answer a request, in a span where the asker, whose token counts, traces its own."""
    await (_Switch.spans.of_answer if _Switch.spans else _untraced)(app, scope, receive, send)


def current_trace() -> str | None:
    """The identifier of the trace that is on here, 32 hexadecimal digits; None without any."""
    return _Switch.spans.current_trace() if _Switch.spans else None


async def _untraced(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)
