"""The entropy-regularised minimiser over R times the simplex of signed columns, and how near it a solver surely comes.

Weights are w = R (theta+ - theta-), theta on the simplex of the 2d columns x and -x, |x_j| <= 1. The problem, lambda on
the sum scale:

    J(theta) = sum_i a_i loss(w.x_i, y_i) + lambda sum_j theta_j log theta_j

with the rows' weights a_i (`parley.common.data.weighing`): 1, or of a person's rows at most 1 together. Its minimiser
has theta* proportional to exp(-R v / lambda) and exp(R v / lambda), v = sum_i a_i slope_i x_i at its scores. So d
numbers v stand for theta, and J is least where v is the gradient g(v) of the sum of losses. That is solved by Newton's
method: (I + B C) step = g(v) - v, where C is the covariance of signed columns under theta times R^2 / lambda and B the
Hessian of the sum; B C is self-adjoint in the product of C, so that conjugate gradients find the step.

*How near*, for any rows. The sum is M = n c R^2-smooth in the 1-norm, and entropy 1-strongly convex (Pinsker).
With a = M / lambda the damped step v <- v + (g(v) - v) / (1 + a) is mirror descent: D(theta*, theta) falls by the
factor a / (1 + a), D the relative entropy (Lu, Freund & Nesterov, "Relatively Smooth Convex Optimization by
First-Order Methods and Applications", 2018). If g is off by at most r in a coordinate, (M + lambda) D' <= M D + R r
sqrt(2 D'); so while sqrt(2 D) exceeds 4 R r / lambda, D falls by a / (a + 1/2). A public number of such steps follows
Newton's, unless it is known sooner that v is near: log theta and log theta(g(v)) differ by a range of at most
s = 2 R |g(v) - v|_max / lambda, hence J(theta) - J* <= lambda D(theta, theta(g)) <= lambda s^2 / 8 and |theta -
theta*|_1 <= s / 2. Either way the last g is within n c R |theta - theta*|_1 of v* in each coordinate, and what it makes
of theta within a range of 2 a |theta - theta*|_1 of log theta*.

Where no row has an entry, v is 0. So the columns that occur are solved for, and the others counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard, rows_of_a_block
from parley.common.data.sparse import SparseShard, in_occurring_columns
from parley.common.learning.losses import Loss, slope_within

_U = 2.0**-53
_MOST_STEPS = 10**5
_NEWTON, _CONJUGATE, _HALVINGS = 60, 400, 30
_FORCING = 0.05
_SURELY = 0.75  # what is computed of a distance is off by a quarter of `near` at most, by `steps`


@dataclass(frozen=True, slots=True)
class SimplexProblem:
    """Public numbers of a problem: the loss, n examples of d columns with so many ``entries`` each, R, and lambda.

    An example has at most ``most_rows`` rows, whose weights add up to at most 1.
    """

    loss: Loss
    n_examples: int
    n_features: int
    entries: int
    scale: float
    strength: float
    most_rows: int = 1

    @property
    def slope(self) -> float:
        """L: the largest slope of the loss at scores of at most R; it is finite for every loss."""
        return slope_within(self.loss, self.scale)

    @property
    def condition(self) -> float:
        """The ratio a = n c R^2 / lambda."""
        return self.n_examples * self.loss.smoothness * self.scale**2 / self.strength

    @property
    def range(self) -> float:
        """The widest that the logarithms of theta can be apart: 2 R n L / lambda."""
        return 2 * self.scale * self.n_examples * self.slope / self.strength

    def rounding(self) -> float:
        """Return the most by which rounding moves a coordinate of g.

        A score of m products is off by (m + 2) u R, and theta, whose exponents are up to `range`, by as many u; a slope
        by c times that and some u; a sum of rows by as many u as are added in blocks. Their weights add up to n.
        """
        n, n_rows = float(self.n_examples), self.n_examples * self.most_rows
        rows = min(n_rows, rows_of_a_block(self.n_features))
        added = rows + n_rows / max(rows, 1) + 8
        of_score = (self.entries + self.n_features**0.5 + 4 * self.range + 16) * self.scale
        return float(2 * _U * n * (self.loss.smoothness * of_score + (8 + added) * self.slope))

    def steps(self, error: float) -> int:
        """Return how many damped steps surely bring log theta within a range of ``error``, if `is_solvable`."""
        first = 2 * self.range + math.log(2 * self.n_features)  # at least sqrt(2 D) of any start that is clipped
        steps = 2 * math.log(max(first / self.near(error), 1.0)) / math.log1p(1 / (2 * self.condition))
        return math.ceil(steps) + 1

    def is_solvable(self, error: float) -> bool:
        """Return whether a solver surely reaches this ``error`` despite rounding, in at most ``_MOST_STEPS`` steps."""
        surely = self.near(error) >= 4 * self.scale * self.rounding() / self.strength
        return surely and self.steps(error) <= _MOST_STEPS

    def near(self, error: float) -> float:
        """Return how near theta must be in the 1-norm for log theta of its gradient to be within ``error``."""
        rounded = 2 * self.scale * self.rounding() / self.strength + 8 * _U * (self.range + 8)
        return (error - rounded) / (2 * self.condition)


def gradient_near_minimiser(problem: SimplexProblem, shard: Shard, error: float) -> FloatArray:
    """Return one party's gradient g (d,) whose theta has logarithms within a range of ``error`` of the minimiser's."""
    rows, columns = in_occurring_columns(SparseShard.of(shard))
    wide = np.zeros(problem.n_features)
    wide[columns] = _in_columns(_SimplexRisk(problem, rows), error)
    return wide


def _in_columns(risk: _SimplexRisk, error: float) -> FloatArray:
    """Return the gradient of `gradient_near_minimiser` in the columns that occur."""
    problem = risk.problem
    bound = problem.n_examples * problem.slope
    near, steps = problem.near(error), problem.steps(error)
    v = np.clip(_by_newton(risk, near), -bound, bound)
    for _ in range(steps):
        g = risk.gradient(v)
        if risk.apart(g, v) <= _SURELY * near:
            return g
        v = v + (g - v) / (1 + problem.condition)
    return risk.gradient(v)


def theta_near_minimiser(problem: SimplexProblem, shard: Shard, error: float) -> tuple[IntArray, IntArray]:
    """Return theta near the minimiser up to a factor, of x, then of -x, as mantissas and exponents (2d,).

    With exponents of their own, no entry is too small for a float.
    """
    powers = log_theta(problem, gradient_near_minimiser(problem, shard, error)).reshape(-1) / math.log(2)
    exponents = np.floor(powers)
    mantissas = np.minimum(np.trunc(np.exp2(powers - exponents) * 2.0**52), 2.0**53 - 1)
    return mantissas.astype(np.int64), exponents.astype(np.int64)


def log_theta(problem: SimplexProblem, v: FloatArray) -> FloatArray:
    """Return the logarithms (2, d) of theta, of x and of -x, up to a constant: the largest is 0."""
    exponents = _exponents(problem, v)
    return np.asarray(exponents - exponents.max())


def _exponents(problem: SimplexProblem, v: FloatArray) -> FloatArray:
    """Return the logarithms (2, d) of theta beside that of a column without entries, 0."""
    return np.stack([v, -v]) * (-problem.scale / problem.strength)


@dataclass(frozen=True, slots=True, eq=False)
class _SimplexRisk:
    """J for one party's examples, by v in the columns that occur in them; the shard has no others."""

    problem: SimplexProblem
    shard: Shard

    def theta(self, v: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return ``(logs, theta, least)`` up to a factor: (2, d) of x and -x, and the log of a column without entries.

        Both are taken by NumPy, to whom nothing is an error: a theta that is too small for a float is 0.
        """
        exponents = _exponents(self.problem, v)
        largest = exponents.max(initial=0.0)
        return exponents - largest, np.exp(exponents - largest), -largest

    def total(self, theta: FloatArray, others: float) -> float:
        """Return the sum over all 2d; each of a column without entries is ``others``."""
        return float(theta.sum() + 2 * (self.problem.n_features - theta.shape[1]) * others)

    def weights(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``(p, q)``: theta+ + theta- and theta+ - theta-, (d,) each; w = R q."""
        _, theta, least = self.theta(v)
        plus, minus = theta
        total = self.total(theta, np.exp(least))
        return (plus + minus) / total, (plus - minus) / total

    def scores(self, v: FloatArray) -> FloatArray:
        """Return the scores (n,) of the weights that v stands for."""
        return self._scores(self.problem.scale * self.weights(v)[1])

    def gradient(self, v: FloatArray) -> FloatArray:
        """Return the gradient (d,) of the sum of losses there."""
        slopes = self.problem.loss.slope(self.scores(v), self.shard.y)
        return self._weighted_sum(self.shard.weights * slopes)

    def value(self, v: FloatArray) -> float:
        """Return J there: entropy is the mean of log theta."""
        logs, theta, least = self.theta(v)
        others = np.exp(least)
        total = self.total(theta, others)
        entropy = self.total(theta * logs, others * least) / total - np.log(total)
        losses = self.problem.loss.value(self.scores(v), self.shard.y)
        return float((self.shard.weights * losses).sum() + self.problem.strength * entropy)

    def apart(self, g: FloatArray, v: FloatArray) -> float:
        """Return the most that theta(v) may be apart from the minimiser in the 1-norm: s / 2."""
        return self.problem.scale * float(np.abs(g - v).max(initial=0.0)) / self.problem.strength

    def newton(self, v: FloatArray, residual: FloatArray) -> FloatArray:
        """Return the step (d,) that conjugate gradients find in the product of C."""
        p, q = self.weights(v)
        curvature = self.problem.loss.curvature(self.scores(v), self.shard.y)
        bend = self.shard.weights * curvature
        spread = self.problem.scale**2 / self.problem.strength

        def moved(step: FloatArray) -> FloatArray:
            return np.asarray(spread * (p * step - q * (q @ step)))

        step, first = np.zeros_like(v), residual
        direction, covered = residual, moved(residual)
        size = float(residual @ covered)
        enough = _FORCING**2 * min(size, 1.0) * size
        for _ in range(_CONJUGATE):
            if not size > enough:
                break
            bent = direction + self._weighted_sum(bend * self._scores(covered))
            rate = size / (covered @ bent)  # by NumPy, as in `theta`
            step = step + rate * direction
            residual = residual - rate * bent
            fresh = moved(residual)
            following = float(residual @ fresh)
            direction, covered = residual + following / size * direction, fresh + following / size * covered
            size = following
        return step if step.any() else first  # where theta has no part, the residual is the step

    def _scores(self, weights: FloatArray) -> FloatArray:
        return self.shard.scores(weights[None])[..., 0]

    def _weighted_sum(self, slopes: FloatArray) -> FloatArray:
        """Return the sum over the rows, in blocks of those that `SimplexProblem.rounding` counts with."""
        total, most = np.zeros(self.shard.n_features), rows_of_a_block(self.problem.n_features)
        for start in range(0, len(slopes), most):
            rows = slice(start, start + most)
            total += self.shard.view(rows).weighted_sum(slopes[rows, None])[0]
        return total


def _by_newton(risk: _SimplexRisk, near: float) -> FloatArray:
    """Return the v where Newton's method ends, from a uniform theta; as a rule it is near the gradient there."""
    v = np.zeros(risk.shard.n_features)
    value, g = risk.value(v), risk.gradient(v)
    with np.errstate(all="ignore"):  # a step that leads out of the numbers is none, and no warning reports it
        for _ in range(_NEWTON):
            if risk.apart(g, v) <= _SURELY * near:
                break
            step, rate = risk.newton(v, g - v), 1.0
            for _ in range(_HALVINGS):
                reached = risk.value(candidate := v + rate * step)
                if reached <= value + 1e-12 * max(abs(value), 1.0):
                    break
                rate /= 2
            else:
                break
            v, value, g = candidate, reached, risk.gradient(candidate)
    return v if bool(np.isfinite(v).all()) else np.zeros_like(v)
