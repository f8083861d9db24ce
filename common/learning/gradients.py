"""The exact sum of clipped gradients.

A shard is read in blocks of rows: each block's sum is exact in float64, and the blocks are added as int64, so the bits
do not depend on the blocks (`parley.common.encoding.fixed_point` has the bounds).

*One score.* The gradient of an example is slope * x with |x| <= 1, so clipping the slope clips the gradient.

*Class weights* in [0, 1] scale a slope after it is clipped as one of weight 1, so that classes keep their ratio, and
before it is truncated: toward zero twice, so every bound holds as it does without weights.

*K scores.* It is the outer product of the slopes, (K,), and x, so its norms are the products of theirs. Slopes are
scaled to the clip norm C, truncated to integers q in units of 2^-16, and checked: sum q^2 <= B = floor(C^2 2^32).
Truncation lengthens nothing, so only the rounding of the scaling can leave q outside; it adds less than 1 to C^2 2^32,
hence sum q^2 <= B + 1. Such a q is not 0, and with 1 taken from every nonzero |q_k| the sum falls by
sum (2 |q_k| - 1) >= 1: one step is enough. The 1-norm, sum |q_k|, also exceeds its bound by at most 1, and falls
by at least 1.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import MAX_EXAMPLES, SLOPE_BITS, UNIT, truncate, weights_on_grid
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Loss, unweighted


def gradient_sum(
    loss: Loss, shard: Shard, weights: FloatArray, clip_norm: float = 1.0, clip_l1: float = math.inf
) -> IntArray:
    """Return the sum over a shard's examples of the clipped gradients, in units of 2^-32: exact integers.

    Of a loss of one score, weights are (d,) and the sum is (..., d); of K scores, weights are (K, d) and the sum is
    (..., K * d), row after row. ``clip_norm`` is at most 1, or sqrt 2 of K scores. Replacing one example moves the sum
    by at most 2 ``clip_norm`` in the 2-norm and at most 2 ``clip_l1`` in the 1-norm, exactly, in integers.

    Raises InvalidInputError when the weights are of another shape, not finite or too large, or when there are more
    examples than an exact sum holds: all of it public, so a refusal tells nothing of the data.
    """
    one_score = loss.outputs == 1
    expected = (shard.n_features,) if one_score else (loss.outputs, shard.n_features)
    if weights.shape != expected:
        raise InvalidInputError(f"weights must be of shape {expected}, not {weights.shape}")
    n = shard.y.shape[-1]
    if n > MAX_EXAMPLES:
        raise InvalidInputError(f"an exact sum holds {MAX_EXAMPLES} examples, not {n}")
    on_grid = np.atleast_2d(weights_on_grid(weights))
    if not math.isinf(clip_l1):
        shard.norms_l1  # noqa: B018 -- so that the blocks find it, now and in every later round
    clipped = _clipped_slopes if one_score else _clipped_vectors
    total = np.zeros((*shard.y.shape[:-1], *on_grid.shape), dtype=np.int64)
    for block in shard.blocks():
        slopes = clipped(loss, block, block.scores(on_grid), clip_norm, clip_l1)
        total += (block.weighted_sum(slopes) * float(UNIT)).astype(np.int64)
    return total.reshape(*shard.y.shape[:-1], -1)


def _clipped_slopes(loss: Loss, block: Shard, scores: FloatArray, clip_norm: float, clip_l1: float) -> FloatArray:
    """Return the slopes (..., n, 1) on the grid, each clipped to both norms."""
    bound: FloatArray | float = clip_norm
    if not math.isinf(clip_l1):
        bound = np.minimum(clip_norm, _largest_l1(block, clip_l1) * 2.0**-SLOPE_BITS)
    slopes = np.clip(unweighted(loss).slope(scores[..., 0], block.y), -bound, bound)
    return truncate(loss.weighted(slopes, block.y), SLOPE_BITS)[..., None]


def _clipped_vectors(loss: Loss, block: Shard, scores: FloatArray, clip_norm: float, clip_l1: float) -> FloatArray:
    """Return the vectors of slopes (..., n, K) on the grid, each scaled into both norms; checked in integers."""
    slopes = unweighted(loss).slope(scores, block.y) * 2.0**SLOPE_BITS
    longest = clip_norm * 2.0**SLOPE_BITS
    scale = longest / np.maximum(np.sqrt((slopes**2).sum(axis=-1)), longest)
    largest = math.inf if math.isinf(clip_l1) else _largest_l1(block, clip_l1)
    if not math.isinf(clip_l1):
        scale = np.minimum(scale, largest / np.maximum(np.abs(slopes).sum(axis=-1), np.maximum(largest, 1.0)))
    q = np.trunc(loss.weighted(slopes * scale[..., None], block.y))
    bound = math.floor(Fraction(clip_norm) ** 2 * UNIT)
    outside = ((q * q).sum(axis=-1) > bound) | (np.abs(q).sum(axis=-1) > largest)
    if outside.any():
        q = np.where(outside[..., None], np.sign(q) * np.maximum(np.abs(q) - 1.0, 0.0), q)
    return np.asarray(q * 2.0**-SLOPE_BITS)


def _largest_l1(block: Shard, clip_l1: float) -> FloatArray:
    """Return the largest 1-norm (..., n) of slopes, in units of 2^-16, with a gradient's at most ``clip_l1``; exact."""
    norm = np.maximum(block.norms_l1, 1.0)
    budget = math.floor(clip_l1 * UNIT)
    largest = np.floor(budget / norm)
    return np.asarray(largest - (largest * norm > budget))  # the division may have rounded up
