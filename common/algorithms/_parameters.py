"""How an algorithm declares its parameters: as a frozen dataclass whose fields are checked when it is built."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from parley.common.errors import InvalidInputError
from parley.common.privacy import calibration

_T = TypeVar("_T")
_MOST_NAMED = 8

Rounds = Annotated[int, Field(ge=1, le=100_000, description="number of rounds T")]
# The least lambda keeps the minimiser of a loss of at most 1 at w = 0 within the largest norm of weights, 2^16.
Regularization = Annotated[
    float, Field(ge=1e-9, le=1e9, allow_inf_nan=False, description="lambda of (1/n) sum loss + (lambda/2)|w|^2")
]
CalibrationChoice = Annotated[
    calibration.Calibration, Field(description="whose noise: the paper's, or the least that a proof supports")
]
SlackChoice = Annotated[
    calibration.SlackCalibration,
    Field(
        description="whose noise: the paper's; the paper's by the branch of its computeSlack that has less; or the "
        "least that a proof supports"
    ),
]
ClipNorm = Annotated[
    float, Field(ge=1e-9, le=math.sqrt(2), description="C: the largest norm of one example's gradient, clipped to it")
]
LEAST_STEP = 1e-9
Step = Annotated[float, Field(ge=LEAST_STEP, le=1e9, allow_inf_nan=False, description="step length")]


def rounded(figure: float) -> float:
    """Round a chosen parameter to four significant digits, which are easy to read and change nothing that matters."""
    return float(f"{figure:.4g}")


def rounded_up(figure: float) -> float:
    """Round a chosen parameter up to four significant digits, for one that must not become smaller."""
    near = rounded(figure)
    return near if near >= figure else rounded(near * (1 + 1e-3))


def check_take_part(where: str, names: Iterable[str], parties: Sequence[str]) -> None:
    """Raise InvalidInputError if a name is not a party's; the message says ``where`` it is, and names the parties."""
    if unknown := sorted(set(names) - set(parties)):
        more = f" and {len(parties) - _MOST_NAMED:,} more" if len(parties) > _MOST_NAMED else ""
        present = f"there are {', '.join(parties[:_MOST_NAMED])}{more}"
        raise InvalidInputError(f"{where} names {', '.join(unknown)}, which take no part: {present}")


@dataclass_transform(frozen_default=True)
def algorithm(cls: type[_T]) -> type[_T]:
    """Make a class a frozen, slotted dataclass that validates its fields and accepts no others."""
    decorate = dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid", hide_input_in_errors=True))
    return cast("type[_T]", decorate(cls))
