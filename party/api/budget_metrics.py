"""What Prometheus is told of a party's budget: what a learner is told of it, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from parley.common.privacy.account import MICRO, Account
from parley.common.privacy.statement import SPENT_MEANS

_FIGURES: dict[str, tuple[str, Callable[[Account], float]]] = {
    "parley_epsilon_limit": ("Epsilon that the owner allows in total.", lambda account: account.epsilon_limit / MICRO),
    "parley_epsilon_spent": (f"Epsilon that was charged: {SPENT_MEANS}.", lambda account: account.epsilon_spent),
    "parley_epsilon_left": ("Epsilon that one more run may cost.", lambda account: account.epsilon_left),
    "parley_delta_left": ("Delta that one more run may cost.", lambda account: account.delta_left),
}


class BudgetGauges(Collector):
    """The account of one study, read when somebody looks: ``account`` gives the newest, for any thread."""

    def __init__(self, study: str, account: Callable[[], Account]) -> None:
        self._study, self._account = study, account

    def collect(self) -> Iterable[Metric]:
        """Epsilon and delta, by the study's name and what the account hides."""
        account = self._account()
        for name, (meaning, figure) in _FIGURES.items():
            gauge = GaugeMetricFamily(name, meaning, labels=["study", "adjacency"])
            gauge.add_metric([self._study, account.adjacency], figure(account))
            yield gauge
