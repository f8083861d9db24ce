"""Real sites in containers: a learner, and owners who join by invitation, each on a network with the learner alone."""

from __future__ import annotations

import json
import os
import ssl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
from typer.testing import CliRunner

from common.secure_sum.envelope import public_hex
from common.service.compose import IMAGE_USER
from common.wire.membership import words_of
from learner.cli.main import learner_app
from learner.experiments.datasets import BIOPSIES
from learner.settings import LearnerSettings
from party.settings import PartySettings
from scripts.deployment.sites import container_site, hospitals
from scripts.make_deployment import make_deployment
from tests.support.containers import compose_command, docker, image, output, wait_for
from tests.support.processes import free_port

LEARNER_HOST = "learner.test"
"""What the learner is called on the owners' networks."""


@dataclass(slots=True)
class Sites:
    """A learner and its members in containers, under one folder; each member's network leads to the learner alone."""

    root: Path
    port: int
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    started: list[str] = field(default_factory=list)

    def network(self, name: str) -> str:
        """A member's network."""
        return f"parley-site-{self.mark}-{name}"

    def compose(self, name: str, *arguments: str) -> str:
        """What Compose prints for a site; raises CalledProcessError."""
        (file,) = (self.root / name).glob("docker-compose.*.yml")
        files = "-f", str(file), "-f", str(self.root / f"{name}.networks.yml"), "-p", self.network(name)
        return output([*compose_command(), *files, *arguments], 120.0, {"PARLEY_TAG": image("party").partition(":")[2]})

    def up(self, name: str, networks: list[str]) -> None:
        """Start a site on these networks, of which the first is its own."""
        service = "learner" if name == "learner" else "party"
        joined = {network: {"aliases": [LEARNER_HOST]} if service == "learner" else {} for network in networks}
        known = {network: {"external": True, "name": network} for network in networks}
        document = {"services": {service: {"networks": joined}}, "networks": known}
        (self.root / f"{name}.networks.yml").write_text(json.dumps(document))
        self.started.append(name)
        self.compose(name, "up", "-d")

    def container(self, name: str) -> str:
        """The identifier of a site's container."""
        return self.compose(name, "ps", "-q").strip()

    def learner(self, *arguments: object) -> str:
        """What a command of the learner's operator prints; asserts that it succeeds."""
        secrets = self.root / "learner" / "secrets"
        environment = {
            "PARLEY_URL": f"https://127.0.0.1:{self.port}",
            "PARLEY_TOKEN_FILE": str(secrets / "operator.token"),
            "PARLEY_CA": str(secrets / "authority.pem"),
        }
        done = CliRunner().invoke(learner_app, list(map(str, arguments)), env=environment)
        assert done.exit_code == 0, done.output
        return done.stdout

    def is_ready(self) -> bool:
        """Whether the learner answers that it is."""
        context = ssl.create_default_context(cafile=self.root / "learner" / "secrets" / "authority.pem")
        try:
            return httpx.get(f"https://127.0.0.1:{self.port}/readyz", verify=context, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def join(self, name: str) -> PartySettings:
        """Invite an owner, who joins from within a container on its own network; its settings."""
        self.learner("invite", name, "--study", BIOPSIES.name, "--out", self.root / f"{name}.json")
        (self.root / f"{name}.json").chmod(0o644)
        key = public_hex(LearnerSettings.load(self.root / "learner" / "learner.toml").signing_key())
        data = self.root / "made" / "data" / name / "biopsies.csv"
        line = ["join", f"{name}.json", "--data", str(data), "--clip", "--by-policy", "--compose"]
        where = ["--network", self.network(name), "-v", f"{self.root}:{self.root}", "-w", str(self.root)]
        docker("run", "--rm", *where, image("party"), *line, "--words", " ".join(words_of(key)))
        settings = PartySettings.load(self.root / name / "party.toml")
        self.learner("roster", "confirm", name, *words_of(settings.identity.key))
        return settings


@contextmanager
def sites(root: Path, names: tuple[str, ...] = hospitals(2)) -> Iterator[Sites]:
    """A learner and owners that have joined, each in its container; nothing of them is left at the end."""
    made = Sites(root, free_port())
    make_deployment(root / "made", partial(container_site), names)
    networks = {name: made.network(name) for name in names}
    try:
        for network in networks.values():
            docker("network", "create", "--internal", network)
        docker("network", "create", made.network("outside"))
        url = f"https://{LEARNER_HOST}:{made.port}"
        made.learner("init", url, "--out", root / "learner", "--compose")
        (root / "learner" / "studies" / "biopsies.json").write_text(BIOPSIES.model_dump_json())
        os.chown(root, IMAGE_USER, IMAGE_USER)
        (root / "made" / "data").chmod(0o755)
        made.up("learner", [made.network("outside"), *networks.values()])
        wait_for(made.is_ready)
        for name in names:
            made.join(name)
            made.up(name, [networks[name]])
        yield made
    finally:
        for name in reversed(made.started):
            made.compose(name, "down", "-v")
        for network in (*networks.values(), made.network("outside")):
            docker("network", "rm", network)
