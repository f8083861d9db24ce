"""Persons of several rows in sums of gradients: what one moves, in integers; nothing lost, and the same bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.data.sparse import SparseShard
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import UNIT
from parley.common.learning import gradients
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Logistic, Loss, Softmax

MOST_ROWS = 40
D = 4
CLIPS = (0.1, 1 / 3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True)
class Slopes(Logistic):
    """A loss whose slopes are given: as bad as can be."""

    slopes: FloatArray = None  # type: ignore[assignment]

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return self.slopes


@dataclass(frozen=True, slots=True)
class Vectors(Softmax):
    """A loss of K scores whose slopes are given."""

    slopes: FloatArray = None  # type: ignore[assignment]

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return self.slopes


def rows_of(rng: np.random.Generator, n_persons: int) -> FloatArray:
    """Return rows (persons, rows, D) of each person: random, all the same, orthogonal, or along one axis."""
    X = rng.normal(size=(n_persons, MOST_ROWS, D))
    X /= np.linalg.norm(X, axis=-1, keepdims=True)
    kind = rng.integers(0, 4, n_persons)
    X[kind == 1] = X[kind == 1, :1]
    X[kind == 2] = np.eye(D)[np.arange(MOST_ROWS) % D]
    X[kind == 3] = np.eye(D)[0]
    return np.asarray(X * rng.choice([1.0, 1.0, 0.3], (n_persons, 1, 1)))


def alone(rng: np.random.Generator, X: FloatArray, y: FloatArray, given: FloatArray | None = None) -> Shard:
    """Return a stack of parties, each of one person of 1 to 40 rows."""
    n_rows = np.where(rng.random(len(X)) < 0.2, 1, rng.integers(1, MOST_ROWS + 1, len(X)))
    mask = np.arange(MOST_ROWS) < n_rows[:, None]
    begins = ~mask | (np.arange(MOST_ROWS) == 0)
    return Shard(X, y, mask, begins=begins, row_weights=given)


def slopes_of(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Return slopes of each person: of all sizes, of one sign or both, at the clip norm or next to nothing."""
    slopes = rng.uniform(-1, 1, shape) * 10.0 ** rng.uniform(-5, 1, (shape[0], *(1,) * (len(shape) - 1)))
    of_one_sign = rng.random(shape[0]) < 0.5
    slopes[of_one_sign] = np.abs(slopes[of_one_sign])
    slopes[rng.random(shape[0]) < 0.1] = 1.0
    return slopes


def squared_norms(moves: IntArray) -> list[int]:
    return [sum(int(part) ** 2 for part in move) for move in moves]


@pytest.mark.parametrize("clip_l1", [math.inf, 0.6])
def test_a_person_exchanged_moves_a_sum_by_twice_the_clip_norm_at_most_and_attains_it(clip_l1: float) -> None:
    largest, largest_l1, pairs = Fraction(0), Fraction(0), 0
    for seed, clip_norm in enumerate(CLIPS * 2):
        rng = np.random.default_rng(seed)
        X, y = rows_of(rng, 2400), rng.choice([-1.0, 1.0], (2400, MOST_ROWS))
        given = rng.random(y.shape) if seed % 3 == 2 else None
        shard = alone(rng, X, y, given)
        loss = Slopes(slopes=slopes_of(rng, y.shape), class_weights=((), (1.0, 0.3))[seed % 2])
        sums = gradient_sum(loss, shard, np.zeros(D), clip_norm, clip_l1)
        most, most_l1 = Fraction(2 * clip_norm * UNIT), int(2 * min(clip_l1, 1000.0) * UNIT)
        for one, other in ((sums[:1200], sums[1200:]), (sums, 0 * sums), (sums, -sums)):
            moved, moved_l1 = max(squared_norms(one - other)), int(np.abs(one - other).sum(axis=-1).max())
            assert moved <= most**2
            assert moved_l1 <= most_l1
            largest = max(largest, moved / most**2)
            largest_l1 = max(largest_l1, Fraction(moved_l1, most_l1))
            pairs += len(one)
    assert pairs >= 10_000
    assert largest == 1 if math.isinf(clip_l1) else largest_l1 > 0.999999
    print(f"{pairs} pairs of persons: moved at most {math.sqrt(largest):.9f} of 2 C")


@pytest.mark.parametrize("clip_l1", [math.inf, 0.6])
def test_vectors_of_persons_move_a_sum_by_twice_the_clip_norm_at_most(clip_l1: float) -> None:
    largest, pairs = 0.0, 0
    for seed, clip_norm in enumerate((0.1, 1 / 3, 0.7, 1.0, math.sqrt(2))):
        rng = np.random.default_rng(seed)
        k = int(rng.integers(2, 6))
        X, y = rows_of(rng, 1400), encode_classes(rng.integers(0, k, (1400, MOST_ROWS)), k)
        shard = alone(rng, X, y, rng.random(y.shape) if seed % 3 == 2 else None)
        loss = Vectors(k, slopes=slopes_of(rng, (*y.shape, k)), class_weights=((), (1.0,) + (0.3,) * (k - 1))[seed % 2])
        sums = gradient_sum(loss, shard, np.zeros((k, D)), clip_norm, clip_l1)
        most = 4 * Fraction(clip_norm) ** 2 * UNIT**2
        for one, other in ((sums[:700], sums[700:]), (sums, 0 * sums), (sums, -sums)):
            moved = max(squared_norms(one - other))
            assert moved <= most
            assert np.abs(one - other).sum(axis=-1).max() <= 2 * min(clip_l1, 1000) * UNIT
            largest, pairs = max(largest, float(moved / most)), pairs + len(one)
    assert pairs >= 10_000
    assert math.isfinite(clip_l1) or largest > 0.9999
    print(f"{pairs} pairs of persons, K scores: moved at most {math.sqrt(largest):.9f} of 2 C")


def some(seed: int, n: int, loss: Loss, most: int = 7) -> tuple[Shard, FloatArray]:
    """Return a shard of persons of up to ``most`` rows, and weights."""
    rng = np.random.default_rng(seed)
    y = (
        encode_classes(rng.integers(0, loss.outputs, n), loss.outputs)
        if loss.outputs > 1
        else rng.choice([-1.0, 1.0], n)
    )
    shape = (D,) if loss.outputs == 1 else (loss.outputs, D)
    return Shard(rng.normal(size=(n, D)), y, begins=begins_of(rng, n, most)), 3 * rng.normal(size=shape)


def begins_of(rng: np.random.Generator, n: int, most: int) -> BoolArray:
    begins = np.zeros(n, dtype=np.bool_)
    begins[np.cumsum(rng.integers(1, most + 1, n)) % n] = True
    begins[0] = True
    return begins


@pytest.mark.parametrize("clip_norm", [2.0**-12, 0.01, 0.3, 1.0])
def test_slopes_of_opposite_signs_cancel_before_a_few_rows_are_clipped(clip_norm: float) -> None:
    """Of rows that are nearly alike no sum is longer than C, and those of 2 to 8 are as long as C lets them be."""
    rng, k, r = np.random.default_rng(9), 3000, 12
    X = np.eye(D)[0] + 0.02 * rng.normal(size=(k, r, D))
    X /= np.linalg.norm(X, axis=-1, keepdims=True) + 2.0**-12
    n_rows = rng.integers(1, r + 1, k)
    mask = np.arange(r) < n_rows[:, None]
    shard = Shard(X, np.ones((k, r)), mask, begins=~mask | (np.arange(r) == 0))
    slopes = rng.uniform(0.6, 1.0, (k, r)) * np.where(np.arange(r) % 2, -1.0, 1.0) * mask
    sums = gradient_sum(Slopes(slopes=slopes), shard, np.zeros(D), clip_norm)
    lengths = np.array([math.sqrt(square) for square in squared_norms(sums)]) / UNIT
    assert all(square <= Fraction(clip_norm * UNIT) ** 2 for square in squared_norms(sums))
    shared = np.minimum(1.0, clip_norm / np.abs(slopes).sum(axis=1))
    by_one_norm = np.linalg.norm(np.einsum("ki,kij->kj", slopes * shared[:, None], shard.X), axis=1)
    paired = (n_rows > 1) & (n_rows <= 8)
    whole = np.linalg.norm(np.einsum("ki,kij->kj", slopes, shard.X), axis=1)
    assert np.abs(lengths - np.minimum(whole, clip_norm))[paired].max() < 2e-4
    if clip_norm > 0.005:
        assert np.allclose(lengths[~paired], by_one_norm[~paired], atol=2e-4)
        assert (lengths[paired] > by_one_norm[paired] - 2e-4).all()


LOSSES = [Logistic(), Logistic(class_weights=(0.4, 1.0)), Softmax(3)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("clip_norm", "clip_l1"), [(1.0, math.inf), (0.3, math.inf), (1.0, 0.5), (0.01, 0.02)])
def test_a_person_of_one_row_gives_a_records_bits(loss: Loss, clip_norm: float, clip_l1: float) -> None:
    shard, weights = some(1, 5000, loss)
    records, persons = Shard(shard.X, shard.y), Shard(shard.X, shard.y, begins=np.ones(5000, dtype=np.bool_))
    one, other = (gradient_sum(loss, shard, weights, clip_norm, clip_l1) for shard in (records, persons))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("clip_l1", [math.inf, 0.5])
def test_persons_give_the_same_bits_in_blocks_stacks_sparse_rows_and_any_number_of_threads(
    loss: Loss, clip_l1: float
) -> None:
    shard, weights = some(2, 150_000, loss, most=300)
    whole = gradient_sum(loss, shard, weights, 0.5, clip_l1)
    assert sum(1 for _ in shard.blocks()) > 1
    n_persons = int(shard.n_examples)
    parts = [shard.examples(0, 90), shard.examples(90, n_persons - 200), shard.examples(n_persons - 200)]
    sparse = SparseShard(csr_array(shard.X), shard.y, begins=shard.begins)
    assert np.array_equal(sum(gradient_sum(loss, part, weights, 0.5, clip_l1) for part in parts), whole)
    assert np.array_equal(gradient_sum(loss, Shard.stack(parts), weights, 0.5, clip_l1).sum(axis=0), whole)
    assert np.array_equal(gradient_sum(loss, sparse, weights, 0.5, clip_l1), whole)
    assert np.array_equal(
        gradient_sum(loss, shard.take_examples(np.arange(n_persons)[::-1]), weights, 0.5, clip_l1), whole
    )
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            assert np.array_equal(gradient_sum(loss, shard, weights, 0.5, clip_l1), whole)


def test_a_long_block_is_added_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, weights = some(5, 1000, Softmax(3))
    whole = gradient_sum(Softmax(3), shard, weights)
    monkeypatch.setattr(gradients, "LANE_EXAMPLES", 7)
    assert np.array_equal(gradient_sum(Softmax(3), shard, weights), whole)


@pytest.mark.parametrize("clip_l1", [math.inf, 0.8])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Softmax(10)])
@pytest.mark.parametrize("n_rows", [40, 400, 4000])
def test_a_person_of_many_rows_loses_next_to_nothing_by_rounding(loss: Loss, clip_l1: float, n_rows: int) -> None:
    rng = np.random.default_rng(3)
    k = loss.outputs
    y = encode_classes(rng.integers(0, k, n_rows), k) if k > 1 else np.ones(n_rows)
    X = np.tile([0.6, 0.0, 0.0, 0.8], (n_rows, 1)) + 0.05 * rng.normal(size=(n_rows, D))
    shard = Shard(X / np.linalg.norm(X, axis=-1, keepdims=True) * 0.999, y, begins=np.arange(n_rows) == 0)
    weights = rng.normal(size=(D,) if k == 1 else (k, D))
    slopes = loss.slope(shard.scores(np.atleast_2d(weights)).reshape((n_rows,) if k == 1 else (n_rows, k)), y)
    slopes = slopes.reshape(n_rows, k)
    lengths, lengths_l1 = np.linalg.norm(slopes, axis=-1), np.abs(slopes).sum(axis=-1) * shard.norms_l1 / 2**16
    parts = np.ones(n_rows)
    if k > 1:
        parts = np.minimum(parts, np.minimum(1.0 / lengths, clip_l1 / lengths_l1))  # as a row alone would be clipped
    parts *= min(1.0 / (parts * lengths).sum(), clip_l1 / (parts * lengths_l1).sum())
    exact = (slopes * parts[:, None]).T @ shard.X
    along = gradient_sum(loss, shard, weights, 1.0, clip_l1) / UNIT @ exact.ravel() / (exact**2).sum()
    assert 0.99 < along < 1.01


def test_a_rows_own_weight_scales_its_slope() -> None:
    shard, weights = some(4, 300, Logistic())
    given = np.random.default_rng(4).integers(0, 5, 300) / 4
    records, weighted = Shard(shard.X, shard.y), Shard(shard.X, shard.y, row_weights=given)
    each = [given[i] * gradient_sum(Logistic(), records.view(slice(i, i + 1)), weights) / UNIT for i in range(300)]
    assert np.allclose(gradient_sum(Logistic(), weighted, weights) / UNIT, np.sum(each, axis=0), atol=300 * 2**-15)


def test_of_a_persons_rows_the_one_that_the_model_has_wrong_counts_for_more() -> None:
    X, slopes = np.eye(D)[:2], np.array([-0.9, 0.1])
    for begins, clipped in (
        ([True, False], [-0.5 / 0.82**0.5 * 0.9, 0.5 / 0.82**0.5 * 0.1]),
        ([True, True], [-0.5, 0.1]),
    ):
        shard = Shard(X, np.array([1.0, -1.0]), begins=np.array(begins))
        total = gradient_sum(Slopes(slopes=slopes), shard, np.zeros(D), 0.5)
        assert np.allclose(total[:2] / UNIT, clipped, atol=2**-13)
