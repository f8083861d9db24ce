"""Key files, private to their owner, and the Ed25519 key that a service signs with.

A file is written completely or not at all: first to disk under another name, then renamed. Its mode is 0600. A file
that others may read is refused, and its mode is not corrected: somebody may have read it already. What root writes
gets the owner of its folder, so that a service that runs as that user can read it.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from parley.common.errors import UnavailableError
from parley.common.secure_sum.errors import OwnKeyError, Reason

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_private(path: Path) -> bytes:
    """Read a file that only its owner may read. Raises OwnKeyError(key_file_unreadable, key_file_open)."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read()
    except OSError as error:
        raise OwnKeyError(f"key file {path}: {error.strerror}", reason=Reason.KEY_FILE_UNREADABLE) from None
    if mode & _OTHERS:
        raise OwnKeyError(f"key file {path} has mode {mode:04o}, not 0600", reason=Reason.KEY_FILE_OPEN)
    return content


def write_private(path: Path, content: bytes) -> None:
    """Write a new file of mode 0600, flushed to disk on return; an existing file stays as it is."""
    _make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:  # noqa: PTH123 -- a mode
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _give_away(draft)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)


def _make_folder(folder: Path) -> None:
    """Make a private folder, and those above it, where there is none."""
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _give_away(folder)


def _give_away(path: Path) -> None:
    """Give what root has made to the owner of the folder that it is in."""
    if os.geteuid() == 0:
        of_folder = path.parent.stat()
        os.chown(path, of_folder.st_uid, of_folder.st_gid, follow_symlinks=False)


def replace_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 in place of an existing one, flushed to disk on return."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_private(draft, content)
    draft.replace(path)
    sync_directory(path.parent)


@contextmanager
def writing(subject: object, advice: str = "") -> Iterator[None]:
    """Replace an OSError by UnavailableError, which says that ``subject`` cannot be written and why."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"{subject} cannot be written: {error.strerror}{advice}") from None


def sync_directory(path: Path) -> None:
    """Flush the names in a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def identity_key(path: Path) -> Ed25519PrivateKey:
    """Read the key that a service signs with, from a PEM file that is created on the first start.

    Raises OwnKeyError: the file cannot be read or written, others may read it, or it holds no Ed25519 key.
    """
    try:
        if not path.exists():
            write_private(path, write_key(Ed25519PrivateKey.generate()))
    except OSError as error:
        raise OwnKeyError(f"key file {path}: {error.strerror}", reason=Reason.KEY_FILE_UNREADABLE) from None
    return read_key(read_private(path), f"key file {path}")


def read_key(pem: bytes, subject: str) -> Ed25519PrivateKey:
    """Read the Ed25519 key of a PEM text; raises OwnKeyError that says that ``subject`` holds none."""
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise OwnKeyError(f"{subject} holds no Ed25519 key", reason=Reason.KEY_FILE_CORRUPT)
    return key


def write_key(key: Ed25519PrivateKey) -> bytes:
    """Return a key as PEM, which `read_key` reads."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
