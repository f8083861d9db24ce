"""A learner, parties and a key holder as processes, each behind a proxy, to which everything may happen in mid-run."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import httpx
import numpy as np

from parley.common.arrays import FloatArray
from parley.common.privacy.noise import SeededNoise
from parley.common.runs.specification import RunSpec
from parley.learner.settings import LearnerSettings
from parley.party.answers.party import KeepingNoise
from parley.party.ledger.ledger import OneTimeNoise
from tests.support.cluster import AUTHORIZED, submit, watch
from tests.support.keyholder_process import start_keyholder
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready
from tests.support.proxy import FaultyProxy, faulty_proxy
from tests.support.rounds import run_spec
from tests.support.secure_cluster import Rehearsal, SecureCluster, charges, due

SEED = 17
DEADLINE = 0.4
UNLIMITED = resource.RLIM_INFINITY


class SameNoise:
    """A noise factory that draws the same for each answer, however often it is computed."""

    def __init__(self, party: int) -> None:
        self._party = party

    def __call__(self, one_time: OneTimeNoise | None) -> KeepingNoise:
        return SeededNoise((SEED, self._party))


@dataclass(frozen=True)
class SameNoises(Sequence[SeededNoise]):
    """The parties' noises, as `SameNoise` draws them: each look gives a stream at its beginning."""

    n_parties: int

    def __len__(self) -> int:
        return self.n_parties

    @overload
    def __getitem__(self, index: int) -> SeededNoise: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SeededNoise]: ...
    def __getitem__(self, index: int | slice) -> SeededNoise | Sequence[SeededNoise]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.n_parties))]
        return SeededNoise((SEED, index))


@dataclass
class Scene:
    """The services, their ``proxies`` and processes by name, and a user's ``client`` of the learner."""

    cluster: SecureCluster
    kind: str
    settings: LearnerSettings
    proxies: dict[str, FaultyProxy]
    processes: dict[str, BaseProcess]
    client: httpx.AsyncClient
    minimum: int
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def submit(self, n_rounds: int) -> str:
        """Submit a run whose rounds each need ``minimum`` parties."""
        return await submit(
            self.client,
            parameters={"n_rounds": n_rounds},
            secure_sum=self.kind,
            minimum_contributors=self.minimum,
        )

    async def view(self, run: str) -> dict[str, Any]:
        """A run as its user sees it."""
        document: dict[str, Any] = (await self.client.get(f"/v1/runs/{run}")).raise_for_status().json()
        return document

    async def until(self, run: str, *states: str, rounds: int = 0) -> dict[str, Any]:
        """Wait until a run is in one of these states, or has done so many rounds."""
        async with asyncio.timeout(60):
            while True:
                view = await self.view(run)
                if view["state"] in states or (rounds and view["rounds"]["done"] >= rounds):
                    return view
                await asyncio.sleep(0.01)

    async def check(self, run: str, n_rounds: int) -> None:
        """Wait for a run's end: its model must be the undisturbed twin's bit for bit, and its charges the price."""
        self.events = await check_end(self.client, run, self.cluster, self.spec(n_rounds))

    def spec(self, n_rounds: int) -> RunSpec:
        """What `submit` asks for, as the parties approve it."""
        colluders = int(self.kind != "none" and self.minimum > 1)  # the default
        terms: dict[str, Any] = {"secure_sum": self.kind, "minimum_contributors": self.minimum, "colluders": colluders}
        return run_spec(self.cluster, n_rounds, **terms)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a service a signal."""
        os.kill(self.processes[name].pid or 0, number)

    def restart(self, name: str) -> None:
        """Kill a party, or the learner, and start it again on the same port and state."""
        self.processes[name].kill()
        self.processes[name].join(10)
        if name == "learner":
            self.processes[name] = start_learner(self.settings)
            return
        self.processes[name] = _start_party(self.cluster, name, self.proxies[name].upstream_port)

    @contextmanager
    def full_disk(self, name: str, size: int) -> Iterator[None]:
        """Let no file of a service grow beyond so many bytes, as on a full disk."""
        pid = self.processes[name].pid or 0
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, UNLIMITED))
        yield
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the lock on a service's database, from another process than its own."""
        file = "learner.sqlite" if name == "learner" else "ledger.db"
        with closing(sqlite3.connect(self.cluster.root / name / file, isolation_level=None, timeout=20)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield
            connection.execute("ROLLBACK")


async def check_end(
    client: httpx.AsyncClient, run: str, cluster: SecureCluster, spec: RunSpec, rows: FloatArray | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """A run's events, at its end: it lost nobody, its model is its undisturbed twin's, its charges are the price."""
    events = await watch(client, run)
    assert events[-1][1]["state"] == "completed", events[-1]
    assert not [data for kind, data in events if kind == "dropped"]
    model = (await client.get(f"/v1/runs/{run}/model")).raise_for_status().json()
    twin = Rehearsal(cluster, spec, SameNoises(cluster.n_parties), rows=rows)
    assert np.array(model["weights"]).tobytes() == await twin.weights()
    assert charges(cluster, run) == due(spec)
    return events


@asynccontextmanager
async def outage_scene(
    root: Path,
    kind: str,
    n_parties: int = 2,
    minimum: int | None = None,
    made: Mapping[str, Any] = MappingProxyType({}),
    **learner: object,
) -> AsyncIterator[Scene]:
    """All services of runs with this ``kind`` of secure sum.

    ``made`` are further fields of the cluster; ``learner`` changes the learner's settings.
    """
    cluster = SecureCluster(root, n_parties=n_parties, **made)
    names = (*cluster.names, *(cluster.key_holders if kind != "none" else ()))
    ports = {name: free_port() for name in names}
    processes = {name: _start_party(cluster, name, ports[name]) for name in cluster.names}
    for name in names[n_parties:]:
        processes[name] = start_keyholder(cluster.keyholder_settings(name, port=ports[name]))
    async with AsyncExitStack() as stack:
        proxies = {
            name: await stack.enter_async_context(faulty_proxy(port, seed, faulty=0.0))
            for seed, (name, port) in enumerate(ports.items())
        }
        urls = {name: proxy.url for name, proxy in proxies.items()}
        changes = {
            "port": free_port(),
            "deadline_seconds": DEADLINE,
            "approval_seconds": 5.0,
            "key_holder_seconds": 2.0,
        } | learner
        settings = cluster.learner_settings(urls, **changes)
        processes["learner"] = start_learner(settings)
        stack.enter_context(_ended_at_exit(processes))
        url = f"http://127.0.0.1:{settings.port}"
        for url_of_service in (*(f"http://127.0.0.1:{port}" for port in ports.values()), url):
            await asyncio.to_thread(wait_until_ready, url_of_service)
        client = httpx.AsyncClient(base_url=url, headers=AUTHORIZED, trust_env=False, timeout=60)
        await stack.enter_async_context(client)
        yield Scene(cluster, kind, settings, proxies, processes, client, minimum or n_parties)


@contextmanager
def _ended_at_exit(processes: dict[str, BaseProcess]) -> Iterator[None]:
    """End all processes when the block ends."""
    try:
        yield
    finally:
        with stopped_at_exit(*processes.values()):
            pass


def _start_party(cluster: SecureCluster, name: str, port: int) -> BaseProcess:
    return start_party(cluster.party_settings(name, port=port), SameNoise(cluster.names.index(name)))
