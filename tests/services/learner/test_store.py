"""The learner's store and the table of states."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from parley.common.errors import ConflictError, NotFoundError
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.receipts import Head, Receipt, read_receipt, write_receipt
from parley.common.runs.evaluation import evaluation_spec
from parley.learner.api.schemas import ListedRun
from parley.learner.runs.run import Pause, RunTerms
from parley.learner.runs.states import ENDS, TRANSITIONS, Notice, RunState
from parley.learner.storage import statements
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
    older = [table for table in statements.STORE_SCHEMA.tables if "evaluations_of_run" not in table]
    later = ("evaluat", "approvals", "weights", "model_digest")
    older[0] = "\n".join(line for line in older[0].splitlines() if not any(word in line for word in later))
    with closing(sqlite3.connect(path)) as file:
        for table in older:
            file.execute(table)
        file.execute(f"PRAGMA application_id = {statements.STORE_SCHEMA.application}")
        file.execute("PRAGMA user_version = 1")
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
    }
    paused = ListedRun.of(run, PAUSE)
    assert paused.state == "paused"
    assert paused.pause is not None
    assert (paused.pause.reason, paused.pause.written) == (PAUSE.reason, False)
