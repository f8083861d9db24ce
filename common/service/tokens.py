"""Bearer tokens: 256 random bits, kept by their owner, known to the other side by their hash alone.

A token is random, not chosen by a person, so plain SHA-256 is enough: there is no dictionary to try, and a slow or
salted hash would add nothing. A caller may have several tokens at a time, each until a day, so that a new one can be
handed out before the old one ends.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

from parley.common.errors import UnauthorizedError
from parley.common.strict import Identifier, Setting, TokenHash

_SCHEME = "bearer "


def new_token() -> str:
    """A new token of 256 random bits, in URL-safe characters."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """What the other side stores of a token: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def hash_of_bearer(authorization: str) -> str:
    """The hash of the token that an ``Authorization`` header carries."""
    return hash_token(authorization[len(_SCHEME) :].strip())


class Token(Setting):
    """A bearer token that counts until a day."""

    hash: Annotated[TokenHash, Field(description="the token's hash, as the command `token` prints it")]
    expires: Annotated[
        date | None, Field(description="the day, in UTC, from which it is refused; it does not expire if unset")
    ] = None


class Caller(Setting):
    """Somebody whom a service knows by bearer tokens."""

    name: Annotated[Identifier, Field(description="the caller's name")]
    token_hash: Annotated[
        TokenHash | None,
        Field(description="hash of the caller's only token, which does not expire, as the command `token` prints it"),
    ] = None
    tokens: Annotated[
        tuple[Token, ...], Field(description="or several tokens, all of which count until they expire")
    ] = ()

    @model_validator(mode="after")
    def _has_tokens(self) -> Self:
        if (self.token_hash is None) == (not self.tokens):
            raise ValueError(f"{self.name!r} needs either token_hash or tokens")
        return self

    @property
    def known_tokens(self) -> tuple[KnownToken, ...]:
        """All tokens of this caller, however they are written."""
        tokens = self.tokens or (Token(hash=self.token_hash or ""),)
        return tuple(KnownToken(token.hash, NamedCaller(self.name), token.expires) for token in tokens)


@dataclass(frozen=True, slots=True)
class NamedCaller:
    """A caller that a service's settings name: a learner's user, or the learner of a party or of a key holder."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class PeerCaller:
    """A party or a key holder that connects itself to its learner."""

    name: str

    def __str__(self) -> str:
        return f"peer {self.name}"


@dataclass(frozen=True, slots=True)
class InvitedCaller:
    """The future party or key holder that a learner has invited by this name."""

    name: str

    def __str__(self) -> str:
        return f"invited {self.name}"


AnyCaller = NamedCaller | PeerCaller | InvitedCaller
"""Callers of one kind and name are one caller, and of two kinds are two, even of the same name."""


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token's hash, the caller that it belongs to, and the day from which it is refused."""

    hash: str
    caller: AnyCaller
    expires: date | None = None


class SignInError(UnauthorizedError):
    """A request that carries no token that counts; ``why`` is ``absent``, ``unknown`` or ``expired``."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__(detail)
        self.why = why


class Tokens:
    """Which tokens count now. They may be replaced while the service runs."""

    def __init__(
        self, known: Iterable[KnownToken], today: Callable[[], date] = lambda: datetime.now(UTC).date()
    ) -> None:
        self._known = tuple(known)
        self.others: Callable[[], Iterable[KnownToken]] = tuple
        """What else counts, asked each time: of callers who come and go while the service runs."""
        self.today = today

    def replace(self, known: Iterable[KnownToken]) -> None:
        """From now on, these count and no others."""
        self._known = tuple(known)

    def identify(self, authorization: str | None) -> AnyCaller:
        """The caller whose token an ``Authorization`` header carries.

        Every hash is compared, each in constant time. Raises SignInError for no bearer token, nobody's, or one that
        has expired.
        """
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            raise SignInError("absent", "a bearer token is needed")
        presented = hash_of_bearer(authorization)
        found = [token for token in (*self._known, *self.others()) if hmac.compare_digest(token.hash, presented)]
        if not found:
            raise SignInError("unknown", "the bearer token is not known here")
        if found[0].expires is not None and found[0].expires <= self.today():
            raise SignInError("expired", "the bearer token has expired: ask for a new one")
        return found[0].caller

    def next_expiry(self) -> KnownToken | None:
        """The token that expires next of those that still count; None if none of them ever does."""
        ahead = [token for token in self._known if token.expires is not None and token.expires > self.today()]
        return min(ahead, key=lambda token: token.expires or date.max, default=None)
