"""A linear classifier from labels in doubt: of each row, what part of the votes each class has.

For votes alpha (n, K), whose rows add up to 1, the risk of Hamm, Cao & Belkin 2016 (Sections 3.2 and 4) is

    J(w) = (1/n) sum_i sum_k alpha_ik loss(w; x_i, k) + (lambda/2) |w|^2.

Of the logistic and the softmax loss, log sum_l exp(w_l.x) - w_k.x, the votes enter by one sum alone, of K rows of d
numbers: G = sum_i alpha_i (x) x_i. Of two classes under a loss of one score it is the second's, d numbers. So the
minimiser is that of the risk of any labels, tilted by what G differs from theirs. Of the Huber loss there is no such
sum: its rows have a label y = 2 alpha - 1 between -1 and +1, on the grid of labels of 2^-16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Logistic, Loss, Softmax

if TYPE_CHECKING:
    from parley.common.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A loss of one score for labels y between -1 and +1: of both classes, as likely as y says."""

    loss: Loss
    outputs: int = 1

    @property
    def lipschitz(self) -> float:
        """The loss's L."""
        return self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        """The loss's c."""
        return self.loss.smoothness

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The mean loss of the two classes, elementwise."""
        one = np.ones_like(y)
        return np.asarray((1 + y) / 2 * self.loss.value(score, one) + (1 - y) / 2 * self.loss.value(score, -one))

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Its derivative by the score, elementwise."""
        one = np.ones_like(y)
        return np.asarray((1 + y) / 2 * self.loss.slope(score, one) + (1 - y) / 2 * self.loss.slope(score, -one))

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Its second derivative, elementwise."""
        one = np.ones_like(y)
        bent = (1 + y) / 2 * self.loss.curvature(score, one) + (1 - y) / 2 * self.loss.curvature(score, -one)
        return np.asarray(bent)

    def curvature_times(self, score: FloatArray, y: FloatArray, direction: FloatArray) -> FloatArray:
        """Its second derivative times a direction, elementwise."""
        return self.curvature(score, y) * direction


def is_linear(loss: Loss) -> bool:
    """Whether soft labels enter the risk of a loss by one sum alone."""
    return isinstance(loss, Logistic | Softmax)


def label_sum(loss: Loss, rows: FloatArray, votes: FloatArray) -> FloatArray:
    """G of rows (n, d) and their votes (n, K): (K, d) for softmax, (d,) of the second class for one score."""
    return np.asarray(votes.T @ rows if loss.outputs > 1 else votes[:, 1] @ rows)


def fit_votes(loss: Loss, rows: FloatArray, votes: FloatArray, regularization: float) -> FloatArray:
    """The minimiser of J for rows (n, d) on the features' grid and votes (n, K): weights (d,) or (K, d)."""
    if is_linear(loss):
        return fit_label_sum(loss, rows, label_sum(loss, rows, votes), regularization)
    doubtful = Shard(rows, np.clip(2 * votes[:, 1] - 1, -1, 1))
    return minimise(Doubtful(loss), doubtful, regularization * len(rows))


def fit_label_sum(loss: Loss, rows: FloatArray, total: FloatArray, regularization: float) -> FloatArray:
    """The minimiser of J for rows (n, d) and G, shaped like the weights.

    Raises InvalidInputError for a loss that is not linear in its labels.
    """
    if not is_linear(loss):
        raise InvalidInputError("labels in doubt enter this loss by no sum: release the counts of votes instead")
    first = Shard(rows, np.full(len(rows), -1.0))  # all of the first class
    tilt = -total
    if loss.outputs > 1:
        tilt[0] += first.X.sum(axis=0)
    return minimise(loss, first, regularization * len(rows), tilt)
