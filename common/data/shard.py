"""One owner's private examples, or those of many owners stacked.

A `Shard` that exists is safe to compute on: its constructor projects every row into the unit ball, replaces rows that
are not numbers by zeros and puts everything on the grid of `common.encoding.fixed_point`, so no algorithm has to check
again and no row can move a sum by more than the declared sensitivity. Loading an owner's file is stricter
(`Study.shard` refuses).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.arrays import FloatArray, IntArray
from common.encoding.fixed_point import FEATURE_BITS, truncate

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Examples X (..., n, d) with labels y (..., n) and a mask (..., n) that is False on padding.

    Rows of X have norm at most 1 and lie on the grid of 2^-16; y lies in [-1, 1], and is -1 or +1 for classification.
    Leading axes stack parties: one party has none, K stacked parties have one of length K.
    """

    X: FloatArray
    y: FloatArray
    mask: BoolArray

    def __init__(self, X: FloatArray, y: FloatArray, mask: BoolArray | None = None) -> None:
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if X.ndim < 2 or y.shape != X.shape[:-1] or (mask is not None and mask.shape != y.shape):  # noqa: PLR2004
            raise ValueError(f"X must be (..., n, d) and y, mask (..., n); got {X.shape} and {y.shape}")
        present = np.ones(y.shape, dtype=np.bool_) if mask is None else np.array(mask, dtype=np.bool_)
        sane = present & np.isfinite(X).all(axis=-1) & (np.abs(y) <= 1)
        for name, value in (
            ("X", _into_unit_ball(np.where(sane[..., None], X, 0.0))),
            ("y", truncate(np.where(sane, y, 1.0), FEATURE_BITS)),
            ("mask", present),
        ):
            value.flags.writeable = False
            object.__setattr__(self, name, value)

    @property
    def n_examples(self) -> IntArray:
        """The number of examples, (...)."""
        return np.asarray(self.mask.sum(axis=-1), dtype=np.int64)

    @property
    def n_features(self) -> int:
        """The number of columns of X, d."""
        return int(self.X.shape[-1])

    def scores(self, weights: FloatArray) -> FloatArray:
        """The scores (..., n, k) of each example under k rows of weights, (k, d) for all parties or (..., k, d)."""
        scores: FloatArray = self.X @ np.swapaxes(weights, -1, -2)
        return scores

    def weighted_sum(self, slopes: FloatArray) -> FloatArray:
        """The sums (..., k, d) over the examples of x times each of their k slopes, (..., n, k)."""
        total: FloatArray = np.swapaxes(slopes, -1, -2) @ self.X
        return total

    @classmethod
    def stack(cls, shards: Sequence[Shard]) -> Shard:
        """K shards of one party each as one stacked shard, padded to the largest."""
        longest = max(shard.X.shape[-2] for shard in shards)
        padded = [_pad(shard, longest) for shard in shards]
        return cls(*(np.stack(parts) for parts in zip(*padded, strict=True)))

    def party(self, index: int) -> Shard:
        """The shard of one party of a stack, without its padding."""
        keep = self.mask[index]
        return Shard(self.X[index][keep], self.y[index][keep])

    def pooled(self) -> Shard:
        """All examples of a stack as one party's: what a trusted curator would hold."""
        return Shard(self.X[self.mask], self.y[self.mask])


def _pad(shard: Shard, n: int) -> tuple[FloatArray, FloatArray, BoolArray]:
    """The arrays of a shard of one party, lengthened to n rows."""
    extra = n - shard.X.shape[-2]
    return (
        np.pad(shard.X, ((0, extra), (0, 0))),
        np.pad(shard.y, (0, extra), constant_values=1.0),
        np.pad(shard.mask, (0, extra)),
    )


def _into_unit_ball(X: FloatArray) -> FloatArray:
    """Rows projected onto the unit ball, then truncated to the grid; the squared norm is checked in integers."""
    X = X / np.maximum(np.abs(X).max(axis=-1, initial=0.0, keepdims=True), 1.0)  # keeps the squares from overflowing
    X = truncate(X / np.maximum(np.linalg.norm(X, axis=-1, keepdims=True), 1.0), FEATURE_BITS)
    outside = ((X * 2.0**FEATURE_BITS) ** 2).sum(axis=-1) > 2.0 ** (2 * FEATURE_BITS)
    if outside.any():  # a last-bit excess of the division: one grid step inward is enough
        X[outside] = truncate(X[outside] * (1.0 - 2.0**-40), FEATURE_BITS)
    return X
