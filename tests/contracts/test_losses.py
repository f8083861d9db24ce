"""What the proofs need of every loss: the slope is the derivative, L and c are true bounds, the function is convex."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import MAX_EXAMPLES, UNIT
from parley.common.errors import InvalidInputError
from parley.common.learning import losses
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared

LOSSES: list[Loss] = [Logistic(), Huber(), Huber(0.01), Huber(1.0), Squared(), Hinge()]
LOSSES += [Logistic(class_weights=(0.3, 1.0)), Huber(class_weights=(0.1, 1.0))]
EVERY = pytest.mark.parametrize("loss", LOSSES, ids=repr)
LABELS = st.sampled_from([-1.0, 1.0]) | st.floats(-1, 1)
SCORES = np.concatenate([np.linspace(-4, 4, 1601), [-1e4, -50, 50, 1e4]])


def kinks(loss: Loss) -> list[float]:
    """The margins at which a loss has no derivative, or no second one."""
    match loss:
        case Huber(h=h):
            return [1 - h, 1 + h]
        case Hinge():
            return [1.0]
        case _:
            return []


def test_every_loss_is_tested() -> None:
    defined = {one for _, one in inspect.getmembers(losses, inspect.isclass) if hasattr(one, "curvature")} - {Loss}
    assert defined == {type(loss) for loss in LOSSES} | {Softmax}  # which has a suite of its own


def smooth(loss: Loss, score: FloatArray, y: float, margin: float) -> FloatArray:
    """The scores further than ``margin`` from a kink."""
    far = [np.abs(y * score - kink) > margin for kink in kinks(loss)]
    return score[np.all(far, axis=0)] if far else score


@EVERY
@given(y=LABELS)
def test_slope_and_curvature_are_the_derivatives(loss: Loss, y: float) -> None:
    step = 1e-5
    score = smooth(loss, SCORES[np.abs(SCORES) < 100], y, 2 * step)
    target = np.full_like(score, y)
    slope = (loss.value(score + step, target) - loss.value(score - step, target)) / (2 * step)
    curvature = (loss.slope(score + step, target) - loss.slope(score - step, target)) / (2 * step)
    assert np.allclose(loss.slope(score, target), slope, rtol=1e-6, atol=1e-7)
    assert np.allclose(loss.curvature(score, target), curvature, rtol=1e-6, atol=1e-7)


@EVERY
@given(y=LABELS)
def test_the_bounds_hold_and_the_loss_is_convex(loss: Loss, y: float) -> None:
    score = np.sort(SCORES)
    target = np.full_like(score, y)
    slope, curvature = loss.slope(score, target), loss.curvature(score, target)
    assert np.isfinite([loss.value(score, target), slope, curvature]).all()
    assert np.abs(slope).max() <= loss.lipschitz
    assert curvature.min() >= 0
    assert curvature.max() <= loss.smoothness
    rises = np.diff(slope)
    assert rises.min() >= 0
    assert (rises <= loss.smoothness * np.diff(score) * (1 + 1e-9) + 1e-12).all()
    value = loss.value(score, target)
    middle = loss.value((score[1:] + score[:-1]) / 2, target[1:])
    assert (middle <= (value[1:] + value[:-1]) / 2 * (1 + 1e-12) + 1e-12).all()


@EVERY
def test_the_bounds_are_no_larger_than_need_be(loss: Loss) -> None:
    score, y = np.concatenate([SCORES, kinks(loss)]), np.ones(len(SCORES) + len(kinks(loss)))
    if math.isfinite(loss.lipschitz):
        assert np.abs(loss.slope(score, y)).max() == pytest.approx(loss.lipschitz, rel=1e-3)
    if math.isfinite(loss.smoothness):
        assert loss.curvature(score, y).max() == pytest.approx(loss.smoothness, rel=1e-3)


@EVERY
def test_a_sum_of_gradients_is_the_derivative_of_the_sum_of_losses(loss: Loss) -> None:
    rng = np.random.default_rng(1)
    X, y, w = rng.uniform(-0.5, 0.5, (50, 3)), rng.choice([-1.0, 1.0], 50), np.array([0.5, -1.25, 0.375])
    shard, step = Shard(X, y), 1e-6

    def total(weights: FloatArray) -> float:
        return float(loss.value(shard.X @ weights, shard.y).sum())

    numeric = [(total(w + step * e) - total(w - step * e)) / (2 * step) for e in np.eye(3)]
    exact = gradient_sum(loss, shard, w, clip_norm=10.0 if isinstance(loss, Squared) else 1.0)
    assert np.allclose(exact / UNIT, numeric, atol=50 * 2.0**-16 + 1e-5)


@EVERY
@pytest.mark.parametrize("clip_norm", [1.0, 0.3])
def test_no_gradient_is_longer_than_the_clip_norm(loss: Loss, clip_norm: float) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 1, 3)) * 10.0 ** rng.uniform(-3, 3, (500, 1, 1))
    shard = Shard(X, rng.choice([-1.0, 1.0], (500, 1)))
    for scale in (0.0, 1.0, 1e4):
        gradient = gradient_sum(loss, shard, rng.normal(size=3) * scale, clip_norm)
        lengths = [sum(v * v for v in row) for row in gradient.tolist()]
        assert max(lengths) <= (clip_norm * UNIT) ** 2


def test_more_examples_than_a_sum_holds_are_refused_before_any_is_read() -> None:
    one = Shard(np.ones((1, 1)), np.ones(1))
    many = object.__new__(Shard)
    for name, value in (("X", one.X), ("y", one.y), ("mask", one.mask)):
        object.__setattr__(many, name, np.broadcast_to(value, (MAX_EXAMPLES + 1, *value.shape[1:])))
    object.__setattr__(many, "weighing", None)
    with pytest.raises(InvalidInputError, match=f"{MAX_EXAMPLES} examples, not {MAX_EXAMPLES + 1}"):
        gradient_sum(Logistic(), many, np.zeros(1))
