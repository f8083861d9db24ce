"""What a run tells those who watch it, round by round: public values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.arrays import FloatArray
from common.client.federation import RoundReport
from common.data.columns import Label
from common.data.shard import Shard
from common.data.study import Study
from common.errors import InvalidInputError
from common.learning.losses import Loss
from common.learning.metrics import accuracy
from common.learning.model import Model
from common.protocol.messages import Query, Reply
from common.service.columns_files import load_examples
from learner.plan import Plan
from learner.run import Notice


@dataclass(frozen=True, slots=True)
class PublicExamples:
    """Examples (n, d) that are no secret, on which a run's progress is measured."""

    shard: Shard
    loss: Loss
    has_classes: bool = True

    @classmethod
    def read(cls, path: Path, study: Study) -> PublicExamples:
        """The examples of a CSV or Parquet file in the study's columns; raises InvalidDataError."""
        shard = load_examples(path, study, clip=True).shard
        return cls(shard, study.build_loss(), isinstance(study.label, Label))

    def measure(self, weights: FloatArray) -> dict[str, float]:
        """The objective (the mean loss) and, of classes, the accuracy of weights (d,); nothing for another shape."""
        if weights.shape != (self.shard.n_features,):
            return {}
        objective = float(self.loss.value(self.shard.X @ weights, self.shard.y).mean())
        hits = {"accuracy": accuracy(Model(weights), self.shard)} if self.has_classes else {}
        return {"objective": objective} | hits


def read_public_data(paths: dict[str, Path], studies: dict[str, Study]) -> dict[str, PublicExamples]:
    """The public examples of each study, by the study's digest; raises InvalidInputError for an unknown study."""
    if unknown := sorted(set(paths) - set(studies)):
        raise InvalidInputError(f"public_data for unknown studies: {', '.join(unknown)}")
    return {studies[name].digest: PublicExamples.read(path, studies[name]) for name, path in paths.items()}


@dataclass(frozen=True, slots=True)
class Reporter:
    """Tells of the rounds of one run: ``report`` gives how the last one went."""

    parties: tuple[str, ...]
    plan: Plan
    public: PublicExamples | None
    report: Callable[[], RoundReport]

    def notices(self, query: Query, reply: Reply) -> list[Notice]:
        """The news of a round: a ``dropped`` notice for each party lost in it, then one ``round`` notice.

        Who ``missed`` the round will be asked again. Objective and accuracy are those of the weights that the round
        asked about; epsilon is what the run has cost each party, a lost one at most.
        """
        went = self.report()
        cost = {name: after[query.round - 1] for name, after in self.plan.epsilon_after.items()}
        contributors = [self.parties[index] for index in reply.contributors]
        lost = [
            Notice("dropped", {"party": name, "round": query.round, "reason": why, "epsilon": cost[name]})
            for name, why in went.dropped.items()
        ]
        news: dict[str, Any] = {
            "round": query.round,
            "of": self.plan.rounds,
            "ms": round(went.seconds * 1000, 3),
            "contributors": contributors,
            "stragglers": list(went.stragglers),
            "missed": list(went.missed),
            "epsilon": {name: cost[name] for name in contributors},
        }
        if went.opened:
            news["opened_by"] = list(went.opened)
        measured = self.public.measure(query.message) if self.public else {}
        return [*lost, Notice("round", news | measured)]
