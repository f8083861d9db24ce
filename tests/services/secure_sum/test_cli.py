"""The commands ``parley-learner`` of secure sums, against services that run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from parley.common.protocol.receipts import verify_receipt
from parley.common.secure_sum.envelope import public_hex
from parley.learner.cli.main import learner_app
from tests.support.cluster import USER
from tests.support.keyholder_process import start_keyholder
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready
from tests.support.secure_cluster import SecureCluster, signing_key


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A learner with two parties and a key holder."""
    cluster = SecureCluster(tmp_path_factory.mktemp("cluster"), n_parties=2)
    learner, holder = (httpx.URL(f"http://127.0.0.1:{free_port()}") for _ in range(2))
    keyholder = start_keyholder(cluster.keyholder_settings("key-holder-1", port=holder.port))
    with stopped_at_exit(keyholder), party_processes(cluster) as urls:
        settings = cluster.learner_settings(urls | {"key-holder-1": str(holder)}, port=learner.port)
        with stopped_at_exit(start_learner(settings)):
            wait_until_ready(str(learner))
            yield str(learner)


def run(url: str, *arguments: str) -> str:
    """Run a command; return what it prints."""
    env = {"PARLEY_URL": url, "PARLEY_TOKEN": USER, "COLUMNS": "200"}
    result = CliRunner().invoke(learner_app, list(arguments), env=env)
    assert result.exit_code == 0, result.output
    return result.stdout


TERMS = ("--epsilon", "1", "--delta", "1e-5", "-p", "n_rounds=2", "--secure-sum", "paillier")


def test_a_secure_sum_from_submission_to_receipts(url: str) -> None:
    submitted = run(url, "submit", "made-up", *TERMS).strip()
    watched = run(url, "watch", submitted)
    assert "secure sum: the learner sees nothing but sums, which key-holder-1 must open" in watched
    assert "key-holder-1" in run(url, "list")

    opened = json.loads(run(url, "opened", submitted, "--format", "json"))
    assert [(opening["round"], opening["contributors"]) for opening in opened] == [
        (r, ["party-1", "party-2"]) for r in (1, 2)
    ]
    openings = run(url, "opened", submitted)
    for opening in opened:
        assert opening["receipts"][0]["signature"][:16] in openings


@pytest.mark.parametrize("name", ["party-1", "key-holder-1"])
def test_the_newest_receipt_is_printed_for_an_owner_who_lost_a_ledger(url: str, name: str) -> None:
    key = public_hex(signing_key(name))
    run(url, "watch", run(url, "submit", "made-up", *TERMS).strip())
    assert verify_receipt(run(url, "receipts", name).strip(), name, key).head.count > 1
    assert json.loads(run(url, "receipts", name, "--format", "json"))["signer"] == name


def test_of_others_there_is_no_receipt(url: str) -> None:
    env = {"PARLEY_URL": url, "PARLEY_TOKEN": USER}
    result = CliRunner().invoke(learner_app, ["receipts", "nobody"], env=env)
    assert (result.exit_code, "there is no receipt of 'nobody'" in result.output) == (3, True)


def test_identity_prints_the_key_that_others_pin(tmp_path: Path) -> None:
    config = tmp_path / "learner.toml"
    config.write_text(
        f'name = "learner"\nstate = "{tmp_path}"\n'
        '[[parties]]\nname = "a"\nurl = "http://a"\nplain_http = true\ntoken = "t"\n'
        f'[[users]]\nname = "alice"\ntoken_hash = "sha256:{"0" * 64}"\n'
    )
    first = run("", "identity", "--config", str(config)).strip()
    assert len(bytes.fromhex(first)) == 32
    assert run("", "identity", "--config", str(config)).strip() == first
    assert (tmp_path / "identity.key").stat().st_mode & 0o777 == 0o600
