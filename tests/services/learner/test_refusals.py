"""What cannot be right is refused with a clear problem, before any party is asked for anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from parley.common.encoding.npy import pack_array
from parley.common.wire.party_api import PartyFacts, StudyFacts
from tests.support.alone import learner_alone
from tests.support.cluster import DEADLINE, Cluster, refused, submit, watch
from tests.support.intercepted import Intercept, Intercepted, always, learner_of, unreachable

Parties = dict[str, Intercepted]
GOOD: dict[str, Any] = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5}
NPY = {"content-type": "application/x-npy"}
ABOUT = StudyFacts(
    study_digest="0" * 64,
    n_examples=41,
    people=None,
    algorithms=("dp_gd",),
    view="transcript",
    adjacency="replace_one",
    minimum_contributors=1,
    colluders=0,
    require_secure_sum=False,
    max_epsilon_per_run=1.0,
    max_delta_per_run=0.1,
    max_rounds=100,
    public_rows=None,
    round_bytes=2**28,
    body_bytes=2**24,
)
FACTS = PartyFacts(name="party-2", version="0", studies=(ABOUT,))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with learner_alone(Cluster(tmp_path_factory.mktemp("alone"), n_parties=3)) as client:
        yield client


def problem(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == response.status_code
    return document


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"study": "unknown"}, "unknown study 'unknown'; there are made-up"),
        ({"algorithm": "sgd"}, "unknown algorithm 'sgd'"),
        ({"parameters": {"n_steps": 3}}, "n_steps"),
        ({"parameters": {"n_rounds": 0}}, "n_rounds"),
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": -1}, "epsilon must be positive"),
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"parties": ["party-1", "party-9"]}, "unknown parties: party-9"),
        ({"parties": ["party-1", "party-1"]}, "none twice"),
        ({"parties": []}, "at least one party"),
        ({"budgets": {"party-9": {"epsilon": 1, "delta": 1e-5}}}, "unknown parties: party-9"),
        ({"parties": ["party-1"], "budgets": {"party-2": {"epsilon": 1, "delta": 1e-5}}}, "unknown parties: party-2"),
        ({"minimum_contributors": 4}, "minimum_contributors"),
        ({"colluders": 3}, "colluders"),
        ({"algorithm": "gop"}, "trusted curator"),
    ],
)
def test_refuses_a_run_that_cannot_be(alone: TestClient, changes: dict[str, Any], word: str) -> None:
    response = alone.post("/v1/runs", json=GOOD | changes)
    assert response.status_code == 422
    assert word in problem(response)["detail"]
    assert alone.get("/v1/runs").json()["runs"] == []


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"epsilon": None}, ["body", "epsilon"]),
        ({"epsilon": "much"}, ["body", "epsilon"]),
        ({"colluders": -1}, ["body", "colluders"]),
        ({"minimum_contributors": 0}, ["body", "minimum_contributors"]),
        ({"budgets": {"party-1": {"epsilon": 0, "delta": 1e-5}}}, ["body", "budgets", "party-1"]),
        ({"surprise": 1}, ["body", "surprise"]),
        ({"purpose": "research\nallowed by the owner"}, ["body", "purpose"]),
        ({"purpose": "\x1b[2Jresearch"}, ["body", "purpose"]),
        ({"epsilon": "1"}, ["body", "epsilon"]),
        ({"epsilon": True}, ["body", "epsilon"]),
        ({"delta": "1e-5"}, ["body", "delta"]),
        ({"minimum_contributors": 3.0}, ["body", "minimum_contributors"]),
        ({"minimum_contributors": "3"}, ["body", "minimum_contributors"]),
        ({"colluders": False}, ["body", "colluders"]),
        ({"answer_every": "1"}, ["body", "answer_every"]),
        ({"budgets": {"party-1": {"epsilon": "1", "delta": 1e-5}}}, ["body", "budgets", "party-1", "epsilon"]),
    ],
)
def test_says_where_a_request_is_not_of_the_documented_form(
    alone: TestClient, changes: dict[str, Any], place: list[str]
) -> None:
    response = alone.post("/v1/runs", json=GOOD | changes)
    assert response.status_code == 422
    assert [fault["loc"] for fault in problem(response)["errors"]] == [place]
    assert "much" not in response.text


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"n_rounds": "3"}, "n_rounds: Input should be a valid integer"),
        ({"n_rounds": 3.0}, "n_rounds: Input should be a valid integer"),
        ({"n_rounds": True}, "n_rounds: Input should be a valid integer"),
        ({"step": "0.5"}, "step: Input should be a valid number"),
    ],
)
def test_takes_no_text_for_a_parameter_that_is_a_number(alone: TestClient, changes: dict[str, Any], word: str) -> None:
    response = alone.post("/v1/runs", json=GOOD | {"parameters": changes})
    assert response.status_code == 422
    assert word in problem(response)["detail"]


async def test_takes_an_integer_for_a_real_number(client: httpx.AsyncClient) -> None:
    integer, real = [
        (await client.post("/v1/runs", json=GOOD | {"epsilon": epsilon, "parameters": {"step": 1}})).json()
        for epsilon in (1, 1.0)
    ]
    assert integer["spec_digest"] == real["spec_digest"]


@pytest.mark.parametrize("record", [{"x0": True, "x1": 0, "x2": 0}, {"x0": ["a"], "x1": 0, "x2": 0}])
def test_takes_only_numbers_and_text_in_records(alone: TestClient, record: dict[str, Any]) -> None:
    response = alone.post("/v1/runs/any/predictions", json={"records": [record]})
    assert response.status_code == 422
    assert {tuple(fault["loc"][:2]) for fault in problem(response)["errors"]} == {("body", "records")}


@pytest.mark.parametrize(
    "body",
    [
        '{"epsilon": NaN}',
        '{"epsilon": 1e999}',
        '{"epsilon": 1, "epsilon": 2}',
        '{"study": "made-up", "epsilon": 1, "delta": 1e-5, "parties": ["party-1\\ud800"]}',
        "{",
        "[" * 1000,
        "",
    ],
)
def test_refuses_what_is_not_strict_json(alone: TestClient, body: str) -> None:
    response = alone.post("/v1/runs", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    problem(response)


@pytest.mark.parametrize("said", ["application/x-www-form-urlencoded", "text/plain", None])  # the first is curl's
def test_says_that_a_body_must_be_json(alone: TestClient, said: str | None) -> None:
    headers = {"Content-Type": said} if said else {}
    response = alone.post("/v1/runs", content=json.dumps(GOOD), headers=headers)
    assert (response.status_code, problem(response)["detail"]) == (415, "the body must be application/json")


@pytest.mark.parametrize("after", ["-1", "x", str(2**63)])
async def test_refuses_an_event_that_no_stream_has(client: httpx.AsyncClient, after: str) -> None:
    run = (await client.post("/v1/runs", json=GOOD)).json()["id"]
    response = await client.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": after})
    assert response.status_code == 422
    assert [fault["loc"] for fault in problem(response)["errors"]] == [["header", "last-event-id"]]


async def test_refuses_large_and_compressed_bodies(cluster: Cluster, parties: Parties) -> None:
    async with learner_of(cluster, parties, limits={"body_bytes": 2000}) as client:
        large = await client.post("/v1/runs", content=b" " * 3000, headers={"Content-Type": "application/json"})
        assert (large.status_code, problem(large)["type"]) == (413, "urn:parley:problem:too-large")
        squeezed = await client.post("/v1/runs", content=b"x", headers={"Content-Encoding": "gzip"})
        assert (squeezed.status_code, problem(squeezed)["type"]) == (415, "urn:parley:problem:unsupported-media-type")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("GET", "/events", None),
        ("GET", "/model", None),
        ("POST", "/cancel", None),
        ("POST", "/predictions", {"records": [{"x0": 1.0}]}),
    ],
)
def test_does_not_know_an_unknown_run(alone: TestClient, method: str, path: str, body: dict[str, Any] | None) -> None:
    response = alone.request(method, f"/v1/runs/nobody{path}", json=body)
    assert response.status_code == 404
    assert "'nobody'" in problem(response)["detail"]


async def test_asks_everybody_for_a_token(cluster: Cluster, parties: dict[str, Intercepted]) -> None:
    tokens = None, "", "Bearer wrong", "Basic YWxpY2U6", "Bearer the-learners-token"
    async with learner_of(cluster, parties, shares={"failed_sign_ins": 1000}) as client:
        document = (await client.get("/openapi.json")).json()
        client.headers.pop("authorization")
        for token, (path, operations) in product(tokens, document["paths"].items()):
            headers = {} if token is None else {"Authorization": token}
            for method in operations:
                response = await client.request(method, path.replace("{run}", "nobody"), headers=headers)
                if path in ("/healthz", "/readyz", "/metrics"):
                    assert response.status_code == 200
                else:
                    assert response.status_code == 401
                    assert problem(response)["type"] == "urn:parley:problem:unauthorized"
                    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("intercept", "kind", "word"),
    [
        (unreachable(), "unavailable", "party-2 cannot be reached"),
        (
            always(503, b'{"detail": "the ledger is locked"}'),
            "unavailable",
            "party-2 cannot answer: the ledger is locked",
        ),
        (always(302, location="http://127.0.0.1:1/"), "party-refused", "redirects are not followed"),
        (
            always(401, b'{"detail": "unknown token", "type": "urn:parley:problem:unauthorized"}'),
            "unavailable",
            "unknown token",
        ),
        (
            always(503, b'{"detail": "it was set back", "type": "urn:parley:problem:ledger-refused"}', "/rounds/"),
            "party-refused",
            "party-2 refused: it was set back",
        ),
        (always(404, b"<html>"), "party-refused", "HTTP status 404"),
        (always(403, b"[" * 60_000), "party-refused", "party-2 refused: HTTP status 403"),
        (always(503, b'{"detail":' * 6_000), "unavailable", "party-2 cannot answer: HTTP status 503"),
        (
            always(403, b'{"detail": "half \\ud800, \\u001b[31mred\\u202e", "reason": "\\udfff", "type": {"a": 1}}'),
            "party-refused",
            "party-2 refused: half ?, ?[31mred?",
        ),
        (
            always(200, b'{"name": "party-2"}', "/v1/party"),
            "party-refused",
            "party-2 refused: its answer is not PartyFacts",
        ),
        (
            always(200, FACTS.model_copy(update={"name": "party-1"}).model_dump_json().encode(), "/v1/party"),
            "party-refused",
            "party-2 cannot take part: it calls itself party-1",
        ),
        (
            always(200, FACTS.model_dump_json().replace("41", str(2**31)).encode(), "/v1/party"),
            "party-refused",
            "party-2 refused: its answer is not PartyFacts",
        ),
        (always(200, b"{}", "/v1/runs"), "party-refused", "its answer is not Approval"),
        *(
            (
                always(
                    200,
                    b'{"run": "r", "spec_digest": "d", "rounds": %b, "epsilon": %b, "delta": %b, "prepared": true, '
                    b'"adjacency": "replace_one"}' % values,
                    "/v1/runs",
                ),
                "party-refused",
                "its answer is not Approval",
            )
            for values in ((b"-1", b"1", b"0"), (b"1", b"NaN", b"0"), (b"1", b"-1", b"0"), (b"1", b"1", b"Infinity"))
        ),
        (
            always(
                200,
                b'{"run": "r", "spec_digest": "d", "rounds": 1, "epsilon": 1, "delta": 0, "adjacency": "replace_one",'
                b' "prepared": true}',
                "/v1/runs",
            ),
            "party-refused",
            "party-2 cannot take part: it approved another run",
        ),
        (always(200, b"noise", "/rounds/", **NPY), "party-refused", "party-2 refused: its answer cannot be used"),
        (always(200, pack_array(np.zeros(4)), "/rounds/", **NPY), "party-refused", "its answer cannot be used"),
        (
            always(200, pack_array(np.zeros((1, 4), np.int64)), "/rounds/", **NPY),
            "party-refused",
            "its answer is not a vector",
        ),
        (
            always(200, pack_array(np.zeros(3, np.int64)), "/rounds/", **NPY),
            "party-refused",
            "party-2 refused: it answered 3 values where 4 were asked",
        ),
        (
            always(200, pack_array(np.full(4, 2**53)), "/rounds/", **NPY),
            "party-refused",
            "party-2 refused: its answer cannot be used",
        ),
        (always(200, b" " * (2**26 + 1), "/rounds/", **NPY), "party-refused", "its response has more than"),
        (
            always(403, b'{"detail": "0.1 is left", "type": "urn:parley:problem:budget-exhausted"}', "/rounds/"),
            "party-refused",
            "party-2 refused: 0.1 is left",
        ),
        (always(500, b"", "/rounds/"), "quorum-lost", "party-2 cannot answer: HTTP status 500"),
        (
            always(400, b"Invalid HTTP request received.", "/rounds/"),
            "quorum-lost",
            "party-2 cannot answer: HTTP status 400",
        ),
    ],
)
async def test_a_run_fails_naming_the_party_and_why(
    cluster: Cluster, parties: Parties, intercept: Intercept, kind: str, word: str
) -> None:
    parties["party-2"].intercept = intercept
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE, patience_seconds=0) as client:
        run = await submit(client)
        events = await watch(client, run)
        assert events[-1][1]["state"] == "failed"
        problem = events[-1][1]["problem"]
        assert problem["type"] == f"urn:parley:problem:{kind}"
        assert "party-2" in problem["detail"]
        assert word in problem["detail"]
        assert (await client.get(f"/v1/runs/{run}")).json()["problem"] == problem


async def test_what_owners_refuse_is_refused_at_once_with_their_own_reason(cluster: Cluster, parties: Parties) -> None:
    async with learner_of(cluster, parties) as client:
        everybody = {name: ["the owner does not allow wu_subgradient"] for name in cluster.names}
        assert await refused(client, algorithm="wu_subgradient") == everybody
        dear = {"party-2": {"epsilon": 1000.0, "delta": 1e-5}}
        assert await refused(client, budgets=dear) == {"party-2": ["one run may cost at most epsilon 100"]}
        assert (await client.get("/v1/runs")).json()["runs"] == []
    assert not any("/v1/runs" in seen for party in parties.values() for seen in party.seen)


async def test_a_run_fails_with_the_reason_of_an_owner_that_was_away_when_it_was_asked_for(
    cluster: Cluster, parties: Parties
) -> None:
    parties["party-1"].intercept = unreachable("/v1/party", times=1)
    async with learner_of(cluster, parties) as client:
        run = await submit(client, budgets={"party-1": {"epsilon": 1000.0, "delta": 1e-5}})
        problem = (await watch(client, run))[-1][1]["problem"]
        assert problem["detail"] == "party-1 refused: one run may cost at most epsilon 100"
        assert problem["party"] == "party-1"
    assert all(party.rounds() == [] for party in parties.values())


async def test_a_run_fails_when_the_roster_has_lost_a_party(cluster: Cluster, parties: Parties) -> None:
    for party in parties.values():
        party.intercept = unreachable()
    async with learner_of(cluster, parties, deadline_seconds=3600) as client:
        run = await submit(client)
    entries = [
        {"name": name, "url": f"http://{name}", "token": "t", "plain_http": True} for name in ("party-1", "party-2")
    ]
    cluster.learner = {"parties": entries}
    async with learner_of(cluster, parties) as client:
        events = await watch(client, run)
    assert events[-1][1]["problem"]["detail"] == "the roster does not have party-3"


async def test_no_problem_shows_what_a_party_said_at_length(cluster: Cluster, parties: Parties) -> None:
    parties["party-1"].intercept = always(422, json.dumps({"detail": "x" * 10_000}).encode())
    async with learner_of(cluster, parties) as client:
        events = await watch(client, await submit(client))
    assert len(events[-1][1]["problem"]["detail"]) < 600


async def test_what_nobody_foresaw_fails_the_run_without_its_words(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError("a private value")

    monkeypatch.setattr("parley.learner.execution.engine.model_document", break_down)
    run = await submit(client)
    events = await watch(client, run)
    assert events[-1][1]["state"] == "failed"
    assert events[-1][1]["problem"]["type"] == "urn:parley:problem:internal"
    assert "private" not in json.dumps(events)
