"""JSON without what JSON does not have, bounded in size, read aside where it is long.

A route's JSON body has at most ``limits.json_bytes``, or ``limits.run_bytes`` where the route is marked `large_json`:
the limit on all bodies is for tables and arrays, which cost far less to read. A body of more than a few KiB is parsed
and held to its schema in a thread, so that nobody waits for it; the largest take turns, so that their objects are never
in memory together. What a body may make of objects is counted before it is parsed (`check_counts`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive

from parley.common.encoding.canonical_json import check_counts, read_json
from parley.common.errors import TooLargeError, UnsupportedMediaError
from parley.common.service.settings import Limits

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

_MAX_DEPTH = 32
_MAX_NAMES = 2**10
"""Names in a body itself, which is one model: it has fewer fields, and of each other name a fault would be told."""
_MAX_FAULTS = 1000  # to tell a million takes many seconds, in which Python does nothing else
_QUICK_BYTES = 2**13  # are read in less time than it takes to hand them to a thread
_LONG_BYTES = 2**18
_ONE_BY_ONE = ThreadPoolExecutor(1, thread_name_prefix="json")


def strict_json(body: bytes) -> Any:  # noqa: ANN401 -- any JSON value
    """A JSON value as `read_json` reads it, nested at most 32 levels deep.

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
    """Mark a route's function: its JSON body may be a large one, for a run has many columns and members."""
    endpoint.takes_large_json = True  # type: ignore[attr-defined]
    return endpoint


@dataclass(slots=True)
class CountedBody:
    """The way in: counts the bytes of a body whose length was not announced, or not truly."""

    source: Receive
    limit: int
    name: str
    count: int = 0

    @classmethod
    def of(cls, source: Receive, limits: Limits, name: str) -> Self:
        """A body that may have as many bytes as the limit of this name."""
        return cls(source, getattr(limits, name), f"limits.{name}")

    def check(self, count: int) -> None:
        """Raise TooLargeError, naming the setting, where so many bytes are too many."""
        if count > self.limit:
            raise TooLargeError(f"the body may have at most {self.limit} bytes ({self.name})")

    async def receive(self) -> Message:
        """The next piece of the body; raises TooLargeError once there are too many."""
        message = await self.source()
        self.count += len(message.get("body", b""))
        self.check(self.count)
        return message


class StrictRoute(APIRoute):
    """A route whose JSON is strict and bounded; a body is one model, which is checked here, before FastAPI would."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """The handler, given a request whose JSON was read."""
        handle = self.endpoint if self._takes_request_alone() else super().get_route_handler()
        schema: TypeAdapter[Any] | None = None
        if self.body_field is not None:
            schema = TypeAdapter[Any](self.body_field.field_info.annotation)  # type: ignore[arg-type]
        limit = "run_bytes" if getattr(self.endpoint, "takes_large_json", False) else "json_bytes"

        async def strict(request: Request) -> Response:
            if _says_json(request):
                request = _bounded(request, limit)
                if schema and (body := await request.body()):
                    request._json = await _aside(len(body), lambda: _valid(schema, body))  # noqa: SLF001 -- FastAPI finds it read
            elif schema and await request.body():
                raise UnsupportedMediaError("the body must be application/json")
            return await handle(request)

        return strict

    def _takes_request_alone(self) -> bool:
        """Whether there is nothing for FastAPI to read or to spell, which it would take its time to find out."""
        taken = self.dependant
        reads = (taken.path_params, taken.query_params, taken.header_params, taken.cookie_params, taken.body_params)
        needs = (taken.dependencies, taken.response_param_name, taken.background_tasks_param_name)
        return bool(taken.request_param_name) and not any(reads) and not any(needs) and self.response_field is None


def _says_json(request: Request) -> bool:
    """Whether a body says that it is JSON, as FastAPI understands it."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type.startswith("application/") and media_type.endswith(("/json", "+json"))


def _bounded(request: Request, name: str) -> Request:
    """The request, of whose body no more is read than a limit allows; raises TooLargeError where more is announced."""
    body = CountedBody.of(request.receive, request.app.state.limits, name)
    body.check(int(request.headers.get("content-length", "0")))  # digits, as the boundary has checked
    return Request(request.scope, body.receive)


def _valid(schema: TypeAdapter[Any], body: bytes) -> Any:  # noqa: ANN401 -- what the route takes
    """What a route takes, of a JSON body; raises RequestValidationError, and TooLargeError for too many values."""
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
            found = error.errors(include_input=False, include_url=False)
            faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in found]
    raise RequestValidationError(faults)


async def _aside(size: int, work: Callable[[], _T]) -> _T:
    """Do some work on so many bytes, in a thread unless they are few."""
    if size <= _QUICK_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_ONE_BY_ONE if size > _LONG_BYTES else None, work)


def _check_depth(value: Any) -> None:  # noqa: ANN401 -- any JSON value
    """Raise ValueError if arrays and objects nest too deep; level by level, which is cheaper than value by value."""
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
