"""What each service says of itself is OpenAPI, names its operations for good, and types what it answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from parley.common.service.problems import PROBLEM_MEDIA_TYPE
from tests.support.documents import SERVICES, document_of


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return {service: document_of(service, tmp_path_factory.mktemp("service")) for service in SERVICES}


@pytest.fixture(params=SERVICES)
def document(request: pytest.FixtureRequest, documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return documents[request.param]


@pytest.fixture
def learner(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return documents["learner"]


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


def is_bounded(schema: dict[str, Any]) -> bool:
    """Whether a value cannot be arbitrarily long or large."""
    if "anyOf" in schema:
        return all(is_bounded(choice) for choice in schema["anyOf"])
    match schema.get("type"):
        case "string":
            return not schema.keys().isdisjoint({"enum", "maxLength", "pattern"})
        case "integer" | "number":
            bounds = [{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}]
            return not any(schema.keys().isdisjoint(side) for side in bounds)
        case kind:
            return kind in {"boolean", "null"} or "enum" in schema


def test_every_parameter_has_bounds(document: dict[str, Any]) -> None:
    parameters = [
        (operation["operationId"], parameter["name"], is_bounded(parameter["schema"]))
        for _, _, operation in operations(document)
        for parameter in operation.get("parameters", [])
    ]
    print(f"{document['info']['title']}: {len(parameters)} parameters")
    assert [name for *name, bounded in parameters if not bounded] == []


def test_budgets_and_names_have_bounds(learner: dict[str, Any]) -> None:
    schemas = learner["components"]["schemas"]
    for schema in ("Budget", "RunRequest", "ForecastRequest", "EvaluationRequest"):
        epsilon, delta = (schemas[schema]["properties"][name] for name in ("epsilon", "delta"))
        assert (epsilon["minimum"], epsilon["maximum"]) == (1e-6, 1e12)
        assert (delta["minimum"], delta["exclusiveMaximum"]) == (0, 1)
    (names, _) = schemas["RunRequest"]["properties"]["parties"]["anyOf"]
    assert names["items"]["pattern"] == r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


def test_each_kind_of_event_has_a_schema(learner: dict[str, Any]) -> None:
    kinds = {}
    for path in ("/v1/events", "/v1/runs/{run}/events"):
        content = learner["paths"][path]["get"]["responses"]["200"]["content"]["text/event-stream"]
        for event in content["x-itemSchema"]["oneOf"]:
            fields = event["properties"]
            data = fields["data"]["contentSchema"]
            kinds[fields["event"]["const"]] = data.get("items", data)["$ref"].removeprefix("#/components/schemas/")
    assert kinds == {"state": "StateNews", "round": "RoundNews", "dropped": "DroppedNews", "runs": "ListedRun"}
    assert set(kinds.values()) <= learner["components"]["schemas"].keys()
    problem = learner["components"]["schemas"]["StateNews"]["properties"]["problem"]
    assert problem["allOf"] == [{"$ref": "#/components/schemas/ProblemDocument"}]


def test_the_names_of_the_learners_operations_stay(learner: dict[str, Any]) -> None:
    """Functions of generated clients are called so: a name changes here with a reason, or not at all."""
    assert sorted(operation["operationId"] for _, _, operation in operations(learner)) == [
        "cancel_run",
        "check_health",
        "check_readiness",
        "confirm_member",
        "delete_run",
        "evaluate_run",
        "export_model",
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
        "set_threshold",
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


def test_the_learner_types_all_that_it_answers(learner: dict[str, Any]) -> None:
    """No answer is an object without any description, but where the keys are names or JSON Schemas."""
    model = learner["paths"]["/v1/runs/{run}/model"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert model["discriminator"]["propertyName"] == "kind"
    assert set(model["discriminator"]["mapping"]) == {"linear", "softmax", "members", "statistics"}
    untyped = [
        f"{name}.{field}"
        for name, schema in learner["components"]["schemas"].items()
        for field, shape in schema.get("properties", {}).items()
        if shape.get("additionalProperties") is True
    ]
    print(f"{len(learner['components']['schemas'])} schemas, fields without any description: {untyped or 'none'}")
    assert untyped == []
