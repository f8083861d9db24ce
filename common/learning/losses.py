"""Losses of a linear score s = w.x against a label y, and the exact sum of their clipped gradients.

Each loss gives its value, its slope dl/ds and its curvature d2l/ds2, all elementwise, with the constants that the
privacy proofs need: ``lipschitz`` L bounds |slope|, ``smoothness`` c bounds the curvature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit

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


class Loss(Protocol):
    """A convex loss of the score."""

    @property
    def lipschitz(self) -> float:
        """L: the largest |slope|; infinite where there is none."""

    @property
    def smoothness(self) -> float:
        """c: the largest curvature; infinite where there is none."""

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The loss, elementwise."""

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative by the score, elementwise."""

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative by the score, elementwise."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """log(1 + exp(-y s)): L = 1, c = 1/4."""

    lipschitz: float = 1.0
    smoothness: float = 0.25

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The loss, elementwise."""
        return np.logaddexp(0.0, -y * score)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative by the score, elementwise."""
        slope: FloatArray = -y * expit(-y * score)
        return slope

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative by the score, elementwise."""
        p = expit(y * score)
        curvature: FloatArray = y * y * p * (1.0 - p)
        return curvature


@dataclass(frozen=True, slots=True)
class Huber:
    """The hinge smoothed over a band of half-width h (Chaudhuri et al. 2011, eq. 7): L = 1, c = 1/(2h)."""

    h: float = 0.5

    @property
    def lipschitz(self) -> float:
        """L = 1."""
        return 1.0

    @property
    def smoothness(self) -> float:
        """C = 1/(2h)."""
        return 1.0 / (2.0 * self.h)

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """0 beyond the margin 1 + h, linear below 1 - h, a parabola between."""
        gap = 1.0 + self.h - y * score
        return np.where(gap <= 0, 0.0, np.where(gap <= 2 * self.h, gap**2 / (4 * self.h), 1.0 - y * score))

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative by the score, elementwise."""
        return -y * np.clip((1.0 + self.h - y * score) / (2.0 * self.h), 0.0, 1.0)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative by the score, elementwise."""
        return np.where(np.abs(1.0 - y * score) <= self.h, y * y / (2.0 * self.h), 0.0)


@dataclass(frozen=True, slots=True)
class Squared:
    """(s - y)^2 / 2, for regression: c = 1, and no L; clipping its gradient makes it Huber's robust regression."""

    lipschitz: float = math.inf
    smoothness: float = 1.0

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The loss, elementwise."""
        return (score - y) ** 2 / 2

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative by the score, elementwise."""
        return score - y

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative by the score, elementwise."""
        return np.ones_like(y * score)


@dataclass(frozen=True, slots=True)
class Hinge:
    """max(0, 1 - y s), the support vector machine's: L = 1, and no c. The slope at the kink is a subgradient, 0."""

    lipschitz: float = 1.0
    smoothness: float = math.inf

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The loss, elementwise."""
        return np.maximum(0.0, 1.0 - y * score)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """A subderivative by the score, elementwise."""
        return np.where(y * score < 1.0, -y, 0.0)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative wherever there is one: 0."""
        return np.zeros_like(y * score)


def bounded_slope(loss: Loss) -> float:
    """L; raises InvalidInputError where there is none: then one record moves a minimiser without bound."""
    if math.isinf(loss.lipschitz):
        raise InvalidInputError("a private minimiser needs a loss of bounded slope: not 'squared'")
    return loss.lipschitz


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
