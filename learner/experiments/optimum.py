"""The least fitness that any weights have, with a certificate: what relative fitness (psi) is measured from.

Fitness is the mean loss plus (lambda / 2) |w|^2, as `parley.common.learning.metrics.fitness`.

*The hinge* has no curvature for Newton's method, so its smoothed kin is minimised, Huber's loss of half-width h, for h
ever smaller. Its slopes are a point alpha in [0, 1]^n of the hinge's dual problem (Shalev-Shwartz & Zhang, "Stochastic
Dual Coordinate Ascent Methods for Regularized Loss Minimization", JMLR 2013, eq. 2), and any such point bounds the
least fitness from below:

    mean(alpha) - (lambda / 2) |w(alpha)|^2,    w(alpha) = sum_i alpha_i y_i x_i / (lambda n)

*A smooth loss* with lambda > 0 is within |gradient|^2 / (2 lambda) of its least. *Least squares* need no lambda: the
gradient lies in the span of the rows, on which the curvature is at least the least eigenvalue above 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Hinge, Huber, Loss, Squared
from parley.common.learning.metrics import fitness
from parley.common.learning.model import Model
from parley.common.learning.solvers.risk import Risk

EXACT = 1e-5
_BANDS = (1e-3, 1e-4, 1e-5, 1e-6)
_NOT_ZERO = 1e-10  # eigenvalues below this part of the largest are rounding


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """Weights (d,) of least fitness, their ``fitness``, and the largest part ``gap`` of it that another's is less."""

    model: Model
    fitness: float
    gap: float


def optimum(loss: Loss, shard: Shard, regularization: float, exact: float = EXACT) -> Optimum:
    """The weights of least fitness on one party's examples (n, d), by a loss of one score, to a relative ``exact``.

    Raises InvalidInputError where no certificate is as good, or regularization is 0 and the loss not squared.
    """
    for weights, least in _candidates(loss, shard, regularization):
        reached = fitness(loss, Model(weights), shard, regularization)
        gap = max(reached - least, 0.0) / reached if reached > 0 else 0.0
        if gap <= exact:
            return Optimum(Model(weights), reached, gap)
    raise InvalidInputError(f"no weights are known to be within {exact:g} of the least fitness")


def _candidates(loss: Loss, shard: Shard, regularization: float) -> Iterator[tuple[FloatArray, float]]:
    """Weights, and what the least fitness is at least."""
    if isinstance(loss, Hinge):
        for half_width in _BANDS:
            huber = Huber(half_width)
            weights = minimise(huber, shard, regularization * len(shard.y))
            yield weights, _dual(huber, weights, shard, regularization)
        return
    if isinstance(loss, Squared):
        weights, convexity = _least_squares(shard, regularization)
    else:
        weights, convexity = minimise(loss, shard, regularization * len(shard.y)), regularization
    gradient = Risk(loss, shard, np.asarray(regularization * len(shard.y))).gradient(weights) / len(shard.y)
    yield weights, fitness(loss, Model(weights), shard, regularization) - float(gradient @ gradient) / (2 * convexity)


def _dual(huber: Huber, weights: FloatArray, shard: Shard, regularization: float) -> float:
    """The dual objective of the hinge at the slopes of its smoothed kin."""
    slopes = huber.slope(shard.scores(weights[None])[:, 0], shard.y)
    pulled = shard.weighted_sum(-slopes[:, None])[0] / (regularization * len(shard.y))
    return float(np.abs(slopes).mean() - regularization / 2 * (pulled @ pulled))


def _least_squares(shard: Shard, regularization: float) -> tuple[FloatArray, float]:
    """The shortest of the weights of least fitness, and the least curvature along the rows."""
    n = len(shard.y)
    curvatures, directions = np.linalg.eigh(shard.X.T @ shard.X / n)
    kept = curvatures > _NOT_ZERO * curvatures.max()
    along = directions[:, kept]
    convexity = curvatures[kept] + regularization
    return along @ ((along.T @ (shard.X.T @ shard.y) / n) / convexity), float(convexity.min())
