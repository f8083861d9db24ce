"""A user's bearer token, from an argument, a file or the environment; no error or log repeats it."""

from __future__ import annotations

import os
import string
from pathlib import Path

from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidInputError

TOKEN, TOKEN_FILE = "PARLEY_TOKEN", "PARLEY_TOKEN_FILE"
_VISIBLE = frozenset(string.ascii_letters + string.digits + string.punctuation)


def read_token(token: str | None = None, file: Path | str | None = None) -> str:
    """Return ``token``, or the token in ``file``, in PARLEY_TOKEN, or in the file that PARLEY_TOKEN_FILE names.

    Raises InvalidInputError if there is none, or if it cannot be one; the message does not repeat it.
    """
    if token is None and file is None:
        token, named = os.environ.get(TOKEN), os.environ.get(TOKEN_FILE)
        file = named or None
    if token is None:
        if file is None:
            raise InvalidInputError(
                f"a token is needed: name its file, or set {TOKEN} or {TOKEN_FILE}; an operator has it from "
                "parley-learner init or quickstart, others from the operator"
            )
        return _checked(_content(Path(file)), f"the token file {file}")
    return _checked(token, "the token")


def has_token() -> bool:
    """Say whether the environment holds a token, or names a file."""
    return bool(os.environ.get(TOKEN) or os.environ.get(TOKEN_FILE))


def others_read(file: Path | None) -> Path | None:
    """Return the file that `read_token` reads the token from, if others than its owner may read it; otherwise None."""
    if file is None:
        named = os.environ.get(TOKEN_FILE)
        if not named or TOKEN in os.environ:
            return None
        file = Path(named)
    return file if file.stat().st_mode & 0o077 else None


def _content(file: Path) -> str:
    try:
        return decode_text(file.read_bytes())
    except (OSError, UnicodeDecodeError):
        raise InvalidInputError(f"the token file {file} cannot be read") from None


def _checked(text: str, source: str) -> str:
    """Return a token without blanks around it; raises InvalidInputError if it is empty or no header can hold it."""
    token = text.strip()
    if not token:
        raise InvalidInputError(f"{source} is empty")
    if not _VISIBLE.issuperset(token):
        raise InvalidInputError(f"{source} holds more than one word of visible ASCII characters")
    return token
