"""A network that cuts, doubles, delays and truncates neither changes an answer nor charges it twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from parley.common.encoding.npy import NPY, pack_array
from parley.party.answers.party import open_store
from tests.support.cluster import Cluster
from tests.support.processes import free_port, start_party, stopped_at_exit, wait_until_ready
from tests.support.proxy import FAULTS, FaultyProxy, faulty_proxy
from tests.support.rounds import ASKING, propose, run_spec, weights

TRIES, RUNS = 3_000, 4


@dataclass
class Client:
    """A learner that tries until it has its answer, and now and then asks once more."""

    http: httpx.AsyncClient
    cluster: Cluster
    run: str
    random: random.Random
    answers: dict[int, bytes] = field(default_factory=dict)
    tries: int = 0
    changed: int = 0

    async def work(self) -> None:
        """Ask round after round for this client's share of the tries."""
        while self.tries < TRIES // RUNS:
            again = bool(self.answers) and self.random.random() < 0.2
            await self.ask(self.random.choice(sorted(self.answers)) if again else len(self.answers) + 1)

    async def ask(self, round: int) -> None:
        """Try until a round is answered."""
        content = pack_array(weights(self.cluster, round))
        while True:
            self.tries += 1
            try:
                response = await self.http.put(
                    f"/v1/runs/{self.run}/rounds/{round}?step=gradient", content=content, headers={"Content-Type": NPY}
                )
            except httpx.TransportError:
                continue
            body = response.raise_for_status().content
            self.changed += self.answers.setdefault(round, body) != body
            return


async def try_all(cluster: Cluster, port: int) -> tuple[list[Client], FaultyProxy]:
    """Several learners' work through one faulty proxy."""
    async with faulty_proxy(port, seed=3) as proxy:
        clients = [
            Client(
                httpx.AsyncClient(base_url=proxy.url, headers=ASKING, trust_env=False),
                cluster,
                f"run-{index}",
                random.Random(index),
            )
            for index in range(RUNS)
        ]
        await asyncio.gather(*(client.work() for client in clients))
        for client in clients:
            await client.http.aclose()
        return clients, proxy


@pytest.mark.slow
def test_3000_tries_through_a_faulty_proxy(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1)
    settings = cluster.party_settings("party-1", port=free_port())
    url = f"http://127.0.0.1:{settings.port}"
    with stopped_at_exit(start_party(settings)):
        wait_until_ready(url)
        with httpx.Client(base_url=url, headers=ASKING, trust_env=False) as http:
            for index in range(RUNS):
                propose(http, run_spec(cluster, n_rounds=TRIES // RUNS), f"run-{index}").raise_for_status()
        clients, proxy = asyncio.run(try_all(cluster, settings.port))
    with open_store(settings) as store:
        charges = Counter((answer.run, answer.round) for answer in store.answers())
    rounds = {(client.run, round) for client in clients for round in client.answers}
    tries, changed = sum(client.tries for client in clients), sum(client.changed for client in clients)
    assert tries >= TRIES
    assert charges == Counter(rounds)
    print(f"{tries:,} tries through a faulty proxy: charges = rounds, {changed} answers changed ({len(rounds)} rounds)")
    assert changed == 0
    assert all(proxy.done[fault] > TRIES // 50 for fault in (*FAULTS, "none"))
