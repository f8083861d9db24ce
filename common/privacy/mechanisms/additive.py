"""Additive noise on an exact sum: integers in, integers out."""

from __future__ import annotations

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.encoding.fixed_point import UNIT, checked_answer, to_integers
from parley.common.errors import InvalidInputError
from parley.common.privacy.noise import Noise

_LARGEST_DEVIATION = 2.0**15
"""The largest deviation of noise: that of a larger one could leave the range of +-2^21 (64 deviations away)."""

ROUNDED_SHARES = "the chances of Laplace noise in shares are rounded, as floating point is"
"""What a guarantee of such noise assumes."""


def add_gaussian(total: IntArray, sigma: FloatArray | float, share: float, noise: Noise) -> IntArray:
    """Add discrete Gaussian noise of variance ``share * sigma^2`` to a sum (..., d).

    ``sigma`` (...) is the deviation, in reals, that the full sum needs; ``share`` is the part this party adds. Sums of
    discrete Gaussians are not quite discrete Gaussian; at these scales the difference in total variation is below 1e-20
    (Kairouz, Liu & Steinke 2021, Theorem 5). Noise is never narrower than the grid, however large epsilon is.

    Raises InvalidInputError if the deviation is too large for the fixed point: epsilon is too small.
    """
    scale = np.maximum(fitting(sigma)[..., None] * np.sqrt(share) * float(UNIT), 1.0)
    return checked_answer(total + noise.discrete_gaussian(scale, total.shape))


def add_laplace(total: IntArray, scale: FloatArray | float, noise: Noise, parts: float = 1) -> IntArray:
    """Add discrete Laplace noise, or one of ``parts`` shares of it, to each coordinate of a sum (..., d).

    ``scale`` (...) is in reals. Raises InvalidInputError if it is too large for the fixed point: epsilon is too small.
    """
    units = fitting(scale)[..., None] * float(UNIT)
    return checked_answer(total + noise.discrete_laplace(units, total.shape, parts))


def add_l2_laplace(total: IntArray, beta: FloatArray | float, parts: float, noise: Noise) -> IntArray:
    """Add one of ``parts`` shares of noise of density exp(-beta |b|), on the grid of 2^-32, to a sum (..., d).

    ``beta`` (...) is in reals. Rounding after the addition is post-processing, because the sum is itself on the grid.
    """
    fitting(l2_laplace_deviation(beta, total.shape[-1]))
    return checked_answer(total + to_integers(noise.l2_laplace(np.asarray(beta)[..., None], total.shape, parts)))


def l2_laplace_deviation(beta: FloatArray | float, dimension: int) -> FloatArray:
    """Return the deviation (...), in each coordinate, of noise of density exp(-beta |b|) in this dimension."""
    return np.asarray(np.sqrt(dimension + 1) / np.asarray(beta))


def fitting(deviation: FloatArray | float) -> FloatArray:
    """Return a deviation (...) in reals. Raises InvalidInputError if its noise would leave the fixed-point range."""
    deviation = np.asarray(deviation, dtype=np.float64)
    if not bool(np.all(deviation <= _LARGEST_DEVIATION)):
        raise InvalidInputError(
            f"epsilon is too small: noise of deviation {deviation.max():.3g} does not fit the fixed point"
        )
    return deviation
