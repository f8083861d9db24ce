"""Problem documents (RFC 9457): what a service says when it does not do what was asked.

``type`` is ``urn:parley:problem:`` and the error's kind; ``detail`` names what was wrong. A fault of the request's form
says where (``loc``) and which rule (``type``), never what was sent.
"""

from __future__ import annotations

from typing import Annotated

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from common.errors import ParleyError

PROBLEM_MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:parley:problem:"


class ProblemDocument(BaseModel):
    """A problem document; further public facts may stand beside these."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(description="urn:parley:problem: and the kind of problem")]
    title: Annotated[str, Field(description="the kind of problem in words")]
    status: Annotated[int, Field(description="the HTTP status")]
    detail: Annotated[str, Field(description="what was wrong; never a private value")]


_KINDS = {404: "not-found", 405: "method-not-allowed", 413: "too-large"}
_SERVER_ERROR = 500


def document(status: int, kind: str, detail: str, **facts: object) -> dict[str, object]:
    """A problem document; ``facts`` are public."""
    title = kind.replace("-", " ").capitalize()
    return {"type": PREFIX + kind, "title": title, "status": status, "detail": detail, **facts}


def problem(status: int, kind: str, detail: str, **facts: object) -> JSONResponse:
    """A problem document as a response."""
    return JSONResponse(document(status, kind, detail, **facts), status, media_type=PROBLEM_MEDIA_TYPE)


def document_of(error: ParleyError) -> dict[str, object]:
    """The problem document of an error that Parley raised on purpose."""
    return document(error.status, error.kind, error.detail, **error.facts)


def of_error(error: ParleyError) -> JSONResponse:
    """The problem document of an error that Parley raised on purpose, as a response."""
    response = JSONResponse(document_of(error), error.status, media_type=PROBLEM_MEDIA_TYPE)
    if error.status == 401:  # noqa: PLR2004 -- RFC 9110 wants the scheme named
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def internal() -> JSONResponse:
    """The problem document of an unforeseen error: no details, which might be private."""
    return problem(500, "internal", "an internal error; the service's log says where")


def install(app: FastAPI) -> None:
    """Answer every error of this application with a problem document."""
    app.add_exception_handler(ParleyError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ParleyError)  # noqa: S101 -- registered for it alone
    structlog.get_logger().info("refused", kind=error.kind, method=request.method, path=request.url.path[:200])
    return of_error(error)


async def _on_invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 -- registered for it alone
    faults = [{"loc": [_short(part) for part in fault["loc"]], "type": fault["type"]} for fault in error.errors()[:20]]
    return problem(422, "invalid-input", "the request does not have the form that is documented", errors=faults)


async def _on_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 -- registered for it alone
    kind = _KINDS.get(error.status_code, "invalid-input" if error.status_code < _SERVER_ERROR else "internal")
    response = problem(error.status_code, kind, kind.replace("-", " "))
    response.headers.update(error.headers or {})
    return response


def _short(part: int | str) -> int | str:
    """A part of a fault's place; a name that the asker made up is cut short."""
    return part[:100] if isinstance(part, str) else part
