"""Asynchronous rounds under a secure sum: a contribution that comes too late is simply not in the set."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.support.cluster import submit, watch
from tests.support.intercepted import learner_of
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services


async def test_a_party_that_missed_a_sum_is_in_the_next(tmp_path: Path) -> None:
    cluster = SecureCluster(tmp_path, n_parties=3, learner={"deadline_seconds": 2.0})
    rounds = 8  # who misses one for want of processors is asked again, and nobody can miss all
    terms = {"parameters": {"n_rounds": rounds}, "minimum_contributors": 2, "answer_every": rounds, **SUMS}

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
    news = [data for kind, data in events if kind == "round"]
    assert [opening["contributors"] for opening in opened] == [data["contributors"] for data in news]
    assert all({*data["contributors"], *data["missed"]} == {*cluster.names} for data in news)
    assert news[1]["missed"] == ["party-2"]
    again = sum("party-2" in data["contributors"] for data in news[2:])
    assert again > 0
    print(f"a party that missed round 2 of a secure sum was in {again} of the {rounds - 2} sums after it")
    assert not [data for kind, data in events if kind == "dropped"]
