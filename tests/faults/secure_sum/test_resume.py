"""Kill the learner after every step of a secure sum, and the key holder in mid-run: nothing is paid or opened twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx
import numpy as np
import pytest

from parley.common.runs.specification import RunSpec
from parley.learner.settings import LearnerSettings
from tests.support.cluster import AUTHORIZED, Stream
from tests.support.dying import start_dying_learner
from tests.support.keyholder import noted_openings
from tests.support.keyholder_process import start_keyholder
from tests.support.nightly import repeats
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready
from tests.support.rounds import run_spec
from tests.support.secure_cluster import SUMS, Rehearsal, SecureCluster, charges, due

N_ROUNDS = 2
JOIN_SECONDS = 30
KILLED = -9
MANY = 24
STRIDE = repeats(2, 1)
"""By so many steps each kill is later than the one before."""


@dataclass
class Scene:
    """Two parties that go on, a key holder and a learner that may die, and all runs so far."""

    cluster: SecureCluster
    urls: dict[str, str]
    settings: LearnerSettings = field(init=False)

    def __post_init__(self) -> None:
        self.settings = self.cluster.learner_settings(self.urls, port=free_port())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        wait_until_ready(self.url)
        with httpx.Client(base_url=self.url, headers=AUTHORIZED, trust_env=False, timeout=60) as client:
            yield client

    def start_keyholder(self) -> BaseProcess:
        """Start the key holder's process."""
        url = httpx.URL(self.urls["key-holder-1"])
        return start_keyholder(self.cluster.keyholder_settings("key-holder-1", port=url.port))

    def spec(self, n_rounds: int) -> RunSpec:
        return run_spec(self.cluster, n_rounds, secure_sum="paillier", colluders=1)

    def journal(self) -> list[tuple[str, int]]:
        """All rounds that the key holder opened, as (session, number of rounds)."""
        opened = noted_openings(self.cluster.root / "key-holder-1")
        return list(Counter(opening.session for opening in opened).items())

    def keys(self) -> list[Path]:
        """The Paillier keys that the key holder still has."""
        return list((self.cluster.root / "key-holder-1" / "keys").iterdir())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    cluster = SecureCluster(tmp_path, n_parties=2)
    with party_processes(cluster, streams(cluster)) as urls:
        yield Scene(cluster, urls | {"key-holder-1": f"http://127.0.0.1:{free_port()}"})


def streams(cluster: SecureCluster) -> dict[str, Stream]:
    return {name: Stream(13, index) for index, name in enumerate(cluster.names)}


def submit(client: httpx.Client, n_rounds: int) -> str:
    request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": n_rounds}, **SUMS}
    run: str = client.post("/v1/runs", json=request).raise_for_status().json()["id"]
    return run


def finish(client: httpx.Client, run: str) -> bytes:
    """The weights of a run, once it has ended."""
    client.get(f"/v1/runs/{run}/events").raise_for_status()
    return np.array(client.get(f"/v1/runs/{run}/model").raise_for_status().json()["weights"]).tobytes()


@pytest.mark.slow
def test_a_learner_killed_after_every_step_resumes_to_the_same_model_at_no_charge(scene: Scene) -> None:
    with stopped_at_exit(scene.start_keyholder()):
        wait_until_ready(scene.urls["key-holder-1"])
        runs, steps = _kill_after_every_step(scene)
        with stopped_at_exit(start_learner(scene.settings)), scene.client() as client:
            weights = [finish(client, run) for run in runs]
            until = time.monotonic() + JOIN_SECONDS
            while scene.keys() and time.monotonic() < until:
                time.sleep(0.02)
        assert scene.keys() == []
    spec, noises = scene.spec(N_ROUNDS), [stream.noise for stream in streams(scene.cluster).values()]
    assert weights == [asyncio.run(Rehearsal(scene.cluster, spec, noises).weights()) for _ in runs]
    assert [charges(scene.cluster, run) for run in runs] == [due(spec)] * len(runs)
    assert sorted(rounds for _, rounds in scene.journal()) == [N_ROUNDS] * len(runs)
    print(
        f"learner killed {len(runs) - 1} times in the {steps} steps of a secure sum: same final model bit for bit, "
        "0 extra charges, 0 rounds opened for another set, 0 keys left"
    )


def _kill_after_every_step(scene: Scene) -> tuple[list[str], int]:
    """One run for each step after which the learner dies, and which the next learner ends; how many steps there are."""
    runs: list[str] = []
    while True:
        learner = start_dying_learner(scene.settings, last=STRIDE * len(runs) + 1)
        with stopped_at_exit(learner), scene.client() as client:
            if runs:
                finish(client, runs[-1])
            runs.append(submit(client, N_ROUNDS))
            learner.join(1 if _is_done(client, runs[-1]) else JOIN_SECONDS)
            if learner.exitcode != KILLED:
                return runs, STRIDE * (len(runs) - 1)


def _is_done(client: httpx.Client, run: str) -> bool:
    """Whether a run ends before the learner does."""
    try:
        client.get(f"/v1/runs/{run}/events")
        state = client.get(f"/v1/runs/{run}").json()["state"]
    except httpx.TransportError:
        return False
    assert state == "completed"
    return True


def test_a_key_holder_killed_in_mid_run_is_waited_for(scene: Scene) -> None:
    holder = scene.start_keyholder()
    with stopped_at_exit(start_learner(scene.settings)), scene.client() as client:
        wait_until_ready(scene.urls["key-holder-1"])
        run = submit(client, MANY)
        for rounds in (0, 1, MANY // 3, 2 * MANY // 3):
            _wait_for_rounds(client, run, rounds)
            holder.kill()
            holder.join(JOIN_SECONDS)
            holder = scene.start_keyholder()
        with stopped_at_exit(holder):
            weights = finish(client, run)
    spec, noises = scene.spec(MANY), [stream.noise for stream in streams(scene.cluster).values()]
    assert weights == asyncio.run(Rehearsal(scene.cluster, spec, noises).weights())
    assert charges(scene.cluster, run) == due(spec)
    assert [rounds for _, rounds in scene.journal()] == [MANY]
    print("key holder killed 4 times in mid-run: run completed, every round opened once, 0 extra charges")


def _wait_for_rounds(client: httpx.Client, run: str, rounds: int) -> None:
    """Wait until so many rounds are done."""
    until = time.monotonic() + JOIN_SECONDS
    while client.get(f"/v1/runs/{run}").json()["rounds"]["done"] < rounds:
        assert time.monotonic() < until
        time.sleep(0.01)
