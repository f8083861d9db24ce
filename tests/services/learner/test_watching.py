"""``parley-learner watch`` of several runs, while the learner is killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.cluster import AUTHORIZED, USER, Cluster
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready

ROUNDS = 60
WATCH = [sys.executable, "-u", "-c", "from parley.learner.cli.main import learner_app; learner_app()", "watch"]


@pytest.mark.slow
def test_several_runs_are_watched_over_a_restart(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=2)
    with party_processes(cluster) as urls:
        settings = cluster.learner_settings(urls, port=free_port())
        url = f"http://127.0.0.1:{settings.port}"
        first = start_learner(settings)
        with stopped_at_exit(first):
            wait_until_ready(url)
            ask = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": ROUNDS}}
            with httpx.Client(base_url=url, headers=AUTHORIZED, trust_env=False) as client:
                runs = [client.post("/v1/runs", json=ask).raise_for_status().json()["id"] for _ in range(2)]
            environment = os.environ | {"PARLEY_URL": url, "PARLEY_TOKEN": USER}
            with subprocess.Popen([*WATCH, *runs], stdout=subprocess.PIPE, text=True, env=environment) as watcher:
                assert watcher.stdout is not None
                news: list[str] = []
                while not all(any(f"{run} round " in line for line in news) for run in runs):
                    news.append(next(watcher.stdout))
                first.kill()
                first.join()
                with stopped_at_exit(start_learner(settings)):
                    news += watcher.stdout
                    status = watcher.wait()
    assert status == 0
    for run in runs:
        mine = [line.removeprefix(f"{run} ").split(",")[0].strip() for line in news if line.startswith(run)]
        rounds = [line for line in mine if line.startswith("round")]
        assert rounds == [f"round {number} of {ROUNDS}" for number in range(1, ROUNDS + 1)]
        assert (mine[0], mine[-1]) == ("queued", "completed")
