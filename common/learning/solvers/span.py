"""Stacks of small problems of `common.learning.erm`, each in the span of its rows: n unknowns a score instead of d.

Where F's gradient is zero, w = X^T a - linear / Lambda with n numbers a for each score. The scores are then G a + o,
with the Gram matrix G = X X^T and o = -X linear / Lambda, and F's gradient is X^T r with r = slopes + Lambda a. Of one
score Newton's step for a is

    -(Lambda + C G)^-1 r,        C the rows' curvatures, a diagonal,

for X^T times it solves Newton's equation for w; the matrix has an inverse whatever the rank of G is. Of K scores the
softmax's curvature is diag(p) - p p^T in each row. With P_k the probabilities of class k, a diagonal, the classes are
coupled by m = sum_k P_k G step_k alone:

    step_k = (Lambda + P_k G)^-1 (P_k m - r_k).

The r_k add up to zero, and so do the steps, which is what m follows from: K systems of n unknowns and one more, instead
of one of K n (as in Rasmussen & Williams 2006, "Gaussian Processes for Machine Learning", Algorithm 3.3).

Every problem ends by itself, and those of one size are solved together, without padding: so a party's weights are the
same, to the bit, whoever is beside it. They end far below the tolerance, for what rounding may do all the same is then
lost on the grid of weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import softmax

from common.arrays import BoolArray, FloatArray

if TYPE_CHECKING:
    from common.data.shard import Shard
    from common.learning.losses import Loss

_MAX_NEWTON = 100
_MAX_HALVINGS = 40
_SUFFICIENT_DECREASE = 1e-4
_FAR_BELOW = 2.0**-10
_WORTH = 8  # measured: the least of what n^2 / d is where conjugate gradients are faster for K scores


def are_few(loss: Loss, shard: Shard) -> BoolArray:
    """Whether examples are so few that their span is the faster way, (...), for each party by its own alone."""
    n, d = shard.n_examples, shard.n_features
    return np.asarray(n < d if loss.outputs == 1 else (n < d) & (n**2 < _WORTH * d))


def minimise_in_span(
    loss: Loss, shard: Shard, regularization: FloatArray, linear: FloatArray, tolerance: float
) -> FloatArray:
    """Weights shaped like ``linear``, (..., d) or (..., K, d), at F's minimiser where `are_few`.

    The other problems' are zeros. ``regularization`` (...) is on the sum scale and positive. F's gradient is far
    shorter than ``tolerance`` but where Newton's method gets no further, which the caller has to look at.
    """
    (n, d), strength = shard.X.shape[-2:], regularization.reshape(-1)
    X, y, mask = shard.X.reshape(-1, d), shard.y.reshape(-1), shard.mask.reshape(-1)
    shift = linear.reshape(len(strength), loss.outputs, d) / strength[:, None, None]
    few, sizes = are_few(loss, shard).reshape(-1), shard.n_examples.reshape(-1)
    weights = np.where(few[:, None, None], 0.0 - shift, 0.0)
    for size in np.unique(sizes[few & (sizes > 0)]).tolist():
        same = few & (sizes == size)
        rows = np.flatnonzero(mask & np.repeat(same, n)).reshape(-1, size)
        own = X[rows]
        gram, offset = own @ np.swapaxes(own, -1, -2), -own @ np.swapaxes(shift[same], -1, -2)
        found = _Problems(loss, gram, y[rows], strength[same], offset).solved(tolerance * _FAR_BELOW)
        weights[same] += np.swapaxes(found, -1, -2) @ own
    return weights.reshape(linear.shape)


@dataclass(frozen=True, slots=True, eq=False)
class _Problems:
    """m problems of n rows: ``gram`` (m, n, n), labels (m, n), ``strength`` (m,), ``offset`` (m, n, K)."""

    loss: Loss
    gram: FloatArray
    y: FloatArray
    strength: FloatArray
    offset: FloatArray

    def solved(self, tolerance: float) -> FloatArray:
        """The unknowns (m, n, K) where the gradient is no longer than the tolerance, or gets no shorter."""
        solution = np.zeros_like(self.offset)
        problems, which, found = self, np.arange(len(solution)), solution
        value, residual = problems.value(found), problems.residual(found)
        length = problems.length(residual)
        active = length > tolerance
        for _ in range(_MAX_NEWTON):
            if not bool(active.any()):
                break
            if not bool(active.all()):
                problems, which = problems.some(active), which[active]
                found, value, residual, length = found[active], value[active], residual[active], length[active]
            found, reached = problems.descend(found, value, residual)
            residual, before = problems.residual(found), length
            length = problems.length(residual)
            active = (length > tolerance) & ((reached < value) | (length < before))
            solution[which], value = found, reached
        return solution

    def some(self, which: BoolArray) -> _Problems:
        """Some of the problems, (m,)."""
        own = (self.gram[which], self.y[which], self.strength[which], self.offset[which])
        return _Problems(self.loss, *own)

    def value(self, found: FloatArray) -> FloatArray:
        """F but for what depends on the linear term alone, (m,)."""
        scores = self.gram @ found
        losses = self.loss.value(self._given(scores + self.offset), self.y).sum(axis=-1)
        return np.asarray(losses + self.strength / 2 * (found * scores).sum(axis=(-2, -1)))

    def residual(self, found: FloatArray) -> FloatArray:
        """What X^T times is F's gradient, (m, n, K)."""
        slopes = self.loss.slope(self._given(self.gram @ found + self.offset), self.y).reshape(found.shape)
        return np.asarray(slopes + self.strength[:, None, None] * found)

    def length(self, residual: FloatArray) -> FloatArray:
        """The 2-norm of F's gradient, (m,)."""
        squared = (residual * (self.gram @ residual)).sum(axis=(-2, -1))
        return np.asarray(np.sqrt(np.maximum(squared, 0.0)))

    def step(self, found: FloatArray, residual: FloatArray) -> FloatArray:
        """Newton's step, (m, n, K)."""
        scores = self._given(self.gram @ found + self.offset)
        bends = self.loss.curvature(scores, self.y)[..., None] if self.loss.outputs == 1 else softmax(scores, axis=-1)
        bends, residual = (np.swapaxes(part, -1, -2)[..., None] for part in (bends, residual))  # (m, K, n, 1)
        systems = bends * self.gram[:, None]
        np.einsum("...ii->...i", systems)[...] += self.strength[:, None, None]
        if self.loss.outputs == 1:
            step = -_solved(systems, residual)
        else:
            inverses = _solved(systems, np.broadcast_to(np.eye(systems.shape[-1]), systems.shape))
            alone, by_mean = inverses @ -residual, inverses * np.swapaxes(bends, -1, -2)
            step = alone - by_mean @ _solved(by_mean.sum(axis=1), alone.sum(axis=1))[:, None]
        return np.swapaxes(step[..., 0], -1, -2)

    def descend(self, found: FloatArray, value: FloatArray, residual: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Unknowns a Newton step further, halved until F falls enough (Armijo), and F there."""
        step = self.step(found, residual)
        descent = (residual * (self.gram @ step)).sum(axis=(-2, -1))
        enough = value + 1e-12 * np.maximum(np.abs(value), 1.0)
        rate = np.ones_like(value)
        for _ in range(_MAX_HALVINGS):
            candidate = found + rate[:, None, None] * step
            reached = self.value(candidate)
            short = reached > enough + _SUFFICIENT_DECREASE * rate * descent
            if not bool(short.any()):
                break
            rate = np.where(short, rate / 2, rate)
        return candidate, reached

    def _given(self, scores: FloatArray) -> FloatArray:
        """Scores (m, n, K) as the loss takes them."""
        return scores[..., 0] if self.loss.outputs == 1 else scores


def _solved(systems: FloatArray, sides: FloatArray) -> FloatArray:
    """Solutions of systems (m, ..., n, n); zeros for a problem, and for no other, that rounding leaves without one."""
    try:
        return np.asarray(np.linalg.solve(systems, sides))
    except np.linalg.LinAlgError:
        if len(systems) == 1:
            return np.zeros_like(sides)
        half = len(systems) // 2
        return np.concatenate([_solved(systems[:half], sides[:half]), _solved(systems[half:], sides[half:])])
