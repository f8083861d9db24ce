"""The key holder's role: it decrypts the sum of one set of contributions in a round, and no other.

    new --Roster--> serving --Open--> serving          any --End--> ended

What `KeyHolderRole.open` returns is also the journal entry: **append it to the journal and sync it before it leaves**,
and pass the entries to `restore` after a restart. A crash before the sync costs nothing; after it, only these bytes
leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from phe import PaillierPrivateKey

from parley.common.secure_sum.envelope import Signed, check_digest, sha256_hex
from parley.common.secure_sum.errors import KeyMaterialError, MessageError, Reason, RoundError
from parley.common.secure_sum.messages import Contribution, Open, Opened, Roster, set_digest
from parley.common.secure_sum.packing import DEFAULT_KEY_BITS, reduced_sum
from parley.common.secure_sum.paillier import RandomBytes, add_blocks, blocks_to_blob, decrypt_blocks
from parley.common.secure_sum.session import End, Identity, Role, Transitions, check_contribution, check_set, open_blob

Decrypt = Callable[[PaillierPrivateKey, Sequence[int]], list[int]]
"""`decrypt_blocks`, or the same over several cores."""


class KeyHolderState(Enum):
    """The state of a key holder in a session."""

    NEW = "new"
    SERVING = "serving"
    ENDED = "ended"


KEY_HOLDER_TRANSITIONS: Transitions = {
    KeyHolderState.NEW: {Roster: KeyHolderState.SERVING, End: KeyHolderState.ENDED},
    KeyHolderState.SERVING: {Roster: KeyHolderState.SERVING, Open: KeyHolderState.SERVING, End: KeyHolderState.ENDED},
    KeyHolderState.ENDED: {End: KeyHolderState.ENDED},
}


class KeyHolderRole(Role):
    """One key holder in one session, with the Paillier key of that session and the learner's pinned public key.

    Raises KeyMaterialError(wrong_key_size) when the key has fewer than ``minimum_key_bits``.
    """

    def __init__(  # noqa: PLR0913 -- its parts, by name
        self,
        identity: Identity,
        private_key: PaillierPrivateKey,
        learner: str,
        *,
        random_bytes: RandomBytes,
        minimum_key_bits: int = DEFAULT_KEY_BITS,
        decrypt: Decrypt = decrypt_blocks,
    ) -> None:
        super().__init__(KEY_HOLDER_TRANSITIONS, KeyHolderState.NEW)
        bits = private_key.public_key.n.bit_length()
        if bits < minimum_key_bits:
            raise KeyMaterialError(
                f"a key of {bits} bits, {minimum_key_bits} are asked for", reason=Reason.WRONG_KEY_SIZE
            )
        self._identity = identity
        self._key: PaillierPrivateKey | None = private_key
        self._learner = learner
        self._random_bytes = random_bytes
        self._decrypt = decrypt
        self._last: tuple[Opened, Signed] | None = None

    def accept(self, proposal: Signed) -> bytes:
        """Check a roster signed by the pinned learner; return this key holder's signature.

        Raises SignatureError, MessageError, RosterError(not_on_roster, roster_changed), or KeyMaterialError(wrong_key,
        weak_key).
        """
        with self._on(Roster):
            roster = Roster.read(proposal, self._learner)
            if roster.key_holders[self._identity.position(roster.key_holders)].n != self._private_key.public_key.n:
                raise KeyMaterialError("the roster has another Paillier key", reason=Reason.WRONG_KEY)
            roster.check_moduli()
            self._adopt(roster)
            return roster.sign(self._identity.signing_key).signature

    def restore(self, entry: Signed) -> None:
        """Resume the session after a restart: pass every journal entry in order, after `accept`."""
        with self._on(Open):
            opened = Opened.read(entry, self._identity.key)
            self._check_session(opened)
            self._recall(opened.round, opened.contributors)
            self._last = opened, entry

    def open(self, request: Signed) -> Signed:
        """Open the sum of a set of contributions; journal and sync the result before it leaves.

        The same set again gets the same bytes. Raises SignatureError, MessageError, RoundError, ContributorsError or
        BlobError; a refused request changes nothing.
        """
        with self._on(Open):
            order = Open.read(request, self.roster.learner)
            self._check_session(order)
            contributions, blobs = _contributions(order, request.attachments, self.roster)
            check_set(contributions, self.roster)
            chosen = set_digest(order.contributions)
            if (earlier := self._recall(order.round, chosen)) is not None:
                return earlier
            sums = self._sum(contributions, blobs)
            opened = Opened(order.session, order.roster, order.round, chosen, sha256_hex(sums))
            signed = opened.sign(self._identity.signing_key, (sums,))
            self._last = opened, signed
            return signed

    def end(self) -> None:
        """End the session and drop the private key; the service destroys its file."""
        with self._on(End):
            self._key = self._roster = self._last = None

    @property
    def _private_key(self) -> PaillierPrivateKey:
        """The session's key, until its end."""
        if self._key is None:
            raise KeyMaterialError("the key is destroyed", reason=Reason.WRONG_KEY)
        return self._key

    def _recall(self, round: int, chosen: str) -> Signed | None:
        """Return the earlier answer for this round and set, or None for a new round.

        Raises RoundError for an old round or another set.
        """
        if self._last is None or round > self._last[0].round:
            return None
        if round < self._last[0].round:
            raise RoundError(f"round {round} is over", reason=Reason.ROUND_OLD)
        if chosen != self._last[0].contributors:
            raise RoundError(f"round {round} was opened for another set", reason=Reason.ROUND_OPENED)
        return self._last[1]

    def _sum(self, contributions: Sequence[Contribution], blobs: Sequence[bytes]) -> bytes:
        """Return the sums of shares modulo 2^L, in bytes of fixed width."""
        position, layout = self._identity.position(self.roster.key_holders), self.roster.layout
        vectors = [
            open_blob(blob, contribution, position, self.roster, self._identity.signing_key)
            for contribution, blob in zip(contributions, blobs, strict=True)
        ]
        totals = self._decrypt(self._private_key, add_blocks(self._private_key.public_key, vectors))
        # Unreduced, the carries above bit L would reveal something about the single shares.
        n = self._private_key.public_key.n
        return blocks_to_blob(
            [reduced_sum(total, n, layout, self._random_bytes) for total in totals], layout.block_bytes
        )


def _contributions(
    order: Open, attachments: Sequence[bytes], roster: Roster
) -> tuple[list[Contribution], Sequence[bytes]]:
    """Return the contributions whose hashes are requested, and their blobs."""
    if len(attachments) != 2 * len(order.contributions):
        raise MessageError("not one head and one blob a contribution", reason=Reason.WRONG_FRAME)
    contributions = []
    for data, expected in zip(attachments[::2], order.contributions, strict=True):
        head = Signed.from_bytes(data)
        check_digest(head.body, expected, "a contribution")
        contributions.append(check_contribution(head, order, order.query, roster))
    return contributions, attachments[1::2]
