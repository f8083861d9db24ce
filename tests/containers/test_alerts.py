"""A real Prometheus watches joined sites in containers, from their machine: every alert fires, and is silent again."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.learner.experiments.datasets import BIOPSIES
from parley.party.settings import PartySettings
from scripts.deployment.sites import hospitals
from tests.support.alerting import BUDGET, DEADLINE, Watched, cause_and_mend_all
from tests.support.containers import docker, wait_for
from tests.support.nightly import nightly
from tests.support.prometheus import needs_prometheus, watching
from tests.support.sites import Sites, sites

NAMES, HOLDER = hospitals(3), "notary"


class Containers(Watched):
    """Owners that have joined a learner, each in its container as ``join --compose`` runs it."""

    def __init__(self, made: Sites) -> None:
        self._made = made
        first, second, third = NAMES
        self.parties, self.study = (first, second, third), BIOPSIES.name
        authority = made.root / "learner" / "secrets" / "authority.pem"
        token = (made.root / "learner" / "secrets" / "operator.token").read_text().strip()
        self.asking = httpx.Client(
            base_url=f"https://127.0.0.1:{made.port}",
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=authority),
            trust_env=False,
            timeout=30,
        )
        reached: dict[str, Any] = {"scheme": "https", "tls_config": {"ca_file": str(authority)}}
        self.targets = {"learner": (f"127.0.0.1:{made.port}", reached)}
        keys = {name: self._settings_of(name).identity.key for name in NAMES}
        for name in NAMES:
            how = {"authorization": {"credentials_file": str(made.root / name / "secrets" / "metrics.token")}}
            self.targets[name] = (httpx.URL(self.metrics(name)).netloc.decode(), how)
            others = [
                {"name": other, "public_key": key, "compared": True} for other, key in keys.items() if other != name
            ]
            self.change(name, lambda settings, others=others: allow(settings, others))  # type: ignore[misc]
        self.change("learner", lambda settings: settings.update(deadline_seconds=DEADLINE))
        for name in (*NAMES, "learner"):
            made.compose(name, "restart")
        wait_for(made.is_ready)

    def settings(self, name: str) -> Path:
        return self._made.root / name / ("learner.toml" if name == "learner" else "party.toml")

    def state(self, name: str) -> Path:
        return self._made.root / name / "state"

    def metrics(self, name: str) -> str:
        listener = self._settings_of(name).metrics
        assert listener is not None
        return f"http://127.0.0.1:{listener.port}/metrics"

    def stop(self, name: str) -> None:
        self._made.compose(name, "stop")

    def start(self, name: str) -> None:
        self._made.compose(name, "start")

    def freeze(self, name: str) -> None:
        docker("pause", self._made.container(name))

    def thaw(self, name: str) -> None:
        docker("unpause", self._made.container(name))

    def _settings_of(self, name: str) -> PartySettings:
        return PartySettings.load(self.settings(name))


def allow(settings: dict[str, Any], others: list[dict[str, Any]]) -> None:
    """The policy of an owner who has compared the keys of the others, and trusts the learner with its answers too."""
    terms = {"epsilon": BUDGET, "delta": 0.1, "max_epsilon_per_run": BUDGET, "max_delta_per_run": 0.1}
    settings["policy"] |= terms | {"require_secure_sum": False}
    settings["secure_sum"]["parties"] = others


@pytest.fixture
def made(images: None, tmp_path: Path) -> Iterator[Containers]:
    with sites(tmp_path / "sites", NAMES, (HOLDER,)) as built:
        containers = Containers(built)
        yield containers
        containers.asking.close()


@nightly
@needs_prometheus
def test_every_alert_fires_by_its_cause_and_is_silent_again(made: Containers, tmp_path: Path) -> None:
    with watching(tmp_path / "prometheus", made.targets, hour=90) as watch:
        print(cause_and_mend_all(made, watch, tmp_path / "copy"))
