"""Settings files, as operators write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from pydantic import SecretStr


def toml(value: object) -> str:
    """A value as TOML; what is None is left out."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items() if item is not None) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, SecretStr):
        return json.dumps(value.get_secret_value())
    if isinstance(value, date):
        return value.isoformat()
    return json.dumps(value if isinstance(value, bool | int | float) else str(value))


def write(path: Path, settings: Mapping[str, object]) -> Path:
    """A settings file, which is there at once and whole."""
    draft = path.with_suffix(".draft")
    draft.write_text("".join(f"{key} = {toml(value)}\n" for key, value in settings.items() if value is not None))
    return draft.rename(path)
