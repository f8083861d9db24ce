"""A study of sparse features over services: LIBSVM files trained on, and the models used as those of dense rows are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.common.client import federation
from parley.common.data.columns import Label, SparseFeatures
from parley.common.data.study import LogisticLoss, Study
from parley.learner.storage import public_rows
from tests.support.cluster import Cluster, Stream, asgi_cluster, submit, train, watch

COLUMNS, ROWS = 150, 120
STUDY = Study(
    name="urls",
    features=(SparseFeatures(name="words", columns=COLUMNS, entries=3),),
    label=Label(name="bad", values=("-1", "1")),
    loss=LogisticLoss(),
    hold_out=0.25,
)
TELLING = 7
"""The place whose sign is the label."""


def lines(seed: int) -> str:
    """Rows as LIBSVM: the sign of one entry is the label, and two others say nothing."""
    rng = np.random.default_rng(seed)
    rows = []
    for label in rng.choice([-1, 1], ROWS).tolist():
        first, second = sorted(rng.choice(range(TELLING + 1, COLUMNS + 1), 2, replace=False).tolist())
        rows.append(f"{label:+d} {TELLING}:{label} {first}:0.1 {second}:-0.1\n")
    return "".join(rows)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    allowed = ("dp_gd", "simplex", "evaluate")
    return Cluster(tmp_path, given=(STUDY, [lines(1), lines(2)]), epsilon=200.0, algorithms=allowed)


def noises() -> dict[str, Stream]:
    return {f"party-{number}": Stream(21, number) for number in (1, 2)}


def record(value: float) -> dict[str, Any]:
    return {"index": [TELLING, 20], "value": [value, 0.1]}


async def test_a_descent_is_predicted_with_evaluated_and_described(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation, "_PIECE", 64)  # answers are added in three pieces
    monkeypatch.setattr(public_rows, "MAX_BYTES", 8 * COLUMNS // 2)  # of uploads, not of a model's weights
    async with asgi_cluster(cluster, noises()) as client:
        run = await submit(client, study="urls", algorithm="dp_gd", epsilon=50.0, evaluate=0.5)
        (_, last), *_ = reversed(await watch(client, run))
        (_, follower), *_ = reversed(await watch(client, last["evaluated_by"]))
        assert (last["state"], follower["state"]) == ("completed", "completed")
        document = (await client.get(f"/v1/runs/{run}/model")).raise_for_status().json()
        assert (document["kind"], document["column_names"], len(document["weights"])) == ("linear", [], COLUMNS + 1)
        assert document["evaluation"]["accuracy"]["estimate"] > 0.8
        order = {"records": [record(1.0), record(-1.0)]}
        predictions = (await client.post(f"/v1/runs/{run}/predictions", json=order)).raise_for_status().json()
        assert [prediction["label"] for prediction in predictions] == ["1", "-1"]
        card = (await client.get(f"/v1/runs/{run}/card?to=markdown")).raise_for_status().text
        assert f"{COLUMNS} numbers, few of them not zero" in card
        assert "not what the learner signed" not in card
        response = await client.post(f"/v1/runs/{run}/evaluation", json={"epsilon": 1.0, "delta": 1e-6})
        again = response.raise_for_status().json()
        assert (await watch(client, again["id"]))[-1][1]["state"] == "completed"


async def test_draws_from_the_simplex_are_spelt_by_their_entries(cluster: Cluster) -> None:
    async with asgi_cluster(cluster, noises()) as client:
        document = await train(client, study="urls", algorithm="simplex", epsilon=20.0)
        assert (document["kind"], document["weights"]["length"]) == ("linear", COLUMNS + 1)
        assert len(document["weights"]["index"]) < COLUMNS / 3
        run = document["certificate"]["run"]
        order = {"records": [record(1.0), record(-1.0)]}
        predictions = (await client.post(f"/v1/runs/{run}/predictions", json=order)).raise_for_status().json()
        assert [prediction["label"] for prediction in predictions] == ["1", "-1"]
        assert f"{COLUMNS} numbers" in (await client.get(f"/v1/runs/{run}/card?to=markdown")).text
