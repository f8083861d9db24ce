"""The page that shows a service's OpenAPI document, and the headers of every page that a service sends.

The page is rendered here, so that it needs no token and runs no script. The headers allow a page to load only what they
name, and no other page to frame it.
"""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from markupsafe import Markup, escape
from starlette.responses import JSONResponse
from starlette.templating import Jinja2Templates

from parley.common.service.http.representations import compressible, revalidated


def page_headers(sources: str) -> dict[str, str]:
    """Return the headers of an HTML page, or a part of one; ``sources`` are the directives of what it may load.

    >>> page_headers("style-src 'self'")["Content-Security-Policy"].partition(";")[0]
    "default-src 'none'"
    """
    return {
        "Content-Security-Policy": (
            f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
    }


EVENT_SCHEMA = "x-itemSchema"
"""Where a document has the schema of one event of a stream: OpenAPI 3.2 calls it ``itemSchema``, 3.1 allows this."""


def event_schema(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an event whose data, a text, is JSON of this schema."""
    text = {"type": "string", "contentMediaType": "application/json", "contentSchema": data}
    return {
        "type": "object",
        "required": ["event", "data"],
        "properties": {"event": {"const": kind}, "id": {"type": "string"}, "data": text},
    }


_PAGES = Jinja2Templates(Path(__file__).parent)
_CODE = re.compile("``?([^`]+)``?")


@compressible
@revalidated
async def show_document(request: Request) -> Response:
    """Return the OpenAPI document."""
    return JSONResponse(request.app.openapi(), headers={"Cache-Control": "no-cache"})


@compressible
async def reference_page(request: Request) -> Response:
    """Show every route by tag, with its input and output, then the schemas, each named once and linked."""
    document, nonce = request.app.openapi(), secrets.token_urlsafe(16)
    headers = page_headers(f"style-src 'nonce-{nonce}'")
    context = {
        "nonce": nonce,
        "info": document["info"],
        "tags": _by_tag(document),
        "schemas": document["components"]["schemas"],
        "parts": parts_of,
        "prose": _prose,
    }
    return _PAGES.TemplateResponse(request, "reference.html", context, headers=headers)


def parts_of(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a schema as parts of a line: words, and the name of the schema that they link to or "".

    >>> list(parts_of({"type": "array", "items": {"$ref": "#/components/schemas/Run"}}))
    [('array of', ''), ('Run', 'Run')]
    >>> list(parts_of({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}))
    [('integer ≥ 1', ''), ('or', ''), ('null', '')]
    >>> list(parts_of(event_schema("state", {"$ref": "#/components/schemas/News"})))
    [('state:', ''), ('News', 'News')]
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield name, name
    elif choices := schema.get("anyOf") or schema.get("oneOf"):
        for index, choice in enumerate(choices):
            if index:
                yield "or", ""
            yield from parts_of(choice)
    elif "contentSchema" in (data := schema.get("properties", {}).get("data", {})):
        yield f"{schema['properties']['event']['const']}:", ""
        yield from parts_of(data["contentSchema"])
    elif isinstance(items := schema.get("items"), Mapping):
        yield "array of", ""
        yield from parts_of(items)
    elif isinstance(values := schema.get("additionalProperties"), Mapping):
        yield "object of", ""
        yield from parts_of(values)
    else:
        yield _words_of(schema), ""


_BOUNDS = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
    "pattern": "matches",
    "format": "as",
    "minLength": "of length ≥",
    "maxLength": "of length ≤",
}


def _prose(text: str) -> Markup:
    """Return a docstring as HTML, its code marked as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 -- escaped before it is marked up


def _words_of(schema: Mapping[str, Any]) -> str:
    """Return the type and bounds of a plain value."""
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
        return " | ".join(map(repr, values))
    bounds = (f"{words} {schema[key]}" for key, words in _BOUNDS.items() if key in schema)
    return " ".join([schema.get("type", "anything"), *bounds])


def _by_tag(document: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the operations of a document by their first tag, each with method and path."""
    tags: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags[operation.get("tags", ["other"])[0]].append({"method": method.upper(), "path": path, **operation})
    return tags
