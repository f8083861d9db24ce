"""The JSON that a learner and a key holder exchange, and a roster's signature as any signer returns it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from parley.common.secure_sum.messages import SESSION_BYTES
from parley.common.strict import PlainName, Strict

SessionId = Annotated[
    str, Field(pattern=f"^[0-9a-f]{{{2 * SESSION_BYTES}}}$", description="128 bits, lower-case hexadecimal")
]


_MOST_KEY_BITS = 2**16


class KeyHolderFacts(Strict):
    """Facts about a key holder that everyone on a roster needs."""

    name: PlainName
    public_key: Annotated[PlainName, Field(description="its Ed25519 key, for others to pin")]
    key_bits: Annotated[int, Field(description="size of the Paillier keys it makes")]
    body_bytes: Annotated[int, Field(description="the longest request that it reads: to open a sum, all contributions")]
    version: PlainName


class NewSession(Strict):
    """The request that opens a session."""

    session: SessionId
    key_bits: Annotated[int, Field(gt=0, le=_MOST_KEY_BITS, description="size of the Paillier key")]


class SessionKey(Strict):
    """A session's public Paillier key."""

    session: str
    modulus: Annotated[str, Field(description="n, hexadecimal")]


class Signature(Strict):
    """A signature of a roster."""

    signature: Annotated[str, Field(description="Ed25519, hexadecimal")]
