"""HTTP as others speak it: offers to upgrade, HEAD, HTTP/1.0, byte order marks; by raw bytes, for clients hide them."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import pytest
import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from parley.common.service.application import service
from parley.common.service.http.connections import TAKE_OVER, BoundedServer
from parley.common.service.prometheus import Metrics
from parley.common.service.settings import Limits
from parley.common.service.tokens import KnownToken, NamedCaller, hash_token

TOKEN = "a-token"
AUTHORIZATION = f"Authorization: Bearer {TOKEN}"


class Words(BaseModel):
    word: str


def echo_app() -> FastAPI:
    """A service with a route of each kind."""

    async def ready() -> None:
        pass

    async def tick() -> AsyncIterator[str]:
        yield "one "
        yield "two "

    tokens = [KnownToken(hash_token(TOKEN), NamedCaller("somebody"))]
    app = service("echo", "for tests", tokens=tokens, metrics=Metrics(), ready=ready, limits=Limits())

    @app.post("/v1/words")
    async def say(words: Words) -> str:
        return words.word

    @app.get("/v1/words")
    async def show(size: Annotated[int, Query()] = 3) -> str:
        return "x" * size

    @app.get("/v1/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(tick(), media_type="text/plain")

    @app.get("/v1/connect")
    async def connect(request: Request) -> Response:
        assert request.headers["upgrade"] == "made-up"
        _, writer = request.scope["state"][TAKE_OVER](b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        writer.write(b"another protocol")
        writer.close()
        return Response(status_code=101)

    return app


class _Server(BoundedServer):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


async def _nothing() -> None:
    pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where the service listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        (_, free) = listening.getsockname()
        config = uvicorn.Config(echo_app(), access_log=False, log_config=None, ws="none", lifespan="off")
        server = _Server(config, Limits(), _nothing)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        yield free
        server.should_exit = True
        thread.join()


def ask(port: int, *requests: bytes, pieces: int = 1) -> bytes:
    """All that comes back on one connection, until the service or its silence ends it."""
    sent = b"".join(requests)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        size = -(-len(sent) // pieces)
        for start in range(0, len(sent), size):
            line.sendall(sent[start : start + size])
        received = b""
        while piece := line.recv(2**16):
            received += piece
    return received


def request(start: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [start, "Host: here", AUTHORIZATION, *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


LAST = request("GET /v1/words HTTP/1.1", "Connection: close")


@pytest.mark.parametrize(
    "offer",
    [
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
        ("Upgrade: TLS/1.2", "Connection: Upgrade"),
        ("upgrade: websocket", "connection: keep-alive, upgrade"),
        ("Connection: upgrade", "Upgrade: a", "Upgrade: b, c/1"),
    ],
)
@pytest.mark.parametrize("pieces", [1, 40])
def test_an_offer_to_upgrade_is_ignored(port: int, offer: tuple[str, ...], pieces: int) -> None:
    request_bytes = request("POST /v1/words HTTP/1.1", *offer, body=b'{"word": "hello"}')
    answers = ask(port, request_bytes, request_bytes, LAST, pieces=pieces)
    print(answers.decode())
    assert answers.count(b"HTTP/1.1 200 OK") == 3  # no bytes of a body are taken for a request
    assert answers.count(b'"hello"') == 2
    assert answers.endswith(b'"xxx"')


def test_a_chunked_body_follows_an_offer_to_upgrade(port: int) -> None:
    head = request(
        "POST /v1/words HTTP/1.1",
        "Connection: Upgrade",
        "Upgrade: h2c",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    )
    answers = ask(port, head, b'9\r\n{"word": \r\n9\r\n"in two"}\r\n0\r\n\r\n', LAST)
    assert (answers.count(b"200 OK"), b'"in two"' in answers) == (2, True)


def test_a_route_may_take_an_offer(port: int) -> None:
    answer = ask(port, request("GET /v1/connect HTTP/1.1", "Connection: Upgrade", "Upgrade: made-up"))
    assert answer == b"HTTP/1.1 101 Switching Protocols\r\n\r\nanother protocol"


def test_what_is_no_http_is_refused(port: int) -> None:
    assert ask(port, b"\x16\x03\x01 no HTTP\r\n\r\n").startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("hosts", ["", "Host: here\r\nHOST: there\r\n"])
def test_a_request_names_one_host(port: int, hosts: str) -> None:
    refused = ask(port, f"GET /healthz HTTP/1.1\r\n{hosts}\r\n".encode())
    assert refused.startswith(b"HTTP/1.1 400 ")
    assert b"once is right" in refused


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/v1/words?size=70000"])
def test_head_is_answered_as_get_without_a_body(port: int, path: str) -> None:
    last = ("Connection: close",)
    head_answer, got = (ask(port, request(f"{method} {path} HTTP/1.1", *last)) for method in ("HEAD", "GET"))
    head, _, body = head_answer.partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 OK", b"")
    if path != "/metrics":  # which counts what was asked
        length = len(got.partition(b"\r\n\r\n")[2])
        assert f"content-length: {length}".encode() in head.split(b"\r\n")


def test_head_of_a_stream_ends(port: int) -> None:
    answers = ask(port, request("HEAD /v1/stream HTTP/1.1"), LAST)
    assert (answers.count(b"200 OK"), b"one" in answers, answers.endswith(b'"xxx"')) == (2, False, True)


def test_http_1_0_gets_no_chunks(port: int) -> None:
    head, _, body = ask(port, request("GET /v1/stream HTTP/1.0")).partition(b"\r\n\r\n")
    assert body == b"one two "
    assert b"connection: close" in head
    assert b"transfer-encoding" not in head
    assert b"transfer-encoding: chunked" in ask(port, request("GET /v1/stream HTTP/1.1", "Connection: close"))


def test_http_1_0_gets_a_known_length(port: int) -> None:
    head, _, body = ask(port, b"GET /healthz HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head


def test_a_byte_order_mark_before_json_is_ignored(port: int) -> None:
    body = b'\xef\xbb\xbf{"word": "hello"}'
    assert b'"hello"' in ask(port, request("POST /v1/words HTTP/1.1", "Connection: close", body=body))


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "[::1]:{}", "learner.example"])
def test_the_whole_address_may_be_asked_for(port: int, host: str) -> None:
    def answer(target: str) -> bytes:
        return ask(port, request(f"GET {target} HTTP/1.1", "Connection: close"))

    for scheme in ("http", "https", "HTTP"):
        at = f"{scheme}://{host.format(port)}"
        assert b"200 OK" in answer(f"{at}/healthz")
        assert answer(f"{at}/v1/words?size=2").endswith(b'"xx"')
        for root in (at, f"{at}?size=2", f"{at}/"):
            assert answer(root).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(("method", "status"), [("DELETE", b"405"), ("OPTIONS", b"204")])
def test_every_method_of_a_path_is_named(port: int, method: str, status: bytes) -> None:
    answer = ask(port, request(f"{method} /v1/words HTTP/1.1", "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 %b " % status)
    assert b"allow: GET, HEAD, OPTIONS, POST\r\n" in answer


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_refusal_reaches_a_client_that_still_sends_its_last_request(port: int, version: str) -> None:
    """Python's urllib closes each connection after one request; if the service closed it at once, it would be reset."""
    head = (
        f"POST /v1/words HTTP/{version}\r\nHost: here\r\nConnection: close\r\nContent-Length: 4000000\r\n\r\n".encode()
    )
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
            line.sendall(head)
            assert line.recv(2**16).startswith(b"HTTP/1.1 401 "), "before the body is sent"
            for _ in range(40):
                line.sendall(bytes(100_000))
            while line.recv(2**16):
                pass


def test_who_waits_before_sending_a_body_is_let_go(port: int) -> None:
    head = request("PATCH /v1/words HTTP/1.1", "Connection: close", "Expect: 100-continue", "Content-Length: 9")
    assert ask(port, head).startswith(b"HTTP/1.1 405 ")
