from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.common.arrays import IntArray
from parley.common.encoding.fixed_point import to_integers
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.packing import MAX_CONTRIBUTORS, OFFSET, Layout, decode, encode

Refused = Callable[[Reason], AbstractContextManager[object]]
EDGE = OFFSET - 1
values_in_range = st.integers(-EDGE, EDGE)


def by_hand(values: list[int], layout: Layout) -> list[int]:
    """The packing as the definition has it, one value at a time."""
    per_block = layout.lanes - 1
    blocks = []
    for start in range(0, len(values), per_block):
        lanes = [1, *(value + 2**53 for value in values[start : start + per_block])]
        blocks.append(sum(lane << (64 * position) for position, lane in enumerate(lanes)))
    return blocks


def add(answers: list[IntArray], layout: Layout) -> list[int]:
    return [sum(blocks) for blocks in zip(*(encode(answer, layout) for answer in answers), strict=True)]


@pytest.mark.parametrize(("key_bits", "lanes"), [(2048, 31), (3072, 47), (4096, 63)])
def test_lanes_fill_the_key_and_leave_room_for_the_carries(key_bits: int, lanes: int) -> None:
    layout = Layout(d=1, key_bits=key_bits)
    assert layout.lanes == lanes
    largest_sum = MAX_CONTRIBUTORS * (layout.modulus - 1)
    assert largest_sum < 2 ** (key_bits - 1)  # the least modulus of that size


@pytest.mark.parametrize(("d", "blocks"), [(1, 1), (46, 1), (47, 2), (1000, 22), (10_000, 218)])
def test_blocks_of_an_answer(d: int, blocks: int) -> None:
    assert Layout(d, 3072).blocks == blocks


@given(st.lists(values_in_range, min_size=1, max_size=100), st.sampled_from([2048, 3072]))
def test_encoding_is_the_definition(values: list[int], key_bits: int) -> None:
    layout = Layout(len(values), key_bits)
    assert encode(np.array(values), layout) == by_hand(values, layout)


@given(st.data())
@settings(max_examples=60)
def test_sums_come_back_exactly(data: st.DataObject) -> None:
    d, k = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 8))
    answers = [np.array(data.draw(st.lists(values_in_range, min_size=d, max_size=d))) for _ in range(k)]
    layout = Layout(d, 2048)
    assert np.array_equal(decode(add(answers, layout), k, layout), np.sum(answers, axis=0))


@pytest.mark.parametrize("value", [EDGE, -EDGE, 0, 1, -1])
def test_1024_parties_at_the_edge_of_the_lane_are_exact(value: int) -> None:
    layout = Layout(64, 2048)
    totals = add([np.full(64, value)] * MAX_CONTRIBUTORS, layout)
    assert decode(totals, MAX_CONTRIBUTORS, layout).tolist() == [MAX_CONTRIBUTORS * value] * 64


def test_reals_just_below_2_to_the_21_fit() -> None:
    x = np.array([np.nextafter(2.0**21, 0), -np.nextafter(2.0**21, 0)])
    layout = Layout(2, 2048)
    assert decode(add([to_integers(x)] * 3, layout), 3, layout).tolist() == [3 * EDGE, -3 * EDGE]


def test_votes_go_through_unchanged() -> None:
    layout = Layout(3, 2048)
    votes = [np.array([1, 0, 0]), np.array([0, 0, 1]), np.array([1, 0, 0])]
    assert decode(add(votes, layout), 3, layout).tolist() == [2, 0, 1]


@pytest.mark.parametrize("value", [2**53, -(2**53), 2**63 - 1, -(2**63)])
def test_values_out_of_range_are_refused(value: int, refused: Refused) -> None:
    with refused(Reason.VALUE_TOO_LARGE):
        encode(np.array([0, value]), Layout(2, 2048))


@pytest.mark.parametrize(
    "values", [np.zeros(3, np.int64), np.zeros((1, 2), np.int64), np.zeros(2), np.zeros(2, np.int32)]
)
def test_other_shapes_and_types_are_refused(values: IntArray, refused: Refused) -> None:
    with refused(Reason.WRONG_SHAPE):
        encode(values, Layout(2, 2048))


def lanes(*lanes: int) -> int:
    return sum(lane << (64 * position) for position, lane in enumerate(lanes))


@pytest.mark.parametrize(
    ("totals", "contributors", "reason"),
    [
        ([lanes(2, 2**54)], 0, Reason.TOO_MANY_CONTRIBUTORS),
        ([lanes(1025, 2**60)], 1025, Reason.TOO_MANY_CONTRIBUTORS),
        ([lanes(2, 2**54)] * 2, 2, Reason.WRONG_SHAPE),
        ([2 ** (64 * 31)], 2, Reason.BITS_ABOVE_LANES),
        ([-1], 2, Reason.BITS_ABOVE_LANES),
        ([0], 2, Reason.COUNT_MISMATCH),
        ([lanes(3, 2**54)], 2, Reason.COUNT_MISMATCH),
        ([lanes(2, 2 * (2**54 - 1) + 1)], 2, Reason.LANE_TOO_LARGE),
        ([lanes(2, 1)], 2, Reason.LANE_TOO_LARGE),
        ([lanes(2, 2**54, 1)], 2, Reason.PADDING_NOT_ZERO),
    ],
)
def test_what_no_honest_parties_sum_to_is_refused(
    totals: list[int], contributors: int, reason: Reason, refused: Refused
) -> None:
    with refused(reason):
        decode(totals, contributors, Layout(1, 2048))


def test_lanes_at_their_bounds_are_accepted() -> None:
    layout = Layout(2, 2048)
    assert decode([lanes(2, 2, 2 * (2**54 - 1))], 2, layout).tolist() == [-2 * EDGE, 2 * EDGE]


def test_every_block_counts_its_contributors(refused: Refused) -> None:
    layout = Layout(31, 2048)
    first, second = add([np.zeros(31, np.int64)] * 2, layout)
    with refused(Reason.COUNT_MISMATCH):
        decode([first, second - 1], 2, layout)


def test_sums_of_the_largest_and_of_the_least_values_are_sums() -> None:
    layout = Layout(3, 2048)
    for value in (EDGE, -EDGE):
        plaintexts = encode(np.full(3, value), layout)
        for k in (1, 2, MAX_CONTRIBUTORS):
            total = decode([k * block for block in plaintexts], k, layout)
            assert total.tolist() == [k * value] * 3
            assert total.dtype == np.int64
