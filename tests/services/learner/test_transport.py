"""The learner's own transport: warm connections, whole responses, clear errors."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from parley.common.client.endpoints import PeerEntry
from parley.common.client.peer import Line
from parley.common.client.transport import (
    LONGEST_ANSWER,
    Connection,
    ConnectionPool,
    Connections,
    PeerRequest,
    PeerResponse,
    _Incoming,
)
from parley.common.errors import InvalidInputError
from parley.common.service.serve import tls_context
from parley.common.service.settings import Tls
from tests.support.certificates import make_certificates
from tests.support.lines import closing_line

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def port_of(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server that handles each connection by ``serve``; at the end all of them are closed."""
    connections: list[asyncio.Task[None] | None] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        with closing(writer), suppress(OSError):
            await serve(reader, writer)
            await writer.drain()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*filter(None, connections))


@asynccontextmanager
async def line_of(serve: Serve) -> AsyncIterator[Line]:
    """A line to a server that handles each connection by ``serve``."""
    async with port_of(serve) as port, closing_line(Line(entry_of(f"http://127.0.0.1:{port}"))) as line:
        yield line


def entry_of(url: str, **files: Path) -> PeerEntry:
    """A service at a URL."""
    return PeerEntry.model_validate({"name": "p", "url": url, "token": "t"} | files)


async def request_of(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """A request's head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) if b"ontent-" in head else 0
    return head, await reader.readexactly(length)


class Echo:
    """Answers each request with its body, on as many connections as are opened."""

    def __init__(self, per_connection: int = 1000) -> None:
        self.connections, self.per_connection = 0, per_connection

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for _ in range(self.per_connection):
            try:
                _, body = await request_of(reader)
            except asyncio.IncompleteReadError:
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()


async def test_keeps_its_connection() -> None:
    async with line_of(echo := Echo()) as line:
        for body in (b"one", b"", b"x" * 300_000):
            assert (await line.ask("PUT", "/", body)).content == body
        assert echo.connections == 1
        await asyncio.gather(*(line.ask("PUT", "/", b"at once") for _ in range(3)))
        assert echo.connections == 3


async def test_opens_another_where_the_server_has_closed() -> None:
    async with line_of(echo := Echo(per_connection=1)) as line:
        for count in (1, 2, 3):
            assert (await line.ask("PUT", "/", b"hello")).content == b"hello"
            assert echo.connections == count
            await asyncio.sleep(0.05)  # for the closing to arrive; if it does not, the next request says so


@pytest.mark.parametrize(
    ("response", "content"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
async def test_reads_every_kind_of_response(response: bytes, content: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(response)
        writer.close()

    async with line_of(serve) as line:
        assert (await line.ask("GET", "/")).content == content


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
        b"not HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Endless: y\r\n" * 10_000,
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X-Trailer: y\r\n" * 10_000,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n",
    ],
)
async def test_half_a_response_is_an_error_and_not_an_answer(response: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(response)
        writer.close()

    async with line_of(serve) as line:
        with pytest.raises(httpx.TransportError):
            await line.ask("GET", "/")


@pytest.mark.parametrize(
    "surplus", [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", b"HTTP/1.1 100 Continue\r\n\r\n", b"junk"]
)
async def test_what_comes_after_a_response_is_not_taken_for_the_next(surplus: bytes) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while not reader.at_eof():
            try:
                await request_of(reader)
            except asyncio.IncompleteReadError:
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue" + surplus)
        writer.close()

    async with line_of(serve) as line:
        for count in (1, 2):
            try:
                assert (await line.ask("GET", "/")).content == b"true"
            except httpx.TransportError:
                assert surplus == b"junk"
            assert connections == count


@pytest.mark.parametrize("value", ["one\r\nX-Other: two", "one\nX-Other: two", "one\0"])
async def test_a_header_that_would_be_two_is_not_sent(value: str) -> None:
    async with line_of(echo := Echo()) as line:
        with pytest.raises(httpx.LocalProtocolError):
            await line.ask("GET", "/", b"", ("X-One", value))
        assert (await line.ask("GET", "/")).content == b""
        assert echo.connections == 1


async def test_speaks_tls_to_whom_the_authority_vouches_for(tmp_path: Path) -> None:
    files, strangers = make_certificates(tmp_path / "ours"), make_certificates(tmp_path / "theirs")
    tls = tls_context(Tls(certificate=files.certificate, key=files.key))

    def line_trusting(authority: Path) -> Line:
        return Line(entry_of(f"https://127.0.0.1:{port}", ca=authority))

    async with port_of(Echo(), tls) as port:
        async with closing_line(line_trusting(files.authority)) as line:
            for body in (b"one", b"two"):
                assert (await line.ask("PUT", "/", body)).content == body
        async with closing_line(line_trusting(strangers.authority)) as line:
            with pytest.raises(httpx.NetworkError, match="CERTIFICATE_VERIFY_FAILED"):
                await line.ask("PUT", "/", b"secret")


async def test_shows_a_certificate_to_whom_wants_to_see_one(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    tls = tls_context(Tls(certificate=files.certificate, key=files.key, client_ca=files.authority))
    async with port_of(Echo(), tls) as port:
        entry = entry_of(f"https://127.0.0.1:{port}", ca=files.authority)
        with_certificate = entry.model_copy(update={"certificate": files.certificate, "key": files.key})
        async with closing_line(Line(with_certificate)) as line:
            assert (await line.ask("PUT", "/", b"hello")).content == b"hello"
        async with closing_line(Line(entry)) as line:
            with pytest.raises(httpx.TransportError):
                await line.ask("PUT", "/", b"hello")


def test_certificates_that_cannot_be_shown_are_refused(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    fields = {"name": "p", "url": "https://127.0.0.1:1", "token": "t", "certificate": files.certificate}
    with pytest.raises(ValidationError, match="both certificate and key"):
        PeerEntry.model_validate(fields)
    with pytest.raises(InvalidInputError, match="cannot be used as a certificate"):
        Line(PeerEntry.model_validate(fields | {"key": files.certificate}))


async def test_nobody_there_is_an_error() -> None:
    with pytest.raises(httpx.NetworkError):
        await Line(entry_of("http://127.0.0.1:1")).ask("GET", "/")


async def test_no_more_of_a_response_is_read_than_anybody_wants() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"100000\r\n" + bytes(2**20) + b"\r\n"
        for _ in range(2 * LONGEST_ANSWER // 2**20):
            writer.write(piece)
            await writer.drain()

    async with line_of(serve) as line:
        assert LONGEST_ANSWER < len((await line.ask("GET", "/")).content) < 2 * LONGEST_ANSWER


async def test_a_path_of_the_url_goes_before_that_of_the_request() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(head), head))

    async with port_of(serve) as port:
        for url in (f"http://127.0.0.1:{port}/behind/here", f"http://127.0.0.1:{port}/behind/here/"):
            async with closing_line(Line(entry_of(url))) as line:
                head = (await line.ask("GET", "/v1/x?a=b")).content
            assert head.startswith(b"GET /behind/here/v1/x?a=b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port)


async def test_a_cancelled_request_leaves_no_connection_behind() -> None:
    heard, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        heard.set()
        assert await reader.read() == b""
        closed.set()
        writer.close()

    async with line_of(serve) as line:
        task = asyncio.create_task(line.ask("GET", "/"))
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(10):
            await closed.wait()


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Endless: y\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Endless: ", b"yyyyyyyyyyyyyyy"),
        (b"HTTP/1.1 200 ", b"OK OK OK OK OK "),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"extension;"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: y\r\n"),
    ],
    ids=["headers", "header", "line", "hints", "chunk", "trailers"],
)
async def test_a_head_that_does_not_end_is_not_read_for_ever(begin: bytes, more: bytes) -> None:
    written = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await request_of(reader)
        writer.write(begin)
        while written < 2**25:
            writer.write(piece := more * (2**14 // len(more)))
            await writer.drain()
            written += len(piece)

    async with line_of(serve) as line:
        with pytest.raises(httpx.RemoteProtocolError):
            await line.ask("GET", "/")
    assert written < 2**25, "most of it lies in the system's buffers"


class Refusing:
    """A service that takes only the token ``new``, and notes the token and the path of each request."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    async def send(self, request: PeerRequest) -> PeerResponse:
        token = dict(request.headers)["Authorization"]
        self.requests.append((token, request.target))
        return PeerResponse(200 if token == "Bearer new" else 401, {}, b"")

    async def close(self) -> None:
        pass


async def test_a_token_that_has_changed_is_read_again_and_the_request_sent_once_more(tmp_path: Path) -> None:
    file, service = tmp_path / "token", Refusing()
    file.write_text("old")
    entry = PeerEntry.model_validate({"name": "p", "url": "http://127.0.0.1:1", "token_file": file})
    line = Line(entry, service)
    assert (await line.ask("GET", "/v1/party")).status == 401
    assert service.requests == [("Bearer old", "/v1/party")], "the same token would be refused again"
    file.write_text("new")
    assert (await line.ask("GET", "/v1/party")).status == 200
    assert service.requests[1:] == [("Bearer old", "/v1/party"), ("Bearer new", "/v1/party")]
    file.unlink()
    assert (await line.ask("GET", "/v1/budget")).status == 200
    assert service.requests[3:] == [("Bearer new", "/v1/budget")]


@pytest.mark.parametrize(
    ("request_", "head"),
    [
        (PeerRequest("GET", "/x?y"), b"GET /x?y HTTP/1.1\r\n\r\n"),
        (
            PeerRequest("GET", "/", [("A", "b"), ("C", "")], b"xyz"),
            b"GET / HTTP/1.1\r\nA: b\r\nC: \r\nContent-Length: 3\r\n\r\n",
        ),
        (PeerRequest("PUT", "/"), b"PUT / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
        (PeerRequest("POST", "/"), b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
        (PeerRequest("DELETE", "/"), b"DELETE / HTTP/1.1\r\n\r\n"),
    ],
)
def test_a_head_has_its_lines_and_the_length_of_a_body(request_: PeerRequest, head: bytes) -> None:
    assert request_.head() == head
    assert request_.longest == 2**26
    for odd in ("\r", "\n", "\r\n", "\0", "é"):
        with pytest.raises(httpx.LocalProtocolError, match="the end of a line within a line, or no ASCII"):
            PeerRequest("GET", "/", [("A", f"b{odd}")]).head()


def incoming(*pieces: bytes) -> _Incoming:
    """A response after these pieces have come."""
    made = _Incoming()
    for piece in pieces:
        made.feed(piece)
    return made


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("pieces", "is_complete", "leaves_open"),
    [
        ([OK + b"Content-Length: 2\r\n\r\n", b"o"], False, False),
        ([OK + b"Content-Length: 2\r\n\r\n", b"o", b"k"], True, True),
        ([OK + b"Content-Length: 2\r\nConnection: close\r\n\r\nok"], True, False),
        ([OK + b"Content-Length: 2\r\n\r\nok" + OK], True, False),
        ([b"HTTP/1.1 103 Hints\r\nContent-Length: 9\r\nX: y\r\n\r\n", OK + b"content-length: 2\r\n\r\nok"], True, True),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\no\r\n", b"1\r\nk\r\n0\r\nX-Last: 1\r\n\r\n"], True, True),
        ([OK + b"\r\nok"], False, False),
        ([OK + b"\r\nok", b""], True, False),
    ],
)
def test_a_response_is_read_piece_by_piece(pieces: list[bytes], *, is_complete: bool, leaves_open: bool) -> None:
    response = incoming(*pieces)
    assert (response.is_complete, response.leaves_open) == (is_complete, leaves_open)
    assert (response.status, response.size) == (200, len(b"".join(response.pieces)))
    assert b"".join(response.pieces) == b"ok"[: response.size]
    assert response.headers.keys() <= {b"content-length", b"transfer-encoding", b"connection"}
    assert b"x-last" not in response.headers


def test_the_first_header_of_a_name_counts() -> None:
    response = incoming(OK + b"X-A: 1\r\nx-a: 2\r\nB: 3\r\n\r\n")
    assert response.headers == {b"x-a": b"1", b"b": b"3"}
    begun = incoming(b"HTTP/1.1 103 Hints\r\nX: y\r\n\r\n")
    assert (begun.status, begun.headers, begun.is_complete, begun.leaves_open) == (0, {}, False, False)
    after = incoming(OK + b"Content-Length: 2\r\n\r\nok", b"HTTP/1.1 500 No\r\nContent-Length: 2\r\nX: y\r\n\r\nno")
    assert (after.status, after.pieces, after.leaves_open) == (200, [b"ok"], False)


CLOSED = "the connection was closed in mid-response"
ENDLESS = "a response whose head or framing does not end"


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([b""], CLOSED),
        ([OK, b""], CLOSED),
        ([OK + b"Content-Length: 3\r\n\r\nok", b""], CLOSED),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n", b""], CLOSED),
        ([OK + b"X: " + b"y" * (2**16 - 19)], ENDLESS),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", b"0\r\nX: ", b"y" * 2**16], ENDLESS),
    ],
)
def test_what_is_no_whole_response_is_an_error_in_words(pieces: list[bytes], words: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError) as failed:
        incoming(*pieces)
    assert str(failed.value) == words
    incoming(OK + b"X: " + b"y" * (2**16 - 20))
    incoming(OK + b"X: y\r\nContent-Length: 0\r\n\r\n" + b"\r\n" * 2**15)
    incoming(OK + b"Content-Length: 200000\r\n\r\n", *[b"x" * 50_000] * 3)
    with pytest.raises(httpx.RemoteProtocolError) as no_http:
        incoming(b"no HTTP")
    assert str(no_http.value) not in {"", "None"}


class Wire:
    """A connection's streams: what is written, and pieces to read; one may be an error."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self.pieces, self.written, self.asked = list(pieces), list[bytes](), list[int]()
        self.closed = self.drained = 0

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    async def drain(self) -> None:
        self.drained += 1

    async def read(self, most: int) -> bytes:
        self.asked.append(most)
        piece = self.pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def at_eof(self) -> bool:
        return not self.pieces

    def close(self) -> None:
        self.closed += 1

    async def wait_closed(self) -> None:
        raise OSError


class Pool(ConnectionPool):
    """Connections over these wires."""

    def __init__(self, *wires: Wire) -> None:
        super().__init__()
        self.wires = list(wires)

    async def _another(self) -> Connection:
        wire: Any = self.wires.pop(0)
        return Connection(wire, wire)


WHOLE = OK + b"Content-Length: 2\r\n\r\nok"


async def test_a_connection_is_used_again_while_it_is_open_and_closed_when_it_is_of_no_use() -> None:
    wires = Wire(WHOLE, WHOLE), Wire(WHOLE + OK, b"more"), Wire(OSError("gone"), b"")
    pool = Pool(*wires)
    request = PeerRequest("PUT", "/", (), b"a" * (2**17 + 5))
    for _ in range(2):
        response = await pool.send(request)
        assert (response.status, response.headers, response.content) == (200, {b"content-length": b"2"}, b"ok")
    assert [len(piece) for piece in wires[0].written] == [len(request.head()) + 2**16, 2**16, 5] * 2
    assert b"".join(wires[0].written) == (request.head() + request.content) * 2
    assert (wires[0].asked, wires[0].drained) == ([2**16] * 2, 6)
    await pool.send(request)
    assert [wire.closed for wire in wires] == [1, 1, 0], "one that has ended, and one that sent more"
    with pytest.raises(httpx.NetworkError, match=r"^gone$"):
        await pool.send(request)
    assert wires[2].closed == 1


async def test_no_more_is_read_than_is_wanted_and_idle_connections_are_closed() -> None:
    wire = Wire(OK + b"Content-Length: 9\r\n\r\nabc", b"d", b"e")
    pool = Pool(wire)
    response = await pool.send(PeerRequest("GET", "/", longest=3))
    assert (response.content, wire.closed, wire.pieces) == (b"abcd", 1, [b"e"])
    kept = Wire(WHOLE, b"")
    pool.wires.append(kept)
    await pool.send(PeerRequest("GET", "/"))
    (idle,) = pool._idle
    assert asyncio.get_running_loop().time() - idle.used_at < 60
    await pool.close()
    assert (kept.closed, pool._idle) == (1, [])
    await pool.close()


async def test_a_connection_goes_to_the_port_of_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    async def connect(host: str, port: int, *, ssl: object) -> None:
        asked.append((host, port, ssl))
        raise OSError("nobody")

    monkeypatch.setattr(asyncio, "open_connection", connect)
    context = ssl.create_default_context()
    for url in ("http://a.example", "https://a.example", "https://[::1]:8100", "http://a.example:8101"):
        with pytest.raises(httpx.NetworkError, match=r"^nobody$"):
            await Connections(httpx.URL(url), context).send(PeerRequest("GET", "/"))
    assert asked == [
        ("a.example", 80, None),
        ("a.example", 443, context),
        ("::1", 8100, context),
        ("a.example", 8101, None),
    ]
