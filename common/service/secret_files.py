"""The files that hold a service's secrets: which they are, and which of them every user of the machine can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

_HOLD_SECRETS = {"key", "authority_key", "token_file", "client_secret_file", "proxy_password_file"}
"""Settings, at any depth, that name a file with a secret in it."""


def secret_files(settings: BaseModel) -> Iterator[Path]:
    """Yield the files that settings name for private keys, tokens and passwords, each as often as it is named."""
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Path) and name in _HOLD_SECRETS:
            yield value
        for nested in value if isinstance(value, tuple) else (value,):
            if isinstance(nested, BaseModel):
                yield from secret_files(nested)


def is_readable_by_all(path: Path) -> bool:
    """Whether every user of this machine can read a file: it says so, and so does every folder above it."""
    try:
        is_open = path.stat().st_mode & 0o004
        return bool(is_open) and all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)
    except OSError:
        return False
