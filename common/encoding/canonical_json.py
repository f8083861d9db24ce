"""Canonical JSON: one spelling for one value, so that a hash names it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

JSON = "application/json"
"""The media type of JSON."""


_SPELLING = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: Any) -> bytes:  # noqa: ANN401 -- any JSON value
    """A JSON value as UTF-8: keys sorted, no spaces, no NaN or infinity (ValueError).

    >>> canonical({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return _SPELLING.encode(value).encode()


def canonical_digest(value: Any) -> str:  # noqa: ANN401 -- any JSON value
    """SHA-256 of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()
