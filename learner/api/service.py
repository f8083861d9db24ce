"""Builds the parts of a learner from its settings: all routes work with them."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from fastapi import FastAPI, Response

from parley.common.client.awaited import Switchboard
from parley.common.client.endpoints import PeerEntry
from parley.common.client.party import PartyClient
from parley.common.client.peer import Line, Peer
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.runs.specification import RunSpec
from parley.common.service.prometheus import Metrics
from parley.learner.api.membership import LiveRoster
from parley.learner.api.requests import RunRequest
from parley.learner.api.run_metrics import RunCounters
from parley.learner.api.schemas import RunView
from parley.learner.execution.engine import Engine
from parley.learner.execution.event_stream import RunNotifier
from parley.learner.execution.fair_use import FairUse
from parley.learner.execution.retention import Purge
from parley.learner.execution.round_report import read_public_data
from parley.learner.execution.witnesses import Witnesses
from parley.learner.forecasting.holders import ANSWER_SECONDS, Heard, hear, remembered
from parley.learner.forecasting.report import Foresight, Keeping
from parley.learner.forecasting.selection import candidates, settled_among
from parley.learner.runs.run import Run, decoding_row
from parley.learner.runs.states import ENDS
from parley.learner.secure_sum.coordinator import SecureSumCoordinator
from parley.learner.settings import LearnerSettings
from parley.learner.storage.known_parties import KnownParties
from parley.learner.storage.public_rows import PublicRowStore
from parley.learner.storage.roster_store import RosterStore, check_agreed
from parley.learner.storage.run_store import RunStore
from parley.learner.storage.study_folder import StudyFolder

Connect = Callable[[PeerEntry], Line]


@dataclass(frozen=True, slots=True)
class Prospect:
    """A run that is requested: its draft, what evaluates it, what its parties say, and who was left ``without``.

    Those are the parties of the roster that do not hold its study.
    """

    draft: RunSpec
    keeping: Keeping
    heard: Heard
    without: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LearnerService:
    """Holds the parts of a learner that its routes use."""

    settings: LearnerSettings
    board: Switchboard
    studies: StudyFolder
    roster: dict[str, PartyClient]
    notifier: RunNotifier
    store: RunStore
    rows: PublicRowStore
    sums: SecureSumCoordinator
    witnesses: Witnesses
    engine: Engine
    purge: Purge
    members: LiveRoster
    known: KnownParties
    fair: FairUse

    @classmethod
    def build(cls, settings: LearnerSettings, connect: Connect, metrics: Metrics) -> LearnerService:
        """Build all parts; raises InvalidInputError, ConflictError or OwnKeyError if the settings do not allow them."""
        board = Switchboard(connect)
        studies = StudyFolder(settings.studies)
        public = read_public_data(settings.public_data, dict(studies))
        notifier = RunNotifier()
        with ExitStack() as undo:
            store = RunStore(settings.state / "learner.sqlite", RunCounters(metrics, notifier).announce)
            undo.callback(store.close)
            receipts = store.receipts()
            roster = {
                e.name: PartyClient(e.name, board.connect(e), receipts.get(e.name), e.public_key)
                for e in settings.parties
            }
            sums = SecureSumCoordinator.build(settings, board.connect, store.sessions, receipts)
            peers = ChainMap[str, Peer](roster, sums.holders)  # type: ignore[arg-type]
            witnesses = Witnesses(peers, store.copied())
            rows = PublicRowStore(settings.state / "public")
            engine = Engine(store, roster, settings, public, rows, sums, witnesses, settled_among)
            purge = Purge(store, rows, settings.retention, engine.is_carrying)
            stored = RosterStore(settings.state / "roster")
            studies.guard(lambda read: check_agreed(read, list(stored.members.values())))
            known = KnownParties(settings.state / "roster" / "known")
            members = LiveRoster(settings, sums.key, board, roster, sums, stored, studies, store.receipts, known)
            members.begin()
            fair = FairUse.by(settings.shares)
            learner = cls(
                settings=settings,
                board=board,
                studies=studies,
                roster=roster,
                notifier=notifier,
                store=store,
                rows=rows,
                sums=sums,
                witnesses=witnesses,
                engine=engine,
                purge=purge,
                members=members,
                known=known,
                fair=fair,
            )
            undo.pop_all()
            return learner

    def take_up(self, settings: LearnerSettings) -> tuple[str, ...]:
        """Take up changed settings while the service runs: where the studies are. Returns their keys.

        Raises InvalidInputError for a study that cannot be used.
        """
        self.studies.take_up(settings.studies)
        return ("studies",)

    async def hear(self, names: Iterable[str]) -> Heard:
        """Ask parties of the roster what they say of themselves, for a moment."""
        parties = [self.roster[name] for name in names if name in self.roster]
        return await hear(parties, self.known, self.members.joined, self._moment)

    def foresight(self, any_algorithm: bool = False) -> Foresight:  # noqa: FBT001, FBT002 -- as a request says
        """Return what forecasts and reviews are made with, for runs that leave their algorithm open or not."""
        settle = partial(candidates, any_algorithm=any_algorithm)
        return Foresight(self.roster, self.store, self.sums, self._moment, settle)

    @property
    def _moment(self) -> float:
        """How many seconds parties have to answer before a run is asked for."""
        return min(self.settings.deadline_seconds, ANSWER_SECONDS)

    async def prospect(self, order: RunRequest) -> Prospect:
        """Draft a requested run among the parties that it names, or that hold its study.

        Raises InvalidInputError for what cannot be, before any party is asked where that does not depend on them, for
        parties that do not hold the study, and where nobody does; ConflictError if the study has changed since they
        joined.
        """
        study = await asyncio.to_thread(self._chosen_study, order)
        names, known = order.parties, remembered(self.known, self.members.joined)
        joined = [member for name, member in self.members.store.members.items() if names is None or name in names]
        await asyncio.to_thread(check_agreed, {study.name: study}, joined)
        try:
            await asyncio.to_thread(self._drafted, order, None)
        except InvalidInputError:
            if names is not None or all(known.holds(name, study) is not False for name in self.roster):
                raise  # otherwise the holders, who are fewer than the roster, may do
        heard = await self.hear(self.roster if names is None else names)
        if names is None:
            holders = heard.holders(self.roster, study)
        else:
            heard.check_held(names, study, self.roster)
            holders = names
        draft, evaluation = await asyncio.to_thread(self._drafted, order, holders)
        without = () if names is not None else tuple(name for name in self.roster if name not in holders)
        return Prospect(draft, Keeping(evaluation, order.may_evaluate, order.has_rule), heard, without)

    async def checked(self, order: RunRequest, user: str, key: str | None) -> tuple[RunSpec, RunSpec | None]:
        """Draft a requested run and its evaluation, which the parties that answer would not refuse.

        A request that is repeated with its key is not checked again. Raises what `prospect` and `Foresight.check` do.
        """
        if (earlier := await asyncio.to_thread(self.store.keyed, user, key)) is not None:
            return await asyncio.to_thread(self._drafted, order, earlier.asked(self.roster))
        found = await self.prospect(order)
        await self.foresight(order.any_algorithm).check(
            found.draft,
            found.heard,
            order.seconds,
            cohort=order.cohort,
            keeping=found.keeping,
            any_algorithm=order.any_algorithm,
        )
        return found.draft, found.keeping.asked

    def _chosen_study(self, order: RunRequest) -> Study:
        """Return the study of a request, with its digest worked out: of many columns that takes long."""
        study = order.chosen_study(self.studies)
        _ = study.digest
        return study

    def _drafted(self, order: RunRequest, holders: Sequence[str] | None) -> tuple[RunSpec, RunSpec | None]:
        """Draft a run and the evaluation that follows it, if there is one. Raises InvalidInputError."""
        draft = order.draft(self.studies, self.roster, self.rows, holders)
        evaluation = order.evaluation(draft)
        order.threshold_rule(draft, evaluation)  # raises where it cannot be
        self.sums.check(draft)
        return draft, evaluation

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Take up unfinished runs at the start; at the stop, leave them for the next start."""
        await self.engine.start()
        works = self.witnesses.keep_handing_on(), self.board.keep_alive(), self.purge.keep_on()
        beside = [asyncio.create_task(work) for work in works]
        yield
        for task in beside:
            task.cancel()
        await self.engine.stop()
        for party in self.roster.values():
            await party.close()
        await self.sums.close()
        self.store.close()

    async def ready(self) -> None:
        """Raise UnavailableError unless the store can be written, which is all that the learner needs."""
        await asyncio.to_thread(self.store.probe)

    def view(self, run: str) -> RunView:
        """Return the view of the run with this identifier; raises NotFoundError, DamagedError if it cannot be read."""
        return self.view_of(self.store.run(run))

    def view_of(self, run: Run) -> RunView:
        """Return the view of a run from the store; raises DamagedError if it cannot be read."""
        with decoding_row("runs", run.id):
            return RunView.of(run, self.engine.unwritten.get(run.id))

    async def carried(self, response: Response, queue: Callable[[], Run]) -> RunView:
        """Queue a run in a thread and carry it from then on. Returns its view; sets ``Location`` in the response."""
        run = await asyncio.to_thread(queue)
        if run.state not in ENDS:
            self.engine.carry(run.id)
        response.headers["Location"] = f"/v1/runs/{run.id}"
        return await asyncio.to_thread(self.view, run.id)
