"""Five hospitals and a learner as a user starts them: seven commands, six settings files, sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from parley.common.service.tokens import hash_token
from tests.support.cluster import LEARNER, USER, Cluster
from tests.support.processes import free_port, wait_until_ready
from tests.support.toml import write

BIN = Path(sysconfig.get_path("scripts"))


@contextmanager
def serving(services: list[tuple[str, Path, str]]) -> Iterator[None]:
    """Services (command, settings, URL), which are told to stop at the end and must do so in good order."""
    processes = []
    try:
        for command, config, _ in services:
            with config.with_suffix(".log").open("wb") as log:
                processes.append(subprocess.Popen([BIN / command, "serve", "--config", config], stdout=log, stderr=log))
        for _, _, url in services:
            wait_until_ready(url)
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        stopped = [process.wait(20) for process in processes]
    assert stopped == [0] * len(services)


def written(cluster: Cluster) -> list[tuple[str, Path, str]]:
    """The settings files of all services; the learner's is the last."""
    urls = {name: f"http://127.0.0.1:{free_port()}" for name in (*cluster.names, "learner")}
    common = {
        name: {"name": name, "port": httpx.URL(url).port, "state": cluster.root / name} for name, url in urls.items()
    }
    party = {
        "study": cluster.study_path,
        "policy": {"epsilon": 2.0, "delta": 1e-3, "max_epsilon_per_run": 1.0, "max_delta_per_run": 1e-4},
        "learners": [{"name": "learner", "token_hash": hash_token(LEARNER)}],
    }
    learner = {
        "studies": cluster.study_path.parent,
        "parties": [{"name": name, "url": urls[name], "token": LEARNER} for name in cluster.names],
        "users": [{"name": "alice", "token_hash": hash_token(USER)}],
    }
    services = []
    for name, url in urls.items():
        settings = learner if name == "learner" else party | {"data": {"source": f"{cluster.root}/{name}.csv"}}
        command = "parley-learner" if name == "learner" else "parley-party"
        services.append((command, write(cluster.root / f"{name}.toml", common[name] | settings), url))
    return services


def command(url: str, *arguments: str) -> str:
    """What a command of the learner prints."""
    full = [str(BIN / "parley-learner"), *arguments, "--url", url, "--format", "json"]
    return subprocess.check_output(full, text=True, timeout=60, env=os.environ | {"PARLEY_TOKEN": USER})


@pytest.mark.slow
def test_five_parties_and_a_learner(tmp_path: Path) -> None:
    services = written(Cluster(tmp_path))
    url = services[-1][2]
    with serving(services):
        submitted = command(url, "submit", "made-up", "--epsilon", "1", "--delta", "1e-5", "--watch")
        queued, *events = map(json.loads, submitted.splitlines())
        model = json.loads(command(url, "model", queued["id"]))
    rounds = [event["round"] for event in events if event["kind"] == "round"]
    assert rounds == list(range(1, model["rounds"] + 1))
    assert events[-1]["state"] == "completed"
    assert model["contributors"] == [f"party-{index}" for index in range(1, 6)]
    assert model["guarantees"][0]["epsilon"] <= 1.0
