"""The exact sum of clipped gradients."""

from __future__ import annotations

import math

import numpy as np

from common.arrays import FloatArray, IntArray
from common.data.shard import Shard
from common.encoding.fixed_point import (
    FEATURE_BITS,
    MAX_EXAMPLES,
    SLOPE_BITS,
    UNIT,
    checked_integers,
    truncate,
    weights_on_grid,
)
from common.errors import InvalidInputError
from common.learning.losses import Loss


def gradient_sum(
    loss: Loss, shard: Shard, weights: FloatArray, clip_norm: float = 1.0, clip_l1: float = math.inf
) -> IntArray:
    """The sum over a shard's examples of the clipped gradients, (..., d) integers in units of 2^-32; exact.

    The gradient of one example is slope * x with |x| <= 1, so clipping the slope to ``clip_norm`` <= 1 clips the
    gradient. Replacing one example therefore moves the sum by at most 2 clip_norm in the 2-norm, exactly, in integers;
    and by at most 2 ``clip_l1`` in the 1-norm, the slope being clipped to clip_l1 / |x|_1 as well.

    Raises InvalidInputError when the weights are not (d,), not finite or too large, or when there are more examples
    than an exact sum holds: all of it public, so a refusal tells nothing of the data.
    """
    if weights.shape != (shard.n_features,):
        raise InvalidInputError(f"weights must be of shape ({shard.n_features},), not {weights.shape}")
    if shard.X.shape[-2] > MAX_EXAMPLES:
        raise InvalidInputError(f"an exact sum holds {MAX_EXAMPLES} examples, not {shard.X.shape[-2]}")
    score = shard.X @ weights_on_grid(weights)
    bound = np.minimum(clip_norm, _slope_bound(shard, clip_l1))
    slope = truncate(np.clip(loss.slope(score, shard.y), -bound, bound), SLOPE_BITS)
    total = (slope[..., None, :] @ shard.X)[..., 0, :]
    return checked_integers(total * float(UNIT))


def _slope_bound(shard: Shard, clip_l1: float) -> FloatArray | float:
    """The largest slope on the grid whose gradient has a 1-norm of at most ``clip_l1``, (..., n); exact in integers."""
    if math.isinf(clip_l1):
        return math.inf
    norm = np.maximum(np.abs(shard.X) @ np.full(shard.n_features, 2.0**FEATURE_BITS), 1.0)
    budget = math.floor(clip_l1 * UNIT)
    slope = np.floor(budget / norm)
    return np.asarray((slope - (slope * norm > budget)) * 2.0**-SLOPE_BITS)  # the division may have rounded up
