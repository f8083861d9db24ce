"""How the engine carries runs: what ends them, what they wait for, and what its log says of a fault."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from structlog.testing import capture_logs

from parley.common.client.affordable import Candidate
from parley.common.client.approval import Recruited
from parley.common.client.federation import RoundReport
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import (
    AwaitingOwnerError,
    ConflictError,
    DamagedError,
    NotFoundError,
    ReplayMismatchError,
    UnavailableError,
)
from parley.common.learning.model import Model
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.receipts import Head, Receipt, ReceiptKeeper, read_receipt, write_receipt
from parley.common.runs.certificate import SignedApproval
from parley.common.runs.specification import Budget, Cohort, Member, PublicRows, RunSpec
from parley.common.wire.party_api import Approval, RunProposal
from parley.learner.execution import engine as execution
from parley.learner.execution.engine import Engine, Patience, StoredLog
from parley.learner.execution.round_report import PublicExamples
from parley.learner.execution.witnesses import Witnesses
from parley.learner.runs.plan import Plan
from parley.learner.runs.run import Pause
from parley.learner.runs.states import Notice
from parley.learner.storage.public_rows import PublicRowStore
from parley.learner.storage.run_store import RunStore
from parley.learner.storage.timing import UNKNOWN, RoundTime
from tests.support.ledgers import KEY

STUDY = Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("a", "b")))
SPEC = RunSpec(
    study=STUDY,
    algorithm="dp_gd",
    parameters={},
    parties=tuple(Member(name=name, n_examples=5, budget=Budget(epsilon=1, delta=1e-5)) for name in ("ann", "bob")),
    minimum_contributors=2,
)
FIXED = SPEC.model_copy(update={"parameters": {"n_rounds": 3}})
SINCE = "2026-01-01T00:00:00.000+00:00"


class Sums:
    """Key holders that are informed of ends."""

    key_holders: tuple[Any, ...] = ()
    key: object = None

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def end(self, run: str) -> None:
        self.ended.append(run)


class Asked:
    """A party that notes the runs that it hears have ended."""

    def __init__(self, name: str) -> None:
        self.name, self.ended, self.receipts = name, list[str](), ReceiptKeeper(name)

    async def end(self, run: str) -> None:
        self.ended.append(run)


def received(peer: str) -> tuple[Receipt, ReceiptKeeper]:
    """A receipt that a peer has sent, and its keeper, which knows of none on the disk."""
    receipt = read_receipt(write_receipt(KEY, signer=peer, ledger="0" * 64, head=Head(3, "0" * 64)).text)
    keeper = ReceiptKeeper(peer)
    keeper.newest = receipt
    return receipt, keeper


@asynccontextmanager
async def carrying(folder: Path, *roster: str, **settings: object) -> AsyncIterator[tuple[Engine, RunStore, Sums]]:
    """An engine over a store; its roster has no more than these, who are asked nothing."""
    store, sums = RunStore(folder / "learner.sqlite"), Sums()
    told = {"concurrent_runs": 2, "patience_seconds": 60.0, "deadline_seconds": 5.0} | settings
    parties = {name: Asked(name) for name in roster}
    engine = Engine(
        store,
        cast("Any", parties),
        cast("Any", SimpleNamespace(**told)),
        {STUDY.digest: cast("PublicExamples", SimpleNamespace(majority=0.75))},
        PublicRowStore(folder),
        cast("Any", sums),
        Witnesses({}),
        cast("Any", None),
    )
    try:
        yield engine, store, sums
    finally:
        await engine.stop()
        store.close()


async def until_idle(engine: Engine) -> None:
    """Wait until the engine does no work for any run."""
    async with asyncio.timeout(10):
        while engine._tasks:
            await asyncio.wait(engine._tasks.values())


async def test_a_run_of_owners_who_have_left_fails_by_their_names(tmp_path: Path) -> None:
    async with carrying(tmp_path, "bob") as (engine, store, sums):
        run = store.add(SPEC, "alice").id
        await engine.start()
        await until_idle(engine)
        assert [event.news["state"] for event in store.events(run)] == ["queued", "recruiting", "failed"]
        assert store.run(run).problem == {
            "type": "urn:parley:problem:not-found",
            "title": "Not found",
            "status": 404,
            "detail": "the roster does not have ann",
        }
        assert sums.ended == [run]


async def test_parties_hear_that_a_run_has_ended_if_it_was_proposed_to_them(tmp_path: Path) -> None:
    async with carrying(tmp_path, "ann", "bob") as (engine, store, sums):
        drafted, settled = (store.add(SPEC, "alice") for _ in range(2))
        store.settle(settled, SPEC, Plan(1, {}, ()), {})
        for run in (drafted, settled):
            await engine.cancel(run.id)
            await until_idle(engine)
        assert [party.ended for party in cast("Any", engine._roster).values()] == [[settled.id], [settled.id]]
        assert sums.ended == [drafted.id, settled.id]


async def test_an_end_is_final(tmp_path: Path) -> None:
    async with carrying(tmp_path) as (engine, store, sums):
        cancelled, failed = (store.add(SPEC, "alice").id for _ in range(2))
        await engine.cancel(cancelled)
        await until_idle(engine)
        await engine.cancel(cancelled)
        assert sums.ended == [cancelled]
        store.enter(failed, "failed")
        with pytest.raises(ConflictError, match="is failed and cannot become cancelled"):
            await engine.cancel(failed)
        for run, state in ((cancelled, "cancelled"), (failed, "failed")):
            with pytest.raises(ConflictError, match=rf"^run {run} is {state} and cannot be resumed$") as refused:
                await engine.resume(run)
            assert refused.value.facts == {"state": state}
        for ask in (engine.cancel, engine.resume):
            with pytest.raises(NotFoundError):
                await ask("nobody")


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (
            RuntimeError("0.271828"),
            {
                "type": "urn:parley:problem:internal",
                "title": "Internal",
                "status": 500,
                "detail": "an internal error; the learner's log says where",
            },
        ),
        (
            DamagedError("the row is damaged"),
            {
                "type": "urn:parley:problem:damaged",
                "title": "Damaged",
                "status": 500,
                "detail": "the row is damaged",
            },
        ),
    ],
)
async def test_a_fault_here_fails_its_run_and_is_logged_by_type_and_place(
    tmp_path: Path, error: Exception, problem: dict[str, object]
) -> None:
    async def fails() -> None:
        raise error

    async with carrying(tmp_path) as (engine, store, _):
        run = store.add(SPEC, "alice").id
        with capture_logs() as lines:
            engine._start(run, fails)
            await until_idle(engine)
        line, failed = lines
        assert failed["event"] == "failed"
        assert re.fullmatch(r".*/test_engine\.py:\d+", line.pop("place"))
        assert line == {"event": "run", "run": run, "error": type(error).__name__, "log_level": "error"}
        assert store.run(run).problem == problem
        with capture_logs():
            engine._start(run, fails)
            await until_idle(engine)
        assert [event.news["state"] for event in store.events(run)] == ["queued", "failed"]


async def test_a_fault_of_a_failure_is_logged_once(tmp_path: Path) -> None:
    async with carrying(tmp_path) as (engine, _, _):
        with capture_logs() as lines:
            engine._start("nobody", cast("Any", lambda: 1 / 0))
            await until_idle(engine)
        assert [(line["event"], line["error"]) for line in lines] == [
            ("run", "ZeroDivisionError"),
            ("run", "NotFoundError"),
        ]


async def test_work_is_repeated_while_the_store_is_out_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(patience: Patience) -> float:
        pauses.append(patience._seconds)
        return 0.0

    async def work() -> None:
        if len(pauses) < 3:
            raise UnavailableError("busy")

    monkeypatch.setattr(Patience, "pause", pause)
    await execution._outlast(work)
    assert pauses == [float("inf")] * 3


def test_a_pause_is_told_by_its_reason_and_from_when_it_began() -> None:
    error = UnavailableError("ann cannot be reached", party="ann")
    earlier = Pause("another", ("bob",), SINCE)
    assert execution._pause(error, earlier) == Pause("ann cannot be reached", ("ann",), SINCE)
    first = execution._pause(error, None)
    began = datetime.fromisoformat(first.since)
    assert (first.reason, first.who, len(first.since)) == ("ann cannot be reached", ("ann",), len(SINCE))
    assert abs(datetime.now(UTC) - began) < timedelta(minutes=1)
    assert execution._seconds_since(None) == 0.0
    ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert 3600 <= execution._seconds_since(Pause("", (), ago)) < 3660


async def test_patience_is_spent_by_pauses_and_renewed_by_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.Event, "wait", lambda _: asyncio.sleep(0))
    patience = Patience(1.0)
    assert not patience.is_spent
    assert [await patience.pause() for _ in range(3)] == [0.25, 0.5, 0.25]
    assert patience.is_spent
    assert await patience.pause() == 2.0, "as long as the next would have been"
    patience.renew()
    assert (patience.is_spent, await patience.pause()) == (False, 0.25)


async def test_a_pause_ends_when_it_is_woken() -> None:
    patience = Patience(1e6)
    patience._pause = 1e5
    pausing = asyncio.create_task(patience.pause())
    await asyncio.sleep(0)
    patience.wake()
    async with asyncio.timeout(5):
        assert await pausing == 1e5
    assert patience._pause == 0.25
    patience._pause = 1e5
    again = asyncio.create_task(patience.pause())
    await asyncio.sleep(0)
    assert not again.done(), "an earlier call wakes no later pause"
    again.cancel()


async def test_a_reason_that_lasts_pauses_a_run_until_patience_is_spent(tmp_path: Path) -> None:
    async with carrying(tmp_path) as (engine, store, _):
        run, patience, away = store.add(SPEC, "alice").id, Patience(1.0), UnavailableError("ann is away", party="ann")
        store.enter(run, "recruiting")
        patience._remaining = 0.0
        assert not await engine._pause_or_fail(run, away, patience), "its first pause renews the patience"
        assert not patience.is_spent
        (pause,) = (store.run(run).pause,)
        assert pause is not None
        assert (store.state(run), pause.reason, pause.who) == ("paused", "ann is away", ("ann",))
        n_events = len(store.events(run))
        assert not await engine._pause_or_fail(run, away, patience)
        assert len(store.events(run)) == n_events, "the same pause is told once"
        assert not await engine._pause_or_fail(run, UnavailableError("bob is away", party="bob"), patience)
        assert store.run(run).pause == Pause("bob is away", ("bob",), pause.since)
        patience._remaining = 0.0
        assert await engine._pause_or_fail(run, away, patience)
        assert (store.state(run), store.run(run).problem) == (
            "failed",
            {
                "type": "urn:parley:problem:unavailable",
                "title": "Unavailable",
                "status": 503,
                "detail": "ann is away",
                "party": "ann",
            },
        )
        assert await engine._pause_or_fail(run, away, patience), "it has ended"


async def test_a_run_that_awaits_owners_recruits_for_as_long_as_they_take(tmp_path: Path) -> None:
    async with carrying(tmp_path) as (engine, store, _):
        run, patience = store.add(SPEC, "alice").id, Patience(1.0)
        store.enter(run, "recruiting")
        waits = AwaitingOwnerError("ann decides", party="ann")
        for _ in range(2):
            patience._remaining = 0.0
            assert not await engine._pause_or_fail(run, waits, patience)
            assert store.state(run) == "recruiting"
        found = store.run(run).pause
        assert found is not None
        assert found.reason == "ann decides"
        assert not await engine._pause_or_fail(run, UnavailableError("bob is away", party="bob"), patience)
        assert (store.state(run), patience.is_spent) == ("paused", False)


async def test_a_pause_that_cannot_be_written_is_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise UnavailableError("the disk is full")

    async with carrying(tmp_path) as (engine, store, _):
        run, patience = store.add(SPEC, "alice").id, Patience(1.0)
        with monkeypatch.context() as patched:
            patched.setattr(RunStore, "pause", full)
            assert not await engine._pause_or_fail(run, UnavailableError("ann is away"), patience)
            kept = engine.unwritten[run]
            assert (kept.reason, kept.who) == ("the disk is full", ())
            assert not await engine._pause_or_fail(run, UnavailableError("ann is away"), patience)
            assert engine.unwritten == {run: kept}, "it began then"
            assert not await engine._advance(run, "alice", patience)
        assert await engine._advance(run, "alice", patience), "the roster has nobody, so it fails"
        assert engine.unwritten == {}
        assert [event.news["state"] for event in store.events(run)] == ["queued", "paused", "recruiting", "failed"]
        assert store.events(run)[1].news["reason"] == "the disk is full"


async def test_what_a_run_leaves_in_memory_ends_with_it(tmp_path: Path) -> None:
    async with carrying(tmp_path, "bob") as (engine, store, _):
        run, ended = (store.add(SPEC, "alice").id for _ in range(2))
        store.enter(ended, "failed")
        engine.carry(run)
        engine.carry(run)
        assert [task.get_name() for task in engine._tasks.values()] == [run]
        engine.carry(ended)
        engine.unwritten[ended] = Pause("", (), SINCE)
        await until_idle(engine)
        assert (engine._tasks, engine._patience, engine.unwritten) == ({}, {}, {})
        assert store.state(run) == "failed"


async def test_a_start_takes_up_runs_and_ends_that_key_holders_do_not_know(tmp_path: Path) -> None:
    async with carrying(tmp_path) as (engine, store, sums):
        waiting, ended, known = (store.add(SPEC, "alice").id for _ in range(3))
        for run in (ended, known):
            store.sessions.begin(run, f"session of {run}")
            store.enter(run, "failed")
        store.sessions.end(known)
        await engine.start()
        assert set(engine._tasks) == {waiting, ended}
        await until_idle(engine)
        assert sorted(sums.ended) == sorted([waiting, ended])
        assert (store.state(waiting), known in sums.ended) == ("failed", False)


async def test_receipts_of_a_runs_peers_are_kept_and_handed_on_at_its_end(tmp_path: Path) -> None:
    handed: list[list[str]] = []

    async def hand_on(names: Iterable[str]) -> None:
        handed.append(list(names))

    async with carrying(tmp_path, "ann", "eve") as (engine, store, sums):
        peers = cast("Any", engine._roster)
        kept, peers["ann"].receipts = received("ann")
        _, peers["eve"].receipts = received("eve")
        sums.key_holders = (Asked("kim"),)
        engine._witnesses = cast("Any", SimpleNamespace(hand_on=hand_on))
        for spec in (SPEC, SPEC.model_copy(update={"secure_sum": "paillier"})):
            await engine.cancel(store.add(spec, "alice").id)
            await until_idle(engine)
        assert store.receipts() == {"ann": kept}
        assert [peer.receipts.stored for peer in (*peers.values(), *sums.key_holders)] == [kept, None, None]
        assert handed == [["ann"], ["ann", "kim"]]


async def test_a_runs_members_and_all_key_holders_are_asked_as_its_witnesses(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    async def ask(names: Iterable[str]) -> None:
        asked.append(list(names))

    async with carrying(tmp_path) as (engine, store, sums):
        sums.key_holders = (Asked("kim"),)
        engine._witnesses = cast("Any", SimpleNamespace(ask=ask))
        await engine._ask_witnesses(store.add(SPEC, "alice"))
        assert asked == [["ann", "bob", "kim"]]


async def test_users_take_turns_of_a_quarter_of_a_second(tmp_path: Path) -> None:
    async with carrying(tmp_path, concurrent_runs=7) as (engine, _, _):
        turns = engine._turns
        assert (turns._per_caller, turns._total) == (7, 7)
        assert (turns._slice, turns._memory, turns._most_rest) == (0.25, 0.25, 0.05)
        assert [thread.name for thread in engine._worker._threads] == ["log_0"]
        engine.see("alice")
        assert list(turns._seen) == ["alice"]


async def test_a_resumed_run_goes_on_at_once(tmp_path: Path) -> None:
    async with carrying(tmp_path) as (engine, store, _):
        run = store.add(SPEC, "alice").id
        engine._patience[run] = patience = Patience(1.0)
        patience._remaining = 0.0
        await engine.resume(run)
        assert (patience.is_spent, patience._woken.is_set()) == (False, True)
        await until_idle(engine)
        assert store.state(run) == "failed", "it was carried: the roster has nobody"


async def test_a_run_is_settled_among_those_it_has_recruited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[object, ...]] = []
    facts = cast("Any", {"ann": SimpleNamespace(view="transcript")})
    among = SPEC.model_copy(update={"parties": SPEC.parties[:1], "minimum_contributors": 1})

    async def recruit(*given: object) -> Recruited:
        told.append(("recruit", *given))
        return Recruited(among, facts, {"bob": "it is away"})

    async def round_time(*given: object) -> RoundTime:
        told.append(("round_time", *given))
        return RoundTime(1000.0, "measured")

    async def settled(*given: object, any_algorithm: bool) -> Candidate:
        told.append(("settled", *given, any_algorithm))
        return Candidate(among.settled(2)[0], {"n_rounds": "as many as fit"})

    monkeypatch.setattr(execution, "recruit", recruit)
    monkeypatch.setattr(execution, "round_time", round_time)
    async with carrying(tmp_path, "ann", "bob", deadline_seconds=7.0) as (engine, store, _):
        engine._settled = cast("Any", settled)
        ann, bob = cast("Any", engine._roster).values()
        for draft, is_open, cohort in ((SPEC, False, Cohort(least=1)), (SPEC, True, None), (FIXED, False, None)):
            told.clear()
            run = store.add(draft, "alice", seconds=2.5, any_algorithm=is_open, cohort=cohort)
            among = among.model_copy(update={"parameters": draft.parameters})
            await engine._recruit(run)
            first, *timed, last = told
            assert first == ("recruit", run.id, (ann, bob), draft, 7.0, cohort)
            assert timed == ([] if draft is FIXED else [("round_time", among, (ann,), store, 7.0)])
            most = UNKNOWN.rounds_in(2.5) if draft is FIXED else 2
            payers = (ann,) if cohort is None else ()
            assert last == ("settled", among, None, facts, payers, most, 7.0, is_open), (
                "a cohort leaves out who refuses"
            )
            kept = store.run(run.id)
            assert kept.spec == among.settled(2)[0]
            assert (kept.terms.chosen, kept.terms.absent) == ({"n_rounds": "as many as fit"}, {"bob": "it is away"})
            plan = Plan.of(kept.spec, {"ann": "transcript"})
            assert store.plan(run.id) == Plan.from_json(plan.to_json())
            assert store.state(run.id) == "queued", "it comes back with the settled run"


@pytest.mark.parametrize("secure_sum", ["none", "paillier"])
async def test_a_settled_run_is_proposed_and_runs_with_those_who_approve(  # noqa: PLR0915 -- a run and its peers
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure_sum: str
) -> None:
    told: list[tuple[object, ...]] = []
    consent = SignedApproval(approval="{}", receipt="a.b")

    async def propose(*given: object) -> tuple[dict[str, object], dict[str, str]]:
        told.append(given)
        return {"ann": (SimpleNamespace(epsilon=0.5), consent)}, {"bob": "its owner is away"}

    async def convene(*given: object) -> list[str]:
        told.append(given)
        return ["kim"]

    async def ask(_: object) -> None:
        told.append(("witnesses",))

    monkeypatch.setattr(execution, "propose", propose)
    settings = {"approval_seconds": 8.0, "preparation_seconds": 9.0}
    async with carrying(tmp_path, "ann", "bob", **settings) as (engine, store, sums):
        engine._witnesses = cast("Any", SimpleNamespace(ask=ask))
        sums.convene = convene  # type: ignore[attr-defined]  # of a test alone
        parties = cast("Any", engine._roster)
        kept, parties["ann"].receipts = received("ann")
        cohort, spec = Cohort(least=1), SPEC.model_copy(update={"secure_sum": secure_sum})
        run = store.add(spec, "alice", purpose="to see", cohort=cohort)
        store.settle(run, spec, Plan(rounds := len(spec.questions()), {}, ()), {}, {"eve": "it left"})
        store.enter(run.id, "recruiting")
        store.pause(run.id, Pause("waits", (), (datetime.now(UTC) - timedelta(hours=1)).isoformat()), "recruiting")
        now = store.run(run.id)
        await engine._recruit(now)
        witnesses, proposed, *convened = told
        assert witnesses == ("witnesses",)
        *given, waited = proposed
        proposal = RunProposal(run=run.id, spec=spec, user="alice", purpose="to see")
        both = (parties["ann"], parties["bob"])
        assert given == [both, proposal, 8.0, 9.0, cohort if secure_sum == "none" else None]
        assert 3600 <= cast("float", waited) < 3660
        absent = {"eve": "it left", "bob": "its owner is away"}
        news = {"state": "running", "rounds": rounds, "epsilon": {"ann": 0.5}, "absent": absent}
        if secure_sum != "none":
            news["key_holders"] = ["kim"]
        assert convened == ([] if secure_sum == "none" else [(now, both)])
        assert store.events(run.id)[-1].news == news
        assert store.run(run.id).terms == now.terms.model_copy(update={"absent": absent})
        assert store.approvals(run.id) == {"ann": consent}
        assert store.receipts() == {"ann": kept}
        assert [party.receipts.stored for party in both] == [kept, None]


@pytest.mark.parametrize("kind", ["linear", "softmax", "members"])
async def test_an_end_has_a_certified_model_its_figures_and_its_evaluation(  # noqa: PLR0915 -- all that an end has
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    told: list[tuple[object, ...]] = []
    figures = {"accuracy": 0.5} if kind == "members" else None

    def document(*given: object) -> dict[str, object]:
        told.append(given)
        return {"kind": kind, "evaluation": figures, "weights": [0.5, 0.25]}

    def certify(*given: object) -> SimpleNamespace:
        told.append(given)
        return SimpleNamespace(model_dump=lambda mode: {"run": "signed", "mode": mode})

    monkeypatch.setattr(execution, "model_document", document)
    monkeypatch.setattr(execution, "certify", certify)
    monkeypatch.setattr(execution, "weights_of", lambda given: np.array([given["weights"]]))
    async with carrying(tmp_path) as (engine, store, sums):
        sums.key = "the learner's key"
        measured = SimpleNamespace(measure=lambda weights: {"objective": weights[0]})
        engine._examples = {STUDY.digest: cast("PublicExamples", measured)}
        spec = SPEC.model_copy(update={"minimum_contributors": 1})
        run = store.add(spec, "alice", evaluation=spec, cohort=Cohort(least=1))
        approval = Approval(
            run="run",
            spec_digest="0",
            rounds=1,
            epsilon=1,
            delta=0,
            adjacency="replace_one",
            prepared=True,
            people="ward-7",
        )
        plan, consent = (
            Plan(1, {}, ({"view": "model"},)),
            SignedApproval(approval=approval.model_dump_json(), receipt="a.b"),
        )
        store.settle(run, spec, plan, {"step": "why"}, {"bob": "it is away"})
        store.enter(run.id, "recruiting")
        store.enter(run.id, "running", approvals={"ann": consent})
        run, model = store.run(run.id), SimpleNamespace(kind=kind, weights=np.array([0.5, 0.25]))
        follower = engine._complete(run, plan, cast("Model", model), ["ann"])
        drawn, certified = told
        assert drawn[:4] == (spec, ({"view": "model"},), model, ["ann"])
        (assumed,) = cast("tuple[str]", drawn[4])
        assert assumed.startswith("nobody among ward-7, of ann, ")
        *given, approvals, opened, key = certified
        assert given[:2] == [run.id, spec]
        assert cast("Any", given[2])["chosen"] == {"step": "why"}
        assert (approvals, opened, key) == ({"ann": consent}, None, "the learner's key")
        kept = store.model(run.id)
        assert (kept["chosen"], kept["certificate"]) == ({"step": "why"}, {"run": "signed", "mode": "json"})
        assert follower is not None
        news: dict[str, object] = {"state": "completed", "evaluated_by": follower}
        news |= {"objective": 0.5} if kind != "members" else {"evaluation": figures}
        assert store.events(run.id)[-1].news == news
        evaluation = store.run(follower).spec
        assert evaluation.names == ("ann",)
        assert evaluation.public == PublicRows.of(np.array([[0.5, 0.25]]))
        assert engine._rows.load(evaluation.public).tolist() == [[0.5, 0.25]]


async def test_a_reply_is_logged_with_its_news_and_recalled_by_its_query(tmp_path: Path) -> None:
    peers: Any = (Asked("ann"), Asked("bob"))
    kept, peers[0].receipts = received("ann")
    told: list[tuple[object, ...]] = []

    def notices(*given: object) -> list[Notice]:
        told.append((*given, peers[0].receipts.stored))
        return [Notice("round", {"round": 1})]

    async with carrying(tmp_path) as (engine, store, _):
        run, report = store.add(SPEC, "alice").id, RoundReport(seconds=7.0)
        reporter: Any = SimpleNamespace(notices=notices)
        log = StoredLog(store, engine._worker, run, 1, peers, reporter, lambda: report)
        query, reply = Query(1, "gradient", np.array([0.5])), Reply(np.array([0.25]), (0,))
        assert await log.recall(query) is None
        await log.append(query, reply)
        assert told == [(query, reply, report, None)], "what is not on the disk yet is not noted as stored"
        assert [event.kind for event in store.events(run)] == ["state", "round"]
        assert store.receipts() == {"ann": kept}
        assert [peer.receipts.stored for peer in peers] == [kept, None]
        recalled = await log.recall(query)
        assert recalled is not None
        assert (recalled.value.tolist(), recalled.contributors) == ([0.25], (0,))
        with pytest.raises(ReplayMismatchError):
            await log.recall(Query(1, "gradient", np.array([0.75])))
        assert await log.recall(Query(2, "gradient", np.array([0.5]))) is None
        await log.append(Query(2, "gradient", np.array([0.5])), reply)
        assert await log.recall(Query(2, "gradient", np.array([0.5]))) is None, "it was asked after the start"


async def test_a_learner_says_how_common_the_commonest_class_is(tmp_path: Path) -> None:
    async with carrying(tmp_path) as (engine, _, _):
        assert engine.majority(STUDY) == 0.75
        assert engine.majority(STUDY.model_copy(update={"title": "another"})) is None
