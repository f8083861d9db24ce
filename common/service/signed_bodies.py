"""Bodies of the secure sum: one media type for every signed message."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from common.errors import UnsupportedMediaError
from common.secure_sum.envelope import Signed

SIGNED_MEDIA_TYPE = "application/x-parley-signed"


def is_signed(request: Request) -> bool:
    """Whether the body says that it is a signed message."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == SIGNED_MEDIA_TYPE


async def read_signed(request: Request) -> Signed:
    """The body's signed message, its signature not yet checked. Raises UnsupportedMediaError, MessageError."""
    return signed_of(request, await request.body())


def signed_of(request: Request, body: bytes | bytearray) -> Signed:
    """The same of a body that was read already."""
    if not is_signed(request):
        raise UnsupportedMediaError(f"the body must be {SIGNED_MEDIA_TYPE}")
    return Signed.from_bytes(bytes(body))


def signed_response(frame: bytes) -> Response:
    """A signed message's frame as a response."""
    return Response(frame, media_type=SIGNED_MEDIA_TYPE)


def body(description: str) -> dict[str, Any]:
    """An OpenAPI body that is a signed message."""
    return {
        "description": description,
        "content": {SIGNED_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
