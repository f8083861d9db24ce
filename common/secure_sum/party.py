"""The party's role: it joins a roster it trusts, then answers each round once.

    new --Roster--> member --Query--> member          any --End--> ended

What `PartyRole.answer` returns is also the party's journal: store it before sending it, and pass the last one to
`restore`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from parley.common.arrays import IntArray
from parley.common.secure_sum.envelope import Signed, check_digest, seal, sha256_hex
from parley.common.secure_sum.errors import (
    KeyMaterialError,
    MessageError,
    Reason,
    RosterError,
    RoundError,
    SignatureError,
)
from parley.common.secure_sum.messages import Contribution, Opened, Roster, SumQuery
from parley.common.secure_sum.packing import DEFAULT_KEY_BITS, SEED_BYTES, Layout, encode, split
from parley.common.secure_sum.paillier import (
    ObfuscatorSource,
    RandomBytes,
    blocks_to_blob,
    encrypt_blocks,
    public_key,
)
from parley.common.secure_sum.session import End, Identity, Role, Transitions


class PartyState(Enum):
    """The state of a party in a session."""

    NEW = "new"
    MEMBER = "member"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class PartyPolicy:
    """A party's conditions: the pinned public keys (hexadecimal), and how many must contribute to any sum.

    ``key_holders`` maps every key holder's name to its key; the roster must name exactly these. ``parties`` maps the
    names of other parties to their keys, which the owner has compared with them. A learner may put keys of its own
    behind all other names, so such a stranger hides nothing: it counts as one more colluder, and as no contributor.
    """

    learner: str
    key_holders: Mapping[str, str]
    parties: Mapping[str, str]
    minimum_contributors: int
    colluders: int = 0
    minimum_key_bits: int = DEFAULT_KEY_BITS

    def check(self, roster: Roster, own_name: str) -> None:
        """Raise SignatureError(wrong_pin), RosterError(too_few_required) or KeyMaterialError(wrong_key_size)."""
        holders = {holder.name: holder.key for holder in roster.key_holders}
        for reason in self.wrong_pins(roster.learner, holders, {party.name: party.key for party in roster.parties}):
            raise SignatureError(reason, reason=Reason.WRONG_PIN)
        self._check_parties(roster, own_name)
        for reason in self.small_keys(roster.key_bits):
            raise KeyMaterialError(reason, reason=Reason.WRONG_KEY_SIZE)

    def wrong_pins(self, learner: str, key_holders: Mapping[str, str], parties: Mapping[str, str]) -> Iterator[str]:
        """Yield which of a sum's public keys, by name, are not the pinned ones, in words."""
        if learner != self.learner:
            yield "the learner's key is not the pinned one"
        if dict(key_holders) != dict(self.key_holders):
            yield f"the key holders are not the pinned ones: {', '.join(self._about_key_holders(key_holders))}"
        for name, key in parties.items():
            if self.parties.get(name, key) != key:
                yield f"the key of {name} is not the pinned one"

    def _about_key_holders(self, key_holders: Mapping[str, str]) -> Iterator[str]:
        """Yield how a sum's key holders differ from the pinned ones."""
        for name in sorted({*key_holders, *self.key_holders}):
            if name not in self.key_holders:
                yield f"the key of {name} was not compared (parley-party pin)"
            elif name not in key_holders:
                yield f"{name}, which is pinned, is not among them"
            elif key_holders[name] != self.key_holders[name]:
                yield f"{name} has another key than was compared"

    def small_keys(self, bits: int) -> Iterator[str]:
        """Yield why Paillier keys of this many bits are too small, in words, if they are."""
        if bits < self.minimum_key_bits:
            yield f"key_bits is {bits}, this party's policy asks for {self.minimum_key_bits}"

    def _check_parties(self, roster: Roster, own_name: str) -> None:
        """Raise RosterError(too_few_required) if the roster's sums hide this party among too few."""
        unknown = sum(party.name not in {own_name, *self.parties} for party in roster.parties)
        for name, has, least in (
            ("minimum_contributors", roster.minimum_contributors, self.minimum_contributors + unknown),
            ("colluders", roster.colluders, self.colluders + unknown),
        ):
            if has < least:
                raise RosterError(
                    f"{name} is {has}, this party's policy asks for {least}: the keys of {unknown} parties are not"
                    " pinned (parley-party pin)",
                    reason=Reason.TOO_FEW_REQUIRED,
                )


PARTY_TRANSITIONS: Transitions = {
    PartyState.NEW: {Roster: PartyState.MEMBER, End: PartyState.ENDED},
    PartyState.MEMBER: {Roster: PartyState.MEMBER, SumQuery: PartyState.MEMBER, End: PartyState.ENDED},
    PartyState.ENDED: {End: PartyState.ENDED},
}


class PartyRole(Role):
    """One party in one session."""

    def __init__(self, identity: Identity, policy: PartyPolicy) -> None:
        super().__init__(PARTY_TRANSITIONS, PartyState.NEW)
        self._identity = identity
        self._policy = policy
        self._last: tuple[Contribution, Signed] | None = None

    def join(self, invitation: Signed) -> bytes:
        """Check a roster, signed by the learner and (attached) by every key holder; return this party's signature.

        Raises SignatureError (wrong_pin too), MessageError, RosterError(not_on_roster, too_few_required,
        roster_changed), or KeyMaterialError(wrong_key_size, weak_key).
        """
        with self._on(Roster):
            roster = Roster.read(invitation, self._policy.learner)
            self._policy.check(roster, self._identity.name)
            _check_key_holders(invitation, roster)
            self._identity.position(roster.parties)
            roster.check_moduli()
            self._adopt(roster)
            return roster.sign(self._identity.signing_key).signature

    def restore(self, contribution: Signed) -> None:
        """Resume the session after a restart: pass the last stored contribution, after `join`."""
        with self._on(SumQuery):
            restored = Contribution.read(contribution, self._identity.key)
            self._check_session(restored)
            self._last = restored, contribution

    def receive(self, signed: Signed) -> SumQuery:
        """Check a query before anything is computed or charged; its message is ``signed.attachments[0]``.

        Raises SignatureError, MessageError, BlobError, or RoundError: another session or roster, a round that is over
        (round_old), a round answered for another query (round_answered), a receipt that does not fit.
        """
        with self._on(SumQuery):
            query = SumQuery.read(signed, self.roster.learner)
            self._check_round(query)
            message, *receipts = signed.attachments or (b"",)
            check_digest(message, query.message, "the message")
            self._check_receipts([Signed.from_bytes(receipt) for receipt in receipts], query)
            return query

    def recall(self, query: SumQuery) -> Signed | None:
        """Return the earlier contribution to this very query, or None."""
        if self._last is not None and self._last[0].query == query.digest:
            return self._last[1]
        return None

    def answer(
        self, query: SumQuery, values: IntArray, random_bytes: RandomBytes, obfuscators: ObfuscatorSource
    ) -> Signed:
        """Contribute integers (d,), each below 2^53 in absolute value, to a received query; store before sending.

        The same query gets the same contribution, for all values. Raises PackingError, KeyMaterialError or RoundError.
        """
        with self._on(SumQuery):
            self._check_round(query)
            if (earlier := self.recall(query)) is not None:
                return earlier
            layout = self.roster.layout
            seeds = [random_bytes(SEED_BYTES) for _ in self.roster.key_holders]
            shares = split(encode(values, layout), seeds, layout)
            blobs = [
                seal(
                    _encrypt(share, holder.n, layout, obfuscators),
                    holder.key,
                    query.digest,
                    self._identity.name,
                    random_bytes,
                )
                for share, holder in zip(shares, self.roster.key_holders, strict=True)
            ]
            contribution = Contribution(
                session=query.session,
                roster=query.roster,
                round=query.round,
                query=query.digest,
                party=self._identity.name,
                d=layout.d,
                blobs=tuple(map(sha256_hex, blobs)),
                seed=sha256_hex(seeds[0]),
            )
            signed = contribution.sign(self._identity.signing_key, (seeds[0], *blobs))
            self._last = contribution, signed
            return signed

    def end(self) -> None:
        """End the session: no query is answered any more."""
        with self._on(End):
            self._roster = self._last = None

    def _check_round(self, query: SumQuery) -> None:
        """Raise RoundError for another roster, a round before the last answer's, or another query in that round."""
        self._check_session(query)
        if self._last is None:
            return
        if query.round < self._last[0].round:
            raise RoundError(f"round {query.round} is over", reason=Reason.ROUND_OLD)
        if query.round == self._last[0].round and query.digest != self._last[0].query:
            raise RoundError(f"round {query.round} was answered for another query", reason=Reason.ROUND_ANSWERED)

    def _check_receipts(self, receipts: list[Signed], query: SumQuery) -> None:
        """Check the receipts of a query: none, or one by every key holder, all for one earlier round and one set."""
        holders = self.roster.key_holders
        if receipts and len(receipts) != len(holders):
            raise MessageError("not a receipt by every key holder", reason=Reason.WRONG_FRAME)
        opened = [Opened.read(receipt, holder.key) for receipt, holder in zip(receipts, holders, strict=False)]
        for receipt in opened:
            self._check_session(receipt)
            if receipt.round != opened[0].round or receipt.round >= query.round:
                raise RoundError("a receipt of another round", reason=Reason.WRONG_ROUND)
            if receipt.contributors != opened[0].contributors:
                raise RoundError("receipts for different sets", reason=Reason.WRONG_SET)


def _check_key_holders(invitation: Signed, roster: Roster) -> None:
    """Raise unless every key holder has signed the roster.

    Otherwise a learner could put a modulus of its own beside a pinned name.
    """
    if len(invitation.attachments) != len(roster.key_holders):
        raise MessageError("not every key holder has signed the roster", reason=Reason.WRONG_FRAME)
    for holder, signature in zip(roster.key_holders, invitation.attachments, strict=True):
        Signed(invitation.body, signature).verify(Roster.TAG, holder.key)


def _encrypt(share: list[int], modulus: int, layout: Layout, obfuscators: ObfuscatorSource) -> bytes:
    """Return one key holder's blob, before it is sealed."""
    key = public_key(modulus)
    return blocks_to_blob(encrypt_blocks(key, share, obfuscators.take(key, len(share))), layout.ciphertext_bytes)
