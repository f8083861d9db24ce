"""The deployment of docker-compose.yml in containers of a test's own: built, started, spoken to, taken down."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.common.errors import ParleyError
from parley.learner.cli.client import LearnerClient
from scripts.deployment.sites import HOSPITALS, LEARNER, services_of

_ROOT = Path(__file__).parents[2]
_IMAGES = ("party", "learner", "setup")
_TAG = f"test-{uuid.uuid4().hex[:12]}"
"""The images of this run of the tests; what it leaves for the next one to build on is tagged ``tested``."""

_COMMAND_SECONDS = 120.0
_BUILD_SECONDS = 900.0
_WAIT_SECONDS = 90.0
_PAUSE = 0.05


@dataclass(frozen=True)
class Project:
    """The services under a project name, a folder and a port that no other run of the tests shares."""

    name: str
    file: Path
    services: tuple[str, ...]
    tls: bool

    def compose(self, *arguments: str, seconds: float = _COMMAND_SECONDS) -> str:
        """What a compose command prints; raises CalledProcessError."""
        variables = {"PARLEY_PORT": "0", "PARLEY_TAG": _TAG}
        command = [*compose_command(), "-f", str(self.file), "-p", self.name]
        return output([*command, *arguments], seconds, variables)

    def setup(self, *words: str) -> str:
        """What the container that made the deployment prints, asked for something."""
        return self.compose("run", "--rm", "setup", *words).strip()

    def start(self) -> None:
        """Start the services that do not run; wait until the learner hears from every party."""
        self.compose("up", "-d")
        with self.learner() as learner:
            wait_for(lambda: all(party["facts"] for party in learner.ask("GET", "/v1/parties")))

    def is_healthy(self, service: str) -> bool:
        """Whether the engine's last check of a service's health said so; it makes one every 40 seconds."""
        return bool(self.inspect(service)["State"]["Health"]["Status"] == "healthy")

    def is_ready(self, service: str) -> bool:
        """Whether the program by which the engine checks a service's health says so now."""
        try:
            return self.run(service, "parley-is", "ready").startswith("ready")
        except subprocess.CalledProcessError:
            return False

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
        documents: list[dict[str, Any]] = json.loads(docker("inspect", self.container(service)))
        return documents[0]

    def run(self, service: str, *command: str) -> str:
        """What a command in a service's container prints; raises CalledProcessError."""
        return docker("exec", self.container(service), *command)

    def logs(self, service: str) -> str:
        """All that a service's container has logged."""
        return self.compose("logs", service)

    def owner(self, party: str, command: str) -> str:
        """What a party's own command prints to its owner, as JSON."""
        return self.run(party, "parley-party", command, "--format", "json")

    def ledger(self, party: str, run: str) -> list[dict[str, Any]]:
        """All answers that a party has given in a run, as its ledger has them."""
        entries = [json.loads(line) for line in self.owner(party, "log").splitlines()]
        return [entry for entry in entries if entry["run"] == run]

    @contextmanager
    def learner(self) -> Iterator[LearnerClient]:
        """A user's client of the learner's published port, which is another one each time that the learner starts."""
        with LearnerClient(self.url, self.token, httpx.HTTPTransport(verify=self.trust)) as client:
            wait_for(lambda: _is_ready(client))
            yield client

    @property
    def url(self) -> str:
        """The learner's published address, with another port each time that the learner starts."""
        (published,) = self.inspect(LEARNER)["NetworkSettings"]["Ports"]["8000/tcp"]
        return f"{'https' if self.tls else 'http'}://{published['HostIp']}:{published['HostPort']}"

    @cached_property
    def token(self) -> str:
        """The user's token."""
        return self.setup("token")

    @cached_property
    def trust(self) -> ssl.SSLContext:
        """What trusts the deployment's authority, if it has one."""
        return ssl.create_default_context(cadata=self.setup("authority") if self.tls else None)

    @contextmanager
    def cut_off(self, party: str) -> Iterator[None]:
        """The network between a party and the learner is gone for a while."""
        of_party = f"label=com.docker.compose.network={party}"
        network = docker("network", "ls", "-q", "--filter", self.label, "--filter", of_party).strip()
        docker("network", "disconnect", network, self.container(party))
        try:
            yield
        finally:
            docker("network", "connect", "--alias", party, network, self.container(party))

    @contextmanager
    def frozen(self, service: str) -> Iterator[None]:
        """A service's processes stand still for a while."""
        wait_for(lambda: self._freeze(service))
        try:
            yield
        finally:
            docker("unpause", self.container(service))

    def _freeze(self, service: str) -> bool:
        """Have the kernel freeze a container; a busy one may have to be asked again."""
        try:
            docker("pause", self.container(service))
        except subprocess.CalledProcessError:
            return False
        return True

    @contextmanager
    def volume_lost(self, party: str) -> Iterator[None]:
        """A party's volume is deleted under it, for a while; at the end it is restored from a copy."""
        of_party = f"label=com.docker.compose.volume={party}"
        volume = docker("volume", "ls", "-q", "--filter", self.label, "--filter", of_party).strip()
        copy = f"{volume}-copy"
        self.compose("stop", party)
        _copy_volume(volume, copy)
        self.compose("rm", "-f", party, "setup")  # which has the volume too
        docker("volume", "rm", volume)
        self.compose("up", "-d", party)
        try:
            yield
        finally:
            self.compose("stop", party)
            _copy_volume(copy, volume)
            docker("volume", "rm", copy)
            self.start()

    def rebuild(self) -> None:
        """Build all images again, with the same content and other identifiers."""
        build_images("--label", f"rebuilt={uuid.uuid4().hex}")


def compose_command() -> list[str]:
    """Compose, whichever version there is."""
    return ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]


def image(kind: str) -> str:
    """An image's name and tag in this run of the tests."""
    return f"parley-{kind}:{_TAG}"


def build_images(*options: str) -> None:
    """Build all images, as Compose would."""
    base = [f"--build-arg=BASE={os.environ['BASE']}"] if "BASE" in os.environ else []
    for kind in _IMAGES:
        build = ["docker", "build", "-q", "--target", kind, *options, *base, "-t", image(kind), str(_ROOT)]
        output(build, _BUILD_SECONDS, {})


def fresh_clone(folder: Path) -> Path:
    """Copy all that git has, or would have, of this repository into a folder, and return it."""
    listed = output(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], _COMMAND_SECONDS, {})
    for name in filter(None, listed.split("\0")):
        if (source := _ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name, follow_symlinks=False)
    return folder


@contextmanager
def project(folder: Path, parties: Sequence[str] = HOSPITALS, *, tls: bool = False) -> Iterator[Project]:
    """The services of a fresh clone, started by one command, and ready; the end of the block removes all of them."""
    clone = fresh_clone(folder)
    file = clone / "docker-compose.yml"
    if tls or parties != HOSPITALS:
        more = ["--parties", str(len(parties)), *(["--tls"] if tls else [])]
        output([sys.executable, str(clone / "scripts" / "make_deployment.py"), *more], _COMMAND_SECONDS, {})
    made = Project(f"parley-test-{uuid.uuid4().hex[:12]}", file, services_of(parties), tls)
    try:
        made.compose("up", "-d", seconds=_BUILD_SECONDS)
        wait_for(lambda: all(map(made.is_ready, made.services)))
        yield made
    except (subprocess.CalledProcessError, TimeoutError) as error:
        error.add_note(made.compose("logs", "--tail=20"))
        raise
    finally:
        made.compose("down", "-v")


def keep_images() -> None:
    """Have the next run of the tests build on the images of this one, whose own tags go."""
    for kind in _IMAGES:
        docker("tag", image(kind), f"parley-{kind}:tested")
        docker("rmi", image(kind))


def _copy_volume(source: str, target: str) -> None:
    """Add all that is in a volume to another, which is made where there is none."""
    mounts = "-v", f"{source}:/source:ro", "-v", f"{target}:/var/lib/parley"
    copy = "import shutil; shutil.copytree('/source', '/var/lib/parley', dirs_exist_ok=True)"
    docker("run", "--rm", *mounts, "--entrypoint", "python", image("party"), "-c", copy)


def docker(*arguments: str) -> str:
    """What a command of the container engine prints; raises CalledProcessError."""
    return output(["docker", *arguments], _COMMAND_SECONDS, {})


def gateway(network: str) -> str:
    """The machine's own address on a network of the engine: the subnet's first, where the engine names none."""
    config = json.loads(docker("network", "inspect", network))[0]["IPAM"]["Config"][0]
    return str(config.get("Gateway") or next(ip_network(config["Subnet"]).hosts()))


def wait_for(holds: Callable[[], bool]) -> None:
    """Ask again and again until it holds; raises TimeoutError."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"what was waited for did not happen within {_WAIT_SECONDS:g} s")
        time.sleep(_PAUSE)


def submit(learner: LearnerClient, n_rounds: int, **request: object) -> str:
    """The identifier of a new run on all parties."""
    fields = {"study": "biopsies", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": n_rounds}}
    return str(learner.ask("POST", "/v1/runs", fields | request)["id"])


def wait_for_round(learner: LearnerClient, run: str, round: int) -> None:
    """Wait until a run has done a round."""
    assert any(event.kind == "round" and json.loads(event.data)["round"] == round for event in learner.watch(run))


def finish(learner: LearnerClient, run: str) -> dict[str, Any]:
    """A run's model when it has completed; asserts that it does."""
    assert events(learner, run, "state")[-1]["state"] == "completed"
    model: dict[str, Any] = learner.ask("GET", f"/v1/runs/{run}/model")
    return model


def model_by_two_requests(services: Project) -> dict[str, Any]:
    """Submit a run with a secure sum and take its model, with nothing but the printed address and token."""
    asked = {"study": "biopsies", "algorithm": "dp_gd", "epsilon": 1, "delta": 1e-5, "secure_sum": "paillier"}
    headers = {"Authorization": f"Bearer {services.token}"}
    with httpx.Client(base_url=services.url, headers=headers, verify=services.trust, trust_env=False) as client:
        run = client.post("/v1/runs", json=asked).raise_for_status().json()["id"]
        wait_for(lambda: client.get(f"/v1/runs/{run}/model").is_success)
        model: dict[str, Any] = client.get(f"/v1/runs/{run}/model").json()
    return model


def events(learner: LearnerClient, run: str, kind: str) -> list[dict[str, Any]]:
    """All events of one kind that a watcher of a run receives, until the run ends."""
    return [json.loads(event.data) for event in learner.watch(run) if event.kind == kind]


def state(learner: LearnerClient, run: str) -> str:
    """A run's state."""
    return str(learner.ask("GET", f"/v1/runs/{run}")["state"])


def rounds(learner: LearnerClient, run: str) -> dict[str, int]:
    """How many rounds of a run are done, and of how many."""
    counts: dict[str, int] = learner.ask("GET", f"/v1/runs/{run}")["rounds"]
    return counts


def check_charges(services: Project, learner: LearnerClient, run: str, party: str) -> None:
    """Assert that every round of a completed run was charged once, and all together as announced to the party."""
    approved = next(data["epsilon"] for data in events(learner, run, "state") if data["state"] == "running")
    charged = services.ledger(party, run)
    assert [entry["round"] for entry in charged] == list(range(1, rounds(learner, run)["of"] + 1))
    assert sum(entry["epsilon"] for entry in charged) == pytest.approx(approved[party], abs=1e-9)


def _is_ready(learner: LearnerClient) -> bool:
    """Whether the learner answers that it is ready."""
    try:
        learner.ask("GET", "/readyz")
    except ParleyError:
        return False
    return True


def output(command: list[str], seconds: float, variables: Mapping[str, str]) -> str:
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
