"""The algorithms, one file each; adding one is a file and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from common.algorithms.dp_gd import DpGd
from common.algorithms.gop import Gop
from common.algorithms.local import Local
from common.algorithms.local_average import LocalAverage
from common.algorithms.pooled import Pooled
from common.algorithms.psgd import Psgd
from common.algorithms.wu_strongly_convex import WuStronglyConvex
from common.algorithms.wu_subgradient import WuSubgradient
from common.errors import InvalidInputError
from common.protocol.algorithm import Algorithm

REGISTRY: dict[str, type[Algorithm]] = {
    "dp_gd": DpGd,
    "psgd": Psgd,
    "gop": Gop,
    "local_average": LocalAverage,
    "pooled": Pooled,
    "local": Local,
    "wu_strongly_convex": WuStronglyConvex,
    "wu_subgradient": WuSubgradient,
}


def build_algorithm(name: str, parameters: Mapping[str, Any] | None = None) -> Algorithm:
    """The algorithm of this name with these parameters, defaults for the rest.

    Raises InvalidInputError that names an unknown algorithm, or the parameter that is unknown or out of range.
    """
    if name not in REGISTRY:
        raise InvalidInputError(f"unknown algorithm {name!r}; there are {', '.join(sorted(REGISTRY))}")
    try:
        return TypeAdapter(REGISTRY[name]).validate_python(dict(parameters or {}))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise InvalidInputError(f"parameters of {name}: {faults}") from None


def parameter_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of an algorithm's parameters."""
    return TypeAdapter(REGISTRY[name]).json_schema()
