"""Any damage to the learner's database is one clear error of its own run; all others are served."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from parley.common.errors import DamagedError
from parley.learner.api.app import create_learner_app
from parley.learner.execution.engine import _Failure
from parley.learner.storage.public_rows import PublicRowStore
from parley.learner.storage.run_store import RunStore
from tests.support.cluster import Cluster, asgi_learner, submit, train, until_paused, watch
from tests.support.intercepted import learner_of
from tests.support.rounds import run_spec
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services

TEXTS = ("", "{", "[]", "null", "7", '{"a": 1}', b"\xff{")
BLOBS = (b"", b"\x00\xff", b"\x93NUMPY\x01\x00", b"{}")
NUMBERS = (-1, 2**62)
PARTS = ("", "/model", "/card?to=markdown", "/receipts", "/events")


async def trained(root: Path) -> tuple[SecureCluster, str, str]:
    """A cluster that has ended, and its two runs: of a secure sum, and without."""
    cluster = SecureCluster(root, n_parties=2)
    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        await train(client, parameters={"n_rounds": 2}, **SUMS | {"minimum_contributors": 2})
        await train(client, parameters={"n_rounds": 2}, minimum_contributors=2, epsilon=0.5)
        plain, secure = [run["id"] for run in (await client.get("/v1/runs")).json()["runs"]]
    return cluster, secure, plain


OF_NO_RUN = {"receipts", "copied", "restores"}


def columns(path: Path) -> Iterator[tuple[str, str, str]]:
    """Each table's columns with their types."""
    with closing(sqlite3.connect(path)) as file:
        for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _, column, kind, *_ in file.execute(f"PRAGMA table_info({table})").fetchall():
                yield table, column, kind


async def asked(client: httpx.AsyncClient, run: str) -> dict[str, httpx.Response]:
    """What a run's routes answer: each an answer or one clear error."""
    answers = {part: await client.get(f"/v1/runs/{run}{part}") for part in PARTS}
    answers["/predictions"] = await client.post(f"/v1/runs/{run}/predictions", json={"records": [{}]})
    for part, answer in answers.items():
        if answer.status_code >= 500:
            problem = answer.json()
            assert problem["type"] == "urn:parley:problem:damaged", (part, problem)
            assert "learner's database is damaged: " in problem["detail"], (part, problem)
    return answers


@pytest.mark.slow
async def test_a_damaged_cell_is_an_error_of_its_run_alone(tmp_path: Path) -> None:  # noqa: PLR0915 -- one database
    cluster, secure, plain = await trained(tmp_path)
    path = cluster.root / "learner" / "learner.sqlite"
    undamaged = path.with_name("whole.sqlite")
    with closing(sqlite3.connect(path)) as file, closing(sqlite3.connect(undamaged)) as copy:
        file.execute("INSERT INTO rounds (run, round, deadline) VALUES (?, 1, 1)", (secure,))
        file.execute("INSERT INTO contributions (run, party, contribution) VALUES (?, 'party-1', x'00')", (secure,))
        file.commit()
        file.backup(copy)
    outcomes: dict[tuple[str, str], set[str]] = {}
    async with asgi_learner(cluster.learner_settings(), nobody) as client:
        expected = [(await client.get(f"/v1/runs/{plain}{part}")).content for part in ("", "/model")]
        assert len((await client.get("/v1/runs")).json()["runs"]) == 2
        with closing(sqlite3.connect(path, timeout=10)) as file:
            for table, column, kind in columns(path):
                name = "id" if table == "runs" else "run"
                for value in () if table in OF_NO_RUN else {"TEXT": TEXTS, "BLOB": BLOBS, "INTEGER": NUMBERS}[kind]:
                    cast = "CAST(? AS TEXT)" if kind == "TEXT" else "?"
                    with suppress(sqlite3.IntegrityError):
                        file.execute(f"UPDATE {table} SET {column} = {cast} WHERE {name} = ?", (value, secure))  # noqa: S608 -- our own names
                        file.commit()
                        answers = await asked(client, secure)
                        listed = (await client.get("/v1/runs?search=dp_gd")).raise_for_status().json()
                        assert plain in [run["id"] for run in listed["runs"]], (table, column, value)
                        others = [(await client.get(f"/v1/runs/{plain}{part}")).content for part in ("", "/model")]
                        assert others == expected, (table, column, value)
                        (await client.get("/metrics")).raise_for_status()
                        assert (await client.get("/readyz")).status_code == 200
                        damaged = {part for part, answer in answers.items() if answer.status_code >= 500}
                        outcomes.setdefault((table, column), set()).update(damaged)
                    file.rollback()
                    restore(file, undamaged, table)
    assert {"", "/model"} & outcomes["runs", "terms"]
    assert "/model" in outcomes["runs", "model"] & outcomes["runs", "weights"] & outcomes["runs", "model_digest"]
    assert "/receipts" in outcomes["sessions", "roster"] & outcomes["openings", "receipt"]
    assert "/events" in outcomes["events", "data"]


def nobody(_: str) -> httpx.AsyncBaseTransport:
    """Parties that do not answer."""
    return httpx.MockTransport(lambda _: httpx.Response(503))


def restore(file: sqlite3.Connection, whole: Path, table: str) -> None:
    """Put a table back as it was."""
    file.execute("ATTACH ? AS whole", (str(whole),))
    file.execute(f"DELETE FROM {table}")  # noqa: S608 -- our own names
    file.execute(f"INSERT INTO {table} SELECT * FROM whole.{table}")  # noqa: S608 -- our own names
    file.commit()
    file.execute("DETACH whole")


async def test_a_list_names_a_damaged_run_and_at_a_start_others_go_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=2)
    async with asgi_learner(cluster.learner_settings(), nobody) as client:
        runs = [await submit(client) for _ in range(3)]
        for run in runs:
            await until_paused(client, run)
    with closing(sqlite3.connect(tmp_path / "learner" / "learner.sqlite")) as file:
        file.execute("UPDATE runs SET terms = '{' WHERE id = ?", (runs[0],))
        file.execute(
            "UPDATE runs SET spec = replace(spec, '\"epsilon\":1.0', '\"epsilon\":2.0') WHERE id = ?", (runs[1],)
        )
        file.commit()
    async with asgi_learner(cluster.learner_settings(), nobody) as client:
        page = (await client.get("/v1/runs")).json()
        assert page["damaged"] == [runs[0]]
        assert [run["id"] for run in page["runs"]] == [runs[2], runs[1]]
        pages = [(await client.get(f"/v1/runs?limit=1&after={after}")).json() for after in (runs[2], runs[1])]
        assert [page["next"] for page in pages] == [runs[1], None]
        await until_paused(client, runs[2])
        events = await watch(client, runs[1])
        assert events[-1][1]["problem"]["type"] == "urn:parley:problem:damaged"
        assert f"the row of run {runs[1]!r} in the table 'runs'" in events[-1][1]["problem"]["detail"]


def test_a_model_whose_digest_differs_is_not_served(tmp_path: Path) -> None:
    path, spec = tmp_path / "learner.sqlite", run_spec(Cluster(tmp_path, n_parties=2))
    with closing(RunStore(path)) as store:
        run = store.add(spec, "alice").id
        for state in ("recruiting", "running"):
            store.enter(run, state)
        store.complete(store.run(run), {"kind": "linear", "weights": None}, np.array([0.5, -0.25]), {})
        assert store.model(run)["weights"].tolist() == [0.5, -0.25]
        for change in (
            "weights = CAST(substr(weights, 1, length(weights) - 1) || x'40' AS BLOB)",
            "weights = NULL",
            "model = replace(model, 'linear', 'softmax')",
            "model_digest = NULL",
        ):
            with closing(sqlite3.connect(path)) as file:
                stored = file.execute("SELECT model, weights, model_digest FROM runs").fetchone()
                file.execute(f"UPDATE runs SET {change}")  # noqa: S608 -- our own names
                file.commit()
                with pytest.raises(DamagedError, match=f"the row of run '{run}' in the table 'runs'"):
                    store.model(run)
                file.execute("UPDATE runs SET model = ?, weights = ?, model_digest = ?", stored)
                file.commit()
        assert store.model(run)["weights"].tolist() == [0.5, -0.25]


@pytest.mark.parametrize("text", ["", "{}", "e30=.e30=", "\x00"])
def test_a_damaged_receipt_is_named_at_a_start(text: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=2)
    path = tmp_path / "learner" / "learner.sqlite"
    with closing(RunStore(path)), closing(sqlite3.connect(path)) as file:
        file.execute("INSERT INTO receipts VALUES ('party-1', ?)", (text,))
        file.commit()
    with pytest.raises(DamagedError, match=r"the receipt of 'party-1' in the table 'receipts'.*put back a copy"):
        create_learner_app(cluster.learner_settings())


def test_a_file_that_is_no_database_is_named_at_a_start(tmp_path: Path) -> None:
    (tmp_path / "learner.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(DamagedError, match="database is damaged: stop the learner and put back a copy"):
        RunStore(tmp_path / "learner.sqlite")


def test_public_rows_that_are_damaged_hide_no_others(tmp_path: Path) -> None:
    store = PublicRowStore(tmp_path)
    names = sorted((store.add(np.full((2, 2), number)) for number in (0.25, 0.5, 0.75)), key=lambda name: name.digest)
    for content in (b"", b"\x93NUMPY", (tmp_path / f"{names[0].digest}.npy").read_bytes()):
        (tmp_path / f"{names[1].digest}.npy").write_bytes(content)
        assert store.page(2) == ([names[0]], [names[1].digest], names[1].digest)
        assert store.page(2, names[1].digest) == ([names[2]], [], None)
        with pytest.raises(DamagedError, match=r"the file of the public rows .* is damaged: upload them again"):
            store.load(names[1])
    for number in (0.25, 0.5, 0.75):
        store.add(np.full((2, 2), number))
    assert store.page(9)[0] == names


@pytest.mark.parametrize(
    ("error", "kind", "detail"),
    [
        (DamagedError("the row of run 'x' is damaged"), "damaged", "the row of run 'x' is damaged"),
        (RuntimeError("0.271828"), "internal", "an internal error; the learner's log says where"),
    ],
)
async def test_a_run_that_fails_here_says_why_and_quotes_no_unforeseen_error(
    tmp_path: Path, error: Exception, kind: str, detail: str
) -> None:
    store = RunStore(tmp_path / "learner.sqlite")
    run = store.add(run_spec(Cluster(tmp_path, n_parties=2)), "alice").id
    await _Failure(store, run, error)()
    failed = store.run(run)
    assert failed.state == "failed"
    assert failed.problem is not None
    assert (failed.problem["type"], failed.problem["detail"]) == (f"urn:parley:problem:{kind}", detail)
    await _Failure(store, run, RuntimeError("again"))()
    assert store.run(run).problem == failed.problem, "it has ended"
    store.close()
