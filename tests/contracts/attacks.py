"""Attacks on answers: tests that tell the answers of neighbours apart, and the epsilon that they surely show.

What is looked at in an answer (`features`): each number, sums of several, how far off they are, bits, values that come
again, which numbers are equal or largest. Some answers of two neighbours fit the features, others choose the best test
(`best_test`), and fresh ones count (`Attack`), so that the choice does not flatter the count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard

ALARM = 1e-6
LOOKS = 1_000
"""How many attacks a run of the suite may try on fresh answers: all together raise one false alarm in 10^6 runs."""
_WIDEST, _BITS, _LAST, _SURE = 24, 48, 8, 2.0
"""Numbers of an answer that are looked at; bits of each, and of sums of two; deviations of a rate that is trusted."""
_LEVELS = np.concatenate([levels := 2.0 ** -np.arange(1, 12), 1 - levels[1:], [0.35, 0.65]])
"""Shares of answers below the thresholds of a feature."""
_FEATURES = 4
"""Columns of a row that take their extremes, at most."""


@dataclass(frozen=True)
class Attack:
    """How often a test took answers for the other neighbour's: rightly ``hits``, falsely ``alarms``, of n each.

    It is one of so many ``looks``, which raise a false alarm with chance ALARM, all together.
    """

    hits: int
    alarms: int
    n: int
    delta: float
    looks: int = 4

    @classmethod
    def of(cls, null: FloatArray, other: FloatArray, delta: float) -> Attack:
        """Attack by scores (runs,): a quarter of them chooses the threshold, the others count."""
        chosen, counted = np.arange(len(null)) % 4 == 0, np.arange(len(null)) % 4 > 0
        thresholds = np.quantile(null[chosen], 1 - np.geomspace(2e-3, 0.5, 100))
        false, true = ((scores[chosen, None] > thresholds).mean(axis=0) for scores in (null, other))
        best = thresholds[np.argmax(_promise(true, false, int(chosen.sum()), delta))]
        return cls(int((other[counted] > best).sum()), int((null[counted] > best).sum()), int(counted.sum()), delta)

    @property
    def epsilon(self) -> float:
        """A lower bound on epsilon, by Clopper and Pearson's intervals of both rates."""
        confidence = ALARM / (2 * self.looks)
        least = stats.beta.ppf(confidence, self.hits, self.n - self.hits + 1) if self.hits else 0.0
        most = stats.beta.isf(confidence, self.alarms + 1, self.n - self.alarms) if self.alarms < self.n else 1.0
        return math.log(max(least - self.delta, 1e-300) / most)

    def power(self, claim: float) -> float:
        """How often answers of such a law show more than the claim, by the binomial laws of hits and alarms."""
        counts = np.random.default_rng(16).binomial(self.n, [self.hits / self.n, self.alarms / self.n], (400, 2))
        return float(
            np.mean([replace(self, hits=hits, alarms=alarms).epsilon > claim for hits, alarms in counts.tolist()])
        )


def runs_for(claim: float) -> int:
    """How many fresh answers of each neighbour show more than the claim if they are surely told apart."""
    return max(300, math.ceil(2 * math.log(2 * LOOKS / ALARM) * (1 + math.exp(claim))))


# ── neighbours ───────────────────────────────────────────────────────────────


def extreme_neighbours(base: Shard, classes: int, *, all_rows: bool) -> tuple[list[Shard], list[tuple[int, int]]]:
    """Shards that have an extreme first row, or ``all_rows`` so, for the base's; and pairs of them, by their places.

    A row points along a column, or evenly along all, or is 0; it has each class. A pair is of opposite rows, of a row
    and 0, or of one row of two classes.
    """
    d = base.n_features
    columns = np.unique(np.linspace(0, d - 1, min(d, _FEATURES)).round().astype(int))
    rows = np.concatenate([np.eye(d)[columns], np.full((1, d), 1 / math.sqrt(d))])
    rows = np.concatenate([rows, -rows, np.zeros((1, d))])
    targets = np.linspace(-1, 1, classes)
    shards = []
    for target in targets:
        for row in rows:
            X, y = base.X.copy(), base.y.copy()
            X[slice(None) if all_rows else 0] = row
            y[slice(None) if all_rows else 0] = target
            shards.append(Shard(X, y, norm=base.norm))
    n, half = len(rows), len(rows) // 2
    pairs = []
    for first in range(0, len(shards), n):
        pairs += [(first + i, first + i + half) for i in range(half)] + [
            (first + i, first + n - 1) for i in range(half)
        ]
        pairs += [(first + i, first - n + i) for i in range(n) if first]
    return shards, pairs


# ── what is looked at ────────────────────────────────────────────────────────

Feature = Callable[[IntArray], FloatArray]
"""Answers (runs, m) to numbers (runs, k)."""


def features(one: IntArray, other: IntArray) -> dict[str, Feature]:
    """What is looked at in answers, by what it is called, fitted to some answers (runs, m) of each neighbour."""
    m, both = one.shape[1], np.concatenate([one, other])
    columns = np.sort(np.random.default_rng(21).choice(m, min(m, _WIDEST), replace=False))
    centre = np.sort(both[:, columns], axis=0)[len(both) // 2]
    spread = (both[:, columns] - centre).std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)

    def offsets(answers: IntArray) -> FloatArray:
        return np.asarray((answers[:, columns] - centre) / scale)

    directions = _directions(offsets(one), offsets(other))
    middle = np.median(offsets(both) @ directions, axis=0)

    def sums(answers: IntArray) -> FloatArray:
        return np.asarray(offsets(answers) @ directions - middle)

    def bits(answers: IntArray) -> FloatArray:
        looked = answers[:, columns]
        together = np.column_stack([looked[:, 1:] + looked[:, :-1], looked.sum(axis=1)])
        columns_of_bits = [part[..., None] >> np.arange(n) & 1 for part, n in ((looked, _BITS), (together, _LAST))]
        return np.concatenate([part.reshape(len(answers), -1) for part in columns_of_bits], axis=1).astype(np.float64)

    likely = [
        _likelier(mine, its) for mine, its in zip(_patterns(one, columns), _patterns(other, columns), strict=True)
    ]

    def values(answers: IntArray) -> FloatArray:
        return np.stack(
            [score(pattern) for score, pattern in zip(likely, _patterns(answers, columns), strict=True)], axis=1
        )

    return {
        "a number": offsets,
        "how far off a number is": lambda answers: np.abs(offsets(answers)),
        "a sum of numbers": sums,
        "how far off a sum of numbers is": lambda answers: np.abs(sums(answers)),
        "a bit of a number or of a sum": bits,
        "values or an order of numbers": values,
    }


def _directions(one: FloatArray, other: FloatArray) -> FloatArray:
    """Weights (m, k) of sums that tell most, by Fisher's discriminant, and of those that vary least."""
    apart = other.mean(axis=0) - one.mean(axis=0)
    spreads = [centred.T @ centred / len(centred) for centred in (one - one.mean(axis=0), other - other.mean(axis=0))]
    directions = []
    for spread in (spreads[0] + spreads[1], *spreads):
        variances, axes = np.linalg.eigh(spread)
        directions += [axes @ (axes.T @ apart / (np.maximum(variances, 0) + 1e-12)), *axes.T[:2]]
    return np.stack(directions, axis=1)


def _patterns(answers: IntArray, columns: IntArray) -> Iterator[IntArray]:
    """What may come again of answers: each number, all together, which is largest or smallest, how many are alike."""
    yield from answers[:, columns].T
    yield (answers * np.random.default_rng(22).integers(1, 2**62, answers.shape[1])).sum(axis=1)  # it may wrap round
    yield from (answers.argmax(axis=1), answers.argmin(axis=1), np.abs(answers).argmax(axis=1))
    yield (np.diff(np.sort(answers, axis=1), axis=1) == 0).sum(axis=1)
    yield (answers == 0).sum(axis=1)


def _likelier(one: IntArray, other: IntArray) -> Callable[[IntArray], FloatArray]:
    """How much likelier a value (runs,) is of the other neighbour, in logarithms; 0 if it never came."""
    values, places = np.unique(np.concatenate([one, other]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(values)) + 0.5 for part in np.split(places, [len(one)])]
    ratios = np.log(counts[1] / counts[0])

    def score(answers: IntArray) -> FloatArray:
        nearest = np.minimum(np.searchsorted(values, answers), len(values) - 1)
        return np.where(values[nearest] == answers, ratios[nearest], 0.0)

    return score


# ── tests ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Test:
    """Answers are the other neighbour's where a number of a feature is above a threshold, or is not.

    ``promise`` is the epsilon that it seems to show; ``swapped`` says that the neighbours change their parts.
    """

    __test__ = False

    name: str
    feature: Feature
    column: int
    threshold: float
    above: bool
    swapped: bool
    promise: float

    def attack(self, one: IntArray, other: IntArray, delta: float) -> Attack:
        """Return what the test shows on fresh answers."""
        alarms, hits = (
            int(((self.feature(side)[:, self.column] > self.threshold) == self.above).sum())
            for side in ((other, one) if self.swapped else (one, other))
        )
        return Attack(hits, alarms, len(one), delta, LOOKS)


def best_test(one: IntArray, other: IntArray, delta: float) -> Test:
    """The test that promises most: one half of the answers (runs, m) fits features, the other chooses."""
    best: Test | None = None
    for name, feature in features(one[::2], other[::2]).items():
        mine, its = feature(one[1::2]), feature(other[1::2])
        levels = np.sort(np.concatenate([mine, its]), axis=0)
        places = np.unique((_LEVELS * len(levels)).astype(int) - 1).clip(0)
        thresholds = (levels[places] + levels[places + 1]) / 2
        above = [(scores_of[:, None] > thresholds).mean(axis=0) for scores_of in (mine, its)]
        rates = np.array([above, above[::-1], [1 - rate for rate in above], [1 - rate for rate in above[::-1]]])
        promises = _promise(rates[:, 1], rates[:, 0], len(mine), delta)
        way, level, column = np.unravel_index(int(promises.argmax()), promises.shape)
        promise = float(promises[way, level, column])
        if best is None or promise > best.promise:
            threshold = float(thresholds[level, column])
            best = Test(
                name, feature, int(column), threshold, above=bool(way < 2), swapped=bool(way % 2), promise=promise
            )
    assert best is not None
    return best


def _promise(hits: FloatArray, alarms: FloatArray, n: int, delta: float) -> FloatArray:
    """The epsilon that rates of n answers promise, by Wilson's intervals."""
    square = _SURE**2 / n

    def reach(rate: FloatArray) -> FloatArray:
        return np.sqrt(square * (rate * (1 - rate) + square / 4))

    least = (hits + square / 2 - reach(hits)) / (1 + square)
    most = (alarms + square / 2 + reach(alarms)) / (1 + square)
    return np.asarray(np.log(np.maximum(least - delta, 1e-300) / most))
