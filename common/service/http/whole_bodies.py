"""Long bodies with one copy in memory: read into one buffer, sent in pieces."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from parley.common.errors import InvalidInputError, TooLargeError

_PIECE = 2**18


def announced_length(request: Request) -> int | None:
    """How many bytes of body a request announces; None for one that does not, whose body comes in chunks."""
    length = request.headers.get("content-length")
    return None if length is None else int(length)  # digits, as the boundary has checked


async def read_whole(request: Request, limit: int, why: str) -> bytearray:
    """A request's body of at most ``limit`` bytes, in one buffer; nothing is read of one that announces more.

    Raises TooLargeError, which ends with ``why`` it may have no more, as soon as there is more; InvalidInputError for a
    body that is shorter than announced; ClientDisconnect.
    """
    length = announced_length(request)
    if length is not None and length > limit:
        raise _too_large(limit, why)
    buffer, count = bytearray(length or 0), 0
    async for piece in request.stream():
        count += len(piece)
        if count > limit:
            raise _too_large(limit, why)
        buffer[count - len(piece) : count] = piece  # which makes a buffer longer whose length was not announced
    if count < len(buffer):
        raise InvalidInputError(f"the body has {count} bytes, and {len(buffer)} were announced")
    return buffer


class WholeBody(Response):
    """A response whose body is sent in pieces, each when the last was taken, so that no second copy is made."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- as ASGI has it
        """Send it, and do what is to be done after it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        view = memoryview(self.body)
        for start in range(0, max(len(view), 1), _PIECE):
            piece, more = bytes(view[start : start + _PIECE]), start + _PIECE < len(view)
            await send({"type": "http.response.body", "body": piece, "more_body": more})
        if self.background is not None:
            await self.background()


def _too_large(limit: int, why: str) -> TooLargeError:
    return TooLargeError(f"the body may have at most {limit} bytes ({why})")
