"""The solver against SciPy's, alone and in batches."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Squared
from parley.common.learning.solvers import Risk

SMOOTH = pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), Huber(0.05), Squared()], ids=repr)


def problem(seed: int, n: int, d: int) -> Shard:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return Shard(X / np.linalg.norm(X, axis=1, keepdims=True), np.sign(X @ rng.normal(size=d) + rng.normal(size=n)))


@SMOOTH
@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0, 1e4])
def test_the_minimiser_is_scipys(loss: Loss, strength: float) -> None:
    for seed in range(5):
        shard = problem(seed, 60, 5)
        tilt = np.random.default_rng(seed).normal(size=5) * 3
        ours = minimise(loss, shard, strength, tilt)
        risk = Risk(loss, shard, np.array(strength), tilt)

        def value(w: FloatArray, risk: Risk = risk) -> float:
            return float(risk.value(w))

        theirs = minimize(value, np.zeros(5), jac=risk.gradient, method="BFGS", options={"gtol": 1e-8})
        assert np.linalg.norm(risk.gradient(ours)) <= 1e-9
        assert value(ours) <= theirs.fun + 1e-9 * max(1.0, abs(theirs.fun))
        # Strong convexity: both lie within |gradient| / strength of the minimiser.
        assert np.linalg.norm(ours - theirs.x) <= (1e-9 + np.linalg.norm(theirs.jac)) / strength + 1e-9


@SMOOTH
def test_value_gradient_and_hessian_belong_together(loss: Loss) -> None:
    shard, rng = Shard.stack([problem(1, 30, 4), problem(2, 7, 4)]), np.random.default_rng(3)
    risk = Risk(loss, shard, np.array([0.3, 2.0]), rng.normal(size=(2, 4)))
    w, step = rng.normal(size=(2, 4)), 1e-6
    for j, e in enumerate(np.eye(4)):
        slope = (risk.value(w + step * e) - risk.value(w - step * e)) / (2 * step)
        assert np.allclose(risk.gradient(w)[:, j], slope, atol=1e-6)
        bend = (risk.gradient(w + step * e) - risk.gradient(w - step * e)) / (2 * step)
        assert np.allclose(risk.hessian(w)[:, j], bend, atol=1e-4)


@SMOOTH
def test_a_batch_is_its_problems_solved_one_by_one(loss: Loss) -> None:
    shards = [problem(seed, n, 6) for seed, n in enumerate([1, 2, 17, 60, 200] * 8)]
    strength = np.geomspace(1e-3, 100, len(shards))
    tilt = np.random.default_rng(4).normal(size=(len(shards), 6))
    batch = minimise(loss, Shard.stack(shards), strength, tilt)
    single = np.stack([minimise(loss, *one) for one in zip(shards, strength.tolist(), tilt, strict=True)])
    assert np.abs(batch - single).max() < 1e-11  # each stops by itself; only the order of sums differs


def test_thousands_of_problems_at_once() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(5000, 20, 3))
    shard = Shard(X, rng.choice([-1.0, 1.0], (5000, 20)))
    weights = minimise(Logistic(), shard, 0.2)
    risk = Risk(Logistic(), shard, np.full(5000, 0.2))
    assert np.linalg.norm(risk.gradient(weights), axis=-1).max() <= 1e-9


@SMOOTH
def test_padding_and_empty_shards_weigh_nothing(loss: Loss) -> None:
    shard = problem(6, 20, 3)
    X, y, mask = (np.concatenate([part, part]) for part in (shard.X, shard.y, shard.mask))
    mask[20:] = False
    assert np.allclose(minimise(loss, Shard(X, y, mask), 0.5), minimise(loss, shard, 0.5), atol=1e-12)
    empty = Shard(np.zeros((0, 3)), np.zeros(0))
    assert not minimise(loss, empty, 1.0).any()
    assert np.allclose(minimise(loss, empty, 2.0, np.array([1.0, 0, -4.0])), [-0.5, 0, 2.0])


def test_the_minimiser_lies_in_the_ball_that_algorithms_rely_on() -> None:
    """F(w) <= F(0) gives |w| <= sqrt(2 loss(0) n / strength), where the strength is n lambda."""
    for loss in (Logistic(), Huber()):
        shard = Shard(np.tile([[1.0, 0.0]], (50, 1)), np.ones(50))
        for strength in (1e-6, 1e-2, 1.0):
            at_zero = float(loss.value(np.zeros(1), np.ones(1))[0])
            assert np.linalg.norm(minimise(loss, shard, strength)) <= np.sqrt(2 * at_zero * 50 / strength)


@pytest.mark.parametrize("strength", [0.0, -1.0, np.nan])
def test_a_problem_without_a_minimiser_is_refused(strength: float) -> None:
    with pytest.raises(InvalidInputError, match="regularization must be positive"):
        minimise(Logistic(), problem(1, 5, 2), strength)


def test_a_loss_without_curvature_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'huber', not 'hinge'"):
        minimise(Hinge(), problem(1, 5, 2), 1.0)


def test_a_tolerance_out_of_reach_is_no_error() -> None:
    shard, tilt = problem(1, 50, 2), np.array([0.1, 0.3])
    risk = Risk(Logistic(), shard, np.array(1.0), tilt)
    for most_steps in (0, 1000):
        left = np.linalg.norm(risk.gradient(minimise(Logistic(), shard, 1.0, tilt, 0.0, most_steps)))
        print(f"a gradient of {left:.1e} where 0 was asked for")
        assert left < 1e-13
