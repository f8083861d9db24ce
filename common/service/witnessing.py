"""Where requests meet a service that keeps a chain: in a thread, with receipts both ways, and those of others.

What services hand on of each other's receipts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeVar

from fastapi import FastAPI, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from parley.common.protocol.receipts import RECEIPT_HEADER
from parley.common.service.application import caller
from parley.common.service.http.bodies import large_json
from parley.common.service.worker import Worker
from parley.common.storage.chain import SignedChain
from parley.common.storage.witness import Witness
from parley.common.strict import Strict

MOST_RECEIPTS = 1000
LONGEST_RECEIPT = 2048


class HeldReceipts(Strict):
    """Receipts of services, as they signed them."""

    receipts: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=LONGEST_RECEIPT)], ...],
        Field(max_length=MOST_RECEIPTS, description="each as it stood in a header Parley-Receipt"),
    ]


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Desk:
    """Requests to a service that keeps a ``chain``, which are worked at by a ``worker``."""

    chain: SignedChain
    worker: Worker

    async def do(self, request: Request, response: Response, work: Callable[[], _T]) -> _T:
        """What some work gives whoever asks, whose receipt is looked at first; a newer one goes with the response."""
        value, receipt = await self.answer(request, work)
        response.headers[RECEIPT_HEADER] = receipt
        return value

    async def answer(self, request: Request, work: Callable[[], _T]) -> tuple[_T, str]:
        """The same, with the receipt that is to go with the response."""
        learner, shown = caller(request), request.headers.get(RECEIPT_HEADER)
        return await self.worker.do(partial(self.chain.witnessed, learner, shown, work))


def add_witness(app: FastAPI, desk: Desk, witness: Witness) -> None:
    """Take and show receipts of others."""

    @app.put("/v1/receipts", summary="Hand receipts of others on", tags=["receipts"], status_code=204)
    @large_json
    async def take_receipts(request: Request, response: Response, given: HeldReceipts) -> None:
        """Keep the newest of each service whose public key this one knows; those of others are passed over.

        One that is no receipt, or was not signed with the key that it names, is refused, and all that came with it.
        """
        await desk.do(request, response, lambda: None)
        await asyncio.to_thread(witness.take, given.receipts)

    @app.get("/v1/receipts", summary="The newest receipts of others", tags=["receipts"])
    async def show_receipts(request: Request, response: Response) -> HeldReceipts:
        """What this service holds of others: put to whoever signed it, it tells whether its ledger was set back."""
        texts = await asyncio.to_thread(witness.texts)
        return await desk.do(request, response, lambda: HeldReceipts(receipts=tuple(texts[-MOST_RECEIPTS:])))
