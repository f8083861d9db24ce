"""An owner's real site: joined by an invitation, it reaches the learner alone, and nobody reaches it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from functools import partial
from itertools import permutations
from typing import Any

import httpx
import pytest

from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.owner.page import owner_address
from parley.party.settings import PartySettings
from scripts.deployment.sites import hospitals
from tests.support.containers import docker, gateway, image, wait_for
from tests.support.sites import LEARNER_HOST, Sites, sites

NAMES, HOLDER = hospitals(2), "notary"
OUTSIDE = "192.0.2.1"
"""An address of no machine (RFC 5737): a way outside would time out, and none says so at once."""

TRY = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def attempt(address):
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 2).close()
    except OSError as error:
        return type(error).__name__
    return "reached"
with ThreadPoolExecutor() as threads:
    print(json.dumps(dict(zip(sys.argv[1:], threads.map(attempt, sys.argv[1:])))))
"""
LISTENING = """
for table in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{table}").read().splitlines()[1:]:
        address, state = line.split()[1], line.split()[3]
        if state == "0A" and not address.split(":")[0].endswith("7F"):  # 127/8, where the engine's DNS is too
            print(int(address.split(":")[1], 16))
"""
LISTEN = "import socket, time; server = socket.create_server(('', 9000)); time.sleep(600)"


@pytest.fixture(scope="module")
def made(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with sites(tmp_path_factory.mktemp("sites"), NAMES, (HOLDER,)) as built:
        yield built


def address(container: str, network: str) -> str:
    found = json.loads(docker("inspect", container))[0]["NetworkSettings"]["Networks"][network]["IPAddress"]
    assert found
    return str(found)


def tried(container: str, *addresses: str) -> dict[str, str]:
    document: dict[str, str] = json.loads(docker("exec", container, "python", "-c", TRY, *addresses))
    return document


def test_sites_that_joined_by_invitation_sum_securely_without_an_open_port(made: Sites) -> None:
    roster: list[dict[str, Any]] = []

    def connected() -> bool:
        roster[:] = json.loads(made.learner("roster", "list", "--format", "json"))
        return all(each["connected"] for each in roster)

    wait_for(connected)
    assert sorted(each["name"] for each in roster) == [*NAMES, HOLDER]
    for here, other in permutations(NAMES):
        made.pin(here, other)
    wait_for(connected)
    terms = ["--epsilon", 1, "--delta", 1e-5, "-p", "n_rounds=5", "--secure-sum", "paillier"]
    run = made.learner("submit", "biopsies", *terms).split()[0]
    assert "completed after 5 rounds" in made.learner("watch", run)
    opened = json.loads(made.learner("opened", run, "--format", "json"))
    assert [[each["key_holder"] for each in opening["receipts"]] for opening in opened] == [[HOLDER]] * 5
    made.learner("model", run, "--save", made.root / "model.json")
    document = json.loads(made.learner("verify", made.root / "model.json", "--format", "json"))
    assert (document["faults"], list(document["keys"]["key_holders"])) == ([], [HOLDER])
    for name in (*NAMES, HOLDER):
        state = json.loads(docker("inspect", made.container(name)))[0]
        assert state["NetworkSettings"]["Ports"] in ({}, {"8000/tcp": None})
        beyond_loopback = docker("exec", made.container(name), "python", "-c", LISTENING).split()
        assert set(map(int, beyond_loopback)) == set(settings_of(made, name).side_ports.values()), "its owner's alone"


def test_a_party_reaches_the_learner_and_nothing_else(made: Sites) -> None:
    """Its gate, on the network outside, reaches all of it: the learner, another machine, the engine's own."""
    name, network, own = NAMES[0], made.outside, f"{LEARNER_HOST}:{made.port}"
    listen = ["-d", "--rm", "--network", network, "--entrypoint", "python", image("party"), "-c", LISTEN]
    listener = docker("run", *listen).strip()
    try:
        with socket.create_server(("0.0.0.0", 0)) as machine:  # noqa: S104 -- what is tested
            port = machine.getsockname()[1]
            at_gateway = [f"{gateway(net)}:{port}" for net in (made.inside(name), network)]
            elsewhere = f"{address(listener, network)}:9000"
            learner = f"{address(made.container('learner'), network)}:{made.port}"
            beyond_reach = [elsewhere, learner, *at_gateway, f"{LEARNER_HOST}:9000", f"{OUTSIDE}:443"]
            wait_for(lambda: tried(made.gate(name), elsewhere) == {elsewhere: "reached"})
            reached = tried(made.gate(name), own, learner, at_gateway[1])
            assert set(reached.values()) == {"reached"}
            outcomes = tried(made.container(name), own, *beyond_reach)
    finally:
        docker("kill", listener)
    print(f"from {name}: {outcomes}")
    assert [to for to, outcome in outcomes.items() if outcome == "reached"] == [own]


def test_each_member_is_with_its_gate_alone_and_asks_nobody_for_names(made: Sites) -> None:
    for name in (*NAMES, HOLDER):
        (network,) = json.loads(docker("network", "inspect", made.inside(name)))
        assert network["Internal"]
        (service,) = set(network["Containers"]) - {made.gate(name)}
        container = json.loads(docker("inspect", service))[0]
        assert list(container["NetworkSettings"]["Networks"]) == [made.inside(name)]
        assert container["HostConfig"]["Dns"] == ["127.0.0.1"]


def test_nothing_but_what_is_its_owners_reaches_a_party_even_from_its_own_network(made: Sites) -> None:
    name = NAMES[0]
    party, settings = made.container(name), settings_of(made, name)
    inside = tried(party, f"127.0.0.1:{settings.port}")
    assert set(inside.values()) == {"reached"}
    at = address(party, made.inside(name))
    aims = [f"{at}:{port}" for port in (settings.port, 8000, 80, 443)]
    owners = [f"{at}:{port}" for port in settings.side_ports.values()]  # each wants a token of the owner's
    probe = ["--rm", "--network", made.inside(name), "--entrypoint", "python", image("party"), "-c", TRY]
    outcomes = json.loads(docker("run", *probe, *aims, *owners))
    assert outcomes == dict.fromkeys(aims, "ConnectionRefusedError") | dict.fromkeys(owners, "reached")
    assert "reached" not in tried(made.container(NAMES[1]), *aims, *owners).values()


def settings_of(made: Sites, name: str) -> PartySettings | KeyHolderSettings:
    if name == HOLDER:
        return KeyHolderSettings.load(made.root / name / "keyholder.toml")
    return PartySettings.load(made.root / name / "party.toml")


@pytest.mark.parametrize("name", [NAMES[0], HOLDER])
def test_an_owner_watches_its_container_and_opens_its_page_from_its_machine_alone(made: Sites, name: str) -> None:
    settings = settings_of(made, name)
    assert settings.metrics is not None
    published = json.loads(docker("inspect", made.gate(name)))[0]["NetworkSettings"]["Ports"]
    bindings = {binding["HostIp"] for ports in published.values() for binding in ports or ()}
    assert bindings == {"127.0.0.1"}
    with httpx.Client(trust_env=False, timeout=10) as client:
        url = f"http://127.0.0.1:{settings.metrics.port}/metrics"
        assert client.get(url).status_code == 401
        token = (made.root / name / "secrets" / "metrics.token").read_text()
        text = client.get(url, headers={"Authorization": f"Bearer {token}"}).text
        assert "process_cpu_seconds_total" in text
        assert "parley_ready 1.0" in text
        if isinstance(settings, PartySettings):
            page, _, token = owner_address(settings).partition("#")
            assert client.get(page).status_code == 200
            assert client.get(f"{page}pending").status_code == 401
            shown = client.get(f"{page}pending", headers={"Authorization": f"Bearer {token}"}).json()
            assert shown["party"] == name


def test_the_engine_sees_that_a_party_and_a_key_holder_are_healthy(made: Sites) -> None:
    for name in (*NAMES, HOLDER):
        wait_for(partial(is_healthy, made.container(name)))


def is_healthy(container: str) -> bool:
    return bool(json.loads(docker("inspect", container))[0]["State"]["Health"]["Status"] == "healthy")
