"""The least fitness of a loss: certified, and what an independent solver finds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Squared
from parley.common.learning.metrics import fitness
from parley.common.learning.model import Model
from scripts.figures.risk_bounds import EXACT, optimum

D = 4


def examples(n: int = 200, *, real: bool = False) -> Shard:
    rng = np.random.default_rng(3)
    X = rng.uniform(-0.5, 0.5, (n, D))
    signal = X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.3 * rng.standard_normal(n)
    return Shard(X, np.clip(signal, -1, 1) if real else np.where(signal > 0, 1.0, -1.0))


@pytest.mark.parametrize("regularization", [1.0, 0.1, 0.001])
@pytest.mark.parametrize("loss", [Hinge(), Huber(), Logistic(), Squared()], ids=lambda loss: type(loss).__name__)
def test_no_weights_are_better_by_more_than_the_gap(loss: Loss, regularization: float) -> None:
    shard = examples(real=isinstance(loss, Squared))
    found = optimum(loss, shard, regularization)
    assert 0 <= found.gap <= EXACT
    assert found.fitness == fitness(loss, found.model, shard, regularization)
    rng = np.random.default_rng(4)
    for length in (1e-4, 1e-2, 1.0):
        near = found.model.weights + length * rng.standard_normal((50, D))
        least = min(fitness(loss, Model(weights), shard, regularization) for weights in near)
        assert least >= found.fitness * (1 - found.gap) - 1e-12


@pytest.mark.parametrize("regularization", [1.0, 0.1, 0.001])
def test_the_hinges_is_that_of_the_dual(regularization: float) -> None:
    """SciPy climbs the box-constrained dual; no point of it lies above the least fitness."""
    shard = examples()
    rows, n = shard.X * shard.y[:, None], len(shard.y)

    def weights_of(alpha: FloatArray) -> FloatArray:
        return np.asarray(alpha @ rows / (regularization * n))

    def dual(alpha: FloatArray) -> float:
        weights = weights_of(alpha)
        return float(n * (regularization / 2 * weights @ weights - alpha.mean()))

    def slope(alpha: FloatArray) -> FloatArray:
        return np.asarray(rows @ weights_of(alpha) - 1)

    climbed = minimize(
        dual, np.full(n, 0.5), jac=slope, bounds=[(0, 1)] * n, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}
    )
    least = -float(climbed.fun) / n
    found = optimum(Hinge(), shard, regularization)
    assert least <= found.fitness + 1e-12
    assert found.fitness <= least * (1 + 2 * EXACT)


def test_least_squares_need_no_regularization() -> None:
    shard = examples(real=True)
    found = optimum(Squared(), shard, 0.0)
    assert found.model.weights == pytest.approx(np.linalg.lstsq(shard.X, shard.y)[0], abs=1e-9)
    twice = Shard(np.repeat(shard.X, 2, axis=1) / 2, shard.y)  # each column twice: a line of weights is as good
    assert optimum(Squared(), twice, 0.0).fitness == pytest.approx(found.fitness, abs=1e-6)


def test_what_has_no_certificate_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="regularization"):
        optimum(Hinge(), examples(), 0.0)
    with pytest.raises(InvalidInputError, match="within 0"):
        optimum(Hinge(), examples(), 0.1, exact=0.0)
