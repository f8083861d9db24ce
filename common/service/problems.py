"""Problem documents (RFC 9457): the answers to requests that a service refuses.

``type`` is ``urn:parley:problem:`` and the error's kind; ``detail`` names what was wrong. For a fault in the form of a
request it says where (``loc``), which rule (``type``), and in words what the rule requires (``reason``), never what was
sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import structlog
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from parley.common.errors import ParleyError, ShareUsedUpError

PROBLEM_MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:parley:problem:"
_NOT_ALLOWED = 405


class ProblemDocument(BaseModel):
    """A problem document; further public facts may stand beside these."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(description="urn:parley:problem: and the kind of problem")]
    title: Annotated[str, Field(description="the kind of problem in words")]
    status: Annotated[int, Field(description="the HTTP status")]
    detail: Annotated[str, Field(description="what was wrong; never a private value")]


_REASONS = {
    "bool": "must be true or false",
    "date": "must be a date, as in 2027-01-31",
    "dict": "must be an object",
    "enum": "must be {expected}",
    "extra_forbidden": "is not known here",
    "finite_number": "must be a finite number",
    "float": "must be a number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int": "must be a whole number",
    "json_invalid": "must be JSON, without NaN, infinities, half characters or a name twice, nested at most 32 deep",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list": "must be an array",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model": "must be an object",
    "multiple_of": "must be a multiple of {multiple_of}",
    "repeated": "is given more than once",
    "string": "must be a text",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length} items",
    "too_many_faults": "has too many faults to tell",
    "too_short": "must have at least {min_length} items",
    "tuple": "must be an array",
    "union_tag_invalid": "must be of kind {expected_tags}",
    "union_tag_not_found": "must name its kind",
}
"""What each rule requires, by the type of the fault or by its first word; braces hold values of the schema."""
_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$": "have letters, digits, '.', '_' and '-' alone, the first no '.', '_' or '-'"
}
"""Patterns in words."""
_SANE_NAME = re.compile(r"[\w.\- ]{1,100}")

_KINDS = {404: "not-found", 405: "method-not-allowed", 413: "too-large"}
_SERVER_ERROR = 500


def document(status: int, kind: str, detail: str, **facts: object) -> dict[str, object]:
    """Return a problem document; ``facts`` are public."""
    title = kind.replace("-", " ").capitalize()
    return {"type": PREFIX + kind, "title": title, "status": status, "detail": detail, **facts}


def problem(status: int, kind: str, detail: str, **facts: object) -> JSONResponse:
    """Return a problem document as a response."""
    return JSONResponse(document(status, kind, detail, **facts), status, media_type=PROBLEM_MEDIA_TYPE)


def document_of(error: ParleyError) -> dict[str, object]:
    """Return the problem document of an error that Parley raised on purpose."""
    return document(error.status, error.kind, error.detail, **error.facts)


def of_error(error: ParleyError) -> JSONResponse:
    """Return the problem document of an error that Parley raised on purpose, as a response."""
    response = JSONResponse(document_of(error), error.status, media_type=PROBLEM_MEDIA_TYPE)
    if error.status == 401:  # noqa: PLR2004 -- RFC 9110 wants the scheme named
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, ShareUsedUpError) or "retry_after" in error.facts:
        response.headers["Retry-After"] = str(error.facts.get("retry_after", 1))
    return response


def internal() -> JSONResponse:
    """Return the problem document of an unforeseen error, without details, which might be private."""
    return problem(500, "internal", "an internal error; the service's log says where")


def install(app: Starlette) -> None:
    """Answer every error of this application with a problem document."""
    app.add_exception_handler(ParleyError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ParleyError)  # noqa: S101 -- registered for it alone
    rule = {"rule": error.facts["rule"]} if "rule" in error.facts else {}
    path = request.url.path[:200]
    structlog.get_logger().info("refused", kind=error.kind, **rule, method=request.method, path=path)
    request.app.state.metrics.count_refusal(error)
    return of_error(error)


async def _on_invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 -- registered for it alone
    faults = [
        {"loc": [_sane(part) for part in fault["loc"]], "type": fault["type"], "reason": reason_of(fault)}
        for fault in error.errors()[:20]
    ]
    return problem(422, "invalid-input", "the request does not have the form that is documented", errors=faults)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 -- registered for it alone
    if error.status_code == _NOT_ALLOWED and request.method == "OPTIONS":
        return Response(status_code=204, headers={"Allow": ", ".join(_allowed_methods(request))})
    kind = _KINDS.get(error.status_code, "invalid-input" if error.status_code < _SERVER_ERROR else "internal")
    response = problem(error.status_code, kind, kind.replace("-", " "))
    response.headers.update(error.headers or {})
    if error.status_code == _NOT_ALLOWED:
        response.headers["Allow"] = ", ".join(_allowed_methods(request))
    return response


def _allowed_methods(request: Request) -> list[str]:
    """List all methods of a path: each route has one, and Starlette names only the first route's."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
    return sorted(methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set()))


def reason_of(fault: Mapping[str, Any]) -> str:
    """Return the requirement of the broken rule in words, from the schema alone: nothing of what was sent.

    >>> reason_of({"type": "greater_than_equal", "input": "secret", "ctx": {"ge": 1}})
    'must be at least 1'
    >>> reason_of({"type": "int_from_float", "input": 1.5})
    'must be a whole number'
    """
    kind: str = fault["type"]
    words = _REASONS.get(kind) or _REASONS.get(kind.partition("_")[0]) or "breaks a rule of its description"
    told = words.format_map(fault.get("ctx", {})) if "{" in words else words
    pattern = told.removeprefix("must match ")
    return f"must {_PATTERNS[pattern]}" if pattern in _PATTERNS else told


def _sane(part: int | str) -> int | str:
    """Return a part of a fault's place; a name that the client made up is repeated only if it is a plain one."""
    return part if isinstance(part, int) or _SANE_NAME.fullmatch(part) else "?"
