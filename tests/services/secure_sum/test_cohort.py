"""A secure sum among those who answer: its roster is of the members, and each of them signs it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import submit, until_paused, watch
from tests.support.intercepted import Intercepted, learner_of, pass_on, unreachable
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services

Services = dict[str, Intercepted]
TERMS: dict[str, Any] = {"parameters": {"n_rounds": 2}, "cohort": {"least": 2, "seconds": 2.0}, **SUMS}


@pytest.fixture
def cluster(tmp_path: Path) -> SecureCluster:
    return SecureCluster(tmp_path, n_parties=4, learner={"deadline_seconds": 4.0, "approval_seconds": 4.0})


@pytest.fixture
async def services(cluster: SecureCluster) -> AsyncIterator[Services]:
    async with secure_services(cluster) as services:
        yield services


async def test_who_is_absent_is_on_no_roster(cluster: SecureCluster, services: Services) -> None:
    services["party-2"].intercept = unreachable()
    async with learner_of(cluster, services) as client:
        run = await submit(client, **TERMS)
        events = await watch(client, run)
        assert events[-1][1]["state"] == "completed", events[-1]
        document = (await client.get(f"/v1/runs/{run}")).json()
        opened = (await client.get(f"/v1/runs/{run}/receipts")).json()
    assert document["parties"] == ["party-1", "party-3", "party-4"]
    assert document["minimum_contributors"] == 2
    assert [opening["contributors"] for opening in opened] == [["party-1", "party-3", "party-4"]] * 2
    assert not [request for request in services["party-2"].seen if "/v1/runs" in request]


async def test_a_member_that_does_not_sign_pauses_the_run(cluster: SecureCluster, services: Services) -> None:
    services["party-2"].intercept = unreachable()
    services["party-3"].intercept = unreachable("/roster")
    async with learner_of(cluster, services, approval_seconds=0.3) as client:
        run = await submit(client, **TERMS)
        assert (await until_paused(client, run))["who"] == ["party-3"]
        services["party-3"].intercept = pass_on
        await client.post(f"/v1/runs/{run}/resume")
        assert (await watch(client, run))[-1][1]["state"] == "completed"
