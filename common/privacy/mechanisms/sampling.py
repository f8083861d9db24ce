"""Sampling: draws from the entropy-regularised minimiser over a simplex, whose counts are the release.

Jain & Thakurta, ICML 2014, Section 4. One record replaced by another moves the gradient of the sum of losses by 2 L R
in each signed column at most; theta's move t adds to that. As entropy is strongly convex, t is at most 2 L R / lambda
in the 1-norm, which makes 2 L R a, a = n c R^2 / lambda; and as gradients are cocoercive, 2 L R |t| - lambda |t|^2
bounds the square of the gradient's move over n c R^2, which makes L R sqrt(a). So log theta_j less that of a neighbour
lies, over all j, in a range of at most

    (L R / lambda) (4 + min(4 a, 2 sqrt(a))),

and twice the range of the solver's error more: a `DrawEvent`. The same holds of a person replaced by another, whose
rows' weights add up to at most 1 (`parley.common.data.weighing`): the gradient of a person is the rows' mean by these
weights, so no longer than L R in a column, and the sum of all persons' losses is n c R^2-smooth as before. ``"tight"``
makes as many draws as fit the budget together (`parley.common.privacy.draws`). ``"paper"`` makes as many as Theorem 3
has, the larger of

    (epsilon lambda / (L R)) / (4 + 2 a)  and, for a delta,  ((epsilon lambda / (L R log(1/delta))) / (32 + 16 a))^2,

but no more than ``"tight"``. The paper prints the second without the factor L R: where L R > 1 those are more draws
than its proof supports, so it is included here. The paper counts a draw as u = (L R / lambda) (4 + 2 a), at least half
of the range above. So draws by the second are m (2 u)^2 / 8 = (epsilon / log(1/delta))^2 / 128-zCDP at most, which
keeps to epsilon and delta unless epsilon is very large; where it does not, or a is so small that the first is more than
the range allows, ``"tight"`` is the limit.

Draws are integers and exact (`parley.common.privacy.draws`), given floats for theta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from parley.common.arrays import IntArray
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Loss, check_single_score
from parley.common.learning.simplex import SimplexProblem
from parley.common.privacy.calibration import Calibration, check_epsilon
from parley.common.privacy.draws import most_draws
from parley.common.privacy.events import DrawEvent

MOST_COUNTED = 2**20
"""The largest number of draws: it reveals theta to a thousandth of R."""
_ERROR = 1e-3
_STRENGTHS = 1e-9, 1e6  # of lambda, on the mean loss
_NARROWINGS = 50
_MOST_STRENGTH = 1e9


@dataclass(frozen=True, slots=True)
class SimplexSampling:
    """The mechanism for a site: ``draws`` draws of ``spread`` each, from logarithms within a range of ``error``."""

    problem: SimplexProblem
    error: float
    spread: float
    draws: int
    pure: float
    """The cost of one draw by itself, as the calibration counts it."""

    @property
    def event(self) -> DrawEvent:
        """The event of all draws together."""
        return DrawEvent(self.spread, self.draws)

    @property
    def excess(self) -> float:
        """A bound on the excess risk, expected over the draws, over all weights of R times the simplex (Theorem 4).

        Entropies lie within log 2d, so that lambda costs at most lambda log 2d; the mean of m draws of +-R columns
        moves each score by a variance of at most R^2 / m, and so the loss by L R / sqrt(m) or c R^2 / 2m. Infinite if
        there is no draw.
        """
        if not self.draws:
            return math.inf
        problem, variance = self.problem, self.problem.scale**2 / self.draws
        by_noise = min(problem.slope * math.sqrt(variance), problem.loss.smoothness / 2 * variance)
        return problem.strength / problem.n_examples * math.log(2 * problem.n_features) + by_noise


def range_of_a_draw(problem: SimplexProblem) -> float:
    """Return the widest range of log theta_j less that of a neighbour, for the exact minimisers."""
    coupling = problem.condition
    return _reach(problem) * (4 + min(4 * coupling, 2 * math.sqrt(coupling)))


@lru_cache(maxsize=4096)
def sampling(problem: SimplexProblem, epsilon: float, delta: float, calibration: Calibration) -> SimplexSampling:
    """Set sampling for a site.

    Raises:
        InvalidInputError: the loss has several scores or kinks, no draw fits the budget, or no solver surely is near
            enough; the message names the least lambda, of the mean loss, with which both hold.
    """
    check_epsilon(epsilon)
    check_smooth_score(problem.loss)
    if problem.n_examples < 1:
        raise InvalidInputError("a site without examples has no model to release")
    site = allowed(problem, epsilon, delta, calibration)
    if not site.draws or not problem.is_solvable(site.error):
        least = _least_regularization(problem, epsilon, delta, calibration)
        where = f"at scale = {problem.scale:g}"
        reason = (
            f"regularization is too small: no solver surely is near enough {where}"
            if site.draws
            else f"epsilon is too small: not one draw fits {epsilon:g}, delta = {delta:g} {where}, as one costs up to "
            f"{site.pure:.3g}"
        )
        raise InvalidInputError(f"{reason}; with regularization = {least:.3g} one would" if least else reason)
    return site


def check_smooth_score(loss: Loss) -> None:
    """Raise InvalidInputError for a loss of several scores or kinks."""
    check_single_score(loss)
    if not math.isfinite(loss.smoothness):
        raise InvalidInputError("sampling from a simplex needs a loss of bounded curvature: 'huber', not 'hinge'")


def allowed(problem: SimplexProblem, epsilon: float, delta: float, calibration: Calibration) -> SimplexSampling:
    """Return as many draws as fit the budget, perhaps none, without checking that a solver exists."""
    exact = range_of_a_draw(problem)
    error = _ERROR * exact
    spread = exact + 2 * error
    proven = min(most_draws(spread, epsilon, delta), MOST_COUNTED)
    if calibration == "tight":
        return SimplexSampling(problem, error, spread, proven, spread)
    draws = math.floor(min(draws_of_theorem_3(problem, epsilon, delta), proven))
    return SimplexSampling(problem, error, spread, draws, _epsilon_of_a_draw(problem))


def encode_draws(drawn: IntArray, width: int, vertices: int) -> IntArray:
    """Encode draws as an answer: counts (vertices,), or the sorted vertices (width,), counted from 1, after zeros."""
    if width == vertices:
        return np.bincount(drawn, minlength=vertices)
    return np.concatenate([np.zeros(width - len(drawn), np.int64), np.sort(drawn) + 1])


def counts_of(answer: IntArray, vertices: int) -> IntArray:
    """Decode the counts (vertices,) from an answer of `encode_draws`, for every array that a party may have sent."""
    if len(answer) == vertices:
        return np.maximum(answer, 0)
    return np.bincount(np.clip(answer, 0, vertices), minlength=vertices + 1)[1:]


def best_sampling(problem: SimplexProblem, epsilon: float, delta: float, calibration: Calibration) -> SimplexSampling:
    """Return the sampling whose bound on the excess risk is least over lambda, which replaces the problem's own."""

    def of(log_strength: float) -> SimplexSampling:
        return allowed(replace(problem, strength=math.exp(log_strength)), epsilon, delta, calibration)

    def excess(log_strength: float) -> float:
        site = of(log_strength)
        return site.excess if site.problem.is_solvable(site.error) else math.inf

    low, high = (math.log(bound * problem.n_examples) for bound in _STRENGTHS)
    for _ in range(_NARROWINGS):
        lower, upper = (2 * low + high) / 3, (low + 2 * high) / 3
        low, high = (low, upper) if excess(lower) < excess(upper) else (lower, high)
    return of(high)


def draws_of_theorem_3(problem: SimplexProblem, epsilon: float, delta: float) -> float:
    """Return Theorem 3's number of draws m, a fraction below 1 where it allows none, with the factor L R in both."""
    by_sum = epsilon / _epsilon_of_a_draw(problem)
    return max(by_sum, (by_sum / (8 * math.log(1 / delta))) ** 2) if delta else by_sum


def _epsilon_of_a_draw(problem: SimplexProblem) -> float:
    """Return the pure epsilon that the paper counts for a draw, (L R / lambda) (4 + 2 a)."""
    return _reach(problem) * (4 + 2 * problem.condition)


def _reach(problem: SimplexProblem) -> float:
    """Return L R / lambda."""
    return problem.slope * problem.scale / problem.strength


def _least_regularization(
    problem: SimplexProblem, epsilon: float, delta: float, calibration: Calibration
) -> float | None:
    """Return about the least lambda of the mean loss, in three digits, that allows a draw; None above 1e9."""

    def allows(strength: float) -> bool:
        stronger = replace(problem, strength=strength)
        site = allowed(stronger, epsilon, delta, calibration)
        return site.draws > 0 and stronger.is_solvable(site.error)

    high = problem.strength
    while not allows(high):
        high *= 2
        if high > _MOST_STRENGTH * problem.n_examples:
            return None
    low = high / 2
    while high / low > 1.004:  # noqa: PLR2004 -- three digits
        middle = math.sqrt(low * high)
        low, high = (low, middle) if allows(middle) else (middle, high)
    return float(f"{high / problem.n_examples * 1.005:.3g}")
