"""Reals on dyadic grids: sums that are exact in float64, and integers for the wire.

Floating-point sums exceed their stated sensitivity and floating-point noise has gaps that depend on the data (Mironov
2012; Casacuberta et al. 2022), so whatever is released is an integer. Three grids make the way there exact and fast:

======== ============= ======================= ==========================================================
what     grid          bound                   hence
======== ============= ======================= ==========================================================
features 2^-16         row norm <= 1           scores X w: multiples of 2^-36 below 2^17, exact in float64
weights  2^-20         norm <= 2^16
slopes   2^-16         absolute value <= 1     sums of slope * x: multiples of 2^-32 below 2^21, exact
answers  2^-32         absolute value < 2^21   integers below 2^53, one to a lane of the secure sum
======== ============= ======================= ==========================================================

Because every partial sum is exact, a BLAS product gives the same bits whatever its order, its threads and its stacking.
"""

from __future__ import annotations

import numpy as np

from common.arrays import FloatArray, IntArray
from common.errors import InvalidInputError

FEATURE_BITS = 16
SLOPE_BITS = 16
WEIGHT_BITS = 20
FRACTION_BITS = FEATURE_BITS + SLOPE_BITS
UNIT = 2**FRACTION_BITS
"""One, in the integers that parties release."""
MAX_NORM = 2.0**16
"""The largest norm of weights that a party accepts."""
MAX_INTEGER = 2**53
"""Released integers are smaller than this in absolute value."""
MAX_EXAMPLES = 2**20
"""The most examples of a party: their sum takes half of the range of +-2^21 and leaves the other half to the noise."""


def truncate(x: FloatArray, bits: int) -> FloatArray:
    """Round toward zero to a multiple of 2^-bits; no absolute value grows, hence no norm.

    >>> truncate(np.array([0.3, -0.3]), 2)
    array([ 0.25, -0.25])
    """
    return np.trunc(x * 2.0**bits) * 2.0**-bits


def weights_on_grid(weights: FloatArray) -> FloatArray:
    """Weights (..., d) rounded to the public grid of 2^-20.

    Raises InvalidInputError when a weight is not finite or the norm exceeds 2^16: past that a score is no longer exact
    and clipping could be defeated by an overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        fits = bool(np.all(np.linalg.norm(weights, axis=-1) <= MAX_NORM))
    if not fits:
        raise InvalidInputError(f"weights must be finite and of norm at most {MAX_NORM:g}")
    return np.rint(weights * 2.0**WEIGHT_BITS) * 2.0**-WEIGHT_BITS


def to_integers(x: FloatArray) -> IntArray:
    """Reals (...) to the nearest integers in units of 2^-32.

    Raises InvalidInputError when a value is not finite or not below 2^21 in absolute value.
    """
    with np.errstate(over="ignore"):
        scaled = np.rint(x * float(UNIT))
    return checked_integers(scaled)


def checked_integers(integers: FloatArray | IntArray) -> IntArray:
    """Integers (...) as int64, refused with InvalidInputError unless all are below 2^53 in absolute value."""
    if not bool(np.all((integers > -MAX_INTEGER) & (integers < MAX_INTEGER))):  # abs would wrap at -2^63
        raise InvalidInputError("a value does not fit the fixed-point range of +-2^21")
    return np.asarray(integers).astype(np.int64)


def to_reals(integers: IntArray) -> FloatArray:
    """Integers (...) in units of 2^-32 back to reals; exact below 2^53.

    >>> to_reals(to_integers(np.array([1.5, -0.25])))
    array([ 1.5 , -0.25])
    """
    return integers.astype(np.float64) * 2.0**-FRACTION_BITS
