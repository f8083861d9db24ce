"""How messages are spelt, hashed, signed and sealed: canonical JSON, SHA-256, Ed25519 over ``tag, 0, body``.

*Signed messages.* A `Signed` is a message's body, its signature, and attachments: bytes too long for JSON, whose hashes
the body holds, or messages signed by others. On the wire it is one frame: every part after its length in four
big-endian bytes.

*Blobs sealed for one key holder.* Nobody else sees a party's ciphertexts, or makes others from them. Anyone who has
Paillier ciphertexts can add them up, or negate them. A party that works with the learner could contribute the negatives
of others' ciphertexts, and so take their answers, and their noise, out of a sum that all seem to be in. A sealed blob
cannot be turned into another, nor handed in by another party or in another round (ECIES; Abdalla, Bellare & Rogaway,
"The Oracle Diffie-Hellman Assumptions and an Analysis of DHIES", 2001).

The key holder's Ed25519 key serves as its X25519 key, by the map of RFC 7748, section 4.1; one key may do both
(Thormarker, "On Using the Same Key Pair for Ed25519 and an X25519 Based KEM", 2021).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from parley.common.secure_sum.errors import BlobError, MessageError, Reason, SignatureError
from parley.common.secure_sum.paillier import RandomBytes

HASH_BYTES = 32
KEY_BYTES = 32
MOST_PARTS = 2**12
"""The most parts of a frame, which may be empty, and take time to read.

The largest sum has 1,024 contributions of two parts each.
"""
_LENGTH_BYTES = 4


def sha256_hex(data: bytes) -> str:
    """Return SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def check_digest(data: bytes, expected: str, name: str) -> bytes:
    """Return the data if its SHA-256 is the expected one. Raises BlobError(wrong_hash)."""
    if sha256_hex(data) != expected:
        raise BlobError(f"{name} is not what was signed for", reason=Reason.WRONG_HASH)
    return data


@lru_cache(16)
def public_hex(key: Ed25519PrivateKey) -> str:
    """Return the public half of a signing key in hexadecimal, as rosters and settings have it; computed once."""
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
        """The same message without attachments: what others need to check who signed what."""
        return type(self)(self.body, self.signature)

    def to_bytes(self) -> bytes:
        """Return the frame for the wire."""
        return frame((self.body, self.signature, *self.attachments))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> Self:
        """Read a frame. Raises MessageError(wrong_frame). Checks no signature."""
        body, signature, *attachments = unframe(data, at_least=2)
        return cls(body, signature, tuple(attachments))


def frame(parts: Sequence[bytes]) -> bytes:
    """Join parts, each after its length.

    >>> frame([b"ab", b""]).hex(" ", 4)
    '0000 00026162 00000000'
    """
    return b"".join(len(part).to_bytes(_LENGTH_BYTES) + part for part in parts)


def unframe(data: bytes | bytearray, at_least: int = 0) -> list[bytes]:
    """Cut a frame into its parts. Raises MessageError(wrong_frame) if it is torn, or has too few or too many."""
    parts: list[bytes] = []
    view = memoryview(data)  # so that each part is copied once
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
    """Return the key that is spelt so. Raises ValueError."""
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))


def _signed_bytes(tag: str, body: bytes) -> bytes:
    """Return what a signature covers; no tag holds a zero byte, so no two messages share it."""
    return tag.encode() + b"\0" + body


# ── blobs sealed for one key holder ──────────────────────────────────────────

SEAL_BYTES = 48
"""The length that a seal adds to a blob: a key that was drawn for it alone, and an authentication tag."""
_KEY_BYTES = 32
_NONCE = bytes(12)  # a key is drawn for one blob and never used again, so the nonce may be constant
_TAG = b"parley-secure-sum-1/blob\0"
_P = 2**255 - 19


def seal(blob: bytes, holder: str, query: str, party: str, random_bytes: RandomBytes) -> bytes:
    """Seal a party's blob, in answer to a query (its hash), for the holder of the Ed25519 key ``holder``."""
    drawn, theirs = X25519PrivateKey.from_private_bytes(random_bytes(_KEY_BYTES)), agreement_key(holder)
    mine = drawn.public_key().public_bytes_raw()
    cipher = _cipher(drawn.exchange(X25519PublicKey.from_public_bytes(theirs)), mine, theirs)
    return mine + cipher.encrypt(_NONCE, blob, _bound(query, party))


def unseal(sealed: bytes, key: Ed25519PrivateKey, query: str, party: str) -> bytes:
    """Open what this party sealed in answer to this query for the holder of ``key``. Raises BlobError(not_sealed)."""
    mine = X25519PrivateKey.from_private_bytes(hashlib.sha512(key.private_bytes_raw()).digest()[:_KEY_BYTES])
    theirs, encrypted = sealed[:_KEY_BYTES], sealed[_KEY_BYTES:]
    try:
        shared = mine.exchange(X25519PublicKey.from_public_bytes(theirs))
        cipher = _cipher(shared, theirs, mine.public_key().public_bytes_raw())
        return cipher.decrypt(_NONCE, encrypted, _bound(query, party))
    except (InvalidTag, ValueError):
        raise BlobError(f"the blob of {party} is not sealed by it for this query", reason=Reason.NOT_SEALED) from None


@lru_cache(64)
def agreement_key(key: str) -> bytes:
    """Return the X25519 key of the holder of this Ed25519 key, in hexadecimal: u = (1 + y) / (1 - y)."""
    y = int.from_bytes(bytes.fromhex(key), "little") % 2**255
    return ((1 + y) * pow(1 - y, -1, _P) % _P).to_bytes(_KEY_BYTES, "little")


def _cipher(shared: bytes, drawn: bytes, holder: bytes) -> ChaCha20Poly1305:
    """Return the cipher of two X25519 keys, one of them drawn for one blob."""
    return ChaCha20Poly1305(HKDF(SHA256(), _KEY_BYTES, salt=None, info=_TAG + drawn + holder).derive(shared))


def _bound(query: str, party: str) -> bytes:
    """Return what a seal is bound to beside its keys; a query's hash implies session, roster and round."""
    return f"{query}\0{party}".encode()
