"""A private Paillier key at rest: scrypt turns a secret into an AES-256-GCM key (RFC 7914, NIST SP 800-38D).

"parley-paillier-1" | salt (16) | nonce (12) | AES-GCM(p | q, both big-endian and of the same width) with tag (16)
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from phe import PaillierPrivateKey

from parley.common.secure_sum.errors import OwnKeyError, Reason
from parley.common.secure_sum.paillier import RandomBytes, private_key

_MAGIC = b"parley-paillier-1"
_SALT_BYTES = 16
_NONCE_BYTES = 12
_HEAD_BYTES = len(_MAGIC) + _SALT_BYTES + _NONCE_BYTES


def seal_key(key: PaillierPrivateKey, secret: bytes, random_bytes: RandomBytes) -> bytes:
    """Encrypt a private key under a secret; keep the result in a file of mode 0600."""
    width = (max(key.p, key.q).bit_length() + 7) // 8
    salt, nonce = random_bytes(_SALT_BYTES), random_bytes(_NONCE_BYTES)
    plain = key.p.to_bytes(width) + key.q.to_bytes(width)
    return _MAGIC + salt + nonce + _cipher(secret, salt).encrypt(nonce, plain, _MAGIC)


def unseal_key(sealed: bytes, secret: bytes) -> PaillierPrivateKey:
    """Decrypt a private key. Raises OwnKeyError(key_file_corrupt): torn, altered, or another secret."""
    if not sealed.startswith(_MAGIC) or len(sealed) <= _HEAD_BYTES:
        raise OwnKeyError("not a sealed Paillier key", reason=Reason.KEY_FILE_CORRUPT)
    salt = sealed[len(_MAGIC) : _HEAD_BYTES - _NONCE_BYTES]
    nonce = sealed[_HEAD_BYTES - _NONCE_BYTES : _HEAD_BYTES]
    try:
        plain = _cipher(secret, salt).decrypt(nonce, sealed[_HEAD_BYTES:], _MAGIC)
    except InvalidTag as error:
        raise OwnKeyError("altered, or sealed under another secret", reason=Reason.KEY_FILE_CORRUPT) from error
    half = len(plain) // 2
    return private_key(int.from_bytes(plain[:half]), int.from_bytes(plain[half:]))


def _cipher(secret: bytes, salt: bytes) -> AESGCM:
    """AES-256-GCM under the key that scrypt makes of the secret."""
    return AESGCM(Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(secret))
