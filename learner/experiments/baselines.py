"""Computes figures to compare a private model with: without a model, with all data and no privacy, with one owner's.

Each figure is a mean over the first repetitions of a simulation: accuracy, and AUC for two classes; or R^2 for a real
label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple, Self

import numpy as np

from parley.common.algorithms import REGISTRY, settle
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.data.study import StudyKind
from parley.common.errors import InvalidInputError, ParleyError
from parley.common.learning.metrics import accuracy, auc, examples_of, r_squared
from parley.common.learning.model import Model
from parley.common.privacy.guarantee import Adjacency, hides
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from parley.common.registry import Registry

Split = tuple[Shard, Shard, FederationFacts]
"""A training stack (K, n, d), test examples (m, d), and the facts of the stack's parties."""
_NOISE = 3  # a random stream of its own
_MOST_CARRIED = 2**27
"""The most numbers in all questions to one party and its answers: an algorithm with more takes long, and is not tried.

Stacks of all parties' models are not tried either if they hold more than this in a round.
"""


class Score(NamedTuple):
    """How good one model is: its accuracy or R^2, and its AUC if it has one."""

    value: float
    auc: float | None

    @classmethod
    def of(cls, model: Model, test: Shard, kind: StudyKind) -> Self:
        """Return the score of a model on test examples (m, d)."""
        if kind == "regression":
            return cls(r_squared(model, test), None)
        return cls(accuracy(model, test), auc_where_known(model, test))


@dataclass(frozen=True, slots=True)
class Trials:
    """The splits on which baselines are measured, the kind of their models, and the scores of each algorithm's models.

    ``scores`` has for each algorithm, by name, and each split the scores of its model, or of each party's.
    """

    splits: Sequence[Split]
    kind: StudyKind
    scores: Mapping[str, Sequence[Sequence[Score]]]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A figure to compare with a simulation's: an accuracy or R^2, and the AUC if it has one.

    ``measure`` returns None for data without such a figure. ``of_number`` is the title for a real label, if it differs.
    """

    title: str
    measure: Callable[[Trials], Score | None]
    of_number: str | None = None


def _majority(trials: Trials) -> Score:
    """Return the score of predicting the commonest class, or the mean."""
    return Score(fmean(constant(train, test, trials.kind) for train, test, _ in trials.splits), None)


def _pooled(trials: Trials) -> Score | None:
    """Return the score of the minimiser on all data without privacy."""
    return _mean_score(trials.scores["pooled"])


def _alone(trials: Trials) -> Score | None:
    """Return the mean score over owners who use only their own data, without noise."""
    return _mean_score(trials.scores["local"])


def _alone_worst(trials: Trials) -> Score | None:
    """Return the score of the worst of these owners."""
    of_owners = trials.scores["local"]
    return Score(fmean(min(score.value for score in owners) for owners in of_owners), None) if of_owners else None


BASELINES: Registry[Baseline] = Registry(
    "baseline",
    majority=Baseline("the majority", _majority, "the mean"),
    pooled=Baseline("all data pooled, not private", _pooled),
    alone=Baseline("each owner alone, not private", _alone),
    alone_worst=Baseline("the worst of them", _alone_worst),
)
"""The baselines that are shown beside the best algorithm at the same budget, in their order."""


@dataclass(frozen=True, slots=True)
class Baselines:
    """Figures to compare with a simulation's, over ``repeat`` repetitions.

    ``figures`` are those of `BASELINES`, None for one that the data do not have. ``best`` is the private algorithm of
    the registry that does best at the same budget, and ``best_value`` its figure. For a run that hides whole parties it
    is the best of the algorithms that do so too, because a budget that hides one record promises less. ``auc`` has the
    AUC of the figures and of ``best``, if there are two classes. `beside_run` sets the other fields.
    """

    repeat: int
    figures: Mapping[str, float | None]
    best: str
    best_value: float
    auc: Mapping[str, float] = field(default_factory=dict)
    contends: bool = True
    best_is_run: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        fields = asdict(self)
        figures: dict[str, Any] = fields.pop("figures")
        return {"repeat": fields.pop("repeat")} | figures | fields

    def rows(self, kind: StudyKind) -> Iterator[tuple[str, float, float | None]]:
        """Yield the figures that the data have: title, value, and AUC if there is one."""
        for name, value in self.figures.items():
            if value is not None:
                baseline = BASELINES[name]
                title = (baseline.of_number if kind == "regression" else None) or baseline.title
                yield title, value, self.auc.get(name)
        scope = "best at this budget" if self.contends else "best at this budget of what is private without a curator"
        yield f"{scope}, {'this run' if self.best_is_run else self.best}", self.best_value, self.auc.get("best")

    def beside_run(self, name: str, metrics: Mapping[str, float], *, contends: bool, is_open: bool) -> Baselines:
        """Return the figures beside a run of the algorithm ``name`` with its ``metrics``; the run may be the best.

        The run ``contends`` if, like the best algorithm, it is private and needs no curator. It is the best if it does
        no worse than all that were tried, or if it is the best of them by other draws of noise, with all its parameters
        open (``is_open``).
        """
        value = metrics.get("accuracy", metrics.get("r_squared", -math.inf))
        if not contends or not (value >= self.best_value or (is_open and name == self.best)):
            return replace(self, contends=contends)
        aucs = {**self.auc, "best": metrics["auc"]} if "auc" in metrics else self.auc
        return replace(self, best=name, best_value=value, best_is_run=True, auc=aucs)


def baselines(splits: Sequence[Split], kind: StudyKind, adjacency: Adjacency = "replace_one") -> Baselines:
    """Return the baselines on some splits of data for models of a kind; every algorithm's parameters are left open.

    The best is chosen from the algorithms that hide what the ``adjacency`` says, or from all private ones without such.
    """
    scores = {name: _tried(name, splits, kind) for name, algorithm in REGISTRY.items() if algorithm.trains}
    means = {name: _mean_score(of_splits) for name, of_splits in scores.items()}
    private = {name: mean for name, mean in means.items() if mean and _is_private(name, splits[0][2])}
    hiding = [name for name in private if hides(REGISTRY[name].adjacency_of(splits[0][2].unit), adjacency)]
    best = max(hiding or private, key=lambda name: private[name].value)
    measured = {name: baseline.measure(Trials(splits, kind, scores)) for name, baseline in BASELINES.items()}
    aucs = {name: score and score.auc for name, score in {**measured, "best": private[best]}.items()}
    return Baselines(
        repeat=len(splits),
        figures={name: score and score.value for name, score in measured.items()},
        best=best,
        best_value=private[best].value,
        auc={name: auc for name, auc in aucs.items() if auc is not None},
    )


def auc_where_known(model: Model, test: Shard) -> float | None:
    """Return the AUC of a model; None for more than two classes, or examples of only one class."""
    try:
        return auc(model, test)
    except InvalidInputError:
        return None


def constant(train: Shard, test: Shard, kind: StudyKind) -> float:
    """Return the accuracy of predicting the training examples' commonest class, or the R^2 of predicting their mean.

    Rows count by their weights, so that each person counts once.
    """
    (trained, counts), (tested, weights) = map(_measured, (train, test))
    if kind == "regression":
        mean = np.average(tested, weights=weights)
        errors, spread = ((tested - about) ** 2 for about in (np.average(trained, weights=counts), mean))
        return 1 - float(np.average(errors, weights=weights) / np.average(spread, weights=weights))
    values, codes = np.unique(trained, return_inverse=True)
    commonest = values[np.bincount(codes, counts).argmax()]
    return float(np.average(tested == commonest, weights=weights))


def _measured(shard: Shard) -> tuple[FloatArray, FloatArray]:
    """Return the labels (m,) of the rows to measure on, and how much each counts."""
    rows = examples_of(shard)
    return shard.y[rows], shard.weights[rows]


def _tried(name: str, splits: Sequence[Split], kind: StudyKind) -> list[list[Score]]:
    """Return the scores of an algorithm's models on each split: of one model, or of one for each party.

    The result is empty if the algorithm does not fit the data, or would take long.
    """
    scores = []
    try:
        for seed, (train, test, facts) in enumerate(splits):
            algorithm, _ = settle(name, {}, facts)
            if _takes_long(algorithm, facts):
                return []
            model = simulate(algorithm, train, facts, SeededNoise([seed, _NOISE]))
            scores.append([Score.of(member, test, kind) for member in model.members])
    except ParleyError:
        return []
    return scores


def _takes_long(algorithm: Algorithm, facts: FederationFacts) -> bool:
    """Return whether more than `_MOST_CARRIED` numbers go to and from one party, or into stacks, which grow as K^2."""
    questions, k = algorithm.questions(facts), len(facts.parties)
    stacks = [k * question.answer for question in questions if question.answer >= k * facts.n_weights]
    one = sum(math.prod(question.message) + question.answer for question in questions)
    return max(one, *stacks, 0) > _MOST_CARRIED


def _is_private(name: str, facts: FederationFacts) -> bool:
    """Return whether an algorithm that was tried suits owners who trust nobody with their data."""
    algorithm, _ = settle(name, {}, facts)
    return trusts_nobody(algorithm, facts)


def trusts_nobody(algorithm: Algorithm, facts: FederationFacts) -> bool:
    """Return whether an algorithm is private and needs no curator who holds the data."""
    return not algorithm.curator and algorithm.is_private(facts)


def _mean_score(of_splits: Sequence[Sequence[Score]]) -> Score | None:
    """Return the mean over the splits of the mean over models; None without splits.

    The AUC is the mean over the splits whose test examples have both classes.
    """
    if not of_splits:
        return None
    aucs = [[score.auc for score in scores if score.auc is not None] for scores in of_splits]
    value = fmean(fmean(score.value for score in scores) for scores in of_splits)
    return Score(value, fmean(map(fmean, filter(None, aucs))) if any(aucs) else None)
