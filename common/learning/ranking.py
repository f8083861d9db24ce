"""Figures of the order of scores, from noisy counts by class and score: what the counts may be, and what follows.

Noise on the counts of a rare class hides the few rows far from the others, and those decide the area under the ROC
curve. So the counts are read together: if scores mean anything, the share of positive rows follows the score smoothly.
This is the reading of Platt ("Probabilistic Outputs for Support Vector Machines", 1999), that the log odds of the
positive class are linear in the score, widened twice: by a bend (a quadratic term), and by a share of positive rows
that the score cannot tell from others. About it, counts vary as those of a sample do. Bayes's rule then says which
curves and counts the noisy counts leave possible; draws of them give each figure and its interval.

The laws before the counts are seen (`_BEFORE`) are in multiples of the scores' spread, so that they fit a model of any
scale: about as many positive rows as were counted, slopes of 0 to 5 in most models but with a long tail, as scores may
tell all rows apart, hardly any bend, and .1 % that the score cannot tell, give or take a factor of 12 twice. They were
set on made-up normal scores and on four sets (Adult, hospital readmission, credit card fraud, and simulated rows that a
model tells apart). Intervals hold figures to their rate on other draws of these, and of normal scores 0 to 6 deviations
apart, of 100 to 3,000 rows, 3 to 50 % of them positive, at epsilon 1; of scores whose classes mix in other ways, such
as two groups of positive rows, and of classes that noise nearly hides, they do less often. Where the counts are many
beside the noise, they decide, not these laws.

Within a bin scores are spread evenly, and classes drift apart as the curve says, up to twice or not at all. Or the rows
of a bin have one score, as those of a study of few categories: intervals hold the figure of either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, gammaln

from parley.common.arrays import FloatArray
from parley.common.learning.noise_law import SummedLaplace

_CURVES, _ROUNDS, _KEPT, _PARTS = 4000, 5, 1000, 6
_TAIL = 5.0  # degrees of freedom of the proposals
_LEAST_EFFECTIVE = 60.0
_LEAST_GAP = 1e-6
_FAR, _HALVINGS, _STEEPEST = 20.0, 24, 8.0
_SLOPE, _BEFORE = 1.5, (np.array([0.0, 0.0, 0.0, -7.0]), np.array([1.0, 1.0, 0.1, 2.5]))
"""What is known of a curve before the counts are seen: means and deviations of its four numbers.

They are the logarithm of how many positive rows it expects beside their noisy count; v, its slope being
_SLOPE (1 + v), or _SLOPE (1 + sinh v) if v > 0; its bend, in slopes; and the log odds that a score does not tell a
positive row. The law of v is the hyperbolic secant, so that large slopes are as likely as by Cauchy's law, and negative
ones hardly; the others' are normal.
"""
_V = 1
_RATE, _SAFE_RATE = 0.95, 0.99
"""The rates at which intervals are read; the second is for average precision, which depends on few rows."""

Ends = tuple[float, float, float]
"""A figure's estimate, and the ends of its interval."""


def ends_of(values: FloatArray, rate: float = _RATE) -> Ends:
    """Return the median of draws (s,) between 0 and 1, and the shortest interval that holds them at the rate."""
    ranked = np.sort(values.clip(0.0, 1.0))
    inside = int(np.ceil(rate * len(ranked)))
    first = int((ranked[inside - 1 :] - ranked[: len(ranked) - inside + 1]).argmin())
    return float(np.median(ranked)), float(ranked[first]), float(ranked[first + inside - 1])


@dataclass(frozen=True, slots=True, eq=False)
class PossibleCounts:
    """Counts that may be true, (draws, cells), of cells in the order of scores.

    ``scores`` (cells,) are the cells' middles, and ``bounds`` (cells - 1,) the scores between them. ``expected``
    (2, cells) are how many negative and positive rows the curves expect, in the mean: what other rows of the same kind
    would have.
    """

    negative: FloatArray
    positive: FloatArray
    scores: FloatArray
    bounds: FloatArray
    expected: FloatArray
    tied: bool = False

    def ties(self, bins: int) -> PossibleCounts:
        """Return the counts if all rows of a bin have one score, that of its middle."""
        negative, positive, scores, expected = (
            part.reshape(*part.shape[:-1], bins, -1)
            for part in (self.negative, self.positive, self.scores, self.expected)
        )
        return PossibleCounts(
            negative.sum(axis=-1),
            positive.sum(axis=-1),
            scores.mean(axis=-1),
            self.bounds[negative.shape[-1] - 1 :: negative.shape[-1]],
            expected.sum(axis=-1),
            tied=True,
        )


def counts_above(counts: FloatArray) -> FloatArray:
    """Return how many of some counts, (..., cells), have scores above each bound between cells, (..., cells - 1)."""
    return np.asarray(counts[..., ::-1].cumsum(axis=-1)[..., -2::-1])


@dataclass(frozen=True, eq=False)
class RankedCounts:
    """Noisy counts of negative and positive rows, each (bins,), by bins of the score between ``edges`` (bins - 1,).

    Scores less ``offset`` are log odds of the whole population, as class weights leave them (`prior_offset`).
    """

    edges: FloatArray
    negative: FloatArray
    positive: FloatArray
    law: SummedLaplace
    offset: float = 0.0

    @cached_property
    def values(self) -> FloatArray:
        """The counts, negative ones first, (2 bins,)."""
        return np.concatenate([self.negative, self.positive])

    @cached_property
    def noise(self) -> FloatArray:
        """Draws of their noise, (draws, 2 bins)."""
        return self.law.draws(len(self.values))

    @property
    def is_known(self) -> bool:
        """Whether noise leaves both classes visible."""
        least = 2 * self.law.deviation * np.sqrt(len(self.positive))
        return bool(min(self.negative.sum(), self.positive.sum()) > least)

    def area_under_curve(self) -> Ends | None:
        """Return the area under the ROC curve: the probability that a positive row scores above a negative one."""

        def area(worlds: PossibleCounts) -> FloatArray:
            below = worlds.negative.cumsum(axis=1) - worlds.negative / 2
            pairs = worlds.positive.sum(axis=1) * worlds.negative.sum(axis=1)
            return np.asarray((worlds.positive * below).sum(axis=1) / np.maximum(pairs, 1e-9))

        return self._ends_with_ties(area)

    def average_precision(self) -> Ends | None:
        """Return the mean precision at the score of each positive row."""

        def precision(worlds: PossibleCounts) -> FloatArray:
            below = 0.0 if worlds.tied else 0.5  # of the rows of a cell, those that score less than one of them
            above = [
                part[:, ::-1].cumsum(axis=1)[:, ::-1] - below * part for part in (worlds.positive, worlds.negative)
            ]
            at = (above[0] + 0.5) / np.maximum(above[0] + above[1] + 0.5, 1e-9)
            share = worlds.positive / np.maximum(worlds.positive.sum(axis=1, keepdims=True), 1e-9)
            return np.asarray((share * np.minimum(at, 1.0)).sum(axis=1))

        return self._ends_with_ties(precision, _SAFE_RATE)

    def brier(self) -> Ends | None:
        """Return the mean squared difference of the logistic probability and the class, 0 or 1."""

        def mean(worlds: PossibleCounts) -> FloatArray:
            p = expit(worlds.scores - self.offset)
            of_all = worlds.negative.sum(axis=1) + worlds.positive.sum(axis=1)
            errors = worlds.negative @ p**2 + worlds.positive @ (1 - p) ** 2
            return np.asarray(errors / np.maximum(of_all, 1e-9))

        return self._ends(mean)

    @cached_property
    def squared_errors(self) -> FloatArray:
        """Squared differences of probability and class by bin, of either class, (3, 2, bins).

        They are the mean, the least and the largest that it may be. Rows lie in a bin as the curves expect; anywhere in
        the first bin and the last, which have no end, and where noise hides a class.
        """
        ends = expit(np.concatenate([[-np.inf], self.edges, [np.inf]]) - self.offset)
        low, high = ends[:-1], ends[1:]
        least, most = np.array([low**2, (1 - high) ** 2]), np.array([high**2, (1 - low) ** 2])
        if not self.is_known:
            return np.stack([(least + most) / 2, least, most])
        p = expit(self.worlds.scores - self.offset)
        rows = self.worlds.expected.reshape(2, len(self.negative), -1)
        errors = np.array([p**2, (1 - p) ** 2]).reshape(rows.shape)
        mean = (rows * errors).sum(axis=2) / np.maximum(rows.sum(axis=2), 1e-12)
        inner = slice(1, -1)
        least[:, inner] = most[:, inner] = mean[:, inner]
        return np.stack([mean, np.minimum(least, mean), np.maximum(most, mean)])

    def reach_of_ties(self) -> tuple[float, float]:
        """Return by how much the mean of `squared_errors` is too large, and too small, if a bin's rows have one score.

        It may be any in the bin, and is as independent of those of other bins as it can be. What `squared_errors`
        allows for by itself, such as rows of the outermost bins, is no part of it.
        """
        usual, least, most = self.squared_errors
        ends = expit(_ends_of_bins(self.edges) - self.offset)
        rows = self.ties.expected if self.is_known else np.zeros_like(usual)
        both = rows.sum(axis=0)
        share = rows[1] / np.maximum(both, 1e-12)
        farthest = np.where(share - ends[:-1] > ends[1:] - share, ends[:-1], ends[1:])
        tied = (np.array([p**2, (1 - p) ** 2]) for p in (share.clip(ends[:-1], ends[1:]), farthest))
        shifts = [np.where(least < most, 0.0, rows * (errors - usual)) for errors in tied]
        below, above = (float(np.linalg.norm(each.sum(axis=0))) / max(float(both.sum()), 1e-12) for each in shifts)
        return below, above

    def _ends(self, figure: Callable[[PossibleCounts], FloatArray], rate: float = _RATE) -> Ends | None:
        """Return the median of a figure and the shortest interval that holds it at the rate."""
        return ends_of(figure(self.worlds), rate) if self.is_known else None

    def _ends_with_ties(self, figure: Callable[[PossibleCounts], FloatArray], rate: float = _RATE) -> Ends | None:
        """Return the ends that `_ends` does, further apart where they are if the rows of each bin have one score."""
        if (ends := self._ends(figure, rate)) is None:
            return None
        _, low, high = ends_of(figure(self.ties), rate)
        return ends[0], min(ends[1], low), max(ends[2], high)

    @cached_property
    def ties(self) -> PossibleCounts:
        """The draws of `worlds` if all rows of a bin have one score."""
        return self.worlds.ties(len(self.negative))

    @cached_property
    def worlds(self) -> PossibleCounts:
        """Draws of the counts that may be true."""
        if self.positive.sum() > self.negative.sum():  # the rarer class is read beside the other
            mirrored = RankedCounts(-self.edges[::-1], self.positive[::-1], self.negative[::-1], self.law).worlds
            return PossibleCounts(
                mirrored.positive[:, ::-1],
                mirrored.negative[:, ::-1],
                -mirrored.scores[::-1],
                -mirrored.bounds[::-1],
                mirrored.expected[::-1, ::-1],
            )
        return _Reading(self).worlds()


def _apart(edges: FloatArray) -> FloatArray:
    """Return edges that ascend by at least a millionth of their range: a threshold may be at one that others made."""
    least = _LEAST_GAP * (float(edges[-1] - edges[0]) or 1.0)
    gaps = np.diff(edges)
    if (gaps >= least).all():
        return edges
    return np.asarray(edges[0] + np.concatenate([[0.0], np.maximum(gaps, least).cumsum()]))


def _ends_of_bins(edges: FloatArray) -> FloatArray:
    """Return the ends of bins (bins + 1,) between edges; the outermost are as wide as those beside them."""
    gaps = np.diff(edges) if len(edges) > 1 else np.ones(1)
    return np.concatenate([[edges[0] - gaps[0]], edges, [edges[-1] + gaps[-1]]])


class _Reading:
    """Reads the counts of a rarer, positive class beside those of the other."""

    def __init__(self, counts: RankedCounts) -> None:
        self.rng = np.random.default_rng(len(counts.positive))
        self.counts, noise = counts, counts.law.deviation / np.sqrt(2)
        self.ends = _ends_of_bins(_apart(counts.edges))
        middles = (self.ends[1:] + self.ends[:-1]) / 2
        self.rows = np.maximum(counts.negative + counts.positive, noise)
        mean = float(np.average(middles, weights=self.rows))
        spread = float(np.sqrt(np.average((middles - mean) ** 2, weights=self.rows))) or 1.0
        self.z, self.steps = (middles - mean) / spread, np.diff(self.ends) / spread
        self.rows = np.array(list(map(self._likely, counts.negative + counts.positive)))
        # rows of a bin are few beside their noise, if they are: then counts vary more than a sample's
        self.size = np.minimum((self.rows / (2 * noise)) ** 2, 1e7)
        self.tables = [self._counts_near(value, noise) for value in counts.positive]
        self.others = [self._counts_near(value, noise) for value in counts.negative]
        self.total = min(float(counts.positive.sum()), 0.9 * float(self.rows.sum()))

    def _likely(self, value: float) -> float:
        """Return the mean of a bin's rows, of both classes, if before a number is as likely as its inverse."""
        k, _ = self._counts_near(value, self.counts.law.deviation)
        logs = self.counts.law.log_density((value - k) / np.sqrt(2)) - np.log(k + 0.5)
        return max(float(np.average(k, weights=np.exp(logs - logs.max()))), 0.1)

    def _counts_near(self, value: float, noise: float) -> tuple[FloatArray, FloatArray]:
        """Return counts (k,) that a noisy value may stand for, and the logarithm of its density if they are true."""
        low = max(0, int(value - 12 * noise))
        high = max(int(value + 12 * noise), int(6 * noise)) + 1
        counts = np.arange(low, high + 1, max(1, (high - low) // 300), dtype=np.float64)
        return counts, self.counts.law.log_density(value - counts)

    def expected(self, curves: FloatArray) -> FloatArray:
        """Return how many positive rows curves (s, 4) expect in each bin, (s, bins)."""
        total, v, bend, untold = (curves[:, place, None] for place in range(4))
        slope = _SLOPE * (1 + np.where(v > 0, np.sinh(v), v))
        shape = slope * (self.z + bend * (self.z**2 - 1))
        odds = self._odds(shape, np.minimum(self.total * np.exp(total), 0.99 * self.rows.sum()))
        everywhere = (odds @ self.rows[:, None]) * expit(untold) / self.rows.sum()
        return np.asarray(np.maximum(self.rows * (expit(-untold) * odds + everywhere), 1e-6))

    def _odds(self, shape: FloatArray, total: FloatArray) -> FloatArray:
        """Return shares of positive rows (s, bins), with log odds of a ``shape`` and a constant, by their ``total``."""
        low, high = -shape.max(axis=1, keepdims=True) - _FAR, -shape.min(axis=1, keepdims=True) + _FAR
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_few = expit(shape + middle) @ self.rows[:, None] < total
            low, high = np.where(is_few, middle, low), np.where(is_few, high, middle)
        return np.asarray(expit(shape + (low + high) / 2))

    def _log_chances(self, place: int, table: tuple[FloatArray, FloatArray], expected: FloatArray) -> FloatArray:
        """Return the logarithm of each count's chance, with its noisy value, for expected counts (s,): (s, k)."""
        k, of_noise = table
        size, m = self.size[place], expected[:, None]
        return np.asarray(
            gammaln(k + size) - gammaln(size) - gammaln(k + 1)
            + size * np.log(size / (size + m)) + k * np.log(m / (size + m)) + of_noise
        )  # fmt: skip

    def log_likelihood(self, expected: FloatArray) -> FloatArray:
        """Return the logarithm of the noisy counts' density, (s,), up to a constant."""
        total = np.zeros(len(expected))
        for place in range(expected.shape[1]):
            logs = np.log(expected[:, place])
            grid = np.linspace(logs.min(), logs.max() + 1e-9, 60)
            chances = self._log_chances(place, self.tables[place], np.exp(grid))
            top = chances.max(axis=1)
            total += np.interp(logs, grid, top + np.log(np.exp(chances - top[:, None]).sum(axis=1)))
        return total

    def curves(self) -> FloatArray:
        """Draw curves (kept, 4) by importance sampling, whose proposals approach the posterior in a few rounds."""
        mean, covariance = _BEFORE[0], np.diag(_BEFORE[1] ** 2)
        for last in [False] * (_ROUNDS - 1) + [True]:
            root = np.linalg.cholesky(covariance + 1e-9 * np.eye(4))
            step = self.rng.normal(size=(_CURVES, 4)) / np.sqrt(self.rng.chisquare(_TAIL, (_CURVES, 1)) / _TAIL)
            drawn = mean + step @ root.T
            proposed = -(_TAIL + 4) / 2 * np.log1p((step**2).sum(axis=1) / _TAIL)
            drawn[:, _V] = np.clip(drawn[:, _V], -_STEEPEST, _STEEPEST)
            logs = self.log_likelihood(self.expected(drawn)) + self._log_before(drawn) - proposed
            weights = self._normalised(logs, least=0.0 if last else _LEAST_EFFECTIVE)
            mean = weights @ drawn
            covariance = 1.3 * (weights[:, None] * (drawn - mean)).T @ (drawn - mean)
        return np.asarray(drawn[self.rng.choice(_CURVES, _KEPT, p=weights)])

    @staticmethod
    def _log_before(curves: FloatArray) -> FloatArray:
        """Return the logarithm of the density of curves (s, 4) before the counts are seen, (s,), up to a constant."""
        squares = np.delete((curves - _BEFORE[0]) / _BEFORE[1], _V, axis=1) ** 2
        return np.asarray(-np.log(np.cosh(curves[:, _V])) - squares.sum(axis=1) / 2)

    @staticmethod
    def _normalised(logs: FloatArray, least: float) -> FloatArray:
        """Return weights, flattened until at least so many draws count."""
        power = 1.0
        while True:
            weights = np.exp(power * (logs - logs.max()))
            weights /= weights.sum()
            if 1 / (weights**2).sum() >= least or power < 1e-3:  # noqa: PLR2004
                return np.asarray(weights)
            power *= 0.7

    def worlds(self) -> PossibleCounts:
        """Draw counts that may be true, by parts of bins."""
        curves = self.curves()
        expected = self.expected(curves)
        positive = self._drawn(self.tables, expected)
        negative = self._drawn(self.others, np.maximum(self.rows - expected, 1e-3))
        odds = np.log(expected) - np.log(np.maximum(self.rows - expected, 1e-3 * self.rows))
        slopes = np.gradient(odds, self.z, axis=1) if len(self.z) > 1 else np.zeros_like(odds)
        slopes = slopes * self.steps * self.rng.uniform(0, 2, (len(curves), 1))
        at = (np.arange(_PARTS) + 0.5) / _PARTS - 0.5
        density = np.gradient(np.log(self.rows / self.steps), self.z) * self.steps
        within = np.exp(np.clip(density, -3, 3)[:, None] * at)
        inside = odds[:, :, None] + np.clip(slopes, -20, 20)[:, :, None] * at
        rising, falling = (
            share / share.sum(axis=2, keepdims=True) for share in (within * expit(inside), within * expit(-inside))
        )
        others = np.maximum(self.rows - expected, 1e-3)
        usual = [
            (others[:, :, None] * falling).mean(axis=0).ravel(),
            (expected[:, :, None] * rising).mean(axis=0).ravel(),
        ]
        positive, negative = positive[:, :, None] * rising, negative[:, :, None] * falling
        widths = np.diff(self.ends)[:, None]
        scores = (self.ends[:-1, None] + widths * (at + 0.5)).ravel()
        edges = self.counts.edges  # not as rounding, or least gaps, have them
        within_bins = self.ends[:-1, None] + widths * np.arange(1, _PARTS + 1) / _PARTS
        bounds = within_bins.clip(np.append(-np.inf, edges)[:, None], np.append(edges, np.inf)[:, None]).ravel()[:-1]
        bounds[_PARTS - 1 :: _PARTS] = edges
        return PossibleCounts(
            negative.reshape(len(curves), -1), positive.reshape(len(curves), -1), scores, bounds, np.array(usual)
        )

    def _drawn(self, tables: list[tuple[FloatArray, FloatArray]], expected: FloatArray) -> FloatArray:
        """Draw counts (s, bins) that may be true, where so many are expected."""
        counts = np.empty_like(expected)
        for place, table in enumerate(tables):
            chances = self._log_chances(place, table, expected[:, place])
            counts[:, place] = table[0][(chances + self.rng.gumbel(size=chances.shape)).argmax(axis=1)]
        return counts
