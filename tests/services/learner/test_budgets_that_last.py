"""Runs of all kinds, in any order, with defaults alone, on one ledger: none is refused while epsilon is left for it."""

from __future__ import annotations

import random
from pathlib import Path

import httpx
import pytest

from tests.support.cluster import Cluster, asgi_cluster, submit, train, upload, watch

EPSILON = 0.5
KINDS = ("dp_gd", "release", "average", "feature", "evaluate", "ensemble_vote")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    policy = {"delta": 1e-5, "max_delta_per_run": 1e-6, "max_epsilon_per_run": EPSILON}
    return Cluster(tmp_path, 3, n_examples=400, epsilon=5.0, hold_out=0.25, policy=policy, algorithms=KINDS)


async def left(client: httpx.AsyncClient) -> float:
    """The least epsilon of one more run that a party says is left, for any of its rows."""
    parties = (await client.get("/v1/parties")).raise_for_status().json()
    return min(float(budget["epsilon_left"]) for party in parties for budget in party["budgets"].values())


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_kind_is_refused_while_epsilon_is_left(cluster: Cluster, seed: int) -> None:
    """Three of each kind with 10 parts of the budget: epsilons add up to 9, and none is refused at 5."""
    order = [kind for kind in KINDS for _ in range(3)]
    random.Random(seed).shuffle(order)
    async with asgi_cluster(cluster) as client:
        rows, labelled = [
            (await upload(client, cluster.public_table(20), labelled=has_label))["digest"]
            for has_label in (False, True)
        ]
        public = {"ensemble_vote": {"public": rows}, "feature": {"public": labelled}}
        run: str | None = None
        for kind in order:
            assert await left(client) > EPSILON, kind
            if kind == "evaluate":
                if run is None:
                    run = await submit(client, algorithm="dp_gd", epsilon=EPSILON, delta=1e-6)
                    await watch(client, run)
                order_of_it = {"epsilon": EPSILON, "delta": 0.0}
                response = await client.post(f"/v1/runs/{run}/evaluation", json=order_of_it)
                assert response.status_code == 202, (kind, response.text)
                events = await watch(client, response.json()["id"])
                assert events[-1][1]["state"] == "completed", (kind, events[-1])
                continue
            model = await train(client, algorithm=kind, epsilon=EPSILON, delta=1e-6, **public.get(kind, {}))
            assert model["guarantees"][-1]["epsilon"] <= EPSILON * (1 + 1e-6)
        print(f"epsilon {await left(client):.3g} is left after {len(order)} runs of {EPSILON:g}")
