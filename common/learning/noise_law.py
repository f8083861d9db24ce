"""The law of the noise on a sum of answers: whole Laplace noise of each party, or shares of one.

Laplace noise of scale b is the difference of two Gamma(1) numbers times b, and shares of it add up in the Gamma's shape
(Kotz, Kozubowski & Podgorski, "The Laplace Distribution and Generalizations", 2001, section 2.4). So all sums of
answers have noise that is a sum of such differences, and a few random draws of it, or its density, say what a noisy
number may have been.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from parley.common.arrays import FloatArray

_DRAWS = 2000
_NEAR, _FAR, _PLACES, _FREQUENCIES = 4.0, 100.0, 300, 6000


@dataclass(frozen=True)
class SummedLaplace:
    """The law of a sum of ``parts``: a scale, in reals, times the difference of two Gamma(shape) numbers each."""

    parts: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, scales: Iterable[float], shape: float = 1.0) -> Self:
        """Return the law of Laplace noise of these scales, or of ``shape`` of it each; equal ones add up."""
        return cls(tuple((scale, shape * count) for scale, count in Counter(scales).items()))

    def times(self, factor: float) -> Self:
        """Return the law of the noise times a factor."""
        return type(self)(tuple((factor * scale, shape) for scale, shape in self.parts))

    @cached_property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.hypot(*(math.sqrt(2 * shape) * scale for scale, shape in self.parts))

    def draws(self, width: int) -> FloatArray:
        """Return draws (2000, width), the same for the same law: they say what noise does, and hide nothing."""
        rng = np.random.default_rng(width)
        total = np.zeros((_DRAWS, width))
        for scale, shape in self.parts:
            total += scale * (rng.gamma(shape, size=total.shape) - rng.gamma(shape, size=total.shape))
        return total

    def log_density(self, distance: FloatArray) -> FloatArray:
        """Return the logarithm of the density at distances (...) in reals, up to a constant."""
        if len(self.parts) == 1 and self.parts[0][1] == 1.0:
            return np.asarray(-np.abs(distance) / self.parts[0][0])
        x, logs = self._table
        return np.asarray(np.interp(np.abs(distance) / self.deviation, x, logs))

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        """Distances (places,), in deviations, and the logarithm of the density there, up to a constant.

        It is the inverse of the characteristic function, and falls as that of the widest part beyond.
        """
        t, x = np.linspace(0, 200, _FREQUENCIES), np.linspace(0, _NEAR, _PLACES)
        widest = max(scale for scale, _ in self.parts) / self.deviation
        logs = -sum(shape * np.log1p((scale / self.deviation * t) ** 2) for scale, shape in self.parts)
        density = np.trapezoid(np.cos(x[:, None] * t) * np.exp(logs), t, axis=1)
        densities = np.log(np.maximum(density, density[0] * 1e-9))
        return np.append(x, _FAR), np.append(densities, densities[-1] - (_FAR - _NEAR) / widest)
