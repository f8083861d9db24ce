"""New rows get a budget of their own, after earlier ones that stay where they are and keep what they have lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from parley.common.data.study import is_held_out
from parley.common.errors import DataChangedError, InvalidInputError
from parley.common.runs.specification import Member, RunSpec
from parley.common.service.tokens import hash_token
from parley.common.wire.party_api import Approval
from parley.party.answers.party import check_pin, open_store, pin_of
from parley.party.api.app import create_party_app
from parley.party.cli.main import party_app
from parley.party.data.owner_data import load_apart, load_here, load_holding
from parley.party.ledger import audit
from parley.party.settings import PartySettings
from tests.support.cluster import LEARNER, Cluster
from tests.support.rounds import ASKING, ask, propose, run_spec, weights

N_EARLIER, N_NEW = 40, 30


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A party whose budget suffices for one run about each record."""
    policy = {"delta": 1e-5}
    return Cluster(tmp_path, n_parties=1, n_examples=N_EARLIER, epsilon=1.0, policy=policy)


def settings_of(cluster: Cluster, earlier_rows: int = 0) -> PartySettings:
    settings = cluster.party_settings("party-1")
    assert settings.data is not None
    return settings.model_copy(update={"data": settings.data.model_copy(update={"earlier_rows": earlier_rows})})


def append(cluster: Cluster, n_rows: int = N_NEW) -> None:
    """Append rows to the party's table."""
    table = cluster.root / "party-1.csv"
    rows = np.random.default_rng(5).uniform(-1, 1, (n_rows, cluster.n_features)).round(3).tolist()
    table.write_text(table.read_text() + "".join(",".join([*map(str, row), "yes"]) + "\n" for row in rows))


def accept(settings: PartySettings) -> list[str]:
    with open_store(settings) as store:
        return store.pin(pin_of(settings.held[0], load_holding(settings)), accept=True)


@contextmanager
def serving(settings: PartySettings) -> Iterator[httpx.Client]:
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        yield client


def run_of(cluster: Cluster, n_examples: int) -> RunSpec:
    spec = run_spec(cluster, n_rounds=3, epsilon=0.9, delta=9e-6)
    return spec.model_copy(update={"parties": (Member(**{**dict(spec.parties[0]), "n_examples": n_examples}),)})


def trained(client: httpx.Client, cluster: Cluster, run: str, n_examples: int) -> Approval:
    """A run that costs nearly all of a budget."""
    approval = propose(client, run_of(cluster, n_examples), run).raise_for_status()
    for round in (1, 2, 3):
        ask(client, round, weights(cluster, round), run).raise_for_status()
    return Approval.model_validate_json(approval.content)


def test_new_rows_have_a_budget_of_their_own_and_earlier_ones_keep_what_they_lost(cluster: Cluster) -> None:
    with serving(settings_of(cluster)) as client:
        assert trained(client, cluster, "first", N_EARLIER).earlier_rows == 0
        assert propose(client, run_of(cluster, N_EARLIER), "too-much").status_code == 403
    append(cluster)
    renewed = settings_of(cluster, N_EARLIER)
    with (
        open_store(renewed) as store,
        pytest.raises(DataChangedError, match="the rows that belong to an earlier period"),
    ):
        check_pin(store, pin_of(renewed.held[0], load_holding(renewed)))
    assert accept(renewed) == ["the rows", "the rows that belong to an earlier period"]
    with serving(renewed) as client:
        assert client.get("/v1/budget").json()["epsilon_left"] == 1.0
        assert trained(client, cluster, "second", N_NEW).earlier_rows == N_EARLIER
        assert propose(client, run_of(cluster, N_NEW), "too-much").status_code == 403
    with open_store(renewed) as store:
        (statement,) = store.statements()
        assert [usage.rows for usage in statement.rows] == ["rows from 1 to 40", "rows from 41 on"]
        assert statement.rows[0].spent == statement.rows[1].spent == statement.account.parts["spent"] > 0.5
        entries, _ = audit.verify(audit.export(store), renewed.identity.key)
        assert len(entries) == store.chain.head.count
        any_rows = store.accounts.use("learner", cluster.study.name)
        assert store.accounts.epsilon_left(any_rows) == statement.account.epsilon_left < 0.5
    append(cluster, 1)
    everything = settings_of(cluster)
    accept(everything)
    with serving(everything) as client:  # it is about rows of both periods, and has to fit beside what either has lost
        assert propose(client, run_of(cluster, N_EARLIER + N_NEW + 1), "third").status_code == 403


def test_rows_that_move_to_the_front_have_no_second_budget(cluster: Cluster) -> None:
    """As they do where an owner deletes those of an earlier period, and takes the setting away."""
    with serving(settings_of(cluster)) as client:
        trained(client, cluster, "first", N_EARLIER)
    append(cluster)
    renewed = settings_of(cluster, N_EARLIER)
    accept(renewed)
    with serving(renewed) as client:
        trained(client, cluster, "second", N_NEW)
    table = cluster.root / "party-1.csv"
    head, *lines = table.read_text().splitlines()
    table.write_text("\n".join([head, *lines[N_EARLIER:]]) + "\n")
    shortened = settings_of(cluster)
    accept(shortened)
    with serving(shortened) as client:
        assert client.get("/v1/budget").json()["epsilon_left"] < 0.5
        assert propose(client, run_of(cluster, N_NEW), "third").status_code == 403


def test_the_commands_say_what_each_period_has_lost(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    with serving(settings_of(cluster)) as client:
        trained(client, cluster, "first", N_EARLIER)
    append(cluster)
    config = tmp_path / "party.toml"
    config.write_text(
        f"""
name = "party-1"
state = "{cluster.root / "party-1"}"
study = "{cluster.study_path}"
data = {{source = "{cluster.root / "party-1.csv"}", earlier_rows = {N_EARLIER}}}
policy = {{epsilon = 1, delta = 1e-5, max_epsilon_per_run = 0.5, max_delta_per_run = 1e-6}}
learners = [{{name = "learner", token_hash = "{hash_token(LEARNER)}"}}]
"""
    )

    def run(*words: str) -> str:
        return CliRunner().invoke(party_app, [*words, "--config", str(config)], catch_exceptions=False).stdout

    assert "its rows from 41 on have a budget of their own" in run("accept-data")
    with serving(settings_of(cluster, N_EARLIER)) as client:
        propose(client, run_of(cluster, N_NEW), "second").raise_for_status()
    text = run("budget")
    lines = [line.split() for line in text.splitlines() if line.startswith(cluster.study.name)]
    assert [line[1:-3] for line in lines] == [["rows", "from", "1", "to", "40"], ["rows", "from", "41", "on"]]
    assert lines[0][-3] == lines[1][-2] != lines[1][-3] == lines[0][-2] == "0.00%"
    assert "so they lose in parallel" in text
    assert "To runs about any other rows: that leaves one Gaussian run of (0.3" in text
    assert [line.split()[-2] for line in run("log", "--data").splitlines()[1:]] == ["1-40", "41-70"]


def move_a_row(lines: list[str]) -> list[str]:
    return [lines[0], *lines[2:], lines[1]]


def change_a_value(lines: list[str]) -> list[str]:
    return [lines[0], lines[1].replace("0.", "0.1", 1), *lines[2:]]


@pytest.mark.parametrize("edit", [move_a_row, change_a_value])
def test_no_period_begins_after_rows_that_have_moved(cluster: Cluster, edit: Any) -> None:  # noqa: ANN401 -- of lines
    with serving(settings_of(cluster)) as client:
        trained(client, cluster, "first", N_EARLIER)
    append(cluster)
    table = cluster.root / "party-1.csv"
    table.write_text("\n".join(edit(table.read_text().splitlines())) + "\n")
    with pytest.raises(InvalidInputError, match="rows 1 to 40 are not what they were"):
        accept(settings_of(cluster, N_EARLIER))
    accept(settings_of(cluster))


def test_no_period_begins_within_rows_that_were_asked_about(cluster: Cluster) -> None:
    with serving(settings_of(cluster)) as client:
        trained(client, cluster, "first", N_EARLIER)
    append(cluster)
    with pytest.raises(InvalidInputError, match="so earlier_rows must be at least 40"):
        accept(settings_of(cluster, N_EARLIER - 1))


def test_rows_are_held_out_as_if_there_were_no_earlier_ones(cluster: Cluster) -> None:
    append(cluster)
    data, study = settings_of(cluster, N_EARLIER).held[0].data, cluster.study.model_copy(update={"hold_out": 0.25})
    whole = load_here(settings_of(cluster).held[0].data, cluster.study).shard
    is_held = is_held_out(N_NEW, 0.25)
    expected = np.concatenate([whole.X[N_EARLIER:][~is_held], whole.X[N_EARLIER:][is_held]])
    for loaded in (load_here(data, study), load_apart(data, study)):
        assert loaded.shard.X.tolist() == expected.tolist()
