"""Metrics for Prometheus: public facts for everybody, and times for those who run the service.

How long an answer takes, and what the processor and the memory do, may depend on a private value: on a party's rows, on
a key holder's key. A stranger who reads such times a thousand times averages the noise of a network away. So they are a
registry apart (`Metrics.times`), which the service shows at its own port only if it keeps no secret, as a learner; a
party and a key holder show it on the listener of ``[metrics]`` alone, which is its owner's. An answer's duration ends
with its last byte, as the caller sees it: what a party draws again after that takes a time that nobody may learn.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from parley.common import parley_version
from parley.common.errors import ForbiddenError, ParleyError
from parley.common.service.tokens import SignInFailure

disable_created_metrics()  # type: ignore[no-untyped-call]  # these time stamps are of no use

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
"""The upper bounds of an answer's duration."""
_PATIENCE = 2.0  # seconds that one who asks for metrics waits for the readiness; a long round may hold it up


class Metrics:
    """One application's metrics: every service counts its requests, and adds counters and gauges of its own.

    ``times_are_public`` says whether the service's own port shows times too.
    """

    def __init__(self, *, times_are_public: bool = False) -> None:
        self.times_are_public = times_are_public
        self.registry, self.times = CollectorRegistry(), CollectorRegistry()
        version = parley_version()
        Info("parley_build", "What runs here.", registry=self.registry).info(
            {"version": version, "revision": _revision(version), "python": platform.python_version()}
        )
        self.requests = Counter(
            "parley_requests",
            "Requests by method, route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.failed_sign_ins = Counter(
            "parley_failed_sign_ins",
            "Requests without a valid bearer token, by reason.",
            ["why"],
            registry=self.registry,
        )
        for why in get_args(SignInFailure):  # from 0 on, so that the first one is an increase
            self.failed_sign_ins.labels(why)
        self.refusals = Counter(
            "parley_refusals",
            "Requests that were refused, by kind of problem and, where it is one, by the rule of the owner or service.",
            ["kind", "rule"],
            registry=self.registry,
        )
        self.expiry_days = Gauge(
            "parley_expiry_days",
            "Days until the first of the tokens, and of the certificates, expires; absent if none does.",
            ["what"],
            registry=self.registry,
        )
        self._ready = Gauge(
            "parley_ready", "1 if the service can do its work, as /readyz says, and 0 if not.", registry=self.registry
        )
        self._durations = Histogram(
            "parley_request_seconds",
            "Seconds from a request's head to its answer's last byte, or to the beginning of a stream of events.",
            ["method", "route"],
            buckets=_SECONDS,
            registry=self.times,
        )
        ProcessCollector(registry=self.times)

    def count_request(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """Count an answered request, whose answer took so many seconds; None if it was not sent to its end."""
        self.requests.labels(method, route, status).inc()
        if seconds is not None:
            self._durations.labels(method, route).observe(seconds)

    def count_refusal(self, error: ParleyError) -> None:
        """Count an error that answers a request; the labels are rules of this code, never what a client sent."""
        rule = error.facts.get("rule", "") if isinstance(error, ForbiddenError) else ""
        self.refusals.labels(error.kind, rule).inc()

    async def ask_ready(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Note whether ``ready`` raises no ParleyError; a service that is too busy to say is as it was."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                try:
                    await ready()
                except ParleyError:
                    self._ready.set(0)
                else:
                    self._ready.set(1)

    def render(self, *, times: bool = False) -> bytes:
        """Return the public metrics in Prometheus' text format; with ``times``, the others as well."""
        return generate_latest(self.registry) + (generate_latest(self.times) if times else b"")


def _revision(version: str) -> str:
    """Return the commit that a version between two releases names, or nothing.

    >>> _revision("0.2.dev7+g19b27e79e"), _revision("0.2.0")
    ('19b27e79e', '')
    """
    return version.partition("+g")[2].partition(".")[0]
