"""Bodies of requests and responses: how many bytes and values they may have, and what is said of those that may not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import httpx
import pytest
from fastapi import BackgroundTasks, Cookie, Depends, FastAPI, Header, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.background import BackgroundTask
from starlette.requests import Request

from parley.common.errors import InvalidInputError, TooLargeError, UnsupportedMediaError
from parley.common.secure_sum.envelope import Signed
from parley.common.service.http import bodies
from parley.common.service.http.bodies import (
    CountedBody,
    StrictRoute,
    WholeBody,
    body,
    documented,
    large_json,
    media_type_of,
    read_signed,
    read_whole,
    signed_of,
    signed_response,
    strict_json,
)
from parley.common.service.problems import install
from parley.common.service.prometheus import Metrics
from parley.common.service.settings import Limits

SIGNED = "application/x-parley-signed"


def request(pieces: Sequence[bytes] = (b"",), **headers: str) -> Request:
    """A request whose body comes in these pieces."""
    rest = [
        {"type": "http.request", "body": piece, "more_body": n < len(pieces)} for n, piece in enumerate(pieces, start=1)
    ]

    async def receive() -> Any:  # noqa: ANN401 -- any message of ASGI
        return rest.pop(0)

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "PUT", "headers": named}, receive)


async def test_a_body_is_read_whole_whether_its_length_was_announced_or_not() -> None:
    assert await read_whole(request([b"ab", b"", b"cde"]), 5, "why") == b"abcde"
    assert await read_whole(request([b"ab", b"cde"], content_length="5"), 5, "why") == b"abcde"
    for asked in (request([b"ab", b"cdef"]), request([], content_length="6")):
        with pytest.raises(TooLargeError) as refused:
            await read_whole(asked, 5, "why")
        assert refused.value.detail == "the body may have at most 5 bytes (why)"
    with pytest.raises(InvalidInputError) as short:
        await read_whole(request([b"ab", b"cd"], content_length="5"), 5, "why")
    assert short.value.detail == "the body has 4 bytes, and 5 were announced"


@pytest.mark.parametrize("size", [0, 1, 2**18, 2**18 + 1, 2**19])
async def test_a_long_body_is_sent_in_pieces_and_then_its_task_is_run(size: int) -> None:
    sent: list[Any] = []
    content = bytes(range(256)) * (size // 256 + 1)
    response = WholeBody(content[:size], 201, {"a": "b"}, background=BackgroundTask(sent.append, "done"))

    async def send(message: Any) -> None:  # noqa: ANN401 -- any message of ASGI
        sent.append(message)

    await response({"type": "http"}, None, send)  # type: ignore[arg-type]  # it receives nothing
    start, *pieces, done = sent
    assert start == {"type": "http.response.start", "status": 201, "headers": response.raw_headers}
    assert done == "done"
    sizes = [2**18] * (size // 2**18) + [size % 2**18] * bool(size % 2**18 or not size)
    assert [len(piece["body"]) for piece in pieces] == sizes
    assert [piece["more_body"] for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert {piece["type"] for piece in pieces} == {"http.response.body"}
    assert b"".join(piece["body"] for piece in pieces) == content[:size]
    sent.clear()
    await WholeBody(b"x")({"type": "http"}, None, send)  # type: ignore[arg-type]  # as above
    assert len(sent) == 2


async def test_the_bytes_of_a_body_are_counted_as_they_come() -> None:
    counted = CountedBody(request([b"ab", b"cde"]).receive, Limits(body_bytes=1024), "body_bytes")
    counted.check(1024)
    with pytest.raises(TooLargeError) as refused:
        counted.check(1025)
    assert refused.value.detail == "the body may have at most 1024 bytes (limits.body_bytes)"
    first, second = await counted.receive(), await counted.receive()
    assert (first["body"], second["body"], counted.count) == (b"ab", b"cde", 5)

    async def gone() -> Any:  # noqa: ANN401 -- any message of ASGI
        return {"type": "http.disconnect"}

    counted.source = gone
    assert await counted.receive() == {"type": "http.disconnect"}
    assert counted.count == 5


@pytest.mark.parametrize(
    ("declared", "media"),
    [(" Application/JSON ; charset=utf-8; a", "application/json"), ("text/plain", "text/plain"), (None, "")],
)
def test_the_type_of_a_body_has_no_case_and_no_parameters(declared: str | None, media: str) -> None:
    assert media_type_of(request(content_type=declared) if declared else request()) == media


@pytest.mark.parametrize(
    ("media", "is_json"),
    [
        ("application/json", True),
        ("application/problem+json", True),
        ("text/json", False),
        ("application/xjson", False),
        ("json", False),
        ("", False),
    ],
)
def test_json_is_declared_as_such(media: str, *, is_json: bool) -> None:
    assert bodies._says_json(request(content_type=media)) == is_json


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * depth + closing * depth).encode()


def test_json_is_nested_at_most_32_deep() -> None:
    assert strict_json(nested(32)) == json.loads(nested(32))
    mixed = b'{"a":' * 16 + nested(16) + b"}" * 16
    assert strict_json(mixed) == json.loads(mixed)
    many = b"[" + b"[]," * 100 + b"{}]"
    assert len(strict_json(many)) == 101
    beside = b"[" + nested(33) + b"]"
    for deep in (nested(33), b'{"a":' * 17 + nested(16) + b"}" * 17, beside, b"[1, " + nested(32) + b"]"):
        with pytest.raises(json.JSONDecodeError) as refused:
            strict_json(deep)
        assert (refused.value.msg, refused.value.doc, refused.value.pos) == ("not strict JSON", "", 0)


class Pair(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    a: int
    b: list[int] = []


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        (b"{", [{"type": "json_invalid", "loc": ("body",)}]),
        (b'{"a": 1, "a": 2}', [{"type": "json_invalid", "loc": ("body",)}]),
        (
            json.dumps({str(n): 0 for n in range(1025)}).encode(),
            [{"type": "too_many_faults", "loc": ("body",)}],
        ),
        (
            json.dumps({"a": 1, "b": ["x"] * 1001}).encode(),
            [{"type": "too_many_faults", "loc": ("body",)}],
        ),
        (
            b'{"a": "secret", "c": 1}',
            [
                {"type": "int_type", "loc": ("body", "a"), "msg": "Input should be a valid integer"},
                {"type": "extra_forbidden", "loc": ("body", "c"), "msg": "Extra inputs are not permitted"},
            ],
        ),
    ],
)
def test_a_body_of_another_form_is_refused_without_what_was_sent(content: bytes, faults: list[Any]) -> None:
    schema = TypeAdapter[Any](Pair)
    assert bodies._valid(schema, b'{"a": 1, "b": [2]}') == Pair(a=1, b=[2])
    with pytest.raises(RequestValidationError) as refused:
        bodies._valid(schema, content)
    assert refused.value.errors() == faults


def test_names_and_faults_are_told_up_to_a_number() -> None:
    names = {str(n): 0 for n in range(1024)}
    assert bodies._valid(TypeAdapter[Any](dict[str, int]), json.dumps(names).encode()) == names
    assert bodies._valid(TypeAdapter[Any](list[int]), json.dumps([0] * 1025).encode()) == [0] * 1025
    with pytest.raises(RequestValidationError) as refused:
        bodies._valid(TypeAdapter[Any](Pair), json.dumps({"a": 1, "b": ["x"] * 1000}).encode())
    assert len(refused.value.errors()) == 1000


async def test_long_bodies_are_read_in_threads_and_the_longest_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    async def run(executor: object, work: Any) -> Any:  # noqa: ANN401 -- what it returns
        asked.append(executor)
        return work()

    monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", run)
    for size, executor in ((2**13, "none"), (2**13 + 1, None), (2**18, None), (2**18 + 1, bodies._ONE_BY_ONE)):
        asked.clear()
        assert await bodies._aside(size, lambda: "done") == "done"
        assert asked == ([] if executor == "none" else [executor])


def test_arrays_and_signed_messages_are_described() -> None:
    binary = {"type": "string", "format": "binary"}
    array = binary | {"description": "<f8 array in NumPy's .npy format, version 1.0"}
    assert documented("the answer", "<f8", {"type": "array"}) == {
        "description": "the answer",
        "content": {"application/x-npy": {"schema": array}, "application/json": {"schema": {"type": "array"}}},
    }
    assert body("a message") == {"description": "a message", "content": {SIGNED: {"schema": binary}}}


async def test_a_signed_message_has_its_own_type() -> None:
    message = Signed(b"body", bytes(64))
    assert signed_of(request(content_type=SIGNED), message.to_bytes()) == message
    with pytest.raises(UnsupportedMediaError) as refused:
        signed_of(request(content_type="application/json"), message.to_bytes())
    assert refused.value.detail == f"the body must be {SIGNED}"
    response = signed_response(message.to_bytes())
    assert (response.body, response.media_type, response.status_code) == (message.to_bytes(), SIGNED, 200)
    asked = request([message.to_bytes()], content_type=SIGNED)
    asked.scope["app"] = app = type("App", (), {})()
    app.state = type("State", (), {"limits": Limits(body_bytes=1024)})()
    assert await read_signed(asked) == message
    longer = request([b"x" * 1025], content_type=SIGNED)
    longer.scope["app"] = app
    with pytest.raises(TooLargeError) as too_large:
        await read_signed(longer)
    assert too_large.value.detail == "the body may have at most 1024 bytes (limits.body_bytes)"


async def with_dependency() -> None:
    """Nothing."""


def routed() -> FastAPI:
    """An application with routes of each kind."""
    app = FastAPI()
    app.router.route_class = StrictRoute
    app.state.limits = Limits(json_bytes=1024, run_bytes=2048)
    install(app)

    @app.put("/small")
    async def small(pair: Pair) -> int:
        return pair.a

    @app.put("/large")
    @large_json
    async def large(pair: Pair) -> int:
        return pair.a

    @app.put("/raw")
    async def raw(request: Request) -> Response:
        return Response(str(len(await request.body())))

    return app


@pytest.mark.parametrize(
    ("path", "media", "size", "status", "told"),
    [
        ("/small", "application/json", 1024, 200, "7"),
        ("/small", "application/json", 1025, 413, "the body may have at most 1024 bytes (limits.json_bytes)"),
        ("/large", "application/json", 2048, 200, "7"),
        ("/large", "application/json", 2049, 413, "the body may have at most 2048 bytes (limits.run_bytes)"),
        ("/raw", "application/json", 1024, 200, "1024"),
        ("/raw", "application/json", 1025, 413, "the body may have at most 1024 bytes (limits.json_bytes)"),
        ("/raw", "text/plain", 3000, 200, "3000"),
        ("/small", "text/plain", 20, 415, "the body must be application/json"),
        ("/small", "text/plain", 0, 422, "the request does not have the form that is documented"),
        ("/small", "application/json", 0, 422, "the request does not have the form that is documented"),
    ],
)
@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_route_takes_as_much_json_as_it_says(  # noqa: PLR0913 -- a table
    path: str, media: str, size: int, status: int, told: str, *, is_announced: bool
) -> None:
    content = b'{"a": 7}'.ljust(size)[:size]

    async def pieces() -> AsyncIterator[bytes]:
        yield content[:9]
        yield content[9:]

    app = routed()
    app.state.metrics = Metrics()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        sent = content if is_announced else pieces()
        answer = await client.put(path, content=sent, headers={"Content-Type": media})
    assert answer.status_code == status
    assert (answer.text if status == 200 else answer.json()["detail"]) == told


async def by_path(request: Request, name: str) -> Response:
    return Response(name)


async def by_header(request: Request, name: Annotated[str, Header()]) -> Response:
    return Response(name)


async def by_cookie(request: Request, name: Annotated[str, Cookie()]) -> Response:
    return Response(name)


async def by_body(request: Request, pair: Pair) -> Response:
    return Response(str(pair.a))


async def by_request(request: Request) -> Response:
    return Response()


async def by_response(request: Request, response: Response) -> Response:
    return response


async def in_background(request: Request, tasks: BackgroundTasks) -> Response:
    return Response()


async def typed(request: Request) -> int:
    return 1


async def nothing() -> Response:
    return Response()


def test_only_a_route_that_takes_nothing_but_its_request_is_called_directly() -> None:
    app, odd = routed(), (by_header, by_cookie, by_body, by_response, in_background, typed, nothing)
    app.add_api_route("/path/{name}", by_path)
    app.add_api_route("/query", by_path)
    app.add_api_route("/depends", by_request, dependencies=[Depends(with_dependency)])
    app.add_api_route("/alone", by_request)
    for endpoint in odd:
        app.add_api_route(f"/{endpoint.__name__}", endpoint)
    direct = {route.path for route in app.routes if isinstance(route, StrictRoute) and route._takes_request_alone()}
    assert direct == {"/raw", "/alone"}
