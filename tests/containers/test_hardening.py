"""What a service may do in its container, tried from within: its work and nothing else."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import httpx
import pytest

from scripts.deployment.sites import HOSPITALS, KEY_HOLDER, LEARNER, SERVICES
from tests.support.containers import Project, docker, gateway, wait_for

PARLEY = 10001
LARGEST_IMAGE = 440_000_000
SCRATCH = "/tmp"  # noqa: S108 -- the container's own
PROBE = """
import importlib.util, json, shutil, socket, sys
from concurrent.futures import ThreadPoolExecutor

def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return error.strerror or str(error)
    return "done"

def attempt_all(names, action):
    return dict(zip(names, ThreadPoolExecutor().map(lambda name: attempt(action, name), names)))

print(json.dumps({
    "status": dict(line.split(":", 1) for line in open("/proc/1/status").read().splitlines()),
    "writes": attempt_all(sys.argv[1].split(","), lambda folder: open(folder + "/probe", "w")),
    "connects": attempt_all(sys.argv[2].split(","), lambda at: socket.create_connection(at.split(":"), 3)),
    "finds": [name for name in ("parley.learner", "parley.party", "tests") if importlib.util.find_spec(name)],
    "installers": [name for name in ("ensurepip", "pip", "setuptools") if importlib.util.find_spec(name)],
    "programs": [name for name in ("apt", "bash", "dpkg", "gcc", "perl", "pip", "sh") if shutil.which(name)],
}))
"""


def probe(
    services: Project, service: str, writes: Sequence[str] = (SCRATCH,), connects: Sequence[str] = ("localhost:8000",)
) -> dict[str, Any]:
    tries = ",".join(writes), ",".join(connects)
    document: dict[str, Any] = json.loads(services.run(service, "python", "-c", PROBE, *tries))
    return document


def address(services: Project, service: str) -> str:
    (network,) = services.inspect(service)["NetworkSettings"]["Networks"].values()
    return str(network["IPAddress"])


def gateways(services: Project, service: str) -> list[str]:
    """The machine's own addresses: on the network of a service, and on the engine's."""
    (network,) = services.inspect(service)["NetworkSettings"]["Networks"].values()
    return [gateway(network["NetworkID"]), gateway("bridge")]


@pytest.mark.parametrize("service", SERVICES)
def test_no_service_is_root_or_can_become_it(services: Project, service: str) -> None:
    status = probe(services, service)["status"]
    for ids in ("Uid", "Gid"):
        assert set(status[ids].split()) == {str(PARLEY)}
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[capabilities], 16) == 0
    assert int(status["NoNewPrivs"]) == 1
    assert int(status["Seccomp"]) == 2


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_writes_to_its_volume_alone(services: Project, service: str) -> None:
    allowed, mounted = {"/var/lib/parley", SCRATCH}, {f"/etc/parley/{service}", f"/etc/parley/{service}/secrets"}
    folders = ["/", "/etc/parley", "/opt/parley", *mounted, *allowed]
    tried = probe(services, service, writes=folders)["writes"]
    services.run(service, "python", "-c", f"import os; [os.remove(folder + '/probe') for folder in {allowed}]")
    assert tried == {folder: "done" if folder in allowed else "Read-only file system" for folder in folders}


def test_an_image_holds_its_own_services_code_alone(services: Project) -> None:
    assert probe(services, LEARNER)["finds"] == ["parley.learner"]
    assert probe(services, "hospital-a")["finds"] == ["parley.party"]


@pytest.mark.parametrize("service", [LEARNER, "hospital-a"])
def test_an_image_holds_no_shell_and_no_installer(services: Project, service: str) -> None:
    found = probe(services, service)
    assert found["installers"] == []
    assert found["programs"] == []


@pytest.mark.parametrize("service", [LEARNER, "hospital-a", "setup"])
def test_an_image_is_small(services: Project, service: str) -> None:
    image = json.loads(docker("image", "inspect", services.inspect(service)["Image"]))[0]
    print(f"{service}: {image['Size'] / 1e6:.0f} MB")
    assert image["Size"] <= LARGEST_IMAGE


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_limits(services: Project, service: str) -> None:
    limits = services.inspect(service)["HostConfig"]
    assert (limits["Memory"], limits["NanoCpus"], limits["PidsLimit"]) == (2 * 2**30, 10**9, 256)


@pytest.mark.parametrize("service", ["hospital-a", KEY_HOLDER])
def test_parties_and_key_holder_reach_the_learner_and_nobody_else(services: Project, service: str) -> None:
    others = [f"{address(services, other)}:8000" for other in (KEY_HOLDER, *HOSPITALS) if other != service]
    with socket.create_server(("0.0.0.0", 0)) as machine:  # noqa: S104 -- what is tested
        at_machine = [f"{gateway}:{machine.getsockname()[1]}" for gateway in gateways(services, service)]
        tried = probe(services, service, connects=[f"{LEARNER}:8000", *others, *at_machine])["connects"]
    assert [host for host, outcome in tried.items() if outcome == "done"] == [f"{LEARNER}:8000"]
    assert len(tried) == 8


def test_only_the_learner_is_published_and_on_loopback_alone(services: Project) -> None:
    for service in SERVICES:
        ports = services.inspect(service)["NetworkSettings"]["Ports"]
        published = [port["HostIp"] for ports_of_host in ports.values() for port in ports_of_host or ()]
        assert published == (["127.0.0.1"] if service == LEARNER else [])


def test_what_is_an_owners_is_published_on_loopback_if_it_is_wanted(services: Project) -> None:
    services.compose("--profile", "watch", "up", "-d", "--no-deps", "watch")
    try:
        scraped = json.loads(services.setup("prometheus"))["scrape_configs"]
        assert [job["job_name"] for job in scraped] == [f"parley-{name}" for name in SERVICES]
        with httpx.Client(trust_env=False, timeout=10) as client:
            for job in scraped[1:]:
                url = f"http://{job['static_configs'][0]['targets'][0]}/metrics"
                bearer = {"Authorization": f"Bearer {job['authorization']['credentials']}"}
                wait_for(partial(answers, client, url))
                assert client.get(url).status_code == 401
                assert "parley_ready 1.0" in client.get(url, headers=bearer).text
            page, _, token = services.run("hospital-b", "parley-party", "owner").strip().partition("#")
            shown = client.get(f"{page}pending", headers={"Authorization": f"Bearer {token}"}).json()
            assert shown["party"] == "hospital-b"
        beside = probe(services, "hospital-b", connects=["watch:9101"])["connects"]
        assert beside == {"watch:9101": "Connection refused"}, "not by the network that the owner shares with it"
    finally:
        services.compose("--profile", "watch", "rm", "-s", "-f", "watch")


def answers(client: httpx.Client, url: str) -> bool:
    try:
        return bool(client.get(url).status_code)
    except httpx.HTTPError:
        return False


def test_the_engine_sees_that_every_service_is_healthy(services: Project) -> None:
    wait_for(lambda: all(map(services.is_healthy, SERVICES)))


def test_a_service_that_is_told_to_stop_ends_its_work_and_says_so(services: Project) -> None:
    began = time.monotonic()
    services.compose("stop", "hospital-e")
    try:
        ended = services.inspect("hospital-e")["State"]
        assert (ended["ExitCode"], ended["OOMKilled"]) == (0, False)
        print(f"a party stopped within {time.monotonic() - began:.1f} s")
    finally:
        services.start()
