"""Noise drawn ahead of the answer that it hides.

How long a draw takes depends on the bits that are drawn. So a round takes its noise from a stock, and the stock is
refilled after the answer has left: the time to answer reveals nothing about the noise, and is shorter. Only the first
draw of a kind, when there is none in stock, is made within its round. Small draws are made for many rounds at once,
which costs little more than one. Noise that was taken is never put back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from parley.common.arrays import FloatArray, IntArray
from parley.common.privacy.noise import Scale, Shape, SystemNoise

_KINDS_IN_STOCK = 64
_NUMBERS_IN_STOCK = 2**23  # 64 MiB; the newest kind is drawn ahead even if it alone is wider
_NUMBERS_AT_ONCE = 2048
_DRAWS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Draw:
    """One kind of draw: a law of `Noise` by name, its scale as bytes and shape, and the result's shape."""

    law: str
    scale: bytes
    scale_shape: Shape
    shape: Shape
    parts: tuple[float, ...]

    def make(self, count: int) -> list[npt.NDArray[Any]]:
        """Draw ``count`` results."""
        scale = np.frombuffer(self.scale).reshape(self.scale_shape)
        drawn: npt.NDArray[Any] = getattr(SystemNoise(), self.law)(scale, (count, *self.shape), *self.parts)
        return list(drawn)

    @property
    def supply(self) -> int:
        """How many results to draw at once."""
        return min(max(_NUMBERS_AT_ONCE // max(math.prod(self.shape), 1), 1), _DRAWS_AT_ONCE)


class NoisePool:
    """Makes each round's noise, with the laws of `SystemNoise`, from draws made before. For one thread."""

    def __init__(self) -> None:
        self._ready: dict[Draw, list[npt.NDArray[Any]]] = {}
        self._used_up: list[Draw] = []

    def __call__(self, earlier: Mapping[str, npt.NDArray[Any]] | None = None) -> SystemNoise:
        """Return a round's noise, which restores the one-time noise of ``earlier`` rounds."""
        return _StockedNoise(self, earlier)

    def take(self, draw: Draw) -> npt.NDArray[Any]:
        """Take a result out of the stock, or draw one if there is none; no other round gets it."""
        ready = self._ready.get(draw) or draw.make(1)
        noise = ready.pop()
        if not ready:
            self._used_up.append(draw)
        return noise

    @property
    def is_low(self) -> bool:
        """Whether a kind is used up and should be drawn again between two rounds; any thread may ask."""
        return bool(self._used_up)

    def refill(self) -> None:
        """Draw again what was used up, and drop the kinds that were drawn longest ago if there are too many."""
        for draw in self._used_up:
            if not self._ready.get(draw):
                self._ready.pop(draw, None)  # so that it comes last: the dictionary's order is that of drawing
                self._ready[draw] = draw.make(draw.supply)
        self._used_up.clear()
        while len(self._ready) > _KINDS_IN_STOCK or (len(self._ready) > 1 and self._numbers > _NUMBERS_IN_STOCK):
            del self._ready[next(iter(self._ready))]

    @property
    def _numbers(self) -> int:
        """How many numbers there are in stock."""
        return sum(len(draws) * math.prod(draw.shape) for draw, draws in self._ready.items())


class _StockedNoise(SystemNoise):
    """One round's noise, taken from a stock: the laws that the released integers carry."""

    def __init__(self, stock: NoisePool, earlier: Mapping[str, npt.NDArray[Any]] | None) -> None:
        super().__init__(earlier)
        self._stock = stock

    def discrete_gaussian(self, sigma: Scale, shape: Shape) -> IntArray:
        return self._take("discrete_gaussian", sigma, shape)

    def discrete_laplace(self, scale: Scale, shape: Shape, parts: float = 1) -> IntArray:
        return self._take("discrete_laplace", scale, shape, float(parts))

    def l2_laplace(self, beta: Scale, shape: Shape, parts: float = 1) -> FloatArray:
        return self._take("l2_laplace", beta, shape, float(parts))

    def _take(self, law: str, scale: Scale, shape: Shape, *parts: float) -> npt.NDArray[Any]:
        values = np.asarray(scale, dtype=np.float64)
        return self._stock.take(Draw(law, values.tobytes(), values.shape, shape, parts))
