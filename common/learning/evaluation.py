"""What noisy tallies tell of a model: estimates, and intervals that hold the true value of the rows that were counted.

Every figure is a ratio of sums, or of products of sums, with Gaussian noise of known deviation. Its interval holds the
ratios r for which top - r bottom is no further from 0 than noise explains (Fieller, "Some Problems in Interval
Estimation", JRSS B 1954): exact for sums however small, where the noise on a ratio by itself is not Gaussian; for
products to first order, with a variance that noise makes larger, not smaller. Where the bottom cannot be told from 0
the interval is all that is possible, and there is no estimate. It is about the rows held out; by how much a figure of
other rows of the same kind may differ from theirs is ``sampling``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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


class Evaluation(Strict):
    """How good a model is on rows that its training did not see. What does not fit the label is null."""

    rate: Annotated[float, Field(description="how often an interval holds the true value of the held-out rows")] = (
        COVERAGE
    )
    deviation: Annotated[float, Field(description="of the noise on each count or sum")]
    accuracy: FigureEstimate | None = None
    majority: Annotated[
        FigureEstimate | None,
        Field(description="the accuracy of predicting what seems the most frequent class for all"),
    ] = None
    recall: Annotated[dict[str, FigureEstimate] | None, Field(description="by class: the share predicted as such")] = (
        None
    )
    auc: Annotated[
        FigureEstimate | None,
        Field(description="that a positive example scores above a negative one; ends allow for any order in a bin"),
    ] = None
    confusion: Annotated[
        tuple[tuple[float, ...], ...] | None, Field(description="estimated counts by true, then predicted class")
    ] = None
    calibration: tuple[CalibrationBin, ...] | None = None
    rmse: Annotated[FigureEstimate | None, Field(description="in the label's units")] = None
    r_squared: FigureEstimate | None = None


def evaluate_classes(what: Cells, sums: FloatArray, deviation: float, classes: Sequence[str]) -> Evaluation:
    """What noisy counts (m,) tell of predicted classes; ``deviation`` is that of each."""
    counts = NoisyCounts.of(what, sums, deviation)
    n_classes, columns = what.shape
    label, score = np.divmod(np.arange(n_classes * columns), columns)
    predicted = score * n_classes // columns  # a column is a class, or a bin of one
    every, found = label >= 0, counts.values.reshape(what.shape)
    frequent = int(found.sum(axis=1).argmax())
    return Evaluation(
        deviation=deviation,
        accuracy=counts.share(predicted == label, every),
        majority=counts.share(label == frequent, every),
        recall={
            name: counts.share((predicted == label) & (label == each), label == each)
            for each, name in enumerate(classes)
        },
        auc=_auc(counts, found) if what.bins else None,
        confusion=tuple(map(tuple, found.reshape(n_classes, n_classes, -1).sum(axis=-1).clip(min=0.0).tolist())),
        calibration=tuple(_calibration(counts, what.bins, label, score)) if what.bins else None,
    )


def evaluate_errors(what: Errors, sums: FloatArray, deviation: float, unit: float) -> Evaluation:
    """What the noisy sums (4,) of a real label tell; ``unit`` is half the distance of the label's bounds.

    R^2 is 1 - n E / (n S - T^2), of the sums T of labels, S of their squares and E of squared errors; the square of the
    noise, which T^2 has in it, is taken out.
    """
    (n, total, squares), error, most = (2 * sums[:3]).tolist(), float(sums[3]), what.largest**2
    variances = deviation**2 * np.array([4.0, 4.0, 4.0, 1.0])
    mean = ratio(error * most, n, (variances[3] * most**2, 0.0, variances[0]), (0.0, most))
    bottom = 0.0 if mean.estimate is None else n * squares - total**2 + variances[1]  # of no rows, all are but noise
    under = np.array([squares, -2 * total, n, 0.0])
    over = under - most * np.array([error, 0.0, 0.0, n])
    spread = float(over**2 @ variances), float(over * under @ variances), float(under**2 @ variances)
    root = {name: value and unit * math.sqrt(value) for name, value in mean}
    return Evaluation(
        deviation=deviation,
        rmse=FigureEstimate(**root),
        r_squared=ratio(bottom - most * error * n, bottom, spread, (-math.inf, 1.0)),
    )


def ratio(
    top: float, bottom: float, spread: Spread, within: tuple[float, float] = (0.0, 1.0), n: float | None = None
) -> FigureEstimate:
    """The ratio of two noisy numbers, of which the bottom is positive; its values lie ``within`` two bounds.

    With ``n``, the ratio is one of counts of so many rows, and its sampling deviation is told.
    """
    of_top, of_both, of_bottom = (_Z**2 * each for each in spread)
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
    """

    values: FloatArray
    variance: float
    members: BoolArray

    @classmethod
    def of(cls, what: Cells, sums: FloatArray, deviation: float) -> Self:
        """The counts of groups, then cells."""
        members = what.groups == np.arange(what.n_groups)[:, None]
        groups, cells = sums[: what.n_groups], sums[what.n_groups :]
        excess = (groups - members @ cells) / (members.sum(axis=1) + 1)
        return cls(cells + excess @ members, deviation**2, members)

    def covariance(self, one: FloatArray, other: FloatArray) -> float:
        """Of two weighted sums of counts, whose weights are (m,)."""
        shared = (self.members @ one) * (self.members @ other) / (self.members.sum(axis=1) + 1)
        return self.variance * float(one @ other - shared.sum())

    def spread(self, top: FloatArray, bottom: FloatArray) -> Spread:
        """The variances and the covariance of a top and a bottom of these gradients, (m,)."""
        return self.covariance(top, top), self.covariance(top, bottom), self.covariance(bottom, bottom)

    def share(self, part: BoolArray, whole: BoolArray) -> FigureEstimate:
        """The share of some cells (m,) in some more, with the deviation of a share of so many."""
        top, bottom = part.astype(np.float64), whole.astype(np.float64)
        n = float(bottom @ self.values)
        return ratio(float(top @ self.values), n, self.spread(top, bottom), n=n)


def _auc(counts: NoisyCounts, found: FloatArray) -> FigureEstimate:
    """The area under the curve, of counts (2, bins), negatives first: ties lie within its interval, and count half.

    The largest of the sampling deviations that such an area may have is sqrt(area (1 - area) / the smaller class)
    (Birnbaum & Klose, "Bounds for the Variance of the Mann-Whitney Statistic", Ann. Math. Stat. 1957).
    """
    negative, positive = found
    bottom = float(negative.sum() * positive.sum())
    under = np.concatenate([np.full_like(negative, positive.sum()), np.full_like(positive, negative.sum())])
    fewer = min(float(negative.sum()), float(positive.sum()))

    def area(ties: float) -> FigureEstimate:
        """The area where pairs of one bin count so much."""
        below = negative.cumsum() - (1 - ties) * negative
        above = positive[::-1].cumsum()[::-1] - (1 - ties) * positive
        top = np.concatenate([above, below])
        return ratio(float(positive @ below), bottom if fewer > 0 else 0.0, counts.spread(top, under), n=fewer)

    least, middle, most = area(0.0), area(0.5), area(1.0)
    low, high = min(least.low or 0.0, middle.low or 0.0), max(middle.high, most.high)  # noise may make ties negative
    return middle.model_copy(update={"low": low, "high": high})


def _calibration(counts: NoisyCounts, bins: int, label: IntArray, score: IntArray) -> Iterator[CalibrationBin]:
    """What each bin holds, from the lowest scores up."""
    for each in range(bins):
        held = score == each
        yield CalibrationBin(
            low=each / bins,
            high=(each + 1) / bins,
            examples=max(0.0, float(counts.values[held].sum())),
            positive=counts.share(held & (label == 1), held),
        )
