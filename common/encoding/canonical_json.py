"""Canonical JSON: one spelling for one value, so that a hash names it; and JSON that has one meaning."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

JSON = "application/json"
"""The media type of JSON."""

_LONG = 2**16  # an array that is spelt in pieces

_SPELLING = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: Any) -> bytes:  # noqa: ANN401 -- any JSON value
    """A JSON value as UTF-8: keys sorted, no spaces, no NaN or infinity (ValueError).

    >>> canonical({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return _SPELLING.encode(value).encode()


def canonical_digest(value: Any) -> str:  # noqa: ANN401 -- any JSON value
    """SHA-256 of a value's canonical JSON, in hexadecimal; of millions of numbers the JSON is never there at once."""
    digest = hashlib.sha256()
    for piece in _pieces(value):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(value: Any) -> Iterator[bytes]:  # noqa: ANN401 -- any JSON value
    """A value's canonical JSON, in pieces where it is a long array."""
    if not (isinstance(value, list | tuple) and len(value) > _LONG):
        yield canonical(value)
        return
    for start in range(0, len(value), _LONG):
        yield b"," if start else b"["
        yield canonical(value[start : start + _LONG])[1:-1]
    yield b"]"


def read_json(body: bytes) -> Any:  # noqa: ANN401 -- any JSON value
    r"""A JSON value without a name twice in an object, NaN, a number that overflows, or half a character.

    Raises ValueError or RecursionError for anything else. Of a name that is there twice nobody could tell which counts,
    of an epsilon, say; and what is half a character (``"\ud800"``) has no bytes, and so no digest.
    """
    value = json.loads(body, parse_constant=_finite, parse_float=_finite, object_pairs_hook=_distinct)
    if b"\\u" in body or b"\0" in body:  # the second: of UTF-16, which may spell the first otherwise
        canonical(value)
    return value


def _finite(text: str) -> float:
    """A number as JSON has it."""
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, each of whose names is there once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name twice")
    return found
