"""A privacy certificate: what the owners of a run and the learner signed; and a study that the learner signed.

Each party signs that it approved the specification, by its digest, at a price; with a secure sum everyone signs the
roster, and each key holder the last sum that it opened. The learner signs these, and the digest of each field of the
model's document. So anyone who has the document and public keys can check, offline, what was promised to whom.

A certificate says who vouches for what. It does not prove that the learner made the weights of the answers it got.

A `SignedStudy` is a study as a learner hands it out: signed, so that anyone who keeps the file sees when a bound or a
word has changed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field, JsonValue, StringConstraints

from parley.common.data.study import Study
from parley.common.encoding.canonical_json import canonical
from parley.common.errors import InvalidInputError
from parley.common.secure_sum.envelope import Signed, public_hex
from parley.common.strict import Digest, Identifier, PublicKey, Strict

_TAG = "parley-certificate-1"
_Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class SignedApproval(Strict):
    """A party's approval of a run, as it was sent, and the receipt that binds it to run and specification."""

    approval: Annotated[str, Field(description="the JSON of the approval, to the byte")]
    receipt: Annotated[str, Field(description="of the party's ledger, signed: claim and signature in base64")]


class SignedSum(Strict):
    """What a key holder signed of a sum that it opened: Ed25519 over ``parley-secure-sum-1/opened``, 0, statement."""

    statement: str
    signature: _Signature


class SignedSums(Strict):
    """The roster of a run's secure sums, everybody's signature of it, and of the last sum each key holder's."""

    roster: Annotated[str, Field(description="canonical JSON, signed as `parley-secure-sum-1/roster`")]
    signatures: Annotated[dict[str, _Signature], Field(description="by name, of parties and key holders")]
    opened: Annotated[dict[str, SignedSum], Field(description="by key holder, of the last round")]


class Certificate(Strict):
    """What was signed of a run and of the document that it ended with."""

    run: Identifier
    issued: Annotated[str, Field(description="ISO 8601, UTC, by the learner's clock")]
    specification: Annotated[
        dict[str, JsonValue], Field(description="the `RunSpec` that the parties approved, by its digest")
    ]
    approvals: Annotated[dict[str, SignedApproval], Field(description="by party")]
    sums: Annotated[SignedSums | None, Field(description="of a run with a secure sum")]
    digests: Annotated[dict[str, Digest], Field(description="SHA-256 of each field of the document")]
    learner: Annotated[PublicKey, Field(description="the learner's public key")]
    signature: Annotated[_Signature, Field(description="the learner's, of all of the above")]

    @property
    def is_signed(self) -> bool:
        """Whether the holder of ``learner`` signed this."""
        return Signed(_claim(self), bytes.fromhex(self.signature)).is_by(_TAG, self.learner)


def signed_certificate(key: Ed25519PrivateKey, **fields: Any) -> Certificate:  # noqa: ANN401 -- the certificate's fields
    """Return a certificate with these fields, signed now with the learner's key."""
    issued = datetime.now(UTC).isoformat(timespec="seconds")
    blank = Certificate(**fields, issued=issued, learner=public_hex(key), signature="0" * 128)
    return blank.model_copy(update={"signature": Signed.seal(_TAG, _claim(blank), key).signature.hex()})


def _claim(certificate: Certificate) -> bytes:
    return canonical(certificate.model_dump(mode="json", exclude={"signature"}))


_STUDY_TAG = "parley/study/1"


class SignedStudy(Strict):
    """A study, whose word it is, and its signature (Ed25519) over the learner's name and the study's digest."""

    study: Study
    learner: Annotated[Identifier, Field(description="who signs")]
    public_key: Annotated[PublicKey, Field(description="the learner's Ed25519 key")]
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]

    @classmethod
    def sign(cls, study: Study, learner: str, key: Ed25519PrivateKey) -> Self:
        """Sign the study with the learner's key."""
        signature = Signed.seal(_STUDY_TAG, _body(study, learner), key).signature.hex()
        return cls(study=study, learner=learner, public_key=public_hex(key), signature=signature)

    def verify(self) -> None:
        """Raise InvalidInputError unless the study is as the holder of the public key signed it."""
        signed = Signed(_body(self.study, self.learner), bytes.fromhex(self.signature))
        if not signed.is_by(_STUDY_TAG, self.public_key):
            raise InvalidInputError(
                f"study {self.study.name!r} is not as {self.learner} signed it: its signature does not verify"
            )


def _body(study: Study, learner: str) -> bytes:
    return canonical({"learner": learner, "study": study.digest})
