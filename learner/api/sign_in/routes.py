"""The places where people sign in and out: the authorization code flow of OpenID Connect, with PKCE.

``/sign-in`` sends the browser to the provider, which sends it back to ``/sign-in/callback`` with a code. What ties the
two together, state, nonce and PKCE's verifier, is sealed into a cookie of ten minutes, so that strangers who begin
sign-ins take no memory here, and a callback counts only in the browser that began. The tokens stay in this process; the
browser gets a session's cookie.

The provider may end sessions at any time (back-channel logout): it posts a token that it signed to ``/sign-in/ended``.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import parse_qs

import structlog
from cryptography.fernet import Fernet, InvalidToken
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from markupsafe import Markup

from parley.common.errors import ParleyError, ShareUsedUpError, TooLargeError, UnavailableError
from parley.common.service import problems
from parley.common.service.fair_use import SignIns
from parley.common.service.http.pages import page_headers
from parley.common.service.tokens import SignInError
from parley.learner.api.sign_in.provider import LOGOUT_TOKEN, Provider, refused_token
from parley.learner.api.sign_in.sessions import COOKIE, BrowserSessions, check_page

if TYPE_CHECKING:
    from parley.learner.settings import SignIn

MARK = "__Host-parley-signed-in"
"""A cookie that only tells the page's scripts to try a session; it opens nothing."""
_BEGUN = "__Host-parley-sign-in"
_SECONDS = 600  # from the beginning of a sign-in to its end
_LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
_NOBODY = "nobody can sign in now"
_MOST_BYTES, _MOST_NOTED = 2**16, 1000
_PAGE = Markup("""<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Not signed in · Parley</title>
  <link rel="icon" href="data:,">
  <link rel="stylesheet" href="/page/style.css">
</head>
<body>
  <header><strong class="brand">Parley</strong></header>
  <main>
    <h1>You are not signed in</h1>
    <p class="alert" role="alert">{why}.</p>
    <p><a class="button" href="/">Back to the page</a></p>
  </main>
</body>
</html>
""")
_HEADERS = page_headers("style-src 'self'; img-src data:") | {"Cache-Control": "no-store"}


class SignInDesk:
    """Signs people in and out."""

    paths = frozenset({"/sign-in", "/sign-in/callback", "/sign-in/ended", "/sign-out"})
    """Its paths; none needs a token."""

    def __init__(self, provider: Provider, sessions: BrowserSessions, failures: SignIns) -> None:
        self._provider, self._sessions, self._failures = provider, sessions, failures
        self._seal = Fernet(Fernet.generate_key())
        self._noted: OrderedDict[str, None] = OrderedDict()  # logout tokens that have come

    @classmethod
    def of(cls, settings: SignIn, failed_sign_ins: int) -> Self:
        """Return the desk of some settings; one address may fail so often a minute.

        Raises InvalidInputError for a file that cannot be read.
        """
        provider = Provider(settings)
        return cls(provider, BrowserSessions(provider, settings), SignIns(failed_sign_ins))

    def add_routes(self, app: FastAPI) -> None:
        """Add the places, which are for browsers and the provider, and not a part of the API."""
        app.state.tokens.sessions = self._sessions.identify
        app.add_route("/sign-in", self.begin, include_in_schema=False)
        app.add_route("/sign-in/callback", self.finish, include_in_schema=False)
        app.add_route("/sign-in/ended", self.end_for_provider, ["POST"], include_in_schema=False)
        app.add_route("/sign-out", self.sign_out, ["POST"], include_in_schema=False)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Say at the start if the provider does not answer, beside the start itself: tokens count all the same."""
        greeting = asyncio.create_task(self._greet())
        yield
        greeting.cancel()
        await self._provider.close()

    async def _greet(self) -> None:
        try:
            await self._provider.check()
        except ParleyError as error:
            self._provider.log(_NOBODY, error)

    async def begin(self, _: Request) -> Response:
        """Send the browser to the provider."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        try:
            url = await self._provider.authorization_url(state, nonce, challenge)
        except ParleyError as error:
            self._provider.log(_NOBODY, error)
            return _refusal(error)
        sealed = self._seal.encrypt(json.dumps([state, nonce, verifier]).encode()).decode()
        response = RedirectResponse(url, 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
        _set(response, _BEGUN, sealed, _SECONDS)
        return response

    async def finish(self, request: Request) -> Response:
        """Begin a session by the code that the provider sent the browser back with."""
        try:
            cookie = await self._finish(request)
        except ParleyError as error:
            response = _refusal(self._failed(request, error))
        else:
            response = RedirectResponse("/", 303, {"Cache-Control": "no-store"})
            _set(response, COOKIE, cookie)
            _set(response, MARK, "1")
        _drop(response, _BEGUN)
        return response

    async def _finish(self, request: Request) -> str:
        state, nonce, verifier = self._begun(request)
        answer = request.query_params
        if not hmac.compare_digest(answer.get("state", "").encode(), state.encode()):
            raise SignInError("refused", "this answers another sign-in than the one that this browser began last")
        document = await self._provider.document()
        issuer = answer.get("iss", None if document.authorization_response_iss_parameter_supported else document.issuer)
        if issuer != document.issuer:
            raise SignInError("refused", "another provider sent the browser back")
        if (code := answer.get("code")) is None:
            raise SignInError("refused", "the identity provider did not sign you in")
        return await self._sessions.begin(await self._provider.exchange(code, verifier), nonce)

    def _begun(self, request: Request) -> tuple[str, str, str]:
        """Return state, nonce and verifier of the sign-in that this browser has begun; raises SignInError."""
        try:
            state, nonce, verifier = json.loads(self._seal.decrypt(request.cookies.get(_BEGUN, ""), _SECONDS))
        except (InvalidToken, ValueError):  # the second for what is no ASCII
            raise SignInError("refused", "this browser began no sign-in within ten minutes: begin again") from None
        return state, nonce, verifier

    async def sign_out(self, request: Request) -> Response:
        """End the browser's session; ``next`` is where the browser ends its session at the provider, or null.

        Raises SignInError for another site's request: it brings no cookie, and the answer must not drop any.
        """
        check_page(request.headers)
        place = None
        with suppress(ParleyError):  # the session here has ended in any case
            if session := self._sessions.find(request.headers):
                self._sessions.end(lambda other: other is session)
                with suppress(ParleyError):
                    await self._provider.revoke(session.refresh_token)
                place = await self._provider.sign_out_url()
        response = JSONResponse({"next": place}, headers={"Cache-Control": "no-store"})
        _drop(response, COOKIE)
        _drop(response, MARK)
        return response

    async def end_for_provider(self, request: Request) -> Response:
        """End sessions as the provider says, by OpenID Connect's back-channel logout."""
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_BYTES:
                raise TooLargeError("this takes a form with one logout_token")
        form = parse_qs(body.decode("ascii", "replace"))
        try:
            subject, sid = await self._logout(form.get("logout_token", [""])[0])
        except SignInError as error:
            return problems.problem(400, "invalid-input", error.detail)  # as the standard has it
        self._sessions.end(lambda session: session.is_named_by(subject, sid))
        return Response(headers={"Cache-Control": "no-store"})

    async def _logout(self, token: str) -> tuple[str | None, str | None]:
        """Return the subject and the session that a logout token names, at least one of them; raises SignInError."""
        claims = await self._provider.claims(token, LOGOUT_TOKEN)
        events, jti = claims["events"], str(claims["jti"])
        subject, sid = claims.get("sub"), claims.get("sid")
        if not isinstance(events, dict) or _LOGOUT not in events or "nonce" in claims or (subject, sid) == (None, None):
            raise refused_token("is no logout token")
        if jti in self._noted:
            raise refused_token("has come before")
        self._noted[jti] = None
        if len(self._noted) > _MOST_NOTED:
            self._noted.popitem(last=False)
        return subject, sid

    def _failed(self, request: Request, error: ParleyError) -> ParleyError:
        """Count and log a sign-in that failed, by address and reason; returns the error to answer."""
        if isinstance(error, UnavailableError):  # this is nobody's attempt
            self._provider.log(_NOBODY, error)
            return error
        reason = error.reason if isinstance(error, SignInError) else error.kind
        address = request.client.host if request.client else "unknown"
        request.app.state.metrics.failed_sign_ins.labels(reason).inc()
        try:
            is_last = self._failures.fail(address, error.detail)
        except ShareUsedUpError as too_many:
            return too_many
        last = {"then": "unlogged for a minute"} if is_last else {}
        structlog.get_logger().warning("sign-in", why=error.detail, peer=address, **last)
        return error


def _refusal(error: ParleyError) -> Response:
    """Return a page that says why somebody is not signed in."""
    words = f"{error.detail[0].upper()}{error.detail[1:]}"
    return Response(_PAGE.format(why=words), error.status, _HEADERS, "text/html")


def _set(response: Response, name: str, value: str, seconds: int | None = None) -> None:
    """Set a cookie that a browser sends over https alone, and not along with another site's request.

    That a sign-in has begun comes along when the provider sends the browser back. Without ``seconds`` it goes when the
    browser is closed.
    """
    same_site: Literal["lax", "strict"] = "lax" if name == _BEGUN else "strict"
    response.set_cookie(name, value, seconds, secure=True, httponly=name != MARK, samesite=same_site)


def _drop(response: Response, name: str) -> None:
    response.delete_cookie(name, secure=True, samesite="strict")
