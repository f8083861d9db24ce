"""A service answers others while it works: a party while it trains what it answers from, a learner while it fits.

Real processes. What is asserted is the median of many round trips, since these machines are shared and any single one
may be held up; the largest is printed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

from parley.common.algorithms import REGISTRY
from parley.learner.runs.states import ENDS
from tests.support.cluster import AUTHORIZED, Cluster
from tests.support.forest import GROWN, PLACE
from tests.support.processes import (
    free_port,
    party_processes,
    start_learner,
    start_party,
    stopped_at_exit,
    wait_until_ready,
)
from tests.support.rounds import ASKING, propose, run_spec

BOUND_MS = 50.0
PATIENCE = 120.0
CLOSE = {"Connection": "close"}  # what is asked rarely must not meet a connection that was given up


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """One party of 1,000 examples, who allows the forest."""
    monkeypatch.setitem(REGISTRY._entries, "forest", PLACE)
    return Cluster(tmp_path, n_parties=1, n_examples=1000, n_features=10, algorithms=("forest",))


def round_trips(url: str, until: Callable[[], bool]) -> np.ndarray:
    """How long ``/healthz`` takes, in milliseconds, again and again until something is so."""
    taken: list[float] = []
    deadline = time.monotonic() + PATIENCE
    gc.collect()
    gc.freeze()  # a collection in this process, which holds all that pytest does, would count as the service's delay
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client:
        while not (len(taken) % 25 == 24 and until()):
            assert time.monotonic() < deadline
            start = time.perf_counter()
            client.get("/healthz").raise_for_status()
            taken.append((time.perf_counter() - start) * 1000)
            time.sleep(0.002)
    return np.array(taken)


def told(taken: np.ndarray) -> str:
    """The figures of round trips."""
    median, high = np.percentile(taken, [50, 95])
    return (
        f"/healthz {len(taken)} times, median {median:.1f} ms, 95th percentile {high:.1f}, largest {taken.max():.1f} ms"
    )


@pytest.mark.slow
def test_a_party_answers_while_it_prepares_and_approval_does_not_wait(cluster: Cluster) -> None:
    with (
        party_processes(cluster) as urls,
        httpx.Client(base_url=urls["party-1"], headers=ASKING | CLOSE, trust_env=False, timeout=PATIENCE) as client,
    ):
        spec = run_spec(cluster, algorithm="forest", parameters={"n_trees": 400})
        start = time.perf_counter()
        approval = propose(client, spec).raise_for_status().json()
        approved = time.perf_counter() - start
        assert not approval["prepared"]
        taken = round_trips(urls["party-1"], lambda: bool(propose(client, spec).json()["prepared"]))
        prepared = time.perf_counter() - start
    print(f"party: approved in {approved * 1000:.0f} ms, prepared after {prepared:.1f} s, meanwhile {told(taken)}")
    assert approved < prepared / 2
    assert np.median(taken) < BOUND_MS


@pytest.mark.slow
def test_a_learner_answers_while_it_fits_and_a_party_prepares_again_after_a_kill(cluster: Cluster) -> None:
    urls = {"party-1": f"http://127.0.0.1:{free_port()}", "learner": f"http://127.0.0.1:{free_port()}"}
    settings = cluster.party_settings("party-1", port=httpx.URL(urls["party-1"]).port)
    learner = cluster.learner_settings(urls, port=httpx.URL(urls["learner"]).port, deadline_seconds=PATIENCE)
    first = start_party(settings)
    with (
        stopped_at_exit(first, start_learner(learner)),
        httpx.Client(base_url=urls["learner"], headers=AUTHORIZED | CLOSE, trust_env=False, timeout=PATIENCE) as client,
    ):
        for url in urls.values():
            wait_until_ready(url)
        request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "algorithm": "forest"}
        for tries in (1, 2, 3):  # the learner may be done before anybody looks
            parameters = {"n_trees": 50, "learners_trees": 100 * 4**tries}
            run = client.post("/v1/runs", json=request | {"parameters": parameters}).raise_for_status().json()["id"]
            round_trips(urls["learner"], lambda: state(client, run) in {"running", *ENDS})  # noqa: B023 -- called at once
            if (seen := state(client, run)) == "running":
                break
        assert seen == "running", client.get(f"/v1/runs/{run}").json()
        first.kill()  # approved and prepared, and not asked yet
        first.join()
        with stopped_at_exit(start_party(settings)):
            start = time.perf_counter()
            taken = round_trips(urls["learner"], lambda: state(client, run) in ENDS)
            fitted = time.perf_counter() - start
            view = client.get(f"/v1/runs/{run}").json()
    assert view["state"] == "completed", view
    assert settings.state.with_suffix(".log").read_text().count(GROWN) == tries + 1
    print(f"learner: fitted for {fitted:.1f} s, meanwhile {told(taken)}; the party was killed and prepared again")
    assert np.median(taken) < BOUND_MS


def state(client: httpx.Client, run: str) -> str:
    """Ask for a run's state."""
    run_state: str = client.get(f"/v1/runs/{run}").raise_for_status().json()["state"]
    return run_state
