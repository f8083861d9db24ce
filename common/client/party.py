"""The parties of the roster, as the learner talks to them."""

from __future__ import annotations

from typing import ClassVar

import httpx

from common.arrays import IntArray
from common.client.peer import Peer
from common.client.receipts import HEADER, Receipt, read_receipt
from common.encoding.canonical_json import JSON
from common.encoding.fixed_point import checked_integers
from common.encoding.npy import NPY, unpack_array
from common.errors import InvalidInputError, PartyRefusedError, RefusedError
from common.protocol.messages import Query
from common.secure_sum.envelope import Signed
from common.wire.party_api import Approval, BudgetReport, PartyFacts, RunProposal


class PartyClient(Peer):
    """One party, over a client that holds its base URL and token.

    ``receipt`` is the newest that is known. All methods raise UnavailableError or PartyRefusedError.
    """

    role: ClassVar[str] = "party"
    refusal: ClassVar[type[RefusedError]] = PartyRefusedError

    def __init__(self, name: str, client: httpx.AsyncClient, receipt: Receipt | None = None) -> None:
        super().__init__(name, client)
        self.receipt = receipt

    async def facts(self) -> PartyFacts:
        """What the party says of itself."""
        return self._parse(PartyFacts, await self._send("GET", "/v1/party"))

    async def budget(self) -> BudgetReport:
        """What the party's ledger has left."""
        return self._parse(BudgetReport, await self._send("GET", "/v1/budget"))

    async def greet(self) -> None:
        """A bare round trip."""
        await self._send("GET", "/healthz")

    async def approve(self, proposal: RunProposal) -> Approval:
        """The party's consent to a run; the receipt goes with the proposal."""
        headers = {HEADER: self.receipt.text} if self.receipt else {}
        body = proposal.model_dump_json().encode()
        return self._parse(Approval, await self._send("POST", "/v1/runs", body, JSON, headers))

    async def answer(self, run: str, query: Query) -> IntArray:
        """The party's answer (m,) to a round's query."""
        path = f"/v1/runs/{run}/rounds/{query.round}?step={query.step}&reveal={query.reveal}"
        content = await self._send("PUT", path, query.body, NPY)
        try:
            answer = checked_integers(unpack_array(content, "<i8"))
        except InvalidInputError as error:
            raise self.refuse("malformed-answer", f"its answer cannot be used: {error.detail}") from None
        if answer.ndim != 1:
            raise self.refuse("malformed-answer", "its answer is not a vector")
        return answer

    async def join(self, run: str, invitation: Signed, key: str) -> bytes:
        """The party's signature, by ``key``, of the roster of a run that it approved."""
        return await self._sign(f"/v1/runs/{run}/roster", invitation, key)

    async def contribute(self, run: str, round: int, query: Signed) -> Signed:
        """The party's contribution to a sum, not yet checked."""
        return await self._exchange(f"/v1/runs/{run}/rounds/{round}", query)

    async def end(self, run: str) -> None:
        """Tell the party that a run has ended."""
        await self._send("DELETE", f"/v1/runs/{run}")

    def _note(self, headers: httpx.Headers) -> None:
        receipt = read_receipt(self.name, headers.get(HEADER))
        if receipt and (self.receipt is None or receipt.count > self.receipt.count):
            self.receipt = receipt
