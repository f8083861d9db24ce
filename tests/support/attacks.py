"""What a malicious learner or party makes of honest messages, properly signed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parley.common.secure_sum.envelope import Signed, seal, sha256_hex
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.messages import Contribution, Open
from parley.common.secure_sum.paillier import public_key


def request(session: LocalSession, contributions: Sequence[Signed], /, **claims: object) -> Signed:
    """The request of a malicious learner to the first key holder: any claims, properly signed."""
    first = Contribution.parse(contributions[0].body)
    opening = Open(
        first.session,
        first.roster,
        first.round,
        first.query,
        tuple(sha256_hex(signed.body) for signed in contributions),
    )
    parts = [part for signed in contributions for part in (signed.head.to_bytes(), signed.attachments[1])]
    return replace(opening, **claims).sign(session.identities["learner"].signing_key, parts)  # type: ignore[arg-type]


def resign(session: LocalSession, contribution: Signed, signer: str | None = None, /, **claims: object) -> Signed:
    """A contribution as a malicious party signs it, with other claims."""
    claimed = replace(Contribution.parse(contribution.body), **claims)  # type: ignore[arg-type]
    return claimed.sign(session.identities[signer or claimed.party].signing_key, contribution.attachments)


def with_blob(session: LocalSession, contribution: Signed, blob: bytes) -> Signed:
    """A contribution whose blob a malicious party has replaced and signed for."""
    seed, _, *others = contribution.attachments
    hashes = Contribution.parse(contribution.body).blobs
    claims = resign(session, contribution, blobs=(sha256_hex(blob), *hashes[1:]))
    return replace(claims, attachments=(seed, blob, *others))


def with_ciphertexts(session: LocalSession, contribution: Signed, ciphertexts: bytes) -> Signed:
    """A contribution whose ciphertexts a malicious party has replaced, sealed and signed for."""
    claimed, (holder, *_) = Contribution.parse(contribution.body), session.roster.key_holders
    sealed = seal(ciphertexts, holder.key, claimed.query, claimed.party, session.random_bytes)
    return with_blob(session, contribution, sealed)


def shifted(session: LocalSession, contribution: Signed) -> Signed:
    """A number above n squared that fits the bytes of a ciphertext."""
    above = public_key(session.roster.key_holders[0].n).nsquare + 1
    return with_ciphertexts(session, contribution, above.to_bytes(session.roster.layout.ciphertext_bytes))
