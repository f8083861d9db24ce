"""Asynchronous rounds under a secure sum: a contribution that comes too late is simply not in the set."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.support.cluster import submit, watch
from tests.support.intercepted import learner_of
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services


async def test_a_party_that_missed_a_sum_is_in_the_next(tmp_path: Path) -> None:
    cluster = SecureCluster(tmp_path, n_parties=3, learner={"deadline_seconds": 2.0})
    terms = {"parameters": {"n_rounds": 4}, "minimum_contributors": 2, "answer_every": 2, **SUMS}

    async def refuse(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/rounds/2"):
            raise httpx.ConnectError("refused", request=request)
        return None

    async with secure_services(cluster) as services:
        services["party-2"].intercept = refuse
        async with learner_of(cluster, services) as client:
            run = await submit(client, **terms)
            events = await watch(client, run)
            opened = (await client.get(f"/v1/runs/{run}/receipts")).json()
    assert events[-1][1]["state"] == "completed"
    everybody, others = list(cluster.names), ["party-1", "party-3"]
    assert [each["contributors"] for each in opened] == [everybody, others, everybody, everybody]
    assert [data["missed"] for kind, data in events if kind == "round"] == [[], ["party-2"], [], []]
    assert not [data for kind, data in events if kind == "dropped"]
