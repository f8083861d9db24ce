"""What ended runs left is deleted for an operator, or after the days of the settings; ledgers forget nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from parley.common.errors import ConflictError
from parley.common.service.tokens import hash_token
from parley.common.storage.sqlite import Database
from parley.learner.execution.retention import Purge
from parley.learner.settings import Retention
from parley.learner.storage import statements
from parley.learner.storage.public_rows import PublicRowStore
from parley.learner.storage.run_store import RunStore
from tests.support.cluster import USER, Cluster, submit, upload, watch
from tests.support.intercepted import Intercepted, learner_of
from tests.support.rounds import run_spec
from tests.support.secure_cluster import charges

OPERATOR = [{"name": "alice", "role": "operator", "token_hash": hash_token(USER)}]
DAY = 86_400


def opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def age(path: Path, run: str, days: float) -> None:
    """Let a run have ended so many days ago."""
    with closing(opened(path)) as file:
        ended = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?)"
        file.execute(f"UPDATE runs SET ended_at = {ended} WHERE id = ?", (f"-{days} days", run))  # noqa: S608 -- ours


async def completed(client: httpx.AsyncClient, **terms: object) -> str:
    run = await submit(client, **terms)
    assert (await watch(client, run))[-1][1]["state"] == "completed"
    return run


async def deleted(client: httpx.AsyncClient, path: str) -> httpx.Response:
    """Delete a run; it is worked at for a moment after its end."""
    while "is worked at" in (response := await client.delete(path)).text:
        pass
    return response


async def test_a_run_or_its_log_is_deleted_and_its_charges_stay(
    cluster: Cluster, parties: dict[str, Intercepted]
) -> None:
    async with learner_of(cluster, parties, users=OPERATOR) as client:
        run, other = await completed(client), await completed(client)
        before = (await client.get(f"/v1/runs/{run}")).json()
        model = (await client.get(f"/v1/runs/{run}/model")).json()
        for _ in range(2):
            assert (await deleted(client, f"/v1/runs/{run}?only_log=true")).status_code == 204
        assert (await client.get(f"/v1/runs/{run}")).json() == before, "how many rounds were done is still known"
        assert (await client.get(f"/v1/runs/{run}/model")).json() == model
        assert [kind for kind, _ in await watch(client, run)] == ["state"] * 4
        assert await completed(client, parameters={}, seconds=0.1), "the time of a round is taken from the other run"
        assert (await deleted(client, f"/v1/runs/{run}")).status_code == 204
        assert (await client.delete(f"/v1/runs/{run}")).status_code == 404
        for path in (f"/v1/runs/{run}", f"/v1/runs/{run}/model", f"/v1/runs/{run}/events"):
            assert (await client.get(path)).status_code == 404
        assert (await client.get(f"/v1/runs/{other}")).is_success
    assert {len(costs) for costs in charges(cluster, run).values()} == {10}, "its ledgers forget nothing"
    async with learner_of(cluster, parties, users=OPERATOR) as client:
        assert run not in [item["id"] for item in (await client.get("/v1/runs")).json()["runs"]]


async def test_only_what_has_ended_is_deleted(cluster: Cluster, parties: dict[str, Intercepted]) -> None:
    async with learner_of(cluster, parties, users=OPERATOR) as client:
        going_on = await submit(client, parameters={"n_rounds": 1000})
        for query in ("", "?only_log=true"):
            refused = await client.delete(f"/v1/runs/{going_on}{query}")
            assert (refused.status_code, refused.json()["type"]) == (409, "urn:parley:problem:conflict")
        await client.post(f"/v1/runs/{going_on}/cancel")
        assert (await deleted(client, f"/v1/runs/{going_on}")).status_code == 204
    async with learner_of(cluster, parties) as client:
        run = await completed(client)
        assert (await client.delete(f"/v1/runs/{run}")).json()["rule"] == "role", "a submitter deletes nothing"


async def test_the_settings_say_when(cluster: Cluster, parties: dict[str, Intercepted]) -> None:
    path = cluster.root / "learner" / "learner.sqlite"
    async with learner_of(cluster, parties, users=OPERATOR) as client:
        runs = [await completed(client) for _ in range(3)]
        public = (await upload(client, cluster.public_table()))["digest"]
        named = (await upload(client, cluster.public_table(5)))["digest"]
    for run, days in zip(runs, (40, 20, 1), strict=True):
        age(path, run, days)
    with closing(opened(path)) as file:
        file.execute(
            "UPDATE runs SET spec = json_set(spec, '$.public', json_object('digest', ?)) WHERE id = ?", (named, runs[2])
        )
    for digest in (public, named):
        os.utime(cluster.root / "learner" / "public" / f"{digest}.npy", (0, 0))
    with closing(RunStore(path)) as store:
        rows = PublicRowStore(cluster.root / "learner" / "public")
        Purge(store, rows, Retention(), lambda _: False).delete_old()
        assert len(store.newest(9).runs) == 3, "without a number all is kept"
        purge = Purge(store, rows, Retention(log_days=10, run_days=30, public_days=5), lambda run: run == runs[0])
        purge.delete_old()
        assert {run.id for run in store.newest(9).runs} == set(runs), "a run that is worked at stays"
        Purge(store, rows, Retention(log_days=10, run_days=30), lambda _: False).delete_old()
        assert {run.id for run in store.newest(9).runs} == set(runs[1:])
        assert [sum(event.kind == "round" for event in store.events(run)) for run in runs[1:]] == [0, 10]
        assert rows.page(9)[0] == [rows.find(named)]


def test_a_run_that_is_evaluated_stays_until_its_evaluations_are_gone(tmp_path: Path) -> None:
    spec = run_spec(Cluster(tmp_path, n_parties=2))
    with closing(RunStore(tmp_path / "learner.sqlite")) as store:
        run = store.add(spec, "alice").id
        evaluation = store.add(spec, "alice", evaluates=run).id
        for one in (run, evaluation):
            store.enter(one, "cancelled")
        with pytest.raises(ConflictError, match=f"is evaluated by {evaluation}: delete these first"):
            store.ended.delete(run)
        store.sessions.begin(evaluation, "session")
        with pytest.raises(ConflictError, match="its key holders have yet to be told"):
            store.ended.delete(evaluation)
        store.sessions.end(evaluation)
        Purge(store, PublicRowStore(tmp_path / "public"), Retention(run_days=0), lambda _: False).delete_old()
        assert store.newest(9).runs == ()


def test_a_database_gives_the_disk_what_was_deleted_if_it_is_much(tmp_path: Path) -> None:
    path = tmp_path / "learner.sqlite"
    with closing(Database(path, statements.STORE_SCHEMA)) as database:
        with database.transaction() as connection:
            for n in range(16):
                connection.execute("INSERT INTO receipts VALUES (?, hex(zeroblob(50000)))", (str(n),))
        full = database.size
        with database.transaction() as connection:
            connection.execute("DELETE FROM receipts WHERE signer = '1'")
        assert (database.compact(), database.size) == (0, full), "a little is left for what comes"
        with database.transaction() as connection:
            connection.execute("DELETE FROM receipts WHERE signer <> '7'")
        assert database.compact() > 0.8 * full
        assert database.compact() == 0
        assert path.stat().st_size == database.size < 0.2 * full
        with database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM receipts").fetchone() == (1,)
        database.probe(2**20)


def test_a_deletion_counts_though_the_disk_cannot_be_given_its_room_yet(tmp_path: Path) -> None:
    """The draft of the smaller database is beside it, not in the system's folder for temporary files."""
    path, scratch = tmp_path / "learner.sqlite", tmp_path / ".learner.sqlite.compact"
    spec = run_spec(Cluster(tmp_path, n_parties=2))
    with closing(RunStore(path)) as store:
        run, other = (store.add(spec, "alice").id for _ in range(2))
        store.enter(run, "cancelled")
    with closing(opened(path)) as file:
        file.execute("INSERT INTO receipts VALUES ('gone', hex(zeroblob(500000)))")
        file.execute("DELETE FROM receipts")
    scratch.touch()  # in the place of a folder
    with closing(RunStore(path)) as store, capture_logs() as lines:
        full = path.stat().st_size
        assert full > 10**6
        purge = Purge(store, PublicRowStore(tmp_path / "public"), Retention(), lambda _: False)
        purge.delete(run, "alice", only_log=False)
        assert [line["event"] for line in lines] == ["deleted", "not compacted"]
        assert (lines[0]["runs"], lines[0]["user"]) == ([run], "alice")
        scratch.unlink()
        scratch.mkdir()
        (scratch / "draft").write_bytes(b"left by a process that was killed")
        purge.delete_old()
        assert lines[2:] == [{"event": "compacted", "bytes": full - path.stat().st_size, "log_level": "info"}]
        assert path.stat().st_size < full / 4
        assert [kept.id for kept in store.newest(9).runs] == [other]
    assert not scratch.exists()
    with closing(opened(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_run_is_not_deleted_before_its_log() -> None:
    with pytest.raises(ValidationError, match="run_days must not be below log_days"):
        Retention(log_days=2, run_days=1)
