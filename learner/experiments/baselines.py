"""What to measure a private model by: no model at all, everybody's data without privacy, nobody else's data.

Each figure is a mean over the first repetitions of a simulation: accuracy, or R^2 of a real label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from common.algorithms import REGISTRY, settle
from common.data.shard import Shard
from common.data.study import StudyKind
from common.errors import ParleyError
from common.learning.metrics import accuracy, examples_of, r_squared
from common.learning.model import Model
from common.privacy.noise import SeededNoise
from common.protocol.facts import FederationFacts
from common.protocol.simulation import simulate

Score = Callable[[Model, Shard], float]
Split = tuple[Shard, Shard, FederationFacts]
"""A training stack (K, n, d), test examples (m, d), and the facts of the stack's parties."""
_NOISE = 3  # a random stream of its own
_MOST_CARRIED = 2**27
"""Numbers that one party is asked and answers in all: what carries more takes long, and is not tried beside another."""


@dataclass(frozen=True, slots=True)
class Baselines:
    """Figures to set beside a simulation's, over ``repeat`` repetitions; None where the loss has no minimiser to find.

    ``majority`` predicts the commonest class, or the mean; ``pooled`` is the minimiser on all data without privacy;
    ``alone`` is the mean over owners who use their own data alone, without noise, ``alone_worst`` the worst of them.
    ``best`` is that of the registry's private algorithms which does best at the same budget, ``best_value`` how well.
    """

    repeat: int
    majority: float
    pooled: float | None
    alone: float | None
    alone_worst: float | None
    best: str
    best_value: float

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return asdict(self)


def baselines(splits: Sequence[Split], kind: StudyKind) -> Baselines:
    """The baselines on some splits of data for models of a kind, every algorithm with its parameters left open."""
    score = r_squared if kind == "regression" else accuracy
    tried = {name: _tried(name, splits, score) for name, algorithm in REGISTRY.items() if algorithm.trains}
    private = {name: _mean(values) for name, values in tried.items() if values and _is_private(name, splits[0][2])}
    best = max(private, key=private.__getitem__)
    pooled, alone = tried["pooled"], tried["local"]
    return Baselines(
        repeat=len(splits),
        majority=fmean(constant(train, test, kind) for train, test, _ in splits),
        pooled=_mean(pooled) if pooled else None,
        alone=_mean(alone) if alone else None,
        alone_worst=fmean(map(min, alone)) if alone else None,
        best=best,
        best_value=private[best],
    )


def constant(train: Shard, test: Shard, kind: StudyKind) -> float:
    """How good it is to predict the commonest class of the training examples for everybody, or their mean: as R^2."""
    seen, asked = train.y[examples_of(train)], test.y[examples_of(test)]
    if kind == "regression":
        return 1 - float(((asked - seen.mean()) ** 2).mean() / asked.var())
    values, counts = np.unique(seen, return_counts=True)
    return float((asked == values[counts.argmax()]).mean())


def _tried(name: str, splits: Sequence[Split], score: Score) -> list[list[float]]:
    """How good an algorithm's models are on each split, one or one a party; nothing where it is not for the data.

    Nor where it would take long.
    """
    found = []
    try:
        for seed, (train, test, facts) in enumerate(splits):
            algorithm, _ = settle(name, {}, facts)
            if sum(math.prod(each.message) + each.answer for each in algorithm.questions(facts)) > _MOST_CARRIED:
                return []
            model = simulate(algorithm, train, facts, SeededNoise([seed, _NOISE]))
            found.append([score(member, test) for member in model.members])
    except ParleyError:
        return []
    return found


def _is_private(name: str, facts: FederationFacts) -> bool:
    """Whether an algorithm that was tried is one for owners who trust nobody with their data."""
    algorithm, _ = settle(name, {}, facts)
    return algorithm.is_private(facts) and not algorithm.curator


def _mean(values: list[list[float]]) -> float:
    return fmean(map(fmean, values))
