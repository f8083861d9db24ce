"""The Paillier keys of a key holder's sessions: in memory while they serve, on disk only encrypted.

On disk a private key is encrypted by AES-256-GCM, under a key that scrypt derives from the key holder's secret (RFC
7914, NIST SP 800-38D). A file has, with lengths in bytes:

"parley-paillier-1" | salt (16) | nonce (12) | AES-GCM(p | q, both big-endian and of the same width) with tag (16)
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from phe import PaillierPrivateKey

from parley.common.secure_sum.errors import OwnKeyError, Reason
from parley.common.secure_sum.paillier import RandomBytes, private_key
from parley.common.storage.keys import read_private, sync_directory, write_private

_MAGIC = b"parley-paillier-1"
_SALT_BYTES = 16
_NONCE_BYTES = 12
_HEAD_BYTES = len(_MAGIC) + _SALT_BYTES + _NONCE_BYTES


def seal_key(key: PaillierPrivateKey, secret: bytes, random_bytes: RandomBytes) -> bytes:
    """Encrypt a private key under a secret; the result belongs into a file of mode 0600."""
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
    """Return AES-256-GCM under the key that scrypt derives from the secret."""
    return AESGCM(Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(secret))


class Vault:
    """One file a key, of mode 0600, encrypted under a secret; named by the hash of the key's modulus."""

    def __init__(self, directory: Path, secret: bytes) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._secret = secret
        self._keys: dict[int, PaillierPrivateKey] = {}
        self._undeleted: set[Path] = set()

    def store(self, key: PaillierPrivateKey) -> None:
        """Store a key; it is on the disk when this returns."""
        write_private(self._path(key.public_key.n), seal_key(key, self._secret, os.urandom))
        self._keys[key.public_key.n] = key

    def load(self, n: int) -> PaillierPrivateKey:
        """Return the key of a modulus. Raises OwnKeyError(key_file_unreadable, key_file_open, key_file_corrupt)."""
        if n not in self._keys:
            path = self._path(n)
            sealed = read_private(path)
            try:
                key = unseal_key(sealed, self._secret)
            except OwnKeyError as error:
                raise OwnKeyError(f"key file {path}: {error.detail}", reason=error.reason) from None
            if key.public_key.n != n:
                raise OwnKeyError(f"key file {path}: another key", reason=Reason.KEY_FILE_CORRUPT)
            self._keys[n] = key
        return self._keys[n]

    def destroy(self, n: int) -> None:
        """Forget a key and delete its file; a file that cannot be deleted is logged, and left to `retry`."""
        self._keys.pop(n, None)
        self._delete([self._path(n)])

    def keep_only(self, moduli: Collection[int]) -> None:
        """Delete the files of all other keys: of sessions that ended, or never began, when the service died."""
        names = {self._path(n).name for n in moduli}
        self._delete([path for path in self._directory.iterdir() if path.name not in names])

    def retry(self) -> None:
        """Delete what could not be deleted before."""
        self._delete(sorted(self._undeleted))

    def _delete(self, paths: Collection[Path]) -> None:
        """Delete files; if one cannot be deleted, the others still are."""
        for path in paths:
            try:
                path.unlink(missing_ok=True)
                sync_directory(self._directory)
                self._undeleted.discard(path)
            except OSError as error:
                self._undeleted.add(path)
                structlog.get_logger().error("key file not deleted", path=str(path), why=error.strerror)

    def _path(self, n: int) -> Path:
        return self._directory / f"{hashlib.sha256(f'{n:x}'.encode()).hexdigest()[:32]}.key"
