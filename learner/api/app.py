"""Builds the learner's HTTP service: its routes translate users' requests for the engine and the store, no more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse

from parley.common import parley_version
from parley.common.client.peer import Line
from parley.common.encoding.canonical_json import canonical
from parley.common.encoding.number_lines import document_lines
from parley.common.errors import ConflictError, DamagedError, InvalidInputError, NotFoundError, ParleyError
from parley.common.extras import MissingExtraError
from parley.common.learning.description import Description
from parley.common.learning.threshold import Threshold, ThresholdRule, chosen_threshold
from parley.common.privacy.calibration import LEAST_EPSILON, MOST_EPSILON
from parley.common.runs.description import description_of
from parley.common.runs.evaluation import RunEvaluation, flawless_evaluation, weights_of
from parley.common.runs.model_document import ModelDocument, check_format
from parley.common.runs.predictions import Predictor, predict
from parley.common.runs.self_evaluation import MOST_USUAL_EPSILON, evaluate_command_line, useful_epsilon
from parley.common.runs.specification import Cohort, RunSpec
from parley.common.service.application import PUBLIC_PATHS, answers, caller_of, event_stream, service
from parley.common.service.http.bodies import WholeBody, large_json
from parley.common.service.http.pages import page_headers
from parley.common.service.http.representations import accepted_by, compressible, revalidated, tag_of
from parley.common.service.prometheus import Metrics
from parley.common.service.tokens import InvitedCaller, PeerCaller, Tokens
from parley.learner.api import routes
from parley.learner.api.catalogue import add_catalogue, add_public, add_user
from parley.learner.api.membership import add_connections, add_membership
from parley.learner.api.page import PAGE_PATHS, add_page
from parley.learner.api.requests import (
    EvaluationRequest,
    ForecastRequest,
    PredictionRequest,
    RunRequest,
    ThresholdRequest,
    read_rule,
)
from parley.learner.api.roles import Roles, check_every_route, user_name
from parley.learner.api.run_metrics import RunGauge
from parley.learner.api.schemas import ListedRun, OpenedRound, PageLimit, PageStart, Prediction, RunId, RunPage, RunView
from parley.learner.api.service import Connect, LearnerService
from parley.learner.execution.event_stream import EventStream, watch, watch_all
from parley.learner.forecasting.report import Keeping, foresee_owners
from parley.learner.forecasting.selection import candidates
from parley.learner.forecasting.views import ForecastView
from parley.learner.models.card import CARD_SOURCES, card_page, model_card
from parley.learner.models.exported import check_portable, onnx_bytes, skops_bytes
from parley.learner.models.verification import verification_of
from parley.learner.runs.news import NEWS
from parley.learner.runs.run import DEFAULT_SECONDS, Run, decoding_row
from parley.learner.runs.states import RunState
from parley.learner.settings import LearnerSettings

if TYPE_CHECKING:
    from parley.learner.api.sign_in.routes import SignInDesk

_DESCRIPTION = "Trains models on data that stays with its owners, by asking the parties of its roster."

IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=200)]
LastEventId = Annotated[int, Header(ge=0, lt=2**63)]  # what the store can compare
_News = TypeVar("_News")
_COST = "what it would cost each party"
_BYTES = "application/octet-stream"
_HTML, _MARKDOWN = "text/html", "text/markdown"
_CARDS = {_HTML: "html", _MARKDOWN: "markdown"}
_EVERY = 5.0  # seconds between two checks that a watcher's token still counts


def create_learner_app(settings: LearnerSettings, connect: Connect = Line) -> FastAPI:
    """Build the learner's application; ``connect`` makes the line to each party and key holder."""
    metrics = Metrics(all_public=True)  # a learner keeps no secret, neither of rows nor of one party from another
    learner = LearnerService.build(settings, connect, metrics)
    metrics.registry.register(RunGauge(learner.store))
    desk = _sign_in_desk(settings)
    app = service(
        "Parley learner",
        _DESCRIPTION,
        tokens=settings.tokens,
        metrics=metrics,
        ready=learner.ready,
        limits=settings.limits,
        lifespan=partial(_lifespan, learner, desk),
        public_paths=PUBLIC_PATHS | PAGE_PATHS | (desk.paths if desk else frozenset()),
        shares=settings.shares,
        keeps_room_for=lambda caller: isinstance(caller, PeerCaller | InvitedCaller),
    )
    add_page(app, settings.sign_in)
    if desk:
        desk.add_routes(app)
    roles = Roles.of(settings.users, learner.store)

    async def see_user(request: Request) -> None:
        learner.engine.see(str(caller_of(request)))

    app.router.dependencies += [Depends(roles.check), Depends(see_user)]  # of all routes from here on
    add_user(app, roles)
    app.state.tokens.others, app.state.take_up = learner.members.tokens, learner.take_up
    add_connections(app, learner.board, learner.members.needs_certificate)
    add_membership(app, learner.members)
    for add in (
        add_catalogue,
        add_public,
        _add_forecasts,
        _add_runs,
        _add_deletion,
        _add_events,
        _add_models,
        _add_thresholds,
    ):
        add(app, learner)
    _add_evaluations(app, learner, roles)
    for add in routes.ENDPOINTS.values():
        add(app, learner)
    check_every_route(app)
    return app


def _sign_in_desk(settings: LearnerSettings) -> SignInDesk | None:
    """Return what signs people in, if the settings name an identity provider."""
    if settings.sign_in is None:
        return None
    from parley.learner.api.sign_in.routes import SignInDesk  # noqa: PLC0415 -- costs nobody who uses tokens alone

    return SignInDesk.of(settings.sign_in, settings.shares.failed_sign_ins)


@asynccontextmanager
async def _lifespan(learner: LearnerService, desk: SignInDesk | None, app: FastAPI) -> AsyncIterator[None]:
    """Carry runs, and sign people in, while the application runs."""
    async with learner.lifespan(app), desk.lifespan() if desk else nullcontext():
        yield


def _add_forecasts(app: FastAPI, learner: LearnerService) -> None:
    """Add the route of forecasts."""

    @answers(app, routes.FORECAST, summary="What a run would achieve, before it is run", tags=["forecasts"])
    @large_json
    @compressible
    async def forecast_run(order: ForecastRequest, request: Request) -> ForecastView:
        """Forecast expected excess fitness, the best coalition, owners' worth and remaining budget, and the run's time.

        A forecast uses only public facts: sizes and budgets from the request or from the parties. It costs no privacy.
        If no theory gives a forecast, ``no_forecast`` says so.
        """
        async with learner.fair.turn(learner.fair.forecasts, user_name(request)):
            return await foresee(order)

    async def foresee(order: ForecastRequest) -> ForecastView:
        if order.owners is not None:
            draft = await asyncio.to_thread(order.draft, learner.studies, order.owners, learner.rows)
            evaluation = order.evaluation(draft)
            order.threshold_rule(draft, evaluation)  # raises as it would for a run
            settle = partial(candidates, any_algorithm=order.any_algorithm)
            keep = Keeping(evaluation, order.may_evaluate, order.has_rule)
            foreseen = await foresee_owners(draft, order.owners, order.seconds, settle=settle, keeping=keep)
        else:
            prospect = await learner.prospect(order)
            foreseen = await learner.foresight(order.any_algorithm).forecast(
                prospect.draft,
                prospect.heard,
                order.seconds,
                cohort=order.cohort,
                keeping=prospect.keeping,
                rows_per_person=order.rows_per_person,
            )
            foreseen = foreseen.model_copy(update={"without": prospect.without})
            draft = prospect.draft
        majority = draft.study.majority or await asyncio.to_thread(learner.engine.majority, draft.study)
        unused = learner.studies.unused_change(draft.study.name) if isinstance(order.study, str) else None
        return foreseen.model_copy(update={"majority": majority, "unused_file": unused})


def _add_runs(app: FastAPI, learner: LearnerService) -> None:
    """Add the routes that queue, show, cancel and resume runs."""

    @answers(app, routes.SUBMIT, status_code=202, summary="Train a model", tags=["runs"])
    @large_json
    async def submit_run(
        order: RunRequest,
        request: Request,
        response: Response,
        idempotency_key: IdempotencyKey = None,
    ) -> RunView:
        """Queue a run; follow it at ``Location``. With an ``Idempotency-Key``, a repeated request queues no new run.

        Without names of parties, all that hold the study are asked. Parties that can be reached say first whether their
        owners' rules and budgets allow it: 422 names who would refuse it, why, and what helps.
        """
        user = user_name(request)
        draft, evaluation = await learner.checked(order, user, idempotency_key)

        def queue() -> Run:
            return learner.store.add(
                draft,
                user,
                idempotency_key,
                order.purpose,
                order.seconds,
                evaluation=evaluation,
                may_evaluate=order.may_evaluate,
                any_algorithm=order.any_algorithm,
                cohort=order.cohort,
                threshold=order.threshold_rule(draft, evaluation),
                share=learner.fair.queued_runs,
            )

        return await learner.carried(response, queue)

    @answers(app, routes.LIST_RUNS, summary="A page of the runs, newest first", tags=["runs"])
    @compressible
    @revalidated
    def list_runs(
        limit: PageLimit = 100,
        after: PageStart = None,
        state: Annotated[RunState | None, Query(description="only runs in this state")] = None,
        search: Annotated[
            str, Query(max_length=200, description="only runs with this text in study, algorithm, user or purpose")
        ] = "",
    ) -> RunPage:
        """List runs of all users. Runs that are queued meanwhile do not change later pages."""
        newest = learner.store.newest(limit, after, state, search)
        views, damaged = [], list(newest.damaged)
        for run in newest.runs:
            try:
                views.append(learner.view_of(run))
            except DamagedError:
                damaged.append(run.id)
        return RunPage(runs=tuple(views), damaged=tuple(damaged), next=newest.last)

    @answers(app, routes.SHOW_RUN, summary="One run", tags=["runs"])
    @compressible
    @revalidated
    def show_run(run: RunId) -> RunView:
        """State, rounds done, the problem of a run that failed, and why a run is paused."""
        return learner.view(run)

    @answers(app, routes.LIST_OPENED, summary="The sums that were opened", tags=["runs"])
    @compressible
    @revalidated
    def list_receipts(run: RunId) -> list[OpenedRound]:
        """List the rounds of a secure sum that key holders opened: who contributed, and what key holders signed."""
        names, session = learner.store.run(run).spec.names, learner.store.sessions.find(run)
        openings = learner.store.sessions.openings(run)
        with decoding_row("openings", run):
            return [OpenedRound.of(opening, names, session.roster) for opening in openings if session]

    @answers(app, routes.CANCEL, summary="Cancel a run", tags=["runs"])
    async def cancel_run(run: RunId) -> RunView:
        """End a run that has not ended; what its parties have been charged stays charged."""
        await learner.engine.cancel(run)
        return await asyncio.to_thread(learner.view, run)

    @answers(app, routes.RESUME, summary="Have a paused run go on", tags=["runs"])
    async def resume_run(run: RunId) -> RunView:
        """Try again at once, and for as long as a new run would; without this a paused run goes on by itself, later.

        The run is shown as paused until a peer has answered.
        """
        await learner.engine.resume(run)
        return await asyncio.to_thread(learner.view, run)


def _add_deletion(app: FastAPI, learner: LearnerService) -> None:
    """Add the route that deletes runs."""

    @answers(app, routes.DELETE_RUN, status_code=204, summary="Delete a run that has ended", tags=["runs"])
    def delete_run(
        run: RunId,
        request: Request,
        only_log: Annotated[  # noqa: FBT002 -- a query has names
            bool, Query(description="delete replies and the news of rounds alone; model, guarantee and receipts stay")
        ] = False,
    ) -> None:
        """Delete a run with its model and certificate, which nobody can bring back, or its log alone.

        What its parties were charged stays in their ledgers. Runs that evaluate its model have to be deleted first.
        """
        learner.purge.delete(run, user_name(request), only_log=only_log)


def _add_events(app: FastAPI, learner: LearnerService) -> None:
    """Add the event streams of one run and of all runs."""

    def readable(run: RunId, last_event_id: LastEventId = 0) -> int:
        """Return the event after which to begin. An unknown or damaged run is an error before the stream begins."""
        learner.store.news(run, last_event_id)
        return last_event_id

    begun = Depends(readable)  # no annotation finds what is defined in a function

    def summaries(runs: list[str]) -> list[str]:
        """Return the runs in short, as JSON objects."""
        unwritten, listed = learner.engine.unwritten, []
        for run in runs:
            with suppress(DamagedError, NotFoundError), decoding_row("runs", run):  # pages name damaged runs
                listed.append(ListedRun.of(learner.store.run(run), unwritten.get(run)).model_dump_json())
        return listed

    def shared(request: Request) -> Callable[[], None]:
        """Take one of the caller's streams. Returns the function that gives it back."""
        user = user_name(request)
        learner.fair.streams.take(user)
        return partial(learner.fair.streams.give_back, user)

    @answers(
        app,
        routes.WATCH_ALL,
        summary="Watch all runs",
        tags=["runs"],
        response_class=EventStream,
        responses=event_stream(runs=list[ListedRun]),
    )
    async def watch_runs(request: Request, limit: PageLimit = 50) -> EventStream:
        """Send server-sent events ``runs``, lists of runs in short: first the newest runs, then those with news.

        The stream ends when the token no longer counts.
        """
        news = watch_all(learner.store, learner.notifier, limit, summaries)
        return EventStream.of_runs(_while_token_counts(news, request), shared(request))

    @answers(
        app,
        routes.WATCH_RUN,
        summary="Watch a run",
        tags=["runs"],
        response_class=EventStream,
        responses=event_stream(**NEWS),
    )
    async def watch_run(run: RunId, request: Request, after: int = begun) -> EventStream:
        """Send server-sent events ``state``, ``round``, ``dropped``, from the first or after ``Last-Event-ID``.

        The stream ends with the run, or when the token no longer counts.
        """
        news = watch(learner.store, learner.notifier, run, after)
        return EventStream.of(_while_token_counts(news, request), shared(request))


def _add_models(app: FastAPI, learner: LearnerService) -> None:
    """Add the routes that show and use trained models."""

    @answers(app, routes.SHOW_MODEL, summary="The trained model", tags=["models"], response_model=ModelDocument)
    @compressible
    @revalidated
    def show_model(run: RunId) -> Response:
        """Weights, the study they belong to, the run's guarantees, its newest evaluation, and the threshold."""
        document = learner.store.evaluated_model(run)
        check_format(document)
        # a run's weights never change, so the tag need not cover them
        tag = tag_of(canonical({**document, "weights": None, "version": parley_version()}))
        return StreamingResponse(document_lines(document), headers={"ETag": tag}, media_type="application/json")

    @answers(
        app,
        routes.SHOW_CARD,
        summary="The trained model's card",
        tags=["models"],
        response_class=HTMLResponse,
        responses={200: {"content": {_MARKDOWN: {"schema": {"type": "string"}}}}},
    )
    @compressible
    @revalidated
    def show_card(
        run: RunId,
        request: Request,
        to: Annotated[
            Literal["html", "markdown"] | None, Query(description="what it is written in; without it, Accept decides")
        ] = None,
    ) -> Response:
        """Purpose, data by owner, training, privacy, evaluation and limits, with the model's certificate checked."""
        document = learner.store.evaluated_model(run)
        card = model_card(document, verification_of(document))
        if (to or _CARDS[accepted_by(request, tuple(_CARDS))]) == "markdown":
            return WholeBody(card, media_type=_MARKDOWN, headers={"Vary": "Accept"})
        headers = page_headers(CARD_SOURCES) | {"Vary": "Accept"}
        return WholeBody(card_page(card), media_type=_HTML, headers=headers)

    @answers(
        app,
        routes.EXPORT_MODEL,
        summary="The trained model as a file for other tools",
        tags=["models"],
        response_class=Response,
        responses={200: {"content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}}}},
    )
    def export_model(
        run: RunId,
        to: Annotated[
            Literal["onnx", "sklearn"], Query(description="an ONNX graph, or a scikit-learn pipeline in a skops file")
        ],
    ) -> Response:
        """Write a file that predicts from raw columns without Parley, as the command export does.

        The learner needs the extra export for it.
        """
        predictor = Predictor.of(learner.store.evaluated_model(run))
        check_portable(predictor)
        try:
            content, _ = (onnx_bytes if to == "onnx" else skops_bytes)(predictor)
        except MissingExtraError as error:
            raise ConflictError(
                f"this learner writes no such files: {error.detail} where it runs; or download the model, and export "
                "it by parley-learner export"
            ) from None
        return WholeBody(content, media_type=_BYTES)

    @answers(app, routes.SHOW_DESCRIPTION, summary="What a description found", tags=["models"])
    @compressible
    @revalidated
    def show_description(run: RunId) -> Description:
        """Show columns' counts, means, variances and histograms by a run of `describe`, with the noise's intervals."""
        return description_of(learner.store.run(run).spec, learner.store.model(run))

    @answers(app, routes.PREDICT, summary="Predict with the trained model", tags=["models"])
    @large_json
    @compressible
    def make_predictions(run: RunId, request: PredictionRequest) -> list[Prediction]:
        """Label, score and probability for each record {feature: value}, and the probability of each class.

        Of two classes the positive one is the label where the score exceeds the model's threshold.
        """
        return [Prediction(**fields) for fields in predict(learner.store.evaluated_model(run), request.records)]


def _evaluation_draft(trained: Run, epsilon: float, delta: float) -> RunSpec:
    """Draft an evaluation of a run's model among its parties, with their sizes."""
    draft = EvaluationRequest(epsilon=epsilon, delta=delta, budgets={}, parameters={}).draft(trained)
    return draft.with_sizes({member.name: member.n_examples for member in trained.spec.parties})


def _add_thresholds(app: FastAPI, learner: LearnerService) -> None:
    """Add the route that sets the threshold of a trained model."""

    @answers(app, routes.SET_THRESHOLD, summary="Set the trained model's threshold", tags=["models"])
    def set_threshold(run: RunId, request: ThresholdRequest) -> Threshold | None:
        """Choose by a rule above which score the positive one of two classes is predicted; it costs no privacy.

        A public rule needs no evaluation. Others choose by the newest one, and again when there is a newer one. Returns
        what the model's document has from then on, which says so if the evaluation is still under way.
        """
        trained = learner.store.run(run)
        if (rule := read_rule(request.rule, trained.spec)) is None:
            learner.store.set_threshold(run, None)
            return None
        document = learner.store.evaluated_model(run)
        evaluation = document["evaluation"]
        if rule.estimated and evaluation is None and not learner.store.will_be_evaluated(run):
            useful = useful_epsilon(_evaluation_draft(trained, 0.1, 0.0))
            pure = not any(member.budget.delta for member in trained.spec.parties)
            command = evaluate_command_line(run, useful or MOST_USUAL_EPSILON, spends_none=pure)
            raise ConflictError(
                f"the threshold {rule} is chosen by an evaluation, and run {run} has none: evaluate it first, by "
                f"`{command} --threshold {rule}`, or take a public rule, such as probability=.1"
            )
        threshold = chosen_threshold(str(rule), trained.spec.study, evaluation, document.get("class_weights"))
        if threshold.unmet and evaluation is not None:
            raise InvalidInputError(f"the threshold {rule} cannot be chosen: {threshold.unmet}")
        learner.store.set_threshold(run, str(rule))
        return threshold


def _add_evaluations(app: FastAPI, learner: LearnerService, roles: Roles) -> None:
    """Add the routes that evaluate trained models."""

    @answers(app, routes.FORECAST_EVALUATION, summary="What an evaluation could tell at most", tags=["models"])
    @compressible
    @revalidated
    def forecast_evaluation(
        run: RunId,
        epsilon: Annotated[float, Query(ge=LEAST_EPSILON, le=MOST_EPSILON, description=_COST)],
        delta: Annotated[float, Query(ge=0, lt=1, description=_COST)],
    ) -> RunEvaluation:
        """Show the evaluation of a model without any error: how wide intervals are at this budget.

        No party is asked.
        """
        trained = learner.store.run(run)
        if trained.state != "completed" or not trained.spec.build().makes_one_model:
            raise ConflictError(f"run {run} has no model", state=trained.state)
        flawless = flawless_evaluation(_evaluation_draft(trained, epsilon, delta))
        assert flawless is not None  # noqa: S101 -- the draft evaluates
        return flawless

    @answers(app, routes.EVALUATE_RUN, status_code=202, summary="Evaluate a trained model", tags=["models"])
    async def evaluate_run(
        run: RunId,
        order: EvaluationRequest,
        request: Request,
        response: Response,
        idempotency_key: IdempotencyKey = None,
    ) -> RunView:
        """Queue a run that measures the model of a completed run on the rows that the parties hold out.

        Follow it at ``Location``; its results are in the model's document, with intervals and its cost. With an
        ``Idempotency-Key``, a repeated request queues no new run. A ``threshold`` is that of the completed run.
        """
        if order.threshold is not None:
            await roles.check_owner(request)

        def drafted() -> tuple[RunSpec, Cohort | None, ThresholdRule | None]:
            weights = learner.rows.add_weights(weights_of(learner.store.model(run)))
            trained = learner.store.run(run)
            draft = order.draft(trained, weights)
            learner.sums.check(draft)
            _ = draft.study.digest  # worked out here: of many columns it takes long
            return draft, trained.terms.cohort, read_rule(order.threshold, trained.spec)

        draft, cohort, rule = await asyncio.to_thread(drafted)
        is_new = await asyncio.to_thread(learner.store.keyed, user_name(request), idempotency_key) is None
        if is_new:
            heard = await learner.hear(draft.names)
            await learner.foresight().check(draft, heard, DEFAULT_SECONDS, cohort=cohort)

        def queue() -> Run:
            queued = learner.store.add(
                draft,
                user_name(request),
                idempotency_key,
                order.purpose,
                evaluates=run,
                cohort=cohort,
                share=learner.fair.queued_runs,
            )
            if order.threshold is not None and is_new:
                learner.store.set_threshold(run, None if rule is None else str(rule))
            return queued

        return await learner.carried(response, queue)


async def _while_token_counts(news: AsyncIterator[_News], request: Request) -> AsyncIterator[_News]:
    """Pass on news for as long as the request's token or session counts; a new request with it then gets the error."""
    tokens: Tokens = request.app.state.tokens
    checked = time.monotonic()
    async for item in news:
        if (now := time.monotonic()) - checked > _EVERY:
            try:
                await tokens.identify_request(request.headers)
            except ParleyError:
                return
            checked = now
        yield item
