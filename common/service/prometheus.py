"""Metrics for Prometheus: two public facts for everybody, and all the rest for those who run the service.

What a party or a key holder counts says to one learner what another does: requests by route, refusals, the budget of
all. How long an answer takes, and what the processor and the memory do, may depend on a private value: on a party's
rows, on a key holder's key. A stranger who reads such times a thousand times averages the noise of a network away. So
the port that its callers reach shows what no caller can change (`Metrics.public`), and the listener of ``[metrics]``,
which is the owner's, shows everything. A learner keeps no secret, and shows everything at both.

An answer's duration ends with its last byte, as the caller sees it: what a party draws again after that takes a time
that nobody may learn.
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

    They are in ``registry``; ``public`` has those that no caller can change. ``all_public`` says whether the service's
    own port shows both.
    """

    def __init__(self, *, all_public: bool = False) -> None:
        self.public, self.registry = CollectorRegistry(), CollectorRegistry()
        self._all_public = all_public
        version = parley_version()
        Info("parley_build", "What runs here.", registry=self.public).info(
            {"version": version, "revision": _revision(version), "python": platform.python_version()}
        )
        self._ready = Gauge(
            "parley_ready", "1 if the service can do its work, as /readyz says, and 0 if not.", registry=self.public
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
        self._durations = Histogram(
            "parley_request_seconds",
            "Seconds from a request's head to its answer's last byte, or to the beginning of a stream of events.",
            ["method", "route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)

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

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.public) + generate_latest(self.registry)

    def render_public(self) -> bytes:
        """Return what the service's own port shows of them, in the same format."""
        return self.render() if self._all_public else generate_latest(self.public)


def _revision(version: str) -> str:
    """Return the commit that a version between two releases names, or nothing.

    >>> _revision("0.2.dev7+g19b27e79e"), _revision("0.2.0")
    ('19b27e79e', '')
    """
    return version.partition("+g")[2].partition(".")[0]
