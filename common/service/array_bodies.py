"""Array bodies: ``application/x-npy`` for programs, ``application/json`` for requests by hand.

Which one a body is says its Content-Type; which one comes back says Accept (``.npy`` unless it asks for JSON).
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from parley.common.encoding.canonical_json import JSON
from parley.common.encoding.npy import NPY
from parley.common.errors import UnsupportedMediaError


def is_json(request: Request) -> bool:
    """Whether the body is JSON rather than ``.npy``; raises UnsupportedMediaError when it says neither."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (NPY, JSON):
        raise UnsupportedMediaError(f"the body must be {NPY} or {JSON}")
    return media_type == JSON


def wants_json(request: Request) -> bool:
    """Whether the answer shall be JSON."""
    return JSON in request.headers.get("accept", "").lower()


def documented(description: str, dtype: str, schema: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI body that is an array of ``dtype`` in ``.npy``, or JSON of this schema."""
    binary = {"type": "string", "format": "binary", "description": f"{dtype} array in NumPy's .npy format, version 1.0"}
    return {"description": description, "content": {NPY: {"schema": binary}, JSON: {"schema": schema}}}
