"""JSON without what JSON does not have."""

from __future__ import annotations

import json
from typing import Any

_MAX_DEPTH = 32


def strict_json(body: bytes) -> Any:  # noqa: ANN401 -- any JSON value
    """A JSON value without NaN, infinities, overflowing numbers or nesting beyond 32 levels.

    Raises json.JSONDecodeError, which quotes nothing.
    """
    try:
        value = json.loads(body, parse_constant=_refuse, parse_float=_finite)
        _check_depth(value, _MAX_DEPTH)
    except (ValueError, RecursionError):
        raise json.JSONDecodeError("not strict JSON", "", 0) from None
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


def _check_depth(value: Any, levels: int) -> None:  # noqa: ANN401 -- any JSON value
    """Raise ValueError if arrays and objects nest deeper than this."""
    if isinstance(value, dict | list):
        if levels == 0:
            raise ValueError("nested too deep")
        for child in value.values() if isinstance(value, dict) else value:
            _check_depth(child, levels - 1)
