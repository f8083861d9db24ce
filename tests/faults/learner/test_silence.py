"""Parties that stay silent, parties behind a bad network, and a log that has been changed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.support.cluster import AUTHORIZED, DEADLINE, Cluster, Stream, submit, train, watch
from tests.support.intercepted import Intercepted, always, intercepted_parties, learner_of, silent, unreachable
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready
from tests.support.proxy import faulty_proxy

Parties = dict[str, Intercepted]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, n_parties=3, learner={"deadline_seconds": DEADLINE})


@pytest.fixture
async def parties(cluster: Cluster) -> AsyncIterator[Parties]:
    async with intercepted_parties(cluster) as parties:
        yield parties


@pytest.mark.parametrize("silence", [silent, unreachable])
async def test_a_silent_party_is_dropped_while_enough_remain(cluster: Cluster, parties: Parties, silence: type) -> None:
    async with learner_of(cluster, parties) as client:
        parties["party-2"].intercept = silence("/rounds/3")
        run = await submit(client, minimum_contributors=2)
        events = await watch(client, run)
        model = (await client.get(f"/v1/runs/{run}/model")).json()
    (dropped,) = [data for kind, data in events if kind == "dropped"]
    assert (dropped["party"], dropped["round"]) == ("party-2", 3)
    assert "party-2" in dropped["reason"]
    contributors = [data["contributors"] for kind, data in events if kind == "round"]
    assert contributors == [list(cluster.names)] * 2 + [["party-1", "party-3"]] * 8
    assert model["contributors"] == ["party-1", "party-3"]
    assert max(parties["party-2"].rounds()) == 3
    assert dropped["epsilon"] == pytest.approx([d["epsilon"]["party-1"] for k, d in events if k == "round"][2])


async def test_a_dropped_party_stays_dropped_after_a_restart(cluster: Cluster, parties: Parties) -> None:
    parties["party-2"].intercept = silent("/rounds/2")
    async with learner_of(cluster, parties) as client:
        parties["party-3"].intercept = silent("/rounds/5")
        run = await submit(client, minimum_contributors=2)
        await parties["party-3"].wait_until_seen(f"PUT /v1/runs/{run}/rounds/5")
    for party in parties.values():
        party.intercept = silent("/no-such-path")
    async with learner_of(cluster, parties) as client:
        events = await watch(client, run)
    assert events[-1][1]["state"] == "completed"
    assert [data["party"] for kind, data in events if kind == "dropped"] == ["party-2"]
    assert max(parties["party-2"].rounds()) == 2


async def test_a_run_without_quorum_fails_once_patience_is_spent(cluster: Cluster, parties: Parties) -> None:
    async with learner_of(cluster, parties, patience_seconds=0.1) as client:
        parties["party-1"].intercept = silent("/rounds/2")
        parties["party-3"].intercept = always(503, b'{"detail": "the ledger is locked"}', "/rounds/2")
        run = await submit(client, minimum_contributors=2)
        events = await watch(client, run)
    problem = events[-1][1]["problem"]
    assert problem["type"] == "urn:parley:problem:quorum-lost"
    assert problem["silent"] == ["party-1", "party-3"]
    assert (
        f"party-1 did not answer within {DEADLINE:g} s; party-3 cannot answer: the ledger is locked"
        in problem["detail"]
    )
    assert max(parties["party-2"].rounds()) == 2
    states = [data for kind, data in events if kind == "state"]
    assert [data["state"] for data in states] == ["queued", "recruiting", "running", "paused", "failed"]
    assert states[3]["who"] == ["party-1", "party-3"]
    assert states[3]["reason"] == problem["detail"]


async def test_a_party_that_recovers_within_the_deadline_is_not_lost(cluster: Cluster, parties: Parties) -> None:
    async with learner_of(cluster, parties, deadline_seconds=30) as client:
        parties["party-2"].intercept = always(503, b"", "/rounds/2")
        run = await submit(client)
        await parties["party-2"].wait_until_seen(f"PUT /v1/runs/{run}/rounds/2")
        parties["party-2"].intercept = silent("/no-such-path")
        events = await watch(client, run)
    assert events[-1][1]["state"] == "completed"
    assert parties["party-2"].rounds().count(2) > 1


async def test_a_slow_party_is_named_as_a_straggler(cluster: Cluster, parties: Parties) -> None:
    async def slow(request: httpx.Request) -> None:
        if request.url.path.endswith("/rounds/1"):
            await asyncio.sleep(1.1 * DEADLINE)

    parties["party-2"].intercept = slow
    async with learner_of(cluster, parties, deadline_seconds=2 * DEADLINE) as client:
        events = await watch(client, await submit(client))
    stragglers = [data["stragglers"] for kind, data in events if kind == "round"]
    assert stragglers == [["party-2"], *[[]] * 9]


async def test_a_log_that_was_changed_stops_the_run(cluster: Cluster, parties: Parties) -> None:
    parties["party-1"].intercept = silent("/rounds/4")
    async with learner_of(cluster, parties, deadline_seconds=60) as client:
        run = await submit(client)
        await parties["party-1"].wait_until_seen(f"PUT /v1/runs/{run}/rounds/4")
    with closing(sqlite3.connect(cluster.learner_settings().state / "learner.sqlite")) as connection, connection:
        connection.execute("UPDATE replies SET query = 'another' WHERE round = 2")
    async with learner_of(cluster, parties) as client:
        events = await watch(client, run)
    assert events[-1][1]["problem"]["type"] == "urn:parley:problem:replay-mismatch"
    assert parties["party-2"].rounds() == [1, 2, 3, 4]


async def test_a_bad_network_changes_nothing(tmp_path: Path) -> None:
    """Requests lost, answers lost, cut, doubled and late: the model is that of a good network, bit for bit."""
    models = []
    for index, faulty in enumerate((0.0, 0.5)):
        cluster = Cluster(tmp_path / str(index), n_parties=3, learner={"deadline_seconds": 30})
        noises = {name: Stream(3, party) for party, name in enumerate(cluster.names)}
        with party_processes(cluster, noises) as urls:
            async with AsyncExitStack() as stack:
                proxies = {
                    name: await stack.enter_async_context(faulty_proxy(httpx.URL(url).port or 0, seed, faulty))
                    for seed, (name, url) in enumerate(urls.items())
                }
                url = f"http://127.0.0.1:{free_port()}"
                settings = cluster.learner_settings(
                    {name: proxy.url for name, proxy in proxies.items()}, port=httpx.URL(url).port
                )
                with stopped_at_exit(start_learner(settings)):
                    wait_until_ready(url)
                    async with httpx.AsyncClient(base_url=url, headers=AUTHORIZED, trust_env=False) as client:
                        models.append(await train(client))
                faults = sum(proxy.done.total() - proxy.done["none"] for proxy in proxies.values())
    good, bad = (np.array(model["weights"]) for model in models)
    assert faults > 10
    assert good.tobytes() == bad.tobytes()
    print(f"a learner behind faulty proxies: {faults} faults, same final model bit for bit")
