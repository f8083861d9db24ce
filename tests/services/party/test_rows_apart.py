"""Training and evaluations of a study that holds rows out are charged to their own rows, in data that stay the same."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from parley.common.errors import LedgerError
from parley.common.runs.specification import RunSpec
from parley.party.answers.party import open_store, pin_of
from parley.party.api.app import create_party_app
from parley.party.data.owner_data import load_holding
from parley.party.ledger import audit
from parley.party.ledger.records import Approved
from tests.support.cluster import Cluster
from tests.support.rounds import ASKING, ask, completed, propose, run_spec, weights


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Parties whose budget of epsilon 1 suffices for one run about each of its rows."""
    algorithms, policy = ("dp_gd", "evaluate", "ensemble_vote"), {"delta": 1e-5}
    return Cluster(tmp_path, n_parties=2, epsilon=1.0, algorithms=algorithms, hold_out=0.25, policy=policy)


def training(cluster: Cluster) -> RunSpec:
    return run_spec(cluster, n_rounds=3, epsilon=0.9, delta=9e-6)


def evaluation(cluster: Cluster) -> RunSpec:
    spec = run_spec(cluster, epsilon=0.9, delta=9e-6)
    return completed(spec.model_copy(update={"algorithm": "evaluate", "parameters": {}}))


def left(client: httpx.Client, cluster: Cluster, rows: str = "") -> float:
    """The epsilon that the party says a learner has left for a run about these rows."""
    about = {"study": cluster.study.digest} | ({"rows": rows} if rows else {})
    return float(client.get("/v1/budget", params=about).raise_for_status().json()["epsilon_left"])


def refusal(client: httpx.Client, spec: RunSpec) -> str:
    """Why the party refuses a run."""
    answer = propose(client, spec, "refused")
    assert answer.status_code == 403
    return str(answer.json()["type"]).rsplit(":", 1)[-1]


def test_an_evaluation_fits_beside_training_and_neither_fits_twice(cluster: Cluster) -> None:
    settings = cluster.party_settings("party-1")
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        propose(client, training(cluster), "first").raise_for_status()
        for round in (1, 2, 3):
            ask(client, round, weights(cluster, round), "first").raise_for_status()
        assert left(client, cluster) == left(client, cluster, "training") < 0.5 < left(client, cluster, "held_out")
        spec = evaluation(cluster)
        propose(client, spec, "second").raise_for_status()
        question = spec.questions()[0]
        ask(client, 1, np.zeros(question.message), "second", question.step, question.reveal).raise_for_status()
    with TestClient(create_party_app(settings), headers=ASKING) as client:  # as it reads the ledger again
        for spec in (training(cluster), evaluation(cluster)):
            assert refusal(client, spec) == "budget-exhausted"
        assert left(client, cluster, "held_out") < 0.5


def test_a_run_about_all_that_is_held_fits_beside_neither(cluster: Cluster) -> None:
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        propose(client, evaluation(cluster), "first").raise_for_status()
        votes = completed(run_spec(cluster, epsilon=0.9, delta=9e-6, algorithm="ensemble_vote", parameters={}))
        assert votes.charged_rows is None
        assert refusal(client, votes) == "budget-exhausted"


def test_an_approved_run_is_answered_though_the_worst_of_each_unit_is_too_much(cluster: Cluster) -> None:
    """A vote of all rows is approved, then a pure evaluation and a Gaussian run that fit beside it, by their rows."""

    def pure(epsilon: float, algorithm: str) -> RunSpec:
        spec = run_spec(cluster, epsilon=epsilon, delta=1e-6)
        of_no_delta = tuple(
            one.model_copy(update={"budget": one.budget.model_copy(update={"delta": 0.0})}) for one in spec.parties
        )
        terms = {"algorithm": algorithm, "parameters": {}, "parties": of_no_delta}
        return completed(spec.model_copy(update=terms))

    def play(client: httpx.Client, spec: RunSpec, run: str) -> None:
        question = spec.questions()[0]
        ask(client, 1, np.zeros(question.message), run, question.step, question.reveal).raise_for_status()

    settings = cluster.party_settings("party-1")
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        vote, later = pure(0.05, "ensemble_vote"), pure(0.9, "evaluate")
        propose(client, vote, "vote").raise_for_status()
        propose(client, later, "evaluation").raise_for_status()
        play(client, later, "evaluation")
        propose(client, run_spec(cluster, n_rounds=3, epsilon=0.5, delta=1e-6), "training").raise_for_status()
        ask(client, 1, weights(cluster, 1), "training").raise_for_status()
        play(client, vote, "vote")
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        assert client.get("/readyz").status_code == 200


def test_rows_that_the_owner_accepts_later_are_divided_for_themselves(cluster: Cluster) -> None:
    """Otherwise a record could move from those held out to those for training, and lose both."""
    settings = cluster.party_settings("party-1")
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        propose(client, training(cluster), "first").raise_for_status()
        ask(client, 1, weights(cluster, 1), "first").raise_for_status()
        client.delete("/v1/runs/first").raise_for_status()
    table = cluster.root / "party-1.csv"
    header, first, *others = table.read_text().splitlines()
    table.write_text("\n".join([header, *others, first]) + "\n")
    accept(cluster)
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        assert left(client, cluster, "held_out") == left(client, cluster) == left(client, cluster, "training") < 0.9
        assert refusal(client, evaluation(cluster)) == "budget-exhausted"


def accept(cluster: Cluster) -> None:
    """Accept the data of the party's study as they are now."""
    settings = cluster.party_settings("party-1")
    with open_store(settings) as store:
        store.pin(pin_of(settings.held[0], load_holding(settings)), accept=True)


def test_an_auditor_refuses_a_charge_to_other_rows(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = cluster.party_settings("party-1")
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        propose(client, training(cluster), "first").raise_for_status()
        with open_store(settings) as store:
            entries, _ = audit.verify(audit.export(store), settings.identity.key)
        assert [entry.record.rows for entry in entries if isinstance(entry.record, Approved)] == ["training"]
        monkeypatch.setattr(RunSpec, "charged_rows", "held_out")
        propose(client, training(cluster), "second").raise_for_status()
    monkeypatch.undo()
    with (
        open_store(settings) as store,
        pytest.raises(LedgerError, match="is charged to other rows than its run is about"),
    ):
        audit.verify(audit.export(store), settings.identity.key)
