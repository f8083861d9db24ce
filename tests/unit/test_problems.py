"""Errors as problem documents: their kinds, and what a client may do instead."""

from __future__ import annotations

import pytest
from fastapi import FastAPI, HTTPException
from starlette.testclient import TestClient

from parley.common.service import problems


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    problems.install(app)

    @app.get("/fails/{status}")
    def fail(status: int) -> None:
        raise HTTPException(status, headers={"X-Reason": "test"})

    @app.put("/fails/{status}")
    def put(status: int) -> int:
        return status

    return TestClient(app)


@pytest.mark.parametrize(
    ("status", "kind"), [(404, "not-found"), (413, "too-large"), (418, "invalid-input"), (507, "internal")]
)
def test_a_status_has_the_kind_that_says_whose_fault_it_is(client: TestClient, status: int, kind: str) -> None:
    answer = client.get(f"/fails/{status}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json() == {
        "type": f"urn:parley:problem:{kind}",
        "title": kind.replace("-", " ").capitalize(),
        "status": status,
        "detail": kind.replace("-", " "),
    }
    assert answer.headers["x-reason"] == "test"


def test_a_method_that_a_path_does_not_have_is_answered_with_those_that_it_has(client: TestClient) -> None:
    answer = client.delete("/fails/404")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS, PUT")
    assert answer.json()["type"] == "urn:parley:problem:method-not-allowed"


def test_a_path_that_does_not_exist_is_not_found(client: TestClient) -> None:
    assert client.get("/nowhere").json()["type"] == "urn:parley:problem:not-found"


def test_a_fault_of_the_form_names_its_place_unless_the_client_made_it_up(client: TestClient) -> None:
    (fault,) = client.get("/fails/soon").json()["errors"]
    assert fault == {"loc": ["path", "status"], "type": "int_parsing", "reason": "must be a whole number"}
