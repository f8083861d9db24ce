"""An identity provider that speaks OpenID Connect: its document, its keys, and the tokens that it gives.

Its answers come over https, are bounded in size and time, and no redirect is followed. A token counts only with a
signature by one of its published keys, for this client, in its time. PyJWT verifies tokens. Only algorithms with a
public key are accepted, and each key only for its own kind: a token cannot choose ``none``, or have a public key taken
for a shared secret.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import quote_plus, urlencode

import httpx
import jwt
import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidInputError, ParleyError, RefusedError, UnavailableError
from parley.common.service.http.proxy import ProxyAccess, spell_hosts_async
from parley.common.service.http.tls import context_of_others
from parley.common.service.tokens import SignInError
from parley.common.strict import faults, is_protected
from parley.learner.settings import SignIn

_LONGEST, _SECONDS = 2**18, 10.0  # bytes and seconds of one answer: a document, keys, or tokens
_HOUR, _MINUTE = 3600.0, 60.0
_REST = 5.0  # seconds after a failed request before the next
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""What a token may be signed with, by the kind of the key."""
ID_TOKEN = ("iss", "sub", "aud", "exp", "iat")
"""The claims that an ID token needs."""
LOGOUT_TOKEN = ("iss", "aud", "exp", "iat", "jti", "events")
"""The claims that a logout token needs."""
_CLIENT_FAULTS = frozenset({"invalid_client", "unauthorized_client", "unsupported_grant_type"})
_FAULTS: Mapping[type[Exception], str] = {
    jwt.ExpiredSignatureError: "has expired (are both clocks right?)",
    jwt.ImmatureSignatureError: "is not valid yet (are both clocks right?)",
    jwt.InvalidAudienceError: "is for another client",
    jwt.InvalidIssuerError: "is from another issuer",
    jwt.MissingRequiredClaimError: "lacks a claim that it needs",
    jwt.InvalidAlgorithmError: "has an algorithm that its key is not for",
    jwt.InvalidSignatureError: "has a wrong signature",
}

Claims = Mapping[str, Any]
_T = TypeVar("_T")
_Form = TypeVar("_Form", bound=BaseModel)


def _protected(url: str) -> str:
    if not is_protected(url):
        raise ValueError("https:// is needed")
    return url


Endpoint = Annotated[str, AfterValidator(_protected)]
"""An address at the provider, over https or on this machine."""


class _Answer(BaseModel):
    """An answer of the provider; what is not listed is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class ProviderDocument(_Answer):
    """What a provider says of itself below ``/.well-known/openid-configuration``."""

    issuer: str
    authorization_endpoint: Endpoint
    token_endpoint: Endpoint
    jwks_uri: Endpoint
    revocation_endpoint: Endpoint | None = None
    end_session_endpoint: Endpoint | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class Grant(_Answer):
    """The tokens that a provider gives for a code or a refresh token; the access token is not used."""

    id_token: str | None = None
    refresh_token: str | None = None


class _Refusal(_Answer):
    error: str


class _KeySet(_Answer):
    keys: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """A public key of the provider, its name there, and the algorithms that it is for."""

    name: str | None
    key: Any
    algorithms: tuple[str, ...]


class Provider:
    """A client of one identity provider."""

    def __init__(self, settings: SignIn, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare a client; raises InvalidInputError for a secret or an authority that cannot be read."""
        self._settings = settings
        self._secret = _read_secret(settings)
        self._client = httpx.AsyncClient(
            verify=context_of_others(settings.ca),
            proxy=ProxyAccess.of(str(settings.proxy)).for_client() if settings.proxy else None,
            trust_env=False,
            timeout=_SECONDS,
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            event_hooks={"request": [spell_hosts_async]},
        )
        self._document = _Kept(self._fetch_document, clock)
        self._keys = _Kept(self._fetch_keys, clock)
        self._clock = clock
        self._logged: dict[str, float] = {}

    async def document(self) -> ProviderDocument:
        """Return the provider's document, at most an hour old; raises UnavailableError, RefusedError."""
        return await self._document.get(_HOUR)

    async def check(self) -> None:
        """Raise UnavailableError or RefusedError unless people could sign in, as far as can be seen from here."""
        if not await self._keys.get(_HOUR):
            raise RefusedError("the identity provider publishes no key that verifies tokens")

    async def authorization_url(self, state: str, nonce: str, challenge: str) -> str:
        """Return where a browser asks for a code, with PKCE's challenge (S256).

        Raises UnavailableError, RefusedError.
        """
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._settings.redirect_uri,
            "scope": " ".join(dict.fromkeys(("openid", *self._settings.scopes))),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return _with_query((await self.document()).authorization_endpoint, query)

    async def exchange(self, code: str, verifier: str) -> Grant:
        """Return the tokens for a code and PKCE's verifier.

        Raises SignInError for a code that does not count, UnavailableError, RefusedError.
        """
        uri = self._settings.redirect_uri
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": uri, "code_verifier": verifier}
        return await self._grant(form, lambda error: error == "invalid_grant")

    async def refresh(self, refresh_token: str) -> Grant:
        """Return new tokens; raises SignInError if the provider gives none, UnavailableError, RefusedError.

        Some providers call a revoked token an invalid request, so only a fault of this client is another error.
        """
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return await self._grant(form, lambda error: error not in _CLIENT_FAULTS)

    async def revoke(self, refresh_token: str | None) -> None:
        """Tell the provider that a refresh token, if there is one, is not needed any more, if it takes that.

        Raises UnavailableError, RefusedError.
        """
        if refresh_token and (url := (await self.document()).revocation_endpoint):
            await self._post(url, {"token": refresh_token, "token_type_hint": "refresh_token"})

    async def sign_out_url(self) -> str | None:
        """Return where a browser ends its session at the provider, if there is such a place.

        No ``id_token_hint`` says who asks, so the provider may ask the person whether to sign out: an ID token stays
        out of addresses, which browsers and servers note.
        """
        if (url := (await self.document()).end_session_endpoint) is None:
            return None
        query = {"client_id": self._settings.client_id, "post_logout_redirect_uri": str(self._settings.url)}
        return _with_query(url, query)

    async def claims(self, token: str, needed: Sequence[str] = ID_TOKEN) -> Claims:
        """Return what a token says; raises SignInError unless the provider signed it for this client and this time.

        Raises UnavailableError and RefusedError where the provider's keys cannot be had.
        """
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(header.get("kid"))
            return jwt.decode(
                token,
                key.key,
                key.algorithms,
                audience=self._settings.client_id,
                issuer=self._settings.issuer,
                leeway=self._settings.leeway_seconds,
                options={"require": [*needed], "enforce_minimum_key_length": True},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise refused_token(_FAULTS.get(type(error), "is malformed")) from None

    def log(self, event: str, error: ParleyError) -> None:
        """Log what the provider keeps from happening, each event once a minute at most."""
        now = self._clock()
        if now - self._logged.get(event, -_MINUTE) >= _MINUTE:
            self._logged[event] = now
            structlog.get_logger().warning(event, why=error.detail)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _key(self, name: str | None) -> ProviderKey:
        """Return the key of this name. One that is not known has the keys fetched again, once a minute at most."""
        for age in (_HOUR, _MINUTE):
            keys = await self._keys.get(age)
            matches = [key for key in keys if key.name == name]
            if not matches and name is None and len(keys) == 1:  # it need not be named then
                matches = list(keys)
            if len(matches) == 1:
                return matches[0]
        raise refused_token("is signed with a key that the provider does not publish")

    async def _grant(self, form: dict[str, str], ends: Callable[[str], bool]) -> Grant:
        """Ask for tokens; errors that end a sign-in or a session are SignInErrors."""
        status, body = await self._post((await self.document()).token_endpoint, form)
        if status == httpx.codes.OK:
            return _parsed(Grant, body)
        error = _parsed(_Refusal, body).error
        if ends(error):
            raise SignInError("refused", "the identity provider does not let this session begin or go on")
        raise RefusedError(f"the identity provider refuses this learner: {_plain_error(error)}")

    async def _post(self, url: str, form: dict[str, str]) -> tuple[int, bytes]:
        """Send a form as this client, which shows its secret if it has one."""
        headers, client = {}, self._settings.client_id
        if self._secret is None:
            form = form | {"client_id": client}
        elif "client_secret_basic" in (await self.document()).token_endpoint_auth_methods_supported:
            pair = f"{quote_plus(client)}:{quote_plus(self._secret)}".encode()
            headers = {"Authorization": f"Basic {b64encode(pair).decode()}"}
        else:
            form = form | {"client_id": client, "client_secret": self._secret}
        return await self._ask("POST", url, form, headers)

    async def _fetch_document(self) -> ProviderDocument:
        issuer = self._settings.issuer
        status, body = await self._ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if status != httpx.codes.OK:
            raise RefusedError(f"the identity provider has no document at its issuer: HTTP status {status}")
        document = _parsed(ProviderDocument, body)
        if document.issuer != issuer:
            raise RefusedError("the identity provider names another issuer than sign_in.issuer: spell it alike")
        return document

    async def _fetch_keys(self) -> tuple[ProviderKey, ...]:
        status, body = await self._ask("GET", (await self.document()).jwks_uri)
        if status != httpx.codes.OK:
            raise RefusedError(f"the identity provider does not show its keys: HTTP status {status}")
        return tuple(key for entry in _parsed(_KeySet, body).keys if (key := _key_of(entry)))

    async def _ask(
        self, method: str, url: str, form: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Return status and body of an answer; raises UnavailableError where none comes, RefusedError if too long."""
        body = bytearray()
        try:
            async with (
                asyncio.timeout(_SECONDS),
                self._client.stream(method, url, data=form, headers=headers) as response,
            ):
                async for piece in response.aiter_raw():
                    body += piece
                    if len(body) > _LONGEST:
                        raise RefusedError("the identity provider's answer is too long")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise UnavailableError(f"the identity provider does not answer ({type(error).__name__})") from None
        if response.is_server_error or response.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise UnavailableError(f"the identity provider cannot answer now: HTTP status {response.status_code}")
        return response.status_code, bytes(body)


class _Kept(Generic[_T]):
    """Something of the provider that is fetched when it is first needed, and again when it is too old.

    One fetch is under way at a time, and a failed one is not tried again within five seconds.
    """

    def __init__(self, fetch: Callable[[], Awaitable[_T]], clock: Callable[[], float]) -> None:
        self._fetch, self._clock, self._lock = fetch, clock, asyncio.Lock()
        self._value: tuple[float, _T] | None = None
        self._failure: tuple[float, ParleyError] | None = None

    async def get(self, age: float) -> _T:
        """Return it, at most so many seconds old; raises what the fetch raised."""
        async with self._lock:
            if self._value and self._clock() - self._value[0] < age:
                return self._value[1]
            if self._failure and self._clock() - self._failure[0] < _REST:
                raise self._failure[1]
            try:
                value = await self._fetch()
            except ParleyError as error:
                self._failure = self._clock(), error
                raise
            self._value, self._failure = (self._clock(), value), None
            return value


def refused_token(fault: str) -> SignInError:
    """Return the error of a token of the provider that does not count."""
    return SignInError("refused", f"the identity provider's token {fault}")


def _key_of(entry: dict[str, Any]) -> ProviderKey | None:
    """Return a key that verifies tokens; None for one that is for something else, or of a kind that is not accepted."""
    algorithms = _ALGORITHMS.get(entry.get("kty", ""), ())
    if (algorithm := entry.get("alg")) is not None:
        algorithms = (algorithm,) if algorithm in algorithms else ()
    if not algorithms or entry.get("use", "sig") != "sig":
        return None
    try:
        return ProviderKey(entry.get("kid"), jwt.PyJWK(entry).key, algorithms)
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        return None


def _parsed(form: type[_Form], body: bytes) -> _Form:
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        raise RefusedError(f"the identity provider's answer is not OpenID Connect's: {faults(error)}") from None


def _plain_error(error: str) -> str:
    """Return a code of OAuth's errors; other words are not repeated."""
    return error if error.isascii() and error.replace("_", "").isalpha() and len(error) <= 50 else "no known reason"  # noqa: PLR2004


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


def _read_secret(settings: SignIn) -> str | None:
    if settings.client_secret_file is None:
        return None
    try:
        return decode_text(settings.client_secret_file.read_bytes()).strip()
    except (OSError, UnicodeDecodeError):
        raise InvalidInputError(f"sign_in: {settings.client_secret_file} cannot be read") from None
