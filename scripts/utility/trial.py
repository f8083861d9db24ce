"""A case at one epsilon: the owners' rows, and the values of an algorithm's models on examples that nobody owns.

As in a run that is submitted without options, the learner sees nothing but sums and one owner may collude with it: each
of K owners adds 1 / (K - 1) of the noise's variance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, cast

import numpy as np
from threadpoolctl import threadpool_limits

from parley.common.algorithms import build_algorithm, settle
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.data.study import StudyKind
from parley.common.encoding.classes import decode_classes
from parley.common.learning.metrics import accuracy, auc, r_squared
from parley.common.learning.model import Model
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from parley.learner.experiments.baselines import constant
from parley.learner.experiments.datasets import deal, shard_sizes
from scripts.utility.cases import Case
from scripts.utility.examples import Examples

if TYPE_CHECKING:
    from parley.common.algorithms.dp_gd import DpGd

METRICS: Mapping[str, Callable[[Model, Shard], float]] = {"accuracy": accuracy, "r_squared": r_squared, "auc": auc}

_LARGE = 1e8
_NOISE = 2
"""The random stream of a draw's noise; the first is its split's."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A case's examples at an epsilon."""

    case: Case
    examples: Examples
    epsilon: float

    @cached_property
    def facts(self) -> FederationFacts:
        """The facts of the federation, the same in each draw."""
        train, _ = self.examples.split(0)
        n = len(train.y)
        return FederationFacts.uniform(
            np.array(shard_sizes(n, self.case.owners)),
            epsilon=self.epsilon, delta=float(n) ** -2 if self.case.delta is None else self.case.delta,
            n_features=train.n_features, loss=self.examples.loss, secure_sum=True, colluders=1,
        )  # fmt: skip

    @property
    def size(self) -> int:
        """The examples times the numbers of a model, by which one round takes long."""
        return self.facts.n_total * self.facts.n_weights

    @property
    def is_large(self) -> bool:
        """Whether a model without rounds takes minutes."""
        return self.size > _LARGE

    def chosen(self, **changes: float) -> DpGd:
        """dp_gd with all parameters that are not given chosen from public facts alone."""
        return cast("DpGd", settle("dp_gd", changes, self.facts)[0])

    def models(self, algorithm: Algorithm, draws: Sequence[int]) -> list[Model]:
        """The model of each draw: two cores train two at once, which beats one model on two cores."""

        def trained(draw: int) -> Model:
            return simulate(algorithm, self._owned(draw), self.facts, SeededNoise([draw, _NOISE]))

        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(trained, draws))

    def values(self, algorithm: Algorithm, draws: Sequence[int]) -> list[float]:
        """The value of each draw's model on its held-out examples."""
        return self.worth(self.models(algorithm, draws), draws)

    def worth(self, models: Sequence[Model], draws: Sequence[int]) -> list[float]:
        """The values of models on the held-out examples of their draws."""
        tests = (self.examples.split(draw)[1] for draw in draws)
        return [self.metric(model, test) for model, test in zip(models, tests, strict=True)]

    def metric(self, model: Model, shard: Shard) -> float:
        """The value of a model on examples, by the case's measure."""
        return METRICS[self.case.value](model, shard)

    def pooled(self, regularization: float, draw: int) -> Model:
        """The model of all the owners' examples in one place, without privacy."""
        algorithm = build_algorithm("pooled", {"regularization": regularization})
        return simulate(algorithm, self._owned(draw), self.facts, SeededNoise([draw, _NOISE]))

    def majority(self, draws: Sequence[int]) -> float:
        """The value of the best model that uses no feature: the commonest class, the mean, or a coin."""
        if self.case.value == "auc":
            return 0.5
        kind: StudyKind = "regression" if self.case.value == "r_squared" else "binary"
        return fmean(constant(*self.examples.split(draw), kind) for draw in draws)

    def _owned(self, draw: int) -> Shard:
        """The owners' examples of a draw, stacked."""
        return self._dealt(draw) if self.examples.is_redrawn else self._always

    @cached_property
    def _always(self) -> Shard:
        return self._dealt(0)

    def _dealt(self, draw: int) -> Shard:
        return deal(self.examples.split(draw)[0], tuple(self.facts.n_examples.tolist()))


def classes(shard: Shard, outputs: int) -> IntArray:
    """The class of each example, (n,): 0 or 1 of two."""
    return decode_classes(shard.y, outputs) if outputs > 1 else (shard.y > 0).astype(np.int64)
