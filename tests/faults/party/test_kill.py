"""A party killed at any moment answers as if it had not been.

Most lives are those of a party without its web side, which starts fast; every fifth is that of the whole service.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

import httpx
import pytest

from parley.common.runs.pricing import schedule
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import open_store
from parley.party.ledger.records import Answered
from parley.party.settings import PartySettings
from tests.support.cluster import Cluster
from tests.support.loops import PartyLoop
from tests.support.nightly import repeats
from tests.support.noises import OnlyOnce
from tests.support.processes import free_port, start_party
from tests.support.rounds import ASKING, ask, propose, run_spec, weights

KILLS = repeats(60, 200)
ROUNDS = 20
"""of each run; when they are over, the next run begins"""
DEATH = (ConnectionError, EOFError, httpx.TransportError)
Key = tuple[str, int]


class Life(Protocol):
    """A party between start and death; asking a dead one raises one of ``DEATH``."""

    process: BaseProcess

    def propose(self, proposal: RunProposal) -> None: ...
    def ask(self, run: str, round: int, message: list[float]) -> bytes: ...
    def close(self) -> None: ...


class WebLife:
    """A life of the whole service, over HTTP."""

    def __init__(self, settings: PartySettings, cluster: Cluster) -> None:
        self.cluster = cluster
        self.process = start_party(settings, OnlyOnce)
        url = f"http://127.0.0.1:{settings.port}"
        self.client = httpx.Client(base_url=url, headers=ASKING, trust_env=False)
        while self.process.is_alive():
            with suppress(httpx.TransportError):
                self.client.get("/healthz").raise_for_status()
                return
            time.sleep(0.005)

    def propose(self, proposal: RunProposal) -> None:
        propose(self.client, proposal.spec, proposal.run).raise_for_status()

    def ask(self, run: str, round: int, message: list[float]) -> bytes:
        return ask(self.client, round, weights(self.cluster, 1), run).raise_for_status().content

    def close(self) -> None:
        self.client.close()


@dataclass
class Witness:
    """A learner that asks on, and notes the bytes of each answer, where they changed, and how long an answer takes."""

    cluster: Cluster
    spec: RunSpec
    answers: dict[Key, bytes] = field(default_factory=dict)
    asked: int = 0
    changed: int = 0
    seconds: float = 0.0

    def ask(self, life: Life, key: Key) -> None:
        """Ask a round, perhaps again."""
        started = time.monotonic()
        body = life.ask(*key, weights(self.cluster, 1).tolist())
        self.seconds += time.monotonic() - started
        self.asked += 1
        self.changed += self.answers.setdefault(key, body) != body

    def ask_next(self, life: Life) -> None:
        """Ask the next new round."""
        run, round = f"run-{len(self.answers) // ROUNDS}", len(self.answers) % ROUNDS + 1
        if round == 1:
            life.propose(RunProposal(run=run, spec=self.spec))
        self.ask(life, (run, round))

    def see_die(self, life: Life, rng: random.Random) -> None:
        """Ask what was answered before and some new rounds, then ask on until the party is killed."""
        if rng.random() < 0.1:  # some die while they start
            kill_after(life.process, rng.uniform(0, 0.05))
        else:
            for key in rng.sample(sorted(self.answers), min(2, len(self.answers))):
                self.ask(life, key)
            for _ in range(rng.randint(0, 3)):
                self.ask_next(life)
            kill_after(life.process, rng.uniform(0, 3) * self.seconds / max(self.asked, 1))
        with suppress(*DEATH):
            while True:
                self.ask_next(life)
        life.process.join()
        life.close()


def kill_after(process: BaseProcess, seconds: float) -> None:
    """Kill a process from another thread."""
    assert process.pid is not None
    threading.Timer(seconds, os.kill, (process.pid, signal.SIGKILL)).start()


def redrawn(witness: Witness) -> int:
    """How often a run's answers show another one-time noise: nothing else differs between its rounds."""
    runs: dict[str, set[bytes]] = {}
    for (run, _), body in witness.answers.items():
        runs.setdefault(run, set()).add(body)
    assert len(runs) > 10
    return sum(len(bodies) - 1 for bodies in runs.values())


def price_of(spec: RunSpec, entries: list[Answered]) -> int:
    """What these answers cost by the price list, in micro-units."""
    costs = schedule(spec.build(), spec.facts().of(0), "model")
    return sum(costs[entry.round - 1].epsilon for entry in entries)


@pytest.mark.slow
def test_kill_at_random_points(tmp_path: Path) -> None:
    rng = random.Random(5)
    cluster = Cluster(tmp_path, n_parties=1, policy={"view": "model", "epsilon": 1000})
    settings = cluster.party_settings("party-1", port=free_port())
    spec = run_spec(cluster, algorithm="psgd", parameters={"n_rounds": ROUNDS})
    witness = Witness(cluster, spec)
    for number in range(KILLS):
        witness.see_die(WebLife(settings, cluster) if number % 5 == 0 else PartyLoop(settings, OnlyOnce), rng)
    with open_store(settings) as store:
        account, entries = store.account(), store.answers()
    overspent = account.spent.epsilon - price_of(spec, entries)
    lost = len(witness.answers.keys() - {(entry.run, entry.round) for entry in entries})
    figures = f"{overspent} overspent, {lost} lost, {witness.changed} changed on retry"
    print(f"kill -9 at {KILLS} random points: {figures}, {redrawn(witness)} redrawn one-time noise")
    print(f"  ({len(entries)} answers, {witness.asked - len(witness.answers)} retries)")
    assert len(witness.answers) <= len(entries) <= len(witness.answers) + 1
    assert (overspent, lost, witness.changed, redrawn(witness)) == (0, 0, 0, 0)
    assert len(entries) > KILLS
