"""Builds the parts of a learner from its settings: all routes work with them."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI, Response

from parley.common.client.awaited import Switchboard
from parley.common.client.endpoints import PeerEntry
from parley.common.client.party import PartyClient
from parley.common.client.peer import Line, Peer
from parley.common.data.study import Study
from parley.common.service.prometheus import Metrics
from parley.learner.api.membership import LiveRoster
from parley.learner.api.run_metrics import RunCounters
from parley.learner.api.schemas import RunView
from parley.learner.execution.engine import Engine
from parley.learner.execution.event_stream import RunNotifier
from parley.learner.execution.fair_use import FairUse
from parley.learner.execution.retention import Purge
from parley.learner.execution.round_report import read_public_data
from parley.learner.execution.witnesses import Witnesses
from parley.learner.forecasting.selection import settled
from parley.learner.runs.run import Run, decoding_row
from parley.learner.runs.states import ENDS
from parley.learner.secure_sum.coordinator import SecureSumCoordinator
from parley.learner.settings import LearnerSettings, load_studies
from parley.learner.storage.public_rows import PublicRowStore
from parley.learner.storage.roster_store import RosterStore, check_agreed
from parley.learner.storage.run_store import RunStore

Connect = Callable[[PeerEntry], Line]


@dataclass(frozen=True, slots=True)
class LearnerService:
    """Holds the parts of a learner that its routes use."""

    settings: LearnerSettings
    board: Switchboard
    studies: dict[str, Study]
    roster: dict[str, PartyClient]
    notifier: RunNotifier
    store: RunStore
    rows: PublicRowStore
    sums: SecureSumCoordinator
    witnesses: Witnesses
    engine: Engine
    purge: Purge
    members: LiveRoster
    fair: FairUse

    @classmethod
    def build(cls, settings: LearnerSettings, connect: Connect, metrics: Metrics) -> LearnerService:
        """Build all parts; raises InvalidInputError, ConflictError or OwnKeyError if the settings do not allow them."""
        board = Switchboard(connect)
        studies = load_studies(settings.studies)
        public = read_public_data(settings.public_data, studies)
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
            engine = Engine(store, roster, settings, public, rows, sums, witnesses, settled)
            purge = Purge(store, rows, settings.retention, engine.is_carrying)
            stored = RosterStore(settings.state / "roster")
            check_agreed(studies, stored.members.values())
            members = LiveRoster(settings, sums.key, board, roster, sums, stored, studies, store.receipts)
            members.begin()
            fair = FairUse.by(settings.shares)
            learner = cls(
                settings, board, studies, roster, notifier, store, rows, sums, witnesses, engine, purge, members, fair
            )
            undo.pop_all()
            return learner

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
