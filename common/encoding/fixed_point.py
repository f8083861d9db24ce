"""Reals on dyadic grids: sums that are exact in float64, and integers for the wire.

Floating-point sums exceed their stated sensitivity and floating-point noise has gaps that depend on the data (Mironov
2012; Casacuberta et al. 2022), so everything that is released is an integer. The grids make all steps exact and fast:

========== ============= ========================= ============================================================
what       grid          bound                     hence
========== ============= ========================= ============================================================
features   2^-16         row norm <= 1             scores X w: multiples of 2^-36 below 2^17, exact in float64
weights    2^-20         norm <= 2^16
slopes     2^-16         absolute value <= sqrt 2  sums of slope * x over 2^20 rows: multiples of 2^-32 of at most
                                                   2^20.5, integers of at most 2^52.5 < 2^53: exact in float64
answers    2^-32         n <= 2^30 rows            sums of such blocks in int64: at most 2^62.5 < 2^63, exact; of
                                                   slopes of at most 1, as every loss here has, at most 2^62
the wire   2^(s-32)      n <= 2^(20+s) rows        answers shifted right by s: at most 2^52, and less than 2^53 with
                                                   noise below 2^52: one to a lane of the secure sum
========== ============= ========================= ============================================================

By the max norm rows are at most 1 in each coordinate; their sums are as exact, and their scores are not.

Because every partial sum is exact, a BLAS product gives the same bits in every order, with any threads and stacking.
The shift s follows from the public sizes alone and is 0 up to 2^20 rows; it is applied to integers that already have
their noise, so it is post-processing.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.errors import InvalidInputError

Norm = Literal["euclidean", "max"]
"""The norm by which rows are at most 1: the root of the sum of squares, or the largest absolute value."""
NORMS: frozenset[Norm] = frozenset({"euclidean", "max"})
FEATURE_BITS = 16
SLOPE_BITS = 16
WEIGHT_BITS = 20
FRACTION_BITS = FEATURE_BITS + SLOPE_BITS
UNIT = 2**FRACTION_BITS
"""The number 1 in the integers that parties release."""
MAX_NORM = 2.0**16
"""The largest norm of weights that a party accepts."""
MAX_INTEGER = 2**53
"""Integers on the wire are smaller than this in absolute value."""
MAX_ANSWER = 3 * 2**61
"""Integers that a party computes are smaller than this: two thirds for the sum, one third for the noise."""
_HALF = 2**32
LANE_EXAMPLES = 2**20
"""The most examples whose sum needs no shift: it takes half of the range of +-2^21 and leaves half to the noise."""
MAX_EXAMPLES = 2**30
"""The most examples of a party."""


def truncate(x: FloatArray, bits: int) -> FloatArray:
    """Round toward zero to a multiple of 2^-bits; no absolute value grows, hence no norm.

    >>> truncate(np.array([0.3, -0.3]), 2)
    array([ 0.25, -0.25])
    """
    return np.trunc(x * 2.0**bits) * 2.0**-bits


def weights_on_grid(weights: FloatArray) -> FloatArray:
    """Round weights (..., d) to the public grid of 2^-20.

    Raises InvalidInputError when a weight is not finite or the norm exceeds 2^16: past that a score is no longer exact
    and clipping could be defeated by an overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        fits = bool(np.all(np.linalg.norm(weights, axis=-1) <= MAX_NORM))
    if not fits:
        raise InvalidInputError(f"weights must be finite and of norm at most {MAX_NORM:g}")
    return np.rint(weights * 2.0**WEIGHT_BITS) * 2.0**-WEIGHT_BITS


def to_integers(x: FloatArray) -> IntArray:
    """Round reals (...) to the nearest integers in units of 2^-32.

    Raises InvalidInputError when a value is not finite or not below 2^21 in absolute value.
    """
    with np.errstate(over="ignore"):
        scaled = np.rint(x * float(UNIT))
    return checked_integers(scaled)


def checked_integers(integers: FloatArray | IntArray) -> IntArray:
    """Return integers (...) as int64. Raises InvalidInputError unless all are below 2^53 in absolute value."""
    return _below(MAX_INTEGER, integers)


def checked_answer(integers: IntArray) -> IntArray:
    """Return an answer's integers (...). Raises InvalidInputError unless all are below 3 * 2^61 in absolute value."""
    return _below(MAX_ANSWER, integers)


def sum_of_answers(answers: IntArray) -> IntArray:
    """Return the exact sum (m,) of any number of answers (K, m), in two halves of 32 bits so that it does not overflow.

    Raises InvalidInputError as `checked_answer` does.

    >>> sum_of_answers(np.full((1025, 1), -(2**50))) == -1025 * 2**50
    array([ True])
    """
    low = (answers % _HALF).sum(axis=0)
    high = (answers // _HALF).sum(axis=0) + low // _HALF
    return checked_answer(_below(MAX_ANSWER // _HALF + 1, high) * _HALF + low % _HALF)


def to_reals(integers: IntArray) -> FloatArray:
    """Convert integers (...) in units of 2^-32 back to reals; exact below 2^53.

    >>> to_reals(to_integers(np.array([1.5, -0.25])))
    array([ 1.5 , -0.25])
    """
    return from_wire(integers, 0)


def wire_shift(n_largest: int) -> int:
    """Return the least s >= 0 such that the largest party, of ``n_largest`` examples, has at most 2^(20 + s).

    >>> [wire_shift(n) for n in (1, 2**20, 2**20 + 1, 2**30)]
    [0, 0, 1, 10]
    """
    return max(0, (n_largest - 1).bit_length() - (LANE_EXAMPLES - 1).bit_length())


def to_wire(integers: IntArray, shift: int) -> IntArray:
    """Return an answer's integers (...) in units of 2^(shift - 32), rounded half up; a shift of 0 changes nothing.

    Integers that noise, however unlikely, has made 2^53 or more are clipped: a refusal would reveal something about
    them, for nothing in return.

    >>> to_wire(np.array([-6, -5, 5, 6, 2**60]), 2).tolist()
    [-1, -1, 1, 2, 9007199254740991]
    """
    half = (1 << shift) >> 1
    return np.asarray(np.clip((integers + half) >> shift, 1 - MAX_INTEGER, MAX_INTEGER - 1))


def from_wire(integers: IntArray, shift: int) -> FloatArray:
    """Return integers (...) in units of 2^(shift - 32), or sums of them, as reals; exact below 2^53."""
    return integers.astype(np.float64) * 2.0 ** (shift - FRACTION_BITS)


def _below(limit: int, integers: FloatArray | IntArray) -> IntArray:
    if integers.size and not -limit < integers.min() <= integers.max() < limit:  # abs would wrap at -2^63
        raise InvalidInputError("a value does not fit the fixed-point range of +-2^21")
    return np.asarray(integers).astype(np.int64)
