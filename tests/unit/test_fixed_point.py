"""Exactness: what BLAS adds up in float64 is what Python's integers add up to, in any order and any stacking."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import (
    FEATURE_BITS,
    MAX_ANSWER,
    MAX_INTEGER,
    MAX_NORM,
    SLOPE_BITS,
    UNIT,
    WEIGHT_BITS,
    checked_answer,
    checked_integers,
    from_wire,
    sum_of_answers,
    to_integers,
    to_reals,
    to_wire,
    truncate,
    weights_on_grid,
    wire_shift,
)
from parley.common.errors import InvalidInputError
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Logistic


def shard_and_weights(seed: int, n: int, d: int, norm: float) -> tuple[Shard, FloatArray]:
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, d)), rng.normal(size=d)
    y = rng.choice([-1.0, 1.0], n)
    return Shard(X, y), weights_on_grid(w / np.linalg.norm(w) * norm)


def test_scores_and_sums_are_those_of_pythons_integers() -> None:
    for seed, norm in enumerate([0.0, 1.0, 300.0, 0.999 * MAX_NORM]):
        shard, w = shard_and_weights(seed, 300, 17, norm)
        rows = [[int(v) for v in row] for row in (shard.X * 2**FEATURE_BITS).tolist()]
        weights = [int(v) for v in (w * 2**WEIGHT_BITS).tolist()]
        scores = [sum(map(int.__mul__, row, weights)) for row in rows]
        assert (shard.X @ w * 2.0 ** (FEATURE_BITS + WEIGHT_BITS)).tolist() == scores
        slope = truncate(Logistic().slope(shard.X @ w, shard.y), SLOPE_BITS)
        slopes = [int(v) for v in (slope * 2**SLOPE_BITS).tolist()]
        expected = [sum(s * row[j] for s, row in zip(slopes, rows, strict=True)) for j in range(17)]
        assert gradient_sum(Logistic(), shard, w).tolist() == expected


def test_neither_order_nor_stacking_nor_padding_changes_a_bit() -> None:
    shard, w = shard_and_weights(5, 4097, 33, 40.0)
    whole = gradient_sum(Logistic(), shard, w)
    rng = np.random.default_rng(6)
    for _ in range(5):
        order, cut = rng.permutation(4097), int(rng.integers(1, 4096))
        parts = [Shard(shard.X[rows], shard.y[rows]) for rows in np.split(order, [cut])]
        assert np.array_equal(sum(gradient_sum(Logistic(), part, w) for part in parts), whole)
        assert np.array_equal(gradient_sum(Logistic(), Shard.stack(parts), w).sum(axis=0), whole)
    fortran = Shard(np.asfortranarray(shard.X), shard.y)
    assert np.array_equal(gradient_sum(Logistic(), fortran, w), whole)


def test_the_largest_sum_of_all_is_exact() -> None:
    """A million gradients of length 1: 2^20 * 2^32 is half of what a lane holds."""
    n = 2**20
    shard, w = Shard(np.ones((n, 1)), np.ones(n)), np.array([-60_000.0])
    assert gradient_sum(Logistic(), shard, w).tolist() == [-n * UNIT]


def test_three_million_rows_are_added_as_pythons_integers_are() -> None:
    """Past 2^20 rows the answer leaves the integers of float64, and stays exact."""
    n = 3 * 2**20
    X = np.full((n, 2), 2.0**-FEATURE_BITS)
    X[:, 0] = 1.0 - 2.0**-FEATURE_BITS
    shard, w = Shard.adopt(X, np.ones(n), "euclidean", None), np.array([-60_000.0, 0.0])  # every slope is -1
    rows = [int(v) for v in (shard.X[0] * 2**FEATURE_BITS).tolist()]
    exact = [-(2**SLOPE_BITS) * row * n for row in rows]
    answer = gradient_sum(Logistic(), shard, w)
    assert answer.tolist() == exact
    assert abs(exact[0]) > MAX_INTEGER
    assert gradient_sum(Logistic(), shard, w, clip_l1=0.5).tolist() == [
        -((2**31 // sum(rows)) * row * n) for row in rows
    ]  # the slope that keeps |slope x|_1 <= 1/2, in integers
    shift = wire_shift(n)
    assert shift == 2
    assert to_wire(answer, shift).tolist() == [(v + 2) // 4 for v in exact]
    assert np.abs(from_wire(to_wire(answer, shift), shift) - to_reals(answer)).max() <= 2.0 ** (shift - 33)


@pytest.mark.parametrize(("n", "shift"), [(1, 0), (2**20, 0), (2**20 + 1, 1), (2**21, 1), (2**30 - 1, 10), (2**30, 10)])
def test_the_shift_is_the_least_that_fits_the_largest_party(n: int, shift: int) -> None:
    assert wire_shift(n) == shift
    largest = np.array([n * UNIT, -n * UNIT])
    assert np.array_equal(checked_answer(largest), largest)
    assert np.abs(to_wire(largest, shift)).max() <= MAX_INTEGER // 2, "half a lane is left to the noise"
    if shift:
        assert n > 2 ** (20 + shift - 1)


@given(arrays(np.int64, 4, elements=st.integers(1 - MAX_INTEGER, MAX_INTEGER - 1)), st.integers(0, 10))
def test_the_wire_rounds_half_up_and_a_shift_of_zero_changes_nothing(v: IntArray, shift: int) -> None:
    halves = [math.floor(Fraction(x, 2**shift) + Fraction(1, 2)) for x in v.tolist()]
    assert to_wire(v, shift).tolist() == halves
    assert np.array_equal(to_wire(v, 0), v)
    assert np.array_equal(from_wire(v, 0), to_reals(v))


@pytest.mark.parametrize("bad", [MAX_ANSWER, -MAX_ANSWER, 2**63 - 1, -(2**63)])
def test_answers_past_the_integers_are_refused(bad: int) -> None:
    with pytest.raises(InvalidInputError, match="does not fit"):
        checked_answer(np.array([1, bad]))


@pytest.mark.parametrize("shift", [0, 2, 8])
def test_what_noise_takes_past_the_wire_is_cut_off(shift: int) -> None:
    edge = MAX_INTEGER << shift
    past = np.array([edge - 1, edge, MAX_ANSWER - 1, -edge, 1 - MAX_ANSWER])
    assert to_wire(past, shift).tolist() == [MAX_INTEGER - 1] * 3 + [1 - MAX_INTEGER] * 2


def test_any_number_of_answers_is_added_as_pythons_integers_are() -> None:
    rng = np.random.default_rng(7)
    for k, largest in ((1, 2**53), (1000, 2**53), (1025, 2**52), (10_000, 2**50)):
        answers = rng.integers(-largest + 1, largest, (k, 5))
        answers[:, 0] = largest - 1 if k < 2**8 else answers[:, 0]
        assert sum_of_answers(answers).tolist() == [sum(column) for column in answers.T.tolist()]


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("k", [768, 1024, 1536, 2048, 2049, 10_000])
def test_a_sum_that_would_wrap_is_refused(k: int, sign: int) -> None:
    below = np.full((767, 1), sign * (2**53 - 1))
    assert sum_of_answers(below).tolist() == [sign * 767 * (2**53 - 1)]
    with pytest.raises(InvalidInputError, match="does not fit"):
        sum_of_answers(np.full((k, 1), sign * 2**53))


@given(arrays(np.float64, 3, elements=st.floats(-1e6, 1e6)), st.integers(0, 20))
def test_truncation_lengthens_nothing(x: FloatArray, bits: int) -> None:
    cut = truncate(x, bits)
    assert (np.abs(cut) <= np.abs(x)).all()
    assert (np.abs(x - cut) < 2.0**-bits).all()
    assert all((Fraction(v) * 2**bits).denominator == 1 for v in cut.tolist())


@given(arrays(np.int64, 4, elements=st.integers(1 - MAX_INTEGER, MAX_INTEGER - 1)))
def test_integers_survive_the_way_to_reals_and_back(integers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    reals = to_reals(integers)
    assert [Fraction(v) * UNIT for v in reals.tolist()] == integers.tolist()
    assert np.array_equal(to_integers(reals), integers)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2.0**21, -(2.0**21), 1e308])
def test_what_does_not_fit_is_refused_without_being_told(bad: float) -> None:
    with pytest.raises(InvalidInputError, match=r"does not fit the fixed-point range") as error:
        to_integers(np.array([0.0, bad]))
    assert str(bad) not in error.value.detail


@pytest.mark.parametrize("bad", [MAX_INTEGER, -MAX_INTEGER, 2**63 - 1, -(2**63)])
def test_integers_past_a_lane_are_refused(bad: int) -> None:
    with pytest.raises(InvalidInputError, match="does not fit"):
        checked_integers(np.array([1, bad]))
    assert checked_integers(np.array([MAX_INTEGER - 1, 1 - MAX_INTEGER])).dtype == np.int64


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 65_537.0, 1e308])
def test_weights_that_defeat_exactness_are_refused(bad: float) -> None:
    for weights in (np.array([0.0, bad]), np.array([[0.0, 1.0], [bad, bad]])):
        with pytest.raises(InvalidInputError, match="weights must be finite and of norm at most 65536"):
            weights_on_grid(weights)


def test_each_row_of_weights_has_the_largest_norm_to_itself() -> None:
    longest = np.eye(3) * MAX_NORM
    assert np.array_equal(weights_on_grid(longest), longest)
    assert np.array_equal(weights_on_grid(longest[0]), longest[0])
    with pytest.raises(InvalidInputError, match="weights must be"):
        weights_on_grid(np.nextafter(longest, math.inf))


def test_weights_are_rounded_to_their_grid() -> None:
    w = np.random.default_rng(1).normal(size=(50, 4)) * 100
    rounded = weights_on_grid(w)
    assert np.abs(rounded - w).max() <= 2.0 ** -(WEIGHT_BITS + 1)
    assert np.array_equal(weights_on_grid(rounded), rounded)
