"""What the proofs need of the softmax loss: a slope that is the derivative, true bounds, and training to the best."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes, encode_classes
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Logistic, Softmax, loss_at_zero
from parley.common.learning.metrics import accuracy, auc
from parley.common.learning.model import KINDS, Model
from parley.common.learning.solvers import Risk

CLASSES = [2, 3, 10, 100]
EVERY = pytest.mark.parametrize("k", CLASSES)


def scores_and_labels(k: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    return rng.normal(size=(n, k)) * 10.0 ** rng.uniform(-2, 2, (n, 1)), encode_classes(rng.integers(k, size=n), k)


@EVERY
def test_classes_come_back_from_the_grid_of_labels(k: int) -> None:
    classes = np.arange(k)
    shard = Shard(np.zeros((k, 1)), encode_classes(classes, k))
    assert (decode_classes(shard.y, k) == classes).all()
    assert np.abs(shard.y).max() <= 1


@EVERY
def test_slope_and_curvature_are_the_derivatives_within_the_bounds(k: int) -> None:
    loss, step = Softmax(k, class_weights=tuple(np.linspace(0.1, 1.0, k)) if k == 10 else ()), 1e-5
    score, y = scores_and_labels(k)
    slope, curvature = loss.slope(score, y), loss.curvature(score, y)
    near = np.abs(score).max(axis=-1) < 20
    for direction in np.eye(k)[: min(k, 5)]:
        up, down = score + step * direction, score - step * direction
        assert np.allclose(slope @ direction, (loss.value(up, y) - loss.value(down, y)) / (2 * step), atol=1e-6)
        bent = (loss.slope(up, y) - loss.slope(down, y)) / (2 * step)
        assert np.allclose((curvature @ direction)[near], bent[near], atol=1e-6)
        along = np.broadcast_to(direction, score.shape)
        assert np.allclose(loss.curvature_times(score, y, along), curvature @ direction, atol=1e-12)
    assert np.linalg.norm(slope, axis=-1).max() <= loss.lipschitz * (1 + 1e-12)
    assert np.array_equal(curvature, np.swapaxes(curvature, -1, -2))
    assert np.abs(np.linalg.eigvalsh(curvature)).max() <= loss.smoothness + 1e-12
    assert loss_at_zero(loss) == pytest.approx(math.log(k))


def test_two_classes_are_the_logistic_loss_of_the_scores_difference() -> None:
    score, y = scores_and_labels(2)
    assert np.allclose(Softmax(2).value(score, y), Logistic().value(score[:, 1] - score[:, 0], y))


def test_the_minimiser_is_scikit_learns_alone_or_stacked() -> None:
    rng = np.random.default_rng(4)
    stacked = []
    for seed in range(2):
        X = rng.normal(size=(120, 5))
        X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.01
        y = np.argmax(X @ np.random.default_rng(seed).normal(size=(5, 4)) + 0.1 * rng.normal(size=(120, 4)), axis=1)
        stacked.append(Shard(X, encode_classes(y, 4)))
    stack = Shard.stack(stacked)
    weights = minimise(Softmax(4), stack, np.array([0.5, 2.0]))
    for i, strength in enumerate((0.5, 2.0)):
        alone = minimise(Softmax(4), stacked[i], strength)
        assert np.allclose(alone, weights[i], atol=1e-8)
        risk = Risk(Softmax(4), stacked[i], np.asarray(strength))
        assert np.linalg.norm(risk.gradient(alone)) <= 1e-9
        theirs = LogisticRegression(C=1 / strength, fit_intercept=False, tol=1e-10, max_iter=10_000)
        theirs.fit(stacked[i].X, decode_classes(stacked[i].y, 4))
        assert np.allclose(alone, theirs.coef_, atol=1e-4)


def test_kinds_of_model_say_what_their_weights_are() -> None:
    assert Model(np.zeros(3)).kind == "linear"
    assert Model(np.zeros((4, 3))).kind == "softmax"
    members = Model(np.zeros((2, 4, 3)), "members")
    assert [member.kind for member in members.members] == ["softmax", "softmax"]
    with pytest.raises(InvalidInputError, match="unknown kind of model 'tree'; there are linear, softmax, members"):
        Model(np.zeros(3), "tree")
    with pytest.raises(InvalidInputError, match="1 axes are no softmax"):
        Model(np.zeros(3), "softmax")
    with pytest.raises(InvalidInputError, match="several models"):
        members.scores(np.zeros((1, 3)))
    assert set(KINDS) == {"linear", "softmax", "members", "statistics"}


def test_metrics_of_classes_and_of_members() -> None:
    X = np.eye(3) / 2
    shard = Shard(X, encode_classes(np.array([0, 1, 2]), 3))
    right, wrong = np.eye(3), np.roll(np.eye(3), 1, axis=0)
    assert accuracy(Model(right), shard) == 1
    assert accuracy(Model(wrong), shard) == 0
    assert accuracy(Model(np.stack([right, wrong]), "members"), shard) == 0.5
    with pytest.raises(InvalidInputError, match="no positive class"):
        auc(Model(right), shard)
