"""Lists come in pages that no new run disturbs, and stay fast; studies are told in short and in full."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import pytest

from parley.common.data.columns import Category, Label
from parley.common.data.study import Study
from parley.common.files.examples import load_examples
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Logistic
from parley.learner.storage.run_store import RunStore
from tests.support.cluster import Cluster, asgi_cluster, submit, watch
from tests.support.intercepted import Intercepted, learner_of
from tests.support.rounds import run_spec

MANY = 10_000


async def pages(client: httpx.AsyncClient, limit: int) -> list[list[str]]:
    """The identifiers of all runs, page by page."""
    runs, after = [], ""
    while True:
        page = (await client.get(f"/v1/runs?limit={limit}{after}")).raise_for_status().json()
        runs.append([run["id"] for run in page["runs"]])
        if page["next"] is None:
            return runs
        after = f"&after={page['next']}"


async def test_pages_hold_every_run_once_newest_first(client: httpx.AsyncClient) -> None:
    assert await pages(client, 2) == [[]]
    runs = [await submit(client, parameters={"n_rounds": 1}) for _ in range(5)][::-1]
    assert await pages(client, 2) == [runs[:2], runs[2:4], runs[4:]]
    assert await pages(client, 5) == [runs]
    assert [len(page) for page in await pages(client, 1)] == [1] * 5


async def test_a_new_run_moves_none_to_another_page(client: httpx.AsyncClient) -> None:
    runs = [await submit(client, parameters={"n_rounds": 1}) for _ in range(4)][::-1]
    first = (await client.get("/v1/runs?limit=2")).json()
    newer = await submit(client, parameters={"n_rounds": 1})
    second = (await client.get(f"/v1/runs?limit=2&after={first['next']}")).json()
    assert [run["id"] for run in (*first["runs"], *second["runs"])] == runs
    assert (await client.get("/v1/runs?limit=1")).json()["runs"][0]["id"] == newer


async def test_runs_are_found_by_state_and_words(client: httpx.AsyncClient) -> None:
    wanted = await submit(client, parameters={"n_rounds": 1}, purpose="Which WARDS are full?")
    other = await submit(client, parameters={"n_rounds": 1}, algorithm="psgd", purpose="_")
    for run in (wanted, other):
        await watch(client, run)

    async def asked(query: str) -> list[str]:
        return [run["id"] for run in (await client.get(f"/v1/runs?{query}")).raise_for_status().json()["runs"]]

    assert await asked("search=wards") == [wanted]
    assert await asked("search=PSGD") == [other]
    assert await asked("search=made-up&state=completed") == await asked("search=alice") == [other, wanted]
    assert await asked("search=_&limit=1") == [other]
    assert await asked("search=%25") == await asked("state=failed") == []
    page = (await client.get("/v1/runs?search=made-up&limit=1")).json()
    assert await asked(f"search=made-up&after={page['next']}") == [wanted]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=many", "state=lost"])
async def test_a_page_has_1_to_1000_runs(client: httpx.AsyncClient, query: str) -> None:
    assert (await client.get(f"/v1/runs?{query}")).status_code == 422


async def test_a_cursor_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/runs?after=nobody")).status_code == 404


async def test_public_rows_come_in_pages(client: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    digests = []
    for x in range(5):
        body = f"x0,x1,x2\n{x / 10},0,0\n".encode()
        digests.append((await client.put("/v1/public?study=made-up", content=body, headers=headers)).json()["digest"])
    first = (await client.get("/v1/public?limit=3")).json()
    second = (await client.get(f"/v1/public?limit=3&after={first['next']}")).json()
    assert [rows["digest"] for rows in (*first["rows"], *second["rows"])] == sorted(digests)
    assert second["next"] is None


async def test_a_run_starts_from_weights_that_fit_public_rows(client: httpx.AsyncClient, cluster: Cluster) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    body = (cluster.root / "party-1.csv").read_bytes()
    name = (await client.put("/v1/public?study=made-up&start=true", content=body, headers=headers)).json()
    assert (name["rows"], name["width"]) == (1, cluster.study.n_features)
    run = await submit(client, parameters={"n_rounds": 1, "step": 1e-9}, public=name["digest"], epsilon=50)
    assert (await watch(client, run))[-1][1]["state"] == "completed"
    model = (await client.get(f"/v1/runs/{run}/model")).json()
    shard = load_examples(cluster.root / "party-1.csv", cluster.study).shard
    fitted = minimise(Logistic(), shard, np.asarray(0.1))
    assert np.abs(np.array(model["weights"]) - fitted).max() < 1e-3
    assert model["public"]["digest"] == name["digest"]
    rows = (await client.put("/v1/public?study=made-up", content=body, headers=headers)).json()["digest"]
    refused = await client.post("/v1/runs", json={"study": "made-up", "epsilon": 1, "delta": 1e-5, "public": rows})
    assert refused.status_code == 422
    assert "the run names public rows, and dp_gd asks about none of their shape" in refused.json()["detail"]


def fill(cluster: Cluster, study: Study) -> None:
    """Give a learner's store many runs."""
    spec = run_spec(cluster, study=study)
    store = RunStore(cluster.learner_settings().state / "learner.sqlite")
    store.enter(store.add(spec, "alice").id, "cancelled")
    store.close()
    with closing(sqlite3.connect(cluster.learner_settings().state / "learner.sqlite")) as database:
        database.execute("CREATE TEMPORARY TABLE one AS SELECT * FROM runs")
        for n in range(1, MANY):
            database.execute("UPDATE one SET id = ?", (f"run-{n}",))
            database.execute("INSERT INTO runs SELECT * FROM one")
        database.commit()


@pytest.mark.slow
async def test_a_list_of_ten_thousand_runs_is_fast(cluster: Cluster, parties: dict[str, Intercepted]) -> None:
    """Each run is of a study of 500 columns, so that one which read them all would be slow."""
    wide = Category(name="postcode", values=tuple(f"area {i}" for i in range(500)))
    fill(cluster, Study(name="wide", features=(wide,), label=Label(name="y", values=("no", "yes"))))
    async with learner_of(cluster, parties) as client:
        taken, seen, after = [], [], ""
        while True:
            started = time.perf_counter()
            page: dict[str, Any] = (await client.get(f"/v1/runs?limit=100{after}")).json()
            taken.append(time.perf_counter() - started)
            seen += [run["created"] for run in page["runs"]]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
    assert len(seen) == MANY
    assert all(newer >= older for newer, older in pairwise(seen))
    print(f"{MANY} runs in pages of 100: median {median(taken) * 1000:.1f} ms, longest {max(taken) * 1000:.1f} ms")
    assert median(taken) < 1.0


async def test_studies_are_told_in_short_and_in_full(client: httpx.AsyncClient, cluster: Cluster) -> None:
    (short,) = (await client.get("/v1/studies")).json()
    assert short == {
        "name": "made-up",
        "title": "",
        "purpose": "",
        "digest": cluster.study.digest,
        "kind": "binary",
        "label": "y",
        "n_classes": 2,
        "loss": "logistic",
        "features": 3,
        "n_features": 4,
        "norm": "euclidean",
        "sparse": False,
        "divisor": None,
        "unit": "record",
        "person": None,
    }
    assert (await client.get("/v1/studies/made-up")).json() == cluster.study.model_dump(mode="json")
    unknown = await client.get("/v1/studies/nobodys")
    assert (unknown.status_code, unknown.json()["detail"]) == (404, "there is no study 'nobodys'")


async def test_a_study_may_have_any_name(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1)
    study = cluster.study.model_copy(update={"name": "wards/east & west?"})
    (cluster.study_path.parent / "odd.json").write_text(study.model_dump_json())
    async with asgi_cluster(cluster) as client:
        odd = await client.get("/v1/studies/wards%2Feast%20%26%20west%3F")
        assert odd.json()["name"] == study.name


async def test_the_model_of_an_unknown_format_is_refused_with_the_way_out(
    client: httpx.AsyncClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await submit(client, parameters={"n_rounds": 1})
    await watch(client, run)
    read_model = RunStore.model
    monkeypatch.setattr(RunStore, "model", lambda self, run: read_model(self, run) | {"format": "parley-model-9"})
    for response in (
        await client.get(f"/v1/runs/{run}/model"),
        await client.post(f"/v1/runs/{run}/predictions", json={"records": [{"x0": 1, "x1": 1, "x2": 1}]}),
    ):
        assert response.status_code == 422
        assert "read it with the version of Parley that wrote it, or train the model again" in response.json()["detail"]
