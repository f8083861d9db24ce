"""No request of one user stalls another: attacks on each service while another user's run goes on.

Real processes. What is asserted is the median of the round trips of ``/healthz``, since these machines are shared; the
largest is printed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from parley.common.service.tokens import hash_token
from tests.support.attackers import Attack, endless_head, half_sent, long_json, under_attack
from tests.support.cluster import LEARNER, USER
from tests.support.keyholder_process import start_keyholder
from tests.support.nightly import nightly
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready
from tests.support.secure_cluster import SUMS, SecureCluster

BOUND_MS = 100.0
BOUND_MIB = 1024  # of what 4 MB of JSON become
PATIENCE = 120.0
OTHER = "another-users-token"
LIMITS = {"receive_seconds": 2.0}
PATHS = {"learner": "/v1/runs", "party-1": "/v1/runs", "key-holder-1": "/v1/sessions"}
TOKENS = {"learner": USER, "party-1": LEARNER, "key-holder-1": LEARNER}
COLUMN = {"name": "x", "lower": "low", "upper": 1}
LONG = b'"' + b" " * (15 * 2**20) + b'"'
MOST = 4 * 10**6  # bytes of JSON that are read at all
WRONG = json.dumps({"study": {"features": [COLUMN] * (MOST // (len(json.dumps(COLUMN)) + 2))}}).encode()
COLUMNS = [{"name": f"x{'x' * 100}{index}", "lower": -1, "upper": 1} for index in range(MOST // 160)]
STUDY = {"name": "wide", "features": COLUMNS, "label": {"name": "y", "values": ["no", "yes"]}}
RIGHT = json.dumps({"study": STUDY, "epsilon": 1, "delta": 1e-5}).encode()
MANY = b'{"run": [' + b"0," * (MOST // 2 - 100) + b"0]}"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Services:
    """A learner, two parties and a key holder as processes: their ports and process numbers by name."""

    ports: dict[str, int]
    pids: dict[str, int | None]

    def peak(self, name: str) -> int:
        """The most memory that a service has had, in MiB."""
        status = Path(f"/proc/{self.pids[name]}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) // 2**10

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    cluster = SecureCluster(tmp_path_factory.mktemp("stalls"), n_parties=2, epsilon=10_000)
    ports = {name: free_port() for name in (*cluster.names, "key-holder-1", "learner")}
    users = [{"name": name, "token_hash": hash_token(token)} for name, token in (("alice", USER), ("bob", OTHER))]
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    learner = cluster.learner_settings(urls, port=ports["learner"], users=users, limits=LIMITS)
    holder = cluster.keyholder_settings("key-holder-1", port=ports["key-holder-1"], limits=LIMITS)
    processes = {
        name: start_party(cluster.party_settings(name, port=ports[name], limits=LIMITS)) for name in cluster.names
    } | {"key-holder-1": start_keyholder(holder), "learner": start_learner(learner)}
    with stopped_at_exit(*processes.values()):
        for url in urls.values():
            wait_until_ready(url)
        yield Services(ports, {name: process.pid for name, process in processes.items()})


def attack(kind: str, name: str, services: Services) -> Callable[[], Attack]:
    """An attack of a kind on a service."""
    port, url, token, path = services.ports[name], services.url(name), TOKENS[name], PATHS[name]
    return {
        "long JSON": lambda: long_json(url, token, path, LONG),
        "wrong JSON": lambda: long_json(url, token, path, WRONG),
        "right JSON": lambda: long_json(url, token, path, RIGHT),
        "many values": lambda: long_json(url, token, path, MANY),
        "endless head": lambda: endless_head(port),
        "half-sent": lambda: half_sent(port, token, path),
    }[kind]


@pytest.mark.parametrize("name", list(PATHS))
@pytest.mark.parametrize(
    "kind",
    [
        *("endless head", "half-sent", "long JSON", "right JSON"),
        *(pytest.param(kind, marks=nightly) for kind in ("many values", "wrong JSON")),
    ],
)
def test_an_attack_stalls_nobody(services: Services, kind: str, name: str) -> None:
    taken: list[float] = []
    peak = services.peak(name)
    headers = {"Authorization": f"Bearer {OTHER}", "Connection": "close"}
    with (
        httpx.Client(base_url=services.url("learner"), headers=headers, trust_env=False, timeout=PATIENCE) as other,
        httpx.Client(base_url=services.url(name), trust_env=False, timeout=PATIENCE) as prober,
    ):
        request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": 5}} | SUMS
        run = other.post("/v1/runs", json=request).raise_for_status().json()["id"]
        with under_attack(attack(kind, name, services)) as report:
            while not report.done.is_set() or len(taken) < 20:
                start = time.perf_counter()
                prober.get("/healthz").raise_for_status()
                taken.append((time.perf_counter() - start) * 1000)
                time.sleep(0.005)
        view = ended(other, run)
    median, largest, grown = np.median(taken), max(taken), services.peak(name) - peak
    print(
        f"{name}: {report.words}; meanwhile /healthz {len(taken)} times, median {median:.1f} ms, "
        f"largest {largest:.0f} ms, {grown} MiB more; another user's run {view['state']}"
    )
    assert report.ended
    assert view["state"] == "completed", view
    assert median <= BOUND_MS
    assert grown <= BOUND_MIB


def ended(client: httpx.Client, run: str) -> dict[str, object]:
    """A run once it has ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        view: dict[str, object] = client.get(f"/v1/runs/{run}").raise_for_status().json()
        if view["state"] in {"completed", "failed"} or time.monotonic() > deadline:
            return view
        time.sleep(0.05)
