"""Kill the learner whenever; start it again; nothing is asked twice at a price, and the model is the same."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.learner.settings import LearnerSettings
from tests.support.cluster import AUTHORIZED, Cluster
from tests.support.nightly import repeats
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready
from tests.support.replays import extra_charges, stored

BOUNDARY_ROUNDS, RANDOM_ROUNDS, RANDOM_KILLS = 10, 30, repeats(40, 170)
JOIN_SECONDS = 30


@dataclass
class Killed:
    """A learner that is killed and started again, and the parties that go on."""

    cluster: Cluster
    settings: LearnerSettings

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    def client(self) -> httpx.Client:
        wait_until_ready(self.url)
        return httpx.Client(base_url=self.url, headers=AUTHORIZED, trust_env=False, timeout=60)

    def submit(self, n_rounds: int) -> str:
        request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": n_rounds}}
        with self.client() as client:
            run: str = client.post("/v1/runs", json=request).raise_for_status().json()["id"]
            return run

    def state(self, run: str) -> str:
        """A run's state as the dead learner left it."""
        return stored(self.settings, run, "state")

    def models(self, runs: list[str]) -> dict[str, dict[str, Any]]:
        """The models of runs, which a last learner brings to their ends."""
        with stopped_at_exit(start_learner(self.settings)), self.client() as client:
            for run in runs:
                client.get(f"/v1/runs/{run}/events").raise_for_status()
            return {run: client.get(f"/v1/runs/{run}/model").raise_for_status().json() for run in runs}


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    cluster = Cluster(tmp_path)
    with party_processes(cluster) as urls:
        yield Killed(cluster, cluster.learner_settings(urls, port=free_port()))


@pytest.mark.slow
async def test_a_killed_learner_resumes_to_the_same_model_at_no_charge(killed: Killed) -> None:
    runs = [_kill_at_every_boundary(killed), *_kill_at_random(killed)]
    models = killed.models(runs)
    extra = [await extra_charges(killed.settings, run, models[run]) for run in runs]
    assert sum(extra) == 0
    print(
        f"learner killed at every round boundary ({BOUNDARY_ROUNDS}) and at {RANDOM_KILLS} random points: "
        f"same final model bit for bit, {sum(extra)} extra charges"
    )


def _kill_at_every_boundary(killed: Killed) -> str:
    """One run, whose learner dies as the rounds begin and after each round."""
    for round in range(BOUNDARY_ROUNDS + 1):
        learner = start_learner(killed.settings, die_after_round=round)
        with stopped_at_exit(learner):
            if round == 0:
                run = killed.submit(BOUNDARY_ROUNDS)
            learner.join(JOIN_SECONDS)
            assert learner.exitcode == -9
    assert killed.state(run) == "running"
    return run


def _kill_at_random(killed: Killed) -> list[str]:
    """Runs one after the other, whose learner dies at any time from its first moment on."""
    rng = random.Random(5)
    runs: list[str] = []
    for _ in range(RANDOM_KILLS):
        started = time.monotonic()
        learner = start_learner(killed.settings)
        with stopped_at_exit(learner):
            if not runs or killed.state(runs[-1]) == "completed":
                runs.append(killed.submit(RANDOM_ROUNDS))
                patience = time.monotonic() - started  # a start, and a little
            time.sleep(rng.uniform(0, patience))
            learner.kill()
            learner.join(JOIN_SECONDS)
    return runs
