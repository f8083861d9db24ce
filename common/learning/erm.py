"""Regularised empirical risk minimisation, one problem or thousands at once.

The problem, on the sum scale, for the examples (x_i, y_i) of a shard:

    F(w) = sum_i loss(w.x_i, y_i) + (regularization / 2) |w|^2 + <linear, w>

solved by Newton's method with step halving. Every problem of a stack takes its own steps until its gradient is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from common.arrays import FloatArray
from common.data.shard import Shard
from common.errors import InvalidInputError
from common.learning.losses import Loss

_MAX_STEPS = 200
_MAX_HALVINGS = 40
_SUFFICIENT_DECREASE = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Risk:
    """F for one shard or a stack: ``regularization`` (...) on the sum scale, ``linear`` broadcastable to (..., d)."""

    loss: Loss
    shard: Shard
    regularization: FloatArray
    linear: FloatArray | float = 0.0

    def value(self, weights: FloatArray) -> FloatArray:
        """F at weights (..., d), (...)."""
        losses = np.where(self.shard.mask, self.loss.value(self._scores(weights), self.shard.y), 0.0).sum(axis=-1)
        tilt = (self.linear * weights).sum(axis=-1)
        return np.asarray(losses + self.regularization / 2 * (weights**2).sum(axis=-1) + tilt)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """The gradient of F at weights (..., d), (..., d)."""
        slopes = self.loss.slope(self._scores(weights), self.shard.y)
        data: FloatArray = (slopes[..., None, :] @ self.shard.X)[..., 0, :]
        return data + self.regularization[..., None] * weights + self.linear

    def hessian(self, weights: FloatArray) -> FloatArray:
        """The Hessian of F at weights (..., d), (..., d, d)."""
        curvature = np.where(self.shard.mask, self.loss.curvature(self._scores(weights), self.shard.y), 0.0)
        data: FloatArray = np.swapaxes(self.shard.X * curvature[..., None], -1, -2) @ self.shard.X
        return data + self.regularization[..., None, None] * np.eye(self.shard.n_features)

    def _scores(self, weights: FloatArray) -> FloatArray:
        scores: FloatArray = (self.shard.X @ weights[..., None])[..., 0]
        return scores


def minimise(
    loss: Loss,
    shard: Shard,
    regularization: FloatArray | float,
    linear: FloatArray | float = 0.0,
    tolerance: float = 1e-9,
) -> FloatArray:
    """The minimiser of F for each problem of a shard, (..., d).

    ``regularization`` (...) is on the sum scale and positive; ``tolerance`` bounds the 2-norm of F's gradient at the
    answer, hence the distance to the minimiser by tolerance / regularization.

    Raises InvalidInputError when the regularization is not positive, the curvature of the loss has no bound, or a
    problem does not converge.
    """
    strength = np.broadcast_to(np.asarray(regularization, dtype=np.float64), shard.X.shape[:-2])
    if not bool(np.all(strength > 0)):
        raise InvalidInputError("regularization must be positive")
    check_smooth(loss)
    risk = Risk(loss, shard, strength, linear)
    weights: FloatArray = np.zeros((*strength.shape, shard.n_features))
    for _ in range(_MAX_STEPS):
        gradient = risk.gradient(weights)
        solved = np.linalg.norm(gradient, axis=-1) <= tolerance
        if bool(solved.all()):
            return weights
        newton = -np.asarray(np.linalg.solve(risk.hessian(weights), gradient[..., None]))[..., 0]
        step: FloatArray = np.where(solved[..., None], 0.0, newton)
        weights = _descend(risk, weights, step, np.asarray((gradient * step).sum(axis=-1)))
    raise InvalidInputError(f"the minimisation did not reach a gradient of {tolerance:g} in {_MAX_STEPS} Newton steps")


def check_smooth(loss: Loss) -> None:
    """Raise InvalidInputError unless the curvature of the loss has a bound."""
    if not math.isfinite(loss.smoothness):
        raise InvalidInputError("Newton's method needs a loss of bounded curvature: 'huber', not 'hinge'")


def _descend(risk: Risk, weights: FloatArray, step: FloatArray, descent: FloatArray) -> FloatArray:
    """A Newton step for each problem, halved until F falls enough (Armijo) or rounding is all that is left."""
    value = risk.value(weights)
    slack = 1e-12 * np.maximum(np.abs(value), 1.0)
    rate = np.ones_like(value)
    candidate = weights + step
    for _ in range(_MAX_HALVINGS):
        short = risk.value(candidate) > value + _SUFFICIENT_DECREASE * rate * descent + slack
        if not bool(short.any()):
            break
        rate = np.where(short, rate / 2, rate)
        candidate = weights + rate[..., None] * step
    return candidate
