"""Evaluate a model: tallies of its predictions, exact and of bounded sensitivity; and figures of tallies with noise.

Replacing one example moves each tally by a bounded 1-norm, so that noise of Laplace's law hides it (Dwork, McSherry,
Nissim & Smith 2006). Of counts, it moves one down and another up, however many there are.

*Two classes* are counted in two rounds: first the scores alone, in even steps between the largest that the public
weights allow; then, by class, the scores between edges that spread as the noisy first counts say (`spread_edges`). So
bins lie where scores are, for a model of any scale and a class however rare.

*More classes* are counted by true and predicted class, and for each class by its probability, for those of the class
and for the others. The latter counts have less weight, because each example is in one for every class.

*A real label.* An example is (1, y, y^2) / 2, u^2 and u / 2, y in [-1, 1] and u in [0, 1] being its error. With
a = |y - y'|, |y + y'| is at most 2 - a, so that a replaced one moves the first by at most (a + a (2 - a)) / 2, which is
at most 9/8, and the others by 1 and 1/2: 21/8, to which truncation to the grid adds less than 2^-29. One that its owner
drops takes all of it away, at most 3/2 + 1 + 1/2 = 3, which truncation only lessens.

*Persons* of several rows, whose weights add up to at most 1. What one adds to a tally is a mean of what its rows would
add, times at most 1: a point of the convex hull of rows' parts and of nothing. The largest 1-norm between two such
points is between two of the hull's corners, so a person exchanged moves a tally by no more than a record does that is
replaced or dropped. In integers too: weights are multiples of 2^-16, and so are the parts of an error whose weight is
below 1: truncation there moves them by up to 5 2^-16 in all, and 21/8 and that are less than 3. Figures are of the
population in which each person counts the same. Their sampling deviation is stated as that of as many rows as there are
persons. A share p of the mass of weights W varies no more: by Jensen's inequality the square of the sum of a person's
w (z - p) is at most the sum of w (z - p)^2, as the weights w add up to at most 1, hence the variance at most p (1 - p)
/ W.

*Rows of zeros* count as no example: each stands for a record that its owner dropped, and says nothing of a prediction.

*Figures.* A figure is a ratio of sums, or of products of sums; `parley.common.learning.statistics` lists them. Its
interval holds the ratios r for which top - r bottom is no further from 0 than noise explains (Fieller, "Some Problems
in Interval Estimation", JRSS B 1954): by the noise's own law, for sums however small; for products with the noise as it
would be about the noisy sums. If the bottom cannot be distinguished from 0, the interval is all that is possible, and
there is no estimate. It is about the rows held out; by how much a figure of other rows of the same kind may differ from
theirs is ``sampling``. Figures of the order of scores come from `parley.common.learning.ranking`, which assumes more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Protocol

import numpy as np
from pydantic import Field
from scipy.special import expit, log_softmax

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.data.weighing import counted_by_code
from parley.common.encoding.classes import decode_classes
from parley.common.encoding.fixed_point import FEATURE_BITS, FRACTION_BITS, UNIT, truncate, weights_on_grid
from parley.common.learning.gradients import check_size
from parley.common.learning.noise_law import SummedLaplace
from parley.common.learning.ranking import Ends, RankedCounts, counts_above, ends_of
from parley.common.strict import Strict

# ── tallies ──────────────────────────────────────────────────────────────────


class Tally(Protocol):
    """The counts or sums of examples, by their scores and labels."""

    @property
    def width(self) -> int:
        """The number m of counts or sums."""

    @property
    def moves(self) -> tuple[float, ...]:
        """By how much replacing one example moves numbers of them, each a number of its own, in reals, at most.

        One move is a bound on the sum of all, which may be divided in any way.
        """

    def add_up(self, scores: FloatArray, y: FloatArray, weights: FloatArray) -> IntArray:
        """Return the sums (..., m), in units of 2^-32, over rows of scores (..., n, k) and labels (..., n).

        Each row counts by its weight (..., n), a multiple of 2^-16.
        """


def tally(kind: Tally, shard: Shard, weights: FloatArray) -> IntArray:
    """Return a tally (..., m) of a shard's examples under a model's weights (k, d): exact integers, in units of 2^-32.

    Raises InvalidInputError for weights that are not finite or too large, or for more examples than a sum holds.
    """
    check_size(shard)
    on_grid = weights_on_grid(weights)
    total = np.zeros((*shard.y.shape[:-1], kind.width), dtype=np.int64)
    for block in shard.blocks():
        total += kind.add_up(block.scores(on_grid), block.y, block.weights * block.present)
    return total


def _counts(cells: IntArray, weights: FloatArray, size: int, unit: float = UNIT) -> IntArray:
    """Count the rows (..., n) in each of ``size`` cells, (..., size), by their weights, in this unit."""
    return np.asarray((counted_by_code(cells, weights, size) * unit).astype(np.int64))


@dataclass(frozen=True, slots=True)
class ScoreSteps:
    """Counts of scores of all labels, in ``steps`` even steps from -``largest`` to ``largest``."""

    steps: int
    largest: float
    moves: ClassVar[tuple[float, ...]] = (1.0, 1.0)
    """One count falls and another rises."""

    @property
    def width(self) -> int:
        """The number of counts."""
        return self.steps

    @property
    def edges(self) -> FloatArray:
        """The ends of the steps, (steps + 1,)."""
        return np.linspace(-self.largest, self.largest, self.steps + 1)

    def add_up(self, scores: FloatArray, y: FloatArray, weights: FloatArray) -> IntArray:  # noqa: ARG002
        """Return the counts; rounding may put a score beyond the ends, which is counted in the last step."""
        return _counts(np.searchsorted(self.edges[1:-1], scores[..., 0]), weights, self.steps)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreCells:
    """Counts of two classes by class and by bin of the score, negative ones first; ``edges`` (bins - 1,) ascend."""

    edges: FloatArray
    moves: ClassVar[tuple[float, ...]] = (1.0, 1.0)
    """One count falls and another rises."""

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.edges) + 1

    @property
    def width(self) -> int:
        """The number of counts."""
        return 2 * self.bins

    def add_up(self, scores: FloatArray, y: FloatArray, weights: FloatArray) -> IntArray:
        """Return the counts; a score at an edge belongs to the bin below, as one of 0 predicts the negative class.

        Edges that do not ascend are sorted: searches among others depend on the examples searched before.
        """
        cells = self.bins * (y > 0) + np.searchsorted(np.sort(self.edges), scores[..., 0])
        return _counts(cells, weights, self.width)


CLASS_EDGES = np.array([-6.0, -4.0, -3.0, -2.0, -1.2, -0.4, 0.4, 1.2, 2.0, 3.0, 4.0])
"""Log odds of the probabilities between which each of more than two classes is counted."""
_CLASS_BINS = len(CLASS_EDGES) + 1


@dataclass(frozen=True, slots=True)
class ClassCells:
    """Counts of K classes by true and predicted class, (K, K); then by class, whether true, and probability.

    Those are (K, 2, bins), and have the weight 1 / (2 K): an example is in one of them for every class. Probabilities
    are of the whole population: what class weights add to scores, ``offsets`` (K,), is taken from them.
    """

    n_classes: int
    offsets: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """The number of counts."""
        return self.n_classes**2 + 2 * self.n_classes * _CLASS_BINS

    @property
    def weight(self) -> float:
        """That of a count by probability."""
        return 2.0 ** -math.ceil(math.log2(2 * self.n_classes))

    @property
    def moves(self) -> tuple[float, ...]:
        """Two counts of true and predicted classes, and of each class two by probability, which have a weight."""
        return (1.0, 1.0) + (self.weight,) * (2 * self.n_classes)

    def add_up(self, scores: FloatArray, y: FloatArray, weights: FloatArray) -> IntArray:
        """Return the counts, weighted."""
        k, true = self.n_classes, decode_classes(y, self.n_classes)
        confusion = _counts(k * true + scores.argmax(axis=-1), weights, k * k)
        logs = log_softmax(scores - np.array(self.offsets) if self.offsets else scores, axis=-1)
        with np.errstate(divide="ignore"):
            log_odds = logs - np.log(-np.expm1(logs))
        by_class = [
            _counts(
                _CLASS_BINS * (true == c) + np.searchsorted(CLASS_EDGES, log_odds[..., c]),
                weights,
                2 * _CLASS_BINS,
                UNIT * self.weight,
            )
            for c in range(k)
        ]
        return np.concatenate([confusion, *by_class], axis=-1)


@dataclass(frozen=True, slots=True)
class Errors:
    """Half the sums of 1, y, y^2; the sum of u^2, and half that of u = min(|e|, c) / c, e being a prediction's error.

    c is ``largest``. A prediction is the score within the label's bounds, which are -1 and +1.
    """

    largest: float

    @property
    def width(self) -> int:
        """The number of sums, 5."""
        return 5

    @property
    def moves(self) -> tuple[float, ...]:
        """3 in all: see above for the proof."""
        return (3.0,)

    def add_up(self, scores: FloatArray, y: FloatArray, weights: FloatArray) -> IntArray:
        """Return the sums of parts truncated to the grid; so far that a weight below 1 leaves them on it."""
        weights = weights[..., None]
        error = np.minimum(np.abs(np.clip(scores[..., 0], -1.0, 1.0) - y), self.largest) / self.largest
        parts = np.stack([np.full_like(y, 0.5), y / 2, y**2 / 2, error**2, error / 2], axis=-1)
        parts = np.where(weights == 1.0, truncate(parts, FRACTION_BITS), truncate(parts, FEATURE_BITS) * weights)
        return np.asarray((parts * float(UNIT)).sum(axis=-2)).astype(np.int64)


# ── edges ────────────────────────────────────────────────────────────────────

_FAR, _BEND, _MANY = 3.2, 1.1, 12
_USUAL_SHARES, _USUAL_SPREAD = np.array([0.2, 0.5, 0.8]), 1.683  # of a normal law: between its fifths, in deviations


def spread_edges(noisy: FloatArray, steps: ScoreSteps, deviation: float, n: int, how_many: int) -> FloatArray:
    """Return edges (how_many,) about the middle of n scores, in multiples of their spread, ascending.

    ``noisy`` (steps,) are counts of the scores with noise of this ``deviation``. Most scores lie in the window whose
    count exceeds its noise by most; middle and spread are its median and the distance of its fifths. If it holds fewer
    than half of all, noise hides where scores are, and the edges spread over a third of what is possible.
    """
    ends = steps.edges
    below = np.concatenate([[0.0], np.cumsum(noisy)])
    first, last = np.triu_indices(len(below), 1)
    inside = below[last] - below[first]
    best = int(np.argmax(inside - 2 * deviation * np.sqrt(last - first)))
    lowest, middle, highest = -steps.largest / 3 * 0.842, 0.0, steps.largest / 3 * 0.842
    if inside[best] > n / 2:
        window = slice(first[best], last[best] + 1)
        up = below[window] - below[first[best]]
        rising = (np.maximum.accumulate(up) + np.minimum.accumulate(up[::-1])[::-1]) / 2
        at = rising + 1e-9 * np.arange(len(rising))
        lowest, middle, highest = np.interp(rising[-1] * _USUAL_SHARES, at, ends[window]).tolist()
    spread = max((highest - lowest) / _USUAL_SPREAD, (ends[1] - ends[0]) / 4)
    far = _FAR * min(1.0, how_many / _MANY)
    return np.asarray(
        middle + spread * far * np.sinh(_BEND * np.linspace(-1, 1, how_many)) / math.sinh(_BEND), dtype=np.float64
    )


# ── figures ──────────────────────────────────────────────────────────────────

COVERAGE = 0.95
"""How often an interval holds the true value."""
_HALVINGS = 20
_FARTHEST = 1e6


class FigureEstimate(Strict):
    """A figure of the held-out rows, and the interval that noise leaves."""

    estimate: Annotated[float | None, Field(description="null where the noise leaves none")]
    low: Annotated[float | None, Field(description="null where there is no least value")]
    high: float
    sampling: Annotated[
        float | None,
        Field(description="deviation between such figures of as many other rows of the same kind; null if not known"),
    ] = None


class CalibrationBin(Strict):
    """The examples whose score lies in a bin: the share of positive ones should be its probability."""

    low: Annotated[float, Field(description="the bin's least logistic probability")]
    high: Annotated[float, Field(description="the bin's largest")]
    examples: Annotated[float, Field(description="how many there are; an estimate")]
    positives: Annotated[float | None, Field(description="how many are positive; an estimate")] = None
    positive: Annotated[FigureEstimate, Field(description="the share of positive ones")]


class ThresholdPoint(Strict):
    """A threshold that the model may have, and its figures there, of the positive class."""

    score: Annotated[float, Field(description="rows of a larger score are predicted as the positive class")]
    accuracy: FigureEstimate
    balanced_accuracy: FigureEstimate
    precision: FigureEstimate
    recall: FigureEstimate
    specificity: FigureEstimate
    f1: FigureEstimate
    confusion: Annotated[
        tuple[tuple[float, ...], ...], Field(description="estimated counts by true, then predicted class")
    ]


@dataclass(frozen=True, slots=True, eq=False)
class NoisyNumber:
    """A number with noise, and what it would be with other noise, (draws,) less the number."""

    value: float
    noise: FloatArray

    @property
    def reach(self) -> float:
        """How far noise takes it from the truth, at most, so often as intervals hold."""
        return _reach(self.noise)


def _reach(noise: FloatArray) -> float:
    """Return the quantile of the noise's absolute values that intervals have."""
    place = min(math.ceil(COVERAGE * len(noise)), len(noise) - 1)
    return float(np.partition(np.abs(noise), place)[place])


def ratio(
    top: NoisyNumber, bottom: NoisyNumber, within: tuple[float, float] = (0.0, 1.0), n: float | None = None
) -> FigureEstimate:
    """Return the ratio of two noisy numbers, with a positive bottom; its values lie ``within`` two bounds.

    With ``n``, the ratio is one of counts of so many rows, and has a sampling deviation.
    """
    if bottom.value <= bottom.reach:
        return FigureEstimate(estimate=None, low=within[0] if math.isfinite(within[0]) else None, high=within[1])
    middle = top.value / bottom.value

    def explains(value: float) -> bool:
        """Return whether noise explains that the ratio is not this value."""
        return abs(top.value - value * bottom.value) <= _reach(top.noise - value * bottom.noise)

    def end(bound: float) -> float:
        """Return the interval's end between the middle and a bound."""
        bound = max(min(bound, _FARTHEST), -_FARTHEST)
        if explains(bound):
            return bound
        near, far = middle, bound
        for _ in range(_HALVINGS if abs(bound - middle) < 10 else 2 * _HALVINGS):  # noqa: PLR2004
            half = (near + far) / 2
            near, far = (half, far) if explains(half) else (near, half)
        return far

    low, high = (end(bound) if bound != middle else bound for bound in within)
    estimate, low, high = np.clip((middle, min(low, middle), max(high, middle)), *within).tolist()
    sampling = None if n is None else math.sqrt(estimate * (1 - estimate) / max(n, 1.0))
    return FigureEstimate(estimate=estimate, low=None if low == -_FARTHEST else low, high=high, sampling=sampling)


def _share(part: FloatArray, of: FloatArray) -> FloatArray:
    """Return the share of some counts in others; 0 of none."""
    return np.asarray(part / np.maximum(of, 1e-9))


def _figures_above(negative: FloatArray, positive: FloatArray) -> dict[str, FloatArray]:
    """Return the figures (..., cells - 1) of predicting what is above each bound, of counts (..., cells) by class."""
    hits, alarms = counts_above(positive), counts_above(negative)
    of_positive, of_negative = (part.sum(axis=-1, keepdims=True) for part in (positive, negative))
    recall, specificity = _share(hits, of_positive), _share(of_negative - alarms, of_negative)
    return {
        "accuracy": _share(hits + of_negative - alarms, of_positive + of_negative),
        "balanced_accuracy": (recall + specificity) / 2,
        "precision": _share(hits, hits + alarms),
        "recall": recall,
        "specificity": specificity,
        "f1": _share(2 * hits, hits + alarms + of_positive),
    }


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Counts by true and predicted class, (K, K), and by bins of a score, with noise of a ``law``.

    ``values`` (m,) are the counts as they were asked for, in reals, ``law`` that of their noise; of two classes they
    are by class and bin, and ``edges`` are the scores between bins; of more, those of `ClassCells`. ``offset`` is what
    scores of two classes have too much for probabilities.
    """

    values: FloatArray
    law: SummedLaplace
    classes: tuple[str, ...]
    edges: FloatArray | None = None
    offset: float = 0.0

    @cached_property
    def noise(self) -> FloatArray:
        """Draws of the noise, (draws, m)."""
        return self.law.draws(len(self.values))

    @cached_property
    def cells(self) -> FloatArray:
        """Which counts are of each true and predicted class, as masks (K, K, m)."""
        k, m = len(self.classes), len(self.values)
        places = np.arange(k * k if self.edges is None else m)
        if self.edges is None:
            true, predicted = np.divmod(places, k)
        else:
            true, score_bin = np.divmod(places, len(self.edges) + 1)
            predicted = np.append(False, self.edges >= 0)[score_bin].astype(np.int64)
        masks = np.zeros((k, k, m))
        masks[true, predicted, places] = 1.0
        return masks

    def total(self, weights: FloatArray) -> NoisyNumber:
        """Return a weighted sum of the counts."""
        return NoisyNumber(float(weights @ self.values), self.noise @ weights)

    def share(self, part: FloatArray, of: FloatArray) -> FigureEstimate:
        """Return the share of some counts in some more, as masks (m,), with the deviation of a share of so many."""
        whole = self.total(of)
        return ratio(self.total(part), whole, n=whole.value)

    def accuracy(self) -> FigureEstimate:
        """Return the share of rows whose class is predicted."""
        return self.share(np.einsum("iim->m", self.cells), self.cells.sum(axis=(0, 1)))

    def majority(self) -> FigureEstimate:
        """Return the share of rows of the class that seems the most frequent."""
        of_classes = self.cells.sum(axis=1)
        return self.share(of_classes[(of_classes @ self.values).argmax()], of_classes.sum(axis=0))

    def recall(self, label: int) -> FigureEstimate:
        """Return the share of a class's rows that are predicted as that class."""
        return self.share(self.cells[label, label], self.cells[label].sum(axis=0))

    def precision(self, label: int) -> FigureEstimate:
        """Return the share of the rows predicted as a class that are of it."""
        return self.share(self.cells[label, label], self.cells[:, label].sum(axis=0))

    def f1(self, label: int) -> FigureEstimate:
        """Return the harmonic mean of a class's precision and recall."""
        both = self.cells[label].sum(axis=0) + self.cells[:, label].sum(axis=0)
        return ratio(self.total(2 * self.cells[label, label]), self.total(both))

    def balanced_accuracy(self) -> FigureEstimate:
        """Return the mean of the classes' recalls."""
        recalls = [
            (self.total(of_class[label]), self.total(of_class.sum(axis=0))) for label, of_class in enumerate(self.cells)
        ]
        if any(rows.value <= rows.reach for _, rows in recalls):
            return FigureEstimate(estimate=None, low=0.0, high=1.0)
        mean = float(np.mean([hits.value / rows.value for hits, rows in recalls]))
        noise = np.mean(
            [
                (hits.noise - hits.value / rows.value * rows.noise) / np.maximum(rows.value + rows.noise, 1.0)
                for hits, rows in recalls
            ],
            axis=0,
        )
        return ratio(NoisyNumber(mean, noise), NoisyNumber(1.0, np.zeros_like(noise)))

    def confusion(self) -> tuple[tuple[float, ...], ...]:
        """Return the counts by true, then predicted class, none below 0."""
        return tuple(map(tuple, (self.cells @ self.values).clip(min=0.0).tolist()))

    def points(self) -> tuple[ThresholdPoint, ...]:
        """Return the figures at thresholds of two classes, from the lowest up; none if noise hides a class.

        Intervals are those of counts that may be true, as those of the order of scores; within a bin they hold what
        they do at its ends, because its rows may have one score. Estimates are what other rows of the same kind would
        have: neighbours differ by little, and a rule that takes the best of them does not take the noise.
        """
        (counts,) = self.ranked
        if not counts.is_known:
            return ()
        worlds = counts.worlds
        beside = ((0, 0), (1, 1))  # so that there are bounds below and above all cells
        drawn = _figures_above(np.pad(worlds.negative, beside), np.pad(worlds.positive, beside))
        ends = {name: np.array([ends_of(draws)[1:] for draws in values.T]) for name, values in drawn.items()}
        parts = len(worlds.scores) // len(counts.negative)
        expected = _figures_above(*worlds.expected)
        negative, positive = worlds.expected.sum(axis=1)
        alarms, hits = counts_above(worlds.expected)
        cells = np.stack([negative - alarms, alarms, positive - hits, hits], axis=-1).reshape(-1, 2, 2)

        def figure(name: str, place: int) -> FigureEstimate:
            at = place + 1
            within = ends[name][[at, at // parts * parts, -(-at // parts) * parts]]
            estimate = float(expected[name][place])
            low, high = min(within[:, 0].min(), estimate), max(within[:, 1].max(), estimate)
            return FigureEstimate(estimate=estimate, low=low, high=high)

        return tuple(
            ThresholdPoint(
                score=score,
                confusion=tuple(map(tuple, cells[place].tolist())),
                **{name: figure(name, place) for name in ends},
            )
            for place, score in enumerate(worlds.bounds.tolist())
        )

    @cached_property
    def ranked(self) -> tuple[RankedCounts, ...]:
        """The counts by score of the positive class of two, or of each of more classes against the others."""
        if self.edges is not None:
            negative, positive = self.values.reshape(2, -1)
            return (RankedCounts(self.edges, negative, positive, self.law, self.offset),)
        kind, k = ClassCells(len(self.classes)), len(self.classes)
        counts = self.values[k * k :].reshape(k, 2, -1) / kind.weight
        law = self.law.times(1 / kind.weight)
        return tuple(RankedCounts(CLASS_EDGES, negative, positive, law) for negative, positive in counts)

    def of_ranks(self, figure: Callable[[RankedCounts], Ends | None]) -> list[FigureEstimate]:
        """Return a figure of each of ``ranked``, by the function that returns its estimate and ends, or None."""
        return [
            FigureEstimate(estimate=None, low=0.0, high=1.0)
            if (ends := figure(counts)) is None
            else FigureEstimate(estimate=ends[0], low=ends[1], high=ends[2])
            for counts in self.ranked
        ]

    def brier(self) -> list[FigureEstimate]:
        """Return the mean squared difference of probability and class of each of ``ranked``."""
        return list(map(_brier, self.ranked))

    def calibration(self) -> list[tuple[CalibrationBin, ...]]:
        """Return for each of ``ranked`` the examples of each bin, from the lowest scores up."""
        return list(map(_calibration, self.ranked))


def _brier(counts: RankedCounts) -> FigureEstimate:
    """Return the mean squared difference of probability and class.

    Its interval also holds what curves explain, and what it is if the rows of each bin have one score.
    """
    values, noise = counts.values, counts.noise
    rows = NoisyNumber(float(values.sum()), noise.sum(axis=1))
    mean, least, most = (
        ratio(NoisyNumber(float(errors @ values), noise @ errors), rows)
        for errors in counts.squared_errors.reshape(3, -1)
    )
    if mean.estimate is None:
        return mean
    below, above = counts.reach_of_ties()
    low, high = max((least.low or 0.0) - below, 0.0), min(most.high + above, 1.0)
    if (ends := counts.brier()) is not None:
        low, high = min(low, ends[1]), max(high, ends[2])
    return mean.model_copy(update={"low": low, "high": high})


def _calibration(counts: RankedCounts) -> tuple[CalibrationBin, ...]:
    """Return the examples of each bin, from the lowest scores up."""
    bins, read = len(counts.edges) + 1, []
    ends = [0.0, *expit(counts.edges - counts.offset).tolist(), 1.0]
    for place in range(bins):
        negative, positive = (
            NoisyNumber(float(counts.values[at]), counts.noise[:, at]) for at in (place, bins + place)
        )
        both = NoisyNumber(negative.value + positive.value, negative.noise + positive.noise)
        read.append(
            CalibrationBin(
                low=ends[place],
                high=ends[place + 1],
                examples=max(0.0, negative.value) + max(0.0, positive.value),
                positives=max(0.0, positive.value),
                positive=ratio(positive, both, n=both.value),
            )
        )
    return tuple(read)


@dataclass(frozen=True, eq=False)
class NoisyErrors:
    """Noisy sums (5,) of `Errors` with a real label; ``law`` is that of their noise.

    Labels and errors are in units in which the label's bounds are -1 and +1; ``unit`` is what 1 stands for.
    """

    values: FloatArray
    law: SummedLaplace
    largest: float
    unit: float

    @cached_property
    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """n, the sums of labels, their squares, squared errors and errors, (5,); and with other noise, (draws, 5)."""
        units = np.array([2.0, 2.0, 2.0, self.largest**2, 2 * self.largest])
        return self.values * units, (self.values + self.law.draws(5)) * units

    def _number(self, function: Callable[[FloatArray], FloatArray]) -> NoisyNumber:
        """Return a function of the sums (..., 5) as a noisy number."""
        exact, others = self._sums
        value = float(function(exact))
        return NoisyNumber(value, function(others) - value)

    def mean_squared_error(self) -> FigureEstimate:
        """Return the mean squared error, the label's bounds being -1 and +1."""
        return ratio(self._number(lambda s: s[..., 3]), self._number(lambda s: s[..., 0]), (0.0, self.largest**2))

    def root_mean_squared_error(self) -> FigureEstimate:
        """Return the root of the mean squared error, in the label's units."""
        return FigureEstimate(
            **{name: value and self.unit * math.sqrt(value) for name, value in self.mean_squared_error()}
        )

    def mean_absolute_error(self) -> FigureEstimate:
        """Return the mean absolute error, in the label's units; its estimate is at most the root mean squared one."""
        mean = ratio(self._number(lambda s: s[..., 4]), self._number(lambda s: s[..., 0]), (0.0, self.largest))
        in_units = FigureEstimate(**{name: value and self.unit * value for name, value in mean})
        root = self.root_mean_squared_error().estimate
        if root is None or in_units.estimate is None or in_units.estimate <= root:
            return in_units
        return in_units.model_copy(update={"estimate": root, "low": min(in_units.low or 0.0, root)})

    def r_squared(self) -> FigureEstimate:
        """Return R^2 = 1 - n E / (n S - T^2), of the sums T of labels, S of their squares and E of squared errors.

        The square of the noise, which T^2 has in it, is taken out.
        """
        excess = (2 * self.law.deviation) ** 2

        def variation(s: FloatArray) -> FloatArray:
            return s[..., 0] * s[..., 2] - s[..., 1] ** 2

        bottom = self._number(variation)
        bottom = NoisyNumber(bottom.value + excess, bottom.noise + excess)
        if self.mean_squared_error().estimate is None:
            bottom = NoisyNumber(0.0, bottom.noise)  # of no rows, all are but noise
        top = self._number(lambda s: variation(s) - s[..., 0] * s[..., 3])
        return ratio(NoisyNumber(top.value + excess, top.noise + excess), bottom, (-math.inf, 1.0))
