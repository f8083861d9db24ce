"""How far noise reaches: for each draw, the value that it exceeds in absolute value with a chance of at most 2^-100.

So a sum of up to 2^24 numbers from 2^10 parties stays within its parts' reaches except for a chance of 2^-66. Nothing
is drawn here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from parley.common.arrays import FloatArray, IntArray
from parley.common.privacy.noise import Noise, Scale, Shape

_A = TypeVar("_A", bound=npt.NDArray[Any])
_NATS = 72.0  # e^-72 < 2^-103
_RANGE = 2.0**21 - 1  # no answer reaches further
_DEVIATIONS = 12.0  # 2 exp(-12^2 / 2) < 2^-102


class ReachOfNoise(Noise):
    """Noise as far as it reaches, always upwards, for answers that add it to exact numbers."""

    def discrete_gaussian(self, sigma: Scale, shape: Shape) -> IntArray:
        """Return the reach of a discrete Gaussian.

        It is subgaussian with its sigma (Canonne, Kamath & Steinke 2020).
        """
        return _upwards(_DEVIATIONS * np.asarray(sigma), shape)

    def discrete_laplace(self, scale: Scale, shape: Shape, parts: float = 1) -> IntArray:  # noqa: ARG002
        """Return the reach by Markov's inequality for exp(|k| / (2 scale)).

        Its mean is below 4 for a full draw and for any share.
        """
        return _upwards(2 * (_NATS + 2) * np.asarray(scale) + 1, shape)

    def gaussian(self, sigma: Scale, shape: Shape) -> FloatArray:
        """Return the reach of a normal draw."""
        return np.broadcast_to(_DEVIATIONS * np.asarray(sigma, np.float64), shape)

    def laplace(self, scale: Scale, shape: Shape) -> FloatArray:
        """Return the reach of a tail exp(-x / scale)."""
        return np.broadcast_to(_NATS * np.asarray(scale, np.float64), shape)

    def l2_laplace(self, beta: Scale, shape: Shape, parts: float = 1) -> FloatArray:
        """Return the reach of sqrt(V) g.

        P(Gamma(h) > h + sqrt(2 h t) + t) <= e^-t (Boucheron, Lugosi & Massart 2013, section 2.4).
        """
        half = (shape[-1] + 1) / (2 * parts)
        largest = half + np.sqrt(2 * half * _NATS) + _NATS
        reach = _DEVIATIONS * np.sqrt(2 * largest) / np.asarray(beta, np.float64)
        return np.broadcast_to(np.minimum(reach, _RANGE), shape)

    def categorical(self, mantissas: IntArray, exponents: IntArray, n: int) -> IntArray:
        """Raise NotImplementedError: draws of an index add nothing to an answer."""
        raise NotImplementedError("draws of an index are no noise on an answer")

    def once(self, name: str, draw: Callable[[], _A]) -> _A:  # noqa: ARG002
        """Return the reach of a draw at the first call."""
        return draw()


def _upwards(reach: FloatArray, shape: Shape) -> IntArray:
    return np.broadcast_to(np.ceil(reach), shape).astype(np.int64)
