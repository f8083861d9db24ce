"""A shard however it is cut: in the blocks that it is made safe in, those that it is read in, and stacked."""

from __future__ import annotations

import numpy as np
import pytest

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard, rows_of_a_block
from parley.common.encoding.fixed_point import FEATURE_BITS

GRID = 2.0**-FEATURE_BITS


def rows_of_every_kind(d: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows (9, d) with labels, and the rows of the shard made of them."""
    first, second = np.eye(2, d)
    kinds = [
        (0.5 * first, 1.0, 0.5 * first),
        (0.3 * first, 1.0, np.floor(0.3 / GRID) * GRID * first),
        (-0.3 * first, -1.0, -np.floor(0.3 / GRID) * GRID * first),
        (np.where(first, np.nan, 0), 1.0, 0 * first),
        (np.where(first, np.inf, 0), 1.0, 0 * first),
        (3 * first + 4 * second, 1.0, np.floor(0.6 / GRID) * GRID * first + np.floor(0.8 / GRID) * GRID * second),
        (1e200 * first, -1.0, first),
        (0.5 * second, 1.5, 0 * first),
        (0.5 * second, np.nan, 0 * first),
    ]
    X, y, expected = (np.array(column) for column in zip(*kinds, strict=True))
    return X, y, expected


@pytest.mark.parametrize("d", [2, 50_000], ids=["one block", "blocks of two"])
def test_each_kind_of_row_is_made_safe_in_every_block(d: int) -> None:
    X, y, expected = rows_of_every_kind(d)
    labels = [1, 1, -1, 1, 1, 1, -1, 1, 1]
    for shift in range(3):
        shard = Shard(np.roll(X, shift, axis=0), np.roll(y, shift))
        assert np.array_equal(shard.X, np.roll(expected, shift, axis=0))
        assert shard.y.tolist() == np.roll(labels, shift).tolist()
        assert shard.mask.all()
        adopted = Shard.adopt(np.roll(X, shift, axis=0), np.roll(y, shift), "euclidean", None)
        assert np.array_equal(adopted.X, shard.X)
        assert np.array_equal(adopted.y, shard.y)


@pytest.mark.parametrize("label", [1.0, -1.0, 0.0, 0.3])
def test_labels_lie_on_the_grid_too(label: float) -> None:
    assert Shard(np.zeros((1, 2)), np.array([label])).y.tolist() == [np.trunc(label / GRID) * GRID]


@pytest.mark.parametrize("label", [np.nextafter(1.0, 2), -np.nextafter(1.0, 2), np.inf, -np.inf])
def test_a_label_beyond_one_by_its_last_bit_is_a_row_of_zeros(label: float) -> None:
    shard = Shard(np.full((2, 1), 0.5), np.array([label, 1.0]))
    assert (shard.X.tolist(), shard.y.tolist()) == ([[0.0], [0.5]], [1.0, 1.0])


def test_what_is_masked_is_a_row_of_zeros() -> None:
    mask = np.array([[True, False], [False, True]])
    shard = Shard(np.full((2, 2, 3), 0.5), -np.ones((2, 2)), mask)
    assert np.array_equal(shard.X, 0.5 * np.repeat(mask[..., None], 3, axis=-1))
    assert shard.y.tolist() == [[-1, 1], [1, -1]]
    assert (shard.mask.tolist(), shard.n_examples.tolist()) == (mask.tolist(), [1, 1])


def test_the_longest_of_a_row_decides_how_far_it_is_drawn_in() -> None:
    X = np.array([[1e308, 1e308], [1e308, -1e-308], [1.5e154, 0.0], [0.9, 0.9]])
    expected = np.trunc(np.array([[0.5**0.5] * 2, [1, 0], [1, 0], [0.5**0.5] * 2]) / GRID) * GRID
    assert np.abs(Shard(X, np.ones(4)).X - expected).max() <= GRID


@pytest.mark.parametrize("d", [1, 1000])
def test_one_partys_blocks_fit_a_cache_and_hold_256_rows_at_least(d: int) -> None:
    most = rows_of_a_block(d)
    assert most == {1: 2**17, 1000: 256}[d]
    assert rows_of_a_block(0) == 2**17
    assert rows_of_a_block(512) == 256
    assert rows_of_a_block(511) == 256
    assert rows_of_a_block(500) == 262
    largest, longer = (Shard.adopt(np.full((n, d), 2.0**-10), np.ones(n), "euclidean", None) for n in (most, most + 1))
    assert next(largest.blocks()) is largest
    assert [len(block.y) for block in longer.blocks()] == [most, 1]
    assert all(block.mask.all() and block.X.shape == (len(block.y), d) for block in longer.blocks())


def test_a_stack_is_cut_past_2_to_the_20_rows_a_party() -> None:
    wide = Shard(np.zeros((2, 300, 1000)), np.ones((2, 300)))
    assert next(wide.blocks()) is wide
    for n, sizes in ((2**20, [2**20]), (2**20 + 1, [2**20, 1])):
        long = Shard(np.zeros((1, n, 1)), np.ones((1, n)))
        assert [block.y.shape[-1] for block in long.blocks()] == sizes


def test_scores_and_sums_are_by_party_in_a_stack() -> None:
    rng = np.random.default_rng(1)
    stack = Shard(rng.normal(size=(3, 4, 5)), np.ones((3, 4)))
    shared, separate = rng.normal(size=(2, 5)).round(), rng.normal(size=(3, 2, 5)).round()
    slopes = rng.normal(size=(3, 4, 2)).round()
    for party in range(3):
        X = stack.X[party]
        assert np.array_equal(stack.scores(shared)[party], X @ shared.T)
        assert np.array_equal(stack.scores(separate)[party], X @ separate[party].T)
        assert np.array_equal(stack.weighted_sum(slopes)[party], slopes[party].T @ X)


def test_padding_is_masked_and_says_nothing() -> None:
    parts = [Shard(np.full((n, 2), 0.25 * n), -np.ones(n)) for n in (1, 3, 0)]
    stack = Shard.stack(parts)
    assert stack.X.shape == (3, 3, 2)
    assert stack.mask.tolist() == [[True, False, False], [True, True, True], [False, False, False]]
    assert stack.y.tolist() == [[-1, 1, 1], [-1, -1, -1], [1, 1, 1]]
    assert not stack.X[~stack.mask].any()
    assert stack.party(0).X.tolist() == [[0.25, 0.25]]
    assert stack.party(2).X.shape == (0, 2)
    assert stack.pooled().y.tolist() == [-1] * 4
    for shard in (stack, stack.party(1), stack.pooled(), next(stack.blocks())):
        assert not any(array.flags.writeable for array in (shard.X, shard.y, shard.mask))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("locked", [False, True])
def test_what_cannot_be_made_safe_in_place_is_copied(order: str, *, locked: bool) -> None:
    X = np.asarray(np.full((3, 2), 2.0), order="F" if order == "F" else "C")
    X.flags.writeable = not locked
    y = np.ones(6)[::2]
    shard = Shard.adopt(X, y, "euclidean", None)
    assert (X == 2.0).all(), "labels that are strided have it copied too"
    assert np.abs(shard.X - 0.5**0.5).max() <= GRID
    adopted = Shard.adopt(X, np.ones(3), "euclidean", None)
    assert (adopted.X is X) == (order == "C" and not locked)
    with pytest.raises(ValueError, match="X must be"):
        Shard.adopt(np.zeros(3), np.ones(3), "euclidean", None)
    assert Shard.adopt(np.zeros((2, 3, 1)), np.ones((2, 3)), "euclidean", None).X.shape == (2, 3, 1)


def test_integers_are_read_as_numbers_and_lists_as_arrays() -> None:
    shard = Shard(np.array([[0, 1], [-1, 0]]), np.array([1, -1]), np.array([1, 1]))
    assert [shard.X.dtype, shard.y.dtype, shard.mask.dtype] == [np.float64, np.float64, np.bool_]
    assert shard.X.flags.c_contiguous
    assert Shard(np.asfortranarray(np.zeros((3, 2))), np.ones(3)).X.flags.c_contiguous
    assert repr(shard).startswith("Shard(X=array")
    assert "_norms_l1" not in repr(shard)
