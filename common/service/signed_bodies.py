"""Bodies of the secure sum: one media type for every signed message."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from parley.common.errors import UnsupportedMediaError
from parley.common.secure_sum.envelope import Signed
from parley.common.service.http.whole_bodies import read_whole

SIGNED_MEDIA_TYPE = "application/x-parley-signed"


def is_signed(request: Request) -> bool:
    """Whether the body says that it is a signed message."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == SIGNED_MEDIA_TYPE


async def read_signed(request: Request) -> Signed:
    """The body's signed message, its signature not yet checked. Raises UnsupportedMediaError, MessageError."""
    body = await read_whole(request, request.app.state.limits.body_bytes, "limits.body_bytes")
    return await asyncio.to_thread(signed_of, request, body)


def signed_of(request: Request, body: bytes | bytearray) -> Signed:
    """The same of a body that was read already."""
    if not is_signed(request):
        raise UnsupportedMediaError(f"the body must be {SIGNED_MEDIA_TYPE}")
    return Signed.from_bytes(body)


def signed_response(frame: bytes) -> Response:
    """A signed message's frame as a response."""
    return Response(frame, media_type=SIGNED_MEDIA_TYPE)


def body(description: str) -> dict[str, Any]:
    """An OpenAPI body that is a signed message."""
    return {
        "description": description,
        "content": {SIGNED_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
