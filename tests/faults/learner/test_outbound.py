"""Parties that open their connections to the learner: bytes may be lost, but no answer is, and none costs twice."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.common.privacy.noise import SystemNoise
from parley.common.service.tokens import hash_token
from parley.learner.settings import LearnerSettings
from tests.support.certificates import Certificates, make_certificates
from tests.support.cluster import AUTHORIZED, LEARNER, Cluster, Stream, asgi_cluster, train
from tests.support.nightly import repeats
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready
from tests.support.relay import Relay, relay
from tests.support.replays import extra_charges, stored

ROUNDS = 30
KILLS = repeats(12, 200)
"""How often the learner is killed, and half as often a party."""
MANY = repeats(20, 1000)
"""Faults of the long test: twenty minutes of them by night."""

FAULTS = ("cut", "half", "delay", "twice")
FORGETFUL = (*FAULTS * 4, "forget")
"""A connection that is forgotten takes seconds to be noticed."""


@dataclass
class Outbound:
    """A learner whom its parties reach through a relay each."""

    cluster: Cluster
    settings: LearnerSettings
    relays: dict[str, Relay] = field(default_factory=dict)
    parties: dict[str, BaseProcess] = field(default_factory=dict)
    proxy_password: Path | None = None
    noises: dict[str, Stream] = field(default_factory=dict)
    """Where a test fixes what the parties draw."""
    certificates: Certificates | None = None

    @property
    def url(self) -> str:
        return f"{'http' if self.certificates is None else 'https'}://127.0.0.1:{self.settings.port}"

    @property
    def authority(self) -> Path | None:
        return self.certificates.authority if self.certificates else None

    def start(self, name: str) -> None:
        """A party's process, which listens on loopback too, for its owner."""
        relay = f"{httpx.URL(self.url).scheme}://127.0.0.1:{self.relays[name].port}"
        address: dict[str, object] = {"name": "learner", "url": relay, "token": f"of-{name}", "ca": self.authority}
        if self.proxy_password is not None:
            address |= {"url": self.url, "proxy": relay, "proxy_password_file": self.proxy_password}
        settings = self.cluster.party_settings(name, port=free_port(), outbound=[address])
        self.parties[name] = start_party(settings, self.noises.get(name, SystemNoise))

    def kill(self, name: str) -> None:
        """Kill a party and start it again."""
        self.parties[name].kill()
        self.parties[name].join(30)
        self.start(name)

    async def submit(self, n_rounds: int = ROUNDS) -> str:
        request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": n_rounds}}
        async with self.client() as client:
            answer = await client.post("/v1/runs", json=request)
            run: str = answer.raise_for_status().json()["id"]
            return run

    async def trained(self, run: str) -> dict[str, Any]:
        """The model of a run, when it has ended."""
        async with self.client() as client:
            (await client.get(f"/v1/runs/{run}/events")).raise_for_status()
            model: dict[str, Any] = (await client.get(f"/v1/runs/{run}/model")).raise_for_status().json()
            return model

    def client(self) -> httpx.AsyncClient:
        verify = ssl.create_default_context(cafile=self.authority)
        return httpx.AsyncClient(base_url=self.url, headers=AUTHORIZED, trust_env=False, timeout=120, verify=verify)

    def encrypt(self) -> None:
        """Have all go by TLS, as between machines: a byte that comes twice is no other message then."""
        self.certificates = made = make_certificates(self.cluster.root / "certificates")
        tls = {"certificate": made.certificate, "key": made.key}
        self.settings = self.cluster.learner_settings(
            port=self.settings.port, parties=self.settings.parties, tls=tls, deadline_seconds=1.0
        )
        for name in self.cluster.names:
            self.kill(name)


@asynccontextmanager
async def outbound(root: Path) -> AsyncIterator[Outbound]:
    """Three parties' processes behind relays; the learner is not started."""
    cluster, port = Cluster(root, n_parties=3), free_port()
    roster = [{"name": n, "connects_with": hash_token(f"of-{n}"), "token": LEARNER} for n in cluster.names]
    made = Outbound(cluster, cluster.learner_settings(port=port, parties=roster))
    async with AsyncExitStack() as stack:
        for seed, name in enumerate(cluster.names):
            made.relays[name] = await stack.enter_async_context(relay(port, seed))
            made.start(name)
        try:
            yield made
        finally:
            with stopped_at_exit(*made.parties.values()):
                pass


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Outbound]:
    async with outbound(tmp_path) as made:
        yield made


async def test_a_run_trains_over_connections_that_parties_open(federation: Outbound) -> None:
    with stopped_at_exit(start_learner(federation.settings)):
        wait_until_ready(federation.url)
        run = await federation.submit()
        model = await federation.trained(run)
    assert await extra_charges(federation.settings, run, model) == 0


async def test_a_proxy_on_the_way_is_told_its_password(federation: Outbound, tmp_path: Path) -> None:
    federation.proxy_password = tmp_path / "proxy.password"
    federation.proxy_password.write_text("clinic:wrong\n")
    for name, way in federation.relays.items():
        way.password = "clinic:right"
        federation.kill(name)
    with stopped_at_exit(start_learner(federation.settings)):
        wait_until_ready(federation.url)
        while not all(way.done["407"] for way in federation.relays.values()):  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.05)
        federation.proxy_password.write_text("clinic:right\n")
        model = await federation.trained(run := await federation.submit())
    assert all(way.done["200"] for way in federation.relays.values())
    assert await extra_charges(federation.settings, run, model) == 0


async def test_a_stranger_and_a_user_cannot_pass_for_a_party(federation: Outbound) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "parley-peer"}
    with stopped_at_exit(start_learner(federation.settings)):
        wait_until_ready(federation.url)
        async with federation.client() as client:
            assert (await client.get("/v1/connections", headers=upgrade)).status_code == 403
            stranger = upgrade | {"Authorization": "Bearer of-nobody"}
            assert (await client.get("/v1/connections", headers=stranger)).status_code == 401
            party = {"Authorization": f"Bearer of-{federation.cluster.names[0]}"}
            assert (await client.get("/v1/connections", headers=party)).status_code == 422
            for path in ("/v1/runs", "/v1/parties", "/v1/studies"):
                assert (await client.get(path, headers=party)).status_code == 403


@pytest.mark.slow
async def test_lost_and_forgotten_connections_lose_nothing(federation: Outbound) -> None:
    for hop in federation.relays.values():
        hop.faulty, hop.faults = 0.15, ("cut", "half")
    with stopped_at_exit(start_learner(federation.settings)):
        wait_until_ready(federation.url)
        run = await federation.submit(60)
        model = await federation.trained(run)
    assert await extra_charges(federation.settings, run, model) == 0
    lost = sum(hop.done["cut"] + hop.done["half"] for hop in federation.relays.values())
    print(f"{lost} connections lost in 60 rounds of 3 parties: 0 extra charges")
    assert lost > 20


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("n", "faults"), [(12, FAULTS), pytest.param(MANY, FORGETFUL, marks=pytest.mark.slow)])
async def test_what_befalls_bytes_changes_no_model(
    federation: Outbound, tmp_path: Path, n: int, faults: tuple[str, ...]
) -> None:
    noises = {name: Stream(5, index) for index, name in enumerate(federation.cluster.names)}
    federation.noises.update(noises)
    federation.encrypt()
    for hop in federation.relays.values():
        hop.faulty, hop.faults = 0.1, faults
    clock, models, extra = asyncio.get_running_loop().time, list[list[float]](), 0
    done, began = Counter[str](), clock()
    with stopped_at_exit(start_learner(federation.settings)):
        wait_until_ready(federation.url, federation.authority)
        while sum(done[fault] for fault in set(faults)) < n:
            model = await federation.trained(run := await federation.submit())
            models.append(model["weights"])
            extra += await extra_charges(federation.settings, run, model)
            done = sum((hop.done for hop in federation.relays.values()), Counter())
    befell = ", ".join(f"{done[fault]} {fault}" for fault in dict.fromkeys(faults))
    print(f"{befell} in {len(models)} runs and {clock() - began:.0f} s: {extra} extra charges")
    assert extra == 0
    undisturbed = Cluster(tmp_path / "undisturbed", n_parties=3)
    async with asgi_cluster(undisturbed, noises) as client:
        for weights in models:
            assert (await train(client, parameters={"n_rounds": ROUNDS}))["weights"] == weights


@pytest.mark.slow
async def test_a_connection_that_is_forgotten_is_noticed(federation: Outbound) -> None:
    clock = asyncio.get_running_loop().time
    with stopped_at_exit(start_learner(federation.settings)):
        wait_until_ready(federation.url)
        run = await federation.submit(200)
        await asyncio.sleep(0.5)
        forgetful = federation.relays[federation.cluster.names[0]]
        forgetful.faulty, forgetful.faults = 1.0, ("forget",)
        while not forgetful.done["forget"]:  # noqa: ASYNC110 -- the relay tells nobody
            await asyncio.sleep(0.01)
        forgetful.faulty, started = 0.0, clock()
        model = await federation.trained(run)
        print(f"a connection forgotten in mid-run: the run ended {clock() - started:.1f} s later")
    assert await extra_charges(federation.settings, run, model) == 0


@pytest.mark.slow
async def test_a_network_that_is_gone_for_longer_than_any_pause_pauses_a_run(federation: Outbound) -> None:
    with stopped_at_exit(start_learner(federation.settings)):
        wait_until_ready(federation.url)
        run = await federation.submit(300)
        await asyncio.sleep(0.5)
        for hop in federation.relays.values():
            hop.is_open = False
            hop.lose()
        async with federation.client() as client:
            while (view := (await client.get(f"/v1/runs/{run}")).json())["state"] != "paused":
                assert view["state"] == "running"
                await asyncio.sleep(0.1)
        await asyncio.sleep(15)  # longer than a party ever rests before it dials again
        for hop in federation.relays.values():
            hop.is_open = True
        model = await federation.trained(run)
    assert await extra_charges(federation.settings, run, model) == 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_killing_either_end_loses_nothing(federation: Outbound) -> None:
    rng, runs = random.Random(3), list[str]()
    for kill in range(KILLS):
        learner = start_learner(federation.settings)
        with stopped_at_exit(learner):
            wait_until_ready(federation.url)
            if not runs or stored(federation.settings, runs[-1], "state") == "completed":
                runs.append(await federation.submit())
            await asyncio.sleep(rng.uniform(0, 1.0))
            if kill % 2:
                await asyncio.to_thread(federation.kill, rng.choice(federation.cluster.names))
                await asyncio.sleep(rng.uniform(0, 0.5))
            learner.kill()
            learner.join(30)
    with stopped_at_exit(start_learner(federation.settings)):
        wait_until_ready(federation.url)
        extra = [await extra_charges(federation.settings, run, await federation.trained(run)) for run in runs]
    print(f"learner killed {KILLS} times, a party {KILLS // 2} times, in {len(runs)} runs: {sum(extra)} extra charges")
    assert sum(extra) == 0
