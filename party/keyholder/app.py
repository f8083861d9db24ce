"""The key holder on the web: thin routes over `Sessions`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Annotated, Literal

from fastapi import FastAPI, Path, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from common.errors import UnavailableError
from common.secure_sum.paillier import require_gmpy2
from common.secure_sum.session import Identity
from common.service import signed_bodies as signed
from common.service.application import caller, service
from common.service.prometheus import Metrics
from common.service.worker import Worker
from common.strict import Strict
from common.wire.key_holder_api import KeyHolderFacts, NewSession, SessionId, SessionKey
from common.wire.roster_api import Signature
from party.keyholder.journal import Journal, Session
from party.keyholder.key_pool import KeyPool, KeySource
from party.keyholder.sessions import Sessions, roster_digest
from party.keyholder.settings import KeyHolderSettings
from party.keyholder.vault import Vault

_DESCRIPTION = "Decrypts the sum of one set of contributions a round, and no other."


class SessionStatus(Strict):
    """Where a session stands."""

    session: str
    state: Literal["new", "serving", "ended"]
    modulus: Annotated[str, Field(description="n, hexadecimal")]
    roster: Annotated[str | None, Field(description="hash of the roster that was signed")]
    opened: Annotated[int, Field(description="how many rounds were opened")]


def create_key_holder_app(settings: KeyHolderSettings, keys: KeySource | None = None) -> FastAPI:
    """The application of a key holder; ``keys`` are made in a process of their own by default.

    Raises OwnKeyError when gmpy2 is missing or the identity key's file cannot be used.
    """
    require_gmpy2()
    identity = Identity(settings.name, settings.signing_key())
    sessions = Sessions(
        identity,
        pins=settings.pins,
        key_bits=settings.key_bits,
        idle_seconds=settings.idle_days * 86_400,
        journal=Journal(settings.state),
        vault=Vault(settings.state / "keys", settings.secret.get_secret_value().encode()),
        keys=keys or KeyPool(settings.key_bits),
    )
    opener = Worker("open")  # sums are opened one after the other, each on all cores; a request sent twice waits

    async def ready() -> None:
        await run_in_threadpool(sessions.journal.probe)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(sessions))
        yield
        sweeping.cancel()
        opener.close()
        sessions.close()

    app = service(
        f"Parley key holder {settings.name}",
        _DESCRIPTION,
        tokens=settings.tokens,
        metrics=Metrics(),
        ready=ready,
        limits=settings.limits,
        lifespan=lifespan,
    )
    _add_facts(
        app,
        KeyHolderFacts(
            name=identity.name, public_key=identity.key, key_bits=settings.key_bits, version=version("parley")
        ),
    )
    _add_sessions(app, sessions)
    _add_rounds(app, sessions, opener)
    return app


async def _sweep(sessions: Sessions) -> None:
    """End idle sessions, once an hour; while the journal cannot be written, the next time."""
    while True:
        await asyncio.sleep(3600)
        with suppress(UnavailableError):
            await run_in_threadpool(sessions.expire)


def _add_facts(app: FastAPI, facts: KeyHolderFacts) -> None:
    @app.get("/v1/keyholder", summary="Who this key holder is", tags=["key holder"])
    async def show_key_holder() -> KeyHolderFacts:
        """Its name, its public key, the size of its Paillier keys."""
        return facts


def _add_sessions(app: FastAPI, sessions: Sessions) -> None:
    """The routes by which a session begins and ends."""

    @app.post("/v1/sessions", summary="Begin a session", tags=["sessions"], status_code=201)
    async def begin_session(request: Request, asked: NewSession) -> SessionKey:
        """Make a Paillier key for this session alone. Asked again, the answer is the same."""
        found = await run_in_threadpool(sessions.begin, caller(request), asked.session, asked.key_bits)
        return SessionKey(session=found.id, modulus=f"{found.n:x}")

    @app.get("/v1/sessions/{session}", summary="Where a session stands", tags=["sessions"])
    async def show_session(request: Request, session: SessionId) -> SessionStatus:
        """Its state, its roster, and how many rounds were opened."""

        def find() -> tuple[Session, int]:
            found = sessions.journal.get(caller(request), session)
            return found, sessions.journal.count(found)

        found, opened = await run_in_threadpool(find)
        return SessionStatus(
            session=session, state=found.state, modulus=f"{found.n:x}", roster=roster_digest(found), opened=opened
        )

    @app.put(
        "/v1/sessions/{session}/roster",
        summary="Sign the roster",
        tags=["sessions"],
        openapi_extra={"requestBody": {"required": True, **signed.body("the roster, signed by the learner")}},
    )
    async def sign_roster(request: Request, session: SessionId) -> Signature:
        """Sign who takes part and under what terms: once, for one roster. Parties join only what this has signed."""
        proposal = await signed.read_signed(request)
        signature = await run_in_threadpool(sessions.sign, caller(request), session, proposal)
        return Signature(signature=signature.hex())

    @app.delete("/v1/sessions/{session}", summary="End a session", tags=["sessions"], status_code=204)
    async def end_session(request: Request, session: SessionId) -> None:
        """Destroy the session's Paillier key: nothing can be opened any more. What was opened stays noted."""
        await run_in_threadpool(sessions.end, caller(request), session)


def _add_rounds(app: FastAPI, sessions: Sessions, opener: Worker) -> None:
    """The route of a session's rounds."""

    @app.put(
        "/v1/sessions/{session}/rounds/{round}",
        summary="Open a round's sum",
        tags=["sessions"],
        response_class=Response,
        openapi_extra={
            "requestBody": {"required": True, **signed.body("Open: the contributions' signed heads, and their blobs")}
        },
        responses={200: signed.body("Opened: the sums modulo 2^L, signed")},
    )
    async def open_sum(request: Request, session: SessionId, round: Annotated[int, Path(ge=0)]) -> Response:
        """Decrypt the sum of these contributions, if they are a set that may be opened: 409 or 403 and a ``reason``.

        A round is opened for one set. The same set again gets the same bytes.
        """
        asked = await signed.read_signed(request)
        learner = caller(request)
        return signed.signed_response(await opener.do(lambda: sessions.open(learner, session, round, asked)))
