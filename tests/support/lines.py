"""Lines to services that are not on the network: in this process, or made up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from parley.common.client.endpoints import PeerEntry
from parley.common.client.peer import Line
from parley.common.client.transport import PeerRequest, PeerResponse


@dataclass(frozen=True, slots=True)
class Over:
    """Carries requests over one of httpx's transports, which tests have several of."""

    transport: httpx.AsyncBaseTransport

    async def send(self, request: PeerRequest) -> PeerResponse:
        """The response to a request."""
        url = f"http://service{request.target}"
        outgoing = httpx.Request(request.method, url, headers=list(request.headers), content=request.content)
        answer = await self.transport.handle_async_request(outgoing)
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        content = b"".join([piece async for piece in answer.stream])
        await answer.aclose()
        headers = {name.lower(): value for name, value in reversed(answer.headers.raw)}
        return PeerResponse(answer.status_code, headers, content)

    async def close(self) -> None:
        """Leave the service as it is."""


def line_over(entry: PeerEntry, transport: httpx.AsyncBaseTransport) -> Line:
    """A line to a service by its entry, over a transport."""
    return Line(entry, Over(transport))


def line_to(name: str, transport: httpx.AsyncBaseTransport) -> Line:
    """A line to a service, where only its name matters."""
    return line_over(
        PeerEntry.model_validate({"name": name, "url": f"http://{name}", "token": "t", "plain_http": True}), transport
    )


@asynccontextmanager
async def closing_line(line: Line) -> AsyncIterator[Line]:
    """A line that is closed when the block ends."""
    try:
        yield line
    finally:
        await line.close()
