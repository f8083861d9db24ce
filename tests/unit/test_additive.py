"""Noise on an exact sum: how wide it is asked for, in units of the grid, that it is added, and what does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from parley.common.arrays import FloatArray, IntArray
from parley.common.encoding.fixed_point import FRACTION_BITS
from parley.common.errors import InvalidInputError
from parley.common.privacy.mechanisms.additive import (
    add_gaussian,
    add_l2_laplace,
    add_laplace,
    fitting,
    l2_laplace_deviation,
)
from parley.common.privacy.noise import NoNoise
from tests.support.noises import HeardNoise

TOTAL = np.array([[5, -7, 0], [2**40, 1, -3]])
TWO = np.array([0.25, 3.0])
GRID = 2.0**-FRACTION_BITS
WIDEST = 2.0**15


def test_gaussian_noise_has_its_share_of_the_variance() -> None:
    for share in (1.0, 0.25, 1e-3):
        noise = HeardNoise(11)
        assert (add_gaussian(TOTAL, TWO, share, noise) == TOTAL + 11).all()
        ((law, sigma, shape, _),) = noise.asked
        assert (law, shape) == ("discrete_gaussian", TOTAL.shape)
        assert (sigma * GRID) ** 2 == pytest.approx(share * TWO[:, None] ** 2)


def test_gaussian_noise_is_never_narrower_than_the_grid() -> None:
    """One unit is where the discrete law is still as private as the continuous one."""
    noise = HeardNoise(0)
    add_gaussian(TOTAL, np.array([2.0**-40, 1.5 * GRID]), 1.0, noise)
    assert noise.asked[0][1].ravel().tolist() == [1.0, 1.5]


def test_laplace_noise_has_its_scale_on_the_grid_and_is_whole_unless_parts_are_named() -> None:
    for parts in (1.0, 3.0):
        noise = HeardNoise(-4)
        answer = add_laplace(TOTAL, TWO, noise) if parts == 1 else add_laplace(TOTAL, TWO, noise, parts)
        assert (answer == TOTAL - 4).all()
        ((law, scale, shape, asked),) = noise.asked
        assert (law, shape, asked) == ("discrete_laplace", TOTAL.shape, parts)
        assert (scale * GRID == TWO[:, None]).all()


def test_noise_of_density_exp_minus_beta_b_is_rounded_to_the_grid() -> None:
    for drawn, units in ((3.4 * GRID, 3), (-3.6 * GRID, -4)):
        noise = HeardNoise(drawn)
        assert (add_l2_laplace(TOTAL, TWO, 5.0, noise) == TOTAL + units).all()
        ((law, beta, shape, parts),) = noise.asked
        assert (law, shape, parts) == ("l2_laplace", TOTAL.shape, 5.0)
        assert (beta == TWO[:, None]).all()


@pytest.mark.parametrize("dimension", [1, 2, 10, 1000])
def test_its_deviation_is_that_of_a_length_of_gamma_law_in_any_direction(dimension: int) -> None:
    length = stats.gamma(dimension, scale=1 / TWO)
    assert l2_laplace_deviation(TWO, dimension) ** 2 * dimension == pytest.approx(length.moment(2))


Add = Callable[[IntArray, FloatArray], IntArray]
ADDERS: dict[str, Add] = {
    "gaussian": lambda total, width: add_gaussian(total, width, 1e-9, NoNoise()),
    "laplace": lambda total, width: add_laplace(total, width, NoNoise()),
    "l2_laplace": lambda total, width: add_l2_laplace(total, math.sqrt(total.shape[-1] + 1) / width, 1e9, NoNoise()),
}


@pytest.mark.parametrize("add", ADDERS.values(), ids=ADDERS)
def test_noise_that_could_leave_the_integers_is_refused(add: Add) -> None:
    """Of the whole, however small the share is; no matter which of a stack has it."""
    assert (add(TOTAL, np.array([1.0, WIDEST])) == TOTAL).all()
    for wide in (math.nextafter(WIDEST, math.inf), math.inf, math.nan):
        with np.errstate(divide="ignore"), pytest.raises(InvalidInputError, match="epsilon is too small"):
            add(TOTAL, np.array([1.0, wide]))


def test_a_deviation_that_fits_is_a_float_of_the_same_shape() -> None:
    assert fitting(3).dtype == np.float64
    assert fitting(TWO).tolist() == TWO.tolist()
