"""Noise that a test can take apart: each party its own stream, another scale, no one-time part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from parley.common.arrays import FloatArray, IntArray
from parley.common.privacy.noise import Noise, Scale, Shape, SystemNoise


class Relay(Noise):
    """Every draw goes through `draw`, which a subclass changes on the way to the source."""

    def __init__(self, source: Noise) -> None:
        self.source = source

    def draw(self, law: str, scale: Scale, shape: Shape, *parts: float) -> npt.NDArray[Any]:
        drawn: npt.NDArray[Any] = getattr(self.source, law)(scale, shape, *parts)
        return drawn

    def discrete_gaussian(self, sigma: Scale, shape: Shape) -> npt.NDArray[Any]:
        return self.draw("discrete_gaussian", sigma, shape)

    def discrete_laplace(self, scale: Scale, shape: Shape, parts: float = 1) -> npt.NDArray[Any]:
        return self.draw("discrete_laplace", scale, shape, parts)

    def gaussian(self, sigma: Scale, shape: Shape) -> npt.NDArray[Any]:
        return self.draw("gaussian", sigma, shape)

    def laplace(self, scale: Scale, shape: Shape) -> npt.NDArray[Any]:
        return self.draw("laplace", scale, shape)

    def l2_laplace(self, beta: Scale, shape: Shape, parts: float = 1) -> npt.NDArray[Any]:
        return self.draw("l2_laplace", beta, shape, parts)

    def categorical(self, mantissas: IntArray, exponents: IntArray, n: int) -> IntArray:
        return self.source.categorical(mantissas, exponents, n)

    def once(self, name: str, draw: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any draw
        return self.source.once(name, draw)


class ScaledNoise(Relay):
    """A broken mechanism: noise ``factor`` times as wide as it should be."""

    def __init__(self, source: Noise, factor: float) -> None:
        super().__init__(source)
        self.factor = factor

    def draw(self, law: str, scale: Scale, shape: Shape, *parts: float) -> npt.NDArray[Any]:
        scaled = scale / self.factor if law == "l2_laplace" else scale * self.factor
        return super().draw(law, scaled, shape, *parts)

    def categorical(self, mantissas: IntArray, exponents: IntArray, n: int) -> IntArray:
        if self.factor == 1:
            return super().categorical(mantissas, exponents, n)
        logs = np.log2(mantissas) + exponents
        powers = (logs - logs.max()) / self.factor
        exponents = np.floor(powers).astype(np.int64)
        mantissas = np.clip(np.exp2(powers - exponents) * 2.0**52, 2.0**52, 2.0**53 - 1).astype(np.int64)
        return super().categorical(mantissas, exponents, n)


class RoundNoise(Relay):
    """The noise of each round alone: one-time noise is zero."""

    def once(self, name: str, draw: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any draw
        return np.zeros_like(draw())


class StackedNoise(Relay):
    """Many parties' noise, each drawn from its own source: what they draw apart, stacked."""

    def __init__(self, parties: Sequence[Noise]) -> None:
        self.parties = parties
        self.one_time: dict[str, Any] = {}

    def draw(self, law: str, scale: Scale, shape: Shape, *parts: float) -> npt.NDArray[Any]:
        scales = np.broadcast_to(scale, (*shape[:-1], np.shape(scale)[-1] if np.ndim(scale) else 1))
        parties = zip(self.parties, scales, strict=True)
        return np.stack([getattr(party, law)(one, shape[1:], *parts) for party, one in parties])

    def member(self, index: int) -> Noise:
        return self.parties[index]

    def once(self, name: str, draw: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any draw
        if name not in self.one_time:
            self.one_time[name] = draw()
        return self.one_time[name]


class OnlyOnce(SystemNoise):
    """One-time noise alone: what is drawn each round is zero, so two rounds at the same weights answer the same."""

    def l2_laplace(self, beta: Scale, shape: Shape, parts: float = 1) -> FloatArray:
        return np.zeros(shape)


class HeardNoise(Relay):
    """No noise but what it is told to say, ``draws`` in turn; it keeps what it was asked for."""

    def __init__(self, *draws: float) -> None:
        self.draws = list(draws)
        self.asked: list[tuple[str, npt.NDArray[Any], Shape, float]] = []

    def draw(self, law: str, scale: Scale, shape: Shape, *parts: float) -> npt.NDArray[Any]:
        self.asked.append((law, np.asarray(scale), shape, *(parts or (1,))))
        drawn = np.full(shape, self.draws.pop(0))
        return drawn.astype(np.int64) if law.startswith("discrete") else drawn
