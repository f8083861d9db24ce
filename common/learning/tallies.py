"""What the predictions of a model come to on some examples: counts and sums, exact and of bounded sensitivity.

A row of zeros is none: it stands for a record that its owner dropped, and tells of no prediction.

*Classes.* Each example counts once in a fine cell and once in the group of its cell, so replacing one moves the 2-norm
by at most 2, exactly: a cell and a group lose one, others gain one. Fine cells alone would need sqrt 2, and the sum of
a group of m would carry m times a cell's variance; asked for too, it carries 2 m / (m + 1) times, by least squares
(Hay, Rastogi, Miklau & Suciu, "Boosting the Accuracy of Differentially Private Histograms Through Consistency", VLDB
2010). Of 2 x 20 bins, the noise on an accuracy is 2.3 times smaller for it, and that on a bin 1.4 times larger.

*A real label.* An example is (1, y, y^2) / 2 and u, y in [-1, 1] and u in [0, 1]; errors are what is hardest to tell
from noise, so they have twice the weight. A replaced one moves the squared 2-norm by at most
(y - y')^2 (1 + (y + y')^2) / 4 + 1. With a = |y - y'|, |y + y'| is at most 2 - a, and a^2 (1 + (2 - a)^2) rises from
a = 0 to 2, where it is 4: at most 2 in all. One that comes or goes moves it by at most 7/4. Truncating y^2 / 2 adds
less than 2^-30; labels on the grid of 2^-16 that differ by less than 2 fall short of the bound by more than that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import logit

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.encoding.fixed_point import MAX_EXAMPLES, UNIT, weights_on_grid
from parley.common.errors import InvalidInputError


class Tally(Protocol):
    """What is counted and added up of each example's scores and label."""

    @property
    def width(self) -> int:
        """How many numbers there are, m."""

    @property
    def sensitivity(self) -> float:
        """How far one example replaced moves them, in the 2-norm; in reals."""

    def flawless(self, n: int) -> FloatArray:
        """The sums (m,), in reals, of n examples that are predicted without error, their labels spread evenly."""

    def add_up(self, scores: FloatArray, y: FloatArray, counted: BoolArray) -> IntArray:
        """The sums (..., m), in units of 2^-32, over examples of scores (..., n, k) and labels (..., n).

        Examples that are not ``counted`` (..., n) add nothing.
        """


def tally(what: Tally, shard: Shard, weights: FloatArray) -> IntArray:
    """A tally (..., m) of a shard's examples under a model's weights (k, d), in units of 2^-32: exact integers.

    Raises InvalidInputError for weights that are not finite or too large, or for more examples than a sum holds.
    """
    if (n := shard.y.shape[-1]) > MAX_EXAMPLES:
        raise InvalidInputError(f"an exact sum holds {MAX_EXAMPLES} examples, not {n}")
    on_grid = weights_on_grid(weights)
    total = np.zeros((*shard.y.shape[:-1], what.width), dtype=np.int64)
    for block in shard.blocks():
        total += what.add_up(block.scores(on_grid), block.y, block.present)
    return total


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts by group and by cell: first those of the groups, then those of the cells, (n_groups + n_cells,).

    ``shape`` is that of the cells: two classes by ``bins`` of the score, where one class is negative and one positive;
    else the true class by the predicted one.
    """

    n_classes: int
    bins: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """By label, then by score."""
        return (2, self.bins) if self.bins else (self.n_classes, self.n_classes)

    @property
    def groups(self) -> IntArray:
        """The group of each cell: by label and prediction, of bins; else wrong or right."""
        if self.bins:
            return np.repeat(np.arange(4), self.bins // 2)
        return np.eye(self.n_classes, dtype=np.int64).ravel()

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return 4 if self.bins else 2

    @property
    def width(self) -> int:
        """Groups and cells."""
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
        """As many of each class, in the cell that is furthest on the right side."""
        cells = np.zeros(self.shape)
        classes = np.arange(self.n_classes)
        cells[classes, classes * (self.shape[1] - 1) // (self.n_classes - 1)] = n / self.n_classes
        return np.concatenate([cells.ravel() @ np.eye(self.n_groups)[self.groups], cells.ravel()])

    def add_up(self, scores: FloatArray, y: FloatArray, counted: BoolArray) -> IntArray:
        """The counts; a score at an edge belongs to the bin below, as a score of 0 predicts the negative class."""
        if self.bins:
            cells = self.bins * (y > 0) + np.searchsorted(self.edges, scores[..., 0])
        else:
            cells = self.n_classes * decode_classes(y, self.n_classes) + scores.argmax(axis=-1)
        size, stacked = math.prod(self.shape), y.shape[:-1]
        first = size * np.arange(math.prod(stacked)).reshape(*stacked, 1)
        flat = np.bincount((cells + first).ravel(), counted.ravel(), size * math.prod(stacked))
        found = flat.reshape(*stacked, size)
        by_group = found @ np.eye(self.n_groups)[self.groups]
        return np.asarray(np.concatenate([by_group, found], axis=-1).astype(np.int64) * UNIT)


@dataclass(frozen=True, slots=True)
class Errors:
    """Half the sums of 1, y, y^2; that of u = min(|e|, c)^2 / c^2, e being how far a prediction is off, c ``largest``.

    A prediction is the score within the label's bounds, which are -1 and +1.
    """

    largest: float

    @property
    def width(self) -> int:
        """Four sums."""
        return 4

    @property
    def sensitivity(self) -> float:
        """The square root of 2, rounded up: see above for the proof."""
        return math.nextafter(math.sqrt(2), math.inf)

    def flawless(self, n: int) -> FloatArray:
        """No error; a label that is uniform between its bounds has a mean square of 1/3."""
        return np.array([n / 2, 0.0, n / 6, 0.0])

    def add_up(self, scores: FloatArray, y: FloatArray, counted: BoolArray) -> IntArray:
        """The sums, of parts truncated to the grid."""
        error = np.minimum(np.abs(np.clip(scores[..., 0], -1.0, 1.0) - y), self.largest)
        parts = np.stack([np.full_like(y, 0.5), y / 2, y**2 / 2, error**2 / self.largest**2], axis=-1)
        parts *= counted[..., None]
        return np.asarray(np.trunc(parts * float(UNIT)).sum(axis=-2)).astype(np.int64)
