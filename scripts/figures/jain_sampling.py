"""What Jain & Thakurta's figures measure of samples from the simplex: accuracies and excess risk on Cod-RNA.

Rows are those of the max norm, in [-1, 1], with an intercept. The loss is the squared one; epsilon 10, delta .001.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import binom

from parley.common.arrays import FloatArray
from parley.common.data.sparse import SparseShard
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Huber, Squared
from parley.common.learning.metrics import accuracy, fitness
from parley.common.learning.model import Model
from parley.common.learning.simplex import SimplexProblem, gradient_near_minimiser, log_theta, theta_near_minimiser
from parley.common.privacy.calibration import Calibration, gaussian_delta
from parley.common.privacy.mechanisms.sampling import SimplexSampling, best_sampling, range_of_a_draw, sampling
from parley.common.privacy.noise import SeededNoise
from scripts.figures.jain_data import some, split
from scripts.figures.jain_runs import DELTA, ENTRIES

EPSILON = 10.0
LOSS = Squared()
CALIBRATIONS: tuple[Calibration, ...] = ("tight", "paper")
_FREE = 0.05
_NEAR = 1e-4
_STRENGTHS = (1e5, 1e4)
_LONG = 100.0


def sampled(columns: int, scale: float, strength: float, run: int) -> dict[str, float | None]:
    """Accuracies on test rows of the minimiser over R times the simplex, and of private samples from it.

    ``strength`` is the paper's lambda, n times that of the mean loss. None where not one draw is allowed.
    """
    train, test = split("cod-rna", run, "max", columns)
    problem = problem_of(train, scale, strength)
    accuracies: dict[str, float | None] = {"non-private": accuracy(_minimiser(problem, train), test)}
    for calibration in CALIBRATIONS:
        try:
            site = sampling(problem, EPSILON, DELTA, calibration)
        except InvalidInputError:
            accuracies[calibration] = None
        else:
            accuracies[calibration] = accuracy(drawn(site, train, [14, run]), test)
    return accuracies


def sampled_excess(columns: int, n: int, scale: float, runs: int) -> dict[str, Any]:
    """The excess risk of samples over the minimiser with a twentieth of the entropy, in each run; and its bound.

    On the first n training rows; lambda is that whose bound is least, by tight noise.
    """
    train, _ = split("cod-rna", 0, "max", columns)
    train = some(train, np.arange(min(n, len(train.y))))
    site = best_sampling(problem_of(train, scale, 1.0), EPSILON, DELTA, "tight")
    free = problem_of(train, scale, _FREE * site.problem.strength)
    least = fitness(LOSS, _minimiser(free, train), train, 0.0)
    weights = theta_near_minimiser(site.problem, train, site.error)
    models = [_model(site, weights, [15, run]) for run in range(runs)]
    excess = [fitness(LOSS, model, train, 0.0) - least for model in models]
    return {"excess": excess, "bound": site.excess, "draws": site.draws}


def prescribed(sizes: list[int], columns: int, epsilon: float, delta: float) -> list[float]:
    """The number of draws m by Theorem 4's own lambda at each n, with R = 1 and curvature 2, as it is printed."""
    strengths = [(n**2 / (epsilon * math.log(columns))) ** (1 / 3) for n in sizes]
    return [_printed(epsilon, delta, strength, n, 2.0, 1.0) for n, strength in zip(sizes, strengths, strict=True)]


def _printed(epsilon: float, delta: float, strength: float, n: int, curvature: float, scale: float) -> float:  # noqa: PLR0913, PLR0917
    """Theorem 3's number of draws for a delta as it is printed, without the factor L R."""
    return (epsilon * strength / math.log(1 / delta) / (32 + 16 * n * scale**2 * curvature / strength)) ** 2


def audits() -> list[float]:
    """The delta of what Theorem 3 and equation (4) promise, by enumeration or in closed form, over the delta promised.

    Theorem 3 at L R = 1: the largest delta of any laws whose ratio lies in the range of a draw, at several lambda. At
    L R = 100: the delta of two data sets. One of ten rows is not zeros, has 1 in half of the columns and -1 in the
    others, and a label of 1 or -1. Huber's loss has slope -1 there, so that the draws are coins whose two sides have
    chances in the ratio of e^(2 R / lambda), for the one, and of its inverse. Equation (4): noise of its deviation for
    two opposite rows of an objective of vanishing curvature, where it is noise on a sum that moves by 2.
    """
    epsilon, delta = 1.0, 1e-5
    of_range = []
    for strength in _STRENGTHS:
        problem = SimplexProblem(Huber(), 1_000, 10, 10, 1.0, strength)
        m = math.floor(_printed(epsilon, delta, strength, 1_000, problem.loss.smoothness, 1.0))
        of_range.append(_delta_of_coins(m, range_of_a_draw(problem), epsilon) / delta)
    printed = math.floor(_printed(epsilon, delta, _STRENGTHS[0], 10, Huber().smoothness, _LONG))
    exact = _delta_of_coins(printed, 4 * _LONG / _STRENGTHS[0], epsilon) / delta
    tilts = [gaussian_delta(1.0, 1 / math.sqrt(math.log(1 / each) + 1)) / each for each in (delta, 1e-9)]
    return [max(of_range), exact, *tilts]


def _delta_of_coins(draws: int, spread: float, epsilon: float) -> float:
    """The delta of so many coins whose logit is half of the spread, against their opposites: counts are binomial."""
    counts, chance = np.arange(draws + 1), 1 / (1 + math.exp(spread / 2))
    one, other = binom.logpmf(counts, draws, 1 - chance), binom.logpmf(counts, draws, chance)
    return float((np.exp(one) * np.maximum(-np.expm1(epsilon + other - one), 0)).sum())


def problem_of(train: SparseShard, scale: float, strength: float) -> SimplexProblem:
    """The problem on these rows; ``strength`` is lambda on the sum scale."""
    return SimplexProblem(LOSS, len(train.y), train.n_features, ENTRIES["cod-rna"], scale, strength)


def drawn(site: SimplexSampling, train: SparseShard, seed: list[int]) -> Model:
    """Return a model of a site's draws."""
    return _model(site, theta_near_minimiser(site.problem, train, site.error), seed)


def _model(site: SimplexSampling, theta: tuple[Any, Any], seed: list[int]) -> Model:
    which = SeededNoise(seed).categorical(theta[0], theta[1], site.draws)
    plus, minus = np.bincount(which, minlength=2 * site.problem.n_features).reshape(2, -1) / site.draws
    return Model(site.problem.scale * (plus - minus))


def _minimiser(problem: SimplexProblem, train: SparseShard) -> Model:
    error = 2 * problem.condition * _NEAR  # theta is that near in the 1-norm
    theta: FloatArray = np.exp(log_theta(problem, gradient_near_minimiser(problem, train, error)))
    plus, minus = theta / theta.sum()
    return Model(problem.scale * (plus - minus))
