"""What the three roles share: a state that moves by a table, the session's roster, and the checks of contributions.

Learner and key holder both check which contributions may be summed; only a key holder can look into a blob.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.secure_sum.envelope import SEAL_BYTES, Signed, check_digest, public_hex, unseal
from parley.common.secure_sum.errors import BlobError, ContributorsError, Reason, RosterError, RoundError, StateError
from parley.common.secure_sum.messages import Contribution, Message, Roster, RosterMember, RoundMessage
from parley.common.secure_sum.paillier import blocks_from_blob, check_units, public_key


class End:
    """The event that ends a session."""


SessionEvent: TypeAlias = "type[Message | End]"
Transitions: TypeAlias = "Mapping[Enum, Mapping[SessionEvent, Enum]]"


@dataclass(frozen=True, slots=True)
class Identity:
    """Someone's identity towards the others: a name and an Ed25519 key."""

    name: str
    signing_key: Ed25519PrivateKey

    @property
    def key(self) -> str:
        """The public half of the key, in hexadecimal."""
        return public_hex(self.signing_key)

    def position(self, members: Sequence[RosterMember]) -> int:
        """Return its position among members. Raises RosterError(not_on_roster)."""
        for position, member in enumerate(members):
            if (member.name, member.key) == (self.name, self.key):
                return position
        raise RosterError(f"{self.name} is not on the roster", reason=Reason.NOT_ON_ROSTER)


class Role:
    """A state, and the table that says which event may come next and where it leads."""

    def __init__(self, transitions: Transitions, start: Enum, roster: Roster | None = None) -> None:
        self.state = start
        self._transitions = transitions
        self._roster = roster
        self._roster_digest = "" if roster is None else roster.digest

    @property
    def roster(self) -> Roster:
        """The session's roster. Raises StateError(out_of_turn) if there is none yet."""
        if self._roster is None:
            raise StateError("no roster", reason=Reason.OUT_OF_TURN)
        return self._roster

    @contextmanager
    def _on(self, event: SessionEvent) -> Iterator[None]:
        """Take the transition of an event once the work inside succeeds. Raises StateError(out_of_turn)."""
        following = self._transitions[self.state].get(event)
        if following is None:
            raise StateError(f"{event.__name__} is out of turn when {self.state.value}", reason=Reason.OUT_OF_TURN)
        yield
        self.state = following

    def _adopt(self, roster: Roster) -> None:
        """Set the roster; a session has only one. Raises RosterError(roster_changed)."""
        if self._roster not in (None, roster):
            raise RosterError("this session has another roster", reason=Reason.ROSTER_CHANGED)
        self._roster = roster
        self._roster_digest = roster.digest

    def _check_session(self, message: RoundMessage) -> None:
        """Raise RoundError(wrong_session, wrong_roster) unless the message is of this session."""
        message.check_session(self.roster.session, self._roster_digest)


def check_contribution(head: Signed, asked: RoundMessage, query: str, roster: Roster) -> Contribution:
    """Return what a rostered party signed in answer to this query (its hash), in the session and round of ``asked``.

    Raises MessageError, SignatureError, ContributorsError(unknown_party), or RoundError, which names the difference.
    """
    contribution = Contribution.parse(head.body)
    head.verify(Contribution.TAG, roster.party(contribution.party).key)
    contribution.check_session(asked.session, asked.roster)
    if contribution.round != asked.round:
        raise RoundError(f"{contribution.party} contributed to another round", reason=Reason.WRONG_ROUND)
    if contribution.query != query:
        raise RoundError(f"{contribution.party} answered another query", reason=Reason.WRONG_QUERY)
    if contribution.d != roster.d or len(contribution.blobs) != len(roster.key_holders):
        raise RoundError(f"{contribution.party} contributed another shape", reason=Reason.WRONG_SHAPE)
    return contribution


def check_set(contributions: Sequence[Contribution], roster: Roster) -> None:
    """Raise ContributorsError unless these come from at least m_min different parties, none a copy of another."""
    if len({contribution.party for contribution in contributions}) < len(contributions):
        raise ContributorsError("a party contributes twice", reason=Reason.DUPLICATE_PARTY)
    if len({blob for contribution in contributions for blob in contribution.blobs}) < sum(
        len(contribution.blobs) for contribution in contributions
    ):
        raise ContributorsError("two contributions are copies", reason=Reason.DUPLICATE_BLOB)
    if len(contributions) < roster.minimum_contributors:
        raise ContributorsError(
            f"{len(contributions)} contributors, the roster asks for {roster.minimum_contributors}",
            reason=Reason.TOO_FEW,
        )


def check_blob(blob: bytes, contribution: Contribution, position: int, roster: Roster) -> bytes:
    """Return what a party signed for the key holder at this position of the roster, who alone can look inside.

    Raises BlobError(wrong_hash, wrong_length).
    """
    check_digest(blob, contribution.blobs[position], f"the blob of {contribution.party}")
    size = roster.layout.ciphertext_bytes * roster.layout.blocks + SEAL_BYTES
    if len(blob) != size:
        raise BlobError(
            f"the blob of {contribution.party} has {len(blob)} bytes instead of {size}", reason=Reason.WRONG_LENGTH
        )
    return blob


def open_blob(
    blob: bytes, contribution: Contribution, position: int, roster: Roster, key: Ed25519PrivateKey
) -> list[int]:
    """Return the ciphertexts that a party sealed for the key holder at this position, who holds ``key``.

    Raises BlobError(wrong_hash, wrong_length, not_sealed, out_of_range, not_a_unit), naming the party.
    """
    sealed = check_blob(blob, contribution, position, roster)
    blocks = unseal(sealed, key, contribution.query, contribution.party)
    layout = roster.layout
    try:
        return check_units(
            public_key(roster.key_holders[position].n),
            blocks_from_blob(blocks, layout.ciphertext_bytes, layout.blocks),
        )
    except BlobError as error:
        raise BlobError(f"the blob of {contribution.party}: {error.detail}", reason=error.reason) from None
