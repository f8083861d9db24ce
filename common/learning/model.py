"""Models as runs train them: weights, and the kind of model that they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class ModelKind:
    """A kind of model: the numbers of axes that its weights may have, and the function that scores rows.

    ``scores`` takes rows (n, d) and weights, and returns (n,) or, for K classes, (n, K).
    """

    axes: tuple[int, ...]
    scores: Callable[[FloatArray, FloatArray], FloatArray]


def _linear(X: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray(X @ weights)


def _softmax(X: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray(X @ weights.T)


def _members(_X: FloatArray, _weights: FloatArray) -> FloatArray:
    raise InvalidInputError("the run trained several models, one a party; none of them predicts for all")


def _statistics(_X: FloatArray, _weights: FloatArray) -> FloatArray:
    raise InvalidInputError("the run trained no model: its counts and sums predict for nobody")


KINDS: Mapping[str, ModelKind] = {
    "linear": ModelKind((1,), _linear),
    "softmax": ModelKind((2,), _softmax),
    "members": ModelKind((2, 3), _members),
    "statistics": ModelKind((1, 2), _statistics),
}
"""Kinds by name: ``linear`` weights are (d,); ``softmax`` ones (K, d), a row a class; ``members`` have an axis more, a
model a party; ``statistics`` are no model but counts and sums."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Weights, and their kind by its name in `KINDS`: by default linear for one axis, softmax for two.

    ``made_of`` has arrays by name that explain the weights, such as the contribution of each site.

    Raises InvalidInputError for an unknown kind, or weights of other axes than it has.
    """

    weights: FloatArray
    kind: str = ""
    made_of: Mapping[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", "linear" if self.weights.ndim == 1 else "softmax")
        if self.kind not in KINDS:
            raise InvalidInputError(f"unknown kind of model {self.kind!r}; there are {', '.join(KINDS)}")
        if self.weights.ndim not in KINDS[self.kind].axes:
            raise InvalidInputError(f"weights of {self.weights.ndim} axes are no {self.kind} model")

    def scores(self, X: FloatArray) -> FloatArray:
        """Return scores (n,) of rows (n, d), or (n, K) of K classes; raises InvalidInputError for members' models."""
        return KINDS[self.kind].scores(X, self.weights)

    @property
    def members(self) -> tuple[Model, ...]:
        """The models of the members, or the model itself if it is one for all."""
        return tuple(Model(weights) for weights in self.weights) if self.kind == "members" else (self,)
