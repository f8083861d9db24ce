"""Evaluate a model: tallies of its predictions, exact and of bounded sensitivity; and figures of tallies with noise.

*Classes.* Each example counts once in a fine cell and once in the group of its cell, so replacing one moves the 2-norm
by at most 2, exactly: a cell and a group lose one, others gain one. Fine cells alone would need sqrt 2, and the sum of
a group of m would carry m times a cell's variance; because groups are counted too, it carries 2 m / (m + 1) times, by
least squares (Hay, Rastogi, Miklau & Suciu, "Boosting the Accuracy of Differentially Private Histograms Through
Consistency", VLDB 2010). Of 2 x 20 bins, the noise on an accuracy is 2.3 times smaller for it, and that on a bin 1.4
times larger.

*A real label.* An example is (1, y, y^2) / 2 and u, y in [-1, 1] and u in [0, 1]; errors are the hardest to distinguish
from noise, so they have twice the weight. A replaced one moves the squared 2-norm by at most
(y - y')^2 (1 + (y + y')^2) / 4 + 1. With a = |y - y'|, |y + y'| is at most 2 - a, and a^2 (1 + (2 - a)^2) rises from
a = 0 to 2, where it is 4: at most 2 in all. One that comes or goes moves it by at most 7/4. Truncating y^2 / 2 adds
less than 2^-30; labels on the grid of 2^-16 that differ by less than 2 fall short of the bound by more than that.

*Rows of zeros* count as no example: each stands for a record that its owner dropped, and says nothing of a prediction.

*Figures.* A figure is a ratio of sums, or of products of sums, with Gaussian noise of known deviation;
`parley.common.learning.statistics` lists them. Its interval holds the ratios r for which top - r bottom is no further
from 0 than noise explains (Fieller, "Some Problems in Interval Estimation", JRSS B 1954): exact for sums however small,
where the noise on a ratio by itself is not Gaussian; for products to first order, with a variance that noise makes
larger, not smaller. If the bottom cannot be distinguished from 0, the interval is all that is possible, and there is no
estimate. It is about the rows held out; by how much a figure of other rows of the same kind may differ from theirs is
``sampling``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, Self

import numpy as np
from pydantic import Field
from scipy.special import logit, ndtri

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.encoding.fixed_point import MAX_EXAMPLES, UNIT, weights_on_grid
from parley.common.errors import InvalidInputError
from parley.common.learning.metrics import Spread, ratio_ends
from parley.common.strict import Strict

# ── tallies ──────────────────────────────────────────────────────────────────


class Tally(Protocol):
    """The counts or sums of examples, by their scores and labels."""

    @property
    def width(self) -> int:
        """The number m of counts or sums."""

    @property
    def sensitivity(self) -> float:
        """The largest distance, in the 2-norm and in reals, by which replacing one example moves them."""

    def flawless(self, n: int) -> FloatArray:
        """Return the sums (m,), in reals, of n examples predicted without error, their labels spread evenly."""

    def add_up(self, scores: FloatArray, y: FloatArray, counted: BoolArray) -> IntArray:
        """Return the sums (..., m), in units of 2^-32, over examples of scores (..., n, k) and labels (..., n).

        Examples that are not ``counted`` (..., n) add nothing.
        """


def tally(kind: Tally, shard: Shard, weights: FloatArray) -> IntArray:
    """Return a tally (..., m) of a shard's examples under a model's weights (k, d): exact integers, in units of 2^-32.

    Raises InvalidInputError for weights that are not finite or too large, or for more examples than a sum holds.
    """
    if (n := shard.y.shape[-1]) > MAX_EXAMPLES:
        raise InvalidInputError(f"an exact sum holds {MAX_EXAMPLES} examples, not {n}")
    on_grid = weights_on_grid(weights)
    total = np.zeros((*shard.y.shape[:-1], kind.width), dtype=np.int64)
    for block in shard.blocks():
        total += kind.add_up(block.scores(on_grid), block.y, block.present)
    return total


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts by group and by cell: first those of the groups, then those of the cells, (n_groups + n_cells,).

    ``shape`` is that of the cells: two classes by ``bins`` of the score, where one class is negative and one positive;
    otherwise the true class by the predicted one.
    """

    n_classes: int
    bins: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of labels and of scores."""
        return (2, self.bins) if self.bins else (self.n_classes, self.n_classes)

    @property
    def groups(self) -> IntArray:
        """The group of each cell: by label and prediction if there are bins, otherwise wrong or right."""
        if self.bins:
            return np.repeat(np.arange(4), self.bins // 2)
        return np.eye(self.n_classes, dtype=np.int64).ravel()

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return 4 if self.bins else 2

    @property
    def width(self) -> int:
        """The number of counts: those of groups and cells."""
        return self.n_groups + math.prod(self.shape)

    @property
    def sensitivity(self) -> float:
        """2: a cell and a group each lose one and gain one."""
        return 2.0

    @property
    def edges(self) -> FloatArray:
        """The scores between bins, (bins - 1,): equal steps of the probability that is their logistic function."""
        return np.asarray(logit(np.arange(1, self.bins) / self.bins))

    def flawless(self, n: int) -> FloatArray:
        """Count as many examples of each class, all in the cell that is furthest on the right side."""
        cells = np.zeros(self.shape)
        classes = np.arange(self.n_classes)
        cells[classes, classes * (self.shape[1] - 1) // (self.n_classes - 1)] = n / self.n_classes
        return np.concatenate([cells.ravel() @ np.eye(self.n_groups)[self.groups], cells.ravel()])

    def add_up(self, scores: FloatArray, y: FloatArray, counted: BoolArray) -> IntArray:
        """Return the counts; a score at an edge belongs to the bin below, as one of 0 predicts the negative class."""
        if self.bins:
            cells = self.bins * (y > 0) + np.searchsorted(self.edges, scores[..., 0])
        else:
            cells = self.n_classes * decode_classes(y, self.n_classes) + scores.argmax(axis=-1)
        size, stacked = math.prod(self.shape), y.shape[:-1]
        first = size * np.arange(math.prod(stacked)).reshape(*stacked, 1)
        flat = np.bincount((cells + first).ravel(), counted.ravel(), size * math.prod(stacked))
        counts = flat.reshape(*stacked, size)
        by_group = counts @ np.eye(self.n_groups)[self.groups]
        return np.asarray(np.concatenate([by_group, counts], axis=-1).astype(np.int64) * UNIT)


@dataclass(frozen=True, slots=True)
class Errors:
    """Half the sums of 1, y, y^2; that of u = min(|e|, c)^2 / c^2, e being how far a prediction is off, c ``largest``.

    A prediction is the score within the label's bounds, which are -1 and +1.
    """

    largest: float

    @property
    def width(self) -> int:
        """The number of sums, 4."""
        return 4

    @property
    def sensitivity(self) -> float:
        """The square root of 2, rounded up: see above for the proof."""
        return math.nextafter(math.sqrt(2), math.inf)

    def flawless(self, n: int) -> FloatArray:
        """Return the sums without error; a label that is uniform between its bounds has a mean square of 1/3."""
        return np.array([n / 2, 0.0, n / 6, 0.0])

    def add_up(self, scores: FloatArray, y: FloatArray, counted: BoolArray) -> IntArray:
        """Return the sums of parts truncated to the grid."""
        error = np.minimum(np.abs(np.clip(scores[..., 0], -1.0, 1.0) - y), self.largest)
        parts = np.stack([np.full_like(y, 0.5), y / 2, y**2 / 2, error**2 / self.largest**2], axis=-1)
        parts *= counted[..., None]
        return np.asarray(np.trunc(parts * float(UNIT)).sum(axis=-2)).astype(np.int64)


# ── figures ──────────────────────────────────────────────────────────────────

COVERAGE = 0.95
"""How often an interval holds the true value."""
_Z = float(ndtri((1 + COVERAGE) / 2))


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
    positive: Annotated[FigureEstimate, Field(description="the share of positive ones")]


def ratio(
    top: float, bottom: float, spread: Spread, within: tuple[float, float] = (0.0, 1.0), n: float | None = None
) -> FigureEstimate:
    """Return the ratio of two noisy numbers, with a positive bottom; its values lie ``within`` two bounds.

    With ``n``, the ratio is one of counts of so many rows, and has a sampling deviation.
    """
    of_top, of_both, of_bottom = (_Z**2 * part for part in spread)
    ends = ratio_ends(top, bottom, (of_top, of_both, of_bottom))
    if ends is None:
        return FigureEstimate(estimate=None, low=within[0] if math.isfinite(within[0]) else None, high=within[1])
    estimate, low, high = np.clip((top / bottom, *ends), *within).tolist()
    sampling = None if n is None else math.sqrt(estimate * (1 - estimate) / n)
    return FigureEstimate(estimate=estimate, low=low, high=high, sampling=sampling)


@dataclass(frozen=True, slots=True, eq=False)
class NoisyCounts:
    """Counts by cell (m,), by least squares of those asked for and of the groups'; and how their noise is correlated.

    A group of m cells and its cells carry noise of one deviation. The best counts add to each cell 1 / (m + 1) of what
    the group exceeds its cells by; their covariance is variance (I - 1 1^T / (m + 1)) within it.

    ``label``, ``score`` and ``predicted`` (m,) are a cell's true class, its column, and the class that the column
    predicts: a column is a class, or one of ``bins`` of the score of two classes.
    """

    values: FloatArray
    variance: float
    members: BoolArray
    label: IntArray
    score: IntArray
    predicted: IntArray
    classes: tuple[str, ...]
    bins: int

    @classmethod
    def of(cls, cells: Cells, sums: FloatArray, deviation: float, classes: Sequence[str]) -> Self:
        """Make them of the counts of groups, then cells; ``deviation`` is of the noise, ``classes`` (K,) are names."""
        members = cells.groups == np.arange(cells.n_groups)[:, None]
        of_groups, of_cells = sums[: cells.n_groups], sums[cells.n_groups :]
        excess = (of_groups - members @ of_cells) / (members.sum(axis=1) + 1)
        n_classes, columns = cells.shape
        label, score = np.divmod(np.arange(n_classes * columns), columns)
        return cls(
            of_cells + excess @ members,
            deviation**2,
            members,
            label,
            score,
            score * n_classes // columns,
            tuple(classes),
            cells.bins,
        )

    @property
    def frequent(self) -> int:
        """The class that seems the most frequent."""
        return int(self.values.reshape(len(self.classes), -1).sum(axis=1).argmax())

    @property
    def everything(self) -> BoolArray:
        """The mask (m,) of all cells."""
        return self.label >= 0

    def covariance(self, one: FloatArray, other: FloatArray) -> float:
        """Return the covariance of two weighted sums of counts, whose weights are (m,)."""
        shared = (self.members @ one) * (self.members @ other) / (self.members.sum(axis=1) + 1)
        return self.variance * float(one @ other - shared.sum())

    def spread(self, top: FloatArray, bottom: FloatArray) -> Spread:
        """Return the variances and the covariance of a top and a bottom of these gradients, (m,)."""
        return self.covariance(top, top), self.covariance(top, bottom), self.covariance(bottom, bottom)

    def share(self, part: BoolArray, of: BoolArray) -> FigureEstimate:
        """Return the share of some cells (m,) in some more, with the deviation of a share of so many."""
        top, bottom = part.astype(np.float64), of.astype(np.float64)
        n = float(bottom @ self.values)
        return ratio(float(top @ self.values), n, self.spread(top, bottom), n=n)

    def area_under_curve(self) -> FigureEstimate:
        """Return the area under the ROC curve of two classes: ties lie within its interval, and count half.

        The largest of the sampling deviations that such an area may have is sqrt(area (1 - area) / the smaller class)
        (Birnbaum & Klose, "Bounds for the Variance of the Mann-Whitney Statistic", Ann. Math. Stat. 1957).
        """
        negative, positive = self.values.reshape(2, -1)
        bottom = float(negative.sum() * positive.sum())
        under = np.concatenate([np.full_like(negative, positive.sum()), np.full_like(positive, negative.sum())])
        fewer = min(float(negative.sum()), float(positive.sum()))

        def area(ties: float) -> FigureEstimate:
            """Return the area if pairs within a bin count as much as ``ties``."""
            below = negative.cumsum() - (1 - ties) * negative
            above = positive[::-1].cumsum()[::-1] - (1 - ties) * positive
            top = np.concatenate([above, below])
            return ratio(float(positive @ below), bottom if fewer > 0 else 0.0, self.spread(top, under), n=fewer)

        least, middle, most = area(0.0), area(0.5), area(1.0)
        low, high = (
            min(least.low or 0.0, middle.low or 0.0),
            max(middle.high, most.high),
        )  # noise may make ties negative
        return middle.model_copy(update={"low": low, "high": high})

    def confusion(self) -> tuple[tuple[float, ...], ...]:
        """Return the counts by true, then predicted class, none below 0."""
        by_class = self.values.reshape(len(self.classes), len(self.classes), -1).sum(axis=-1)
        return tuple(map(tuple, by_class.clip(min=0.0).tolist()))

    def calibration(self) -> tuple[CalibrationBin, ...]:
        """Return the examples of each bin, from the lowest scores up."""
        return tuple(map(self._calibration_bin, range(self.bins)))

    def _calibration_bin(self, index: int) -> CalibrationBin:
        inside = self.score == index
        return CalibrationBin(
            low=index / self.bins,
            high=(index + 1) / self.bins,
            examples=max(0.0, float(self.values[inside].sum())),
            positive=self.share(inside & (self.label == 1), inside),
        )


@dataclass(frozen=True, slots=True)
class NoisyErrors:
    """Noisy sums over n rows with a real label: n, the labels, their squares; and the errors' squares by ``largest``^2.

    Labels and errors are in units in which the label's bounds are -1 and +1; ``unit`` is what 1 stands for. The
    ``variances`` are those of the noise on the four.
    """

    n: float
    labels: float
    squares: float
    errors: float
    variances: tuple[float, float, float, float]
    largest: float
    unit: float

    @classmethod
    def of(cls, errors: Errors, sums: FloatArray, deviation: float, unit: float) -> Self:
        """Make them of the sums (4,), whose first three are halves; ``deviation`` is that of the noise on each."""
        n, labels, squares = (2 * sums[:3]).tolist()
        double, single = 4.0 * deviation**2, deviation**2
        return cls(n, labels, squares, float(sums[3]), (double, double, double, single), errors.largest, unit)

    def mean_squared_error(self) -> FigureEstimate:
        """Return the mean squared error, the label's bounds being -1 and +1."""
        most = self.largest**2
        return ratio(self.errors * most, self.n, (self.variances[3] * most**2, 0.0, self.variances[0]), (0.0, most))

    def root_mean_squared_error(self) -> FigureEstimate:
        """Return the root of the mean squared error, in the label's units."""
        return FigureEstimate(
            **{name: value and self.unit * math.sqrt(value) for name, value in self.mean_squared_error()}
        )

    def r_squared(self) -> FigureEstimate:
        """Return R^2 = 1 - n E / (n S - T^2), of the sums T of labels, S of their squares and E of squared errors.

        The square of the noise, which T^2 has in it, is taken out.
        """
        most, variances = self.largest**2, np.array(self.variances)
        bottom = self.n * self.squares - self.labels**2 + self.variances[1]
        if self.mean_squared_error().estimate is None:
            bottom = 0.0  # of no rows, all are but noise
        under = np.array([self.squares, -2 * self.labels, self.n, 0.0])
        over = under - most * np.array([self.errors, 0.0, 0.0, self.n])
        spread = float(over**2 @ variances), float(over * under @ variances), float(under**2 @ variances)
        return ratio(bottom - most * self.errors * self.n, bottom, spread, (-math.inf, 1.0))
