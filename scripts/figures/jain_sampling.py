"""What Jain & Thakurta's figures measure of samples from the simplex: accuracies and excess risk on Cod-RNA.

Rows are those of the max norm, in [-1, 1], with an intercept. The loss is the squared one; epsilon 10, delta .001.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.data.sparse import SparseShard
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Squared
from parley.common.learning.metrics import accuracy, fitness
from parley.common.learning.model import Model
from parley.common.learning.simplex import SimplexProblem, gradient_near_minimiser, log_theta, theta_near_minimiser
from parley.common.privacy.calibration import Calibration
from parley.common.privacy.mechanisms.sampling import SimplexSampling, best_sampling, sampling
from parley.common.privacy.noise import SeededNoise
from scripts.figures.jain_data import some, split
from scripts.figures.jain_runs import DELTA, ENTRIES

EPSILON = 10.0
LOSS = Squared()
CALIBRATIONS: tuple[Calibration, ...] = ("tight", "paper")
_FREE = 0.05
_NEAR = 1e-4


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
