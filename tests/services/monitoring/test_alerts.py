"""Every alert is fired by a real Prometheus, by its cause at real services, and is silent again once it is mended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx
import pytest

from parley.common.service.tokens import hash_token
from parley.learner.settings import LearnerSettings
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from tests.support import toml
from tests.support.alerting import BUDGET, DEADLINE, Watched, cause_and_mend_all
from tests.support.cluster import AUTHORIZED
from tests.support.nightly import nightly
from tests.support.processes import free_port, start_key_holder, start_learner, start_party, wait_until_ready
from tests.support.prometheus import needs_prometheus, watching
from tests.support.secure_cluster import SecureCluster

MONITOR = "the-monitors-token"
HOLDER = "key-holder-1"


class Processes(Watched):
    """A learner, three parties and a key holder as processes of this machine."""

    def __init__(self, root: Path) -> None:
        self._cluster = SecureCluster(root, n_parties=3, epsilon=BUDGET)
        first, second, third = self._cluster.names
        self.parties, self.study = (first, second, third), self._cluster.study.name
        self.names = (*self.parties, HOLDER, "learner")
        self._ports = {name: free_port() for name in self.names}
        self._metrics = {name: free_port() for name in self.names}
        self._running: dict[str, BaseProcess] = {}
        self.asking = httpx.Client(base_url=self._url("learner"), headers=AUTHORIZED, trust_env=False, timeout=30)
        (root / "monitor.token").write_text(MONITOR)
        how = {"authorization": {"credentials_file": str(root / "monitor.token")}}
        self.targets = {name: (f"127.0.0.1:{port}", how) for name, port in self._metrics.items()}
        urls = {name: self._url(name) for name in self.names}
        for name in self.names:
            listens = {
                "port": self._ports[name],
                "metrics": {"port": self._metrics[name], "token_hash": hash_token(MONITOR)},
            }
            settings: PartySettings | LearnerSettings | KeyHolderSettings
            if name == "learner":
                settings = self._cluster.learner_settings(urls, deadline_seconds=DEADLINE, **listens)
            elif name == HOLDER:
                settings = self._cluster.keyholder_settings(name, **listens)
            else:
                settings = self._cluster.party_settings(name, **listens)
            toml.write(self.settings(name), settings.model_dump(exclude_unset=True))
            self.start(name)
        for name in self.names:
            wait_until_ready(self._url(name))

    def settings(self, name: str) -> Path:
        return self._cluster.root / f"{name}.toml"

    def state(self, name: str) -> Path:
        return self._cluster.root / name

    def metrics(self, name: str) -> str:
        return f"http://127.0.0.1:{self._metrics[name]}/metrics"

    def start(self, name: str) -> None:
        if name == "learner":
            self._running[name] = start_learner(LearnerSettings.load(self.settings(name)))
        elif name == HOLDER:
            self._running[name] = start_key_holder(KeyHolderSettings.load(self.settings(name)))
        else:
            self._running[name] = start_party(PartySettings.load(self.settings(name)))

    def stop(self, name: str) -> None:
        self._running[name].terminate()
        self._running[name].join(30)

    def freeze(self, name: str) -> None:
        os.kill(self._running[name].pid or 0, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        os.kill(self._running[name].pid or 0, signal.SIGCONT)

    def _url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path / "cluster")
    yield processes
    processes.asking.close()
    for name in processes.names:
        processes.stop(name)


@nightly
@needs_prometheus
@pytest.mark.slow
def test_every_alert_fires_by_its_cause_and_is_silent_again(made: Processes, tmp_path: Path) -> None:
    with watching(tmp_path / "prometheus", made.targets) as watch:
        print(cause_and_mend_all(made, watch, tmp_path / "copy"))
