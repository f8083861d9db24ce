"""A party between whom and the learner a test can step in, request by request."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from parley.common.encoding.npy import NPY, unpack_array
from parley.common.protocol.messages import Query
from parley.common.protocol.receipts import APPROVAL, RECEIPT_HEADER, Binding, Head, read_receipt, write_receipt
from parley.common.secure_sum.session import Identity
from parley.common.wire.party_api import RunProposal
from tests.support.cluster import Cluster, asgi_learner, party_apps

Intercept = Callable[[httpx.Request], Awaitable[httpx.Response | None]]


async def pass_on(_: httpx.Request) -> httpx.Response | None:
    """Leave the request to the party."""
    return None


def always(status: int, body: bytes = b"", path: str = "", **headers: str) -> Intercept:
    """Answer every request whose path contains ``path`` in the party's place."""

    async def respond(request: httpx.Request) -> httpx.Response | None:
        if path not in request.url.path:
            return None
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))

    return respond


def silent(path: str = "", after: int = 0) -> Intercept:
    """Never answer a request whose path contains ``path``, once there have been ``after`` such."""
    count = 0

    async def hang(request: httpx.Request) -> httpx.Response | None:
        nonlocal count
        count += path in request.url.path
        if path in request.url.path and count > after:
            await asyncio.Event().wait()
        return None

    return hang


def unreachable(path: str = "", times: float = math.inf) -> Intercept:
    """Refuse the connection for every request whose path contains ``path``, or for so many such."""
    count = 0

    async def refuse(request: httpx.Request) -> httpx.Response | None:
        nonlocal count
        count += path in request.url.path
        if path in request.url.path and count <= times:
            raise httpx.ConnectError("refused", request=request)
        return None

    return refuse


async def receipt_of(signer: Identity, request: httpx.Request, response: httpx.Response) -> str:
    """The receipt that a service would have given with a response, over the ledger that it was shown."""
    receipt = read_receipt(request.headers[RECEIPT_HEADER]) if RECEIPT_HEADER in request.headers else None
    head = receipt.head if receipt else Head(1, "0" * 64)
    bound, url = None, request.url
    if "/rounds/" in url.path and request.headers["Content-Type"] == NPY:
        round = int(url.path.rsplit("/", 1)[1])
        message = unpack_array(request.content, "<f8")
        query = Query(round, url.params["step"], message, "each" if url.params["reveal"] == "each" else "sum")
        assert isinstance(response.stream, httpx.AsyncByteStream)
        body = b"".join([part async for part in response.stream])
        bound = Binding.of(url.path.split("/")[3], round, query.digest, body)
    elif request.method == "POST" and url.path == "/v1/runs":
        proposal = RunProposal.model_validate_json(request.content)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        body = b"".join([part async for part in response.stream])
        bound = Binding.of(proposal.run, APPROVAL, proposal.spec.digest, body)
    ledger = receipt.ledger if receipt else head.link
    return write_receipt(
        signer.signing_key,
        signer=signer.name,
        ledger=ledger,
        head=head,
        shown=None if receipt is None else receipt.head,
        answer=bound,
    ).text


@dataclass
class Intercepted(httpx.AsyncBaseTransport):
    """Each request is first offered to ``intercept``; what it leaves goes to the service; ``seen`` lists them all.

    A successful answer of a test carries a receipt by the ``signer``, as an answer of the service does.
    """

    inner: httpx.AsyncBaseTransport
    intercept: Intercept = pass_on
    signer: Identity | None = None
    seen: list[str] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        async with self.news:
            self.seen.append(f"{request.method} {request.url.path}")
            self.news.notify_all()
        taken = await self.intercept(request)
        if taken is None:
            return await self.inner.handle_async_request(request)
        if taken.is_success and self.signer is not None:
            taken.headers[RECEIPT_HEADER] = await receipt_of(self.signer, request, taken)
        return taken

    async def wait_until_seen(self, request: str) -> None:
        """Wait for a request, as `seen` lists it."""
        async with asyncio.timeout(10), self.news:
            await self.news.wait_for(lambda: request in self.seen)

    def rounds(self) -> list[int]:
        """The rounds that were asked, in order."""
        return [int(path.rsplit("/", 1)[1]) for path in self.seen if "/rounds/" in path]


@asynccontextmanager
async def intercepted_parties(cluster: Cluster) -> AsyncIterator[dict[str, Intercepted]]:
    """The parties of a cluster in this process, by name."""
    async with party_apps(cluster) as apps:
        yield {
            name: Intercepted(httpx.ASGITransport(app), signer=cluster.party_settings(name).identity)
            for name, app in apps.items()
        }


@asynccontextmanager
async def learner_of(
    cluster: Cluster, parties: dict[str, Intercepted], **settings: object
) -> AsyncIterator[httpx.AsyncClient]:
    """A user's client of a learner among these parties; may be opened again after it was closed."""
    async with asgi_learner(cluster.learner_settings(None, **settings), lambda name: parties[name]) as client:
        yield client
