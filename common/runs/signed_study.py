"""A study as a learner hands it out: signed, so that whoever keeps the file sees when a bound or a word has changed."""

from __future__ import annotations

from typing import Annotated, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field, StringConstraints

from parley.common.data.study import Study
from parley.common.encoding.canonical_json import canonical
from parley.common.errors import InvalidInputError
from parley.common.secure_sum.envelope import Signed, public_hex
from parley.common.strict import Identifier, PublicKey, Strict

_TAG = "parley/study/1"


class SignedStudy(Strict):
    """A study, whose word it is, and its signature (Ed25519) over the learner's name and the study's digest."""

    study: Study
    learner: Annotated[Identifier, Field(description="who signs")]
    public_key: Annotated[PublicKey, Field(description="the learner's Ed25519 key")]
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]

    @classmethod
    def sign(cls, study: Study, learner: str, key: Ed25519PrivateKey) -> Self:
        """The study, signed by the learner's key."""
        signature = Signed.seal(_TAG, _body(study, learner), key).signature.hex()
        return cls(study=study, learner=learner, public_key=public_hex(key), signature=signature)

    def verify(self) -> None:
        """Raise InvalidInputError unless it is as the holder of the public key has signed it."""
        signed = Signed(_body(self.study, self.learner), bytes.fromhex(self.signature))
        if not signed.is_by(_TAG, self.public_key):
            raise InvalidInputError(
                f"study {self.study.name!r} is not as {self.learner} signed it: its signature does not verify"
            )


def _body(study: Study, learner: str) -> bytes:
    return canonical({"learner": learner, "study": study.digest})
