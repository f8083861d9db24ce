"""Noisy tallies of a model's predictions, and how to estimate from them, with intervals that hold the true value.

`parley.common.learning.statistics` says what is estimated. A figure is a ratio of sums, or of products of sums, with
Gaussian noise of known deviation. Its interval holds the
ratios r for which top - r bottom is no further from 0 than noise explains (Fieller, "Some Problems in Interval
Estimation", JRSS B 1954): exact for sums however small, where the noise on a ratio by itself is not Gaussian; for
products to first order, with a variance that noise makes larger, not smaller. Where the bottom cannot be told from 0
the interval is all that is possible, and there is no estimate. It is about the rows held out; by how much a figure of
other rows of the same kind may differ from theirs is ``sampling``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from pydantic import Field
from scipy.special import ndtri

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.learning.metrics import Spread, ratio_ends
from parley.common.learning.tallies import Cells, Errors
from parley.common.strict import Strict

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
    """The ratio of two noisy numbers, the bottom of which is positive; its values lie ``within`` two bounds.

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
        """From the counts of groups, then cells; ``deviation`` is that of the noise on each, ``classes`` (K,) names."""
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
        """All cells (m,)."""
        return self.label >= 0

    def covariance(self, one: FloatArray, other: FloatArray) -> float:
        """Of two weighted sums of counts, whose weights are (m,)."""
        shared = (self.members @ one) * (self.members @ other) / (self.members.sum(axis=1) + 1)
        return self.variance * float(one @ other - shared.sum())

    def spread(self, top: FloatArray, bottom: FloatArray) -> Spread:
        """The variances and the covariance of a top and a bottom of these gradients, (m,)."""
        return self.covariance(top, top), self.covariance(top, bottom), self.covariance(bottom, bottom)

    def share(self, part: BoolArray, of: BoolArray) -> FigureEstimate:
        """The share of some cells (m,) in some more, with the deviation of a share of so many."""
        top, bottom = part.astype(np.float64), of.astype(np.float64)
        n = float(bottom @ self.values)
        return ratio(float(top @ self.values), n, self.spread(top, bottom), n=n)

    def area_under_curve(self) -> FigureEstimate:
        """The area under the ROC curve of two classes: ties lie within its interval, and count half.

        The largest of the sampling deviations that such an area may have is sqrt(area (1 - area) / the smaller class)
        (Birnbaum & Klose, "Bounds for the Variance of the Mann-Whitney Statistic", Ann. Math. Stat. 1957).
        """
        negative, positive = self.values.reshape(2, -1)
        bottom = float(negative.sum() * positive.sum())
        under = np.concatenate([np.full_like(negative, positive.sum()), np.full_like(positive, negative.sum())])
        fewer = min(float(negative.sum()), float(positive.sum()))

        def area(ties: float) -> FigureEstimate:
            """The area where pairs of one bin count so much."""
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
        """The counts by true, then predicted class, none below 0."""
        by_class = self.values.reshape(len(self.classes), len(self.classes), -1).sum(axis=-1)
        return tuple(map(tuple, by_class.clip(min=0.0).tolist()))

    def calibration(self) -> tuple[CalibrationBin, ...]:
        """What each bin holds, from the lowest scores up."""
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
        """From the sums (4,), the first three of which are halves; ``deviation`` is that of the noise on each."""
        n, labels, squares = (2 * sums[:3]).tolist()
        double, single = 4.0 * deviation**2, deviation**2
        return cls(n, labels, squares, float(sums[3]), (double, double, double, single), errors.largest, unit)

    def mean_squared_error(self) -> FigureEstimate:
        """The mean squared error, the label's bounds being -1 and +1."""
        most = self.largest**2
        return ratio(self.errors * most, self.n, (self.variances[3] * most**2, 0.0, self.variances[0]), (0.0, most))

    def root_mean_squared_error(self) -> FigureEstimate:
        """Its root, in the label's units."""
        return FigureEstimate(
            **{name: value and self.unit * math.sqrt(value) for name, value in self.mean_squared_error()}
        )

    def r_squared(self) -> FigureEstimate:
        """R^2 = 1 - n E / (n S - T^2), of the sums T of labels, S of their squares and E of squared errors.

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
