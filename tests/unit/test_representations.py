"""How a service's answers are represented: tags and 304, gzip, 406, and queries that name something else."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.testclient import TestClient

from parley.common.service.application import EVENTS_MEDIA_TYPE, answers, event_stream, service
from parley.common.service.http.representations import choose, compressible, revalidated, tag_of
from parley.common.service.prometheus import Metrics
from parley.common.service.settings import Limits
from parley.common.service.tokens import KnownToken, NamedCaller, hash_token
from parley.learner.api import routes

PRIVATE = "private, no-cache"
LONG = "x" * 5000


def example_app(asked: list[str]) -> FastAPI:
    """A service with a route of each kind, which notes in ``asked`` what reached a route."""

    async def ready() -> None:
        pass

    tokens = [KnownToken(hash_token("token"), NamedCaller("somebody"))]
    app = service("example", "for tests", tokens=tokens, metrics=Metrics(), ready=ready, limits=Limits())

    @app.get("/v1/long")
    @compressible
    @revalidated
    def show_long(size: Annotated[int, Query(ge=0)] = 5000, note: Annotated[str, Header()] = "") -> str:
        return "x" * size

    @app.get("/v1/secret")
    def show_secret() -> str:
        return LONG

    @app.put("/v1/files", responses={200: {"content": {"text/csv": {}}}})
    def take_file() -> str:
        asked.append("files")
        return "taken"

    @app.delete("/v1/files", status_code=204)
    def remove_file() -> None:
        pass

    @app.get("/v1/pieces", response_class=StreamingResponse)
    @compressible
    @revalidated
    def show_pieces() -> StreamingResponse:
        return StreamingResponse(iter([LONG, LONG]), headers={"ETag": tag_of(b"pieces")}, media_type="text/plain")

    async def ticks() -> AsyncIterator[str]:
        yield f"event: tick\ndata: {LONG}\n\n"

    @answers(app, routes.WATCH_ALL, response_class=StreamingResponse, responses=event_stream(tick=dict[str, int]))
    async def watch(request: Request) -> StreamingResponse:
        return StreamingResponse(ticks(), media_type=EVENTS_MEDIA_TYPE)

    @app.post("/v1/page", include_in_schema=False)
    async def page(request: Request) -> Response:
        return Response("page")

    return app


@pytest.fixture(scope="module")
def asked() -> list[str]:
    return []


@pytest.fixture(scope="module")
def client(asked: list[str]) -> Iterator[TestClient]:
    headers = {"Authorization": "Bearer token", "Accept-Encoding": "identity"}
    with TestClient(example_app(asked), headers=headers) as client:
        yield client


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("", "a/x"),
        (" */* ", "a/x"),
        ("text/html, */*;q=0.1", "a/x"),
        ("b/y", "b/y"),
        ("B/Y; Version=2 ; q=0.3", "b/y"),
        ("a/*, b/y", "b/y"),
        ("a/x;q=0.5, b/y;q=0.4", "a/x"),
        ("b/*;q=0.5, a/x;q=0.4", "b/y"),
        ("a/x;q=0, */*", "b/y"),
        ("a/x;q=nonsense", "a/x"),
        ("a/x;q=7", "a/x"),
        ("a/x;q=0.000, b/y;q=0", None),
        ("a/z", None),
        ("text/html", None),
        ("*/*;q=0", None),
        (", ;q=1", None),
    ],
)
def test_the_best_of_what_is_accepted_is_chosen(accepted: str, chosen: str | None) -> None:
    assert choose(accepted, ("a/x", "b/y")) == chosen


def test_nothing_may_be_stored_unless_its_route_says_so(client: TestClient) -> None:
    for path in ("/v1/secret", "/v1/nothing", "/healthz", "/metrics", "/docs", "/v1/long?size=-1"):
        assert client.get(path).headers["cache-control"] == "no-store"
    assert client.get("/v1/secret", headers={"Authorization": ""}).headers["cache-control"] == "no-store"
    assert client.get("/v1/long").headers["cache-control"] == PRIVATE
    assert client.get("/openapi.json").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["/v1/long", "/v1/pieces", "/openapi.json"])
def test_a_caller_that_has_the_answer_gets_no_other(client: TestClient, path: str) -> None:
    first = client.get(path)
    tag = first.headers["etag"]
    assert client.head(path).headers["etag"] == tag
    for shown in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = client.get(path, headers={"If-None-Match": shown})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
        assert again.headers["cache-control"] == first.headers["cache-control"]
        assert "content-type" not in again.headers
    for other in ('"other"', tag.strip('W/"'), ""):
        assert client.get(path, headers={"If-None-Match": other}).content == first.content


def test_a_tag_is_that_of_the_content(client: TestClient) -> None:
    tags = {client.get(f"/v1/long?size={size}").headers["etag"] for size in (1, 2, 5000)}
    assert len(tags) == 3
    assert "etag" not in client.get("/v1/long?size=-1").headers
    assert "etag" not in client.get("/v1/secret").headers


@pytest.mark.parametrize("path", ["/v1/long", "/v1/pieces", "/openapi.json", "/docs"])
def test_a_long_answer_is_compressed_for_a_caller_that_accepts_it(client: TestClient, path: str) -> None:
    plain = client.get(path)
    assert "content-encoding" not in plain.headers
    for accepted in ("gzip", "br;q=1.0, gzip;q=0.8", "*", "GZIP"):
        answer = client.get(path, headers={"Accept-Encoding": accepted})
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
        assert answer.headers.get("etag") == plain.headers.get("etag")
        assert path == "/docs" or answer.content == plain.content  # which has another nonce each time
    for accepted in ("gzip;q=0", "identity, gzip;q=0.5", "br", "", "*;q=0"):
        assert "content-encoding" not in client.get(path, headers={"Accept-Encoding": accepted}).headers


def test_what_is_compressed_is_gzip(client: TestClient) -> None:
    with client.stream("GET", "/v1/long", headers={"Accept-Encoding": "gzip"}) as answer:
        content = b"".join(answer.iter_raw())
    assert gzip.decompress(content) == f'"{LONG}"'.encode()
    assert len(content) == int(answer.headers["content-length"]) < 100


@pytest.mark.parametrize("path", ["/v1/secret", "/v1/long?size=900", "/v1/events", "/metrics", "/v1/nothing"])
def test_no_other_answer_is_compressed(client: TestClient, path: str) -> None:
    answer = client.get(path, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in answer.headers
    assert "vary" not in answer.headers


@pytest.mark.parametrize(
    ("accepted", "status"),
    [("text/csv", 200), ("application/*;q=0.1", 200), ("text/html", 406), ("application/json;q=0", 406)],
)
def test_what_gives_nothing_that_is_accepted_does_nothing(
    client: TestClient, asked: list[str], accepted: str, status: int
) -> None:
    asked.clear()
    answer = client.put("/v1/files", headers={"Accept": accepted})
    assert (answer.status_code, asked) == (status, ["files"] if status == 200 else [])
    if status == 406:
        assert answer.json()["type"] == "urn:parley:problem:not-acceptable"
        assert answer.json()["offered"] == ["application/json", "text/csv"]


def test_an_answer_without_a_body_is_always_acceptable(client: TestClient) -> None:
    assert client.delete("/v1/files", headers={"Accept": "text/html"}).status_code == 204


@pytest.mark.parametrize(
    ("query", "faults"),
    [
        ("size=1", []),
        ("", []),
        ("size=1&sise=2", [("sise", "is not known here")]),
        ("note=1", [("note", "is not known here")]),  # a header's name
        ("size", [("size", "must be a whole number")]),
        ("&&x=&y", [("x", "is not known here"), ("y", "is not known here")]),
        ("size=1&size=2", [("size", "is given more than once")]),
        ("%3Cscript%3E=1", [("?", "is not known here")]),
    ],
)
def test_a_query_names_the_parameters_of_its_route(
    client: TestClient, query: str, faults: list[tuple[str, str]]
) -> None:
    answer = client.get(f"/v1/long?{query}")
    assert answer.status_code == (422 if faults else 200)
    if faults:
        named = [(fault["loc"], fault["reason"]) for fault in answer.json()["errors"]]
        assert named == [(["query", name], reason) for name, reason in faults]


def test_a_page_may_be_opened_with_any_query(client: TestClient) -> None:
    assert client.post("/v1/page?code=1").text == "page"
    assert client.get("/docs?from=mail").status_code == 200


def test_options_says_what_a_path_takes(client: TestClient) -> None:
    answer = client.options("/v1/files")
    assert (answer.status_code, answer.content, answer.headers["allow"]) == (204, b"", "DELETE, OPTIONS, PUT")
    assert client.options("/v1/files", headers={"Authorization": ""}).status_code == 401
    assert client.options("/v1/nothing").status_code == 404


def test_a_stream_of_events_is_described_by_kind(client: TestClient) -> None:
    document: dict[str, Any] = client.get("/openapi.json").json()
    (event,) = document["paths"]["/v1/events"]["get"]["responses"]["200"]["content"][EVENTS_MEDIA_TYPE]["x-itemSchema"][
        "oneOf"
    ]
    assert event["properties"]["event"] == {"const": "tick"}
    assert event["properties"]["data"]["contentSchema"]["additionalProperties"] == {"type": "integer"}
