"""Counts runs and their events for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import Counter, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from parley.common.service.prometheus import Metrics
from parley.learner.runs.states import ENDS, TRANSITIONS, RunEvent

if TYPE_CHECKING:
    from parley.learner.execution.event_stream import RunNotifier
    from parley.learner.storage.run_store import RunStore


class RunCounters:
    """Counts the events that a store announces, and hands them on to the watchers."""

    def __init__(self, metrics: Metrics, notifier: RunNotifier) -> None:
        self._notifier = notifier
        self._ended = Counter("parley_runs_ended", "Runs that ended, by state.", ["state"], registry=metrics.registry)
        for state in TRANSITIONS:
            if state in ENDS:
                self._ended.labels(state)  # so that the first of them is an increase
        self._rounds = Counter("parley_rounds", "Rounds that were logged, of all runs.", registry=metrics.registry)
        self._dropped = Counter(
            "parley_dropped_parties",
            "Times that a party was silent and will not be asked again by its run.",
            registry=metrics.registry,
        )

    def announce(self, run: str, events: Sequence[RunEvent]) -> None:
        """Count the events of a commit, and notify the run's watchers."""
        has_ended = False
        for event in events:
            match event.kind:
                case "round":
                    self._rounds.inc()
                case "dropped":
                    self._dropped.inc()
                case "state" if (state := event.news["state"]) in ENDS:
                    self._ended.labels(state).inc()
                    has_ended = True
        self._notifier.notify(run, () if has_ended else events)  # watchers read an end from the store


class RunGauge(Collector):
    """The number of runs in each state, counted when Prometheus asks."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def collect(self) -> Iterable[Metric]:
        """Yield one gauge, with a value for each state."""
        gauge = GaugeMetricFamily("parley_runs", "Runs by state.", labels=["state"])
        counts = self._store.count()
        for state in TRANSITIONS:
            gauge.add_metric([state], counts.get(state, 0))
        yield gauge
