"""Sessions of people: the browser holds a cookie that no script reads, and this process all else, in memory.

A session belongs to one browser. It lives as long as the provider renews it: every few minutes, when the person next
asks for something, the refresh token is used, so a person who was locked out there is out here after as long. A restart
ends all sessions, and nothing of them is on disk.

The cookie counts only in requests that the browser marks as made by the page itself (``Sec-Fetch-Site: same-origin``):
no other site, not even on a neighbouring host, can have a browser ask in a person's name.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from starlette.requests import cookie_parser

from parley.common.errors import ForbiddenError, ParleyError
from parley.common.service.tokens import SignedInCaller, SignInError, hash_token
from parley.learner.api.sign_in.people import caller_of_claims, check_ours
from parley.learner.api.sign_in.provider import Grant, Provider, refused_token
from parley.learner.settings import SignIn

COOKIE = "__Host-parley-session"
"""A browser takes a cookie of such a name only over https, for this host alone."""
_ENDED = "the session has ended: sign in again"
_MOST_OF_ONE = 16  # sessions of one person: one more ends the oldest


def check_page(headers: Mapping[str, str]) -> None:
    """Raise SignInError unless the browser says that the page itself makes a request."""
    if headers.get("sec-fetch-site") != "same-origin":
        raise SignInError("absent", "a session counts in requests of the page alone; programs show a bearer token")


@dataclass(slots=True, eq=False)
class BrowserSession:
    """A person's session in one browser; ``ends`` and ``renewed`` are by the clock of `BrowserSessions`."""

    caller: SignedInCaller
    subject: str
    sid: str | None
    refresh_token: str | None
    ends: float
    renewed: float
    renewal: asyncio.Task[None] | None = None

    def is_named_by(self, subject: str | None, sid: str | None) -> bool:
        """Whether the provider means this session: by its own name for it, or without one by the person's subject."""
        if sid is not None and self.sid is not None:
            return sid == self.sid and subject in {None, self.subject}
        return subject == self.subject


class BrowserSessions:
    """All sessions, by the hash of their cookie."""

    def __init__(self, provider: Provider, settings: SignIn, clock: Callable[[], float] = time.monotonic) -> None:
        self._provider, self._settings, self._clock = provider, settings, clock
        self._sessions: dict[str, BrowserSession] = {}

    async def begin(self, grant: Grant, nonce: str) -> str:
        """Begin a session by the tokens that a sign-in gave; returns its cookie's value.

        Raises SignInError for an ID token that does not count, ForbiddenError for a person without a role here.
        """
        if grant.id_token is None:
            raise refused_token("is missing: no ID token came")
        claims = await self._provider.claims(grant.id_token)
        check_ours(claims, self._settings, nonce)
        caller, now = caller_of_claims(claims, self._settings), self._clock()
        session = BrowserSession(
            caller,
            claims["sub"],
            claims.get("sid"),
            grant.refresh_token,
            ends=now + 3600 * self._settings.session_hours,
            renewed=now,
        )
        self._make_room(caller, now)
        cookie = secrets.token_urlsafe(32)
        self._sessions[hash_token(cookie)] = session
        structlog.get_logger().info("signed in", user=caller.name, role=caller.role)
        return cookie

    async def identify(self, headers: Mapping[str, str]) -> SignedInCaller | None:
        """Return the person whose session a request belongs to; None without a cookie.

        Raises SignInError for a session that has ended or a request that is not the page's, UnavailableError or
        RefusedError if the provider has to be asked and does not say whether the session may go on.
        """
        if (session := self.find(headers)) is None:
            return None
        if self._clock() - session.renewed >= 60 * self._settings.renew_minutes:
            if session.renewal is None:
                session.renewal = asyncio.create_task(self._renew(session))
                session.renewal.add_done_callback(asyncio.Task.exception)  # it is noticed even if nobody waits any more
            await asyncio.shield(session.renewal)  # a request that is given up must not lose the next refresh token
        return session.caller

    def find(self, headers: Mapping[str, str]) -> BrowserSession | None:
        """Return the session that a request belongs to; None without a cookie. Raises SignInError as `identify`."""
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        if cookie is None:
            return None
        check_page(headers)
        session = self._sessions.get(hash_token(cookie))
        if session is None or self._clock() >= session.ends:
            raise SignInError("expired", _ENDED)
        return session

    def end(self, ended: Callable[[BrowserSession], bool]) -> None:
        """End all sessions for which this holds."""
        for key in [key for key, session in self._sessions.items() if ended(session)]:
            structlog.get_logger().info("session ended", user=self._sessions.pop(key).caller.name)

    async def _renew(self, session: BrowserSession) -> None:
        """Ask the provider whether a session may go on; end it if not, and raise SignInError or ForbiddenError."""
        try:
            grant = await self._refreshed(session)
            session.refresh_token = grant.refresh_token or session.refresh_token
            session.caller = await self._renewed(session, grant.id_token)
            session.renewed = self._clock()
        except (SignInError, ForbiddenError):
            self.end(lambda other: other is session)
            raise
        except ParleyError as error:
            self._provider.log("no session can be renewed now", error)
            raise
        finally:
            session.renewal = None

    async def _refreshed(self, session: BrowserSession) -> Grant:
        if session.refresh_token is None:
            raise SignInError("expired", _ENDED)
        return await self._provider.refresh(session.refresh_token)

    async def _renewed(self, session: BrowserSession, id_token: str | None) -> SignedInCaller:
        """Return the caller of a renewed ID token; raises SignInError if it is somebody else's, or none came."""
        if id_token is None:  # nothing says that the person still has a role
            raise SignInError("expired", _ENDED)
        claims = await self._provider.claims(id_token)
        check_ours(claims, self._settings)
        caller = caller_of_claims(claims, self._settings)
        if claims["sub"] != session.subject or caller != session.caller:
            raise refused_token("is another person's")
        return caller

    def _make_room(self, caller: SignedInCaller, now: float) -> None:
        """End sessions whose time is over, and the oldest of a person who has as many as one may have."""
        self.end(lambda session: now >= session.ends)
        own = [session for session in self._sessions.values() if session.caller == caller]
        oldest = own[: max(0, len(own) + 1 - _MOST_OF_ONE)]
        self.end(lambda session: session in oldest)
