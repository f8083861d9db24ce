"""The Compose file of one service at its owner's site: what it mounts, limits and publishes."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.files.sources import DataSource, PostgresTable
from parley.common.service.compose import IMAGE_USER, ContainerService, reached_places
from parley.common.service.forward import Place
from parley.common.service.http.proxy import ProxyAccess
from parley.learner.cli.main import learner_app
from parley.party.commands import config_words
from parley.party.joining import check_contained, container_of

if TYPE_CHECKING:
    from parley.common.wire.membership import Invitation

ODD = ["a b", 'C:\\"x"', "a: {b}", "é # c", "$HOME", "${X:-y}"]
"""Names that mean something else in YAML or to Compose."""


LEARNER = Place(8100, "learner.example.org", 8100)


def party(folder: Path, *others: Place, ports: tuple[str, ...] = ()) -> ContainerService:
    reads, reaches = (folder / "rows.csv",), (LEARNER, *others)
    return ContainerService("party", ("parley-party",), folder / "party.toml", reads, ports, reaches)


def document(service: ContainerService) -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(service.text("1000:1001"))
    return parsed


def rendered(service: ContainerService) -> dict[str, Any]:
    container: dict[str, Any] = document(service)["services"][service.name]
    return container


def test_a_party_publishes_no_port_and_writes_only_its_state() -> None:
    container = rendered(party(Path("/site")))
    assert not {"ports", "expose", "network_mode", "privileged", "environment"} & set(container)
    mounts = {mount["target"]: mount["read_only"] for mount in container["volumes"]}
    assert mounts == {"/site": True, "/site/state": False, "/site/rows.csv": True}
    assert all(mount["source"] == mount["target"] for mount in container["volumes"])
    assert {mount["type"] for mount in container["volumes"]} == {"bind"}
    assert (container["read_only"], container["cap_drop"], container["user"]) == (True, ["ALL"], "1000:1001")
    assert (container["mem_limit"], container["cpus"], container["pids_limit"]) == ("${PARLEY_MEMORY:-2g}", 1.0, 256)
    assert container["stop_grace_period"] == "30s"
    assert container["command"] == ["serve", "--config", "/site/party.toml"]


def test_a_party_is_on_a_network_that_leads_nowhere_and_names_are_asked_nowhere() -> None:
    whole = document(party(Path("/site"), Place(5432, "db.lan", 5432), Place(4318, "db.lan", 4318)))
    container, gate = whole["services"]["party"], whole["services"]["gate"]
    assert container["networks"] == ["inside"]
    assert container["links"] == ["gate:learner.example.org", "gate:db.lan"]
    assert container["dns"] == ["127.0.0.1"]
    assert whole["networks"]["inside"] == {
        "internal": True,
        "driver_opts": {"com.docker.network.bridge.inhibit_ipv4": "true"},
    }
    assert gate["networks"] == ["inside", "outside"]
    assert gate["command"] == ["forward", "learner.example.org:8100", "db.lan:5432", "db.lan:4318"]
    assert "volumes" not in gate, "it has nothing of the owner's"
    for hardening in ("user", "read_only", "cap_drop", "security_opt", "pids_limit", "logging"):
        assert gate[hardening] == container[hardening]


def test_what_a_party_publishes_is_led_through_the_gate() -> None:
    whole = document(party(Path("/site"), ports=("127.0.0.1:9101:9100",)))
    assert "ports" not in whole["services"]["party"], "nothing is published from a network that leads nowhere"
    assert whole["services"]["gate"]["ports"] == ["127.0.0.1:9101:9100"]
    assert whole["services"]["gate"]["command"] == ["forward", "learner.example.org:8100", "9100:party:9100"]


def test_logs_rotate() -> None:
    learner = ContainerService("learner", ("parley-learner",), Path("/l/learner.toml"), ports=("8100:8100",))
    for service in (party(Path("/site")), learner):
        for container in document(service)["services"].values():
            options = {"max-size": "10m", "max-file": "5"}
            assert container["logging"] == {"driver": "json-file", "options": options}


def test_a_key_holder_is_the_partys_image_with_other_words() -> None:
    container = rendered(
        ContainerService("key-holder", ("parley-party", "keyholder"), Path("/k/keyholder.toml"), ports=("1:2",))
    )
    assert container["image"] == "parley-party:${PARLEY_TAG:-latest}"
    assert container["command"] == ["keyholder", "serve", "--config", "/k/keyholder.toml"]
    assert container["ports"] == ["1:2"]


def test_what_only_this_machine_may_reach_is_published_on_its_loopback() -> None:
    service = replace(party(Path("/site")), listeners={"PARLEY_PARTY_METRICS": 9464, "PARLEY_PARTY_OWNER": 8101})
    services = document(service)["services"]
    assert "ports" not in services["party"], "on a network that leads nowhere, no port can be published"
    assert services["gate"]["ports"] == ["127.0.0.1:9464:9464", "127.0.0.1:8101:8101"]
    assert services["gate"]["command"][-2:] == ["9464:party:9464", "8101:party:8101"]
    assert services["party"]["environment"] == {
        "PARLEY_PARTY_METRICS__HOST": "0.0.0.0",  # noqa: S104 -- of the container
        "PARLEY_PARTY_METRICS__PLAIN_HTTP": "true",
        "PARLEY_PARTY_OWNER__HOST": "0.0.0.0",  # noqa: S104
        "PARLEY_PARTY_OWNER__PLAIN_HTTP": "true",
    }


@pytest.mark.parametrize("name", ODD)
def test_any_path_stays_one_string(name: str) -> None:
    source = rendered(party(Path("/") / name))["volumes"][0]["source"]
    assert source.replace("$$", "$") == f"/{name}"
    assert source.count("$") == 2 * name.count("$")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="needs docker-compose")
@pytest.mark.parametrize("name", ODD)
def test_compose_accepts_the_file(tmp_path: Path, name: str) -> None:
    service = party(tmp_path / name, Place(8100, "b.example.org", 8100))  # so there are two gates
    service.settings.parent.mkdir()
    service.write()
    command = ["docker-compose", "-f", str(service.file), "config"]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    mounts = yaml.safe_load(result.stdout)["services"]["party"]["volumes"]
    assert mounts[0]["source"].replace("$$", "$") == str(tmp_path / name)


def test_what_is_said_to_do_next_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "a site"
    folder.mkdir()
    assert party(folder).write().start == f"docker compose -f '{folder}/docker-compose.party.yml' up -d"
    assert config_words(folder / "party.toml") == f" --config '{folder}/party.toml'"


def test_what_is_there_stays_and_a_folder_of_roots_is_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, owners = party(tmp_path), {}
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setattr("os.getgid", lambda: 0)
    monkeypatch.setattr("os.chown", lambda path, user, group, **_: owners.update({path: (user, group)}))
    assert service.write().start == f"docker compose -f {tmp_path}/docker-compose.party.yml up -d"
    assert f'user: "{IMAGE_USER}:{IMAGE_USER}"' in service.file.read_text()
    assert owners == dict.fromkeys((tmp_path, service.file), (IMAGE_USER, IMAGE_USER))
    service.file.write_text("mine\n")
    service.write()
    assert service.file.read_text() == "mine\n"


def test_a_file_that_the_disk_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str | None] = []

    def full(_: Path, text: str, encoding: str | None = None) -> int:
        assert text.startswith("# party: docker compose -f docker-compose.party.yml up -d")
        written.append(encoding)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UnavailableError) as refused:
        party(tmp_path).write()
    assert refused.value.detail == f"{tmp_path}/docker-compose.party.yml cannot be written: No space left on device"
    assert written == ["utf-8"]


@pytest.mark.parametrize(
    ("source", "seen"),
    [("/d/a.csv", "/d/a.csv"), ("/d/*/x.csv", "/d"), ("/d/p?.csv", "/d"), ("/d/lab.sqlite::labs", "/d/lab.sqlite")],
)
def test_a_container_sees_the_data_and_no_more(source: str, seen: str) -> None:
    assert DataSource(source=source).paths == (Path(seen),)


def test_a_container_sees_all_that_a_query_needs() -> None:
    string = PostgresTable(postgres="file:/s/lab.dsn", table="labs")
    tables = {"a": "/d/a.csv", "b": "/d/*.parquet", "c": "/d/a.csv", "labs": string}
    data = DataSource(source="SELECT 1 FROM a", tables=tables)
    assert data.paths == (Path("/d/a.csv"), Path("/d"), Path("/s/lab.dsn"))


def test_a_further_study_is_mounted_beside_the_first_and_what_is_reached_stays(tmp_path: Path) -> None:
    first = party(tmp_path, Place(5432, "db.lan", 5432))
    assert first.write().notes == ()
    assert first.write().notes == (), "the same again changes nothing"
    second = replace(first, reads=(*first.reads, tmp_path / "$visits.csv"), reaches=(LEARNER,))
    (note,) = second.write().notes
    assert "the container has to be made again" in note
    assert first.file.read_text() == replace(second, reaches=first.reaches).text(user_of(first))
    third = replace(second, reads=second.reads[1:])
    gone, _ = third.write().notes
    assert f"no longer mounts {first.reads[0]}" in gone
    mounts = yaml.safe_load(first.file.read_text())["services"]["party"]["volumes"]
    assert [mount["source"] for mount in mounts[2:]] == [f"{tmp_path}/$$visits.csv"]


def user_of(service: ContainerService) -> str:
    return str(yaml.safe_load(service.file.read_text())["services"][service.name]["user"])


def test_a_file_that_was_changed_by_hand_stays_and_what_it_lacks_is_said(tmp_path: Path) -> None:
    first = party(tmp_path)
    first.write()
    own = first.file.read_text() + "# mine\n"
    first.file.write_text(own)
    assert first.write().notes == (), "it lacks nothing"
    further = Place(443, "b.example.org", 443)
    (note,) = replace(first, reads=(tmp_path / "visits.csv",), reaches=(LEARNER, further)).write().notes
    assert first.file.read_text() == own
    assert f'"source": "{tmp_path}/visits.csv"' in note
    assert '"b.example.org:443" to the command of gate, and "gate:b.example.org" to the links of party' in note


def test_learners_with_one_port_have_a_gate_each(tmp_path: Path) -> None:
    others = Place(8100, "b.example.org", 8100), Place(5432, "b.example.org", 5432), Place(5432, "db.lan", 5432)
    service = party(tmp_path, *others, ports=("127.0.0.1:9101:9100",))
    services = document(service)["services"]
    assert services["gate"]["command"] == ["forward", "learner.example.org:8100", "db.lan:5432", "9100:party:9100"]
    assert services["gate-2"]["command"] == ["forward", "b.example.org:8100", "b.example.org:5432"]
    assert "ports" not in services["gate-2"]
    links = ["gate:learner.example.org", "gate:db.lan", "gate-2:b.example.org"]
    assert services["party"]["links"] == links
    service.write()
    assert service.write().notes == ()
    more = replace(service, reaches=(LEARNER, Place(443, "c.example.org", 443)))
    assert len(more.write().notes) == 1
    assert yaml.safe_load(service.file.read_text())["services"]["party"]["links"] == [
        *links[:2],
        "gate:c.example.org",
        links[2],
    ]


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:1", "http://localhost", "https://[::1]:8", "https://10.0.0.5", "https://[2001:db8::1]"]
)
def test_what_has_no_name_is_not_reached_from_a_container(url: str) -> None:
    with pytest.raises(InvalidInputError, match="it needs a name"):
        reached_places([url])


def test_behind_a_proxy_a_container_reaches_the_proxy_alone() -> None:
    invited = cast("Invitation", SimpleNamespace(url="https://learner.example.org:8100"))
    proxy = ProxyAccess("http://proxy.lan:3128", "ann:secret")
    assert container_of(invited, None, None).reaches == (LEARNER,)
    assert container_of(invited, proxy, ["db.lan:5432"]).reaches == (
        Place(3128, "proxy.lan", 3128),
        Place(5432, "db.lan", 5432),
    )
    with pytest.raises(InvalidInputError, match="--reach: goes with --compose"):
        check_contained(["db.lan:5432"], in_container=False)


def test_a_container_reaches_a_urls_host_and_port() -> None:
    assert reached_places(["https://learner.example.org:8100", "https://learner.example.org:8100/"]) == (LEARNER,)
    assert reached_places(["https://a", "http://b"]) == (Place(443, "a", 443), Place(80, "b", 80))
    assert reached_places(["https://a"], ["db.lan:5432"])[1] == Place(5432, "db.lan", 5432)
    for other in ("db.lan", "127.0.0.1:5432", "10.0.0.5:5432", "1:db.lan:5432"):
        with pytest.raises(InvalidInputError, match=r"HOST:PORT|needs a name"):
            reached_places(["https://a"], [other])


@pytest.mark.parametrize(
    ("url", "published", "host"),
    [
        ("https://learner.example:8100", "8100:8100", "0.0.0.0"),  # noqa: S104 -- what is tested
        ("https://localhost", "127.0.0.1:443:443", "0.0.0.0"),  # noqa: S104 -- as above
        ("https://[::1]:8100", "[::1]:8100:8100", "::"),
        ("https://[2001:db8::1]", "443:443", "::"),
    ],
)
def test_a_learner_is_published_where_its_url_says(tmp_path: Path, url: str, published: str, host: str) -> None:
    out = tmp_path / "learner"
    done = CliRunner().invoke(learner_app, ["init", url, "--out", str(out), "--compose"])
    assert done.exit_code == 0, done.output
    assert "docker compose -f" in done.output
    container = yaml.safe_load((out / "docker-compose.learner.yml").read_text())["services"]["learner"]
    assert container["ports"] == [published]
    assert container["image"] == "parley-learner:${PARLEY_TAG:-latest}"
    assert f'host = "{host}"' in (out / "learner.toml").read_text()


def test_a_learner_that_listens_on_loopback_is_no_containers(tmp_path: Path) -> None:
    line = ["init", "https://learner.example", "--out", str(tmp_path / "l"), "--compose", "--listen", "127.0.0.1"]
    done = CliRunner().invoke(learner_app, line)
    assert done.exit_code == 3
    assert not (tmp_path / "l").exists()


def test_a_learner_in_the_clear_starts_where_it_was_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "learner"
    done = CliRunner().invoke(learner_app, ["init", "http://learner.example:80", "--plain-http", "--out", str(out)])
    assert done.exit_code == 0, done.output
    checked = CliRunner().invoke(learner_app, ["check", "--config", str(out / "learner.toml")])
    assert checked.exit_code == 0, checked.output
