"""Bearer tokens: 256 random bits, which their owner keeps and the other side knows by their hash alone.

A token is random, not chosen by a person, so plain SHA-256 is enough: there is no dictionary to try, and a slow or
salted hash would add nothing. A caller may have several tokens at a time, each with a last day, so that a new one can
be handed out before the old one ends.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from parley.common.errors import UnauthorizedError
from parley.common.strict import Identifier, Setting, TokenHash

_SCHEME = "bearer "


def new_token() -> str:
    """Make a new token of 256 random bits, in URL-safe characters."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """Return the hash of a token that the other side stores: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def hash_of_bearer(authorization: str) -> str:
    """Return the hash of the token that an ``Authorization`` header carries."""
    return hash_token(authorization[len(_SCHEME) :].strip())


class Token(Setting):
    """A bearer token that is valid until a day."""

    hash: Annotated[TokenHash, Field(description="the token's hash, as the command `token` prints it")]
    expires: Annotated[
        date | None, Field(description="the day, in UTC, from which it is refused; it does not expire if unset")
    ] = None


class Caller(Setting):
    """A caller that a service recognises by bearer tokens."""

    name: Annotated[Identifier, Field(description="the caller's name")]
    token_hash: Annotated[
        TokenHash | None,
        Field(description="hash of the caller's only token, which does not expire, as the command `token` prints it"),
    ] = None
    tokens: Annotated[
        tuple[Token, ...], Field(description="or several tokens, which are all valid until they expire")
    ] = ()

    @model_validator(mode="after")
    def _has_tokens(self) -> Self:
        if (self.token_hash is None) == (not self.tokens):
            raise ValueError(f"{self.name!r} needs either token_hash or tokens")
        return self

    @property
    def known_tokens(self) -> tuple[KnownToken, ...]:
        """All tokens of this caller, from either field."""
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


@dataclass(frozen=True, slots=True)
class SignedInCaller:
    """A person that an identity provider knows: ``name`` is unique, ``title`` is what people call the person.

    The name holds a colon, so that no caller of the settings has the same.
    """

    name: str
    role: str = field(compare=False)
    title: str = field(compare=False)

    def __str__(self) -> str:
        return self.name


AnyCaller = NamedCaller | PeerCaller | InvitedCaller | SignedInCaller
"""Callers of one kind and name are one caller, and of two kinds are two, even of the same name."""


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token's hash, the caller that it belongs to, and the day from which it is refused."""

    hash: str
    caller: AnyCaller
    expires: date | None = None


SignInFailure = Literal["absent", "unknown", "expired", "refused"]
"""Why a request has no valid token or session; what an identity provider says may be ``refused``."""


class SignInError(UnauthorizedError):
    """A request without a valid token or session, for this reason."""

    def __init__(self, reason: SignInFailure, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Tokens:
    """The valid tokens; they may be replaced while the service runs."""

    def __init__(
        self, tokens: Iterable[KnownToken], today: Callable[[], date] = lambda: datetime.now(UTC).date()
    ) -> None:
        self._tokens = tuple(tokens)
        self.others: Callable[[], Iterable[KnownToken]] = tuple
        """Called for more valid tokens each time: those of callers that come and go while the service runs."""
        self.sessions: Callable[[Mapping[str, str]], Awaitable[AnyCaller | None]] | None = None
        """Called with the headers of a request without a token, where people may sign in: returns who has, or None."""
        self.today = today

    def replace(self, tokens: Iterable[KnownToken]) -> None:
        """Make these the only valid tokens from now on."""
        self._tokens = tuple(tokens)

    async def identify_request(self, headers: Mapping[str, str]) -> AnyCaller:
        """Return the caller of a request by its headers, in lower case: by its token, or without one by its session.

        Raises SignInError, and UnavailableError where an identity provider has to be asked and does not answer.
        """
        authorization = headers.get("authorization")
        if authorization is None and self.sessions is not None:
            person = await self.sessions(headers)
            if person is not None:
                return person
        return self.identify(authorization)

    def identify(self, authorization: str | None) -> AnyCaller:
        """Return the caller whose token an ``Authorization`` header carries.

        Every hash is compared, each in constant time. Raises SignInError where there is no bearer token, it is
        nobody's, or it has expired.
        """
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            raise SignInError("absent", "a bearer token is needed")
        presented = hash_of_bearer(authorization)
        matches = [token for token in (*self._tokens, *self.others()) if hmac.compare_digest(token.hash, presented)]
        if not matches:
            raise SignInError("unknown", "the bearer token is not known here")
        if matches[0].expires is not None and matches[0].expires <= self.today():
            raise SignInError("expired", "the bearer token has expired: ask for a new one")
        return matches[0].caller

    def next_expiry(self) -> KnownToken | None:
        """Return the token that expires next, or has left its caller without any; None if none ever does."""
        expiring = sorted(
            (token for token in self._tokens if token.expires), key=lambda token: token.expires or date.max
        )
        last = {token.caller: token for token in expiring}
        for token in self._tokens:
            if token.expires is None or token.expires > self.today():
                last.pop(token.caller, None)  # it is not without a token
        ahead = [token for token in expiring if token.expires and token.expires > self.today()]
        return next(iter([*last.values(), *ahead]), None)
