"""Real sites in containers: a learner, and owners who join by invitation, each by the Compose file that this wrote."""

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

from parley.common.encoding.key_words import words_of
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.compose import IMAGE_USER
from parley.learner.cli.main import learner_app
from parley.learner.experiments.datasets import BIOPSIES
from parley.learner.settings import LearnerSettings
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from scripts.deployment.deployment import make_deployment
from scripts.deployment.sites import container_site
from tests.support.containers import compose_command, docker, image, output, wait_for
from tests.support.processes import free_port

LEARNER_HOST = "learner.test"
"""What the learner is called outside."""


@dataclass(slots=True)
class Sites:
    """A learner and its members in containers, under one folder; the network ``outside`` stands for the internet."""

    root: Path
    port: int
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    started: list[str] = field(default_factory=list)
    key_holders: list[str] = field(default_factory=list)

    @property
    def outside(self) -> str:
        """The network that the learner is on, and each member's gate."""
        return self.project("outside")

    def inside(self, name: str) -> str:
        """The network of a member, which leads nowhere."""
        return f"{self.project(name)}_inside"

    def project(self, name: str) -> str:
        """The name that a site has with the container engine."""
        return f"parley-site-{self.mark}-{name}"

    def compose(self, name: str, *arguments: str) -> str:
        """What Compose prints for a site; raises CalledProcessError."""
        (file,) = (self.root / name).glob("docker-compose.*.yml")
        files = "-f", str(file), "-f", str(self.root / f"{name}.networks.yml"), "-p", self.project(name)
        return output([*compose_command(), *files, *arguments], 120.0, {"PARLEY_TAG": image("party").partition(":")[2]})

    def up(self, name: str) -> None:
        """Start a site by its own Compose file, whose network ``outside`` is the one that all share."""
        document: dict[str, object] = {"networks": {"outside": {"external": True, "name": self.outside}}}
        if name == "learner":
            document["services"] = {name: {"networks": {"outside": {"aliases": [LEARNER_HOST]}}}}
        (self.root / f"{name}.networks.yml").write_text(json.dumps(document))
        self.started.append(name)
        self.compose(name, "up", "-d")

    def container(self, name: str) -> str:
        """The identifier of a site's container, which is not its gate."""
        (file,) = (self.root / name).glob("docker-compose.*.yml")
        return self.compose(name, "ps", "-q", file.name.split(".")[1]).strip()

    def gate(self, name: str) -> str:
        """The identifier of the container through which a member reaches the learner."""
        return self.compose(name, "ps", "-q", "gate").strip()

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

    def join(self, name: str) -> None:
        """Invite an owner, who joins from within a container."""
        self.learner("invite", name, "--study", BIOPSIES.name, "--out", self.root / f"{name}.json")
        data = self.root / "made" / name / "data" / "biopsies.csv"
        heard = [f"--key-holder-words={holder}={self._read_out(holder)}" for holder in self.key_holders]
        self._enrol(name, "join", f"{name}.json", "--data", str(data), "--clip", "--by-policy", *heard)
        self._confirm(name, PartySettings.load(self.root / name / "party.toml").identity.key)

    def join_key_holder(self, name: str) -> None:
        """Invite a key holder, who joins from within a container."""
        self.learner("invite", name, "--key-holder", "--out", self.root / f"{name}.json")
        self._enrol(name, "keyholder", "join", f"{name}.json")
        self._confirm(name, KeyHolderSettings.load(self.root / name / "keyholder.toml").identity.key)
        self.key_holders.append(name)

    def pin(self, name: str, other: str) -> None:
        """Have an owner compare and pin the key of another, and start again."""
        key = PartySettings.load(self.root / other / "party.toml").identity.key
        self._run("pin", other, *words_of(key), "--config", f"{name}/party.toml")
        self.compose(name, "restart")

    def _read_out(self, holder: str) -> str:
        """The six words that a key holder's operator reads out."""
        return " ".join(words_of(KeyHolderSettings.load(self.root / holder / "keyholder.toml").identity.key))

    def _enrol(self, name: str, *line: str) -> None:
        """Run a command of joining in a container, with the six words of the learner's key, and a Compose file."""
        (self.root / f"{name}.json").chmod(0o644)
        key = public_hex(LearnerSettings.load(self.root / "learner" / "learner.toml").signing_key())
        self._run(*line, "--compose", "--words", " ".join(words_of(key)))

    def _run(self, *line: str) -> None:
        """Run a command of an owner's in a container that may reach all."""
        where = ["--network", self.outside, "-v", f"{self.root}:{self.root}", "-w", str(self.root)]
        docker("run", "--rm", *where, image("party"), *line)

    def _confirm(self, name: str, key: str) -> None:
        """Confirm a member by the six words of its key."""
        self.learner("roster", "confirm", name, *words_of(key))


@contextmanager
def sites(root: Path, names: tuple[str, ...], key_holders: tuple[str, ...] = ()) -> Iterator[Sites]:
    """A learner, key holders and owners that have joined, each in its container; nothing is left of them at the end."""
    root.mkdir(parents=True, exist_ok=True)
    made = Sites(root, free_port())
    make_deployment(root / "made", partial(container_site), names)
    try:
        docker("network", "create", made.outside)
        url = f"https://{LEARNER_HOST}:{made.port}"
        made.learner("init", url, "--out", root / "learner", "--compose")
        (root / "learner" / "studies" / "biopsies.json").write_text(BIOPSIES.model_dump_json())
        for path in (root, root / "made", *(root / "made").rglob("*")):
            os.chown(path, IMAGE_USER, IMAGE_USER)
        made.up("learner")
        wait_for(made.is_ready)
        for name in (*key_holders, *names):
            (made.join_key_holder if name in key_holders else made.join)(name)
            made.up(name)
        yield made
    finally:
        for name in reversed(made.started):
            made.compose(name, "down", "-v")
        docker("network", "rm", made.outside)
