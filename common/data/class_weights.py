"""Class weights: how much a row of each class counts in training, by a public rule of a study or of a run.

    "class_weights": {"no": 0.1, "yes": 1}        "class_weights": "balanced"

Weights lie in [0, 1]; a class that is not named has 1. ``balanced`` makes classes count alike: the rarest has weight 1,
another the rarest's share of the population divided by its own. These shares are those that the study states, never
those of private rows. What is minimised is the mean over all rows of w_y times the loss of a row
(`parley.common.learning.losses`).

*Probabilities.* A model that is trained with weights tells how likely a class is in a population in which class k is
w_k times as common. Its score of class k is therefore log w_k too large, but for a constant, and `prior_offset` is what
has to be subtracted before scores become probabilities of the population as it is (Elkan 2001, "The Foundations of
Cost-Sensitive Learning", Theorem 2). Labels follow the scores themselves: the weights are there to change them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import Discriminator, Field, FiniteFloat, Tag

from parley.common.arrays import FloatArray
from parley.common.data.columns import Label, RealLabel
from parley.common.strict import Name

_Key = TypeVar("_Key")

ClassWeights = Annotated[
    Annotated[Literal["balanced"], Tag("rule")]
    | Annotated[
        dict[Name, Annotated[FiniteFloat, Field(json_schema_extra={"minimum": 0, "maximum": 1})]], Tag("by class")
    ],
    Discriminator(lambda stated: "rule" if isinstance(stated, str) else "by class"),
    Field(
        description="how much a row of each class counts in training: 'balanced', by the shares that the study states, "
        "or weights in [0, 1] by class, 1 for those not named"
    ),
]


def resolved_weights(stated: ClassWeights | None, label: Label | RealLabel) -> tuple[float, ...]:
    """Return the weight of each class of the label, in order; empty if all are 1.

    Raises ValueError for a real label, a class that the label has not, a weight outside [0, 1], weights that leave
    fewer than two classes, and for ``balanced`` if the label states no shares.

    >>> resolved_weights("balanced", Label(name="ill", values=("no", "yes"), shares=(0.8, 0.2)))
    (0.25, 1.0)
    """
    if stated is None:
        return ()
    if isinstance(label, RealLabel):
        raise ValueError(f"class_weights: label {label.name!r} is a number, without classes to weigh")  # noqa: TRY004
    weights = _balanced(label) if isinstance(stated, str) else _named(stated, label)
    return () if all(weight == 1 for weight in weights) else weights


def _balanced(label: Label) -> tuple[float, ...]:
    """Return the rarest class's share divided by each class's."""
    if (shares := label.frequencies) is None:
        raise ValueError(
            f"class_weights = 'balanced' needs to know how common the classes are: state the shares of label "
            f"{label.name!r} in the study, as a register or a description by the owners says them, or give the weights "
            "by class"
        )
    return tuple(min(shares) / share for share in shares)


def _named(stated: Mapping[str, float], label: Label) -> tuple[float, ...]:
    """Return the weights in the order of the label's classes."""
    if unknown := next((name for name in stated if name not in label.values), None):
        raise ValueError(f"class_weights: label {label.name!r} has no class {unknown!r}; it has {_told(label.values)}")
    for name, weight in stated.items():
        if not 0 <= weight <= 1:
            raise ValueError(
                f"class_weights: the weight of {name!r} must lie in [0, 1], not {weight:g}: noise is set for a row of "
                "weight 1, so give the others less"
            )
    weights = tuple(float(stated.get(name, 1.0)) for name in label.values)
    if sum(weight > 0 for weight in weights) < 2:  # noqa: PLR2004
        raise ValueError("class_weights must leave two classes a weight above 0: otherwise there is nothing to tell")
    return weights


def _told(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (" ..." if len(names) > most else "")


def scaled_weights(weights: Mapping[_Key, float]) -> dict[_Key, float]:
    """Return weights above 0 in the ratio of those given, the largest 1: scikit-learn's may be any.

    >>> scaled_weights({"no": 1, "yes": 10})
    {'no': 0.1, 'yes': 1.0}
    """
    largest = max(weights.values(), default=1.0)
    return {name: weight / largest for name, weight in weights.items()} if largest > 0 else dict(weights)


def prior_offset(weights: Sequence[float], outputs: int) -> FloatArray:
    """Return what scores have too much for probabilities of the whole population: () of one score, (K,) of K scores.

    A class of weight 0 was not learnt, and its score is left as it is.

    >>> float(prior_offset((0.25, 1.0), 1)), float(prior_offset((), 1))
    (1.3862943611198906, 0.0)
    """
    if not weights:
        return np.zeros(())
    logarithms = np.array([math.log(weight) if weight > 0 else 0.0 for weight in weights])
    return np.asarray(logarithms[1] - logarithms[0] if outputs == 1 else logarithms)
