"""A run with a secure sum as its user sees it: the same rounds, sums alone, and a receipt for each that was opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.messages import Contribution, Opened
from parley.common.service.http.bodies import SIGNED_MEDIA_TYPE
from tests.support.cluster import LEARNER, submit, train, watch
from tests.support.intercepted import Intercepted, always, learner_of, pass_on, silent
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services

Services = dict[str, Intercepted]
ROUNDS: dict[str, Any] = {"parameters": {"n_rounds": 3}, **SUMS}


@pytest.fixture(params=[1, 2], ids=["one key holder", "two key holders"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> SecureCluster:
    return SecureCluster(tmp_path, n_parties=3, n_key_holders=request.param)


@pytest.fixture
async def services(cluster: SecureCluster) -> AsyncIterator[Services]:
    async with secure_services(cluster) as services:
        yield services


@pytest.fixture
async def client(cluster: SecureCluster, services: Services) -> AsyncIterator[httpx.AsyncClient]:
    async with learner_of(cluster, services) as client:
        yield client


async def states(cluster: SecureCluster, services: Services) -> list[str]:
    """Where each key holder says that the only session it was ever asked for stands."""
    states_seen = []
    for name in cluster.key_holders:
        (session,) = {path.split("/")[3] for path in services[name].seen if path.startswith("PUT /v1/sessions/")}
        headers = {"Authorization": f"Bearer {LEARNER}"}
        async with httpx.AsyncClient(
            transport=services[name].inner, base_url="http://holder", headers=headers
        ) as asking:
            states_seen.append((await asking.get(f"/v1/sessions/{session}")).raise_for_status().json()["state"])
    return states_seen


def key_files(cluster: SecureCluster) -> list[Path]:
    """The key files that any key holder still has."""
    return [path for name in cluster.key_holders for path in (cluster.root / name / "keys").iterdir()]


async def wait_until_ended(cluster: SecureCluster, services: Services) -> None:
    """Wait until every key holder says that the session has ended, and has deleted its key, which it does next."""
    async with asyncio.timeout(30):
        while set(await states(cluster, services)) != {"ended"} or key_files(cluster):  # noqa: ASYNC110 -- no bell rings
            await asyncio.sleep(0.01)


async def deaf_to_ends(request: httpx.Request) -> httpx.Response | None:
    """Refuse the connection to who would say that something has ended."""
    if request.method == "DELETE":
        raise httpx.ConnectError("refused", request=request)
    return None


async def test_status_shows_key_holders_contributors_and_signed_receipts(
    client: httpx.AsyncClient, cluster: SecureCluster
) -> None:
    run = await submit(client, **ROUNDS)
    events = await watch(client, run)
    assert events[-1][1]["state"] == "completed"
    (running,) = [data for kind, data in events if kind == "state" and data["state"] == "running"]
    assert running["key_holders"] == list(cluster.key_holders)
    rounds = [data for kind, data in events if kind == "round"]
    assert [data["round"] for data in rounds] == [1, 2, 3]
    for data in rounds:
        assert data["contributors"] == list(cluster.names)
        assert data["opened_by"] == list(cluster.key_holders)

    view = (await client.get(f"/v1/runs/{run}")).json()
    assert (view["secure_sum"], view["key_holders"]) == ("paillier", list(cluster.key_holders))
    assert (await client.get("/v1/runs")).json()["runs"] == [view]

    keys = {pin["name"]: pin["public_key"] for pin in cluster.pins(cluster.key_holders)}
    opened = (await client.get(f"/v1/runs/{run}/receipts")).raise_for_status().json()
    assert [(opening["round"], opening["contributors"]) for opening in opened] == [
        (r, list(cluster.names)) for r in (1, 2, 3)
    ]
    for opening in opened:
        assert [receipt["key_holder"] for receipt in opening["receipts"]] == list(cluster.key_holders)
        for receipt in opening["receipts"]:
            signed = Signed(receipt["statement"].encode(), bytes.fromhex(receipt["signature"]))
            assert receipt["tag"] == Opened.TAG
            assert Opened.read(signed, keys[receipt["key_holder"]]).round == opening["round"]


async def test_no_answer_reaches_the_learner_but_under_the_pad_and_the_key(
    client: httpx.AsyncClient, cluster: SecureCluster, services: Services
) -> None:
    bodies = record(services, cluster.names)
    await train(client, **ROUNDS)
    for name in cluster.names:
        assert len(bodies[name]) == 3
        for round, (media, body) in enumerate(bodies[name], start=1):
            assert media == SIGNED_MEDIA_TYPE
            signed = Signed.from_bytes(body)
            contribution = Contribution.parse(signed.body)
            assert (contribution.party, contribution.round) == (name, round)
            assert len(signed.attachments) == 1 + len(cluster.key_holders)


def record(services: Services, names: tuple[str, ...]) -> dict[str, list[tuple[str, bytes]]]:
    """What parties will answer to rounds: media types and bodies, as they come."""
    bodies: dict[str, list[tuple[str, bytes]]] = {name: [] for name in names}
    for name in names:
        services[name].inner = Recorder(services[name].inner, bodies[name])
    return bodies


class Recorder(httpx.AsyncBaseTransport):
    """Notes the responses to rounds."""

    def __init__(self, inner: httpx.AsyncBaseTransport, bodies: list[tuple[str, bytes]]) -> None:
        self._inner = inner
        self._bodies = bodies

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if "/rounds/" not in request.url.path:
            return response
        body = await response.aread()
        self._bodies.append((response.headers["content-type"], body))
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(body))


async def test_a_plain_run_has_no_key_holders_and_no_receipts(
    client: httpx.AsyncClient, cluster: SecureCluster, services: Services
) -> None:
    run = await submit(client, parameters={"n_rounds": 2})
    assert (await watch(client, run))[-1][1]["state"] == "completed"
    view = (await client.get(f"/v1/runs/{run}")).json()
    assert (view["secure_sum"], view["key_holders"]) == ("none", [])
    assert (await client.get(f"/v1/runs/{run}/receipts")).json() == []
    assert (await client.get("/v1/runs/unknown/receipts")).status_code == 404
    for name in cluster.key_holders:
        assert {path.split()[1] for path in services[name].seen} <= {"/v1/receipts"}, "they only witness"


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_key_holders_destroy_a_runs_keys_however_it_ends(
    client: httpx.AsyncClient, cluster: SecureCluster, services: Services, end: str
) -> None:
    if end != "completed":
        refusal = always(403, b'{"detail": "enough"}', "/rounds/2")
        services["party-1"].intercept = silent("/rounds/2") if end == "cancelled" else refusal
    run = await submit(client, **ROUNDS)
    if end == "cancelled":
        await services["party-1"].wait_until_seen(f"PUT /v1/runs/{run}/rounds/2")
        await client.post(f"/v1/runs/{run}/cancel")
    assert (await watch(client, run))[-1][1]["state"] == end
    await wait_until_ended(cluster, services)


async def test_a_key_holder_that_missed_the_end_is_told_at_the_next_start(
    cluster: SecureCluster, services: Services
) -> None:
    missing = services[cluster.key_holders[-1]]
    missing.intercept = deaf_to_ends
    async with learner_of(cluster, services) as client:
        await train(client, **ROUNDS)
    assert (await states(cluster, services))[-1] == "serving"
    assert key_files(cluster)
    missing.intercept = pass_on
    async with learner_of(cluster, services):
        await wait_until_ended(cluster, services)
