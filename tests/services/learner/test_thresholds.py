"""A rule for a model's threshold, given with the run, with an evaluation or afterwards, and refused before it costs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.common.service.tokens import hash_token
from tests.support.cluster import Cluster, asgi_cluster, submit, watch
from tests.support.intercepted import intercepted_parties, learner_of

ORDER: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6}
RECORDS = {"records": [{"x0": x, "x1": -x, "x2": 0.0} for x in (-1.0, -0.3, -0.1, 0.0, 0.1, 0.3, 1.0)]}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, n_parties=2, algorithms=("dp_gd", "evaluate", "describe"), hold_out=0.25)


async def put(client: httpx.AsyncClient, run: str, rule: object) -> httpx.Response:
    return await client.put(f"/v1/runs/{run}/threshold", json={"rule": rule})


async def test_a_public_rule_holds_from_then_on_and_is_taken_back(cluster: Cluster) -> None:
    async with asgi_cluster(cluster) as client:
        run = await submit(client, threshold="probability=.7")
        await watch(client, run)
        assert (await client.get(f"/v1/runs/{run}")).json()["threshold"] == "probability=0.7"
        shown = [(await client.get(f"/v1/runs/{run}/{part}")).headers["etag"] for part in ("model", "card")]
        document = (await client.get(f"/v1/runs/{run}/model")).json()
        score = math.log(7 / 3)
        assert document["threshold"] == {"rule": "probability=0.7", "score": pytest.approx(score), "estimated": False}
        rows = (await client.post(f"/v1/runs/{run}/predictions", json=RECORDS)).json()
        assert [row["label"] for row in rows] == ["yes" if row["score"] > score else "no" for row in rows]
        answer = await put(client, run, "probability=.1")
        assert answer.json() == {"rule": "probability=0.1", "score": pytest.approx(-math.log(9)), "estimated": False}
        changed = [(await client.get(f"/v1/runs/{run}/{part}")).headers["etag"] for part in ("model", "card")]
        assert not {*shown} & {*changed}
        assert "by the rule probability=0.1" in (await client.get(f"/v1/runs/{run}/card?to=markdown")).text
        assert (await put(client, run, "none")).json() is None
        assert (await client.get(f"/v1/runs/{run}/model")).json()["threshold"] is None
        assert (await client.get(f"/v1/runs/{run}")).json()["threshold"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"threshold": "f1", "evaluate": 0},
            "the threshold f1 is chosen by an evaluation, and none follows this run: add --evaluate",
        ),
        ({"threshold": "f2", "evaluate": 0.1}, "threshold 'f2' is no rule; there are balanced, f1"),
        ({"threshold": "recall=2", "evaluate": 0.1}, "a recall is above 0 and at most 1"),
        ({"threshold": "cost=1", "evaluate": 0.1}, "two numbers above 0"),
        ({"threshold": "prevalence"}, "does not state the classes' shares"),
        (
            {"threshold": "probability=.1", "algorithm": "describe"},
            "describe makes no model that could have a threshold",
        ),
    ],
)
async def test_a_rule_that_cannot_hold_is_refused_before_anybody_is_asked(
    cluster: Cluster, change: dict[str, Any], words: str
) -> None:
    async with asgi_cluster(cluster) as client:
        for path in ("/v1/forecasts", "/v1/runs"):
            refused = await client.post(path, json={"study": "made-up", "epsilon": 1.0, "delta": 1e-5} | change)
            assert refused.status_code == 422, refused.text
            assert words in refused.json()["detail"]
        assert (await client.get("/v1/runs")).json()["runs"] == []


async def test_a_rule_that_needs_an_evaluation_waits_for_one_and_without_one_is_refused(cluster: Cluster) -> None:
    async with asgi_cluster(cluster) as client:
        run = await submit(client)
        await watch(client, run)
        refused = await put(client, run, "balanced")
        assert refused.status_code == 409
        command = rf"`parley-learner evaluate {run} --epsilon (2|5|10) --delta 1e-6 --threshold balanced`"
        assert re.search(command, refused.json()["detail"]), "an epsilon at which so few rows are of use"
        assert "or take a public rule" in refused.json()["detail"]
        for rule in ("recall=2", "cost=0:0", "f2"):
            wrong = await client.post(f"/v1/runs/{run}/evaluation", json=ORDER | {"threshold": rule})
            assert (wrong.status_code, (await put(client, run, rule)).status_code) == (422, 422)
        assert (await put(client, run, 7)).status_code == 422
        assert (await put(client, "nobodys", "f1")).status_code == 404
        assert (await client.get(f"/v1/runs/{run}")).json()["evaluations"] == []
        queued = await client.post(f"/v1/runs/{run}/evaluation", json=ORDER | {"threshold": "recall=.8"})
        await watch(client, queued.json()["id"])
        view = (await client.get(f"/v1/runs/{run}")).json()
        assert (view["threshold"], view["evaluations"]) == ("recall=0.8", [queued.json()["id"]])
        threshold = (await client.get(f"/v1/runs/{run}/model")).json()["threshold"]
        assert (threshold["rule"], threshold["estimated"]) == ("recall=0.8", True)
        assert (await put(client, queued.json()["id"], "probability=.1")).status_code == 422, "it has no model"
        stopped = await submit(client)
        await client.post(f"/v1/runs/{stopped}/cancel")
        assert (await put(client, stopped, "probability=.1")).status_code == 409


async def test_who_evaluates_a_run_of_another_user_changes_no_prediction_of_it(cluster: Cluster) -> None:
    users = [{"name": name, "token_hash": hash_token(name)} for name in ("ann", "bob")]
    async with intercepted_parties(cluster) as parties, learner_of(cluster, parties, users=users) as client:
        client.headers["Authorization"] = "Bearer ann"
        run = await submit(client)
        await watch(client, run)
        client.headers["Authorization"] = "Bearer bob"
        assert (await put(client, run, "probability=.1")).status_code == 403
        refused = await client.post(f"/v1/runs/{run}/evaluation", json=ORDER | {"threshold": "f1"})
        assert refused.status_code == 403
        view = (await client.get(f"/v1/runs/{run}")).json()
        assert (view["threshold"], view["evaluations"]) == (None, [])
