"""F of `parley.common.learning.erm`: its value, its gradient and its Hessian, a block of rows after another.

Blocks of rows of at most `DENSE_COLUMNS` columns are dense, however the shard keeps its rows. So dense and sparse rows
go through the same operations and give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from parley.common.arrays import BoolArray, FloatArray
from parley.common.data.shard import SUMMED_ROWS, Shard
from parley.common.learning.losses import Loss

_A = TypeVar("_A", FloatArray, BoolArray)


@dataclass(frozen=True, slots=True, eq=False)
class Risk:
    """F for one shard or a stack: ``regularization`` (...) on the sum scale, ``linear`` broadcastable to the weights.

    Weights are (..., d), or (..., K, d) for a loss of K scores. ``parts`` are the blocks of rows, of a shard whose own
    are not to be taken: its sparse rows stay sparse, and products with the Hessian take all of them at once.
    """

    loss: Loss
    shard: Shard
    regularization: FloatArray
    linear: FloatArray | float = 0.0
    parts: tuple[Shard, ...] = ()

    def value(self, weights: FloatArray) -> FloatArray:
        """F at weights, (...)."""
        data = np.zeros(self.shard.y.shape[:-1])
        for block in self._blocks():
            losses = self.loss.value(self._scores(block, weights), block.y)
            data = data + np.where(block.mask, losses, 0.0).sum(axis=-1)
        tilt = self.total(self.linear * weights)
        return np.asarray(data + self.regularization / 2 * self.total(weights**2) + tilt)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """The gradient of F at weights, shaped like them."""
        data = np.zeros_like(weights)
        for block in self._blocks():
            slopes = self.loss.slope(self._scores(block, weights), block.y)
            for part, of_part in _in_sums(block, slopes):
                data += self._weighted_sum(part, of_part)
        data += self.spread(self.regularization) * weights
        data += self.linear
        return data

    def hessian(self, weights: FloatArray) -> FloatArray:
        """The Hessian of F at weights (..., d), (..., d, d), of a loss of one score."""
        data = self.regularization[..., None, None] * np.eye(self.shard.n_features)
        for block in self._blocks():
            curvature = np.where(block.mask, self.loss.curvature(self._scores(block, weights), block.y), 0.0)
            data = data + block.weighted_sum(block.X * curvature[..., None])
        return data

    def hessian_along(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The product of F's Hessian at weights with directions, both shaped like the weights."""
        scores = [self._scores(piece, weights) for piece in self._pieces()]

        def times(direction: FloatArray) -> FloatArray:
            product = self.spread(self.regularization) * direction
            for piece, at in zip(self._pieces(), scores, strict=True):
                bent = self.loss.curvature_times(at, piece.y, self._scores(piece, direction))
                product = product + self._weighted_sum(piece, bent)
            return product

        return times

    def total(self, terms: FloatArray) -> FloatArray:
        """The sum over the axes of the weights, (...)."""
        return np.asarray(terms.sum(axis=-1) if self.loss.outputs == 1 else terms.sum(axis=(-2, -1)))

    def spread(self, values: _A) -> _A:
        """Values (...) with an axis of length 1 for each axis of the weights."""
        return values[..., None] if self.loss.outputs == 1 else values[..., None, None]

    def _blocks(self) -> Iterable[Shard]:
        return self.parts or self.shard.blocks()

    def _pieces(self) -> Iterable[Shard]:
        return (self.shard,) if self.parts else self.shard.blocks()

    def _scores(self, block: Shard, weights: FloatArray) -> FloatArray:
        if self.loss.outputs == 1:
            return block.scores(weights[..., None, :])[..., 0]
        return block.scores(weights)

    def _weighted_sum(self, block: Shard, slopes: FloatArray) -> FloatArray:
        if self.loss.outputs == 1:
            return block.weighted_sum(slopes[..., None])[..., 0, :]
        return block.weighted_sum(slopes)


def _in_sums(block: Shard, slopes: FloatArray) -> Iterator[tuple[Shard, FloatArray]]:
    """A block of rows and their slopes, (..., n) or (..., n, K), in parts of at most `SUMMED_ROWS`."""
    axis = block.y.ndim - 1
    n = slopes.shape[axis]
    if n <= SUMMED_ROWS:
        yield block, slopes
        return
    for start in range(0, n, SUMMED_ROWS):
        rows = slice(start, start + SUMMED_ROWS)
        yield block.view(rows), slopes[(slice(None),) * axis + (rows,)]
