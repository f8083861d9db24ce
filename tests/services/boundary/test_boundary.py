"""What every service's boundary does: bounds bodies by route, notes failed sign-ins, says why a form is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from parley.common.service.tokens import KnownToken, NamedCaller, hash_token
from parley.learner.api.app import create_learner_app
from parley.party.api.app import create_party_app
from parley.party.keyholder.app import create_key_holder_app
from tests.support.cluster import AUTHORIZED, LEARNER, Cluster
from tests.support.keyholder import FreshKeys, keyholder_settings
from tests.support.rounds import ASKING

REQUEST = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5}
SECRET = "0.271828"


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FastAPI]:
    cluster = Cluster(tmp_path_factory.mktemp("services"), n_parties=1)
    return {
        "learner": create_learner_app(cluster.learner_settings()),
        "party": create_party_app(cluster.party_settings("party-1")),
        "key holder": create_key_holder_app(keyholder_settings(cluster.root / "key-holder"), FreshKeys()),
    }


@pytest.fixture(scope="module")
def clients(apps: dict[str, FastAPI]) -> Iterator[dict[str, httpx.Client]]:
    headers = {"learner": AUTHORIZED, "party": ASKING, "key holder": ASKING}
    with (
        TestClient(apps["learner"], headers=headers["learner"]) as learner,
        TestClient(apps["party"], headers=headers["party"]) as party,
        TestClient(apps["key holder"], headers=headers["key holder"]) as key_holder,
    ):
        yield {"learner": learner, "party": party, "key holder": key_holder}


@pytest.mark.parametrize(
    ("name", "route", "size", "status"),
    [
        ("key holder", "POST /v1/sessions", 2**18, 422),
        ("key holder", "POST /v1/sessions", 2**18 + 1, 413),
        ("party", "PUT /v1/runs/run/rounds/1", 2**18 + 1, 413),
        ("party", "POST /v1/runs", 2**22, 422),
        ("party", "POST /v1/runs", 2**22 + 1, 413),
        ("learner", "POST /v1/runs", 2**22, 422),
        ("learner", "POST /v1/forecasts", 2**22, 422),
        ("learner", "POST /v1/runs/run/predictions", 2**22, 422),
        ("learner", "POST /v1/runs/run/predictions", 2**22 + 1, 413),
    ],
)
def test_a_body_is_bounded_by_its_route(
    clients: dict[str, httpx.Client], name: str, route: str, size: int, status: int
) -> None:
    method, path = route.split()
    body = b'{"a": "' + b"x" * (size - 9) + b'"}'
    headers = {"Content-Type": "application/json"}
    assert clients[name].request(method, path, content=body, headers=headers).status_code == status
    chunked = iter([body[: size // 2], body[size // 2 :]])
    assert clients[name].request(method, path, content=chunked, headers=headers).status_code == status


def test_a_body_of_too_many_values_is_refused(clients: dict[str, httpx.Client]) -> None:
    body = b'{"run": [' + b"0," * 2**20 + b"0]}"
    refused = clients["learner"].post("/v1/runs", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["detail"]) == (413, "the JSON may have at most 1048576 values")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"colluders": -1},
            {"loc": ["body", "colluders"], "type": "greater_than_equal", "reason": "must be at least 0"},
        ),
        ({"epsilon": SECRET * 2}, {"loc": ["body", "epsilon"], "reason": "must be a number"}),
        ({"surprise": SECRET}, {"loc": ["body", "surprise"], "reason": "is not known here"}),
        ({f"<{SECRET}>": 1}, {"loc": ["body", "?"], "reason": "is not known here"}),
        ({"secure_sum": SECRET}, {"loc": ["body", "secure_sum"], "reason": "must be 'none' or 'paillier'"}),
        ({"answer_every": [SECRET]}, {"loc": ["body", "answer_every"], "reason": "must be a whole number"}),
    ],
)
def test_a_fault_of_the_form_says_why_and_quotes_nothing(
    clients: dict[str, httpx.Client], change: dict[str, Any], fault: dict[str, Any]
) -> None:
    refused = clients["learner"].post("/v1/runs", json=REQUEST | change)
    assert refused.status_code == 422
    (named,) = refused.json()["errors"]
    print(named)
    assert named == named | fault
    assert SECRET not in refused.text


def test_very_many_faults_are_not_told_one_by_one(clients: dict[str, httpx.Client]) -> None:
    for change, reason in (
        ({"parties": [0] * 300_000}, "must be a text"),
        (dict.fromkeys(map(str, range(100_000)), 0), "has too many faults to tell"),
    ):
        refused = clients["learner"].post("/v1/runs", json=REQUEST | change)
        (fault,) = refused.json()["errors"]
        assert fault["reason"] == reason


def test_a_failed_sign_in_is_logged_and_counted(
    clients: dict[str, httpx.Client], apps: dict[str, FastAPI], capfd: pytest.CaptureFixture[str]
) -> None:
    for authorization in ("Bearer sesame", "Basic sesame"):
        assert clients["party"].get("/v1/party", headers={"Authorization": authorization}).status_code == 401
    metrics = apps["party"].state.metrics.render().decode()
    output = "".join(capfd.readouterr())
    assert 'parley_failed_sign_ins_total{why="unknown"} 1.0' in metrics
    assert 'parley_failed_sign_ins_total{why="absent"} 1.0' in metrics
    assert "sign-in" in output
    assert "testclient" in output
    assert "sesame" not in output


def test_an_expired_token_says_so(clients: dict[str, httpx.Client], apps: dict[str, FastAPI]) -> None:
    tokens, today = apps["party"].state.tokens, apps["party"].state.tokens.today()
    tokens.replace(
        [
            KnownToken(hash_token(LEARNER), NamedCaller("learner")),
            KnownToken(hash_token("short"), NamedCaller("learner"), today),
        ]
    )
    refused = clients["party"].get("/v1/party", headers={"Authorization": "Bearer short"})
    assert refused.status_code == 401
    assert refused.json()["detail"] == "the bearer token has expired: ask for a new one"


@pytest.mark.parametrize("name", ["learner", "party", "key holder"])
def test_the_reference_opens_without_a_token_and_loads_nothing(
    apps: dict[str, FastAPI], clients: dict[str, httpx.Client], name: str
) -> None:
    page = clients[name].get("/docs", headers={"Authorization": ""})
    assert page.status_code == 200
    assert page.headers["content-security-policy"].startswith("default-src 'none'; style-src 'nonce-")
    assert not any(word in page.text for word in ("<script", "<img", "<link", "src=", "@import", "url("))
    document = json.loads(clients[name].get("/openapi.json").text)
    listed = [path for path in document["paths"] if f"<code>{path}</code>" in page.text]
    schemas = [schema for schema in document["components"].get("schemas", {}) if f'id="{schema}"' in page.text]
    print(f"{name}: {len(listed)} paths and {len(schemas)} schemas in {len(page.text) // 1024} KiB")
    assert listed == list(document["paths"])
    assert schemas == list(document["components"].get("schemas", {}))


def test_an_unforeseen_error_is_answered_without_its_text_and_logged_by_its_place(tmp_path: Path) -> None:
    app = create_key_holder_app(keyholder_settings(tmp_path / "key-holder"), FreshKeys())

    def fail() -> None:
        raise RuntimeError(SECRET)

    app.add_api_route("/v1/fails", fail)
    with TestClient(app, headers=ASKING) as client, capture_logs() as lines:
        answer = client.get("/v1/fails")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.json()["type"] == "urn:parley:problem:internal"
    assert answer.json()["detail"] == "an internal error; the service's log says where"
    assert SECRET not in str((answer.text, lines))
    (line,) = [line for line in lines if line["event"] == "internal"]
    assert (line["error"], line["place"].rpartition(":")[0]) == ("RuntimeError", __file__)


def test_the_last_failed_sign_in_that_is_logged_says_so(tmp_path: Path) -> None:
    app = create_key_holder_app(keyholder_settings(tmp_path / "key-holder"), FreshKeys())
    with TestClient(app, headers={"Authorization": "Bearer sesame"}) as client, capture_logs() as lines:
        statuses = [client.get("/v1/sessions/x").status_code for _ in range(200)]
    logged = [line for line in lines if line["event"] == "sign-in"]
    assert set(statuses) == {401, 429}
    assert len(logged) == statuses.index(429)
    assert {line.get("then") for line in logged[:-1]} == {None}
    assert logged[-1]["then"] == "unlogged for a minute"
