"""Blobs sealed for one key holder: nobody else sees a party's ciphertexts, nor makes others of them.

Whoever has Paillier ciphertexts can add them up, or negate them. A party that works with the learner could contribute
the negatives of others' ciphertexts, and so take their answers, and their noise, out of a sum that all seem to be in.
A sealed blob cannot be turned into another, nor handed in by another party or in another round (ECIES; Abdalla,
Bellare & Rogaway, "The Oracle Diffie-Hellman Assumptions and an Analysis of DHIES", 2001).

The key holder's Ed25519 key serves as its X25519 key, by the map of RFC 7748, section 4.1; one key may do both
(Thormarker, "On Using the Same Key Pair for Ed25519 and an X25519 Based KEM", 2021).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from parley.common.secure_sum.errors import BlobError, Reason
from parley.common.secure_sum.paillier import RandomBytes

SEAL_BYTES = 48
"""How much longer a sealed blob is: a key that was drawn for it alone, and an authentication tag."""
_KEY_BYTES = 32
_NONCE = bytes(12)  # a key is drawn for one blob and never used again, so the nonce may be constant
_TAG = b"parley-secure-sum-1/blob\0"
_P = 2**255 - 19


def seal(blob: bytes, holder: str, query: str, party: str, random_bytes: RandomBytes) -> bytes:
    """A party's blob in answer to a query (its hash), for whoever holds the Ed25519 key ``holder``."""
    drawn, theirs = X25519PrivateKey.from_private_bytes(random_bytes(_KEY_BYTES)), agreement_key(holder)
    mine = drawn.public_key().public_bytes_raw()
    cipher = _cipher(drawn.exchange(X25519PublicKey.from_public_bytes(theirs)), mine, theirs)
    return mine + cipher.encrypt(_NONCE, blob, _bound(query, party))


def unseal(sealed: bytes, key: Ed25519PrivateKey, query: str, party: str) -> bytes:
    """What this party sealed in answer to this query for the holder of ``key``. Raises BlobError(not_sealed)."""
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
    """The X25519 key of whoever holds this Ed25519 key, in hexadecimal: u = (1 + y) / (1 - y)."""
    y = int.from_bytes(bytes.fromhex(key), "little") % 2**255
    return ((1 + y) * pow(1 - y, -1, _P) % _P).to_bytes(_KEY_BYTES, "little")


def _cipher(shared: bytes, drawn: bytes, holder: bytes) -> ChaCha20Poly1305:
    """The cipher of two X25519 keys, one of them drawn for one blob."""
    return ChaCha20Poly1305(HKDF(SHA256(), _KEY_BYTES, salt=None, info=_TAG + drawn + holder).derive(shared))


def _bound(query: str, party: str) -> bytes:
    """What a seal is bound to beside its keys; a query's hash stands for session, roster and round."""
    return f"{query}\0{party}".encode()
