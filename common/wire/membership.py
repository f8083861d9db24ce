"""How an owner joins a learner: an invitation, which the learner signs, and one request and its answer.

An invitation holds a secret, so it must be handed over as a password would be. Two people compare by telephone the keys
that both sides receive: six words for each key (66 bits of its fingerprint, in the list of BIP 39), each reading the
other's.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Literal, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import AwareDatetime, Field, StringConstraints, ValidationError

from parley.common.encoding.canonical_json import canonical, read_json
from parley.common.errors import InvalidInputError, TooLargeError
from parley.common.runs.certificate import SignedStudy
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import SignatureError
from parley.common.strict import Identifier, PublicKey, Strict, TokenHash, faults

_TAG, _REQUEST_TAG = "parley/invitation/1", "parley/joining/1"
_Pem = Annotated[str, StringConstraints(max_length=2**14)]

MemberRole = Literal["party", "key_holder"]
"""The role of a member."""


class KnownKey(Strict):
    """The name of a signer and its public key."""

    name: Identifier
    public_key: PublicKey


class Invitation(Strict):
    """The facts that an invited member needs."""

    version: Literal[1] = 1
    name: Annotated[Identifier, Field(description="what the member will be called")]
    role: MemberRole
    learner: Annotated[KnownKey, Field(description="who invites")]
    url: Annotated[str, Field(description="where the learner listens", pattern=r"^https?://[!-~]{1,1000}$")]
    authority: Annotated[
        _Pem | None, Field(description="PEM of the authority that signs the learner's certificate, and the member's")
    ] = None
    secret: Annotated[str, Field(min_length=16, max_length=200, description="what it joins with, once")]
    expires: Annotated[AwareDatetime, Field(description="when the secret ends")]
    studies: Annotated[
        tuple[SignedStudy, ...], Field(description="what it is asked to hold rows of; none for a key holder")
    ]
    parties: Annotated[tuple[KnownKey, ...], Field(description="co-owners that have joined")] = ()
    key_holders: Annotated[tuple[KnownKey, ...], Field(description="who open secure sums")] = ()

    def sealed(self, key: Ed25519PrivateKey) -> str:
        """Return the text of the file, signed with the learner's key."""
        body = self.model_dump(mode="json")
        signature = Signed.seal(_TAG, canonical(body), key).signature.hex()
        return json.dumps({"invitation": body, "signature": signature}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def opened(cls, text: str, now: datetime) -> Self:
        """Read an invitation; raises InvalidInputError where it is invalid, was changed, or has expired."""
        try:
            document = read_json(text.encode())
            body, signature = document["invitation"], bytes.fromhex(document["signature"])
            invitation = cls.model_validate_json(json.dumps(body))
            Signed(canonical(body), signature).verify(_TAG, invitation.learner.public_key)
        except ValidationError as error:
            raise InvalidInputError(f"the invitation: {faults(error)}") from None
        except SignatureError:
            raise InvalidInputError("the invitation has been changed: its signature does not verify") from None
        except TooLargeError as error:
            raise InvalidInputError(f"the invitation: {error.detail}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidInputError("this is no invitation, or a part of one") from None
        if invitation.expires <= now:
            raise InvalidInputError(
                f"the invitation expired at {invitation.expires:%Y-%m-%d %H:%M %Z}: ask for another"
            )
        return invitation


class JoinRequest(Strict):
    """The request of a new member, which carries the invitation's secret as its bearer token."""

    public_key: Annotated[PublicKey, Field(description="the Ed25519 key that it signs with")]
    connects_with: Annotated[TokenHash, Field(description="hash of the token that it will connect with")]
    token: Annotated[str, Field(min_length=16, max_length=200, description="the token that the learner is to show it")]
    certificate_request: Annotated[_Pem | None, Field(description="PEM of a request (PKCS 10) to be signed")] = None
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")] = "0" * 128

    def signed(self, name: str, key: Ed25519PrivateKey) -> Self:
        """Return the request, signed with the member's key, which proves that it has the key."""
        sealed = Signed.seal(_REQUEST_TAG, self._body(name), key)
        return self.model_copy(update={"signature": sealed.signature.hex()})

    def verify(self, name: str) -> None:
        """Raise InvalidInputError unless the owner of the public key has signed the request for this name."""
        try:
            Signed(self._body(name), bytes.fromhex(self.signature)).verify(_REQUEST_TAG, self.public_key)
        except SignatureError:
            raise InvalidInputError("signature: not by the key that it names") from None

    def _body(self, name: str) -> bytes:
        return canonical({"name": name, **self.model_dump(mode="json", exclude={"signature"})})


class CertificateRequest(Strict):
    """The request of a member, on a connection of its own, to renew its certificate."""

    certificate_request: Annotated[_Pem, Field(description="PEM of a request (PKCS 10) to be signed")]


class Membership(Strict):
    """The answer to a `JoinRequest` or a `CertificateRequest`."""

    name: Identifier
    certificate: Annotated[_Pem | None, Field(description="PEM of the member's certificate, if it asked for one")] = (
        None
    )


class RosterKeys(Strict):
    """The keys of a learner's other members, as the learner states them."""

    parties: tuple[KnownKey, ...]
    key_holders: tuple[KnownKey, ...]
