"""Regularised empirical risk minimisation, one problem or thousands at once.

The problem, on the sum scale, for the examples (x_i, y_i) of a shard:

    F(w) = sum_i loss(w.x_i, y_i) + (regularization / 2) |w|^2 + <linear, w>

solved by Newton's method with step halving; where an example has K scores, w is (K, d), and each Newton step is found
by conjugate gradients, which need no matrix of K d rows. Every problem of a stack takes its own steps until its
gradient is small. Examples are reached through their shard's scores and weighted sums alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from common.arrays import FloatArray
from common.data.shard import Shard
from common.errors import InvalidInputError
from common.learning.losses import Loss

_MAX_STEPS = 200
_MAX_HALVINGS = 40
_MAX_CONJUGATE = 1000
_SUFFICIENT_DECREASE = 1e-4
_FORCING = 0.05  # how small a part of the gradient a Newton step by conjugate gradients may leave


@dataclass(frozen=True, slots=True, eq=False)
class Risk:
    """F for one shard or a stack: ``regularization`` (...) on the sum scale, ``linear`` broadcastable to the weights.

    Weights are (..., d), or (..., K, d) for a loss of K scores.
    """

    loss: Loss
    shard: Shard
    regularization: FloatArray
    linear: FloatArray | float = 0.0

    def value(self, weights: FloatArray) -> FloatArray:
        """F at weights, (...)."""
        losses = np.where(self.shard.mask, self.loss.value(self._scores(weights), self.shard.y), 0.0).sum(axis=-1)
        tilt = self.total(self.linear * weights)
        return np.asarray(losses + self.regularization / 2 * self.total(weights**2) + tilt)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """The gradient of F at weights, shaped like them."""
        data = self._weighted_sum(self.loss.slope(self._scores(weights), self.shard.y))
        return data + self.spread(self.regularization) * weights + self.linear

    def hessian(self, weights: FloatArray) -> FloatArray:
        """The Hessian of F at weights (..., d), (..., d, d), of a loss of one score."""
        curvature = np.where(self.shard.mask, self.loss.curvature(self._scores(weights), self.shard.y), 0.0)
        rows = self.shard.scores(np.eye(self.shard.n_features))
        data = self.shard.weighted_sum(rows * curvature[..., None])
        return data + self.regularization[..., None, None] * np.eye(self.shard.n_features)

    def hessian_along(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The product of F's Hessian at weights with directions, both shaped like the weights."""
        scores = self._scores(weights)

        def times(direction: FloatArray) -> FloatArray:
            bent = self.loss.curvature_times(scores, self.shard.y, self._scores(direction))
            return self._weighted_sum(bent) + self.spread(self.regularization) * direction

        return times

    def total(self, terms: FloatArray) -> FloatArray:
        """The sum over the axes of the weights, (...)."""
        return np.asarray(terms.sum(axis=-1) if self.loss.outputs == 1 else terms.sum(axis=(-2, -1)))

    def spread(self, values: FloatArray) -> FloatArray:
        """Values (...) with an axis of length 1 for each axis of the weights."""
        return values[..., None] if self.loss.outputs == 1 else values[..., None, None]

    def _scores(self, weights: FloatArray) -> FloatArray:
        if self.loss.outputs == 1:
            return self.shard.scores(weights[..., None, :])[..., 0]
        return self.shard.scores(weights)

    def _weighted_sum(self, slopes: FloatArray) -> FloatArray:
        if self.loss.outputs == 1:
            return self.shard.weighted_sum(slopes[..., None])[..., 0, :]
        return self.shard.weighted_sum(slopes)


def minimise(
    loss: Loss,
    shard: Shard,
    regularization: FloatArray | float,
    linear: FloatArray | float = 0.0,
    tolerance: float = 1e-9,
) -> FloatArray:
    """The minimiser of F for each problem of a shard, (..., d), or (..., K, d) for a loss of K scores.

    ``regularization`` (...) is on the sum scale and positive; ``tolerance`` bounds the 2-norm of F's gradient at the
    answer, hence the distance to the minimiser by tolerance / regularization.

    Raises InvalidInputError when the regularization is not positive, the curvature of the loss has no bound, or a
    problem does not converge.
    """
    strength = np.broadcast_to(np.asarray(regularization, dtype=np.float64), shard.y.shape[:-1])
    if not bool(np.all(strength > 0)):
        raise InvalidInputError("regularization must be positive")
    check_smooth(loss)
    risk = Risk(loss, shard, strength, linear)
    outputs = () if loss.outputs == 1 else (loss.outputs,)
    weights: FloatArray = np.zeros((*strength.shape, *outputs, shard.n_features))
    for _ in range(_MAX_STEPS):
        gradient = risk.gradient(weights)
        solved = np.sqrt(risk.total(gradient**2)) <= tolerance
        if bool(solved.all()):
            return weights
        newton = _newton(risk, weights, gradient) if loss.outputs == 1 else _newton_cg(risk, weights, gradient)
        step = newton * risk.spread(np.where(solved, 0.0, 1.0))
        weights = _descend(risk, weights, step, risk.total(gradient * step))
    raise InvalidInputError(f"the minimisation did not reach a gradient of {tolerance:g} in {_MAX_STEPS} Newton steps")


def check_smooth(loss: Loss) -> None:
    """Raise InvalidInputError unless the curvature of the loss has a bound."""
    if not math.isfinite(loss.smoothness):
        raise InvalidInputError("Newton's method needs a loss of bounded curvature: 'huber', not 'hinge'")


def _newton(risk: Risk, weights: FloatArray, gradient: FloatArray) -> FloatArray:
    """Newton's step, (..., d), by solving for it."""
    return -np.asarray(np.linalg.solve(risk.hessian(weights), gradient[..., None]))[..., 0]


def _newton_cg(risk: Risk, weights: FloatArray, gradient: FloatArray) -> FloatArray:
    """Newton's step, (..., K, d), to a small part of the gradient; every step of it descends."""
    times = risk.hessian_along(weights)
    step = np.zeros_like(gradient)
    residual = -gradient
    direction, size = residual, risk.total(residual**2)
    enough = _FORCING**2 * np.minimum(size, 1.0) * size
    for _ in range(_MAX_CONJUGATE):
        active = size > enough
        if not bool(active.any()):
            break
        bent = times(direction)
        rate = np.where(active, size / np.where(active, risk.total(direction * bent), 1.0), 0.0)
        step = step + risk.spread(rate) * direction
        residual = residual - risk.spread(rate) * bent
        following = risk.total(residual**2)
        direction = residual + risk.spread(np.where(active, following / np.where(active, size, 1.0), 0.0)) * direction
        size = np.where(active, following, size)
    return step


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
        candidate = weights + risk.spread(rate) * step
    return candidate
