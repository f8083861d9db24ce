"""Every alert is fired by a real Prometheus, by its cause at real services, and is silent again once it is mended."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

from parley.common.service.settings import ServiceSettings
from parley.common.service.tokens import hash_token
from parley.learner.settings import LearnerSettings
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from tests.support import toml
from tests.support.cluster import AUTHORIZED, LEARNER
from tests.support.processes import (
    free_port,
    start_key_holder,
    start_learner,
    start_party,
    stopped_at_exit,
    wait_until_ready,
)
from tests.support.prometheus import RULES, Watch, needs_prometheus, watching
from tests.support.secure_cluster import SecureCluster

ALERTS = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
SPENT = 3.0
"""The budget that a run spends."""
FREE, STOPPED, RESTORED = "party-1", "party-2", "party-3"
MONITOR = "the-monitors-token"
HOLDER = "key-holder-1"
STARTS = {PartySettings: start_party, LearnerSettings: start_learner, KeyHolderSettings: start_key_holder}


@dataclass
class Federation:
    """A learner, three parties and a key holder as processes with settings files, by name."""

    cluster: SecureCluster
    ports: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, int] = field(default_factory=dict)
    running: dict[str, BaseProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = (*self.cluster.names, HOLDER, "learner")
        self.ports = {name: free_port() for name in names}
        self.metrics = {name: free_port() for name in names}
        (self.cluster.root / "monitor.token").write_text(MONITOR)
        for name in names:
            self.write(name)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    @property
    def targets(self) -> dict[str, tuple[str, Path | None]]:
        """Where Prometheus reads each one's metrics, and by which token."""
        token = self.cluster.root / "monitor.token"
        return {name: (f"127.0.0.1:{port}", token) for name, port in self.metrics.items()}

    def write(self, name: str, **changes: object) -> None:
        """The settings file of a service; a running service reads its tokens again."""
        urls = {other: self.url(other) for other in self.ports}
        make: Any = {
            "learner": partial(self.cluster.learner_settings, urls, deadline_seconds=7.0),
            HOLDER: partial(self.cluster.keyholder_settings, HOLDER),
        }.get(name, partial(self.cluster.party_settings, name))
        metrics = {"port": self.metrics[name], "token_hash": hash_token(MONITOR)}
        settings = make(port=self.ports[name], metrics=metrics, **changes)
        toml.write(self.path(name), settings.model_dump(exclude_unset=True))

    def path(self, name: str) -> Path:
        return self.cluster.root / f"{name}.toml"

    def start(self, name: str) -> None:
        kind: type[ServiceSettings] = {"learner": LearnerSettings, HOLDER: KeyHolderSettings}.get(name, PartySettings)
        self.running[name] = STARTS[kind](kind.load(self.path(name)))  # type: ignore[operator]

    def stop(self, name: str) -> None:
        self.running[name].terminate()
        self.running[name].join(30)

    def restart(self, name: str) -> None:
        self.stop(name)
        self.start(name)
        wait_until_ready(self.url(name))

    def pid(self, name: str) -> int:
        pid = self.running[name].pid
        assert pid is not None
        return pid

    def policy(self, epsilon: float) -> dict[str, Any]:
        """Changes of a party's settings: another budget."""
        settings = self.cluster.party_settings(FREE)
        return {"policy": settings.policy.model_dump(exclude_unset=True) | {"epsilon": epsilon}}


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    policy = {"max_epsilon_per_run": SPENT}
    made = Federation(SecureCluster(tmp_path, n_parties=3, epsilon=SPENT, policy=policy))
    for name in made.ports:
        made.start(name)
    with ExitStack() as stack:
        for name in made.ports:
            wait_until_ready(made.url(name))
        stack.callback(lambda: stopped_at_exit(*made.running.values()).__enter__())
        try:
            yield made
        finally:
            with stopped_at_exit(*made.running.values()):
                pass


@pytest.fixture
def asking(federation: Federation) -> Iterator[httpx.Client]:
    """A user of the learner."""
    with httpx.Client(base_url=federation.url("learner"), headers=AUTHORIZED, trust_env=False, timeout=30) as client:
        yield client


def submit(asking: httpx.Client, n_rounds: int, epsilon: float = 0.05, **terms: object) -> str:
    request = {"study": "made-up", "epsilon": epsilon, "delta": 1e-5, "parameters": {"n_rounds": n_rounds}, **terms}
    answer = asking.post("/v1/runs", json=request)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def finished(asking: httpx.Client, run: str) -> str:
    """The state in which a run ends."""
    while (state := asking.get(f"/v1/runs/{run}").raise_for_status().json()["state"]) not in {"completed", "failed"}:
        time.sleep(0.05)
    return str(state)


@needs_prometheus
@pytest.mark.slow
def test_every_alert_fires_by_its_cause_and_is_silent_again(
    federation: Federation, asking: httpx.Client, tmp_path: Path
) -> None:
    began = time.monotonic()
    with watching(tmp_path / "prometheus", federation.targets) as watch:
        watch.until_silent()
        assert watch.fired == set()
        old = tmp_path / "old"
        shutil.copytree(federation.cluster.root / RESTORED, old)
        refused, damaged = refuse(federation, asking), damage(federation, asking)
        watch.until("ParleyRefusals", "ParleyRunFailed", "ParleySignIns", "ParleyInternalErrors", "ParleyExpiresSoon")
        sums = submit(asking, 400, secure_sum="paillier")
        watch.until("ParleyObfuscatorsLate")
        asking.post(f"/v1/runs/{sums}/cancel").raise_for_status()
        freeze(federation, asking, watch)
        for _ in range(3):
            federation.restart(FREE)
            time.sleep(0.7)
        restore(federation, asking, watch, old)
        spend(federation, asking)
        watch.until(*ALERTS)
        fired = time.monotonic()
        for name in federation.cluster.names:  # the owners allow more, and renew the token
            federation.write(name, **federation.policy(100.0))
            federation.restart(name)
        mend(federation, damaged)
        watch.until_silent()
        silent = time.monotonic()
    assert refused
    print(
        f"{len(watch.fired & ALERTS)} of {len(ALERTS)} alerts fired within {fired - began:.0f} s, and all were silent "
        f"{silent - fired:.0f} s after they were mended"
    )


def refuse(federation: Federation, asking: httpx.Client) -> str:
    """A run beyond a policy, wrong tokens, a token that ends tomorrow."""
    run = submit(asking, 3, epsilon=2 * SPENT)
    for number in range(30):
        httpx.get(f"{federation.url(FREE)}/v1/party", headers={"Authorization": f"Bearer {number}"}, trust_env=False)
    tomorrow = datetime.now(UTC).date() + timedelta(1)
    learner = federation.cluster.party_settings(FREE).learners[0].model_dump(exclude={"token_hash"}, exclude_unset=True)
    tokens = [{"hash": hash_token(LEARNER), "expires": tomorrow}]
    federation.write(FREE, learners=[learner | {"tokens": tokens}])
    return run


def damage(federation: Federation, asking: httpx.Client) -> str:
    """A row of the learner's database that cannot be read; returns its run."""
    run = submit(asking, 3)
    assert finished(asking, run) == "completed"
    database = federation.cluster.root / "learner" / "learner.sqlite"
    with closing(sqlite3.connect(database, timeout=10)) as file:
        file.execute("UPDATE runs SET terms = '{' WHERE id = ?", (run,))
        file.commit()
    assert asking.get(f"/v1/runs/{run}").status_code == 500
    return run


def mend(federation: Federation, run: str) -> None:
    """Remove a damaged run."""


def freeze(federation: Federation, asking: httpx.Client, watch: Watch) -> None:
    """A party stands still: one run waits for it, then pauses; another goes on without it."""
    runs = [submit(asking, 1500, minimum_contributors=least) for least in (2, 3)]
    while not all(asking.get(f"/v1/runs/{run}").json()["rounds"]["done"] for run in runs):
        time.sleep(0.02)
    os.kill(federation.pid(STOPPED), signal.SIGSTOP)
    try:
        watch.until("ParleyDown", "ParleyNoRounds", "ParleyPartyDropped", "ParleyRunPaused")
    finally:
        os.kill(federation.pid(STOPPED), signal.SIGCONT)
    for run in runs:
        asking.post(f"/v1/runs/{run}/cancel")


def restore(federation: Federation, asking: httpx.Client, watch: Watch, old: Path) -> None:
    """A party's state moves away and comes back; then an old copy is put in its place, and taken away again."""
    state = federation.cluster.root / RESTORED
    (state / "ledger.db").rename(state / "away.db")
    watch.until("ParleyNotReady")
    (state / "away.db").rename(state / "ledger.db")
    federation.stop(RESTORED)
    state.rename(newest := state.with_suffix(".newest"))
    shutil.copytree(old, state)
    federation.start(RESTORED)
    wait_until_ready(federation.url(RESTORED))
    assert finished(asking, submit(asking, 3)) == "failed"
    watch.until("ParleyLedger")
    federation.stop(RESTORED)
    shutil.rmtree(state)
    newest.rename(state)
    federation.start(RESTORED)
    wait_until_ready(federation.url(RESTORED))


def spend(federation: Federation, asking: httpx.Client) -> None:
    """All that is left of each budget."""
    bearer = {"Authorization": f"Bearer {LEARNER}"}
    for _ in range(5):
        budgets = [
            httpx.get(f"{federation.url(name)}/v1/budget", headers=bearer, trust_env=False).json()
            for name in federation.cluster.names
        ]
        left = min(budget["epsilon_left"] for budget in budgets)
        if left < SPENT / 200:
            return
        run = submit(asking, 3, epsilon=left, delta=0.1)
        print(budgets, finished(asking, run), asking.get(f"/v1/runs/{run}").json()["problem"])
