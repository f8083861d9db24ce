"""Bearer tokens: 256 random bits, kept by their owner, known to the other side by their hash alone.

A token is random, not chosen by a person, so plain SHA-256 is enough: there is no dictionary to try, and a slow or
salted hash would add nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Annotated

from pydantic import StringConstraints

from common.errors import UnauthorizedError

TokenHash = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
"""How settings write a token's hash."""

_SCHEME = "bearer "


def new_token() -> str:
    """A new token of 256 random bits, in URL-safe characters."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """What the other side stores of a token: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def identify(authorization: str | None, names: Mapping[str, str]) -> str:
    """Whose token an ``Authorization`` header carries, from {token hash: name}.

    Every hash is compared, each in constant time. Raises UnauthorizedError when there is no bearer token or nobody's.
    """
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        raise UnauthorizedError("a bearer token is needed")
    presented = hash_token(authorization[len(_SCHEME) :].strip())
    found = [name for known, name in names.items() if hmac.compare_digest(known, presented)]
    if not found:
        raise UnauthorizedError("the bearer token is not known here")
    return found[0]
