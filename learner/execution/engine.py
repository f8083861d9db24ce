"""Carries runs from the queue to an end, one asyncio task each.

A run's state and its log are in the store; a task keeps nothing else. So a task that starts anew, after a restart of
the service, takes the same steps from the state it finds: what is settled is not settled again, a run proposed twice is
approved twice, and `drive` replays the rounds that the log holds before it asks for another. Ends are final, and the
store checks every change of state against the table in `learner.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING

import structlog

from common.client.approval import gather_facts, propose
from common.client.federation import HttpFederation
from common.client.party import PartyClient
from common.client.peer import ask_all
from common.errors import NotFoundError, ParleyError
from common.protocol.driver import drive
from common.runs.model_document import model_document
from common.runs.specification import RunSpec
from common.service import problems
from common.service.logs import place_of
from learner.execution.program_steps import ProgramSteps
from learner.execution.reply_log import StoredLog
from learner.execution.round_report import PublicExamples, Reporter
from learner.plan import Plan
from learner.run import ENDS, Run
from learner.secure_sum.federation import SecureSumFederation
from learner.settings import LearnerSettings
from learner.storage.public_rows import PublicRowStore
from learner.storage.run_store import RunStore

if TYPE_CHECKING:
    from learner.secure_sum.coordinator import SecureSumCoordinator


class Engine:
    """All runs that have not come to an end, on the ``roster`` of parties by name.

    ``examples`` has the public examples of each study, by its digest, on which runs are measured; ``rows`` the public
    rows that runs ask about.
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- its parts
        self,
        store: RunStore,
        roster: Mapping[str, PartyClient],
        settings: LearnerSettings,
        examples: Mapping[str, PublicExamples],
        rows: PublicRowStore,
        sums: SecureSumCoordinator,
    ) -> None:
        self._store = store
        self._roster = roster
        self._settings = settings
        self._examples = examples
        self._rows = rows
        self._sums = sums
        self._turns = asyncio.Semaphore(settings.concurrent_runs)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def resume(self) -> None:
        """Take up every run that has not come to an end, and every end that key holders have not heard of."""
        for run in self._store.unfinished():
            self.carry(run)
        for run in self._store.sessions.unended():
            self._start(run, self._dismiss(run))

    def carry(self, run: str) -> None:
        """Carry a run to an end in a task of its own, if it has not ended and is not being carried."""
        if run not in self._tasks and self._store.state(run) not in ENDS:
            self._start(run, self._carry(run))

    def cancel(self, run: str) -> None:
        """End a run at once; what its parties have been charged stays charged.

        Cancelling twice is cancelling once. Raises ConflictError for a run that has ended otherwise, NotFoundError.
        """
        if self._store.state(run) == "cancelled":
            return
        self._store.enter(run, "cancelled")
        if task := self._tasks.pop(run, None):
            task.cancel()
        self._start(run, self._dismiss(run))

    async def stop(self) -> None:
        """Let go of all runs as they are: the next `resume` takes them up."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, run: str) -> None:
        """Take a run from the state it is in to an end."""
        steps = {"queued": self._begin, "recruiting": self._recruit, "running": self._train}
        async with self._turns:
            try:
                while (now := self._store.run(run)).state not in ENDS:
                    await steps[now.state](now)
            except ParleyError as error:
                self._store.enter(run, "failed", problem=problems.document_of(error))
        await self._dismiss(run)

    async def _begin(self, run: Run) -> None:
        """It is this run's turn."""
        self._store.enter(run.id, "recruiting")

    async def _recruit(self, run: Run) -> None:
        """Settle what the run is, once; then get every party's approval, which may be asked for again."""
        parties, plan = self._parties(run.spec), self._store.plan(run.id)
        if plan is None:
            spec, views = await gather_facts(parties, run.spec, self._settings.deadline_seconds)
            self._store.settle(run.id, spec, await asyncio.to_thread(Plan.of, spec, views))
            return  # to come back with the settled run
        approvals = await propose(
            parties, run.id, run.spec, self._settings.approval_seconds, self._settings.preparation_seconds
        )
        self._store.keep([party.receipt for party in parties if party.receipt])
        news: dict[str, object] = {"rounds": plan.rounds}
        news["epsilon"] = {name: approval.epsilon for name, approval in approvals.items()}
        if run.spec.secure_sum != "none":
            news["key_holders"] = await self._sums.convene(run, parties)
        self._store.enter(run.id, "running", news=news)

    async def _train(self, run: Run) -> None:
        """Drive the program to its model."""
        parties, plan = self._parties(run.spec), self._store.plan(run.id)
        assert plan is not None  # noqa: S101 -- a run is settled before it is proposed
        measured_on = self._examples.get(run.spec.study.digest)
        facts = run.spec.facts(self._rows.load(run.spec.public) if run.spec.public else None)
        federation = self._federation(run, parties)
        reporter = Reporter(run.spec.names, plan, measured_on, lambda: federation.report)
        log = StoredLog(self._store, run.id, run.rounds, parties, reporter)
        try:
            model = await drive(
                run.spec.build().program(facts), federation, run.id, log, ProgramSteps(run.spec.questions())
            )
        finally:
            federation.end()
        contributors = [run.spec.names[index] for index in federation.active]
        document = model_document(run.spec, plan.guarantees, model, contributors)
        news = measured_on.measure(model.weights) if measured_on and model.kind != "members" else {}
        self._store.enter(run.id, "completed", model=document, news=news)

    def _federation(self, run: Run, parties: tuple[PartyClient, ...]) -> HttpFederation | SecureSumFederation:
        """The run's parties, as its specification lets the learner see them."""
        recent, spec = self._store.recent(run), run.spec
        if spec.secure_sum != "none":
            return self._sums.federation(run, parties, recent)
        deadline, shift = self._settings.deadline_seconds, spec.facts().wire_shift
        return HttpFederation(parties, spec.minimum_contributors, deadline, spec.answer_every, recent, shift=shift)

    async def _dismiss(self, run: str) -> None:
        """Tell the parties of a run that was proposed to them, and its key holders, that it has ended.

        A party that does not hear it, does not.
        """
        if self._store.plan(run) is not None:
            parties = [self._roster[name] for name in self._store.run(run).spec.names if name in self._roster]
            await ask_all(parties, lambda party: party.end(run), self._settings.deadline_seconds)
        await self._sums.end(run)

    def _parties(self, spec: RunSpec) -> tuple[PartyClient, ...]:
        """The run's parties in order; raises NotFoundError for one that the roster has no more."""
        if missing := [name for name in spec.names if name not in self._roster]:
            raise NotFoundError(f"the roster does not have {', '.join(missing)}")
        return tuple(self._roster[name] for name in spec.names)

    def _start(self, run: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=run)
        self._tasks[run] = task
        task.add_done_callback(partial(self._ended, run))

    def _ended(self, run: str, task: asyncio.Task[None]) -> None:
        """Forget a task; what it did not foresee fails its run, and is logged without its words."""
        if self._tasks.get(run) is task:
            del self._tasks[run]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            structlog.get_logger().error("run", run=run, error=type(error).__name__, place=place_of(error))
            if self._store.state(run) not in ENDS:
                detail = "an internal error; the learner's log says where"
                self._store.enter(run, "failed", problem=problems.document(500, "internal", detail))
