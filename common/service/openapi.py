"""A service's OpenAPI document: names that stay, who may ask, and nothing that OpenAPI 3.1 does not know."""

from __future__ import annotations

from typing import Any

from fastapi.routing import APIRoute

from parley.common.service.problems import PROBLEM_MEDIA_TYPE, ProblemDocument

EVENTS_MEDIA_TYPE = "text/event-stream"
_EVENTS = {"description": "server-sent events: id, event and data, whose value is JSON"}

REFUSED: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Refused",
        "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}}},
    }
}
"""What every route may answer besides what it promises."""


def operation_id(route: APIRoute) -> str:
    """A route's name in the document, and its function's in a client generated from it: that of its own function."""
    return route.name


def completed(document: dict[str, Any], public_paths: frozenset[str]) -> dict[str, Any]:
    """A document as FastAPI draws it, completed: all but the public paths need a bearer token.

    A stream of events has no type: some readers would take it for that of an event, and some for that of the stream.
    """
    components = document.setdefault("components", {})
    components.setdefault("securitySchemes", {})["bearer"] = {"type": "http", "scheme": "bearer"}
    components.setdefault("schemas", {})[ProblemDocument.__name__] = ProblemDocument.model_json_schema()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["security"] = [] if path in public_paths else [{"bearer": []}]
            for response in operation["responses"].values():
                if (events := response.get("content", {}).get(EVENTS_MEDIA_TYPE)) is not None:
                    events["schema"] = _EVENTS
    return document
