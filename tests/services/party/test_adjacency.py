"""What an answer hides is part of its price, and of all that reports it; a budget for more is not spent on less."""

from __future__ import annotations

import httpx
import pytest
from starlette.testclient import TestClient

from parley.common.algorithms import build_algorithm
from parley.common.errors import InvalidInputError
from parley.common.privacy.guarantee import Adjacency
from parley.common.protocol.receipts import read_receipt
from parley.common.runs.pricing import price
from parley.common.runs.specification import PublicRows, RunSpec
from parley.party.answers.party import open_store
from parley.party.api.app import create_party_app
from parley.party.settings import PartySettings
from tests.support.cluster import Cluster
from tests.support.rounds import ASKING, ask, propose, run_spec, weights


def settings(cluster: Cluster, adjacency: str) -> PartySettings:
    """The first party's settings, under a budget that hides so much."""
    cluster.algorithms = ("dp_gd", "probe")
    cluster.policy = {"adjacency": adjacency}
    return cluster.party_settings("party-1", policy=cluster.party_settings("party-1").policy.model_dump())


def whole_party_run(cluster: Cluster) -> RunSpec:
    """A run that hides all the data of a party."""
    public = PublicRows.of(cluster.public_rows())
    return run_spec(cluster, algorithm="probe", parameters={}, public=public, adjacency="whole_party")


@pytest.mark.parametrize(
    ("adjacency", "name"), [("replace_one", "dp_gd"), ("whole_party", "probe"), ("replace_one", "probe")]
)
def test_all_that_reports_a_charge_says_what_it_hides(cluster: Cluster, adjacency: Adjacency, name: str) -> None:
    spec = whole_party_run(cluster) if name == "probe" else run_spec(cluster)
    message, step = (cluster.public_rows(), "votes") if name == "probe" else (weights(cluster, 1), "gradient")
    hidden = build_algorithm(name).adjacency
    assert price(spec.build(), spec.facts().of(0)).adjacency == hidden
    chosen = settings(cluster, adjacency)
    with TestClient(create_party_app(chosen), headers=ASKING) as client:
        assert client.get("/v1/party").json()["studies"][0]["adjacency"] == adjacency
        assert propose(client, spec).raise_for_status().json()["adjacency"] == hidden
        answered = ask(client, 1, message, step=step)
        answered.raise_for_status()
        assert client.get("/v1/budget").json()["adjacency"] == adjacency
    with open_store(chosen) as ledger:
        totals = read_receipt(ledger.chain.receipt()).totals
        assert totals["adjacency"] == hidden, "what every charge of the ledger hides at least"
        (answer,) = ledger.answers()
        assert answer.adjacency == hidden
        consent = ledger.consents.find("learner", "run")
        assert consent is not None
        assert consent.price.adjacency == hidden


def test_a_whole_party_policy_refuses_what_hides_a_record(cluster: Cluster) -> None:
    with TestClient(create_party_app(settings(cluster, "whole_party")), headers=ASKING) as client:
        refused = propose(client, run_spec(cluster))
        assert (refused.status_code, refused.json()["rule"]) == (403, "adjacency")
        assert refused.json()["detail"] == "the owner protects all its data at once, and dp_gd protects one record"
        assert propose(client, whole_party_run(cluster)).is_success


def test_a_run_cannot_promise_more_than_its_algorithm(client: httpx.Client, cluster: Cluster) -> None:
    refused = propose(client, run_spec(cluster, adjacency="whole_party"))
    assert refused.status_code == 422
    assert "the run must hide whole parties, and dp_gd hides one record each" in refused.json()["detail"]


def test_a_ledger_of_per_record_charges_cannot_become_a_whole_partys(cluster: Cluster) -> None:
    with TestClient(create_party_app(settings(cluster, "replace_one")), headers=ASKING) as client:
        propose(client, run_spec(cluster)).raise_for_status()
        for round in (1, 2):
            ask(client, round, weights(cluster, round)).raise_for_status()
    with pytest.raises(InvalidInputError, match="2 answers in the ledger protect one record each"):
        create_party_app(settings(cluster, "whole_party"))
    with open_store(settings(cluster, "replace_one")) as ledger:
        assert len(ledger.answers()) == 2, "refused without a trace"


def test_a_ledger_of_whole_party_charges_may_serve_either(cluster: Cluster) -> None:
    for adjacency, run in (("whole_party", "first"), ("replace_one", "second"), ("whole_party", "third")):
        with TestClient(create_party_app(settings(cluster, adjacency)), headers=ASKING) as client:
            propose(client, whole_party_run(cluster), run).raise_for_status()
            ask(client, 1, cluster.public_rows(), run, "votes").raise_for_status()
