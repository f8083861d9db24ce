"""Gradients of K scores: clipped in integers, exact, and the same bits in every order and stacking of the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from parley.common.arrays import FloatArray
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import FEATURE_BITS, SLOPE_BITS, UNIT, weights_on_grid
from parley.common.errors import InvalidInputError
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Softmax
from parley.learner.experiments.datasets import DIGITS, digits_columns

ROOT_2 = math.sqrt(2)


def case(seed: int, n: int = 400, k: int = 10, d: int = 7, length: float = 30.0) -> tuple[Shard, FloatArray]:
    rng = np.random.default_rng(seed)
    y = encode_classes(rng.integers(0, k, n), k)
    return Shard(rng.normal(size=(n, d)), y), rng.normal(size=(k, d)) * length


@dataclass(frozen=True, slots=True)
class Given(Softmax):
    """A softmax whose slopes are given: as bad as can be."""

    slopes: FloatArray = None  # type: ignore[assignment]

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return self.slopes


def test_digits_give_the_same_bits_in_any_order_stacking_and_number_of_threads() -> None:
    shard = shard_of(DIGITS, digits_columns())
    rng = np.random.default_rng(1)
    weights, loss = rng.normal(size=(10, shard.n_features)), Softmax(10)
    whole = gradient_sum(loss, shard, weights, 0.7)
    tried = 0
    for _ in range(4):
        order = rng.permutation(len(shard.y))
        cuts = np.sort(rng.choice(np.arange(1, len(order)), 6, replace=False))
        parts = [Shard(shard.X[rows], shard.y[rows]) for rows in np.split(order, cuts)]
        for threads in (1, 2):
            with threadpool_limits(threads, user_api="blas"):
                permuted = gradient_sum(loss, Shard(shard.X[order], shard.y[order]), weights, 0.7)
                stacked = gradient_sum(loss, Shard.stack(parts), weights, 0.7)
                each = [gradient_sum(loss, part, weights, 0.7) for part in parts]
            for total in (permuted, stacked.sum(axis=0), np.sum(each, axis=0)):
                assert np.array_equal(total, whole)
                tried += 1
    print(f"digits, K = 10: {tried} orders, stacks and thread counts, {whole.size} integers each, all the same bits")


def test_sums_are_those_of_pythons_integers() -> None:
    for k in (2, 3, 10):
        shard, weights = case(k, n=60, k=k, length=3.0)
        loss = Softmax(k)
        X = (shard.X * 2**FEATURE_BITS).astype(np.int64)
        slopes = loss.slope(shard.scores(weights_on_grid(weights)), shard.y)
        assert np.linalg.norm(slopes, axis=-1).max() < ROOT_2
        q = np.trunc(slopes * 2.0**SLOPE_BITS).astype(np.int64)
        exact = sum(np.multiply.outer(q[i].astype(object), X[i].astype(object)) for i in range(60))
        assert gradient_sum(loss, shard, weights, ROOT_2).tolist() == np.ravel(exact).tolist()


@given(st.integers(0, 2**32), st.sampled_from([1e-6, 2.0**-16, 0.01, 0.3, 0.7, 1.0, ROOT_2]), st.floats(1e-3, 1e3))
def test_no_gradient_exceeds_a_norm_in_integers(seed: int, clip_norm: float, size: float) -> None:
    rng = np.random.default_rng(seed)
    n, k, d = 20, int(rng.integers(2, 12)), 3
    shard, _ = case(seed, n=n, k=k, d=d)
    each = Shard(shard.X[:, None], shard.y[:, None])  # one party a row, so that each gradient is seen
    slopes = rng.normal(size=(n, 1, k)) * size
    slopes[: n // 2] *= clip_norm / np.linalg.norm(slopes[: n // 2], axis=-1, keepdims=True)  # just about the norm
    clip_l1 = float(rng.choice([math.inf, 0.3, 0.01]))
    found = gradient_sum(Given(k, slopes), each, np.zeros((k, d)), clip_norm, clip_l1)
    assert found.shape == (n, k * d)
    squares = [sum(v * v for v in row) for row in found.tolist()]
    assert max(squares) <= Fraction(clip_norm) ** 2 * UNIT**2
    if math.isfinite(clip_l1):
        assert max(sum(map(abs, row)) for row in found.tolist()) <= Fraction(clip_l1) * UNIT


def test_what_the_clip_leaves_is_as_long_as_it_may_be() -> None:
    rng = np.random.default_rng(2)
    slopes = rng.normal(size=(500, 1, 10)) * 100
    found = gradient_sum(Given(10, slopes), Shard(np.ones((500, 1, 1)), np.ones((500, 1))), np.zeros((10, 1)), ROOT_2)
    lengths = np.linalg.norm(found / UNIT, axis=-1)
    print(f"squared norms of clipped slopes: up to {(lengths.max() ** 2 / 2):.6f} of the bound")
    assert ROOT_2 - 10 * 2.0**-SLOPE_BITS < lengths.min() <= lengths.max() <= ROOT_2


def test_blocks_change_no_bit() -> None:
    shard, weights = case(3, n=60_000, d=11)
    assert len(list(shard.blocks())) > 1
    parts = [Shard(shard.X[i::7], shard.y[i::7]) for i in range(7)]
    for clip_l1 in (math.inf, 0.4):
        total = sum(gradient_sum(Softmax(10), part, weights, 0.7, clip_l1) for part in parts)
        assert np.array_equal(gradient_sum(Softmax(10), shard, weights, 0.7, clip_l1), total)


def test_weights_of_another_shape_are_refused() -> None:
    shard, weights = case(4)
    for bad in (weights[0], weights[:9], weights.T):
        with pytest.raises(InvalidInputError, match=r"weights must be of shape \(10, 7\), not"):
            gradient_sum(Softmax(10), shard, bad)
