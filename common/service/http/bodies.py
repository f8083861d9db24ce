"""Bodies of requests and responses: JSON, long bodies, arrays and signed messages.

JSON: strict, and bounded in size. A route's JSON body has at most ``limits.json_bytes``, or ``limits.run_bytes`` where
the route is marked `large_json`: the limit on all bodies is for tables and arrays, which cost far less to read. A body
of more than a few KiB is parsed and validated in a thread, so that nobody waits for it; the largest take turns, so that
their objects are never in memory together. The number of objects is counted before a body is parsed (`check_counts`).

Long bodies are in memory once: they are read into one buffer, and sent in pieces.

Arrays: ``application/x-npy`` for programs, ``application/json`` for requests by hand. Content-Type says which one a
body is, Accept which one comes back (``.npy`` unless it asks for JSON).

Messages of the secure sum: one media type for every signed message.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.utils import is_body_allowed_for_status_code
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from parley.common.encoding.canonical_json import JSON, check_counts, read_json
from parley.common.encoding.npy import NPY
from parley.common.errors import InvalidInputError, TooLargeError, UnsupportedMediaError
from parley.common.secure_sum.envelope import Signed
from parley.common.service import logs
from parley.common.service.http.representations import Compressed, accepted_by, tagged
from parley.common.service.settings import Limits

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

_MAX_DEPTH = 32
_MAX_NAMES = 2**10
"""Names in a body, more than any model has: each name beyond would be reported as a fault."""
_MAX_FAULTS = 1000  # reporting a million would block Python for many seconds
_QUICK_BYTES = 2**13  # so few are parsed faster than handed to a thread
_LONG_BYTES = 2**18
_OK = 200
_LOGGED = "run", "session"
"""The parameters of paths that all lines of the log about a request name."""
_SANE = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ONE_BY_ONE = ThreadPoolExecutor(1, thread_name_prefix="json")


def strict_json(body: bytes) -> Any:  # noqa: ANN401 -- any JSON value
    """Read a JSON value as `read_json` does, nested at most 32 levels deep.

    Raises json.JSONDecodeError, which quotes nothing, and TooLargeError for too many values.
    """
    check_counts(body)
    try:
        value = read_json(body)
        if body.count(b"[") + body.count(b"{") > _MAX_DEPTH:
            _check_depth(value)
    except (ValueError, RecursionError):
        raise json.JSONDecodeError("not strict JSON", "", 0) from None
    return value


def large_json(endpoint: _F) -> _F:
    """Mark a route's function: its JSON body may be a large one, since a run may have many columns and members."""
    endpoint.takes_large_json = True  # type: ignore[attr-defined]
    return endpoint


@dataclass(slots=True)
class CountedBody:
    """The receiving side: counts the bytes of a body, whose announced length may be missing or wrong."""

    source: Receive
    limits: Limits
    name: str
    """Of the limit that says how many bytes it may have."""
    count: int = 0

    def check(self, count: int) -> None:
        """Raise TooLargeError, which names the setting, if so many bytes are too many."""
        if count > (most := getattr(self.limits, self.name)):
            raise TooLargeError(f"the body may have at most {most} bytes (limits.{self.name})")

    async def receive(self) -> Message:
        """Receive the next piece of the body; raises TooLargeError once there are too many."""
        message = await self.source()
        self.count += len(message.get("body", b""))
        self.check(self.count)
        return message


class StrictRoute(APIRoute):
    """A route whose JSON is strict and bounded; its body, one model, is validated here, before FastAPI would.

    It refuses a query that names other parameters than its own, and an Accept that excludes all that it gives; whether
    its answers are tagged and compressed, `representations` says.
    """

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 -- FastAPI's
        super().__init__(*args, **options)
        if getattr(self.endpoint, "is_compressible", False):
            self.app = Compressed(self.app)

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return the handler, which receives a request whose JSON has been parsed."""
        handle = self.endpoint if self._takes_request_alone() else super().get_route_handler()
        schema: TypeAdapter[Any] | None = None
        if self.body_field is not None:
            schema = TypeAdapter[Any](self.body_field.field_info.annotation)  # type: ignore[arg-type]
        limit = "run_bytes" if getattr(self.endpoint, "takes_large_json", False) else "json_bytes"
        is_revalidated = getattr(self.endpoint, "is_revalidated", False)
        parameters, offered = self._parameters(), self._offered()

        async def strict(request: Request) -> Response:
            logs.note(
                **{name: value for name in _LOGGED if _SANE.fullmatch(value := request.path_params.get(name, ""))}
            )
            if self.include_in_schema and (query := request.scope["query_string"]):
                _check_query(query, parameters)
            if offered:
                accepted_by(request, offered)
            if _says_json(request):
                request = _bounded(request, limit)
                if schema and (body := await request.body()):
                    request._json = await _aside(len(body), lambda: _valid(schema, body))  # noqa: SLF001 -- FastAPI finds it read
            elif schema and await request.body():
                raise UnsupportedMediaError("the body must be application/json")
            response = await handle(request)
            return tagged(request, response) if is_revalidated and response.status_code == _OK else response

        return strict

    def _parameters(self) -> frozenset[str]:
        """Return the names that a query may have: those of the route's function, and those that it parses itself."""
        parsed = (self.openapi_extra or {}).get("parameters", ())
        names = [parameter["name"] for parameter in parsed if parameter["in"] == "query"]
        return frozenset([*names, *_query_names(self.dependant)])

    def _offered(self) -> tuple[str, ...]:
        """Return the media types of the route's answers, as its document lists them; none if they have no body."""
        status = self.status_code or _OK
        if not is_body_allowed_for_status_code(status):
            return ()
        response_class: Any = getattr(self.response_class, "value", self.response_class)  # unless it is the default
        documented_types = self.responses.get(status, {}).get("content", {})
        return tuple(filter(None, dict.fromkeys([response_class.media_type, *documented_types])))

    def _takes_request_alone(self) -> bool:
        """Say whether FastAPI has nothing to parse or serialise; it would take time to find that out."""
        dependant = self.dependant
        reads = (
            dependant.path_params,
            dependant.query_params,
            dependant.header_params,
            dependant.cookie_params,
            dependant.body_params,
        )
        uses = (dependant.dependencies, dependant.response_param_name, dependant.background_tasks_param_name)
        return bool(dependant.request_param_name) and not any(reads) and not any(uses) and self.response_field is None


def _query_names(dependant: Dependant) -> Iterator[str]:
    """Yield the names of the query parameters of a function, and of those that it depends on."""
    yield from (field.alias for field in dependant.query_params)
    for dependency in dependant.dependencies:
        yield from _query_names(dependency)


def _check_query(query: bytes, parameters: frozenset[str]) -> None:
    """Raise RequestValidationError that names the parameters of a query that are unknown, or given again."""
    names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    if len(names) == len({*names} & parameters):
        return
    faults = [
        {"type": "repeated" if name in parameters else "extra_forbidden", "loc": ("query", name)}
        for name, count in Counter(names).items()
        if name not in parameters or count > 1
    ]
    raise RequestValidationError(faults)


def _says_json(request: Request) -> bool:
    """Say whether a request declares its body as JSON, as FastAPI understands it."""
    media_type = media_type_of(request)
    return media_type.startswith("application/") and media_type.endswith(("/json", "+json"))


def _bounded(request: Request, name: str) -> Request:
    """Return the request, whose body is read no further than the limit; raises TooLargeError if more is announced."""
    body = CountedBody(request.receive, request.app.state.limits, name)
    body.check(int(request.headers.get("content-length", "0")))  # digits, as the boundary has checked
    return Request(request.scope, body.receive)


def _valid(schema: TypeAdapter[Any], body: bytes) -> Any:  # noqa: ANN401 -- what the route takes
    """Validate a JSON body; raises RequestValidationError, and TooLargeError for too many values."""
    try:
        value = strict_json(body)
        if not isinstance(value, dict) or len(value) <= _MAX_NAMES:
            return schema.validate_python(value)
        faults: list[dict[str, Any]] = [{"type": "too_many_faults", "loc": ("body",)}]
    except json.JSONDecodeError:
        faults = [{"type": "json_invalid", "loc": ("body",)}]
    except ValidationError as error:
        if error.error_count() > _MAX_FAULTS:
            faults = [{"type": "too_many_faults", "loc": ("body",)}]
        else:
            errors = error.errors(include_input=False, include_url=False)
            faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in errors]
    raise RequestValidationError(faults)


async def _aside(size: int, work: Callable[[], _T]) -> _T:
    """Do some work on so many bytes: in a thread, unless they are few."""
    if size <= _QUICK_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_ONE_BY_ONE if size > _LONG_BYTES else None, work)


def _check_depth(value: Any) -> None:  # noqa: ANN401 -- any JSON value
    """Raise ValueError if arrays and objects nest too deep; checked by level, which is cheaper than by value."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for nest in level
            for child in (nest.values() if isinstance(nest, dict) else nest)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise ValueError("nested too deep")


_PIECE = 2**18


async def read_whole(request: Request, limit: int, reason: str) -> bytearray:
    """Read a request's body of at most ``limit`` bytes into one buffer; if it announces more, read nothing.

    Raises TooLargeError, with the ``reason`` of the limit, as soon as there are more; InvalidInputError for a body that
    is shorter than announced; ClientDisconnect.
    """
    length = int(request.headers.get("content-length", "0"))  # digits, as the boundary has checked
    if length > limit:
        raise _too_large(limit, reason)
    buffer, count = bytearray(length), 0
    async for piece in request.stream():
        count += len(piece)
        if count > limit:
            raise _too_large(limit, reason)
        buffer[count - len(piece) : count] = piece  # extends a buffer whose length was not announced
    if count < len(buffer):
        raise InvalidInputError(f"the body has {count} bytes, and {len(buffer)} were announced")
    return buffer


class WholeBody(Response):
    """A response whose body is sent in pieces, each after the one before was taken, without a second copy."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- as ASGI has it
        """Send the response, then run its background task."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        view = memoryview(self.body)
        for start in range(0, max(len(view), 1), _PIECE):
            piece, more = bytes(view[start : start + _PIECE]), start + _PIECE < len(view)
            await send({"type": "http.response.body", "body": piece, "more_body": more})
        if self.background is not None:
            await self.background()


def _too_large(limit: int, reason: str) -> TooLargeError:
    return TooLargeError(f"the body may have at most {limit} bytes ({reason})")


def media_type_of(request: Request) -> str:
    """Return the declared type of a body, in lower case and without parameters; empty if none is declared."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def documented(description: str, dtype: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Describe an OpenAPI body that is an array of ``dtype`` in ``.npy``, or JSON of this schema."""
    binary = {"type": "string", "format": "binary", "description": f"{dtype} array in NumPy's .npy format, version 1.0"}
    return {"description": description, "content": {NPY: {"schema": binary}, JSON: {"schema": schema}}}


SIGNED_MEDIA_TYPE = "application/x-parley-signed"


async def read_signed(request: Request) -> Signed:
    """Read a signed message from the body, its signature unchecked. Raises UnsupportedMediaError, MessageError."""
    body = await read_whole(request, request.app.state.limits.body_bytes, "limits.body_bytes")
    return await asyncio.to_thread(signed_of, request, body)


def signed_of(request: Request, body: bytes | bytearray) -> Signed:
    """Parse a signed message from a body that has been read, its signature not yet checked; raises as `read_signed`."""
    if media_type_of(request) != SIGNED_MEDIA_TYPE:
        raise UnsupportedMediaError(f"the body must be {SIGNED_MEDIA_TYPE}")
    return Signed.from_bytes(body)


def signed_response(frame: bytes) -> Response:
    """Return a signed message's frame as a response."""
    return Response(frame, media_type=SIGNED_MEDIA_TYPE)


def body(description: str) -> dict[str, Any]:
    """Describe an OpenAPI body that is a signed message."""
    return {
        "description": description,
        "content": {SIGNED_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
