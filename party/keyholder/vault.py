"""The Paillier keys of a key holder's sessions: in memory while they serve, on disk only encrypted."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

import structlog
from phe import PaillierPrivateKey

from parley.common.secure_sum.errors import OwnKeyError, Reason
from parley.common.secure_sum.keyfile import seal_key, unseal_key
from parley.common.storage.keys import read_private, sync_directory, write_private


class Vault:
    """One file a key, of mode 0600, encrypted under a secret; named by the hash of the key's modulus."""

    def __init__(self, directory: Path, secret: bytes) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._secret = secret
        self._keys: dict[int, PaillierPrivateKey] = {}
        self._undeleted: set[Path] = set()

    def store(self, key: PaillierPrivateKey) -> None:
        """Keep a key, on the disk when this returns."""
        write_private(self._path(key.public_key.n), seal_key(key, self._secret, os.urandom))
        self._keys[key.public_key.n] = key

    def load(self, n: int) -> PaillierPrivateKey:
        """The key of a modulus. Raises OwnKeyError(key_file_unreadable, key_file_open, key_file_corrupt)."""
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
        """Delete files; one that cannot be deleted does not keep the others."""
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
