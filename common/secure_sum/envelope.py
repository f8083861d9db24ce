"""How messages are spelt, hashed and signed: canonical JSON, SHA-256, Ed25519 over ``tag, 0, body``.

A `Signed` is a message's body, its signature, and attachments: bytes too long for JSON, whose hashes the body holds, or
messages signed by others. On the wire it is one frame: every part behind its length in four big-endian bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from parley.common.secure_sum.errors import BlobError, MessageError, Reason, SignatureError

HASH_BYTES = 32
KEY_BYTES = 32
SIGNATURE_BYTES = 64
MOST_PARTS = 2**12
"""Of a frame: parts may be empty, and take time to read. The largest sum has 1,024 contributions of two parts each."""
_LENGTH_BYTES = 4


def sha256_hex(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def check_digest(data: bytes, expected: str, what: str) -> bytes:
    """The data, if its SHA-256 is the expected one. Raises BlobError(wrong_hash)."""
    if sha256_hex(data) != expected:
        raise BlobError(f"{what} is not what was signed for", reason=Reason.WRONG_HASH)
    return data


@lru_cache(16)
def public_hex(key: Ed25519PrivateKey) -> str:
    """The public half of a signing key in hexadecimal, as rosters and settings hold it; worked out once."""
    return key.public_key().public_bytes_raw().hex()


@dataclass(frozen=True, slots=True)
class Signed:
    """A message as it travels: its body, the sender's signature, and attachments."""

    body: bytes
    signature: bytes
    attachments: tuple[bytes, ...] = ()

    @classmethod
    def seal(cls, tag: str, body: bytes, key: Ed25519PrivateKey, attachments: Sequence[bytes] = ()) -> Self:
        """Sign a body under its tag."""
        return cls(body, key.sign(_signed_bytes(tag, body)), tuple(attachments))

    def verify(self, tag: str, key: str) -> None:
        """Raise SignatureError(bad_signature) unless the holder of ``key`` signed this body under this tag."""
        try:
            _public_key(key).verify(self.signature, _signed_bytes(tag, self.body))
        except (InvalidSignature, ValueError) as error:
            raise SignatureError("the signature does not verify", reason=Reason.BAD_SIGNATURE) from error

    def is_by(self, tag: str, key: str) -> bool:
        """Whether the holder of ``key`` signed this body under this tag."""
        try:
            self.verify(tag, key)
        except SignatureError:
            return False
        return True

    @property
    def head(self) -> Self:
        """The same without attachments: what others need in order to check who said what."""
        return type(self)(self.body, self.signature)

    def to_bytes(self) -> bytes:
        """The frame for the wire."""
        return frame((self.body, self.signature, *self.attachments))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> Self:
        """Read a frame. Raises MessageError(wrong_frame). Checks no signature."""
        body, signature, *attachments = unframe(data, at_least=2)
        return cls(body, signature, tuple(attachments))


def frame(parts: Sequence[bytes]) -> bytes:
    """Join parts, each behind its length.

    >>> frame([b"ab", b""]).hex(" ", 4)
    '0000 00026162 00000000'
    """
    return b"".join(len(part).to_bytes(_LENGTH_BYTES) + part for part in parts)


def unframe(data: bytes | bytearray, at_least: int = 0) -> list[bytes]:
    """Cut a frame into its parts. Raises MessageError(wrong_frame) when it is torn, or has too few or too many."""
    parts: list[bytes] = []
    view = memoryview(data)  # of which each part is copied once
    start = 0
    while start < len(data):
        if len(parts) == MOST_PARTS:
            raise MessageError(f"a frame of more than {MOST_PARTS} parts", reason=Reason.WRONG_FRAME)
        body = start + _LENGTH_BYTES
        start = body + int.from_bytes(view[start:body])
        parts.append(bytes(view[body:start]))
    if start != len(data) or len(parts) < at_least:
        raise MessageError("a torn frame", reason=Reason.WRONG_FRAME)
    return parts


@lru_cache(1024)
def _public_key(key: str) -> Ed25519PublicKey:
    """The key that is spelt so; raises ValueError."""
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))


def _signed_bytes(tag: str, body: bytes) -> bytes:
    """What a signature covers; no tag holds a zero byte, so no two messages share it."""
    return tag.encode() + b"\0" + body
