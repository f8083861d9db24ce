"""Parties that fall silent in mid-round: at no cost while enough remain; below that the run waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from parley.common.runs.specification import RunSpec
from tests.support.cluster import Stream, submit, until_paused, watch
from tests.support.intercepted import Intercept, Intercepted, learner_of, pass_on, silent, unreachable
from tests.support.rounds import run_spec
from tests.support.secure_cluster import SUMS, Rehearsal, SecureCluster, charges, due, secure_services

Services = dict[str, Intercepted]
N_ROUNDS = 4
TERMS: dict[str, Any] = {"parameters": {"n_rounds": N_ROUNDS}, "minimum_contributors": 2, **SUMS}


@pytest.fixture
def cluster(tmp_path: Path) -> SecureCluster:
    return SecureCluster(tmp_path, n_parties=3, learner={"deadline_seconds": 4.0})


@pytest.fixture
async def services(cluster: SecureCluster) -> AsyncIterator[Services]:
    async with secure_services(cluster, streams(cluster)) as services:
        yield services


def streams(cluster: SecureCluster) -> dict[str, Stream]:
    return {name: Stream(3, index) for index, name in enumerate(cluster.names)}


def specification(cluster: SecureCluster) -> RunSpec:
    return run_spec(cluster, N_ROUNDS, minimum_contributors=2, secure_sum="paillier", colluders=1)


async def rehearsed(cluster: SecureCluster, absent: dict[int, int]) -> bytes:
    noises = [stream.noise for stream in streams(cluster).values()]
    return await Rehearsal(cluster, specification(cluster), noises, absent).weights()


@pytest.mark.parametrize("answered", [2, 3], ids=["before it answers", "after it answered"])
async def test_a_dropout_in_mid_round_costs_the_others_nothing(
    cluster: SecureCluster, services: Services, answered: int
) -> None:
    lost = services["party-2"]
    lost.intercept = losing(lost) if answered == 3 else unreachable("/rounds/3")
    async with learner_of(cluster, services) as client:
        run = await submit(client, **TERMS)
        events = await watch(client, run)
        assert events[-1][1]["state"] == "completed"
        model = (await client.get(f"/v1/runs/{run}/model")).json()
        opened = (await client.get(f"/v1/runs/{run}/receipts")).json()
    (dropped,) = [data for kind, data in events if kind == "dropped"]
    assert (dropped["party"], dropped["round"]) == ("party-2", 3)
    everybody, others = list(cluster.names), ["party-1", "party-3"]
    contributors = [everybody, everybody, others, others]
    assert [data["contributors"] for kind, data in events if kind == "round"] == contributors
    assert [opening["contributors"] for opening in opened] == contributors
    assert np.array(model["weights"]).tobytes() == await rehearsed(cluster, absent={1: 3})

    cost = due(specification(cluster))
    cost["party-2"] = cost["party-2"][:answered]
    assert charges(cluster, run) == cost


def losing(party: Intercepted) -> Intercept:
    """What befalls round 3 of a party: it answers, and nobody hears it."""

    async def lose(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/rounds/3"):
            await party.inner.handle_async_request(request)
            await asyncio.Event().wait()
        return None

    return lose


async def test_below_the_minimum_the_round_is_asked_again_and_costs_what_it_costs_once(
    cluster: SecureCluster, services: Services
) -> None:
    services["party-2"].intercept = unreachable("/rounds/2")
    services["party-3"].intercept = silent("/rounds/", after=1)
    async with learner_of(cluster, services) as client:
        run = await submit(client, **TERMS)
        pause = await until_paused(client, run)
        assert pause["who"] == ["party-2", "party-3"]
        assert "round 2: 1 of the 2 parties that are needed answered" in pause["reason"]
        assert pause["written"]
        assert charges(cluster, run)["party-1"] == due(specification(cluster))["party-1"][:2]
        services["party-2"].intercept = services["party-3"].intercept = pass_on
        resumed = await client.post(f"/v1/runs/{run}/resume")
        assert resumed.status_code == 200
        events = await watch(client, run)
        assert events[-1][1]["state"] == "completed", events[-1]
        model = (await client.get(f"/v1/runs/{run}/model")).json()
    assert np.array(model["weights"]).tobytes() == await rehearsed(cluster, absent={})
    assert charges(cluster, run) == due(specification(cluster))


async def test_below_the_minimum_a_run_fails_once_patience_is_spent(cluster: SecureCluster, services: Services) -> None:
    services["party-2"].intercept = unreachable("/rounds/2")
    services["party-3"].intercept = silent("/rounds/", after=1)
    async with learner_of(cluster, services, patience_seconds=0) as client:
        run = await submit(client, **TERMS)
        events = await watch(client, run)
        opened = (await client.get(f"/v1/runs/{run}/receipts")).json()
    problem = events[-1][1]["problem"]
    assert problem["type"] == "urn:parley:problem:quorum-lost"
    assert problem["silent"] == ["party-2", "party-3"]
    assert problem["charged"] == ["party-1"]
    assert "charged to those that answered, once however often it is asked: party-1" in problem["detail"]
    assert [opening["round"] for opening in opened] == [1]
    assert not any("/rounds/2" in path for path in services["key-holder-1"].seen)

    cost = due(specification(cluster))
    assert charges(cluster, run) == {name: cost[name][: 2 if name == "party-1" else 1] for name in cluster.names}
