"""A study with a projection and random features, from public rows to predictions: every reader of a table maps it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parley.common.data.auxiliary import with_projection_of
from parley.common.data.records import rows_of
from parley.common.data.study import RandomFeatures
from parley.common.encoding.npy import unpack_array
from parley.common.learning.metrics import accuracy
from parley.common.learning.model import Model
from parley.common.privacy.noise import NoNoise
from parley.common.runs.specification import PublicRows
from tests.support.cluster import Cluster, asgi_cluster, made_up, submit, upload, watch

FILE = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    study, parties = made_up(6), []
    for index in range(3):
        X = np.random.default_rng([5, index]).uniform(-1, 1, (80, 6)).round(3)
        columns = {name: X[:, i] for i, name in enumerate(study.feature_names)}
        parties.append(columns | {"y": np.where(X[:, :2].sum(axis=1) > 0, "yes", "no")})
    public = np.random.default_rng(6).uniform(-1, 1, (50, 6)) * [1, 1, 0.5, 0.3, 0.2, 0.1]
    projected = with_projection_of(study, dict(zip(study.feature_names, public.T, strict=True)), 4, 0.9).study
    kernel = projected.model_copy(update={"random_features": RandomFeatures(n=40, seed=3, gamma=1.0)})
    return Cluster(tmp_path, given=(kernel, parties), algorithms=("dp_gd", "evaluate"), hold_out=0.25)


async def test_every_table_is_mapped(cluster: Cluster) -> None:
    names = cluster.study.feature_names
    X = np.random.default_rng(8).uniform(-1, 1, (20, 6)).round(3)
    records = [dict(zip(names, row, strict=True)) for row in X.tolist()]
    rows = rows_of(cluster.study, records)
    table = "\n".join([",".join(names), *(",".join(map(str, row)) for row in X.tolist())])
    labelled = "\n".join(
        [
            ",".join([*names, "y"]),
            *(",".join([*map(str, row), "yes" if row[0] + row[1] > 0 else "no"]) for row in X.tolist()),
        ]
    )
    async with asgi_cluster(cluster, dict.fromkeys(cluster.names, lambda _kept: NoNoise())) as client:
        assert await upload(client, table.encode()) == PublicRows.of(rows).model_dump()
        start = await client.put("/v1/public?study=made-up&start=true", content=labelled.encode(), headers=FILE)
        assert (start.json()["rows"], start.json()["width"]) == (1, 41)
        stored = cluster.root / "learner" / "public" / f"{start.json()['digest']}.npy"
        warm = Model(unpack_array(stored.read_bytes(), "<f8")[0])
        shards = [cluster.part(index, "held_out") for index in range(3)]
        assert np.mean([accuracy(warm, shard) for shard in shards]) > 0.7
        (summary,) = (await client.get("/v1/studies")).json()
        assert (summary["digest"], summary["n_features"]) == (cluster.study.digest, 41)
        run = await submit(client, evaluate=0.5, epsilon=20.0)
        await watch(client, (await watch(client, run))[-1][1]["evaluated_by"])
        model = (await client.get(f"/v1/runs/{run}/model")).json()
        assert (model["evaluation"]["rows"], len(model["weights"])) == (60, 41)
        exact = np.mean([accuracy(Model(np.array(model["weights"])), shard) for shard in shards])
        assert model["evaluation"]["accuracy"]["estimate"] == pytest.approx(exact)
        answer = (await client.post(f"/v1/runs/{run}/predictions", json={"records": records})).json()
        assert [prediction["score"] for prediction in answer] == pytest.approx(
            (rows @ np.array(model["weights"])).tolist()
        )
        assert (await client.post(f"/v1/runs/{run}/predictions", json={"records": []})).json() == []
        refused = await client.post(
            "/v1/runs", json={"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "algorithm": "describe"}
        )
        assert refused.status_code == 422
        assert "column 'x0' cannot be described" in refused.json()["detail"]
