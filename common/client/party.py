"""The parties of the roster, as the learner talks to them."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from parley.common.arrays import IntArray
from parley.common.client.peer import Peer
from parley.common.encoding.fixed_point import checked_integers
from parley.common.encoding.npy import NPY, unpack_array
from parley.common.errors import InvalidInputError, PartyRefusedError, RefusedError, UnknownMembersError
from parley.common.protocol.messages import Query
from parley.common.protocol.receipts import APPROVAL
from parley.common.runs.certificate import SignedApproval
from parley.common.runs.pricing import longest_body
from parley.common.secure_sum.envelope import Signed
from parley.common.wire.party_api import Approval, BudgetReport, PartyFacts, PinnedKeys, RunProposal

_LONGEST_REFUSAL = 2**16


@lru_cache(maxsize=64)
def _longest_answer(width: int) -> int:
    """The most bytes of an answer of so many integers, or of a refusal in its place."""
    return max(longest_body([(width,)]), _LONGEST_REFUSAL)


class PartyClient(Peer):
    """One party. All methods raise UnavailableError or PartyRefusedError."""

    role: ClassVar[str] = "party"
    refusal: ClassVar[type[RefusedError]] = PartyRefusedError

    _listed: str | None = None
    """The digest of the members that it was told last."""

    async def facts(self) -> PartyFacts:
        """What the party says of itself."""
        content, _ = await self._request("GET", "/v1/party")
        return self._parse(PartyFacts, content)

    async def pins(self) -> PinnedKeys:
        """Whom its owner trusts in secure sums with this learner."""
        content, _ = await self._request("GET", "/v1/party/pins")
        return self._parse(PinnedKeys, content)

    async def budget(self) -> BudgetReport:
        """What the party's ledger has left."""
        content, _ = await self._request("GET", "/v1/budget")
        return self._parse(BudgetReport, content)

    async def greet(self) -> None:
        """A bare round trip."""
        await self._send("GET", "/healthz")

    async def approve(self, proposal: RunProposal) -> tuple[Approval, SignedApproval]:
        """The party's consent to a run, and as it was signed, whose members are listed to it once, or if it forgot."""
        if proposal.spec.members.digest == self._listed:
            try:
                return await self._consent(proposal, proposal.naming)
            except RefusedError as error:
                if error.facts["reason"] != UnknownMembersError.kind:
                    raise
        consent = await self._consent(proposal, proposal.listing)
        self._listed = proposal.spec.members.digest
        return consent

    async def _consent(self, proposal: RunProposal, offer: bytes) -> tuple[Approval, SignedApproval]:
        """The consent to an offer, which its receipt binds to run and specification."""
        query = (proposal.run, APPROVAL, proposal.spec.digest)
        body, receipt = await self._request("POST", "/v1/runs", offer, query=query)
        return self._parse(Approval, body), SignedApproval(approval=body.decode(), receipt=receipt.text)

    async def answer(self, run: str, query: Query, width: int) -> IntArray:
        """The party's answer (width,) to a round's query, which its receipt binds to run, round and question.

        No more is read of a response than such an answer has, or a refusal needs.
        """
        path = f"/v1/runs/{run}/rounds/{query.round}?step={query.step}&reveal={query.reveal}"
        bound = (run, query.round, query.digest)
        content, _ = await self._request("PUT", path, query.body, NPY, query=bound, longest=_longest_answer(width))
        try:
            answer = checked_integers(unpack_array(content, "<i8"))
        except InvalidInputError as error:
            raise self.refuse("malformed-answer", f"its answer cannot be used: {error.detail}") from None
        if answer.ndim != 1:
            raise self.refuse("malformed-answer", "its answer is not a vector")
        if answer.size != width:
            raise self.refuse("malformed-answer", f"it answered {answer.size} values where {width} were asked")
        return answer

    async def join(self, run: str, invitation: Signed, key: str) -> bytes:
        """The party's signature, by ``key``, of the roster of a run that it approved."""
        return await self._sign(f"/v1/runs/{run}/roster", invitation, key)

    async def contribute(self, run: str, round: int, query: Signed) -> Signed:
        """The party's contribution to a sum, not yet checked."""
        return await self._exchange(f"/v1/runs/{run}/rounds/{round}", query)

    async def end(self, run: str) -> None:
        """Tell the party that a run has ended."""
        await self._request("DELETE", f"/v1/runs/{run}")
