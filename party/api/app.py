"""The party's HTTP service: thin routes over `Party`, and its budget as gauges for Prometheus.

A party does one thing at a time, because its ledger does: in one thread of its own, so that neither a slow disk nor a
locked database keeps the service from answering. Each request shows the newest receipt that its sender holds, and each
answer carries a newer one.

The gauges show what all learners have spent, so the owner's listener of metrics alone shows them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, get_args
from urllib.parse import parse_qsl

import numpy as np
import structlog
from fastapi import BackgroundTasks, FastAPI, Path, Query, Request
from pydantic import Field, FiniteFloat, TypeAdapter
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, Response

from parley.common.data.study import ChargedRows
from parley.common.encoding.canonical_json import JSON
from parley.common.encoding.npy import NPY, unpack_array
from parley.common.errors import InvalidInputError, ParleyError, UnsupportedMediaError
from parley.common.privacy.account import Cost
from parley.common.protocol.messages import Query as Question
from parley.common.protocol.messages import Reveal
from parley.common.protocol.receipts import RECEIPT_HEADER
from parley.common.secure_sum.paillier import require_gmpy2
from parley.common.service import logs
from parley.common.service.application import Desk, add_witness, caller, service
from parley.common.service.http import bodies as signed
from parley.common.service.http.bodies import (
    WholeBody,
    documented,
    large_json,
    media_type_of,
    read_whole,
    strict_json,
)
from parley.common.service.http.representations import accepted_by
from parley.common.service.prometheus import Metrics
from parley.common.service.worker import Worker
from parley.common.strict import Digest, Identifier, Strict
from parley.common.wire.key_holder_api import Signature
from parley.common.wire.party_api import Approval, BudgetReport, PartyFacts, PinnedKeys, Room, RunOffer, WholeUnits
from parley.party.answers.noise_pool import NoisePool
from parley.party.answers.obfuscator_pool import Obfuscators
from parley.party.answers.participant import SecureSumParticipant
from parley.party.answers.party import TAKEN_UP, NoiseFactory, Party, open_witness
from parley.party.api.gauges import BudgetGauges
from parley.party.ledger.ledger import AnswerRoom
from parley.party.owner.questions import Notifier
from parley.party.policy import key_cautions, pins_of
from parley.party.settings import PartySettings

OfStudy = Annotated[Digest | None, Query(description="the study's digest; the first that the learner may ask about")]
OfRows = Annotated[ChargedRows | None, Query(description="those of the study's rows to which a run is charged")]
ApprovedRun = Annotated[Identifier, Path(description="a run that the party has approved")]
_ROUND_PATHS = re.compile(r"/v1/runs/[^/]+/rounds/[^/]+")
_DESCRIPTION = "Answers rounds of approved runs about its owner's private examples, with noise, and counts the cost."


class RoundQuestion(Strict):
    """A round's question as JSON; as ``.npy``, step and reveal go into the query string."""

    step: Annotated[str, Field(max_length=100, description="the party's step that answers")]
    reveal: Annotated[Reveal, Field(description="what the learner needs to see")] = "sum"
    message: Annotated[list[FiniteFloat] | list[list[FiniteFloat]], Field(description="what every party is told")]


class RoundAnswer(Strict):
    """A round's answer as JSON."""

    answer: Annotated[list[int] | list[list[int]], Field(description="integers in units of 2^-32")]


_MOST_ROUNDS = 10**9 - 1
_TEND_SECONDS = 5.0
_REVEALS: tuple[Reveal, ...] = get_args(Reveal)
_FORMS, _SIGNED_FORMS = (NPY, JSON), (signed.SIGNED_MEDIA_TYPE,)
"""The media types of an answer that the learner sees, the usual one first; and of a share of a secure sum."""
_PARAMETERS = [
    {"name": name, "in": place, "required": place == "path", "description": description, "schema": schema}
    for name, place, description, schema in (
        ("run", "path", "an approved run", TypeAdapter(Identifier).json_schema()),
        ("round", "path", "from 1, ascending within a run", {"type": "integer", "minimum": 1, "maximum": _MOST_ROUNDS}),
        ("step", "query", "the party's step that answers; for an .npy body", {"type": "string", "maxLength": 100}),
        ("reveal", "query", "what the learner needs to see", {"enum": list(_REVEALS), "default": "sum"}),
    )
]
_INVITATION = signed.body("the roster, signed by the learner; attached: the signatures of the key holders")
_QUESTION = documented("the message that every party is told", "float64", RoundQuestion.model_json_schema())
_QUESTION["content"] |= signed.body("a signed query")["content"]
_ANSWER = documented("the noisy answer, in units of 2^-32", "int64", RoundAnswer.model_json_schema())
_ANSWER["content"] |= signed.body("a signed contribution")["content"]


def create_party_app(settings: PartySettings, noise: NoiseFactory | None = None, *, apart: bool = False) -> FastAPI:
    """Build the application of a party; ``noise`` replaces the system's, which is drawn ahead, where a test fixes it.

    With ``apart``, a child process reads the data, so that this one stays small. The application's ``state.ledger`` is
    the ledger, which a process opens once, and ``state.settings`` returns the settings that it has taken up.

    Raises what `Party` raises when study, data or ledger cannot be used, and OwnKeyError when the identity key cannot,
    or gmpy2 is missing from a party that takes part in secure sums.
    """
    if settings.secure_sum is not None:
        require_gmpy2()
    metrics, stock = Metrics(), NoisePool()
    with ExitStack() as stack:
        party = stack.enter_context(Party(settings, noise or stock, Notifier(lambda: party.settings), apart=apart))
        sums = SecureSumParticipant(party, stack.enter_context(closing(Obfuscators(metrics))))
        worker = stack.enter_context(closing(Worker("party")))
        witness = stack.enter_context(closing(open_witness(lambda: party.settings)))
        opened = stack.pop_all()

    _warn(settings)
    metrics.registry.register(BudgetGauges(party.store.accounts.statements))

    room = AnswerRoom(party.store)

    async def ready() -> None:
        await worker.do(lambda: party.store.probe(room.needed()))
        await asyncio.to_thread(witness.probe)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with opened:
            tasks = asyncio.create_task(asyncio.to_thread(party.make_all_ready)), asyncio.create_task(_tend(party))
            yield
            for task in tasks:
                task.cancel()

    app = service(
        f"Parley party {settings.name}",
        _DESCRIPTION,
        tokens=settings.tokens,
        metrics=metrics,
        ready=ready,
        limits=settings.limits,
        lifespan=lifespan,
        round_paths=_ROUND_PATHS,
        shares=settings.shares,
    )
    desk = PartyDesk(party.store.chain, worker, party, sums)
    app.state.ledger, app.state.settings, app.state.take_up = party.store, lambda: party.settings, desk.take_up
    _add_facts(app, desk)
    _add_runs(app, desk)
    add_witness(app, desk, witness)
    _add_rounds(app, desk, stock)
    routes = app.router.routes
    routes.insert(0, routes.pop())  # the route of rounds first: nearly all requests match it
    return app


def _warn(settings: PartySettings) -> None:
    """Log which keys the owner has not compared."""
    for caution in key_cautions(settings):
        structlog.get_logger().warning("not compared", caution=caution)


@dataclass(frozen=True, slots=True)
class PartyDesk(Desk):
    """Passes requests to the party, in the party's own thread."""

    party: Party
    sums: SecureSumParticipant

    def take_up(self, settings: PartySettings) -> Collection[str]:
        """Take up changed settings while the service runs; return their keys. Raises what `Party.take_up` raises."""
        if settings.secure_sum is not None:
            require_gmpy2()
        self.party.take_up(settings)
        self.sums.take_up()
        return TAKEN_UP


def _add_facts(app: FastAPI, desk: PartyDesk) -> None:
    """Add the routes that say what a learner may know."""
    party = desk.party

    @app.get("/v1/party", summary="What a learner may know before it proposes a run", tags=["party"])
    async def show_party(request: Request, response: Response) -> PartyFacts:
        """Show the party's name, and of each study that this learner may ask about its digest, size and the rules."""
        learner = caller(request)
        return await desk.do(request, response, lambda: party.facts(learner))

    @app.get("/v1/party/pins", summary="Whom the owner trusts in secure sums with this learner", tags=["party"])
    async def show_pins(request: Request, response: Response) -> PinnedKeys:
        """Show the public keys that the owner pins: the learner's, key holders' and other parties'; none: no sums."""
        learner = caller(request)
        return await desk.do(request, response, lambda: pins_of(party.settings, learner))

    @app.get("/v1/budget", summary="What may be spent, and what this learner has spent", tags=["party"])
    async def show_budget(
        request: Request, response: Response, study: OfStudy = None, rows: OfRows = None
    ) -> BudgetReport:
        """Epsilon and delta of the account that pays for a study: allowed, and as this learner's own runs have left it.

        It is what is left for a run about these rows, all that the study has now if none are named: what others have
        lost does not count. What other learners have spent is not shown, so less may be left: `/v1/budget/room` says
        whether a run fits. Spent holds, with the budget's delta, whenever it is read and however questions depended on
        answers; it may pass the limit, which holds too. Nonadaptive is what the same answers cost if no question had
        depended on one.
        """
        learner = caller(request)
        return await desk.do(request, response, lambda: party.budget(learner, study, rows))

    @app.get("/v1/budget/room", summary="Whether a run of a price fits", tags=["party"])
    async def show_room(  # noqa: PLR0913, PLR0917 -- the parts of a price
        request: Request,
        response: Response,
        study: Annotated[Digest, Query(description="the study's digest")],
        epsilon: Annotated[WholeUnits, Query(description="in millionths")] = 0,
        delta: Annotated[WholeUnits, Query(description="in units of 1e-18")] = 0,
        gdp: Annotated[WholeUnits, Query(description="mu^2 that covers the run alone, in units of 1e-12")] = 0,
        slack: Annotated[WholeUnits, Query(description="delta that no mu^2 covers, in units of 1e-18")] = 0,
        variance: Annotated[
            WholeUnits | None, Query(description="in company, in units of 1e-12; gdp if absent")
        ] = None,
        excess: Annotated[WholeUnits, Query(description="in company, in units of 1e-24")] = 0,
        rows: OfRows = None,
    ) -> Room:
        """Say whether a run that costs so much fits into what all runs have left for it; costs nothing.

        It is charged to these rows, to any that the party has if none are named.
        """
        learner, cost = caller(request), Cost(epsilon, delta, gdp, slack, gdp if variance is None else variance, excess)
        return await desk.do(request, response, lambda: party.room(learner, study, cost, rows))


def _add_runs(app: FastAPI, desk: PartyDesk) -> None:
    """Add the routes by which a run begins and ends."""
    party, sums = desk.party, desk.sums

    @app.post("/v1/runs", summary="Propose a run", tags=["runs"], response_model=Approval)
    @large_json
    async def propose_run(request: Request, background: BackgroundTasks, offer: RunOffer) -> Response:
        """Approve the run and name its price, or refuse: 403, whose ``rule`` says which of the owner's rules it breaks.

        The same proposal again gets the same approval; the same run with another specification gets 409, and so does
        one whose parties stand as a digest that no run of this learner in memory has: list them. The price is
        reserved until the run ends, and charged round by round. What the party must work out first, it begins to after
        it has answered: ask again until it is ``prepared``. The receipt binds the approval to the specification.
        """
        learner = caller(request)
        logs.note(run=offer.run)
        approval_before, receipt = await desk.answer(request, lambda: party.find_approval(learner, offer))
        if approval_before is None:
            proposal, price = await asyncio.to_thread(party.review, learner, offer)
            approval, receipt = await desk.answer(request, lambda: party.consent(learner, proposal, price))
        else:
            approval = approval_before
        if not approval.prepared:
            background.add_task(_prepare, party, learner, offer.run)
        return WholeBody(approval.body, media_type=JSON, headers={RECEIPT_HEADER: receipt})

    @app.delete("/v1/runs/{run}", summary="End a run", tags=["runs"], status_code=204)
    async def end_run(request: Request, response: Response, run: ApprovedRun) -> None:
        """Answer no further round of the run (409 from then on), and free what is still reserved for it.

        What was answered stays answered, and charged.
        """
        learner = caller(request)
        await desk.do(request, response, lambda: party.end(learner, run))
        await desk.worker.do(lambda: sums.end(learner, run))

    @app.put(
        "/v1/runs/{run}/roster",
        summary="Sign a secure sum's roster",
        tags=["runs"],
        openapi_extra={"requestBody": {"required": True, **_INVITATION}},
    )
    async def join_sum(request: Request, response: Response, run: ApprovedRun) -> Signature:
        """Join the secure sum of an approved run: once, if the roster says what the approved specification says.

        Refused otherwise, with a ``reason``: a key that is not the one pinned by the owner, other parties, another
        noise or number of contributors, keys that are too small.
        """
        learner, invitation = caller(request), await signed.read_signed(request)
        signature = await desk.do(request, response, lambda: sums.join(learner, run, invitation))
        return Signature(signature=signature.hex())


def _add_rounds(app: FastAPI, desk: PartyDesk, stock: NoisePool) -> None:
    """Add the route of a run's rounds, which is nearly all traffic; it parses requests itself, to cost little."""

    @app.put(
        "/v1/runs/{run}/rounds/{round}",  # noqa: FAST003 -- parsed in `_read_query`
        summary="Ask a round",
        tags=["runs"],
        response_class=Response,
        openapi_extra={"parameters": _PARAMETERS, "requestBody": {"required": True, **_QUESTION}},
        responses={200: _ANSWER},
    )
    async def ask_round(request: Request) -> Response:
        """Answer a round of an approved run, with noise, and charge it: in one transaction.

        The same question again gets the same bytes at no cost; another question in the same round gets 409. When the
        budget does not suffice the answer is 403 and what is left, never a noisier answer. The header Parley-Receipt
        pins the ledger, and binds the answer to its question. In a run with a secure sum question and answer are signed
        messages, Query and Contribution.
        """
        media_type = media_type_of(request)
        is_signed = media_type == signed.SIGNED_MEDIA_TYPE
        form = accepted_by(request, _SIGNED_FORMS if is_signed else _FORMS)  # before anything is charged
        response = await (_contribute(request, desk) if is_signed else _answer(request, desk, media_type, form))
        if stock.is_low:  # and drawn again once the answer has left
            response.background = BackgroundTask(desk.worker.do, stock.refill)
        return response


async def _tend(party: Party) -> None:
    """Have the party take care of its examples every few seconds, until the task is cancelled."""
    while True:
        await asyncio.sleep(_TEND_SECONDS)
        with suppress(ParleyError):  # of a disk that cannot be read, as the next request reports
            await asyncio.to_thread(party.tend)


def _prepare(party: Party, learner: str, run: str) -> None:
    """Prepare what a run is answered from, in a thread of Starlette's; a later request reports if it failed."""
    with suppress(ParleyError):
        party.make_ready(learner, run)


async def _answer(request: Request, desk: PartyDesk, media_type: str, form: str) -> Response:
    """Answer a round whose answer the learner sees; ``media_type`` is the question's, ``form`` the answer's."""
    learner, run, party = caller(request), request.path_params["run"], desk.party
    query = _read_query(request, media_type, await _read_body(request, party))
    if not party.is_ready(learner, run):  # the receipt comes first: an old copy does not know later runs
        stored, _ = await desk.answer(request, lambda: party.recall(learner, run, query))
        if stored is None:
            await asyncio.to_thread(party.make_ready, learner, run)
    answer, receipt = await desk.answer(request, partial(party.answer, learner, run, query))
    headers = {RECEIPT_HEADER: receipt}
    if form == JSON:
        return JSONResponse({"answer": unpack_array(answer.body, "<i8").tolist()}, headers=headers)
    return WholeBody(answer.body, media_type=NPY, headers=headers)


async def _contribute(request: Request, desk: PartyDesk) -> Response:
    """Answer a round of a secure sum; obfuscators, which may take long, are not drawn in the party's thread."""
    learner, run, sums = caller(request), request.path_params["run"], desk.sums
    round = _round_of(request)
    message = signed.signed_of(request, await _read_body(request, desk.party))
    if not desk.party.is_ready(learner, run):
        await desk.answer(request, lambda: None)  # the receipt comes first, as in `_answer`
        await asyncio.to_thread(desk.party.make_ready, learner, run)
    checked = await desk.worker.do(lambda: sums.receive(learner, run, round, message))
    reserved = await asyncio.to_thread(sums.reserve, checked)
    answer, receipt = await desk.answer(request, lambda: sums.contribute(checked, reserved))
    return Response(answer.body, media_type=signed.SIGNED_MEDIA_TYPE, headers={RECEIPT_HEADER: receipt})


async def _read_body(request: Request, party: Party) -> bytearray:
    """Read a question's body, of ``limits.body_bytes`` at most, or of what the approved run's questions need."""
    limit, length = request.app.state.limits.body_bytes, request.headers.get("content-length")
    if length is not None and int(length) <= limit:  # digits, as the boundary has checked
        return await read_whole(request, limit, "limits.body_bytes")
    run_limit = await asyncio.to_thread(party.question_bytes, caller(request), request.path_params["run"])
    if run_limit <= limit:
        return await read_whole(request, limit, "limits.body_bytes")
    return await read_whole(request, run_limit, "what the run asks, beyond limits.body_bytes")


def _read_query(request: Request, media_type: str, body: bytes | bytearray) -> Question:
    """Parse the question of a request. Raises InvalidInputError or UnsupportedMediaError."""
    if media_type not in {NPY, JSON}:
        raise UnsupportedMediaError(f"the body must be {NPY} or {JSON}")
    if media_type == JSON:
        return _read_json(_round_of(request), body)
    parameters = dict(parse_qsl(request.scope["query_string"].decode("latin-1")))
    reveal = next((reveal for reveal in _REVEALS if reveal == parameters.get("reveal", "sum")), None)
    if reveal is None:
        raise InvalidInputError(f"reveal must be {' or '.join(_REVEALS)}")
    return Question(_round_of(request), parameters.get("step", ""), unpack_array(body, "<f8"), reveal)


def _round_of(request: Request) -> int:
    """Parse the round in a request's URL. Raises InvalidInputError."""
    number: str = request.path_params["round"]
    if not (number.isascii() and number.isdecimal()) or len(number) > len(str(_MOST_ROUNDS)):
        raise InvalidInputError("round must be a positive number")
    return int(number)


def _read_json(round: int, body: bytes | bytearray) -> Question:
    """Parse the question of a JSON body. Raises InvalidInputError."""
    try:
        question = RoundQuestion.model_validate(strict_json(bytes(body)))
        message = np.array(question.message, dtype=np.float64)
    except ValueError:  # of JSON, of its form, or of lists of unequal length
        raise InvalidInputError("the body must be JSON with step, reveal and message, an array of numbers") from None
    return Question(round, question.step, message, question.reveal)
