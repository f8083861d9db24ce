"""Sparse rows are as safe as dense ones, and sums and scores of them have the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csc_array, csr_array

from parley.common.arrays import BoolArray, FloatArray
from parley.common.data.shard import Shard
from parley.common.data.sparse import DENSE_COLUMNS, SparseShard
from parley.common.encoding.fixed_point import FEATURE_BITS, Norm
from parley.common.errors import InvalidInputError
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Huber, Logistic, Loss, Softmax

VALUES = st.one_of(st.just(0.0), st.floats(-2, 2), st.sampled_from([1.0, -1.0, 1e300, np.nan, np.inf, 0.5]))
NORMS: list[Norm] = ["euclidean", "max"]


def both(X: FloatArray, y: FloatArray, norm: Norm = "euclidean", mask: object = None) -> tuple[Shard, SparseShard]:
    rows = csr_array(X.reshape(-1, X.shape[-1]))
    own = None if mask is None else np.asarray(mask)
    return Shard(X, y, own, norm), SparseShard(rows, y, own, norm)


def some(n: int, d: int, seed: int = 0, k: int = 2) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 5 / d)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1), 2 * rng.integers(0, k, n) / (k - 1) - 1.0


@pytest.mark.parametrize("norm", NORMS)
@given(
    arrays(np.float64, (4, 5), elements=VALUES), arrays(np.float64, 4, elements=st.sampled_from([1.0, -1.0, np.nan]))
)
def test_rows_lie_on_the_grid_and_in_the_ball(norm: Norm, X: FloatArray, y: FloatArray) -> None:
    dense, sparse = both(X, y, norm)
    units = sparse.X * 2.0**FEATURE_BITS
    assert (units == np.trunc(units)).all()
    if norm == "euclidean":
        assert ((units**2).sum(axis=1) <= 2.0 ** (2 * FEATURE_BITS)).all()
    else:
        assert (np.abs(sparse.X) <= 1).all()
    assert (sparse.X == dense.X).all()
    assert (sparse.y == dense.y).all()


def test_projected_rows_are_the_same_where_their_numbers_would_fall_on_the_grid() -> None:
    """Of k equal numbers each becomes 1 / sqrt(k), for every last bit of their norm."""
    for value in (0.3, 0.7, 0.9, 1.1, 1e200):
        X = np.zeros((200, 400))
        for k, row in enumerate(X, start=1):
            row[np.random.default_rng(k).permutation(400)[:k]] = value
        dense, sparse = both(X, np.ones(200))
        assert (sparse.X == dense.X).all()
        assert sparse.X[15].max() == 0.25


def test_other_matrices_are_taken_by_their_rows_and_impossible_ones_are_not() -> None:
    X = np.array([[0.9, 0.9, 0.9], [0, 0, 0], [0, 0, 0]])
    shard = SparseShard(csc_array(X), np.ones(3))  # type: ignore[arg-type]
    assert (shard.X == Shard(X, np.ones(3)).X).all()
    assert shard.present.tolist() == [True, False, False]
    for place in (-1, 3):
        with pytest.raises(ValueError, match="indices must be"):
            SparseShard(csr_array((np.ones(1), np.array([place]), np.array([0, 1])), shape=(1, 3)), np.ones(1))


def test_a_row_of_ones_keeps_its_ones_by_the_max_norm_and_not_by_the_euclidean() -> None:
    X, y = np.ones((1, 1000)), np.ones(1)
    for made in both(X, y, "max"):
        assert (made.X == 1).all()
    for made in both(X, y):
        assert np.abs(made.X - 0.0316).max() < 1e-3


def test_entries_that_are_told_twice_are_added_up_before_their_norm_is_checked() -> None:
    twice = csr_array((np.array([0.9, 0.9]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    assert SparseShard(twice, np.ones(1)).X.tolist() == [[0, 1, 0]]
    assert twice.nnz == 2  # the caller's is left alone


@pytest.mark.parametrize("loss", [Logistic(), Huber(), Softmax(3)])
@pytest.mark.parametrize(("n", "d"), [(700, 9), (300, DENSE_COLUMNS + 5)])
@pytest.mark.parametrize("clip_l1", [np.inf, 0.5])
def test_sums_of_gradients_have_the_same_bits(loss: Loss, n: int, d: int, clip_l1: float) -> None:
    X, y = some(n, d, k=max(loss.outputs, 2))
    shape = (d,) if loss.outputs == 1 else (loss.outputs, d)
    weights = np.random.default_rng(1).standard_normal(shape)
    dense, sparse = (gradient_sum(loss, shard, weights, 0.7, clip_l1) for shard in both(X, y))
    assert (dense == sparse).all()


def test_stacks_part_into_what_they_were_made_of() -> None:
    parts = [SparseShard.of(Shard(*some(n, 6, seed=n))) for n in (3, 0, 5)]
    stack = Shard.stack(parts)
    assert stack.shape == (3, 5, 6)
    assert stack.n_examples.tolist() == [3, 0, 5]
    for i, part in enumerate(parts):
        assert (stack.party(i).X == part.X).all()
        assert (stack.party(i).y == part.y).all()
    assert (np.concatenate([part.X for part in parts]) == stack.pooled().X).all()
    dense = Shard.stack([part.dense() for part in parts])
    assert (stack.X == dense.X).all()
    assert (stack.y[stack.mask] == dense.y[dense.mask]).all()
    assert (stack.norms_l1 == dense.norms_l1).all()
    assert (stack.present == dense.present).all()
    weights = np.arange(18.0).reshape(3, 1, 6)
    assert (stack.scores(weights) == dense.scores(weights)).all()
    assert (stack.scores(weights[0]) == dense.scores(weights[0])).all()
    slopes = np.ones((3, 5, 2))
    assert (stack.weighted_sum(slopes) == dense.weighted_sum(slopes)).all()
    for (index, few), (also, others) in zip(stack.parties(2), dense.parties(2), strict=True):
        assert index == also
        assert (few.X == others.X).all()


@pytest.mark.parametrize(("d", "kind"), [(7, Shard), (DENSE_COLUMNS + 1, SparseShard)])
def test_blocks_are_the_rows_in_order_and_dense_where_columns_are_few(d: int, kind: type[Shard]) -> None:
    n = 600 if d > 100 else 40_000
    dense, sparse = both(*some(n, d))
    blocks = list(sparse.blocks())
    assert len(blocks) == len(list(dense.blocks())) > 1
    assert {type(block) for block in blocks} == {kind}
    assert (np.concatenate([block.X for block in blocks]) == dense.X).all()
    assert (sparse.view(slice(3, 20)).X == dense.view(slice(3, 20)).X).all()


def test_millions_of_columns_are_never_made_dense() -> None:
    rows = csr_array((np.ones(3), np.array([5, 3_000_000, 7]), np.array([0, 2, 3])), shape=(2, 3_231_961))
    shard = SparseShard(rows, np.array([1.0, -1.0]))
    assert shard.n_features == 3_231_961
    assert shard.most_entries == 2
    assert shard.scores(np.ones((1, 3_231_961))).ravel().tolist() == pytest.approx([2**0.5, 1], abs=1e-4)
    many = SparseShard(csr_array((100, 3_231_961)), np.ones(100))
    with pytest.raises(InvalidInputError, match="too many to be kept dense"):
        _ = many.X


@pytest.mark.parametrize("begins", [None, np.array([True, False, True])])
def test_a_study_may_hold_out_none_of_few_examples(begins: BoolArray | None) -> None:
    shard = SparseShard(csr_array(np.eye(3)), np.ones(3), begins=begins)
    for none in (shard.examples(3), shard.view(slice(3, 3))):
        assert none.shape == (0, 3)
        assert int(none.n_examples) == 0


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="rows must be"):
        SparseShard(csr_array((3, 2)), np.ones(2))


def test_nobody_changes_a_shard() -> None:
    shard = SparseShard.of(Shard(*some(4, 3)))
    with pytest.raises(ValueError, match="read-only"):
        shard.rows.data[0] = 2.0
