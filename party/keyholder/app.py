"""The key holder's HTTP service: thin routes over `Sessions`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Literal

from fastapi import FastAPI, Path, Request
from pydantic import Field
from starlette.responses import Response

from parley.common import parley_version
from parley.common.errors import LedgerError, UnavailableError
from parley.common.protocol.receipts import RECEIPT_HEADER
from parley.common.secure_sum.messages import MAX_ROUND
from parley.common.secure_sum.paillier import require_gmpy2
from parley.common.service.application import Desk, add_witness, caller, service
from parley.common.service.http import bodies as signed
from parley.common.service.prometheus import Metrics
from parley.common.service.worker import Worker
from parley.common.storage.witness import Witness
from parley.common.strict import Strict
from parley.common.wire.key_holder_api import KeyHolderFacts, NewSession, SessionId, SessionKey, Signature
from parley.party.keyholder.journal import Journal, check_journal
from parley.party.keyholder.key_pool import KeyPool, KeySource
from parley.party.keyholder.sessions import Sessions, roster_digest
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.keyholder.vault import Vault

_THREADS = 32  # a session that begins may wait for its key, and others must not wait for it
_DESCRIPTION = "Decrypts the sum of one set of contributions a round, and no other."


class SessionStatus(Strict):
    """Where a session stands."""

    session: str
    state: Literal["new", "serving", "ended"]
    modulus: Annotated[str, Field(description="n, hexadecimal")]
    roster: Annotated[str | None, Field(description="hash of the roster that was signed")]
    opened: Annotated[int, Field(description="how many rounds were opened")]


def create_key_holder_app(settings: KeyHolderSettings, keys: KeySource | None = None) -> FastAPI:
    """Build the application of a key holder; by default ``keys`` are made in a separate process.

    Raises OwnKeyError when gmpy2 is missing or the identity key's file cannot be used.
    """
    require_gmpy2()
    check_journal(settings.state)  # first, so that no identity is made where there is no journal
    identity = settings.identity
    journal = Journal(settings.state, identity)
    journal.chain.hear = journal.log_records
    sessions = Sessions(
        identity,
        pins=settings.pins,
        key_bits=settings.key_bits,
        idle_seconds=settings.idle_days * 86_400,
        most_a_day=settings.max_sessions_per_day,
        most_bytes=settings.limits.body_bytes,
        journal=journal,
        vault=Vault(settings.state / "keys", settings.secret.get_secret_value().encode()),
        keys=keys or KeyPool(settings.key_bits),
    )
    witness = Witness(settings.state, lambda: journal.party_keys, settings.pins)
    desk = Desk(journal.chain, Worker("sessions", threads=_THREADS))
    # One sum is opened after the other, each on all cores; a request that is sent twice waits.
    opener = Desk(journal.chain, Worker("open"))

    async def ready() -> None:
        await asyncio.to_thread(journal.probe)
        await asyncio.to_thread(witness.probe)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(sessions))
        yield
        sweeping.cancel()
        opener.worker.close()
        desk.worker.close()
        sessions.close()
        witness.close()

    app = service(
        f"Parley key holder {settings.name}",
        _DESCRIPTION,
        tokens=settings.tokens,
        metrics=Metrics(),
        ready=ready,
        limits=settings.limits,
        lifespan=lifespan,
        shares=settings.shares,
    )

    def take_up(changed: KeyHolderSettings) -> Collection[str]:
        sessions.pins = changed.pins
        return ("learners",)

    app.state.take_up = take_up
    facts = KeyHolderFacts(
        name=identity.name,
        public_key=identity.key,
        key_bits=settings.key_bits,
        body_bytes=settings.limits.body_bytes,
        version=parley_version(),
    )
    _add_facts(app, desk, facts)
    _add_sessions(app, desk, sessions)
    _add_rounds(app, opener, sessions)
    add_witness(app, desk, witness)
    return app


async def _sweep(sessions: Sessions) -> None:
    """End idle sessions once an hour; if the journal cannot be written, try again an hour later."""
    while True:
        await asyncio.sleep(3600)
        with suppress(UnavailableError, LedgerError):
            await asyncio.to_thread(sessions.expire)


def _add_facts(app: FastAPI, desk: Desk, facts: KeyHolderFacts) -> None:
    @app.get("/v1/keyholder", summary="Who this key holder is", tags=["key holder"])
    async def show_key_holder(request: Request, response: Response) -> KeyHolderFacts:
        """Its name, its public key, the size of its Paillier keys."""
        return await desk.do(request, response, lambda: facts)


def _add_sessions(app: FastAPI, desk: Desk, sessions: Sessions) -> None:
    """Add the routes by which a session begins and ends."""

    @app.post("/v1/sessions", summary="Begin a session", tags=["sessions"], status_code=201)
    async def begin_session(request: Request, response: Response, new_session: NewSession) -> SessionKey:
        """Make a Paillier key for this session alone. Asked again, the answer is the same."""
        learner = caller(request)
        begun = await desk.do(
            request, response, lambda: sessions.begin(learner, new_session.session, new_session.key_bits)
        )
        return SessionKey(session=begun.id, modulus=f"{begun.n:x}")

    @app.get("/v1/sessions/{session}", summary="Where a session stands", tags=["sessions"])
    async def show_session(request: Request, response: Response, session: SessionId) -> SessionStatus:
        """Its state, its roster, and how many rounds were opened."""
        learner = caller(request)
        book = await desk.do(request, response, lambda: sessions.journal.get(learner, session))
        return SessionStatus(
            session=session,
            state=book.state,
            modulus=f"{book.n:x}",
            roster=roster_digest(book),
            opened=book.opened,
        )

    @app.put(
        "/v1/sessions/{session}/roster",
        summary="Sign the roster",
        tags=["sessions"],
        openapi_extra={"requestBody": {"required": True, **signed.body("the roster, signed by the learner")}},
    )
    async def sign_roster(request: Request, response: Response, session: SessionId) -> Signature:
        """Sign who takes part and under what terms: once, for one roster. Parties join only what this has signed."""
        learner, proposal = caller(request), await signed.read_signed(request)
        signature = await desk.do(request, response, lambda: sessions.sign(learner, session, proposal))
        return Signature(signature=signature.hex())

    @app.delete("/v1/sessions/{session}", summary="End a session", tags=["sessions"], status_code=204)
    async def end_session(request: Request, response: Response, session: SessionId) -> None:
        """Destroy the session's Paillier key: nothing can be opened any more. What was opened stays noted."""
        learner = caller(request)
        await desk.do(request, response, lambda: sessions.end(learner, session))


def _add_rounds(app: FastAPI, opener: Desk, sessions: Sessions) -> None:
    """Add the route of a session's rounds."""

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
    async def open_sum(
        request: Request, session: SessionId, round: Annotated[int, Path(ge=0, le=MAX_ROUND)]
    ) -> Response:
        """Decrypt the sum of these contributions, if they are a set that may be opened: 409 or 403 and a ``reason``.

        A round is opened for one set. The same set again gets the same bytes.
        """
        learner, opening = caller(request), await signed.read_signed(request)
        opened, receipt = await opener.answer(request, lambda: sessions.open(learner, session, round, opening))
        response = signed.signed_response(opened)
        response.headers[RECEIPT_HEADER] = receipt
        return response
