"""What noisy sums say of a study's columns: estimates, each with an interval from the noise.

*Rows* are counted by their weights. Of persons of several rows these add up to 1: a count is then one of persons, each
divided among its rows, a share or a mean is that of each person's mean, and all counts add up to the persons.

*Intervals* hold the value of the owners' own rows in 95 of 100 runs; they say nothing of a population from which rows
may be a sample. A share or a mean is a ratio T / N of two sums whose noise is independent. Fieller 1954 ("Some Problems
in Interval Estimation"): its interval is all r for which T - r N is within 1.96 deviations of 0, which holds exactly;
where N is public, it is T / N +- 1.96 sd(T) / N. A variance, m2 - m1^2, is as small and as large as the intervals of
both moments allow, each of 97.5 %: at least 95 % (Bonferroni). Moments are widened by what values are rounded to
(`column_sums`, "Precision"). Then all are clamped to what is possible. Where a figure itself is not possible, because
noise made a count negative, the nearest possible one takes its place; its interval is as wide as noise makes it, and
holds what is possible of the other, which may be a point or nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from parley.common.arrays import FloatArray
from parley.common.data.columns import Label, RealLabel
from parley.common.learning.column_sums import SQUARES, ColumnSums, NumberSums, ValueSums
from parley.common.strict import Strict

_TWO_SIDED_95 = 1.959964
_TWO_SIDED_97_5 = 2.241403
_GRID = 2.0**-16


class Estimate(Strict):
    """A figure, and the interval that holds the true one in 95 of 100 runs."""

    value: float
    low: float
    high: float


class Part(Strict):
    """Rows that have something in common: how many, and which share of all rows."""

    rows: Estimate
    share: Estimate


class Bin(Part):
    """The rows whose values lie between two others."""

    lower: float
    upper: float


class ValuePart(Part):
    """The rows that have a value of a category or a label."""

    value: str


class DescribedNumber(Strict):
    """A number within its bounds, in its own units.

    Values beyond a bound, where an owner clips, are counted at the bound; those within ``precision`` of it as well.
    """

    kind: Literal["number"] = "number"
    name: str
    lower: float
    upper: float
    precision: float
    mean: Estimate | None
    variance: Estimate | None
    at_lower: Part | None
    at_upper: Part | None
    histogram: Annotated[tuple[Bin, ...], Field(description="equal bins between the bounds, without those at them")]
    remarks: tuple[str, ...]


class DescribedValues(Strict):
    """A category, or a label of classes, and how often each value is there."""

    kind: Literal["values"] = "values"
    name: str
    values: tuple[ValuePart, ...]
    remarks: tuple[str, ...]


class Description(Strict):
    """The description of a study's columns over the rows of all contributors, by their weights.

    ``rows`` were not dropped for a missing value. ``deviation`` is that of the noise on each count, in rows.
    """

    rows: Estimate
    deviation: float
    columns: tuple[Annotated[DescribedNumber | DescribedValues, Field(discriminator="kind")], ...]


@dataclass(frozen=True, slots=True)
class _Counted:
    """The estimated number of rows, between 0 and ``most``, and the deviation of the noise on it and on each sum.

    ``examples`` is what they are, in words: rows, or persons.
    """

    rows: float
    rows_deviation: float
    deviation: float
    most: int
    examples: str

    def count(self, total: float) -> Estimate:
        """Return the estimate of a count of rows, from its noisy sum."""
        reach = _TWO_SIDED_95 * self.deviation
        return _clamped(total, total - reach, total + reach, 0.0, float(self.most))

    def part(self, total: float) -> Part:
        """Return the estimates of a count of rows and of its share of all."""
        return Part(rows=self.count(total), share=self.mean(total, 0.0, 1.0))

    def mean(  # noqa: PLR0913, PLR0917 -- a sum, what its mean may be, and how it is counted
        self, total: float, least: float, most: float, times: float = 1.0, z: float = _TWO_SIDED_95, widen: float = 0.0
    ) -> Estimate:
        """Return the mean over all rows of a value that was summed ``times`` times, between ``least`` and ``most``."""
        total, deviation = total / times, self.deviation / times
        reach = (z * deviation) ** 2, (z * self.rows_deviation) ** 2
        low, high = _ratio_ends(total, self.rows, *reach) or (-math.inf, math.inf)
        return _clamped(total / max(self.rows, 1.0), low - widen, high + widen, least, most)


def _ratio_ends(top: float, bottom: float, of_top: float, of_bottom: float) -> tuple[float, float] | None:
    """Return the ends of all r where (top - r bottom)^2 is no more than noise explains; None if the bottom may be 0.

    ``of_top`` and ``of_bottom`` are variances of independent noise, times the square of as many deviations as are
    allowed for. Exact for Gaussian noise (Fieller, "Some Problems in Interval Estimation", JRSS B 1954).
    """
    certain = bottom**2 - of_bottom
    if bottom <= 0 or certain <= 0:
        return None
    middle = top * bottom
    width = math.sqrt(max(middle**2 - certain * (top**2 - of_top), 0.0))
    return (middle - width) / certain, (middle + width) / certain


def read_sums(
    sums: ColumnSums, totals: FloatArray, deviation: float, n_examples: int, examples: str = "rows"
) -> Description:
    """Return the description that noisy sums (n_lanes,) give; ``deviation`` is that of the noise on each.

    ``examples`` is what is counted, as remarks call it: rows, or persons.
    """
    counted = _Counted(float(n_examples), 0.0, deviation, n_examples, examples)
    rows, lanes = Estimate(value=n_examples, low=n_examples, high=n_examples), totals
    if sums.drops:
        counted = _Counted(float(totals[0]), deviation, deviation, n_examples, examples)
        rows, lanes = counted.count(float(totals[0])), totals[1:]
    ends = np.cumsum([column.n_lanes for column in sums.columns])
    parts = np.split(lanes, ends[:-1])
    columns = tuple(
        _described(column, part.tolist(), counted) for column, part in zip(sums.columns, parts, strict=True)
    )
    return Description(rows=rows, deviation=deviation, columns=columns)


def _described(
    sums: NumberSums | ValueSums, lanes: list[float], counted: _Counted
) -> DescribedNumber | DescribedValues:
    """Return the description of a column, from its lanes."""
    return _number(sums, lanes, counted) if isinstance(sums, NumberSums) else _values(sums, lanes, counted)


def _number(sums: NumberSums, lanes: list[float], counted: _Counted) -> DescribedNumber:
    """Return the description of a number in its units, from its lanes."""
    lower, upper, moments = sums.column.lower, sums.column.upper, lanes[: 2 * sums.moments]
    bins = [counted.part(total) for total in lanes[len(moments) :]]
    mean, variance = _moments(sums, moments, counted) if moments else (None, None)
    edges = np.linspace(lower, upper, sums.bins + 1).tolist()
    histogram = tuple(
        Bin(rows=part.rows, share=part.share, lower=low, upper=high)
        for part, low, high in zip(bins[1:-1], edges[:-1], edges[1:], strict=True)
    )
    return DescribedNumber(
        name=sums.column.name,
        lower=lower,
        upper=upper,
        precision=sums.precision * _GRID * (upper - lower) / 2,
        mean=mean,
        variance=variance,
        at_lower=bins[0] if bins else None,
        at_upper=bins[-1] if bins else None,
        histogram=histogram,
        remarks=(
            *_at_bounds(bins, counted.examples),
            *_narrow(lanes[len(moments) :], edges, counted),
            *(_usual(mean, variance) if isinstance(sums.column, RealLabel) else ()),
        ),
    )


def _moments(sums: NumberSums, lanes: list[float], counted: _Counted) -> tuple[Estimate, Estimate]:
    """Return the mean and the variance in the column's units, of the sums of v and of 13/8 (v^2 - 1/2)."""
    half, away = (sums.column.upper - sums.column.lower) / 2, sums.precision * _GRID
    mean = counted.mean(lanes[0], -1.0, 1.0, widen=away)
    first = counted.mean(lanes[0], -1.0, 1.0, z=_TWO_SIDED_97_5, widen=away)
    second = counted.mean(lanes[1], -0.5, 0.5, SQUARES, z=_TWO_SIDED_97_5, widen=2 * away)
    least, most = sorted((first.low**2, first.high**2))
    least = 0.0 if first.low < 0 < first.high else least
    variance = _clamped(
        second.value + 0.5 - first.value**2, second.low + 0.5 - most, second.high + 0.5 - least, 0.0, 1.0
    )
    return (
        _moved(mean, half, sums.column.lower + half, sums.column.lower, sums.column.upper),
        _moved(variance, half**2, 0.0, 0.0, half**2),
    )


def _values(sums: ValueSums, lanes: list[float], counted: _Counted) -> DescribedValues:
    """Return the description of a category or a label, from its lanes."""
    parts = [counted.part(total) for total in lanes]
    values = tuple(
        ValuePart(rows=part.rows, share=part.share, value=value) for part, value in zip(parts, sums.values, strict=True)
    )
    return DescribedValues(
        name=sums.column.name, values=values, remarks=tuple(_about_values(sums, values, counted.examples))
    )


# ── remarks ──────────────────────────────────────────────────────────────────

_CLIPPED = 0.01
"""A share of rows at a bound that is worth a remark."""
_CLEAR = 4.0
"""How many times the low end of a variance its high end may be, for its deviation to be stated."""
_OUTSIDE = 0.01
"""A share of rows that bounds may leave out at each end."""


def _at_bounds(bins: list[Part], examples: str) -> Iterator[str]:
    """Yield a remark for each bound at which many rows, or persons, lie."""
    for part, side, way in zip((bins[0], bins[-1]) if bins else (), ("lower", "upper"), ("high", "low"), strict=False):
        if part.share.low >= _CLIPPED:
            share = f"at least {part.share.low:.1%} of the {examples}"
            yield f"{share} lie at the {side} bound: if owners clip, it is too {way}"


def _narrow(lanes: list[float], edges: list[float], counted: _Counted) -> Iterator[str]:
    """Yield a remark if nearly all rows lie in half of the range or less."""
    if not lanes:
        return
    below, above = (_empty(side, counted) for side in (lanes, lanes[::-1]))
    first, last = max(below - 1, 0), len(edges) - 1 - max(above - 1, 0)
    if 0 < last - first <= (len(edges) - 1) / 2:
        share = f"about {1 - 2 * _OUTSIDE:.0%} of the {counted.examples}"
        yield f"{share} or more lie from {edges[first]:g} to {edges[last]:g}: the bounds are wide"


def _empty(lanes: list[float], counted: _Counted) -> int:
    """Return how many lanes, from the first, together hold next to none of the rows, for any likely noise."""
    totals = np.cumsum(lanes) + _TWO_SIDED_95 * counted.deviation * np.sqrt(np.arange(1, len(lanes) + 1))
    full = totals > _OUTSIDE * max(counted.rows, 1.0)
    return int(full.argmax()) if full.any() else len(lanes)


def _usual(mean: Estimate | None, variance: Estimate | None) -> Iterator[str]:
    """Yield what a study may state about a real label, if its deviation is certain to a factor of two."""
    if mean is not None and variance is not None and 0 < variance.high <= _CLEAR * variance.low:
        pair = f'"mean": {mean.value:.3g}, "deviation": {math.sqrt(variance.value):.2g}'
        yield f"a study whose label says {pair} has runs scaled to it, and closer forecasts"


def _about_values(sums: ValueSums, values: tuple[ValuePart, ...], examples: str) -> Iterator[str]:
    """Yield a label's majority and what a study may state about it, or that a category has many undeclared values."""
    if isinstance(sums.column, Label):
        most = max(values, key=lambda part: part.share.value)
        yield f"the majority is {most.value!r}: to predict it for all is right for {most.share.value:.1%}"
        if min(part.share.low for part in values) > 0:
            total = sum(part.share.value for part in values)
            shares = ", ".join(f"{part.share.value / total:.3f}" for part in values)
            yield f'a study whose label says "shares": [{shares}] has closer forecasts'
    elif sums.column.other_code is not None and (share := values[-1].share).low >= _CLIPPED:
        yield f"at least {share.low:.1%} of the {examples} have a value that is not declared"


# ── arithmetic ───────────────────────────────────────────────────────────────


def _clamped(value: float, low: float, high: float, least: float, most: float) -> Estimate:
    """Return an estimate, clipped to its possible values; a value that is moved takes its interval along."""
    moved = min(max(value, least), most) - value
    low, high = min(low, low + moved), max(high, high + moved)
    value, low, high = (min(max(end, least), most) for end in (value, low, high))
    return Estimate(value=min(max(value, low), high), low=low, high=high)


def _moved(estimate: Estimate, times: float, plus: float, least: float, most: float) -> Estimate:
    """Return an estimate in other units, clipped to its possible values in them."""
    value, low, high = (times * end + plus for end in (estimate.value, estimate.low, estimate.high))
    return _clamped(value, low, high, least, most)
