"""The party's HTTP contract."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families as families_of
from starlette.testclient import TestClient

from parley.common.arrays import IntArray
from parley.common.encoding.npy import NPY, pack_array
from parley.common.privacy.noise import NoNoise, Scale, Shape, SystemNoise
from parley.common.protocol.messages import Query
from parley.common.protocol.receipts import RECEIPT_HEADER as RECEIPT
from parley.common.protocol.receipts import read_receipt
from parley.common.runs.specification import Budget
from parley.common.service.http.bodies import SIGNED_MEDIA_TYPE
from parley.common.service.tokens import hash_token
from parley.party.api.app import create_party_app
from tests.support.cluster import Cluster
from tests.support.noises import OnlyOnce
from tests.support.rounds import ASKING, answer_of, ask, propose, run_spec, weights


def charged(client: httpx.Client) -> float:
    """The epsilon that the party has spent."""
    spent: float = client.get("/v1/budget").json()["units"]["spent"][0] / 1e6
    return spent


def kind(response: httpx.Response) -> str:
    """Return the kind of a problem document."""
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == response.status_code
    assert document["title"]
    assert document["detail"]
    name: str = document["type"].removeprefix("urn:parley:problem:")
    return name


def test_says_of_itself_what_a_learner_may_know(client: httpx.Client, cluster: Cluster) -> None:
    facts = client.get("/v1/party").json()
    assert facts["name"] == "party-1"
    assert set(facts) == {"name", "version", "studies"}
    (of_study,) = facts["studies"]
    assert of_study["n_examples"] == cluster.n_examples
    assert of_study["study_digest"] == cluster.study.digest
    assert of_study["people"] is None
    assert of_study["study"] == cluster.study.name, "which the learner's invitation named"
    assert set(of_study) == {
        "study",
        "study_digest",
        "n_examples",
        "people",
        "adjacency",
        "algorithms",
        "view",
        "minimum_contributors",
        "colluders",
        "require_secure_sum",
        "max_epsilon_per_run",
        "max_delta_per_run",
        "max_rounds",
        "public_rows",
        "round_bytes",
        "body_bytes",
    }


def test_names_its_price_once_and_charges_its_epsilon_at_once_and_its_squares_round_by_round(
    client: httpx.Client, cluster: Cluster
) -> None:
    spec = run_spec(cluster, n_rounds=4)
    first = propose(client, spec)
    assert first.json() == {
        "run": "run",
        "spec_digest": spec.digest,
        "rounds": 4,
        "epsilon": pytest.approx(1.0, abs=1e-5),
        "delta": 1e-5,
        "people": None,
        "adjacency": "replace_one",
        "prepared": True,
    }
    assert charged(client) == 0
    answers = (ask(client, round, weights(cluster, round)) for round in range(1, 5))
    spent = [client.get("/v1/budget").json()["units"]["spent"] for answer in answers if answer.is_success]
    assert [units[0] / 1e6 for units in spent] == [first.json()["epsilon"]] * 4
    squares = [units[2] for units in spent]
    assert squares == pytest.approx([squares[0], 2 * squares[0], 3 * squares[0], 4 * squares[0]], abs=4)
    assert propose(client, spec).content == first.content


@pytest.mark.parametrize("name", ["user", "purpose"])
def test_words_that_could_deceive_an_owner_are_refused(client: httpx.Client, cluster: Cluster, name: str) -> None:
    offer = {"run": "run", "spec": run_spec(cluster).model_dump(mode="json"), name: "research\nallowed"}
    assert kind(client.post("/v1/runs", json=offer)) == "invalid-input"
    assert client.post("/v1/runs", json=offer | {name: "research"}).is_success


def test_a_run_cannot_be_proposed_twice_with_different_terms(client: httpx.Client, cluster: Cluster) -> None:
    propose(client, run_spec(cluster))
    assert kind(propose(client, run_spec(cluster, n_rounds=11))) == "conflict"


def test_the_same_question_gets_the_same_bytes_for_nothing(client: httpx.Client, cluster: Cluster) -> None:
    propose(client, run_spec(cluster))
    first = ask(client, 1, weights(cluster, 1))
    spent = charged(client)
    again = ask(client, 1, weights(cluster, 1))
    assert again.content == first.content
    claims = [replace(read_receipt(each.headers[RECEIPT]), text="", sealed="") for each in (first, again)]
    assert claims[0] == claims[1], "all but the sealed part, which is encrypted each time"
    assert charged(client) == spent


def test_another_question_in_the_same_round_is_refused(client: httpx.Client, cluster: Cluster) -> None:
    propose(client, run_spec(cluster))
    ask(client, 1, weights(cluster, 1))
    spent = charged(client)
    assert kind(ask(client, 1, weights(cluster, 2))) == "conflict"
    assert charged(client) == spent


def test_a_round_skipped_is_paid_and_cannot_be_asked_later(client: httpx.Client, cluster: Cluster) -> None:
    approval = propose(client, run_spec(cluster, n_rounds=4)).json()
    ask(client, 4, weights(cluster, 4)).raise_for_status()
    assert charged(client) == approval["epsilon"]
    assert kind(ask(client, 3, weights(cluster, 3))) == "conflict"


def test_an_exhausted_budget_is_a_refusal_that_says_what_is_left(cluster: Cluster) -> None:
    policy: dict[str, Any] = {
        "composition": "basic",
        "epsilon": 1.5,
        "delta": 0.1,
        "max_epsilon_per_run": 1.1,
        "max_delta_per_run": 0.1,
    }
    with TestClient(create_party_app(cluster.party_settings("party-1", policy=policy)), headers=ASKING) as client:
        propose(client, run_spec(cluster, n_rounds=2), "a").raise_for_status()
        epsilon_left = client.get("/v1/budget").json()["epsilon_left"]
        refused = propose(client, run_spec(cluster, n_rounds=2), "b")  # before a round of the first was answered
        assert kind(refused) == "budget-exhausted"
        assert refused.status_code == 403
        assert refused.json()["epsilon_left"] == epsilon_left
        assert client.get("/v1/budget").json()["epsilon_left"] == epsilon_left
        assert kind(propose(client, run_spec(cluster, n_rounds=2), "c")) == "budget-exhausted"


def test_json_and_binary_are_one_contract(client: httpx.Client, cluster: Cluster) -> None:
    propose(client, run_spec(cluster))
    binary = answer_of(ask(client, 1, weights(cluster, 1)))
    body = {"step": "gradient", "reveal": "sum", "message": weights(cluster, 1).tolist()}
    answer = client.put("/v1/runs/run/rounds/1", json=body, headers={"Accept": "application/json, */*"})
    assert answer.json() == {"answer": binary.tolist()}
    for accept in ("*/*", f"application/json;q=0, {NPY}", f"application/json;q=0.9, {NPY}"):
        again = client.put("/v1/runs/run/rounds/1", json=body, headers={"Accept": accept, "Accept-Encoding": "gzip"})
        assert answer_of(again).tolist() == binary.tolist()
        assert (again.headers["cache-control"], "content-encoding" in again.headers) == ("no-store", False)


@pytest.mark.parametrize(
    ("accept", "query"),
    [
        ("text/html", {"step": "gradient"}),
        ("application/x-parley-signed", {"step": "gradient"}),
        ("*/*", {"step": "gradient", "reval": "each"}),
        ("*/*", {"step": "gradient", "reveal": "all"}),
    ],
)
def test_an_answer_that_cannot_be_given_is_not_charged(
    client: httpx.Client, cluster: Cluster, accept: str, query: dict[str, str]
) -> None:
    propose(client, run_spec(cluster))
    content, headers = pack_array(weights(cluster, 1)), {"Content-Type": NPY, "Accept": accept}
    refused = client.put("/v1/runs/run/rounds/1", params=query, content=content, headers=headers)
    assert refused.status_code == (422 if accept == "*/*" else 406)
    assert charged(client) == 0


def test_the_answer_is_the_algorithms_own(cluster: Cluster) -> None:
    class Quiet(NoNoise):
        def __init__(self, kept: object = None) -> None:
            super().__init__()

    spec = run_spec(cluster)
    with TestClient(create_party_app(cluster.party_settings("party-1"), Quiet), headers=ASKING) as client:
        propose(client, spec)
        answer = answer_of(ask(client, 1, weights(cluster, 1)))
    query = Query(1, "gradient", weights(cluster, 1))
    expected = spec.build().local(query, cluster.shard(0), spec.facts().of(0), NoNoise())
    assert answer.tolist() == expected.tolist()


def test_an_ended_run_answers_nothing_new_and_keeps_its_ledger(client: httpx.Client, cluster: Cluster) -> None:
    propose(client, run_spec(cluster))
    first, spent = ask(client, 1, weights(cluster, 1)), charged(client)
    assert client.delete("/v1/runs/run").status_code == 204
    assert kind(ask(client, 2, weights(cluster, 2))) == "conflict"
    assert ask(client, 1, weights(cluster, 1)).content == first.content
    assert charged(client) == spent
    assert kind(client.delete("/v1/runs/other")) == "not-found"


def test_one_learner_does_not_fill_the_owners_disk_with_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is approved and ended, which frees what it reserves and leaves its specification in the ledger."""
    now = 86_399
    monkeypatch.setattr("parley.party.ledger.ledger._now", lambda: now)
    cluster = Cluster(tmp_path, n_parties=1, policy={"max_runs_per_day": 2})
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        for run in ("first", "second"):
            assert propose(client, run_spec(cluster), run).is_success
            assert client.delete(f"/v1/runs/{run}").is_success
        refused = propose(client, run_spec(cluster), "third")
        assert (refused.status_code, refused.json()["rule"]) == (403, "max_runs_per_day")
        assert "learner has begun 2 runs today" in refused.json()["detail"]
        assert propose(client, run_spec(cluster), "second").is_success, "the same again is no other"
        now += 1
        assert propose(client, run_spec(cluster), "third").is_success


def test_runs_of_different_learners_are_apart(cluster: Cluster) -> None:
    learners = [{"name": name, "token_hash": hash_token(name)} for name in ("ann", "bob")]
    with TestClient(create_party_app(cluster.party_settings("party-1", learners=learners))) as client:
        ann, bob = ({"Authorization": f"Bearer {name}"} for name in ("ann", "bob"))
        client.headers = httpx.Headers(ann)
        propose(client, run_spec(cluster)).raise_for_status()
        ask(client, 1, weights(cluster, 1)).raise_for_status()
        client.headers = httpx.Headers(bob)
        assert kind(ask(client, 1, weights(cluster, 1))) == "not-found"
        assert kind(client.delete("/v1/runs/run")) == "not-found"


def test_a_receipt_of_this_ledger_is_taken_and_what_is_none_is_the_askers_fault(
    client: httpx.Client, cluster: Cluster
) -> None:
    propose(client, run_spec(cluster))
    receipt = ask(client, 1, weights(cluster, 1)).headers[RECEIPT]
    fields = read_receipt(receipt)
    assert (fields.signer, fields.head.count, fields.to) == ("party-1", 2, "learner")
    assert fields.answer is not None
    assert (fields.answer.run, fields.answer.round) == ("run", 1)
    assert propose(client, run_spec(cluster), "next", **{RECEIPT: receipt}).is_success
    claim, _, signature = receipt.partition(".")
    altered = base64.b64decode(claim).replace(b'"count":2', b'"count":1000000000000000000000000000000')
    forged = f"{base64.b64encode(altered).decode()}.{signature}"
    later = base64.b64encode(base64.b64decode(claim).replace(b'"count":2', b'"count":3')).decode()
    for other in (
        forged,
        f"{later}.{signature}",
        "not base64",
        base64.b64encode(b"[1]").decode(),
        base64.b64encode(b'{"count": "x"}').decode(),
    ):
        refused = [
            propose(client, run_spec(cluster), "third", **{RECEIPT: other}),
            client.get("/v1/receipts", headers={RECEIPT: other}),
            client.put("/v1/receipts", json={"receipts": [receipt, other]}),
        ]
        assert [(response.status_code, kind(response)) for response in refused] == [(422, "invalid-receipt")] * 3
    assert propose(client, run_spec(cluster), "third", **{RECEIPT: receipt}).is_success, "the ledger is as it was"


def test_strangers_learn_nothing_but_that_it_lives(cluster: Cluster) -> None:
    with TestClient(create_party_app(cluster.party_settings("party-1"))) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"status": "ready"}
        families = {family.name for family in families_of(client.get("/metrics").text)}
        assert families == {"parley_build_info", "parley_ready"}
        for path in ("/v1/party", "/v1/budget", "/v1/nothing", "/nothing"):
            refused = client.get(path)
            assert kind(refused) == "unauthorized"
            assert refused.headers["www-authenticate"] == "Bearer"


def test_one_time_noise_is_drawn_once_a_run_and_outlives_the_process(cluster: Cluster) -> None:
    """With everything but eta silent, two rounds at the same weights and a restart in between answer the same."""
    spec = run_spec(cluster, algorithm="psgd", parameters={"n_rounds": 4})
    answers = []
    for round in (1, 2, 3):
        with TestClient(create_party_app(cluster.party_settings("party-1"), OnlyOnce), headers=ASKING) as client:
            propose(client, spec).raise_for_status()
            answers.append(answer_of(ask(client, round, weights(cluster, 1))).tolist())
    assert answers[0] == answers[1] == answers[2]
    with TestClient(create_party_app(cluster.party_settings("party-1"), OnlyOnce), headers=ASKING) as client:
        propose(client, spec, "another").raise_for_status()
        assert answer_of(ask(client, 1, weights(cluster, 1), "another")).tolist() != answers[0]


@pytest.mark.parametrize("sign", [1, -1])
def test_noise_past_the_range_is_cut_off_and_charged(cluster: Cluster, sign: int) -> None:
    """A refusal would disclose an answer that depends on the data, for nothing, and as often as it is asked."""

    class Extreme(SystemNoise):
        def discrete_gaussian(self, sigma: Scale, shape: Shape) -> IntArray:
            return np.full(shape, sign * 2**54)

    with TestClient(create_party_app(cluster.party_settings("party-1"), Extreme), headers=ASKING) as client:
        propose(client, run_spec(cluster)).raise_for_status()
        answer = answer_of(ask(client, 1, weights(cluster, 1)).raise_for_status())
        assert set(answer.tolist()) == {sign * (2**53 - 1)}
        assert charged(client) > 0


def test_every_route_and_parameter_is_documented(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("summary"), (method, path)
            assert operation.get("description"), (method, path)
            for parameter in operation.get("parameters", []):
                assert parameter.get("description") or parameter["name"] == "run", (method, path, parameter["name"])
    rounds = document["paths"]["/v1/runs/{run}/rounds/{round}"]["put"]
    assert set(rounds["requestBody"]["content"]) == {"application/x-npy", "application/json", SIGNED_MEDIA_TYPE}
    assert set(rounds["responses"]["200"]["content"]) >= {"application/x-npy", "application/json"}
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert rounds["security"] == [{"bearer": []}]
    assert document["paths"]["/healthz"]["get"]["security"] == []


def test_the_budget_of_another_party_may_differ(client: httpx.Client, cluster: Cluster) -> None:
    spec = run_spec(cluster)
    other = spec.parties[1].model_copy(update={"budget": Budget(epsilon=0.2, delta=1e-6)})
    approval = propose(client, spec.model_copy(update={"parties": (spec.parties[0], other)})).json()
    assert approval["epsilon"] == pytest.approx(1.0, abs=1e-5)
