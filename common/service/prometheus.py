"""Counters for Prometheus: public facts only, and no time that a private value could have changed."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from parley.common.errors import ForbiddenError, ParleyError

disable_created_metrics()  # type: ignore[no-untyped-call]  # these time stamps are of no use

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """One application's registry: every service counts its requests, and adds counters and gauges of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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

    def count_refusal(self, error: ParleyError) -> None:
        """Count an error that answers a request; the labels are rules of this code, never what a client sent."""
        rule = error.facts.get("rule", "") if isinstance(error, ForbiddenError) else ""
        self.refusals.labels(error.kind, rule).inc()

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
