"""What to measure a private model by: no model at all, everybody's data without privacy, nobody else's data.

Each figure is a mean over the first repetitions of a simulation: accuracy, and AUC of two classes; or R^2 of a real
label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple, Self

import numpy as np

from parley.common.algorithms import REGISTRY, settle
from parley.common.data.shard import Shard
from parley.common.data.study import StudyKind
from parley.common.errors import InvalidInputError, ParleyError
from parley.common.learning.metrics import accuracy, auc, examples_of, r_squared
from parley.common.learning.model import Model
from parley.common.privacy.guarantee import Adjacency
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate

Split = tuple[Shard, Shard, FederationFacts]
"""A training stack (K, n, d), test examples (m, d), and the facts of the stack's parties."""
_NOISE = 3  # a random stream of its own
_MOST_CARRIED = 2**27
"""Numbers that one party is asked and answers in all: what carries more takes long, and is not tried beside another.

Nor are stacks of all parties' models tried, where all parties' stacks hold more than that in a round.
"""


class _Scored(NamedTuple):
    """How good one model is: its accuracy or R^2, and its AUC where it has one."""

    value: float
    auc: float | None

    @classmethod
    def of(cls, model: Model, test: Shard, kind: StudyKind) -> Self:
        """On test examples."""
        if kind == "regression":
            return cls(r_squared(model, test), None)
        return cls(accuracy(model, test), auc_where_known(model, test))


@dataclass(frozen=True, slots=True)
class Baselines:
    """Figures to set beside a simulation's, over ``repeat`` repetitions; None where the loss has no minimiser to find.

    ``majority`` predicts the commonest class, or the mean; ``pooled`` is the minimiser on all data without privacy;
    ``alone`` is the mean over owners who use their own data alone, without noise, ``alone_worst`` the worst of them.
    ``best`` is that of the registry's private algorithms which does best at the same budget, ``best_value`` how well.
    Where a run hides whole parties it is of those that do: a budget that hides one record promises less.
    ``auc`` has the AUC of pooled, alone and best, where there are two classes. See `beside_run` for the rest.
    """

    repeat: int
    majority: float
    pooled: float | None
    alone: float | None
    alone_worst: float | None
    best: str
    best_value: float
    auc: Mapping[str, float] = field(default_factory=dict)
    contends: bool = True
    best_is_run: bool = False

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return asdict(self)

    def beside_run(self, name: str, metrics: Mapping[str, float], *, contends: bool, is_open: bool) -> Baselines:
        """The figures beside a run of the algorithm ``name``, which may be the best itself, with its own ``metrics``.

        It is where it does no worse than all that were tried, or is the best of them by other draws of noise, all its
        parameters being open (``is_open``). It ``contends`` if it is private and needs no curator, as the best.
        """
        own = metrics.get("accuracy", metrics.get("r_squared", -math.inf))
        if not contends or not (own >= self.best_value or (is_open and name == self.best)):
            return replace(self, contends=contends)
        aucs = {**self.auc, "best": metrics["auc"]} if "auc" in metrics else self.auc
        return replace(self, best=name, best_value=own, best_is_run=True, auc=aucs)


def baselines(splits: Sequence[Split], kind: StudyKind, adjacency: Adjacency = "replace_one") -> Baselines:
    """The baselines on some splits of data for models of a kind, every algorithm with its parameters left open.

    The best is of those that hide what the ``adjacency`` says, or of all private ones where there is none such.
    """
    tried = {name: _tried(name, splits, kind) for name, algorithm in REGISTRY.items() if algorithm.trains}
    private = {name: _mean(found) for name, found in tried.items() if found and _is_private(name, splits[0][2])}
    hiding = [name for name in private if adjacency in {"replace_one", REGISTRY[name].adjacency}]
    best = max(hiding or private, key=private.__getitem__)
    named = {"pooled": tried["pooled"], "alone": tried["local"], "best": tried[best]}
    aucs = {name: _mean_auc(found) for name, found in named.items()}
    return Baselines(
        repeat=len(splits),
        majority=fmean(constant(train, test, kind) for train, test, _ in splits),
        pooled=_mean(named["pooled"]) if named["pooled"] else None,
        alone=_mean(named["alone"]) if named["alone"] else None,
        alone_worst=fmean(min(each.value for each in owners) for owners in named["alone"]) if named["alone"] else None,
        best=best,
        best_value=private[best],
        auc={name: value for name, value in aucs.items() if value is not None},
    )


def auc_where_known(model: Model, test: Shard) -> float | None:
    """The AUC of a model, None where there is none: more than two classes, or examples of one class only."""
    try:
        return auc(model, test)
    except InvalidInputError:
        return None


def constant(train: Shard, test: Shard, kind: StudyKind) -> float:
    """How good it is to predict the commonest class of the training examples for everybody, or their mean: as R^2."""
    seen, asked = train.y[examples_of(train)], test.y[examples_of(test)]
    if kind == "regression":
        return 1 - float(((asked - seen.mean()) ** 2).mean() / asked.var())
    values, counts = np.unique(seen, return_counts=True)
    return float((asked == values[counts.argmax()]).mean())


def _tried(name: str, splits: Sequence[Split], kind: StudyKind) -> list[list[_Scored]]:
    """How good an algorithm's models are on each split, one or one a party; nothing where it is not for the data.

    Nor where it would take long.
    """
    found = []
    try:
        for seed, (train, test, facts) in enumerate(splits):
            algorithm, _ = settle(name, {}, facts)
            if _takes_long(algorithm, facts):
                return []
            model = simulate(algorithm, train, facts, SeededNoise([seed, _NOISE]))
            found.append([_Scored.of(member, test, kind) for member in model.members])
    except ParleyError:
        return []
    return found


def _takes_long(algorithm: Algorithm, facts: FederationFacts) -> bool:
    """Whether it carries more than `_MOST_CARRIED`: to and from one party, or as stacks, which grow as K^2."""
    questions, k = algorithm.questions(facts), len(facts.parties)
    stacks = [k * each.answer for each in questions if each.answer >= k * facts.n_weights]
    one = sum(math.prod(each.message) + each.answer for each in questions)
    return max(one, *stacks, 0) > _MOST_CARRIED


def _is_private(name: str, facts: FederationFacts) -> bool:
    """Whether an algorithm that was tried is one for owners who trust nobody with their data."""
    algorithm, _ = settle(name, {}, facts)
    return trusts_nobody(algorithm, facts)


def trusts_nobody(algorithm: Algorithm, facts: FederationFacts) -> bool:
    """Whether an algorithm is private, and needs no curator who holds the data."""
    return not algorithm.curator and algorithm.is_private(facts)


def _mean(found: list[list[_Scored]]) -> float:
    return fmean(fmean(each.value for each in members) for members in found)


def _mean_auc(found: list[list[_Scored]]) -> float | None:
    """The mean AUC over the splits whose test examples are of both classes; None without any."""
    known = [[each.auc for each in members if each.auc is not None] for members in found]
    return fmean(map(fmean, filter(None, known))) if any(known) else None
