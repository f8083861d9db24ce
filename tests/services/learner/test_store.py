"""The learner's store and the table of states."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from parley.common.encoding.npy import pack_array
from parley.common.errors import (
    ConflictError,
    DamagedError,
    InvalidInputError,
    NotFoundError,
    ShareUsedUpError,
    UnavailableError,
)
from parley.common.protocol.cautions import cautions
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.receipts import Head, Receipt, read_receipt, write_receipt
from parley.common.runs.certificate import SignedApproval
from parley.common.runs.evaluation import evaluation_spec
from parley.common.runs.specification import Cohort, RunSpec, digest_of_rows
from parley.common.service.fair_use import Share
from parley.common.storage.sqlite import Database
from parley.learner.api.schemas import ListedRun
from parley.learner.runs.plan import Plan
from parley.learner.runs.run import Pause, Run, RunTerms, readable
from parley.learner.runs.states import ENDS, TRANSITIONS, Notice, RunState
from parley.learner.storage import statements
from parley.learner.storage.public_rows import MAX_BYTES, PublicRowStore
from parley.learner.storage.roster_store import Invited, JoinedMember, RosterStore
from parley.learner.storage.run_store import RunStore
from scripts.loopback import resident_mb
from tests.support.cluster import Cluster
from tests.support.ledgers import KEY
from tests.support.rounds import run_spec

PAUSE = Pause("party-1 did not answer", ("party-1",), "2026-01-01T00:00:00.000+00:00")
STATES: tuple[RunState, ...] = get_args(RunState)
PATHS: dict[RunState, tuple[RunState, ...]] = {
    "queued": (),
    "recruiting": ("recruiting",),
    "running": ("recruiting", "running"),
    "paused": ("recruiting", "paused"),
    "completed": ("recruiting", "running", "completed"),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    store = RunStore(tmp_path / "learner.sqlite")
    yield store
    store.close()


@pytest.fixture
def run(store: RunStore, tmp_path: Path) -> str:
    return store.add(run_spec(Cluster(tmp_path, n_parties=2)), "alice").id


def test_an_evaluation_is_queued_with_the_end_of_its_run_or_not_at_all(store: RunStore, tmp_path: Path) -> None:
    spec = run_spec(Cluster(tmp_path, n_parties=2, hold_out=0.25))
    draft = evaluation_spec(spec, {member.name: member.budget for member in spec.parties}, {})
    first = store.add(spec, "alice", purpose="to see", evaluation=draft)
    assert store.evaluation(first.id) == draft
    model = {"kind": "linear", "weights": [1.0, 2.0]}
    with pytest.raises(ConflictError, match="is queued and cannot become completed"):
        store.complete(first, model, np.array([1.0, 2.0]), {}, draft)
    assert (store.run(first.id).evaluations, store.unfinished()) == ((), [first.id])
    for state in PATHS["running"]:
        store.enter(first.id, state)
    follower = store.complete(first, model, np.array([1.0, 2.0]), {"accuracy": 1.0}, draft)
    assert follower
    assert json.loads(store.events(first.id)[-1].data) == {
        "state": "completed",
        "accuracy": 1.0,
        "evaluated_by": follower,
    }
    queued = store.run(follower)
    assert (queued.state, queued.user, queued.purpose, queued.evaluates) == ("queued", "alice", "to see", first.id)
    assert (queued.spec, store.evaluation(follower)) == (draft, None)
    assert (store.run(first.id).evaluations, store.unfinished()) == ((follower,), [follower])
    for document in (store.model(first.id), store.evaluated_model(first.id)):
        assert {**document, "weights": document["weights"].tolist()} == model
    second = store.add(draft, "alice", evaluates=first.id)
    assert store.run(first.id).evaluations == (follower, second.id)
    with pytest.raises(NotFoundError):
        store.evaluation("nobody")


def test_an_older_store_is_migrated(tmp_path: Path) -> None:
    path, spec = tmp_path / "learner.sqlite", run_spec(Cluster(tmp_path, n_parties=2))
    terms = RunTerms.of(spec, 60.0, {}).model_dump_json()
    newer = ("TABLE copied", "TABLE restores")
    older = [table for table in statements.STORE_SCHEMA.tables if not any(name in table for name in newer)]
    later = ("approvals", "weights", "model_digest", "ended_at", "threshold")
    older[0] = "\n".join(line for line in older[0].splitlines() if not any(word in line for word in later))
    with closing(sqlite3.connect(path)) as file:
        for table in older:
            file.execute(table)
        file.execute(f"PRAGMA application_id = {statements.STORE_SCHEMA.application}")
        file.execute("PRAGMA user_version = 2")
        created, spec_text, model = PAUSE.since, spec.model_dump_json(), '{"weights": [1.0]}'  # as it was kept then
        values = ("old", "alice", "", "digest", created, "queued", "queued", spec_text, terms, model)
        columns = "id, user, purpose, draft, created, state, stage, spec, terms, model"
        file.execute(f"INSERT INTO runs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)  # noqa: S608 -- ours
        file.commit()
    with closing(RunStore(path)) as store:
        old = store.run("old")
        assert (old.evaluates, old.evaluations, old.spec) == (None, (), spec)
        assert store.evaluation("old") is None
        new = store.add(spec, "alice", evaluates="old")
        assert store.run("old").evaluations == (new.id,)
        assert store.model("old") == {"weights": [1.0]}


def test_the_table_knows_every_state() -> None:
    assert set(TRANSITIONS) == set(PATHS) == set(STATES)
    assert {"completed", "failed", "cancelled"} == ENDS


@pytest.mark.parametrize(("state", "follower"), list(product(STATES, STATES)))
def test_runs_change_state_by_the_table_alone(store: RunStore, run: str, state: RunState, follower: RunState) -> None:
    def move(to: RunState) -> None:
        store.pause(run, PAUSE) if to == "paused" else store.enter(run, to)

    for step in PATHS[state]:
        move(step)
    n_events = len(store.events(run))
    if follower in TRANSITIONS[state]:
        move(follower)
        assert store.state(run) == follower
        assert len(store.events(run)) == n_events + 1
    else:
        with pytest.raises(ConflictError, match=f"is {state} and cannot become {follower}"):
            move(follower)
        assert store.state(run) == state
        assert len(store.events(run)) == n_events
    assert (run in store.unfinished()) == (store.state(run) not in ENDS)
    assert store.count() == {store.state(run): 1}


def test_a_second_learner_is_kept_out(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="another learner uses the state directory"):
        RunStore(tmp_path / "learner.sqlite")
    store.close()
    RunStore(tmp_path / "learner.sqlite").close()


def test_a_round_is_logged_as_it_was(store: RunStore, run: str) -> None:
    query, reply = Query(1, "gradient", np.array([0.1, 1e-300])), Reply(np.array([[1 / 3, -0.0]]), (1,))
    news = [Notice("dropped", {"party": "party-1"}), Notice("round", {"round": 1})]
    store.append(run, query, reply, news, [])
    assert store.reply(run, 2) is None
    stored = store.reply(run, 1)
    assert stored is not None
    assert stored[0] == query.digest
    assert stored[1].contributors == (1,)
    assert stored[1].value.shape == (1, 2)
    assert stored[1].value.tobytes() == reply.value.tobytes()
    assert store.recent(store.run(run)) == [(1,)]
    assert [event.kind for event in store.events(run)] == ["state", "dropped", "round"]


def test_wide_replies_and_weights_are_kept_to_the_bit_and_not_in_memory(store: RunStore, run: str) -> None:
    wide = np.random.default_rng(1).normal(size=(2, 2, 2**20))  # 32 MiB
    reply = Reply(wide.reshape(4, -1), (0, 1, 2, 3))
    for state in PATHS["running"]:
        store.enter(run, state)
    before = resident_mb(os.getpid())
    store.append(run, Query(1, "release", np.zeros(0)), reply, [], [])
    store.complete(store.run(run), {"kind": "members", "weights": None}, wide, {})
    assert resident_mb(os.getpid()) - before < 16
    stored = store.reply(run, 1)
    assert stored is not None
    assert stored[1].value.tobytes() == wide.tobytes()
    assert np.array(store.model(run)["weights"]).tobytes() == wide.tobytes()


def receipt(party: str, count: int) -> Receipt:
    """A receipt of a ledger with so many entries."""
    head = Head(count, f"{count:064x}")
    return read_receipt(write_receipt(KEY, signer=party, ledger="0" * 64, head=head).text)


def test_the_newest_receipt_is_kept(store: RunStore) -> None:
    for count in (3, 5):
        store.keep([receipt("party-1", count), receipt("party-2", 7)])
    assert store.receipts() == {"party-1": receipt("party-1", 5), "party-2": receipt("party-2", 7)}


def test_listens_to_its_own_news(tmp_path: Path) -> None:
    heard: list[tuple[str, list[str]]] = []
    store = RunStore(
        tmp_path / "learner.sqlite", lambda run, events: heard.append((run, [event.kind for event in events]))
    )
    run = store.add(run_spec(Cluster(tmp_path, n_parties=2)), "alice").id
    store.enter(run, "recruiting")
    store.append(run, Query(1, "gradient", np.zeros(1)), Reply(np.zeros(1), (0,)), [Notice("round", {})], [])
    store.close()
    to_be_read: tuple[str, list[str]] = (run, [])
    assert heard == [to_be_read, to_be_read, (run, ["round"])], "a round's event is told, what else is new is read"


def test_an_end_with_its_evaluation_is_news_of_both(tmp_path: Path, spec: RunSpec) -> None:
    heard: list[tuple[str, list[str]]] = []
    with closing(
        RunStore(tmp_path / "store.sqlite", lambda run, events: heard.append((run, [event.data for event in events])))
    ) as store:
        run = running(store, spec)
        heard.clear()
        follower = store.complete(run, {"kind": "linear", "weights": None}, np.array([0.5]), {}, spec)
        (end,) = [event.data for event in store.events(run.id) if event.news["state"] == "completed"]
    assert heard == [(run.id, [end]), (follower, [])]


def test_does_not_know_an_unknown_run(store: RunStore) -> None:
    for look in (store.run, store.state, store.plan, store.model):
        with pytest.raises(NotFoundError, match="there is no run 'nobody'"):
            look("nobody")
    with pytest.raises(NotFoundError):
        store.enter("nobody", "failed")


def test_a_list_shows_a_run_with_its_largest_epsilon_and_a_pause_that_could_not_be_written(
    store: RunStore, tmp_path: Path
) -> None:
    run = store.add(run_spec(Cluster(tmp_path, n_parties=2)), "alice", purpose="to see")
    assert ListedRun.of(run).model_dump() == {
        "id": run.id,
        "user": "alice",
        "purpose": "to see",
        "created": run.created,
        "state": "queued",
        "study": run.spec.study.name,
        "algorithm": run.spec.algorithm,
        "epsilon": max(run.terms.epsilon.values()),
        "secure_sum": "none",
        "evaluates": None,
        "rounds": {"done": 0, "of": run.terms.n_rounds},
        "pause": None,
        "problem": None,
    }
    paused = ListedRun.of(run, PAUSE)
    assert paused.state == "paused"
    assert paused.pause is not None
    assert (paused.pause.reason, paused.pause.written) == (PAUSE.reason, False)


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    """The specification of a run among three parties."""
    return run_spec(Cluster(tmp_path, makes_ledgers=False, n_parties=3))


def row_of(store: RunStore, run: str, *left_out: str) -> dict[str, Any]:
    """A run's row, as it is on the disk; it has the time of its end if it has ended."""
    with store._database.reading() as connection:
        row = dict(connection.execute("SELECT * FROM runs WHERE id = ?", (run,)).fetchone())
    assert (row.pop("ended_at") is not None) == (row["state"] in ENDS)
    return {column: value for column, value in row.items() if column not in left_out}


def change(store: RunStore, statement: str, *values: object) -> None:
    """Change what is on the disk."""
    with store._database.transaction() as connection:
        connection.execute(statement, values)


def test_a_new_run_is_kept_with_all_that_it_was_asked_for(store: RunStore, spec: RunSpec) -> None:
    cohort = Cohort(least=2)
    first = store.add(spec, "alice").id
    run = store.add(
        spec, "bob", "key", "to see", 5.0, evaluates=first, evaluation=spec, any_algorithm=True, cohort=cohort
    )
    row = row_of(store, run.id)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", row.pop("created"))
    assert re.fullmatch(r"[0-9a-f]{32}", run.id)
    assert row == {
        "id": run.id,
        "user": "bob",
        "purpose": "to see",
        "idempotency_key": "key",
        "draft": spec.digest + cohort.model_dump_json() + spec.digest,
        "state": "queued",
        "stage": "queued",
        "spec": spec.model_dump_json(),
        "terms": RunTerms.of(spec, 5.0, {}, any_algorithm=True, cohort=cohort).model_dump_json(),
        "evaluates": first,
        "evaluation": spec.model_dump_json(),
        **dict.fromkeys(("approvals", "plan", "problem", "pause", "model", "weights", "model_digest", "threshold")),
    }
    plain = row_of(store, first)
    assert (plain["purpose"], plain["idempotency_key"], plain["evaluates"], plain["evaluation"]) == ("", *[None] * 3)
    assert plain["terms"] == RunTerms.of(spec, 60.0, {}).model_dump_json()
    assert plain["draft"] == spec.digest
    assert [(event.kind, event.news) for event in store.events(run.id)] == [("state", {"state": "queued"})]


ORDER: dict[str, Any] = {"purpose": "to see", "seconds": 5.0, "cohort": Cohort(least=2)}


@pytest.mark.parametrize(
    "other",
    [
        {"purpose": "to look"},
        {"seconds": 6.0},
        {"cohort": Cohort(least=3)},
        {"cohort": None},
        {"any_algorithm": True},
        {"evaluation": run_spec},
        {"draft": run_spec},
    ],
)
def test_a_key_stands_for_one_order_of_one_user(
    store: RunStore, spec: RunSpec, tmp_path: Path, other: dict[str, Any]
) -> None:
    run = store.add(spec, "alice", "key", **ORDER)
    assert store.add(spec, "alice", "key", **ORDER) == run
    assert store.add(spec, "bob", "key", **ORDER).id != run.id
    another = run_spec(Cluster(tmp_path / "other", makes_ledgers=False, n_parties=2))
    order = {"draft": spec, **ORDER, **{name: another if value is run_spec else value for name, value in other.items()}}
    with pytest.raises(ConflictError, match="key has been used for another run"):
        store.add(order.pop("draft"), "alice", "key", **order)
    assert store.count() == {"queued": 2}


def test_a_key_still_stands_for_an_order_whose_algorithm_was_then_chosen(store: RunStore, spec: RunSpec) -> None:
    run = store.add(spec, "alice", "key", any_algorithm=True)
    store.settle(run, spec, Plan(1, {}, ()), {"algorithm": "the best"})
    assert store.add(spec, "alice", "key", any_algorithm=True).id == run.id
    with pytest.raises(ConflictError):
        store.add(spec, "alice", "key")
    change(store, "UPDATE runs SET terms = '{'")
    with pytest.raises(DamagedError, match=f"the row of run '{run.id}' in the table 'runs'"):
        store.add(spec, "alice", "key", any_algorithm=True)


def test_a_users_unfinished_runs_are_counted_as_its_share(store: RunStore, spec: RunSpec) -> None:
    share = Share("queued_runs", 1, "runs", "wait", 60)
    run = store.add(spec, "alice", "key", share=share).id
    assert store.add(spec, "alice", "key", share=share).id == run
    with pytest.raises(ShareUsedUpError, match="alice has 1 runs"):
        store.add(spec, "alice", share=share)
    store.add(spec, "bob", share=share)
    store.enter(run, "cancelled")
    store.add(spec, "alice", share=share)


def test_a_change_of_state_keeps_what_it_brings(store: RunStore, spec: RunSpec) -> None:
    run = store.add(spec, "alice")
    before = row_of(store, run.id)
    store.enter(run.id, "recruiting")
    assert row_of(store, run.id) == before | {"state": "recruiting", "stage": "recruiting"}
    store.pause(run.id, PAUSE, "recruiting")
    pause = '{"reason": "party-1 did not answer", "who": ["party-1"], "since": "2026-01-01T00:00:00.000+00:00"}'
    assert row_of(store, run.id) == before | {"state": "recruiting", "stage": "recruiting", "pause": pause}
    assert store.run(run.id).pause == PAUSE
    terms, signed = (
        run.terms.model_copy(update={"absent": {"party-3": "away"}}),
        SignedApproval(approval="{}", receipt="a.b"),
    )
    store.enter(run.id, "running", news={"rounds": 7}, terms=terms, approvals={"party-1": signed})
    running = before | {
        "state": "running",
        "stage": "running",
        "terms": terms.model_dump_json(),
        "approvals": '{"party-1":{"approval":"{}","receipt":"a.b"}}',
    }
    assert row_of(store, run.id) == running
    assert store.approvals(run.id) == {"party-1": signed}
    assert store.run(run.id).members == ("party-1", "party-2")
    store.pause(run.id, PAUSE)
    assert row_of(store, run.id) == running | {"state": "paused", "pause": pause}
    store.enter(run.id, "failed", problem={"type": "x"})
    assert row_of(store, run.id) == running | {"state": "failed", "stage": "failed", "problem": '{"type": "x"}'}
    assert store.run(run.id).problem == {"type": "x"}
    assert [event.news for event in store.events(run.id)] == [
        {"state": "queued"},
        {"state": "recruiting"},
        {"state": "recruiting", **PAUSE.to_json()},
        {"state": "running", "rounds": 7},
        {"state": "paused", **PAUSE.to_json()},
        {"state": "failed", "problem": {"type": "x"}},
    ]
    assert {event.kind for event in store.events(run.id)} == {"state"}


def running(store: RunStore, spec: RunSpec, **order: Any) -> Run:  # noqa: ANN401 -- of any order
    """A new run whose rounds are asked."""
    run = store.add(spec, "alice", **order)
    for state in PATHS["running"]:
        store.enter(run.id, state)
    return store.run(run.id)


def test_an_end_keeps_the_model_and_queues_the_evaluation_on_the_same_terms(store: RunStore, spec: RunSpec) -> None:
    cohort = Cohort(least=2)
    run = running(store, spec, purpose="to see", cohort=cohort)
    before = row_of(store, run.id, "weights")
    follower = store.complete(run, {"kind": "linear", "weights": [7.0], "b": 1}, np.array([0.5]), {"accuracy": 1}, spec)
    assert follower is not None
    text = '{"kind": "linear", "weights": null, "b": 1}'
    after = row_of(store, run.id, "weights")
    assert after == before | {
        "state": "completed",
        "stage": "completed",
        "model": text,
        "model_digest": statements.digest_of_model(text, row_of(store, run.id)["weights"]),
    }
    queued = row_of(store, follower, "created")
    assert (queued["terms"], queued["spec"]) == (
        RunTerms.of(spec, 60.0, {}, cohort=cohort).model_dump_json(),
        spec.model_dump_json(),
    )
    assert (queued["user"], queued["purpose"], queued["evaluates"]) == ("alice", "to see", run.id)
    assert queued["idempotency_key"] is None
    assert store.model(run.id) == {"kind": "linear", "b": 1, "weights": [0.5]}
    assert list(store.model(run.id)) == ["kind", "b", "weights"]
    last = running(store, spec)
    assert store.complete(last, {"kind": "linear", "weights": None}, np.array([0.5]), {}) is None
    assert store.events(last.id)[-1].news == {"state": "completed"}


def test_an_evaluated_model_has_the_figures_of_the_newest_evaluation_that_can_be_read(
    store: RunStore, spec: RunSpec
) -> None:
    def end(run: Run, **document: object) -> None:
        store.complete(run, {"kind": "linear", "weights": None, **document}, np.array([0.5]), {})

    model = running(store, spec)
    with pytest.raises(ConflictError, match=f"run {model.id} is running; it has no model") as refused:
        store.model(model.id)
    assert refused.value.facts == {"state": "running"}
    end(model, evaluation=None)
    assert store.evaluated_model(model.id) == store.model(model.id)
    for figure in (0.5, 0.75):
        end(evaluation := running(store, spec, evaluates=model.id), evaluation={"accuracy": figure}, certificate=figure)
        assert store.evaluated_model(model.id)["evaluation"] == {
            "accuracy": figure,
            "run": evaluation.id,
            "certificate": figure,
        }
    change(store, "UPDATE runs SET model_digest = '' WHERE id = ?", evaluation.id)
    assert store.evaluated_model(model.id) == store.model(model.id)


def test_a_threshold_is_chosen_by_the_rule_and_the_newest_evaluation_whenever_the_model_is_read(
    store: RunStore, spec: RunSpec
) -> None:
    def point(score: float, recall: float) -> dict[str, Any]:
        return {"score": score, "recall": {"estimate": recall}}

    def end(run: Run, evaluation: object) -> None:
        model = {"kind": "linear", "study": spec.study.model_dump(mode="json"), "evaluation": evaluation}
        store.complete(run, model | {"weights": None}, np.array([0.5]), {})

    run = running(store, spec, threshold="recall=0.5")
    assert (run.threshold, row_of(store, run.id)["draft"]) == ("recall=0.5", spec.digest + "recall=0.5")
    assert not store.will_be_evaluated(run.id)
    end(run, None)
    waiting = store.evaluated_model(run.id)["threshold"]
    assert waiting["unmet"] == "the model has no evaluation yet to choose by"
    assert "threshold" not in store.model(run.id), "it is no part of what was signed"
    for scores in ((-2.0, -1.0), (-4.0, -3.0)):
        evaluation = running(store, spec, evaluates=run.id)
        assert store.will_be_evaluated(run.id)
        end(evaluation, {"points": [point(scores[0], 0.7), point(scores[1], 0.6), point(1.0, 0.1)]})
        stated = {"rule": "recall=0.5", "score": scores[1], "estimated": True}
        assert store.evaluated_model(run.id)["threshold"] == stated
    store.set_threshold(run.id, "recall=0.65")
    assert store.evaluated_model(run.id)["threshold"] == stated | {"rule": "recall=0.65", "score": -4.0}
    store.set_threshold(run.id, None)
    assert (store.run(run.id).threshold, "threshold" in store.evaluated_model(run.id)) == (None, False)
    with pytest.raises(NotFoundError):
        store.set_threshold("nobody", "f1")
    failed = running(store, spec, evaluates=(other := running(store, spec)).id)
    store.enter(failed.id, "failed")
    assert not store.will_be_evaluated(other.id)
    change(store, "UPDATE runs SET threshold = 'f2' WHERE id = ?", run.id)
    with pytest.raises(DamagedError, match=run.id):
        store.evaluated_model(run.id)


def test_a_settled_run_has_its_specification_plan_and_terms(store: RunStore, spec: RunSpec) -> None:
    run = store.add(spec, "alice", seconds=5.0, cohort=Cohort(least=2))
    before, settled = row_of(store, run.id), spec.model_copy(update={"colluders": 1, "minimum_contributors": 2})
    plan = Plan(2, {"party-1": (0.5, 1.0)}, ({"view": "model"},))
    assert store.plan(run.id) is None
    store.settle(run, settled, plan, {"n_rounds": "as many as fit"}, {"party-3": "away"})
    cautioned = cautions(settled.build(), settled.facts())
    terms = RunTerms.of(
        settled,
        5.0,
        {"n_rounds": "as many as fit"},
        cohort=Cohort(least=2),
        absent={"party-3": "away"},
        cautions=cautioned,
    )
    assert row_of(store, run.id) == before | {
        "spec": settled.model_dump_json(),
        "terms": terms.model_dump_json(),
        "plan": plan.to_json(),
    }
    assert store.plan(run.id) == plan
    store.settle(run, settled, plan, {})
    assert store.run(run.id).terms.absent == {}


def test_room_is_kept_for_the_longest_reply_to_a_run_that_goes_on(
    store: RunStore, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms: list[int] = []
    monkeypatch.setattr(Database, "probe", lambda _, room=0: rooms.append(room))
    store.probe()
    short = running(store, spec).id
    store.probe()
    each = running(store, run_spec_of(spec, "matrix_perturbation")).id
    store.probe()
    change(store, "UPDATE runs SET terms = '{' WHERE id = ?", short)
    store.probe()
    store.enter(each, "cancelled")
    store.probe()
    store.enter(short, "cancelled")
    store.probe()
    head, peers = 128, 3 * 4096
    sum_bytes, each_bytes = 4 * 8 + head + peers, 3 * 4 * 8 + head + peers
    assert rooms == [0, sum_bytes, each_bytes, each_bytes, sum_bytes, 0]


def test_a_damaged_run_needs_no_room(store: RunStore, spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []
    monkeypatch.setattr(Database, "probe", lambda _, room=0: rooms.append(room))
    run = running(store, spec).id
    change(store, "UPDATE runs SET terms = '{' WHERE id = ?", run)
    store.probe()
    assert rooms == [0]


def test_pages_of_runs_are_cut_where_they_say(store: RunStore, spec: RunSpec) -> None:
    oldest, middle, newest = (store.add(spec, name, purpose=f"Purpose {name}").id for name in ("ann", "bob", "eve"))
    store.enter(middle, "cancelled")

    def page(*terms: Any, **more: Any) -> tuple[list[str], str | None]:  # noqa: ANN401 -- of the store's
        found = store.newest(*terms, **more)
        assert found.damaged == ()
        return [run.id for run in found.runs], found.last

    assert page(2) == ([newest, middle], middle)
    assert page(3) == ([newest, middle, oldest], None)
    assert page(2, middle) == ([oldest], None)
    assert page(1, newest) == ([middle], middle)
    assert page(9, state="cancelled") == ([middle], None)
    assert page(9, None, "queued", "pUrPose EVE") == ([newest], None)
    with pytest.raises(NotFoundError):
        store.newest(1, "nobody")
    assert store.unfinished() == [oldest, newest]


def test_the_store_is_not_used_once_its_lock_is_gone(store: RunStore, tmp_path: Path) -> None:
    assert store.unfinished() == []
    (tmp_path / "learner.lock").rename(tmp_path / "moved")
    with pytest.raises(UnavailableError, match="a file of the learner's store was replaced, moved or deleted"):
        store.probe()


def test_a_directory_of_a_new_store_is_its_own(tmp_path: Path) -> None:
    directory = tmp_path / "of" / "a" / "learner"
    RunStore(directory / "learner.sqlite").close()
    assert directory.stat().st_mode & 0o777 == 0o700
    RunStore(directory / "learner.sqlite").close()


@pytest.mark.parametrize(
    ("column", "value"), [("kind", "no word"), ("kind", ""), ("data", "[]"), ("data", "{"), ("data", b"\xff")]
)
def test_an_event_that_is_none_is_damage(store: RunStore, run: str, column: str, value: str | bytes) -> None:
    change(store, f"UPDATE events SET {column} = CAST(? AS TEXT)", value)  # noqa: S608 -- ours
    with pytest.raises(DamagedError, match=f"the row of run '{run}' in the table 'events' of the learner's database"):
        store.events(run)


def test_events_are_told_after_a_number_and_until_the_end(store: RunStore, run: str) -> None:
    (queued,) = store.events(run)
    store.enter(run, "failed")
    _, failed = store.events(run)
    assert failed.number > queued.number
    assert store.events(run, queued.number) == [failed]
    assert store.news(run, queued.number) == ([failed], True)
    assert store.news(run, failed.number) == ([], True)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET state = 'asleep'",
        "UPDATE runs SET stage = 'asleep'",
        "UPDATE runs SET created = 'today'",
        "UPDATE runs SET user = CAST(x'ff' AS TEXT)",
        "UPDATE runs SET purpose = CAST(x'ff' AS TEXT)",
        "UPDATE runs SET problem = '{'",
        "UPDATE runs SET pause = '{}'",
    ],
)
def test_a_run_that_cannot_be_read_is_damage(store: RunStore, run: str, statement: str) -> None:
    change(store, statement)
    with pytest.raises(DamagedError, match=f"the row of run '{run}' in the table 'runs' of the learner's database"):
        store.run(run)
    assert store.newest(1).damaged == (run,)
    assert store.newest(1).runs == ()


def test_bytes_that_are_no_text_are_shown_as_question_marks() -> None:
    assert readable("a\udcffb") == "a?b"


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("UPDATE runs SET plan = '{'", RunStore.plan),
        ("UPDATE runs SET evaluation = '{'", RunStore.evaluation),
        ("UPDATE runs SET approvals = '{'", RunStore.approvals),
    ],
)
def test_a_part_of_a_run_that_cannot_be_read_is_named(
    store: RunStore, run: str, statement: str, read: Callable[[RunStore, str], object]
) -> None:
    assert not read(store, run)
    change(store, statement)
    with pytest.raises(DamagedError, match=f"the row of run '{run}' in the table 'runs' of the learner's database"):
        read(store, run)


def test_the_last_rounds_tell_who_was_there(store: RunStore, spec: RunSpec) -> None:
    run = running(store, spec.model_copy(update={"answer_every": 3, "minimum_contributors": 1}))
    for round in range(1, 5):
        query, reply = Query(round, "gradient", np.zeros(1)), Reply(np.zeros(1), (0, round % 3))
        store.append(run.id, query, reply, [], [])
        run = store.run(run.id)
        expected = [(0, each % 3) for each in range(max(1, round - 2), round + 1)]
        assert store.recent(run) == expected
    assert run.rounds == 4
    some = running(store, spec.model_copy(update={"answer_every": 3, "minimum_contributors": 1}))
    store.append(some.id, Query(1, "gradient", np.zeros(1)), Reply(np.zeros(1), (1,)), [], [])
    change(
        store,
        "UPDATE runs SET terms = ? WHERE id = ?",
        some.terms.model_copy(update={"absent": {"party-2": "away"}}).model_dump_json(),
        some.id,
    )
    assert store.recent(store.run(some.id)) == [(0, 2), (0, 2), (1,)]


def test_a_reply_ends_a_pause_and_keeps_receipts(store: RunStore, spec: RunSpec) -> None:
    run = running(store, spec).id
    store.pause(run, PAUSE)
    number = store.events(run)[-1].number
    query, reply = Query(1, "gradient", np.zeros(1)), Reply(np.full(2**17 + 1, 0.5), (0, 2))
    store.append(run, query, reply, [Notice("round", {"round": 1})], [receipt("party-1", 3)])
    assert [(event.kind, event.news) for event in store.events(run, number)] == [
        ("state", {"state": "running"}),
        ("round", {"round": 1}),
    ]
    assert (store.state(run), store.run(run).pause) == ("running", None)
    assert store.receipts() == {"party-1": receipt("party-1", 3)}
    stored = store.reply(run, 1)
    assert stored is not None
    assert (stored[0], stored[1].contributors, stored[1].value.tobytes()) == (
        query.digest,
        (0, 2),
        reply.value.tobytes(),
    )
    change(store, "UPDATE replies SET contributors = '{'")
    with pytest.raises(DamagedError, match=f"the row of run '{run}' in the table 'replies'"):
        store.reply(run, 1)


def test_a_receipt_of_another_is_damage(store: RunStore) -> None:
    store.keep([receipt("party-1", 3)])
    change(store, "UPDATE receipts SET signer = ?", "party-2" * 20)
    place = f"the receipt of '{('party-2' * 20)[:100]}' in the table 'receipts' of the learner's database is damaged"
    with pytest.raises(DamagedError, match=f"^{place}: put back a copy of its state$"):
        store.receipts()


def test_the_names_of_runs_are_cut_in_errors(store: RunStore) -> None:
    with pytest.raises(NotFoundError, match=f"^there is no run '{'x' * 100}'$"):
        store.state("x" * 101)


def run_spec_of(spec: RunSpec, algorithm: str) -> RunSpec:
    """The same run by another algorithm, with its parameters chosen."""
    return spec.model_copy(update={"algorithm": algorithm, "parameters": {}}).settled()[0]


def test_public_rows_are_kept_to_the_bit_and_listed_by_digest(tmp_path: Path) -> None:
    store, rows = PublicRowStore(tmp_path / "public"), np.random.default_rng(1).normal(size=(3, 2))
    name = store.add(rows)
    assert (tmp_path / "public" / f"{name.digest}.npy").read_bytes() == pack_array(rows)
    assert (name.rows, name.width) == (3, 2)
    assert store.find(name.digest) == name
    assert store.load(name).tobytes() == rows.tobytes()
    with pytest.raises(NotFoundError, match=f"the public rows {name.digest[:12]} are not of the shape"):
        store.load(name.model_copy(update={"rows": 2, "width": 3}))
    for absent in (store.find, lambda digest: store.load(name.model_copy(update={"digest": digest}))):
        with pytest.raises((NotFoundError, InvalidInputError), match=r"^there are no public rows 0{12} here: upload"):
            absent("0" * 64)
    digests = sorted([name.digest, *(store.add(np.full((1, 1), number)).digest for number in range(9))])
    assert any(digest[0].isdigit() for digest in digests)
    listed, damaged, last = store.page(10)
    assert ([each.digest for each in listed], damaged, last) == (digests, [], None)
    assert [each.digest for each in store.page(3, digests[1])[0]] == digests[2:5]
    assert (store.page(3)[2], store.page(9)[2]) == (digests[2], digests[8])
    assert PublicRowStore(tmp_path / "none").page(3) == ([], [], None)


def test_public_rows_fit_one_body_and_are_rows(tmp_path: Path) -> None:
    store = PublicRowStore(tmp_path)
    for rows in (np.zeros((0, 3)), np.zeros((1, MAX_BYTES // 8 + 1))):
        with pytest.raises(InvalidInputError, match=r"public rows may take 16,773,120 bytes"):
            store.add(rows)
    most = np.zeros((1, MAX_BYTES // 8))
    assert store.find(store.add(most).digest).width == MAX_BYTES // 8
    column = np.zeros(3)
    digest = digest_of_rows(column)
    (tmp_path / f"{digest}.npy").write_bytes(pack_array(column))
    with pytest.raises(
        DamagedError, match=f"^the file of the public rows {digest[:12]} is damaged: upload them again$"
    ):
        store.find(digest)
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="the public rows cannot be written: "):
        PublicRowStore(tmp_path / "file").add(np.zeros((1, 1)))


def test_the_roster_is_kept_as_a_file_each(tmp_path: Path) -> None:
    now, store = datetime(2026, 1, 1, tzinfo=UTC), RosterStore(tmp_path)
    invited = {
        name: Invited(name=name, role="party", secret_hash=f"sha256:{'0' * 64}", expires=expires, studies=("s",))
        for name, expires in (("ann", now), ("bob", now + timedelta(seconds=1)), ("eve", now))
    }
    for entry in invited.values():
        store.invite(entry)
    (file,) = (tmp_path / "invited").glob("ann*")
    assert (file.name, file.stat().st_mode & 0o777) == ("ann.json", 0o600)
    assert file.read_text() == invited["ann"].model_dump_json(indent=1)
    assert store.invited == RosterStore(tmp_path).invited == invited
    member = JoinedMember(
        name="ann", role="party", public_key="0a" * 32, connects_with=f"sha256:{'0' * 64}", token="t" * 43, joined=now,
        studies=("s",), secret_hash=f"sha256:{'0' * 64}", expires=now,
    )  # fmt: skip
    before = store.invited
    store.keep(member)
    assert set(before) == {"ann", "bob", "eve"}, "who iterates over it goes on"
    store.keep(member.model_copy(update={"name": "kim"}))
    assert (set(store.invited), set(store.members)) == ({"bob", "eve"}, {"ann", "kim"})
    store.expire(now)
    for kept in (store, RosterStore(tmp_path)):
        assert (set(kept.invited), set(kept.members)) == ({"bob"}, {"ann", "kim"})
    store.remove("ann")
    store.remove("bob")
    for kept in (store, RosterStore(tmp_path)):
        assert (kept.invited, set(kept.members)) == ({}, {"kim"})
    (tmp_path / "invited" / "bad.json").write_text("{}")
    (tmp_path / "invited" / "bad.json").chmod(0o600)
    with pytest.raises(InvalidInputError, match=r"invited/bad\.json: name"):
        RosterStore(tmp_path)
    with pytest.raises(UnavailableError, match="the roster cannot be written"):
        RosterStore(tmp_path / "invited" / "bad.json").invite(invited["bob"])
