"""A party's side of secure sums: it signs the rosters of runs that it approved, and answers with contributions.

Of a session only the accepted invitation is stored; its last contribution is the ledger's last answer. Each request
builds the session's role again from these two, so that an answer that could not be stored leaves no trace. The
obfuscators of an answer are taken before the ledger is touched, because drawing them may take long.
"""

from __future__ import annotations

import os
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import structlog

from parley.common.arrays import IntArray
from parley.common.encoding.npy import unpack_array
from parley.common.errors import ConflictError, ParleyError
from parley.common.protocol.messages import Query as Question
from parley.common.protocol.receipts import Answer
from parley.common.runs.secure_terms import check_roster, round_terms, session_of
from parley.common.runs.specification import RunSpec
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import Reason, RoundError, StateError
from parley.common.secure_sum.messages import Contribution, SumQuery
from parley.common.secure_sum.party import PartyRole as Role
from parley.common.secure_sum.session import Identity
from parley.party.answers.obfuscator_pool import Obfuscators, Reserved
from parley.party.ledger.ledger import Ask
from parley.party.policy import sum_policy

if TYPE_CHECKING:
    from parley.party.answers.party import AgreedRun, Party

_ROLES_IN_MEMORY = 64


@dataclass(frozen=True, slots=True, eq=False)
class CheckedQuery:
    """A signed query that was checked, and the role that will answer it."""

    agreed: AgreedRun
    ask: Ask
    query: SumQuery
    question: Question
    role: Role


class SecureSumParticipant:
    """All secure sums of one party. Only `reserve` may run outside the party's thread."""

    def __init__(self, owner: Party, obfuscators: Obfuscators) -> None:
        """Draw obfuscators for the sums that were joined before a restart."""
        self._owner = owner
        self._store = owner.store
        self._obfuscators = obfuscators
        self._identity = Identity(owner.settings.name, owner.settings.signing_key())
        self._member = lru_cache(_ROLES_IN_MEMORY)(self._find_member)
        for learner, run in self._store.rounds.joined():
            try:
                self._expect(learner, run)
            except ParleyError as error:  # the owner may pin other keys by now
                structlog.get_logger().warning("secure sum", learner=learner, run=run, refused=error.kind)

    def join(self, learner: str, run: str, invitation: Signed) -> bytes:
        """Sign the roster of a run that this party approved, and return the signature; a run has one roster.

        Raises SecureSumError (what the role's ``join`` and `check_roster` raise), ForbiddenError where the owner pins
        no keys, NotFoundError, and ConflictError where the run has no secure sum.
        """
        spec = self._spec(learner, run)
        earlier = self._store.rounds.invitation(learner, run)
        role = self._newcomer(learner) if earlier is None else copy(self._member(learner, run))
        signature = role.join(invitation)
        check_roster(role.roster, run, spec)
        if earlier is None:
            self._store.rounds.join(learner, run, invitation.to_bytes())
            self._expect(learner, run)
        return signature

    def receive(self, learner: str, run: str, round: int, signed: Signed) -> CheckedQuery:
        """Check a signed query, before anything is computed or charged.

        Raises SecureSumError: what the role's ``receive`` raises, RoundError(wrong_round, wrong_terms), or
        StateError(out_of_turn) where no roster was signed; and InvalidInputError for a message that is none.
        """
        role = copy(self._member(learner, run))
        if (last := self._store.rounds.last_answer(learner, run)) is not None:
            role.restore(Signed.from_bytes(last))
        query = role.receive(signed)
        if query.round != round:
            raise RoundError("the query is for another round than its URL", reason=Reason.WRONG_ROUND)
        message = signed.attachments[0] if signed.attachments else b""
        question = Question(round, query.step, unpack_array(message, "<f8"))
        agreed = self._owner.agreed(learner, run)
        agreed.terms.check(question)
        round_terms(agreed.terms.algorithm, agreed.terms.facts, round).check(query)
        return CheckedQuery(agreed, Ask(learner, run, round, query.digest, query.step), query, question, role)

    def reserve(self, checked: CheckedQuery) -> Reserved:
        """Take the obfuscators for an answer, none if it was given before; may take seconds, in any thread."""
        if checked.role.recall(checked.query) is not None:
            return Reserved({})
        roster = checked.role.roster
        return self._obfuscators.reserve([holder.n for holder in roster.key_holders], roster.layout.blocks)

    def contribute(self, checked: CheckedQuery, reserved: Reserved) -> Answer:
        """Return the contribution to one round, charged when it is new. Raises what `Party.release` raises."""
        return self._owner.release(
            checked.agreed,
            checked.ask,
            checked.question,
            lambda values: checked.role.answer(
                checked.query, filled(values, checked.role.roster.d), os.urandom, reserved
            ).to_bytes(),
        )

    def end(self, learner: str, run: str) -> None:
        """Draw no more obfuscators for a run."""
        if (consent := self._store.consents.find(learner, run)) is not None:
            self._obfuscators.forget(session_of(run, consent.spec))

    def take_up(self) -> None:
        """Ask the owner's present settings again whom it trusts with the sums that were joined before."""
        self._member.cache_clear()

    def _spec(self, learner: str, run: str) -> RunSpec:
        """Return the specification of an approved run. Raises ConflictError where it has no secure sum."""
        spec = self._owner.agreed(learner, run).consent.spec
        if spec.secure_sum == "none":
            raise ConflictError(f"run {run} was approved without a secure sum")
        return spec

    def _newcomer(self, learner: str) -> Role:
        """Return the role before it has joined a session."""
        return Role(self._identity, sum_policy(self._owner.settings, learner))

    def _find_member(self, learner: str, run: str) -> Role:
        """Return the role after it has joined a session; callers copy it before they use it."""
        self._spec(learner, run)
        if (invitation := self._store.rounds.invitation(learner, run)) is None:
            raise StateError(f"run {run} has no roster yet", reason=Reason.OUT_OF_TURN)
        role = self._newcomer(learner)
        role.join(Signed.from_bytes(invitation))
        return role

    def _expect(self, learner: str, run: str) -> None:
        """Have obfuscators drawn for the remaining rounds of a run."""
        roster, terms = self._member(learner, run).roster, self._owner.agreed(learner, run).terms
        last = self._store.rounds.last_answer(learner, run)
        answered = 0 if last is None else Contribution.parse(Signed.from_bytes(last).body).round
        moduli = [holder.n for holder in roster.key_holders]
        self._obfuscators.expect(roster.session, moduli, (len(terms.questions) - answered) * roster.layout.blocks)


def filled(values: IntArray, width: int) -> IntArray:
    """Pad an answer (m,) with zeros to ``width``, the number of values in each message of the sum."""
    return np.pad(values, (0, width - len(values)))
