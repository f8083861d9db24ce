"""The client by which a learner asks a party."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import ClassVar

from parley.common.arrays import IntArray
from parley.common.client.peer import Peer
from parley.common.data.study import ChargedRows
from parley.common.encoding.fixed_point import checked_integers
from parley.common.encoding.npy import NPY, unpack_array
from parley.common.errors import InvalidInputError, PartyRefusedError, RefusedError, UnknownMembersError
from parley.common.privacy.account import Cost
from parley.common.protocol.messages import Query
from parley.common.protocol.receipts import APPROVAL
from parley.common.runs.certificate import SignedApproval
from parley.common.runs.pricing import longest_body
from parley.common.secure_sum.envelope import Signed
from parley.common.wire.party_api import Approval, BudgetReport, PartyFacts, PinnedKeys, Room, RunProposal

_LONGEST_REFUSAL = 2**16


@lru_cache(maxsize=64)
def _longest_answer(width: int) -> int:
    """Return the most bytes that an answer of so many integers, or a refusal instead, may have."""
    return max(longest_body([(width,)]), _LONGEST_REFUSAL)


def _about(rows: ChargedRows | None) -> str:
    """Return the part of a request that says which rows a run is about."""
    return f"&rows={rows}" if rows else ""


class PartyClient(Peer):
    """One party. All methods raise UnavailableError or PartyRefusedError."""

    role: ClassVar[str] = "party"
    refusal: ClassVar[type[RefusedError]] = PartyRefusedError

    _listed: str | None = None
    """The digest of the members that were last listed to it."""

    async def facts(self) -> PartyFacts:
        """Return the facts that the party reports."""
        content, _ = await self._request("GET", "/v1/party")
        return self._parse(PartyFacts, content)

    async def pins(self) -> PinnedKeys:
        """Return the keys that its owner trusts in secure sums with this learner."""
        content, _ = await self._request("GET", "/v1/party/pins")
        return self._parse(PinnedKeys, content)

    async def budget(self, study_digest: str, rows: ChargedRows | None = None) -> BudgetReport:
        """Return the account that a study's runs are charged to, as this learner's own runs have left it.

        It is what is left for a run about these ``rows``; about all of the study's if None.
        """
        content, _ = await self._request("GET", f"/v1/budget?study={study_digest}{_about(rows)}")
        return self._parse(BudgetReport, content)

    async def room(self, study_digest: str, cost: Cost, rows: ChargedRows | None = None) -> bool:
        """Return whether a run of a study at this cost, about these ``rows`` or any, fits into what all runs left."""
        price = "&".join(f"{name}={number}" for name, number in asdict(cost).items())
        content, _ = await self._request("GET", f"/v1/budget/room?study={study_digest}&{price}{_about(rows)}")
        return self._parse(Room, content).fits

    async def greet(self) -> None:
        """Make a round trip to the party that asks it nothing, to measure how long one takes."""
        await self._send("GET", "/healthz")

    async def approve(self, proposal: RunProposal) -> tuple[Approval, SignedApproval]:
        """Return the party's consent to a run, also as signed; lists it the members once, and again if it forgot."""
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
        """Return the consent to an offer; its receipt binds it to the run and the specification."""
        query = (proposal.run, APPROVAL, proposal.spec.digest)
        body, receipt = await self._request("POST", "/v1/runs", offer, query=query)
        return self._parse(Approval, body), SignedApproval(approval=body.decode(), receipt=receipt.text)

    async def answer(self, run: str, query: Query, width: int) -> IntArray:
        """Return the party's answer (width,) to a round's query; its receipt binds it to run, round and question.

        A response is read no further than such an answer or a refusal goes.
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
        """Return the party's signature, by ``key``, of the roster of a run that it approved."""
        return await self._sign(f"/v1/runs/{run}/roster", invitation, key)

    async def contribute(self, run: str, round: int, query: Signed) -> Signed:
        """Return the party's contribution to a sum; it is not checked yet."""
        return await self._exchange(f"/v1/runs/{run}/rounds/{round}", query)

    async def end(self, run: str) -> None:
        """Tell the party that a run has ended."""
        await self._request("DELETE", f"/v1/runs/{run}")
