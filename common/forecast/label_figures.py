"""A forecast in the figures that people read: R^2 and RMSE, accuracy, AUC and recall, from the same plausible worlds.

They need a study that states what is public of its label: mean and deviation, or classes' shares.

*A real label* of deviation s has R^2 = 1 - 2 f / s^2 at a mean loss of f, and a root mean squared error of sqrt(2 f).

*Two classes.* In a world the best scores have the law of log-likelihood ratios, N(-D/2, D) for one class, N(D/2, D)
for the other, D being such that their mean loss is the world's least (the binormal law of ROC curves: Dorfman & Alf,
"Maximum-likelihood estimation of parameters of signal-detection theory", J. Math. Psych. 1969). They are a sum over the
directions of the rows, independent within a class, and a model has learnt some of these more than others. So its scores
have the distance a D between classes and the variance b D within one, a and b being the means of what is learnt and of
its square; and noise. Some of the noise is the intercept's, which moves all scores at once, some lies along the
distance between the classes, and the rest differs from row to row. The rarer class is recalled where its probability is
.5 or more, or, at the balanced threshold, where its score is beyond the middle between the classes.

*More classes.* Rows are d e_k + N(0, I) in as many directions as there are classes; d is that of the world's least loss
and shrinks by what errors do.

Nobody has seen the data: worlds differ in how much can be learnt, and intervals are as wide as that. In some worlds a
tenth, or less, of that can be learnt here, for what people do is often nearly noise.

*How often the intervals hold*, by ``scripts/benchmarks/forecast_quality.py`` with 10,000 rows of a set, half of them
at five owners, and epsilon .3, 1 and 3: R^2 and RMSE .98 (diabetes .96, loans 1), accuracy .93, AUC .94, recall at .5
.98 and at the balanced threshold .90, over 17 sets. The worst of them: card frauds .80, .83, 1, .97; MNIST's 3 or 7
.80, .87, .83, .80; KDD99 .87, 1, 1, .40. Of the four that were looked at last, MNIST (accuracy .89), iris (.94) and
simulated rows (.87, .90, .87, .87) had no part in the choices above; after hospital readmissions (1 each), the last
was made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from parley.common.arrays import FloatArray
from parley.common.data.columns import Label, RealLabel
from parley.common.data.study import Study
from parley.common.forecast.dynamics import Load, Problem
from parley.common.forecast.excess_risk import RATE, Interval, Response

_POINTS = 400
_STEPS = 161
_REACH = 8.0
_DRAWS = 4000
_LARGEST_D = 400.0
_OF_ROWS = 0.6
"""The part of the noise in scores that is not the intercept's, in the mean over worlds."""
_ALONG = 0.4
"""The part of the noise in scores that lies along the classes' distance."""
_LEARNABLE = {1.0: 1, 0.3: 5, 0.1: 5, 0.03: 5}
"""What part of what can be learnt in a world can be, each in one world of so many: what people do is often nearly noise
to a linear model."""
_NORMAL = ndtri([0.1, 0.5, 0.9])
_LEAST = 1e-9


_UNSTATED = "the study does not state the {}; if these are public, a new study can (study init {})"
_TITLES = {
    "r_squared": "R²",
    "rmse": "RMSE",
    "accuracy": "accuracy",
    "auc": "AUC",
    "balanced_recall": "recall of both classes at the balanced threshold",
}


@dataclass(frozen=True, slots=True)
class LabelFigure:
    """A figure of a run's model: its ``interval``, what a model without features has, and an owner's own model.

    ``name`` is that of `parley.common.learning.statistics` where it is one: accuracy, auc, r_squared, rmse; ``recall``
    is that of the rarer class at a probability of .5, ``balanced_recall`` that of both classes at the balanced
    threshold. ``title`` says it in words; ``unit`` is the label's. ``alone`` is of the owner with most rows, without
    noise.
    """

    name: str
    title: str
    unit: str
    interval: Interval
    constant: float
    alone: Interval


def what_to_state(study: Study | None) -> str | None:
    """Say what a study would have to state of its label for its figures to be forecast; None if it states it."""
    if study is None:
        return None
    if isinstance(study.label, RealLabel):
        if study.usual_label is not None:
            return None
        stated = _UNSTATED.format("mean and deviation of its label", "--mean, --deviation")
        return f"R² and RMSE are not forecast: {stated}"
    if study.class_shares is not None:
        return None
    return f"accuracy and AUC are not forecast: {_UNSTATED.format('shares of its classes', '--share')}"


def label_figures(
    study: Study, problem: Problem, run: tuple[Response, Load, Load], alone: tuple[Response, Load]
) -> tuple[LabelFigure, ...]:
    """Return the figures of a run, whose load is at least the second and at most the third of ``run``.

    ``alone`` are the response and the load of an owner's own model. Empty if the study does not state enough.
    """
    if problem.constant is None or what_to_state(study) is not None:
        return ()
    response, least, most = run
    quiet, loud, own = (
        _values(study, problem, response, least),
        _values(study, problem, response, most),
        _values(study, problem, *alone),
    )
    constants = _of_constant(study)
    unit = study.label.unit if isinstance(study.label, RealLabel) else ""
    return tuple(
        LabelFigure(
            name,
            _title(name, study),
            unit if name == "rmse" else "",
            _interval(quiet[name], loud[name]),
            constant,
            _interval(own[name], own[name]),
        )
        for name, constant in constants.items()
    )


def _title(name: str, study: Study) -> str:
    """Say in words what a figure is."""
    if name != "recall" or study.class_shares is None:
        return _TITLES[name]
    rarer = study.label.values[int(np.argmin(study.class_shares))] if isinstance(study.label, Label) else ""
    return f"recall of {rarer!r} at a probability of .5"


def _interval(one: FloatArray, other: FloatArray) -> Interval:
    """Return the outer quantiles of two sets of outcomes, and the median of both."""
    tail = (1 - RATE) / 2
    both = np.concatenate([one.ravel(), other.ravel()])
    ends = [np.quantile(part, [tail, 1 - tail]) for part in (one, other)]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return Interval(float(low), float(np.median(both)), float(high))


def _of_constant(study: Study) -> dict[str, float]:
    """Return what a model has that looks at no feature, by figure."""
    if isinstance(study.label, RealLabel):
        assert study.usual_label is not None  # noqa: S101 -- the caller checked it
        return {"r_squared": 0.0, "rmse": study.usual_label.deviation * _unit(study.label)}
    majority = study.majority or 0.0
    if study.n_classes > 2:  # noqa: PLR2004
        return {"accuracy": majority}
    return {"accuracy": majority, "auc": 0.5, "recall": 0.0, "balanced_recall": 0.5}


def _unit(label: RealLabel) -> float:
    return (label.upper - label.lower) / 2


def _values(study: Study, problem: Problem, response: Response, load: Load) -> Mapping[str, FloatArray]:
    """Return each figure in each world, as it is and as if less could be learnt, at each of the levels, (W, ...)."""
    parts = [(_values_where(part, study, problem, response, load), step) for part, step in _LEARNABLE.items()]
    return {name: np.concatenate([values[name][::step] for values, step in parts]) for name in parts[0][0]}


def _values_where(
    part: float, study: Study, problem: Problem, response: Response, load: Load
) -> Mapping[str, FloatArray]:
    """Return each figure where this part of what can be learnt in a world can be, (W, levels, ...)."""
    worlds = response.worlds
    assert problem.constant is not None  # noqa: S101 -- the caller checked it
    least = problem.constant.loss - part * (problem.constant.loss - worlds.least_loss)
    if isinstance(study.label, RealLabel):
        loss = (least - (1 - part) * response.start)[:, None] + response.outcomes(load)
        r_squared = 1 - loss / problem.constant.loss
        return {"r_squared": r_squared, "rmse": _unit(study.label) * np.sqrt(2 * loss)}
    assert study.class_shares is not None  # noqa: S101 -- the caller checked it
    table = _separations(tuple(sorted(study.class_shares)))
    d2 = table.separation(least)  # D, (W,)
    signal = worlds.energy - worlds.at_once
    total = np.maximum(signal.sum(axis=1), _LEAST)
    size = np.maximum(signal @ response.learnt / total, _LEAST)  # a
    second = signal @ response.learnt**2 / total
    bend = problem.constant.bend * (worlds.bend / problem.constant.bend) ** (part / 2)  # in the middle of the way
    noise = 2 * response.disturbed(load) / (problem.curvature * bend)[:, None]
    gained = worlds.at_once.sum(axis=1)
    intercept = np.where(gained > _LEAST, worlds.at_once @ response.learnt / np.maximum(gained, _LEAST), 1.0)
    of_worlds = (values[:, None, None, None] for values in (d2, size, second, intercept))
    return table.figures(*of_worlds, noise=noise[..., None, None])


@dataclass(frozen=True, slots=True, eq=False)
class _Separations:
    """Separations D on a grid, rising, with the ``loss`` of the best scores; ``shares`` (K,) rise."""

    grid: FloatArray
    loss: FloatArray
    accuracy: FloatArray
    shares: FloatArray

    def separation(self, loss: FloatArray) -> FloatArray:
        """Return the D whose best scores have these mean losses."""
        return np.asarray(np.interp(-loss, -self.loss, self.grid))

    def figures(
        self, d2: FloatArray, size: FloatArray, second: FloatArray, intercept: FloatArray, *, noise: FloatArray
    ) -> dict[str, FloatArray]:
        """Return the figures for separations d2, by what is learnt, and the variance of the noise in scores.

        All are (W, levels, 1, 1); noise along the classes' distance, and in the intercept, make the last two axes.
        """
        mixed = d2 + float((self.shares * (1 - self.shares)).mean()) * d2**2  # the variance of the best scores
        along, shift = (
            _NORMAL[:, None] * np.sqrt(_ALONG * noise / np.maximum(mixed, _LEAST)),
            _NORMAL * np.sqrt((1 - _OF_ROWS) * noise),
        )
        apart, within = d2 * (size + along), np.maximum(d2 * second + _OF_ROWS * noise, _LEAST)
        if len(self.shares) > 2:  # noqa: PLR2004
            return {"accuracy": np.interp(np.sign(apart) * apart**2 / within, self.grid, self.accuracy)}
        rare = float(self.shares[0])
        log_odds, mean = math.log(rare / (1 - rare)), (2 * rare - 1) * d2 / 2
        middle = intercept * (log_odds + size**2 * mean) - size * mean + shift
        root = np.sqrt(within)
        recall, other = ndtr((apart / 2 + middle) / root), ndtr((apart / 2 - middle) / root)
        return {
            "accuracy": rare * recall + (1 - rare) * other,
            "auc": ndtr(apart / root / math.sqrt(2)),
            "recall": recall,
            "balanced_recall": ndtr(apart / 2 / root),
        }


@lru_cache(maxsize=8)
def _separations(shares: tuple[float, ...]) -> _Separations:
    """Return the losses and accuracies of the best scores by their separation, for classes' shares, which rise."""
    grid = np.concatenate([[0.0], np.geomspace(1e-4, _LARGEST_D, _STEPS - 1)])
    pairs = list(_of_two(grid, shares[0]) if len(shares) == 2 else _of_more(grid, np.array(shares)))  # noqa: PLR2004
    loss, accuracy = (np.array(values) for values in zip(*pairs, strict=True))
    return _Separations(grid, np.minimum.accumulate(loss), np.maximum.accumulate(accuracy), np.array(shares))


def _of_two(grid: FloatArray, rare: float) -> Iterator[tuple[float, float]]:
    """Yield the mean loss and the accuracy of the best scores of two classes, one of this share, by numerical means."""
    z = np.linspace(-_REACH, _REACH, _POINTS)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    odds = math.log(rare / (1 - rare))
    for d2 in grid.tolist():
        right = d2 / 2 + math.sqrt(d2) * z  # log-likelihood ratio in favour of the true class
        losses = np.logaddexp(0, -(right + odds)), np.logaddexp(0, -(right - odds))
        hits = right + odds > 0, right - odds > 0
        yield tuple(float(rare * (density @ a) + (1 - rare) * (density @ b)) for a, b in (losses, hits))  # type: ignore[misc]


def _of_more(grid: FloatArray, shares: FloatArray) -> Iterator[tuple[float, float]]:
    """Yield the same of more classes, in the mean over the same rows of a fixed sequence for each separation."""
    rng = np.random.default_rng(0)
    k = len(shares)
    classes = rng.choice(k, _DRAWS, p=shares / shares.sum())
    noise, true = rng.standard_normal((_DRAWS, k)), np.arange(_DRAWS)
    for d2 in grid.tolist():
        scores = math.sqrt(d2 / 2) * noise + np.log(shares)  # so that a difference of two has the variance D
        scores[true, classes] += d2 / 2
        highest = scores.max(axis=1)
        log_sum = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=1))
        yield float((log_sum - scores[true, classes]).mean()), float((scores.argmax(axis=1) == classes).mean())
