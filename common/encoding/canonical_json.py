"""Canonical JSON: one spelling for one value, so that a hash names it."""

from __future__ import annotations

import hashlib
import json
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
