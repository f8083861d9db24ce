"""The learner's HTTP service: what users ask, translated to and from the engine and the store, and nothing else."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from common.algorithms import REGISTRY, parameter_schema
from common.client.endpoints import PartyEntry, PeerEntry
from common.client.party import PartyClient
from common.client.peer import ask_all, open_client_of
from common.data.study import Study
from common.errors import InvalidInputError, ParleyError
from common.runs.model_document import predict
from common.runs.specification import PublicRows
from common.service import problems
from common.service.application import PUBLIC_PATHS, caller, service
from common.service.http.strict_json import large_json
from common.service.prometheus import Metrics
from common.wire.party_api import PartyFacts
from learner.api.page import show_page
from learner.api.schemas import (
    AlgorithmView,
    ForecastRequest,
    OpenedRound,
    PartyView,
    Prediction,
    PredictionRequest,
    RunRequest,
    RunView,
)
from learner.api.tables import TABLE_BODY, read_rows, table_suffix
from learner.execution.engine import Engine
from learner.execution.event_stream import RunNotifier, watch
from learner.execution.round_report import read_public_data
from learner.forecasting.report import foresee_owners, foresee_parties
from learner.forecasting.views import ForecastView
from learner.run import TRANSITIONS
from learner.secure_sum.coordinator import SecureSumCoordinator
from learner.settings import LearnerSettings, load_studies
from learner.storage.public_rows import PublicRowStore
from learner.storage.run_store import RunStore

_DESCRIPTION = "Trains models on data that stays with its owners, by asking the parties of its roster."

Connect = Callable[[PeerEntry], httpx.AsyncClient]


@dataclass(frozen=True, slots=True)
class Learner:
    """What the routes stand on."""

    settings: LearnerSettings
    studies: dict[str, Study]
    roster: dict[str, PartyClient]
    notifier: RunNotifier
    store: RunStore
    rows: PublicRowStore
    sums: SecureSumCoordinator
    engine: Engine

    @classmethod
    def build(cls, settings: LearnerSettings, connect: Connect) -> Learner:
        """All parts, by the settings; raises InvalidInputError, ConflictError or OwnKeyError where they cannot be."""
        studies = load_studies(settings.studies)
        public = read_public_data(settings.public_data, studies)
        notifier = RunNotifier()
        with ExitStack() as undo:
            store = RunStore(settings.state / "learner.sqlite", notifier.notify)
            undo.callback(store.close)
            receipts = store.receipts()
            roster = {
                e.name: PartyClient(e.name, connect(e), receipts.get(e.name), e.public_key) for e in settings.parties
            }
            sums = SecureSumCoordinator.build(settings, connect, store.sessions)
            rows = PublicRowStore(settings.state / "public")
            engine = Engine(store, roster, settings, public, rows, sums)
            learner = cls(settings, studies, roster, notifier, store, rows, sums, engine)
            undo.pop_all()
            return learner

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Take up unfinished runs at the start; at the stop, leave them for the next."""
        self.engine.resume()
        yield
        await self.engine.stop()
        for party in self.roster.values():
            await party.close()
        await self.sums.close()
        self.store.close()

    async def ready(self) -> None:
        """The learner can work if its store can."""
        self.store.count()


def create_learner_app(settings: LearnerSettings, connect: Connect = open_client_of) -> FastAPI:
    """The learner's application; ``connect`` makes the client of each party and key holder."""
    learner = Learner.build(settings, connect)
    metrics = Metrics()
    metrics.registry.register(_RunGauge(learner.store))
    app = service(
        "Parley learner",
        _DESCRIPTION,
        tokens=settings.tokens,
        metrics=metrics,
        ready=learner.ready,
        limits=settings.limits,
        lifespan=learner.lifespan,
        public_paths=PUBLIC_PATHS | {"/"},
    )
    for add in (_add_page, _add_catalogue, _add_public, _add_forecasts, _add_runs, _add_events, _add_models):
        add(app, learner)
    return app


def _add_page(app: FastAPI, _: Learner) -> None:
    app.add_api_route("/", show_page, include_in_schema=False)


def _add_catalogue(app: FastAPI, learner: Learner) -> None:
    """What there is to run, and on whom."""

    @app.get("/v1/parties", summary="The parties of the roster and what they say of themselves", tags=["catalogue"])
    async def parties() -> list[PartyView]:
        """Asks every party at once; one that does not answer by the deadline is listed with its problem."""
        answers = await ask_all(list(learner.roster.values()), PartyClient.facts, learner.settings.deadline_seconds)
        return [_party_view(entry, answer) for entry, answer in zip(learner.settings.parties, answers, strict=True)]

    @app.get("/v1/algorithms", summary="The algorithms and their parameters", tags=["catalogue"])
    async def algorithms() -> dict[str, AlgorithmView]:
        """Each algorithm by name, with the JSON Schema of its parameters."""
        return {
            name: AlgorithmView(
                summary=(inspect.getdoc(inspect.getmodule(kind)) or "").split("\n")[0],
                curator=kind.curator,
                parameters=parameter_schema(name),
            )
            for name, kind in REGISTRY.items()
        }


def _add_public(app: FastAPI, learner: Learner) -> None:
    """Rows that are no secret, for runs to ask about."""

    @app.put(
        "/v1/public",
        status_code=201,
        summary="Upload public rows",
        tags=["public rows"],
        openapi_extra={"requestBody": {"required": True, "content": TABLE_BODY}},
    )
    async def upload(
        request: Request, study: Annotated[str, Query(description="whose columns they have")]
    ) -> PublicRows:
        """Keep the rows of a CSV or Parquet file with a study's features, and name them by their digest.

        The label's column is not needed. Every party of a run that names them sees them, and approves them by digest.
        """
        if study not in learner.studies:
            raise InvalidInputError(f"unknown study {study!r}")
        body, suffix = await request.body(), table_suffix(request)
        return learner.rows.add(await asyncio.to_thread(read_rows, body, suffix, learner.studies[study]))

    @app.get("/v1/public", summary="The public rows that are kept here", tags=["public rows"])
    async def rows() -> list[PublicRows]:
        """Their digests and shapes."""
        return learner.rows.all()


def _add_forecasts(app: FastAPI, learner: Learner) -> None:
    """Look ahead."""

    @app.post("/v1/forecasts", summary="What a run would achieve, before it is run", tags=["forecasts"])
    @large_json
    async def foresee(order: ForecastRequest) -> ForecastView:
        """The excess fitness to expect, the best coalition, each owner's worth, what is left to it, and the run's time.

        From public facts alone: sizes and budgets, given in the request or asked of the parties. It costs no privacy.
        Where no theory gives a forecast, ``no_forecast`` says so.
        """
        if order.owners is not None:
            return await foresee_owners(order.draft(learner.studies, order.owners, learner.rows), order.owners)
        draft = order.draft(learner.studies, learner.roster, learner.rows)
        parties = [learner.roster[name] for name in draft.names]
        return await foresee_parties(draft, parties, learner.store, learner.settings.deadline_seconds)


def _add_runs(app: FastAPI, learner: Learner) -> None:
    """Queue, look at and cancel runs."""

    @app.post("/v1/runs", status_code=202, summary="Train a model", tags=["runs"])
    @large_json
    async def submit(
        order: RunRequest,
        request: Request,
        response: Response,
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    ) -> RunView:
        """Queue a run; follow it at ``Location``. With an ``Idempotency-Key``, a repeated request queues no second."""
        draft = order.draft(learner.studies, learner.roster, learner.rows)
        learner.sums.check(draft)
        run = learner.store.add(draft, caller(request), idempotency_key)
        learner.engine.carry(run.id)
        response.headers["Location"] = f"/v1/runs/{run.id}"
        return RunView.of(run)

    @app.get("/v1/runs", summary="The newest runs", tags=["runs"])
    async def runs(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> list[RunView]:
        """Runs of all users, newest first."""
        return [RunView.of(run) for run in learner.store.newest(limit)]

    @app.get("/v1/runs/{run}", summary="One run", tags=["runs"])
    async def show(run: str) -> RunView:
        """State, rounds done, and the problem of a run that failed."""
        return RunView.of(learner.store.run(run))

    @app.get("/v1/runs/{run}/receipts", summary="The sums that were opened", tags=["runs"])
    async def receipts(run: str) -> list[OpenedRound]:
        """Each round that key holders opened: who contributed, and what each key holder signed. Of a secure sum."""
        names, session = learner.store.run(run).spec.names, learner.store.sessions.find(run)
        openings = learner.store.sessions.openings(run)
        return [OpenedRound.of(opening, names, session.roster) for opening in openings if session]

    @app.post("/v1/runs/{run}/cancel", summary="Cancel a run", tags=["runs"])
    async def cancel(run: str) -> RunView:
        """End a run that has not ended; what its parties have been charged stays charged."""
        learner.engine.cancel(run)
        return RunView.of(learner.store.run(run))


def _add_events(app: FastAPI, learner: Learner) -> None:
    """Watch a run."""

    async def existing(run: str) -> None:
        """Answer 404 before the stream begins, not in it."""
        learner.store.state(run)

    @app.get(
        "/v1/runs/{run}/events",
        summary="Watch a run",
        tags=["runs"],
        response_class=EventSourceResponse,
        dependencies=[Depends(existing)],
    )
    async def events(run: str, last_event_id: Annotated[int, Header(ge=0)] = 0) -> AsyncIterator[ServerSentEvent]:
        """Server-sent events ``state``, ``round``, ``dropped``, from the first or after ``Last-Event-ID``."""
        async for event in watch(learner.store, learner.notifier, run, last_event_id):
            yield ServerSentEvent(raw_data=event.data, event=event.kind, id=str(event.number))


def _add_models(app: FastAPI, learner: Learner) -> None:
    """Use what was trained."""

    @app.get("/v1/runs/{run}/model", summary="The trained model", tags=["models"])
    async def model(run: str) -> dict[str, Any]:
        """Weights, the study they belong to, and the run's guarantees."""
        return learner.store.model(run)

    @app.post("/v1/runs/{run}/predictions", summary="Predict with the trained model", tags=["models"])
    @large_json
    async def predictions(run: str, request: PredictionRequest) -> list[Prediction]:
        """Label, score and probability for each record {feature: value}; of classes, the probability of each."""
        return [Prediction(**found) for found in predict(learner.store.model(run), request.records)]


def _party_view(entry: PartyEntry, answer: PartyFacts | ParleyError) -> PartyView:
    if isinstance(answer, ParleyError):
        return PartyView(name=entry.name, url=str(entry.url), facts=None, problem=problems.document_of(answer))
    return PartyView(name=entry.name, url=str(entry.url), facts=answer, problem=None)


class _RunGauge(Collector):
    """The number of runs in each state, counted when somebody looks."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def collect(self) -> Iterable[Metric]:
        """One gauge, by state."""
        gauge = GaugeMetricFamily("parley_runs", "Runs by state.", labels=["state"])
        counts = self._store.count()
        for state in TRANSITIONS:
            gauge.add_metric([state], counts.get(state, 0))
        yield gauge
