"""The privacy of noise of density exp(-beta |b|) in d dimensions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import betainc, gammainc, gammainccinv, gammaincinv

from parley.common.arrays import FloatArray
from parley.common.errors import InvalidInputError, check_not_negative

_TAIL = 1e-60
"""The probability that a quadrature omits at either end."""


def l2_laplace_delta(epsilons: FloatArray, bound: float, dimension: int) -> FloatArray:
    """Return delta(epsilon), (...), of noise of density exp(-beta |b|) in ``dimension`` d.

    ``bound`` is beta * sensitivity. With R ~ Gamma(d) the norm and t the cosine to the shift, the loss is sqrt(R^2 + 2
    a R t + a^2) - R, a = ``bound``. By symmetry delta(e) = P(loss > e) - e^e P(loss < -e); P is a quadrature over R of
    the cosine's Beta distribution, a sum of terms of one sign, so that small deltas have few digits less than large
    ones. In one dimension the noise is Laplace's, and delta(e) = 1 - e^((e - a) / 2).
    """
    check_not_negative(bound=bound)
    if np.isnan(epsilons).any():
        raise InvalidInputError("epsilons must be numbers, not nan")
    if dimension == 1:
        deltas = -np.expm1((epsilons - bound) / 2)
    else:
        inside = np.clip(epsilons, -bound, bound)
        above, below = _loss_beyond(inside, bound, dimension), _loss_beyond(-inside, bound, dimension, below=True)
        deltas = above - np.exp(inside) * below
    return np.clip(np.where(epsilons >= bound, 0.0, deltas), np.maximum(0.0, -np.expm1(epsilons)), 1.0)


def _loss_beyond(loss: FloatArray, bound: float, dimension: int, *, below: bool = False) -> FloatArray:
    """Return P(privacy loss > loss), or below it, (...), in two dimensions or more, for |loss| <= bound.

    No direction has a smaller loss before the norm exceeds (bound - loss) / 2.
    """
    onset = np.asarray((bound - loss) / 2)[..., None]
    norm, weight = _gamma_quadrature(onset, dimension)
    power = (dimension - 1) / 2
    if below:
        half_of_one_and_cosine = (bound + loss)[..., None] * (norm - onset) / (2 * bound * norm)
        share, surely = half_of_one_and_cosine, np.zeros_like(onset[..., 0])
    else:
        share = (bound - loss)[..., None] * (norm + (bound + loss)[..., None] / 2) / (2 * bound * norm)
        surely = gammainc(dimension, onset[..., 0])
    beyond = betainc(power, power, np.clip(share, 0.0, 1.0))
    return np.asarray((beyond * weight).sum(axis=-1) / _gamma_quadrature(np.zeros(1), dimension)[1].sum() + surely)


@lru_cache(maxsize=1)
def _legendre() -> tuple[FloatArray, FloatArray]:
    """Return the nodes and weights of Gauss and Legendre's quadrature."""
    return np.polynomial.legendre.leggauss(64)


def _gamma_quadrature(start: FloatArray, shape: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes (..., 64) above ``start`` (..., 1), and weights by the density x^(shape-1) e^-x up to a factor.

    The variable of integration is sqrt(x - start), in which the half-integer powers that rise at ``start`` are smooth.
    """
    low, high = gammaincinv(shape, _TAIL), gammainccinv(shape, _TAIL)
    start = np.clip(start, low, high)
    nodes, weights = _legendre()
    root = np.sqrt(high - start) * (nodes + 1) / 2
    x = start + root**2
    mode = shape - 1
    density = np.exp(mode * np.log(x / mode) - (x - mode))  # about the mode, where no large terms cancel
    return x, np.sqrt(high - start) * weights * root * density
