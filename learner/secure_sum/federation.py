"""Asks real parties over HTTP, and shows the learner only the sum of their answers.

A round has four steps: ask, contribute, open, decode. It goes on without silent parties while enough contribute; a late
contribution is not in the set. What is sent is stored first (`parley.learner.storage.session_store`), so a run that is
resumed within a round sends the same bytes: a party that had answered gives the same answer at no cost, and key holders
are never asked to open another set.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from parley.common.client.federation import PartyPool
from parley.common.client.peer import all_of, ask_all
from parley.common.encoding.fixed_point import checked_answer, from_wire
from parley.common.errors import InvalidInputError, SecureSumError
from parley.common.protocol.bounds import exceeds_bound
from parley.common.protocol.messages import Query, Reply
from parley.common.runs.secure_terms import round_terms
from parley.common.runs.specification import RunSpec
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import PackingError, Reason
from parley.common.secure_sum.learner import LearnerRole, Sum
from parley.common.service.tracing import traced_round
from parley.learner.storage.session_store import Round, SessionStore

if TYPE_CHECKING:
    from parley.common.client.party import PartyClient
    from parley.learner.secure_sum.key_holder_client import KeyHolderClient

_T = TypeVar("_T")
_MOST_NAMED = 20


class SecureSumFederation(PartyPool):
    """The parties and key holders of one session; all of them have signed its roster.

    The ``role`` does arithmetic on large integers, in a thread of its own; ``key_holder_seconds`` bounds an opening.
    Beside the errors of `PartyPool` it raises KeyHolderRefusedError and UnavailableError naming a key holder, and
    PackingError if a result cannot be a sum of answers, by its form or its public bound
    (`parley.common.protocol.bounds`).
    """

    def __init__(  # noqa: PLR0913 -- its parts, by name
        self,
        spec: RunSpec,
        parties: Sequence[PartyClient],
        deadline: float,
        recent: Sequence[tuple[int, ...]],
        *,
        role: LearnerRole,
        key_holders: Sequence[KeyHolderClient],
        key_holder_seconds: float,
        store: SessionStore,
    ) -> None:
        super().__init__(spec, parties, deadline, recent)
        self._algorithm, self._facts = spec.build(), spec.facts()
        self._role = role
        self._key_holders = tuple(key_holders)
        self._key_holder_seconds = key_holder_seconds
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="secure-sum")

    def end(self) -> None:
        """End the session and forget its seeds."""
        self._thread.submit(self._role.end)
        self._thread.shutdown(wait=False)

    async def answer(self, run: str, query: Query) -> Reply:
        """Return the exact sum of all active parties' answers."""
        if query.reveal != "sum":
            raise InvalidInputError(f"round {query.round} asks for each party's answer, which a secure sum never shows")
        with traced_round(run, query.round):
            started = time.monotonic()
            signed_query, contributions = await self._begin(run, query)
            if not contributions:
                contributions = await self._collect(run, query.round, signed_query)
            total = await self._open(query.round, contributions)
            reply = await self._do(lambda: self._checked(query, total))
            opened = dict(zip([holder.name for holder in self._key_holders], total.receipts, strict=True))
            self.report = replace(self.report, seconds=time.monotonic() - started, opened=opened)
            return reply

    async def _begin(self, run: str, query: Query) -> tuple[Signed, Mapping[str, Signed]]:
        """Begin the round. Returns its signed query, and the contributions if their set was chosen before."""
        terms = round_terms(self._algorithm, self._facts, query.round)

        def begin() -> Round:
            return self._store.ask(run, query.round, deadline=int(time.time() + self._deadline) + 1)

        def ask() -> Signed:
            signed_query = self._role.ask(
                round=query.round,
                step=query.step,
                message=query.body,
                clip=terms.clip,
                noise=terms.noise,
                deadline=begun.deadline,
            )
            for contribution in begun.contributions.values():
                self._role.receive(contribution)
            return signed_query

        begun = await self._do(begin)
        if not begun.is_new:
            await self._check_session()
        signed_query = await self._do(ask)
        if begun.contributions:
            chosen = tuple(index for index in self.active if self._parties[index].name in begun.contributions)
            self._settle(chosen, begun.silent)
        return signed_query, begun.contributions

    async def _check_session(self) -> None:
        """Have the key holders say that the session goes on; one that a restore or an upgrade has ended does not."""
        proposal, session = await self._do(self._role.propose), self._role.roster.session
        all_of(
            await ask_all(self._key_holders, lambda holder: holder.sign(session, proposal), self._key_holder_seconds)
        )

    async def _collect(self, run: str, round: int, signed_query: Signed) -> Mapping[str, Signed]:
        """Collect the active parties' contributions, by name, and store them as the set to be opened."""

        async def contribute(party: PartyClient) -> Signed:
            contribution = await party.contribute(run, round, signed_query)
            await self._check(party, contribution)
            return contribution

        took: dict[str, float] = {}
        outcomes = await ask_all(self.active_parties, contribute, self._deadline, took)
        answers = self._conclude(round, outcomes, took)
        contributions = {self._parties[index].name: contribution for index, contribution in answers.items()}
        silent = {**self.report.dropped, **self.report.missed}
        await self._do(lambda: self._store.choose(run, contributions, silent))
        return contributions

    async def _check(self, party: PartyClient, contribution: Signed) -> None:
        """Take a contribution; raises PartyRefusedError naming the party if it does not answer the query."""
        try:
            contributor = await self._do(lambda: self._role.receive(contribution))
        except SecureSumError as error:
            raise party.refuse(error.reason, f"its contribution cannot be used: {error.detail}") from None
        if contributor != party.name:
            raise party.refuse("unknown_party", f"it contributes as {contributor}")

    async def _open(self, round: int, contributors: Mapping[str, Signed]) -> Sum:
        """Return the sum of the contributions, opened by every key holder."""
        requests = await self._do(lambda: self._role.open(contributors.keys()))
        request_of = {holder.name: request for holder, request in zip(self._key_holders, requests, strict=True)}
        session = self._role.roster.session
        opened = await ask_all(
            self._key_holders,
            lambda holder: holder.open(session, round, request_of[holder.name]),
            self._key_holder_seconds,
        )
        sums = all_of(opened)
        try:
            return await self._do(lambda: self._role.close(sums))
        except PackingError as error:
            raise _no_sum(round, contributors, error.detail, error.reason) from None

    def _checked(self, query: Query, total: Sum) -> Reply:
        """Return the reply of a sum; raises PackingError (beyond_bound) if honest answers cannot have made it."""
        values = total.values[: self._questions[query.round - 1].answer]  # what follows is padding to the widest round
        reply = Reply(from_wire(checked_answer(values), self._shift), self._recent[-1])
        beyond = exceeds_bound(reply.value, self._algorithm, query, self._facts, reply.contributors)
        if beyond.any():
            fault = (
                f"{int(beyond.sum())} of {beyond.size} numbers are larger than their answers and noise can make them"
            )
            raise _no_sum(query.round, total.contributors, fault, Reason.BEYOND_BOUND)
        return reply

    async def _do(self, work: Callable[[], _T]) -> _T:
        """Have the role, or the store, do something in the role's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _no_sum(round: int, contributors: Collection[str], fault: str, reason: str) -> PackingError:
    """Return the error for a result that is no sum of honest answers: it says what can be concluded, and no values."""
    some, beyond = sorted(contributors)[:_MOST_NAMED], len(contributors) - _MOST_NAMED
    names = ", ".join(some) + (f" and {beyond} more" if beyond > 0 else "")
    return PackingError(
        f"the sum of round {round} is no sum of answers: {fault}. One of {names}, or a key holder, sent a wrong share; "
        "a secure sum hides which. Nothing of this round was used",
        reason=Reason(reason),
    )
