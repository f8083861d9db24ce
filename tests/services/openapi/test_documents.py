"""What each service says of itself is OpenAPI, names its operations for good, and types what it answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from parley.common.service.problems import PROBLEM_MEDIA_TYPE
from tests.support.documents import SERVICES, document_of


@pytest.fixture(params=SERVICES)
def document(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return document_of(request.param, tmp_path)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_the_document_is_openapi(document: dict[str, Any]) -> None:
    faults = [
        f"{list(fault.absolute_path)}: {fault.message}" for fault in OpenAPIV31SpecValidator(document).iter_errors()
    ]
    n_operations = len(list(operations(document)))
    print(f"{document['info']['title']}: {n_operations} operations, {len(faults)} faults of the document")
    assert faults == []


def test_every_operation_has_a_name_of_its_own_and_every_refusal_is_a_problem(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names), names
    for method, path, operation in operations(document):
        refused = operation["responses"]["default"]["content"]
        assert refused == {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}, (
            method,
            path,
        )
        assert operation["summary"], (method, path)
        assert operation["tags"], (method, path)


def test_the_names_of_the_learners_operations_stay(tmp_path: Path) -> None:
    """Functions of generated clients are called so: a name changes here with a reason, or not at all."""
    document = document_of("learner", tmp_path)
    assert sorted(operation["operationId"] for _, _, operation in operations(document)) == [
        "cancel_run",
        "check_health",
        "check_readiness",
        "confirm_member",
        "delete_run",
        "evaluate_run",
        "forecast_evaluation",
        "forecast_run",
        "invite_member",
        "join_roster",
        "list_algorithms",
        "list_parties",
        "list_public_rows",
        "list_receipts",
        "list_runs",
        "list_studies",
        "make_predictions",
        "remove_member",
        "renew_certificate",
        "resume_run",
        "show_card",
        "show_description",
        "show_keys",
        "show_metrics",
        "show_model",
        "show_newest_receipt",
        "show_roster",
        "show_run",
        "show_study",
        "show_user",
        "submit_run",
        "take_connection",
        "upload_public_rows",
        "watch_run",
        "watch_runs",
    ]


def test_the_learner_types_all_that_it_answers(tmp_path: Path) -> None:
    """No answer is an object without any description, but where the keys are names or JSON Schemas."""
    document = document_of("learner", tmp_path)
    model = document["paths"]["/v1/runs/{run}/model"]["get"]["responses"]["200"]["content"]["application/json"][
        "schema"
    ]
    assert model["discriminator"]["propertyName"] == "kind"
    assert set(model["discriminator"]["mapping"]) == {"linear", "softmax", "members", "statistics"}
    untyped = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, shape in schema.get("properties", {}).items()
        if shape.get("additionalProperties") is True
    ]
    print(f"{len(document['components']['schemas'])} schemas, fields without any description: {untyped or 'none'}")
    assert untyped == []
