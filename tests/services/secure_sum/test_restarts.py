"""Stopped in mid-round and started again: the same set is opened, or none."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from parley.party.keyholder.journal import Anchors
from tests.support.cluster import Stream, submit, watch
from tests.support.intercepted import Intercepted, learner_of, pass_on, unreachable
from tests.support.keyholder import NotedOpening, noted_openings
from tests.support.rounds import run_spec
from tests.support.secure_cluster import SUMS, Hang, Rehearsal, SecureCluster, charges, due, secure_services

Services = dict[str, Intercepted]
N_ROUNDS = 3
TERMS: dict[str, Any] = {"parameters": {"n_rounds": N_ROUNDS}, "minimum_contributors": 2, **SUMS}


@pytest.fixture(params=[1, 2], ids=["one key holder", "two key holders"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> SecureCluster:
    return SecureCluster(tmp_path, n_parties=3, n_key_holders=request.param, learner={"deadline_seconds": 4.0})


@pytest.fixture
async def services(cluster: SecureCluster) -> AsyncIterator[Services]:
    async with secure_services(cluster, streams(cluster)) as services:
        yield services


def streams(cluster: SecureCluster) -> dict[str, Stream]:
    return {name: Stream(5, index) for index, name in enumerate(cluster.names)}


class Lost(Hang):
    """Lets a service answer a request, once, and loses what it says."""

    def __init__(self, service: Intercepted, path: str) -> None:
        super().__init__(path)
        self.service = service

    async def __call__(self, request: httpx.Request) -> httpx.Response | None:
        if self.path in request.url.path:
            await (await self.service.inner.handle_async_request(request)).aread()
        return await super().__call__(request)


async def stop_in_round_2(cluster: SecureCluster, services: Services, name: str) -> str:
    """A run whose learner is stopped just before it hears what a service says in round 2."""
    services[name].intercept = lost = Lost(services[name], "/rounds/2")
    async with learner_of(cluster, services) as client:
        run = await submit(client, **TERMS)
        async with asyncio.timeout(20):
            await lost.reached.wait()
    services[name].intercept = pass_on
    return run


@pytest.mark.parametrize("name", ["party-2", "key-holder-1"])
async def test_a_learner_stopped_in_mid_round_goes_on_with_the_same_set(
    cluster: SecureCluster, services: Services, name: str
) -> None:
    run = await stop_in_round_2(cluster, services, name)
    if name == "key-holder-1":  # the set is chosen: parties are not needed any more
        services["party-2"].intercept = unreachable("/rounds/2")
    async with learner_of(cluster, services) as client:
        events = await watch(client, run)
        assert events[-1][1]["state"] == "completed", events[-1]
        model = (await client.get(f"/v1/runs/{run}/model")).json()
    noises = [stream.noise for stream in streams(cluster).values()]
    spec = run_spec(cluster, N_ROUNDS, minimum_contributors=2, secure_sum="paillier", colluders=1)
    assert np.array(model["weights"]).tobytes() == await Rehearsal(cluster, spec, noises).weights()
    assert charges(cluster, run) == due(spec)


@pytest.mark.parametrize(
    ("forgotten", "who", "reason"),
    [
        ("contributions", {"key_holder": "key-holder-1"}, "round_opened"),
        ("rounds", {"party": "party-1"}, "round_answered"),  # and with it the deadline, so it asks another query
    ],
)
@pytest.mark.slow
async def test_a_learner_that_was_set_back_cannot_have_another_set_opened(
    cluster: SecureCluster, services: Services, forgotten: str, who: dict[str, str], reason: str
) -> None:
    run = await stop_in_round_2(cluster, services, "key-holder-1")
    before = journals(cluster)
    with closing(sqlite3.connect(cluster.root / "learner" / "learner.sqlite")) as store:
        store.execute("PRAGMA foreign_keys = ON")
        assert store.execute(f"DELETE FROM {forgotten}").rowcount > 0  # noqa: S608
        store.commit()
    services["party-3"].intercept = unreachable("/rounds/2")
    async with learner_of(cluster, services, deadline_seconds=6.0) as client:  # whose deadlines are others
        problem = (await watch(client, run))[-1][1]["problem"]
    assert problem["reason"] == reason
    assert who.items() <= problem.items()
    assert journals(cluster) == before


async def test_a_run_whose_key_holder_was_set_back_ends_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SecureCluster(tmp_path, n_parties=3, learner={"deadline_seconds": 4.0})
    async with secure_services(cluster) as services:
        run = await stop_in_round_2(cluster, services, "key-holder-1")
    monkeypatch.setattr(Anchors, "holds", lambda *_: False)
    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        last = (await watch(client, run))[-1][1]
        assert last["state"] == "failed"
        assert (last["problem"]["key_holder"], last["problem"]["reason"]) == ("key-holder-1", "out_of_turn")
        assert "its files were put back from a copy, and either ends all sessions" in last["problem"]["detail"]
        monkeypatch.undo()
        again = await submit(client, **TERMS)
        assert (await watch(client, again))[-1][1]["state"] == "completed", "a new run has a session of its own"


def journals(cluster: SecureCluster) -> list[NotedOpening]:
    """All that the first key holder has noted."""
    return noted_openings(cluster.root / "key-holder-1")
