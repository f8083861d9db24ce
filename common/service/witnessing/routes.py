"""The routes by which learners hand receipts on from one service to another."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, Request
from starlette.responses import Response

from common.service.strict_json import large_json
from common.service.witnessing.desk import Desk
from common.service.witnessing.messages import MOST_RECEIPTS, HeldReceipts
from common.storage.witness import Witness


def add_witness(app: FastAPI, desk: Desk, witness: Witness) -> None:
    """Take and show receipts of others."""

    @app.put("/v1/receipts", summary="Hand receipts of others on", tags=["receipts"], status_code=204)
    @large_json
    async def take_receipts(request: Request, response: Response, given: HeldReceipts) -> None:
        """Keep the newest of each service whose public key this one knows; all others are passed over."""
        await desk.do(request, response, lambda: None)
        await asyncio.to_thread(witness.take, given.receipts)

    @app.get("/v1/receipts", summary="The newest receipts of others", tags=["receipts"])
    async def show_receipts(request: Request, response: Response) -> HeldReceipts:
        """What this service holds of others: put to whoever signed it, it tells whether its ledger was set back."""
        texts = await asyncio.to_thread(witness.texts)
        return await desk.do(request, response, lambda: HeldReceipts(receipts=tuple(texts[-MOST_RECEIPTS:])))
