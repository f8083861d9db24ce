"""``parley-learner check`` says of each party and key holder whether it can be reached."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from parley.common.service.tokens import hash_token
from parley.learner.cli.main import learner_app
from tests.support.cluster import LEARNER, USER, Cluster
from tests.support.keyholder_process import start_keyholder
from tests.support.processes import (
    free_port,
    party_processes,
    start_learner,
    start_party,
    stopped_at_exit,
    wait_until_ready,
)
from tests.support.secure_cluster import SecureCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Cluster, dict[str, str]]]:
    made = Cluster(tmp_path, n_parties=2)
    with party_processes(made) as urls:
        yield made, urls


def check(cluster: Cluster, parties: dict[str, str], *args: object) -> Result:
    roster = "".join(
        f'[[parties]]\nname = "{name}"\nurl = "{url}"\ntoken = "{LEARNER}"\n' for name, url in parties.items()
    )
    path = cluster.root / "learner.toml"
    path.write_text(
        f'name = "learner"\nstate = "{cluster.root / "learner"}"\ndeadline_seconds = 1\n'
        f'[[users]]\nname = "alice"\ntoken_hash = "{hash_token(USER)}"\n{roster}'
    )
    return CliRunner().invoke(learner_app, ["check", "--config", str(path), *map(str, args)])


def test_parties_that_answer_are_reached(cluster: tuple[Cluster, dict[str, str]]) -> None:
    done = check(*cluster)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-2:] == ["party-1: reached", "party-2: reached"]


def test_a_learner_that_does_not_run_yet_is_checked_all_the_same(
    cluster: tuple[Cluster, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell that `init` prepared names a token: what the settings say must not depend on who answers."""
    monkeypatch.setenv("PARLEY_TOKEN", USER)
    done = check(*cluster, "--url", f"http://127.0.0.1:{free_port()}")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-2:] == ["party-1: reached", "party-2: reached"]
    assert "whether members have connected is not known: no learner answers" in done.stderr


def test_each_that_does_not_is_named_with_why(cluster: tuple[Cluster, dict[str, str]]) -> None:
    made, urls = cluster
    parties = {"party-1": urls["party-1"], "another": urls["party-2"], "nobody": f"http://127.0.0.1:{free_port()}"}
    done = check(made, parties, "--format", "json")
    assert done.exit_code == 1, done.output
    reached = json.loads(done.stdout)["reached"]
    assert reached["party-1"] == "yes"
    assert reached["another"] == "another refused: a receipt of 'party-2', not of another"
    assert "nobody cannot be reached" in reached["nobody"]
    assert LEARNER not in done.output


def test_of_those_that_connect_themselves_the_learner_is_asked(tmp_path: Path) -> None:
    made, port, token = Cluster(tmp_path, n_parties=2), free_port(), tmp_path / "token"
    token.write_text(USER)
    roster = [{"name": name, "connects_with": hash_token(f"of-{name}"), "token": LEARNER} for name in made.names]
    url = f"http://127.0.0.1:{port}"
    address = {"name": "learner", "url": url, "token": "of-party-1"}
    party = start_party(made.party_settings("party-1", port=free_port(), outbound=[address]))
    with stopped_at_exit(start_learner(made.learner_settings(port=port, parties=roster)), party):
        wait_until_ready(url)
        for _ in range(100):
            done = check(made, {}, "--url", url, "--token-file", token)
            if "party-1: reached" in done.stdout:
                break
        assert done.stdout.splitlines()[-2:] == ["party-1: reached", "party-2: it has not connected"]
        assert done.exit_code == 1
        assert check(made, {}).exit_code == 0, "without a token nobody is asked"


@pytest.mark.slow
def test_key_holders_are_asked_too(tmp_path: Path) -> None:
    made, port = SecureCluster(tmp_path, n_parties=2, n_key_holders=2), free_port()
    keyholder = start_keyholder(made.keyholder_settings("key-holder-1", port=port))
    settings = tmp_path / "learner.toml"
    holders = "".join(
        f'[[key_holders]]\nname = "{pin["name"]}"\nurl = "http://127.0.0.1:{used}"\n'
        f'public_key = "{pin["public_key"]}"\ntoken = "{LEARNER}"\n'
        for pin, used in zip(made.pins(made.key_holders), (port, free_port()), strict=True)
    )
    settings.write_text(
        f'name = "learner"\nstate = "{tmp_path / "learner"}"\n{holders}'
        f'[[users]]\nname = "alice"\ntoken_hash = "{hash_token(USER)}"\n'
    )
    with stopped_at_exit(keyholder):
        wait_until_ready(f"http://127.0.0.1:{port}")
        done = CliRunner().invoke(learner_app, ["check", "--config", str(settings)])
    assert done.exit_code == 1, done.output
    near, far = done.stdout.splitlines()[-2:]
    assert near == "key-holder-1: reached"
    assert far.startswith("key-holder-2: key-holder-2 cannot be reached")
