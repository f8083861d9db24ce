"""The owner's page: a separate application on 127.0.0.1 alone, never a part of the service that learners reach.

Every user of this machine can open the port, and so can a web page in the owner's browser. So every request must name
this machine as its host (another name that was bound to 127.0.0.1 is refused), and every request except that for the
page itself, which holds no data, must carry the owner's token in a header, which no other page can send. In a container
the page listens beyond the container's loopback, because Compose publishes its port on the machine's from there; its
name and its token stay the same.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import structlog
from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.templating import Jinja2Templates
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.common.errors import ForbiddenError, InvalidInputError, ParleyError, UnauthorizedError
from parley.common.privacy.account import DELTA_UNITS, MICRO
from parley.common.service.http.bodies import read_whole, strict_json
from parley.common.service.http.connections import Beside
from parley.common.service.http.pages import page_headers
from parley.common.service.problems import of_error
from parley.common.service.side_listeners import listener
from parley.common.service.tokens import new_token
from parley.common.storage.keys import read_private, write_private
from parley.common.strict import Strict
from parley.party.ledger.ledger import Ledger
from parley.party.ledger.records import Approved
from parley.party.owner.questions import WaitingRuns
from parley.party.settings import PartySettings

HOST = "127.0.0.1"


def owner_token(settings: PartySettings) -> str:
    """Read the token that the page requires, from a file of mode 0600; the first call makes it.

    Raises OwnKeyError where the file cannot be read or others may read it.
    """
    path = settings.state / "owner.token"
    if not path.exists():
        write_private(path, new_token().encode())
    return read_private(path).decode().strip()


def owner_address(settings: PartySettings) -> str:
    """Return the page's URL; the token is in the fragment, which browsers do not send. Raises InvalidInputError."""
    if not settings.owner.port:
        raise InvalidInputError("there is no owner's page: set port in [owner], and start the party again")
    return f"http://{HOST}:{settings.owner.port}/#{owner_token(settings)}"


def approved(store: Ledger) -> list[dict[str, Any]]:
    """Return the learners' runs that were approved and have not ended, the newest first, as the page shows them."""
    store.account()  # looks at what others have written
    books = [book for _, book in store.books.open_runs()]
    return [_shown(store.consents.record(book), book.last) for book in reversed(books)]


def _shown(run: Approved, answered: int) -> dict[str, Any]:
    """Return an approved run as the page shows it; ``answered`` is its last answered round."""
    return {
        "learner": run.learner,
        "run": run.run,
        "user": run.user,
        "purpose": run.purpose,
        "study": run.study,
        "algorithm": run.algorithm,
        "answered": answered,
        "rounds": run.rounds,
        "epsilon": run.reserved.epsilon / MICRO,
        "delta": run.reserved.delta / DELTA_UNITS,
    }


_TEMPLATES = Jinja2Templates(Path(__file__).parent / "web")
_MOST_BYTES = 4096
_PATIENCE = 0.4  # seconds that one request may spend on the terms of waiting runs; the page asks again for others
_UNSTORED = {"Cache-Control": "no-store"}


class OwnersWord(Strict):
    """The owner's decision about a run."""

    learner: Annotated[str, Field(max_length=200, description="whose run it is")]
    run: Annotated[str, Field(max_length=200, description="the run")]
    word: Annotated[Literal["approve", "deny"], Field(description="yes, or no, which ends a run that was approved")]
    reason: Annotated[str, Field(max_length=200, description="the reason of a no, which the learner reads")] = ""


def create_owner_app(present: Callable[[], PartySettings], store: Ledger) -> Starlette:
    """Build the page's application for a party of these ``present`` settings and this ledger. Raises OwnKeyError."""
    settings, runs = present(), WaitingRuns(store, lambda learner: present().known_parties_for(learner))

    async def show_pending(_: Request) -> Response:
        return JSONResponse(
            await asyncio.to_thread(_state, settings.name, store, runs),
            headers=_UNSTORED | {"X-Content-Type-Options": "nosniff"},
        )

    async def decide(request: Request) -> Response:
        try:
            word = OwnersWord.model_validate(strict_json(bytes(await read_whole(request, _MOST_BYTES, "a word"))))
        except (ValidationError, ValueError):
            raise InvalidInputError("the body must be JSON with learner, run, word and reason") from None
        await asyncio.to_thread(_say, store, word)
        structlog.get_logger().info("owner", said=word.word, learner=word.learner, run=word.run)
        return await show_pending(request)

    return Starlette(
        routes=[Route("/", _show_page), Route("/pending", show_pending), Route("/word", decide, methods=["POST"])],
        middleware=[Middleware(Gate, port=settings.owner.port, token=owner_token(settings))],
        exception_handlers={ParleyError: _on_error},
    )


def owner_page(present: Callable[[], PartySettings], store: Ledger) -> list[Beside]:
    """Return what serves the page beside a party's service, nothing if it has no port; ``store`` is the ledger."""
    page = present().owner
    return [listener("owner", page.host, page.port, lambda: create_owner_app(present, store))] if page.port else []


class Gate:
    """Passes on only requests that name this machine as their host and, except for the page itself, have the token."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self._app = app
        self._hosts = {f"{HOST}:{port}", f"localhost:{port}"}
        self._token = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            await of_error(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> ParleyError | None:
        """Return the error that refuses a request, or None."""
        headers = dict(scope["headers"])
        if headers.get(b"host", b"").decode("latin-1").lower() not in self._hosts:
            return ForbiddenError("the owner's page answers to its own address alone", rule="host")
        if scope["path"] == "/" or hmac.compare_digest(headers.get(b"authorization", b""), self._token):
            return None
        return UnauthorizedError("the owner's token is needed: parley-party owner prints it")


async def _show_page(request: Request) -> Response:
    """Return the page; it loads nothing from other sites, and runs no script but its own."""
    nonce = secrets.token_urlsafe(16)
    headers = _UNSTORED | page_headers(
        f"style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:"
    )
    return _TEMPLATES.TemplateResponse(request, "owner.html", {"nonce": nonce}, headers=headers)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ParleyError)  # noqa: S101 -- registered for it alone
    return of_error(error)


def _state(party: str, store: Ledger, runs: WaitingRuns) -> dict[str, object]:
    """Return all that the page shows."""
    accounts = [statement.to_json() for statement in store.statements()]
    return {"party": party, "accounts": accounts, "waiting": runs.questions(_PATIENCE), "approved": approved(store)}


def _say(store: Ledger, word: OwnersWord) -> None:
    """Store the owner's decision. Raises what `OwnerQuestions.allow` and `OwnerQuestions.deny` raise."""
    if word.word == "approve":
        store.questions.allow(word.learner, word.run)
    else:
        store.questions.deny(word.learner, word.run, word.reason)
