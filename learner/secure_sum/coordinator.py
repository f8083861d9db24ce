"""Begins and ends the learner's sessions of secure sums.

A session belongs to one run. Once all parties have approved the run, each key holder makes a key, the roster is drafted
and stored, the key holders sign it and then the parties. If a session is taken up again after a crash, every step gives
the same result as before.

Before a run is submitted, `SecureSumCoordinator.foresee` asks its parties and key holders for their keys, and
`ForeseenSum` says what would keep them from taking part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.client.endpoints import PeerEntry
from parley.common.client.party import PartyClient
from parley.common.client.peer import Line, all_of, ask_all
from parley.common.errors import ForbiddenError, InvalidInputError, NotFoundError, ParleyError, UnavailableError
from parley.common.protocol.receipts import Receipt
from parley.common.runs.secure_terms import draft_roster, session_of
from parley.common.runs.specification import RunSpec
from parley.common.secure_sum.envelope import public_hex
from parley.common.secure_sum.learner import LearnerRole
from parley.common.secure_sum.messages import Roster, RosterKeyHolder
from parley.common.secure_sum.packing import Layout, too_long
from parley.common.secure_sum.paillier import require_gmpy2
from parley.common.wire.key_holder_api import KeyHolderFacts
from parley.common.wire.party_api import PinnedKeys
from parley.learner.runs.run import Run
from parley.learner.secure_sum.federation import SecureSumFederation
from parley.learner.secure_sum.key_holder_client import KeyHolderClient
from parley.learner.settings import LearnerSettings
from parley.learner.storage.session_store import SessionStore, StoredSession

if TYPE_CHECKING:
    from parley.common.runs.consent import Objection, OwnerRules


@dataclass(frozen=True, slots=True)
class ForeseenSum:
    """The public keys that a secure sum would have, by name, and the keys that parties pin, if they say so.

    ``bits`` is the size of the key holders' smallest Paillier key, None if unknown; ``longest`` is the longest request
    in bytes that each key holder reads, by name. ``hindrances`` say why key holders would not open sums now.
    """

    learner: str
    key_holders: Mapping[str, str]
    parties: Mapping[str, str]
    pins: Mapping[str, PinnedKeys]
    bits: int | None
    longest: Mapping[str, int]
    hindrances: tuple[str, ...]

    def hindrances_of(self, width: int, parties: int) -> tuple[str, ...]:
        """Say why key holders would not open sums of answers of ``width`` numbers from so many ``parties``."""
        if self.bits is None:
            return self.hindrances
        layout = Layout(width, self.bits)
        reasons = {name: too_long(layout, parties, most) for name, most in self.longest.items()}
        return (*self.hindrances, *(f"{name}: {reason}" for name, reason in reasons.items() if reason))

    def objections(self, party: str, rules: OwnerRules) -> Iterator[Objection]:
        """Yield the objections to the keys that a party would raise, by its owner's rules for the run."""
        if (pins := self.pins.get(party)) is None:
            return
        try:
            policy = pins.policy(rules)
        except ForbiddenError as error:
            yield "secure_sum", error.detail
            return
        for reason in policy.wrong_pins(self.learner, self.key_holders, self.parties):
            yield "secure_sum", reason
        for reason in policy.small_keys(self.bits) if self.bits else ():
            yield "minimum_key_bits", reason


@dataclass(frozen=True, slots=True)
class SecureSumCoordinator:
    """Holds what secure sums need beside the parties: the learner's key, key holders, the parties' keys by name."""

    settings: LearnerSettings
    key: Ed25519PrivateKey
    holders: dict[str, KeyHolderClient]
    """By name; they come and go."""
    party_keys: dict[str, str]
    store: SessionStore

    @classmethod
    def build(
        cls,
        settings: LearnerSettings,
        connect: Callable[[PeerEntry], Line],
        store: SessionStore,
        receipts: Mapping[str, Receipt],
    ) -> Self:
        """Build the parts that the settings name, with the newest receipts by name.

        Raises OwnKeyError when gmpy2 or the identity key cannot be used.
        """
        if settings.key_holders:
            require_gmpy2()
        holders = {
            entry.name: KeyHolderClient(entry.name, connect(entry), entry.public_key, receipts.get(entry.name))
            for entry in settings.key_holders
        }
        keys = {entry.name: entry.public_key for entry in settings.parties if entry.public_key}
        return cls(settings, settings.signing_key(), holders, keys, store)

    @property
    def key_holders(self) -> tuple[KeyHolderClient, ...]:
        """The key holders that open sums now."""
        return tuple(self.holders.values())

    def check(self, spec: RunSpec) -> None:
        """Raise InvalidInputError if a run asks for a secure sum that the settings do not allow."""
        if spec.secure_sum == "none":
            return
        if not self.key_holders:
            raise InvalidInputError(
                "secure_sum: this learner has no key holders: name them in [[key_holders]] of its settings, or confirm "
                "those that have joined by invitation (parley-learner roster list)"
            )
        if missing := [name for name in spec.names if name not in self.party_keys]:
            raise InvalidInputError(f"secure_sum: the settings give no public_key of {', '.join(missing[:5])}")

    async def foresee(self, parties: Sequence[PartyClient], seconds: float) -> ForeseenSum:
        """Ask key holders and these parties for their keys, for at most so many seconds, and report what they say."""
        holders, keys = self.key_holders, self.party_keys
        answers, pins = await asyncio.gather(
            ask_all(holders, KeyHolderClient.facts, seconds), ask_all(parties, PartyClient.pins, seconds)
        )
        hindrances = [
            f"{answer.detail}; the run would wait for it" if isinstance(answer, UnavailableError) else answer.detail
            for answer in answers
            if isinstance(answer, ParleyError)
        ]
        facts = [answer for answer in answers if isinstance(answer, KeyHolderFacts)]
        bits = {holder.name: holder.key_bits for holder in facts}
        return ForeseenSum(
            learner=public_hex(self.key),
            key_holders={holder.name: holder.public_key for holder in holders},
            parties={party.name: keys[party.name] for party in parties if party.name in keys},
            pins={party.name: keys for party, keys in zip(parties, pins, strict=True) if isinstance(keys, PinnedKeys)},
            bits=min(bits.values(), default=None),
            longest={holder.name: holder.body_bytes for holder in facts},
            hindrances=(*hindrances, *_of_unlike_sizes(bits)),
        )

    async def convene(self, run: Run, parties: Sequence[PartyClient]) -> list[str]:
        """Have key holders and parties sign the roster of a run that the parties have approved.

        Returns the names of the key holders. Raises RefusedError or UnavailableError naming a peer that does not sign,
        InvalidInputError if no such sum is possible, and KeyMaterialError naming a key holder whose key is weak.
        """
        session = session_of(run.id, run.spec)
        stored = await asyncio.to_thread(self._begin, run.id, session)
        roster = stored.roster if stored else await self._draft(run, session)
        holders, role = self._holders(roster), LearnerRole(roster, self.key)
        proposal, seconds = role.propose(), self.settings.key_holder_seconds
        witnesses = all_of(await ask_all(holders, lambda holder: holder.sign(session, proposal), seconds))
        signatures = dict(zip([holder.name for holder in holders], witnesses, strict=True))
        invitation, keys = role.invite(signatures), {party.name: party.key for party in roster.parties}
        joined = await ask_all(
            parties,
            lambda party: party.join(run.id, invitation, keys[party.name]),
            self.settings.approval_seconds,
        )
        signatures |= zip(run.spec.names, all_of(joined), strict=True)
        role.begin(signatures)
        await asyncio.to_thread(self.store.sign, run.id, signatures)
        return [holder.name for holder in holders]

    def federation(
        self, run: Run, parties: Sequence[PartyClient], recent: Sequence[tuple[int, ...]]
    ) -> SecureSumFederation:
        """Return the federation of a convened run, after its logged rounds. Call it in a thread: it reads the store.

        Raises NotFoundError if the run has no session, or the settings no longer have one of its key holders.
        """
        session = self.store.find(run.id)
        if session is None:
            raise NotFoundError(f"run {run.id} has no session")
        holders, openings = self._holders(session.roster), self.store.openings(run.id)
        last = [openings[-1].receipts[holder.name] for holder in holders] if openings else []
        role = LearnerRole(session.roster, self.key, last)
        role.invite(session.signatures)
        role.begin(session.signatures)
        return SecureSumFederation(
            run.spec,
            parties,
            self.settings.deadline_seconds,
            recent,
            role=role,
            key_holders=holders,
            key_holder_seconds=self.settings.key_holder_seconds,
            store=self.store,
        )

    async def end(self, run: str) -> None:
        """Forget the seeds of a run that has ended and have its keys destroyed.

        If a key holder cannot be reached, all are asked again after the learner's next start.
        """
        await asyncio.to_thread(self.store.forget, run)
        if (session := await asyncio.to_thread(self.store.session, run)) is None:
            return
        outcomes = await ask_all(self.key_holders, lambda holder: holder.end(session), self.settings.deadline_seconds)
        if missed := [str(outcome) for outcome in outcomes if isinstance(outcome, UnavailableError)]:
            structlog.get_logger().warning("session not ended", run=run, session=session, missed=missed)
        else:
            await asyncio.to_thread(self.store.end, run)

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(holder.close() for holder in self.key_holders))

    async def _draft(self, run: Run, session: str) -> Roster:
        """Draft the roster, with a key of each key holder, and store it."""
        self.check(run.spec)
        seconds = self.settings.key_holder_seconds
        moduli = all_of(await ask_all(self.key_holders, lambda holder: holder.begin(session), seconds))
        sizes = {holder.name: n.bit_length() for holder, n in zip(self.key_holders, moduli, strict=True)}
        for reason in _of_unlike_sizes(sizes):
            raise InvalidInputError(reason)
        roster = draft_roster(
            run.id,
            run.spec,
            key_bits=moduli[0].bit_length(),
            learner=public_hex(self.key),
            party_keys=self.party_keys,
            key_holders=[
                RosterKeyHolder(holder.name, holder.public_key, f"{n:x}")
                for holder, n in zip(self.key_holders, moduli, strict=True)
            ],
        )
        await asyncio.to_thread(roster.check_moduli)
        await asyncio.to_thread(self.store.draft, run.id, roster)
        return roster

    def _begin(self, run: str, session: str) -> StoredSession | None:
        """Note that a session begins. Returns the stored session, None before its roster is drafted."""
        self.store.begin(run, session)
        return self.store.find(run)

    def _holders(self, roster: Roster) -> list[KeyHolderClient]:
        """Return the roster's key holders in order; raises NotFoundError if the settings no longer have one."""
        by_key = {(holder.name, holder.public_key): holder for holder in self.key_holders}
        if missing := [entry.name for entry in roster.key_holders if (entry.name, entry.key) not in by_key]:
            raise NotFoundError(f"the settings do not have the key holder {', '.join(missing)} with the run's key")
        return [by_key[entry.name, entry.key] for entry in roster.key_holders]


def _of_unlike_sizes(bits: Mapping[str, int]) -> Iterator[str]:
    """Say why key holders whose keys have these sizes cannot open a sum together, if the sizes differ."""
    if len(set(bits.values())) > 1:
        yield f"the key holders' keys differ in size: {', '.join(f'{name} {size} bits' for name, size in bits.items())}"
