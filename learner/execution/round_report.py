"""Reports on each round of a run to those who watch it. The reports have public values only.

They name who contributed and who did not, what the run has cost so far, and, if the operator has public examples of the
study, how good the weights of the round are on these.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.client.federation import RoundReport
from parley.common.data.columns import Label
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.extras import require_extra
from parley.common.learning.losses import Loss, build_loss
from parley.common.learning.metrics import accuracy, fitness, majority_share, r_squared, rmse
from parley.common.learning.model import Model
from parley.common.protocol.messages import Query, Reply
from parley.learner.runs.news import DroppedNews, Measures, RoundNews
from parley.learner.runs.plan import Plan
from parley.learner.runs.states import Notice


@dataclass(frozen=True, slots=True)
class PublicExamples:
    """Public examples (n, d) on which a run's progress is measured."""

    shard: Shard
    loss: Loss
    has_classes: bool = True

    @classmethod
    def read(cls, path: Path, study: Study) -> PublicExamples:
        """Read the examples of a CSV or Parquet file in the study's columns, without rows that the study drops.

        Raises InvalidDataError if the file cannot be read, or has no row with all values.
        """
        require_extra("files", "reading public examples")
        from parley.common.files.examples import load_examples  # noqa: PLC0415 -- pyarrow, 40 MB, which only learners with such examples need

        shard = load_examples(path, study.of_rows, clip=True).shard
        if not (present := shard.present).any():
            raise InvalidDataError(f"data file {path} has no row to measure on: each misses a value and was dropped")
        if not present.all():
            shard = shard.take(np.flatnonzero(present))
        return cls(shard, build_loss(study), isinstance(study.label, Label))

    @property
    def majority(self) -> float | None:
        """The share of the commonest class; None for a real label."""
        if not self.has_classes:
            return None
        return majority_share(self.shard)

    def measure(self, weights: FloatArray) -> Measures:
        """Return the objective (the mean loss) of a model's weights, and its accuracy, or R^2 and RMSE of a regression.

        RMSE is in units in which the label's bounds are -1 and +1. For an array of another shape the result is empty.
        """
        outputs = () if self.loss.outputs == 1 else (self.loss.outputs,)
        if weights.shape != (*outputs, self.shard.n_features):
            return {}
        model = Model(weights)
        objective = fitness(self.loss, model, self.shard, 0.0)
        if self.has_classes:
            return {"objective": objective, "accuracy": accuracy(model, self.shard)}
        return {"objective": objective, "r_squared": r_squared(model, self.shard), "rmse": rmse(model, self.shard)}


def read_public_data(paths: dict[str, Path], studies: dict[str, Study]) -> dict[str, PublicExamples]:
    """Read the public examples of each study, by the study's digest; raises InvalidInputError for an unknown study."""
    if unknown := sorted(set(paths) - set(studies)):
        raise InvalidInputError(f"public_data for unknown studies: {', '.join(unknown)}")
    return {studies[name].digest: PublicExamples.read(path, studies[name]) for name, path in paths.items()}


@dataclass(frozen=True, slots=True)
class Reporter:
    """Writes the notices of one run's rounds."""

    parties: tuple[str, ...]
    plan: Plan
    public: PublicExamples | None

    def notices(self, query: Query, reply: Reply, round_report: RoundReport) -> list[Notice]:
        """Return the news of a round: a ``dropped`` notice for each party lost in it, then one ``round`` notice.

        Parties that ``missed`` the round will be asked again. Objective and accuracy are those of the weights that the
        round asked about. Epsilon is what the run has cost each party; for a lost party it is an upper bound.
        """
        cost = {name: after[query.round - 1] for name, after in self.plan.epsilon_after.items()}
        contributors = [self.parties[index] for index in reply.contributors]
        lost = [
            Notice("dropped", DroppedNews(party=name, round=query.round, reason=reason, epsilon=cost[name]))
            for name, reason in round_report.dropped.items()
        ]
        news: RoundNews = {
            "round": query.round,
            "of": self.plan.rounds,
            "ms": round(round_report.seconds * 1000, 3),
            "contributors": contributors,
            "stragglers": list(round_report.stragglers),
            "missed": list(round_report.missed),
            "epsilon": {name: cost[name] for name in contributors},
        }
        if round_report.opened:
            news["opened_by"] = list(round_report.opened)
        measures: Measures = self.public.measure(query.message) if self.public else {}
        return [*lost, Notice("round", {**news, **measures})]
