"""Data that changed under a ledger are noticed at start, and wait for the owner's word; budgets go on."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from parley.common.errors import DataChangedError
from parley.common.service.tokens import hash_token
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import Party, digest_rows, open_store, pin_of
from parley.party.api.app import create_party_app
from parley.party.cli.main import party_app
from parley.party.data.owner_data import load_holding
from parley.party.ledger.audit import export
from tests.support.cluster import LEARNER, Cluster
from tests.support.rounds import ask, propose, run_spec, weights

QUERY = "SELECT * FROM rows"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, n_parties=2)


@pytest.fixture
def config(cluster: Cluster) -> Path:
    path = cluster.root / "party.toml"
    head = f'name = "party-1"\nstate = "{cluster.root}/party-1"\nstudy = "{cluster.study_path}"\n'
    data = f'[data]\nsource = "{QUERY}"\n[data.tables]\nrows = "{cluster.root}/party-1.csv"\n'
    policy = "[policy]\nepsilon = 5.0\ndelta = 0.1\nmax_epsilon_per_run = 5.0\nmax_delta_per_run = 0.1\n"
    learners = f'[[learners]]\nname = "learner"\ntoken_hash = "{hash_token(LEARNER)}"\n'
    path.write_text(head + data + policy + learners, encoding="utf-8")
    return path


def run(config: Path, *arguments: str) -> str:
    result = CliRunner().invoke(party_app, [*arguments, "--config", str(config)])
    assert result.exit_code == 0, result.output
    return result.stdout


def change_a_row(cluster: Cluster) -> None:
    path = cluster.root / "party-1.csv"
    first, second, *others = path.read_text(encoding="utf-8").splitlines()
    cells = second.split(",")
    path.write_text("\n".join([first, ",".join(["0.123", *cells[1:]]), *others]) + "\n", encoding="utf-8")


def half_a_run(cluster: Cluster) -> None:
    """The first of two rounds of a run, which stays open."""
    with TestClient(create_party_app(cluster.party_settings("party-1"))) as client:
        client.headers["Authorization"] = f"Bearer {LEARNER}"
        propose(client, run_spec(cluster, n_rounds=2)).raise_for_status()
        ask(client, 1, weights(cluster, 1)).raise_for_status()


@pytest.mark.parametrize("shuffled", [False, True], ids=["changed", "shuffled"])
def test_changed_rows_wait_for_the_owners_word_and_no_budget_comes_back(cluster: Cluster, *, shuffled: bool) -> None:
    half_a_run(cluster)
    settings = cluster.party_settings("party-1")
    Party(settings).store.close()  # the same data start again
    if shuffled:
        path = cluster.root / "party-1.csv"
        head, *rows = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join([head, *reversed(rows)]) + "\n", encoding="utf-8")
    else:
        change_a_row(cluster)
    with pytest.raises(DataChangedError, match=r"the rows changed.*parley-party accept-data") as refused:
        Party(settings)
    assert "\n" not in refused.value.detail
    with open_store(settings) as store:
        before = store.account()
        assert store.consents.open_runs() == [("learner", "run")]
        assert store.pin(pin_of(settings.held[0], load_holding(settings)), accept=True) == ["the rows"]
        assert store.consents.open_runs() == []
        assert store.account().spent == before.spent
        assert store.books.runs["learner", "run"].ended == "owner"
    with TestClient(create_party_app(settings)) as client:
        client.headers["Authorization"] = f"Bearer {LEARNER}"
        assert ask(client, 1, weights(cluster, 1)).status_code == 200, "what was answered is told again"
        assert ask(client, 2, weights(cluster, 2)).status_code == 409, "the run has ended"


def test_a_service_that_runs_answers_nothing_about_data_that_were_replaced(cluster: Cluster, config: Path) -> None:
    """Its ledger would say that the answers are about the new rows, which it has not loaded."""
    settings = cluster.party_settings("party-1")
    with TestClient(create_party_app(settings)) as client:
        client.headers["Authorization"] = f"Bearer {LEARNER}"
        propose(client, run_spec(cluster, n_rounds=2)).raise_for_status()
        ask(client, 1, weights(cluster, 1)).raise_for_status()
        change_a_row(cluster)
        with open_store(settings) as store:
            store.pin(pin_of(settings.held[0], load_holding(settings)), accept=True)
        refused = propose(client, run_spec(cluster, n_rounds=2), "later")
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:parley:problem:data-changed")
        assert "it loads those of made-up now" in refused.json()["detail"]
        assert ask(client, 1, weights(cluster, 1)).status_code == 200, "what was answered is told again"
        with Party(settings) as other:  # which has loaded the new rows
            other.approve("learner", RunProposal(run="approved", spec=run_spec(cluster, n_rounds=2)))
        ask(client, 1, weights(cluster, 1), "approved").raise_for_status()  # by the new rows, which it loads now
        propose(client, run_spec(cluster, n_rounds=2), "later").raise_for_status()


def test_another_study_or_source_is_a_change_too(cluster: Cluster) -> None:
    settings = cluster.party_settings("party-1")
    Party(settings).store.close()
    copied = cluster.root / "copy.csv"
    copied.write_bytes((cluster.root / "party-1.csv").read_bytes())
    with pytest.raises(DataChangedError, match="where they come from changed"):
        Party(cluster.party_settings("party-1", data={"source": str(copied)}))
    cluster.study_path.write_text(cluster.study.model_copy(update={"name": "other"}).model_dump_json())
    with pytest.raises(DataChangedError, match="the study changed"):
        Party(settings)


def test_the_commands_say_accept_and_show_it(cluster: Cluster, config: Path) -> None:
    state = cluster.root / "party-1"
    for name in ("ledger.db", "ledger.head"):
        (state / name).unlink()
    run(config, "init")
    run(config, "check")
    assert "nothing has changed" in run(config, "accept-data")
    change_a_row(cluster)
    refused = CliRunner().invoke(party_app, ["check", "--config", str(config)])
    assert refused.exit_code == 3
    assert "the rows changed" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "accepted: of made-up, the rows changed" in run(config, "accept-data")
    run(config, "check")
    pins = [json.loads(line) for line in run(config, "log", "--data", "--format", "json").splitlines()]
    assert [pin["source"] for pin in pins] == [QUERY] * 2
    assert pins[0]["tables"] == {"rows": f"{cluster.root}/party-1.csv"}
    assert pins[0]["rows"] != pins[1]["rows"]
    assert QUERY in run(config, "log", "--data")


def test_nothing_that_leaves_confirms_a_guess_of_the_rows(cluster: Cluster, config: Path) -> None:
    settings = cluster.party_settings("party-1")
    with Party(settings) as party, TestClient(create_party_app(settings)) as client:
        digest = digest_rows(party.holdings.holding(cluster.study.name).shard)
        ((number, pinned),) = party.store.books.pins[cluster.study.name]
        salt = party.store.chain.attachment(number, "salt")
        client.headers["Authorization"] = f"Bearer {LEARNER}"
        text = client.get("/v1/party").text
    assert pinned.rows != digest.hex()
    assert pinned.rows not in text
    exported = cluster.root / "audit.jsonl"
    with open_store(settings) as store:
        exported.write_text("\n".join(export(store)), encoding="utf-8")
    content = exported.read_text(encoding="utf-8")
    assert "party-1.csv" in content, "the source is part of the audit"
    for secret in (digest, salt):
        assert secret.hex() not in content
        assert base64.b64encode(secret).decode() not in content
