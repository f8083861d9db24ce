"""The deployment of docker-compose.yml in containers of a test's own: built, started, spoken to, taken down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learner.cli.client import LearnerClient
from scripts.loopback import wait_until_ready
from scripts.make_deployment import LEARNER, Deployment, container_site, make_deployment

_ROOT = Path(__file__).parents[2]
_COMMAND_SECONDS = 120.0
_WAIT_SECONDS = 90.0
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Project:
    """The services under a project name, a folder and a port that no other run of the tests shares."""

    name: str
    folder: Path
    deployment: Deployment

    def compose(self, *arguments: str, seconds: float = _COMMAND_SECONDS) -> str:
        """What a compose command prints; raises CalledProcessError."""
        command = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
        variables = {"PARLEY_DEPLOY": str(self.folder), "PARLEY_PORT": "0"}
        return _output([*command, "-p", self.name, *arguments], seconds, variables)

    def start(self) -> None:
        """Start what does not run, and wait until every service says that it is healthy."""
        self.compose("up", "-d")
        wait_for(
            lambda: all(self.inspect(service)["State"]["Health"]["Status"] == "healthy" for service in self.services)
        )

    @property
    def services(self) -> tuple[str, ...]:
        """The names of all services."""
        return tuple(self.deployment.services)

    @property
    def label(self) -> str:
        """What the engine knows all that belongs to the project by."""
        return f"label=com.docker.compose.project={self.name}"

    def container(self, service: str) -> str:
        """The identifier of a service's container, running or not."""
        of_service = f"label=com.docker.compose.service={service}"
        return docker("ps", "-aq", "--filter", self.label, "--filter", of_service).strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine knows of a service's container."""
        found: list[dict[str, Any]] = json.loads(docker("inspect", self.container(service)))
        return found[0]

    def run(self, service: str, *command: str) -> str:
        """What a command in a service's container prints; raises CalledProcessError."""
        return docker("exec", self.container(service), *command)

    def owner(self, party: str, command: str) -> str:
        """What a party's own command prints to its owner, as JSON."""
        return self.run(party, "parley-party", command, "--config", "/etc/parley/party.toml", "--format", "json")

    def ledger(self, party: str, run: str) -> list[dict[str, Any]]:
        """All answers that a party has given in a run, as its ledger has them."""
        entries = [json.loads(line) for line in self.owner(party, "log").splitlines()]
        return [entry for entry in entries if entry["run"] == run]

    @contextmanager
    def learner(self) -> Iterator[LearnerClient]:
        """A user's client of the learner's published port, which is another one each time that the learner starts."""
        (published,) = self.inspect(LEARNER)["NetworkSettings"]["Ports"]["8000/tcp"]
        url = f"http://{published['HostIp']}:{published['HostPort']}"
        wait_until_ready({LEARNER: url})
        with LearnerClient(url, self.deployment.user_token) as client:
            yield client


@contextmanager
def project(root: Path) -> Iterator[Project]:
    """The services, built and healthy; nothing of them is left at the end, whatever happened."""
    made = Project(f"parley-test-{uuid.uuid4().hex[:12]}", root, make_deployment(root, container_site))
    made.compose("build", seconds=600.0)
    try:
        made.start()
        yield made
    except (subprocess.CalledProcessError, TimeoutError) as error:
        error.add_note(made.compose("logs", "--tail=20"))
        raise
    finally:
        made.compose("down", "-v")


def docker(*arguments: str) -> str:
    """What a command of the container engine prints; raises CalledProcessError."""
    return _output(["docker", *arguments], _COMMAND_SECONDS, {})


def wait_for(holds: Callable[[], bool]) -> None:
    """Ask again and again until it holds; raises TimeoutError."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"what was waited for did not happen within {_WAIT_SECONDS:g} s")
        time.sleep(_PAUSE)


def submit(learner: LearnerClient, n_rounds: int, **request: object) -> str:
    """The identifier of a new run on all parties."""
    fields = {"study": "wdbc", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": n_rounds}}
    return str(learner.ask("POST", "/v1/runs", fields | request)["id"])


def wait_for_round(learner: LearnerClient, run: str, round: int) -> None:
    """Wait until a run has done a round."""
    assert any(event.kind == "round" and json.loads(event.data)["round"] == round for event in learner.watch(run))


def finish(learner: LearnerClient, run: str) -> dict[str, Any]:
    """A run's model when it has completed; asserts that it does."""
    assert events(learner, run, "state")[-1]["state"] == "completed"
    model: dict[str, Any] = learner.ask("GET", f"/v1/runs/{run}/model")
    return model


def events(learner: LearnerClient, run: str, kind: str) -> list[dict[str, Any]]:
    """All that a watcher of a run is told of one kind, to the run's end."""
    return [json.loads(event.data) for event in learner.watch(run) if event.kind == kind]


def _output(command: list[str], seconds: float, variables: Mapping[str, str]) -> str:
    """What a command prints on standard output; its error output is noted on CalledProcessError."""
    environment = os.environ | variables
    done = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        error = subprocess.CalledProcessError(done.returncode, command)
        error.add_note(done.stderr[-2000:])
        raise error
    return done.stdout
