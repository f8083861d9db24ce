"""A user's bearer token: given, in a file, or in the environment; never told to anybody but the learner."""

from __future__ import annotations

import os
import string
from pathlib import Path

from common.errors import InvalidInputError

TOKEN, TOKEN_FILE = "PARLEY_TOKEN", "PARLEY_TOKEN_FILE"
_VISIBLE = frozenset(string.ascii_letters + string.digits + string.punctuation)


def read_token(token: str | None = None, file: Path | str | None = None) -> str:
    """The token that is given, else that of ``file``, of PARLEY_TOKEN or of the file PARLEY_TOKEN_FILE.

    Raises InvalidInputError where there is none, or what there is cannot be one; it is not repeated.
    """
    if token is None and file is None:
        token, named = os.environ.get(TOKEN), os.environ.get(TOKEN_FILE)
        file = named or None
    if token is None:
        if file is None:
            raise InvalidInputError(f"a token is needed: give it, name its file, or set {TOKEN} or {TOKEN_FILE}")
        return _checked(_content(Path(file)), f"the token file {file}")
    return _checked(token, "the token")


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidInputError(f"the token file {file} cannot be read") from None


def _checked(text: str, where: str) -> str:
    """A token without what surrounds it; raises InvalidInputError for none, and for what a header cannot hold."""
    token = text.strip()
    if not token:
        raise InvalidInputError(f"{where} is empty")
    if not _VISIBLE.issuperset(token):
        raise InvalidInputError(f"{where} holds more than one word of visible ASCII characters")
    return token
