"""Carries runs from the queue to an end, one asyncio task each.

A run's state and its log are in the store; a task keeps nothing else in memory. So a task that starts again, after a
restart of the service, takes the same steps from the stored state: what is settled is not settled again, a run that is
proposed twice is approved twice, and `drive` replays the rounds that the log holds before it asks for another. Ends are
final, and the store checks every change of state against the table in `parley.learner.runs.states`.

Users take turns. Every user may have one run carried, however many runs others have queued. Where several users have
runs, a user's runs take turns between rounds, one at a time for as long as rounds are short
(`parley.common.service.fair_use`). While others are active, a user with more than one run pauses after each round for
as long as the round took. Without that pause the requests of others would always meet a round, which keeps the learner
and the disk busy.

A party, a key holder or a disk that is out of use for a while loses nothing. Any `UnavailableError` pauses the run;
after a pause the run continues from its state, as after a restart, and the same question costs nothing. A run fails if
a party or key holder refuses, or if the operator's patience is spent. `Patience` counts it: the pauses between attempts
grow, and the run is tried again until they add up to the operator's limit. If owners must decide whether they take
part, the run recruits and waits for as long as their parties allow. While the store itself cannot be written, the
reason for a pause is kept in memory, and the run goes on once it is written.

Between two rounds a program may compute for long, for example a global fit, and the service must answer meanwhile. But
it takes a tenth of a round to hand a step to a thread and back. So `ProgramSteps` runs a step on the event loop only
between two rounds that ask the same question, and only if the last such step was short. The first step, the last, and
any step between two phases of an algorithm run in a thread.

`StoredLog` is a run's reply log in the store: a reply is durable before the program sees it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

import structlog

from parley.common.client.affordable import Candidate
from parley.common.client.approval import Recruited, propose, recruit, views_of
from parley.common.client.federation import HttpFederation, RoundReport
from parley.common.client.party import PartyClient
from parley.common.client.peer import Peer, ask_all, names_in
from parley.common.data.study import Study
from parley.common.errors import (
    AwaitingOwnerError,
    ConflictError,
    DamagedError,
    NotFoundError,
    ParleyError,
    UnavailableError,
)
from parley.common.learning.model import Model
from parley.common.protocol.driver import drive, logged_reply
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Question, Reply
from parley.common.protocol.receipts import Receipt
from parley.common.runs.evaluation import weights_of
from parley.common.runs.model_document import certify, model_document
from parley.common.runs.self_evaluation import SelfEvaluation, keep_for_evaluation
from parley.common.runs.specification import RunSpec
from parley.common.service import logs, problems
from parley.common.service.fair_use import CallerTurns, Turn
from parley.common.service.worker import Worker
from parley.common.wire.party_api import RunProposal, StudyFacts, assumptions_of
from parley.learner.execution.round_report import PublicExamples, Reporter
from parley.learner.execution.witnesses import Witnesses
from parley.learner.runs.plan import Plan
from parley.learner.runs.run import Pause, Run
from parley.learner.runs.states import ENDS
from parley.learner.secure_sum.federation import SecureSumFederation
from parley.learner.settings import LearnerSettings
from parley.learner.storage.public_rows import PublicRowStore
from parley.learner.storage.run_store import RunStore
from parley.learner.storage.timing import UNKNOWN, RoundTime, round_time

if TYPE_CHECKING:
    from parley.learner.secure_sum.coordinator import SecureSumCoordinator

# ── patience ─────────────────────────────────────────────────────────────────

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 60.0  # seconds: doubled each time


class Patience:
    """Allows pauses of ``seconds`` in all. It counts seconds slept: time in which this process was stopped is free.

    >>> patience = Patience(0.02)
    >>> asyncio.run(patience.pause()), patience.is_spent
    (0.02, True)
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._woken = asyncio.Event()
        self.renew()

    @property
    def is_spent(self) -> bool:
        """Whether no seconds remain."""
        return self._remaining <= 0

    def renew(self) -> None:
        """Allow all of the seconds again: the run has moved, or a user has asked for it to go on."""
        self._remaining, self._pause = self._seconds, _FIRST_PAUSE

    def wake(self) -> None:
        """End the pause in progress, if there is one, and allow all of the seconds again."""
        self.renew()
        self._woken.set()

    async def pause(self) -> float:
        """Sleep until it is time to try again, or until woken. Returns the planned length of the pause in seconds."""
        seconds = self._pause if self.is_spent else min(self._pause, self._remaining)
        self._remaining -= seconds
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        return seconds


# ── a program's steps, and its log ───────────────────────────────────────────

_SHORT = 5e-3
"""Seconds that a step may take on the event loop."""


class ProgramSteps:
    """Runs the steps of one program that asks ``questions``, on the event loop or in a thread; an `Advance`."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._questions = questions
        self._answered = 0
        self._is_short = False

    async def __call__(self, step: Callable[[], Query]) -> Query:
        """Compute the next query on the loop or in a thread."""
        answered, self._answered = self._answered, self._answered + 1
        repeats_question = (
            0 < answered < len(self._questions) and self._questions[answered - 1] == self._questions[answered]
        )
        timed = partial(_timed, step)
        query, seconds = timed() if repeats_question and self._is_short else await asyncio.to_thread(timed)
        self._is_short = repeats_question and seconds < _SHORT
        return query


def _timed(step: Callable[[], Query]) -> tuple[Query, float]:
    """Run a step. Returns its query and the seconds that it took, without the wait for its thread."""
    started = time.perf_counter()
    return step(), time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The replies of one run, durable before the program sees them.

    ``length`` is the number of rounds that were logged when the program started: only those are looked up. ``report``
    returns the federation's report on the last round. The ``worker`` does what the store is asked for, in its thread.
    """

    store: RunStore
    worker: Worker
    run: str
    length: int
    peers: tuple[Peer, ...]
    reporter: Reporter
    report: Callable[[], RoundReport]

    async def recall(self, query: Query) -> Reply | None:
        """Return the reply logged for this query, or None; raises ReplayMismatchError if another query was logged."""
        if query.round > self.length:
            return None
        return logged_reply(await self.worker.do(lambda: self.store.reply(self.run, query.round)), query)

    async def append(self, query: Query, reply: Reply) -> None:
        """Commit a reply, the news of its round and the newest receipts."""
        round_report = self.report()
        await self.worker.do(lambda: self._append(query, reply, round_report))

    def _append(self, query: Query, reply: Reply, round_report: RoundReport) -> None:
        receipts = [newest for peer in self.peers if (newest := peer.receipts.newest)]
        notices = self.reporter.notices(query, reply, round_report)
        self.store.append(self.run, query, reply, notices, receipts, opened=round_report.opened)
        _note_stored(self.peers, receipts)


def _note_stored(peers: Sequence[Peer], receipts: Sequence[Receipt]) -> None:
    """Note which receipts of peers are on the disk now."""
    by_name = {receipt.signer: receipt for receipt in receipts}
    for peer in peers:
        peer.receipts.stored = by_name.get(peer.name, peer.receipts.stored)


# ── runs ─────────────────────────────────────────────────────────────────────

_SLICE_SECONDS = 0.25
"""For how long a round counts as its user's turn. A longer round waits for parties, and keeps no other user waiting."""
_REST_SECONDS = 0.05
"""The longest pause after a round of a user with more runs, while others are active: as long as a round takes that
computes on this machine, parties included. A longer round waits for parties elsewhere."""


_RESTORED = (
    "this learner was brought back from a backup, in which later rounds of the run are missing: begin the run again"
)


class Settle(Protocol):
    """Chooses what a run leaves open: the type of `parley.learner.forecasting.selection.settled_among`."""

    async def __call__(  # noqa: PLR0913, PLR0917 -- a run, and what is known of its parties
        self,
        run: RunSpec,
        evaluation: RunSpec | None,
        facts: Mapping[str, StudyFacts],
        payers: Sequence[PartyClient],
        most_rounds: int,
        seconds: float,
        *,
        any_algorithm: bool,
    ) -> Candidate:
        """Return the run with all chosen that it leaves open, among what the accounts of its ``payers`` pay for."""


class Engine:
    """Carries all runs that have not ended, on the ``roster`` of parties by name.

    ``examples`` has the public examples on which runs are measured, by the digest of their study; ``rows`` the public
    rows that runs ask about; ``settle`` chooses what runs leave open. ``unwritten`` has the pauses that could not be
    written to the store, by run.
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- its parts
        self,
        store: RunStore,
        roster: Mapping[str, PartyClient],
        settings: LearnerSettings,
        examples: Mapping[str, PublicExamples],
        rows: PublicRowStore,
        sums: SecureSumCoordinator,
        witnesses: Witnesses,
        settle: Settle,
    ) -> None:
        self.unwritten: dict[str, Pause] = {}
        self._store = store
        self._worker = Worker("log")
        self._roster = roster
        self._settings = settings
        self._examples = examples
        self._rows = rows
        self._sums = sums
        self._witnesses = witnesses
        self._settled = settle
        at_once = settings.concurrent_runs
        self._turns = CallerTurns(
            at_once,
            at_once,
            slice_seconds=_SLICE_SECONDS,
            memory_seconds=_SLICE_SECONDS,
            rest_seconds=_REST_SECONDS,
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._patience: dict[str, Patience] = {}

    def majority(self, study: Study) -> float | None:
        """Return the commonest class's share of a study's public examples, None without any. Call it in a thread."""
        examples = self._examples.get(study.digest)
        return examples.majority if examples else None

    def see(self, user: str) -> None:
        """Note that a user sends a request: meanwhile the runs of others leave this user a part of the machine."""
        self._turns.see(user)

    async def start(self) -> None:
        """Take up every run that has not ended, and every ended run whose key holders have not been informed."""
        unfinished, unended = await asyncio.to_thread(
            lambda: (self._store.unfinished(), self._store.sessions.unended())
        )
        for run in unfinished:
            with logs.about(request=logs.request_id(), run=run):
                structlog.get_logger().info("taken up")
                self.carry(run)
        for run in unended:
            self._start(run, partial(self._dismiss, run))

    def carry(self, run: str) -> None:
        """Carry a run to an end in a task of its own, if it has not ended and is not being carried."""
        if run not in self._tasks:
            self._start(run, partial(self._carry, run))

    def is_carrying(self, run: str) -> bool:
        """Return whether work is done for a run, which goes on for a moment after its end."""
        return run in self._tasks

    async def resume(self, run: str) -> None:
        """Let a paused run go on at once, with all of its patience. A run that is not paused goes on as before.

        Raises ConflictError if the run has ended, NotFoundError if there is none.
        """
        if (state := await asyncio.to_thread(self._store.state, run)) in ENDS:
            raise ConflictError(f"run {run} is {state} and cannot be resumed", state=state)
        structlog.get_logger().info("asked to resume", run=run)
        if patience := self._patience.get(run):
            patience.wake()
        self.carry(run)

    async def cancel(self, run: str) -> None:
        """End a run at once; what its parties have been charged stays charged.

        A second cancellation does nothing. Raises ConflictError if the run has ended in another way, NotFoundError if
        there is none.
        """
        try:
            await asyncio.to_thread(self._store.enter, run, "cancelled")
        except ConflictError as error:
            if error.facts["state"] != "cancelled":
                raise
            return
        if task := self._tasks.pop(run, None):
            task.cancel()
        self._start(run, partial(self._dismiss, run))

    async def stop(self) -> None:
        """Stop carrying runs and leave each in its state: the next `start` takes them up."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._worker.close()

    async def _carry(self, run: str) -> None:
        """Take a run from its state to an end, however often it has to pause."""
        self._patience[run] = patience = Patience(self._settings.patience_seconds)
        try:
            user = (await asyncio.to_thread(self._store.run, run)).user
            while not await self._advance(run, user, patience):
                await patience.pause()
        finally:
            self._patience.pop(run, None)
            self.unwritten.pop(run, None)
        self._start(run, partial(self._dismiss, run))

    async def _advance(self, run: str, user: str, patience: Patience) -> bool:
        """Take a run as far as it goes now, in its user's turn. Returns True if it has ended."""
        try:
            if pause := self.unwritten.get(run):
                await asyncio.to_thread(self._store.pause, run, pause)
                del self.unwritten[run]
            async with self._turns.turn(user) as turn:
                steps: dict[str, Callable[[Run], Awaitable[None]]] = {
                    "queued": self._begin,
                    "recruiting": self._recruit,
                    "running": partial(self._train, turn),
                }
                while (now := await asyncio.to_thread(self._read, run)).state not in ENDS:
                    await steps[now.stage](now)
        except ParleyError as error:
            return await self._pause_or_fail(run, error, patience)
        return True

    async def _pause_or_fail(self, run: str, error: ParleyError, patience: Patience) -> bool:
        """Pause the run after an error from which it can recover, or fail it. Returns True if the run has ended."""
        try:
            now = await asyncio.to_thread(self._store.run, run)
            if now.state in ENDS:
                return True
            state: Literal["paused", "recruiting"] = "recruiting" if isinstance(error, AwaitingOwnerError) else "paused"
            if now.pause is None or now.state != state:  # the run had gone on since its last pause
                patience.renew()
            is_over = patience.is_spent and state == "paused"
            if not isinstance(error, UnavailableError) or is_over:
                problem = problems.document_of(error)
                if await asyncio.to_thread(self._store.was_restored, run):
                    problem |= {"detail": f"{error.detail}; {_RESTORED}"}
                await asyncio.to_thread(self._store.enter, run, "failed", problem=problem)
                return True
            if (pause := _pause(error, now.pause)) != now.pause or now.state != state:
                await asyncio.to_thread(self._store.pause, run, pause, state)
        except UnavailableError as store_error:
            self.unwritten[run] = _pause(store_error, self.unwritten.get(run))
        return False

    async def _begin(self, run: Run) -> None:
        """Start recruiting: it is this run's turn."""
        await asyncio.to_thread(self._store.enter, run.id, "recruiting")

    async def _recruit(self, run: Run) -> None:
        """Settle the run's specification, once; then get every party's approval, which may take several attempts."""
        parties, plan = self._parties(run.spec), await asyncio.to_thread(self._store.plan, run.id)
        seconds, cohort = self._settings.deadline_seconds, run.terms.cohort
        if plan is None:
            recruited = await recruit(run.id, parties, run.spec, seconds, cohort)
            open_ended = run.terms.any_algorithm or "n_rounds" in (await asyncio.to_thread(recruited.spec.settled))[1]
            members = self._parties(recruited.spec)
            time = await round_time(recruited.spec, members, self._store, seconds) if open_ended else UNKNOWN
            await self._settle(run, recruited, time, () if cohort else members)
            return  # to come back with the settled run
        await asyncio.to_thread(plan.check, run.spec)
        await self._ask_witnesses(run)
        proposal = RunProposal(run=run.id, spec=run.spec, user=run.user, purpose=run.purpose)
        is_sum = run.spec.secure_sum != "none"  # every member signs the roster of a secure sum
        approvals, absent = await propose(
            parties,
            proposal,
            self._settings.approval_seconds,
            self._settings.preparation_seconds,
            None if is_sum else cohort,
            _seconds_since(run.pause),
        )
        news: dict[str, object] = {"rounds": plan.rounds}
        news["epsilon"] = {name: approval.epsilon for name, (approval, _) in approvals.items()}
        if absent := run.terms.absent | absent:
            news["absent"] = absent
        if is_sum:
            news["key_holders"] = await self._sums.convene(run, parties)
        await self._keep_receipts(run)
        terms = run.terms.model_copy(update={"absent": absent})
        signed = {name: consent for name, (_, consent) in approvals.items()}
        await asyncio.to_thread(self._store.enter, run.id, "running", news=news, terms=terms, approvals=signed)

    def _read(self, run: str) -> Run:
        """Read a run with its specification. Call it in a thread: a study of many columns takes long."""
        stored = self._store.run(run)
        _ = stored.spec.study.digest  # parses the specification here
        return stored

    async def _settle(self, run: Run, recruited: Recruited, time: RoundTime, payers: Sequence[PartyClient]) -> None:
        """Choose what the run leaves open, among what the accounts of the ``payers`` pay for, and plan it."""

        def divide() -> tuple[SelfEvaluation, RunSpec | None]:
            requested = self._store.evaluation(run.id)
            may = run.terms.may_evaluate
            self_evaluation = keep_for_evaluation(recruited.spec, recruited.facts, requested, if_useful=may)
            return self_evaluation, self_evaluation.evaluation or requested

        self_evaluation, evaluation = await asyncio.to_thread(divide)
        chosen = await self._settled(
            self_evaluation.run,
            evaluation,
            recruited.facts,
            payers,
            time.rounds_in(run.terms.seconds),
            self._settings.deadline_seconds,
            any_algorithm=run.terms.any_algorithm,
        )

        def plan() -> None:
            plan = Plan.of(chosen.spec, views_of(recruited.facts))
            self._store.settle(run, chosen.spec, plan, chosen.reasons, recruited.absent, kept=self_evaluation)

        await asyncio.to_thread(plan)

    async def _train(self, turn: Turn, run: Run) -> None:
        """Drive the program to its model; each round is a slice of its user's turn."""
        await self._ask_witnesses(run)
        parties, measured_on = self._parties(run.spec), self._examples.get(run.spec.study.digest)
        plan, facts, federation = await asyncio.to_thread(self._prepare, run, parties)
        reporter = Reporter(run.spec.names, plan, measured_on)
        peers = self._peers(run)
        log = StoredLog(self._store, self._worker, run.id, run.rounds, peers, reporter, lambda: federation.report)
        steps = ProgramSteps(run.spec.questions())

        async def advance(step: Callable[[], Query]) -> Query:
            await turn.pass_on()
            return await steps(step)

        try:
            model = await drive(run.spec.build().program(facts), federation, run.id, log, advance)
        finally:
            federation.end()
        contributors = [run.spec.names[index] for index in federation.active]
        if (follower := await asyncio.to_thread(self._complete, run, plan, model, contributors)) is not None:
            self.carry(follower)

    def _complete(self, run: Run, plan: Plan, model: Model, contributors: Sequence[str]) -> str | None:
        """End a run with its certified model, and queue its evaluation, if it has one. Call it in a thread.

        Returns the identifier of the evaluation, or None.
        """
        approvals, sums = self._store.approvals(run.id), self._store.sessions.signed(run.id)
        document = model_document(run.spec, plan.guarantees, model, contributors, assumptions_of(approvals))
        document |= {"chosen": run.terms.chosen}
        news: dict[str, object] = {"evaluation": document["evaluation"]} if document["evaluation"] else {}
        measured_on = self._examples.get(run.spec.study.digest)
        if measured_on and model.kind in {"linear", "softmax"}:
            news |= measured_on.measure(model.weights)
        certificate = certify(run.id, run.spec, document, approvals, sums, self._sums.key)
        document |= {"certificate": certificate.model_dump(mode="json")}
        evaluation = self._store.evaluation(run.id)
        if evaluation is not None:
            weights = self._rows.add_weights(weights_of(document))
            evaluation = evaluation.among(run.members).model_copy(update={"public": weights})
        return self._store.complete(run, document, model.weights, news, evaluation)

    def _prepare(
        self, run: Run, parties: tuple[PartyClient, ...]
    ) -> tuple[Plan, FederationFacts, HttpFederation | SecureSumFederation]:
        """Return the plan, the facts and the federation of a run that all have approved. Call it in a thread."""
        plan, spec = self._store.plan(run.id), run.spec
        assert plan is not None  # noqa: S101 -- a run is settled before it is proposed
        plan.check(spec)
        facts, recent = spec.facts(self._rows.load(spec.public) if spec.public else None), self._store.recent(run)
        if spec.secure_sum != "none":
            return plan, facts, self._sums.federation(run, parties, recent)
        return plan, facts, HttpFederation(spec, parties, self._settings.deadline_seconds, recent)

    async def _dismiss(self, run: str) -> None:
        """Inform a run's key holders, and its parties if it was proposed to them, that it has ended.

        A party that cannot be reached is not informed again.
        """
        ended, parties = await asyncio.to_thread(self._read, run), list[PartyClient]()
        if await asyncio.to_thread(self._store.plan, run) is not None:
            parties = [self._roster[name] for name in ended.spec.names if name in self._roster]
        outcomes = await ask_all(parties, lambda party: party.end(run), self._settings.deadline_seconds)
        await self._sums.end(run)
        unreached = [
            name for outcome in outcomes if isinstance(outcome, UnavailableError) for name in names_in(outcome)
        ]
        missed = {"unreached": unreached} if unreached else {}
        structlog.get_logger().info("ended", run=run, informed=len(parties) - len(unreached), **missed)
        await self._keep_receipts(ended)
        await self._witnesses.hand_on(peer.name for peer in self._peers(ended))

    async def _ask_witnesses(self, run: Run) -> None:
        """Ask the run's peers, and all key holders, for the receipts that they hold of each other."""
        await self._witnesses.ask([*run.members, *(holder.name for holder in self._sums.key_holders)])

    async def _keep_receipts(self, run: Run) -> None:
        """Store the newest receipts of a run's peers."""
        peers = self._peers(run)
        receipts = [newest for peer in peers if (newest := peer.receipts.newest)]
        await asyncio.to_thread(self._store.keep, receipts)
        _note_stored(peers, receipts)

    def _peers(self, run: Run) -> tuple[Peer, ...]:
        """Return a run's parties that are on the roster, and its key holders."""
        parties = [self._roster[name] for name in run.spec.names if name in self._roster]
        return (*parties, *(self._sums.key_holders if run.spec.secure_sum != "none" else ()))

    def _parties(self, spec: RunSpec) -> tuple[PartyClient, ...]:
        """Return the run's parties in order; raises NotFoundError if one is no longer on the roster."""
        if missing := [name for name in spec.names if name not in self._roster]:
            raise NotFoundError(f"the roster does not have {', '.join(missing)}")
        return tuple(self._roster[name] for name in spec.names)

    def _start(self, run: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do some work for a run in a task of its own."""
        with logs.about(request=logs.request_id(), run=run):
            task = asyncio.create_task(_outlast(work), name=run)
            self._tasks[run] = task
            task.add_done_callback(partial(self._ended, run, work))

    def _ended(self, run: str, work: Callable[[], Awaitable[None]], task: asyncio.Task[None]) -> None:
        """Forget a task. An unexpected error fails its run; the log names its type and place, not its message."""
        if self._tasks.get(run) is task:
            del self._tasks[run]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            structlog.get_logger().error("run", run=run, error=type(error).__name__, place=logs.place_of(error))
            if not isinstance(work, _Failure):
                self._start(run, _Failure(self._store, run, error))


@dataclass(frozen=True, slots=True)
class _Failure:
    """Fails a run after an unexpected error here, unless the run has ended."""

    store: RunStore
    run: str
    error: BaseException

    async def __call__(self) -> None:
        if await asyncio.to_thread(self.store.state, self.run) not in ENDS:
            if isinstance(self.error, DamagedError):
                problem = problems.document_of(self.error)
            else:
                problem = problems.document(500, "internal", "an internal error; the learner's log says where")
            await asyncio.to_thread(self.store.enter, self.run, "failed", problem=problem)


async def _outlast(work: Callable[[], Awaitable[None]]) -> None:
    """Do some work, and repeat it for as long as the store that it needs is out of use."""
    patience = Patience(math.inf)
    while True:
        try:
            return await work()
        except UnavailableError:
            await patience.pause()


def _seconds_since(pause: Pause | None) -> float:
    """Return the seconds since a run was paused; 0 for a run that is not."""
    return (datetime.now(UTC) - datetime.fromisoformat(pause.since)).total_seconds() if pause else 0.0


def _pause(error: UnavailableError, earlier: Pause | None) -> Pause:
    """Return the pause an error causes; it began with the ``earlier`` pause if that has not ended, otherwise now."""
    since = earlier.since if earlier else datetime.now(UTC).isoformat(timespec="milliseconds")
    return Pause(error.detail, names_in(error), since)
