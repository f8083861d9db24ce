"""JSON without what JSON does not have, bounded in size, read aside where it is long.

A route's JSON body has at most ``limits.json_bytes`` unless the route is marked `large_json`: the limit on all bodies
is for tables and arrays, which cost far less to read. A body of more than a few KiB is parsed and held to its schema in
a thread, so that nobody waits for it; the largest take turns, so that their objects are never in memory together.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive

from common.errors import TooLargeError

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

_MAX_DEPTH = 32
_MAX_VALUES = 2**21
_MAX_FAULTS = 1000  # to tell a million takes many seconds, in which Python does nothing else
_QUICK_BYTES = 2**13  # are read in less time than it takes to hand them to a thread
_LONG_BYTES = 2**18
_ONE_BY_ONE = ThreadPoolExecutor(1, thread_name_prefix="json")


def strict_json(body: bytes) -> Any:  # noqa: ANN401 -- any JSON value
    """A JSON value without NaN, infinities, overflowing numbers or nesting beyond 32 levels.

    Raises json.JSONDecodeError, which quotes nothing, and TooLargeError for more than 2^21 values.
    """
    if body.count(b",") >= _MAX_VALUES:  # which bounds what else is done here, far below what the bytes would
        raise TooLargeError(f"the body may have at most {_MAX_VALUES} values")
    try:
        value = json.loads(body, parse_constant=_refuse, parse_float=_finite)
        if body.count(b"[") + body.count(b"{") > _MAX_DEPTH:
            _check_depth(value)
    except (ValueError, RecursionError):
        raise json.JSONDecodeError("not strict JSON", "", 0) from None
    return value


def large_json(endpoint: _F) -> _F:
    """Mark a route's function: its JSON body may be as large as any body, for a run has many columns and members."""
    endpoint.takes_large_json = True  # type: ignore[attr-defined]
    return endpoint


@dataclass(slots=True)
class CountedBody:
    """The way in: counts the bytes of a body whose length was not announced, or not truly."""

    source: Receive
    limit: int
    count: int = 0

    async def receive(self) -> Message:
        """The next piece of the body; raises TooLargeError once there are too many."""
        message = await self.source()
        self.count += len(message.get("body", b""))
        if self.count > self.limit:
            raise TooLargeError(f"the body may have at most {self.limit} bytes")
        return message


class StrictRoute(APIRoute):
    """A route whose JSON is strict and bounded; a body is one model, which is checked here, before FastAPI would."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """The handler, given a request whose JSON was read."""
        handle = super().get_route_handler()
        schema: TypeAdapter[Any] | None = None
        if self.body_field is not None:
            schema = TypeAdapter[Any](self.body_field.field_info.annotation)  # type: ignore[arg-type]
        is_large = getattr(self.endpoint, "takes_large_json", False)

        async def strict(request: Request) -> Response:
            if _says_json(request):
                if not is_large:
                    request = _bounded(request, request.app.state.json_bytes)
                if schema and (body := await request.body()):
                    request._json = await _aside(len(body), lambda: _valid(schema, body))  # noqa: SLF001 -- FastAPI finds it read
            return await handle(request)

        return strict


def _says_json(request: Request) -> bool:
    """Whether a body says that it is JSON, as FastAPI understands it."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type.startswith("application/") and media_type.endswith(("/json", "+json"))


def _bounded(request: Request, limit: int) -> Request:
    """The request, of whose body no more is read; raises TooLargeError where more is announced."""
    if int(request.headers.get("content-length", "0")) > limit:  # digits, as the boundary has checked
        raise TooLargeError(f"the body may have at most {limit} bytes")
    return Request(request.scope, CountedBody(request.receive, limit).receive)


def _valid(schema: TypeAdapter[Any], body: bytes) -> Any:  # noqa: ANN401 -- what the route takes
    """What a route takes, of a JSON body; raises RequestValidationError, and TooLargeError for too many values."""
    try:
        return schema.validate_python(strict_json(body))
    except json.JSONDecodeError:
        faults: list[dict[str, Any]] = [{"type": "json_invalid", "loc": ("body",)}]
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


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


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
