"""What a run trains."""

from __future__ import annotations

from dataclasses import dataclass

from common.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A linear classifier or regressor: weights (d,), or (K, d) where each of K parties has its own."""

    weights: FloatArray
