"""A model's weights as a document spells them."""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, FiniteFloat, model_validator

from common.arrays import FloatArray
from common.strict import Strict

_FEW = 3  # a row of which fewer than a third is not zero is spelt by its entries,
_MANY = 100  # if it is at least so long


class SparseRow(Strict):
    """Weights of which few are not zero: how many there are, and places, from 0, and values of those few."""

    length: Annotated[int, Field(ge=1, le=2**24)]
    index: tuple[Annotated[int, Field(ge=0)], ...]
    value: tuple[FiniteFloat, ...]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.index) != len(self.value) or list(self.index) != sorted({*self.index}):
            raise ValueError("index must rise, and have as many places as there are values")
        if self.index and self.index[-1] >= self.length:
            raise ValueError("index has a place beyond the length")
        return self

    @classmethod
    def spelt(cls, weights: FloatArray) -> list[float] | dict[str, Any]:
        """A row of weights (d,) in JSON: by its entries, where they are few, or whole."""
        places = np.flatnonzero(weights)
        if len(weights) < _MANY or _FEW * len(places) >= len(weights):
            spelt: list[float] = weights.tolist()
            return spelt
        return {"length": len(weights), "index": places.tolist(), "value": weights[places].tolist()}

    @property
    def whole(self) -> FloatArray:
        """The weights, (d,)."""
        weights = np.zeros(self.length)
        weights[list(self.index)] = self.value
        return weights
