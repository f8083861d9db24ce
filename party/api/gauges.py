"""A party's budget as gauges for Prometheus: for the owner alone, whose listener shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from parley.common.privacy.account import MICRO, Account
from parley.common.privacy.statement import SPENT_MEANS
from parley.party.ledger.accounts import Statement

_FIGURES: dict[str, tuple[str, Callable[[Account], float]]] = {
    "parley_epsilon_limit": ("Epsilon that the owner allows in total.", lambda account: account.epsilon_limit / MICRO),
    "parley_epsilon_spent": (f"Epsilon that is spent. {SPENT_MEANS}", lambda account: account.epsilon_spent),
    "parley_epsilon_nonadaptive": (
        "Epsilon of what is spent if no question had depended on an answer.",
        lambda account: account.epsilon_nonadaptive,
    ),
    "parley_epsilon_left": ("Epsilon that one more run may cost.", lambda account: account.epsilon_left),
    "parley_delta_left": ("Delta that one more run may cost.", lambda account: account.delta_left),
}


class BudgetGauges(Collector):
    """Prometheus gauges of the accounts, and of who has spent them.

    Each scrape asks for the newest ``statements``, from any thread.
    """

    def __init__(self, statements: Callable[[], Sequence[Statement]]) -> None:
        self._statements = statements

    def collect(self) -> Iterable[Metric]:
        """Yield gauges of epsilon, delta and each budget's parts, and what each learner has spent for each study.

        The label ``people`` is the owner's word for them, which is empty for the account of all.
        """
        statements, labels = self._statements(), ["people", "adjacency"]
        for name, (meaning, figure) in _FIGURES.items():
            gauge = GaugeMetricFamily(name, meaning, labels=labels)
            for statement in statements:
                gauge.add_metric([statement.people, statement.account.adjacency], figure(statement.account))
            yield gauge
        parts = GaugeMetricFamily(
            "parley_budget_part",
            "Part of the budget that is spent, reserved or left; these add up to 1.",
            labels=[*labels, "state"],
        )
        spent_by = GaugeMetricFamily(
            "parley_budget_spent_by",
            "Part of the budget that the runs of a learner for a study have spent.",
            labels=["people", "study", "learner"],
        )
        left_for = GaugeMetricFamily(
            "parley_epsilon_left_for",
            "Epsilon that one more run may cost about rows of a study that lose apart from its others.",
            labels=["people", "study", "rows"],
        )
        for statement in statements:
            for state, part in statement.account.parts.items():
                parts.add_metric([statement.people, statement.account.adjacency, state], part)
            for usage in statement.usages:
                spent_by.add_metric([statement.people, usage.study, usage.learner], usage.spent)
            for rows in statement.rows:
                left_for.add_metric([statement.people, rows.study, rows.rows], rows.one_more)
        yield parts
        yield spent_by
        yield left_for
