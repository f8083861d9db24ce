"""The learner's own transport: warm connections, whole responses, clear errors."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from parley.common.client.endpoints import PeerEntry
from parley.common.client.peer import Line
from parley.common.client.transport import LONGEST_ANSWER, PeerRequest, PeerResponse
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
