"""The party on the web: thin routes over `Party`.

Rounds are answered on the event loop's own thread. A party does one thing at a time anyhow, because its ledger does;
and handing each round to another thread and back costs as much as the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from typing import Annotated, get_args

import numpy as np
import structlog
from fastapi import BackgroundTasks, FastAPI, Header, Request
from pydantic import Field, FiniteFloat
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, Response

from common.encoding.npy import NPY, unpack_array
from common.errors import InvalidInputError, ParleyError
from common.protocol.messages import Query, Reveal
from common.secure_sum.paillier import require_gmpy2
from common.service import signed_bodies as signed
from common.service.application import caller, service
from common.service.array_bodies import documented, is_json, wants_json
from common.service.prometheus import Metrics
from common.service.strict_json import large_json, strict_json
from common.strict import Strict
from common.wire.party_api import Approval, BudgetReport, PartyFacts, RunProposal
from common.wire.roster_api import Signature
from party.answering.noise_pool import NoisePool
from party.answering.party import Party
from party.answering.release import NoiseFactory
from party.ledger.ledger import Released
from party.secure_sum.obfuscator_pool import Obfuscators
from party.secure_sum.participant import SecureSumParticipant
from party.settings import PartySettings

RECEIPT = "Parley-Receipt"
"""The header of a receipt: from the party with an answer, back to it with the next proposal."""

_DESCRIPTION = "Answers rounds of approved runs about its owner's private examples, with noise, and counts the cost."


class RoundQuestion(Strict):
    """A round's question as JSON; as ``.npy``, step and reveal go into the query string."""

    step: Annotated[str, Field(description="the party's step that answers")]
    reveal: Annotated[Reveal, Field(description="what the learner needs to see")] = "sum"
    message: Annotated[list[FiniteFloat] | list[list[FiniteFloat]], Field(description="what every party is told")]


class RoundAnswer(Strict):
    """A round's answer as JSON."""

    answer: Annotated[list[int] | list[list[int]], Field(description="integers in units of 2^-32")]


_PARAMETERS = [
    {"name": name, "in": place, "required": place == "path", "description": description, "schema": schema}
    for name, place, description, schema in (
        ("run", "path", "an approved run", {"type": "string"}),
        ("round", "path", "from 1, ascending within a run", {"type": "integer", "minimum": 1}),
        ("step", "query", "the party's step that answers; for an .npy body", {"type": "string"}),
        ("reveal", "query", "what the learner needs to see", {"enum": list(get_args(Reveal)), "default": "sum"}),
    )
]
_INVITATION = signed.body("the roster, signed by the learner; attached: the signatures of the key holders")
_QUESTION = documented("the message that every party is told", "float64", RoundQuestion.model_json_schema())
_QUESTION["content"] |= signed.body("a signed query")["content"]
_ANSWER = documented("the noisy answer, in units of 2^-32", "int64", RoundAnswer.model_json_schema())
_ANSWER["content"] |= signed.body("a signed contribution")["content"]


def create_party_app(settings: PartySettings, noise: NoiseFactory | None = None, *, apart: bool = False) -> FastAPI:
    """The application of a party; ``noise`` stands in for the system's, drawn ahead, where a test fixes it.

    The data is read ``apart``, in a child process, where this one is to live long and stay small.

    Raises what `Party` raises when study, data or ledger cannot be used, and OwnKeyError when the identity key cannot,
    or gmpy2 is missing from a party that takes part in secure sums.
    """
    if settings.secure_sum is not None:
        require_gmpy2()
    metrics, stock = Metrics(), NoisePool()
    with ExitStack() as stack:
        party = stack.enter_context(Party(settings, noise or stock, apart=apart))
        sums = SecureSumParticipant(party, stack.enter_context(closing(Obfuscators(metrics))))
        opened = stack.pop_all()

    async def ready() -> None:
        party.budget()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with opened:
            preparing = asyncio.create_task(_prepare_all(party))
            yield
            preparing.cancel()

    app = service(
        f"Parley party {settings.name}",
        _DESCRIPTION,
        tokens=settings.tokens,
        metrics=metrics,
        ready=ready,
        limits=settings.limits,
        lifespan=lifespan,
    )
    _add_facts(app, party)
    _add_runs(app, party, sums)
    _add_rounds(app, party, sums, stock)
    return app


def _add_facts(app: FastAPI, party: Party) -> None:
    """The routes that say what a learner may know."""
    facts = party.facts

    @app.get("/v1/party", summary="What a learner may know before it proposes a run", tags=["party"])
    async def show_party() -> PartyFacts:
        """The party's name, the digest of the study it agreed to, the size of its shard, and what its policy allows."""
        return facts

    @app.get("/v1/budget", summary="What may be spent, and what has been", tags=["party"])
    async def show_budget() -> BudgetReport:
        """Epsilon and delta of all runs of all learners together: allowed, spent, left."""
        return party.budget()


def _add_runs(app: FastAPI, party: Party, sums: SecureSumParticipant) -> None:
    """The routes by which a run begins and ends."""

    @app.post("/v1/runs", summary="Propose a run", tags=["runs"])
    @large_json
    async def propose(
        request: Request,
        background: BackgroundTasks,
        proposal: RunProposal,
        receipt: Annotated[
            str | None,
            Header(
                alias=RECEIPT, max_length=4096, description="the newest receipt that the learner holds of this party"
            ),
        ] = None,
    ) -> Approval:
        """Approve the run and name its price, or refuse: 403, whose ``rule`` says which of the owner's rules it breaks.

        The same proposal again gets the same approval; the same run with another specification gets 409. Approval costs
        nothing: rounds are charged one by one. What the party must work out first, it begins to after it has answered:
        ask again until it is ``prepared``.
        """
        learner = caller(request)
        if not (approval := party.known(learner, proposal, receipt)):
            approval = party.consent(learner, proposal, await asyncio.to_thread(party.review, proposal.spec))
        if not approval.prepared:
            background.add_task(party.preparation(learner, proposal.run))
        return approval

    @app.delete("/v1/runs/{run}", summary="End a run", tags=["runs"], status_code=204)
    async def end(request: Request, run: str) -> None:
        """Answer no further round of the run (409 from then on). What was answered stays answered, and charged."""
        party.end(caller(request), run)
        sums.end(caller(request), run)

    @app.put(
        "/v1/runs/{run}/roster",
        summary="Sign a secure sum's roster",
        tags=["runs"],
        openapi_extra={"requestBody": {"required": True, **_INVITATION}},
    )
    async def join(request: Request, run: str) -> Signature:
        """Join the secure sum of an approved run: once, if the roster says what the approved specification says.

        Refused otherwise, with a ``reason``: a key that is not the one pinned by the owner, other parties, another
        noise or number of contributors, keys that are too small.
        """
        invitation = await signed.read_signed(request)
        return Signature(signature=sums.join(caller(request), run, invitation).hex())


def _add_rounds(app: FastAPI, party: Party, sums: SecureSumParticipant, stock: NoisePool) -> None:
    """The route of a run's rounds, all of the traffic that there is; it parses its request itself, to cost little."""

    @app.put(
        "/v1/runs/{run}/rounds/{round}",  # noqa: FAST003 -- parsed in `_read_query`
        summary="Ask a round",
        tags=["runs"],
        response_class=Response,
        openapi_extra={"parameters": _PARAMETERS, "requestBody": {"required": True, **_QUESTION}},
        responses={200: _ANSWER},
    )
    async def ask(request: Request) -> Response:
        """Answer a round of an approved run, with noise, and charge it: in one transaction.

        The same question again gets the same bytes at no cost; another question in the same round gets 409. When the
        budget does not suffice the answer is 403 and what is left, never a noisier answer. The header Parley-Receipt
        pins the ledger. In a run with a secure sum question and answer are signed messages, Query and Contribution.
        """
        if signed.is_signed(request):
            await _prepared(party, caller(request), request.path_params["run"])
            response = await _contribute(request, sums)
        else:
            query, run = _read_query(request, await request.body()), request.path_params["run"]
            await _prepared(party, caller(request), run)
            response = _write_answer(request, party.answer(caller(request), run, query))
        response.background = BackgroundTask(_refill, stock)
        return response


async def _prepared(party: Party, learner: str, run: str) -> None:
    """Wait until a run can be answered at once; what that takes is done in a thread."""
    if not party.is_prepared(learner, run):
        await asyncio.to_thread(party.preparation(learner, run))


async def _prepare_all(party: Party) -> None:
    """Prepare again, after a restart, for the runs that have not ended."""
    for learner, run in party.unprepared():
        try:
            await asyncio.to_thread(party.preparation(learner, run))
        except ParleyError as error:
            structlog.get_logger().warning("prepare", learner=learner, run=run, refused=error.kind)


async def _refill(stock: NoisePool) -> None:
    """Draw the next round's noise once this round's answer has left; a coroutine, so that no thread is begun for it."""
    stock.refill()


async def _contribute(request: Request, sums: SecureSumParticipant) -> Response:
    """A round of a secure sum; what may take long is not done on the loop's thread."""
    learner, run = caller(request), request.path_params["run"]
    asked = sums.receive(learner, run, _round_of(request), await signed.read_signed(request))
    reserved = await asyncio.to_thread(sums.reserve, asked)
    released = sums.contribute(asked, reserved)
    return Response(released.body, media_type=signed.SIGNED_MEDIA_TYPE, headers={RECEIPT: released.receipt})


def _read_query(request: Request, body: bytes) -> Query:
    """The question of a request; raises InvalidInputError or UnsupportedMediaError."""
    if is_json(request):
        return _read_json(_round_of(request), body)
    asked = request.query_params
    reveal: Reveal = "each" if asked.get("reveal") == "each" else "sum"
    return Query(_round_of(request), asked.get("step", ""), unpack_array(body, "<f8"), reveal)


def _round_of(request: Request) -> int:
    """The round of a request's URL; raises InvalidInputError."""
    number: str = request.path_params["round"]
    if not (number.isascii() and number.isdecimal()) or len(number) > 9:  # noqa: PLR2004 -- digits; no run has more rounds
        raise InvalidInputError("round must be a positive number")
    return int(number)


def _read_json(round: int, body: bytes) -> Query:
    """The question of a JSON body."""
    try:
        asked = RoundQuestion.model_validate(strict_json(body))
        message = np.array(asked.message, dtype=np.float64)
    except ValueError:  # of JSON, of its form, or of lists of unequal length
        raise InvalidInputError("the body must be JSON with step, reveal and message, an array of numbers") from None
    return Query(round, asked.step, message, asked.reveal)


def _write_answer(request: Request, released: Released) -> Response:
    """An answer in the form that was asked for."""
    headers = {RECEIPT: released.receipt}
    if wants_json(request):
        return JSONResponse({"answer": unpack_array(released.body, "<i8").tolist()}, headers=headers)
    return Response(released.body, media_type=NPY, headers=headers)
