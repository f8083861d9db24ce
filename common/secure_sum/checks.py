"""Which contributions may be summed: what learner and key holder both check, and what a key holder alone can."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.secure_sum.envelope import Signed, check_digest
from parley.common.secure_sum.errors import BlobError, ContributorsError, Reason, RoundError
from parley.common.secure_sum.messages import Contribution, Roster, RoundMessage
from parley.common.secure_sum.paillier import blocks_from_blob, check_units, public_key
from parley.common.secure_sum.sealing import SEAL_BYTES, unseal


def check_contribution(head: Signed, asked: RoundMessage, query: str, roster: Roster) -> Contribution:
    """What a rostered party signed in answer to this query (its hash), in the session and round of ``asked``.

    Raises MessageError, SignatureError, ContributorsError(unknown_party), or RoundError naming what is another.
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
    """What a party signed for the key holder at this position of the roster, who alone can look inside.

    Raises BlobError(wrong_hash, wrong_length).
    """
    check_digest(blob, contribution.blobs[position], f"the blob of {contribution.party}")
    due = roster.layout.ciphertext_bytes * roster.layout.blocks + SEAL_BYTES
    if len(blob) != due:
        raise BlobError(
            f"the blob of {contribution.party} has {len(blob)} bytes instead of {due}", reason=Reason.WRONG_LENGTH
        )
    return blob


def open_blob(
    blob: bytes, contribution: Contribution, position: int, roster: Roster, key: Ed25519PrivateKey
) -> list[int]:
    """The ciphertexts that a party sealed for the key holder at this position, who holds ``key``.

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
