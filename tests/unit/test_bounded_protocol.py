"""A connection of a service by its bytes: what comes in piece by piece, what goes out, and how long it waits."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn

from parley.common.errors import InvalidInputError
from parley.common.service.http import connections
from parley.common.service.http.connections import (
    CERTIFIED,
    SIGNED_IN,
    TAKE_OVER,
    BoundedProtocol,
    BoundedServer,
    Door,
    connections_allowed,
)
from parley.common.service.settings import Limits


class Wire(asyncio.Transport):
    """A transport that notes what is written, and whether it was closed or aborted."""

    def __init__(self, **extra: object) -> None:
        super().__init__({"peername": ("192.0.2.7", 5), "sockname": ("192.0.2.8", 80), **extra})
        self.sent, self.ended, self.paused = b"", list[str](), False
        self.protocol: asyncio.BaseProtocol | None = None

    def write(self, data: Any) -> None:  # noqa: ANN401 -- any bytes
        self.sent += bytes(data)

    def close(self) -> None:
        self.ended.append("closed")

    def abort(self) -> None:
        self.ended.append("aborted")

    def is_closing(self) -> bool:
        return bool(self.ended)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


class Served:
    """A connection to an application that answers with what it was asked, and notes its scopes."""

    def __init__(self, wire: Wire | None = None, app: Any = None, **limits: Any) -> None:  # noqa: ANN401
        self.scopes: list[Any] = []
        self.wire = wire or Wire()
        config = uvicorn.Config(app or self.echo, interface="asgi3", log_config=None, lifespan="off", ws="none")
        config.load()
        self.limits = Limits(**limits)
        self.server = BoundedServer(config, self.limits, _nothing)
        self.line: Any = BoundedProtocol(
            config=config,
            server_state=self.server.server_state,
            app_state={},
            limits=self.limits,
            crowd=self.server.crowd,
        )
        self.line.connection_made(self.wire)

    async def echo(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- of ASGI
        self.scopes.append(scope)
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        answer = b"%s %s?%s %s" % (scope["method"].encode(), scope["raw_path"], scope["query_string"], body)
        sized = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": sized})
        await send({"type": "http.response.body", "body": answer})

    async def take(self, *pieces: bytes) -> bytes:
        """Take pieces as they come; what is sent then."""
        self.wire.sent = b""
        for piece in pieces:
            self.line.data_received(piece)
            await settled()
        return self.wire.sent


async def settled() -> None:
    """Let all tasks go on until they wait."""
    for _ in range(8):
        await asyncio.sleep(0)


async def _nothing() -> None:
    """Nothing has to be tended."""


def answer(text: bytes, *more: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"content-length: %d" % len(text), *more]
    return b"\r\n".join([*lines, b"", text])


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, *headers, "", ""]).encode()


HOST = "Host: here"


async def test_requests_are_answered_in_turn_whether_they_come_in_pieces_or_together() -> None:
    served = Served()
    get, put = head("GET /a?b=c HTTP/1.1", HOST), head("PUT /d HTTP/1.1", HOST, "Content-Length: 3") + b"xyz"
    whole = answer(b"GET /a?b=c ") + answer(b"PUT /d? xyz")
    assert await served.take(get, put) == whole
    assert await served.take(get + put) == whole
    assert await served.take(*[bytes([byte]) for byte in get + put]) == whole
    assert served.wire.ended == []


@pytest.mark.parametrize(
    "first", [("Connection: upgrade", "Upgrade: h2c", "X: y", "Upgrade: other"), ("Upgrade: h2c",)]
)
async def test_an_offer_to_upgrade_is_a_header_like_others_and_its_body_is_a_body(first: tuple[str, ...]) -> None:
    served = Served()
    asked = head("POST /a HTTP/1.1", HOST, *first, "Content-Length: 3") + b"xyz"
    plain = head("GET /b HTTP/1.1", HOST)
    assert await served.take(asked + plain) == answer(b"POST /a? xyz") + answer(b"GET /b? ")
    named = [tuple(part.lower().encode() for part in line.split(": ")) for line in first]
    headers = [(name, value) for name, value in served.scopes[0]["headers"] if name not in {b"host", b"content-length"}]
    assert headers == sorted(named, key=lambda header: header[0] == b"upgrade")
    assert [name for name, _ in served.scopes[1]["headers"]] == [b"host"]


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://other/a/b?c=d?e", b"/a/b?c=d?e"),
        ("HTTPS://other:1/a", b"/a?"),
        ("http://other", b"/?"),
        ("http://other?c=/d", b"/?c=/d"),
        ("/http://other", b"/http://other?"),
    ],
)
async def test_an_absolute_target_is_its_path(target: str, path: bytes) -> None:
    assert await Served().take(head(f"GET {target} HTTP/1.1", HOST)) == answer(b"GET %s " % path)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (head("GET / HTTP/1.1"), b"Host is named 0 times, and once is right (RFC 9112, 3.2)."),
        (head("GET / HTTP/1.1", HOST, "HOST: there"), b"Host is named 2 times, and once is right (RFC 9112, 3.2)."),
        (head("GET / HTTP/1.0", HOST, HOST), b"Host is named 2 times, and once is right (RFC 9112, 3.2)."),
        (b"no HTTP\r\n\r\n", b"Invalid HTTP request received."),
    ],
)
async def test_what_is_no_request_is_refused_in_words_and_closed(sent: bytes, words: bytes) -> None:
    served = Served()
    refused = await served.take(sent)
    assert refused.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert refused.endswith(b"\r\n\r\n" + words)
    assert (served.wire.ended, served.scopes) == (["closed"], [])


TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


async def test_a_head_may_have_as_many_bytes_as_its_limit_again_and_again() -> None:
    served = Served(head_bytes=1024)
    begin = b"GET / HTTP/1.1\r\nHost: here\r\nX: "
    for _ in range(2):
        assert await served.take(begin + b"x" * (1020 - len(begin)), b"\r\n\r\n") == answer(b"GET /? ")
        assert not served.wire.ended
    served = Served(head_bytes=1024)
    assert await served.take(begin, b"x" * (1025 - len(begin))) == TOO_LARGE
    assert served.wire.ended == ["closed"]
    assert await served.take(b"x") == b"", "it is refused once"


async def test_a_body_has_any_number_of_bytes_and_its_framing_has_not() -> None:
    served = Served(head_bytes=1024)
    put = head("PUT / HTTP/1.1", HOST, "Transfer-Encoding: chunked")
    assert await served.take(put, *[b"400\r\n" + b"x" * 1024 + b"\r\n"] * 4, b"0\r\n\r\n") != TOO_LARGE
    assert served.wire.ended == []
    assert await served.take(put, b"1;" + b"x" * 1025) == TOO_LARGE
    served = Served(head_bytes=1024)
    assert await served.take(put, b"1\r\nx\r\n0\r\nX: ", b"y" * 1025) == TOO_LARGE


async def test_who_sends_more_than_a_hundred_requests_ahead_is_cut_off() -> None:
    async def hang(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- of ASGI
        await asyncio.Event().wait()

    served, get = Served(app=hang), head("GET / HTTP/1.1", HOST)
    await served.take(get * 101)
    assert served.wire.ended == []
    await served.take(get)
    assert served.wire.ended == ["aborted"]
    for task in served.server.server_state.tasks:
        task.cancel()


async def refuse(_: Any, __: Any, send: Any) -> None:  # noqa: ANN401 -- of ASGI
    """Answer before the body has come, with a length."""
    await send({"type": "http.response.start", "status": 413, "headers": [(b"Content-Length", b"2")]})
    await send({"type": "http.response.body", "body": b"n", "more_body": True})
    await send({"type": "http.response.body", "body": b"o"})


async def stream(_: Any, __: Any, send: Any) -> None:  # noqa: ANN401 -- of ASGI
    """Answer in two pieces, without a length."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-length", b"2")]})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await send({"type": "http.response.body", "body": b"three"})


CLOSE = "Connection: close"


async def test_the_last_answer_waits_for_the_body_of_its_request_before_the_connection_closes() -> None:
    served = Served(app=refuse)
    refused = b"HTTP/1.1 413 Request Entity Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno"
    assert await served.take(head("PUT / HTTP/1.1", HOST, CLOSE, "Content-Length: 3"), b"xy") == refused
    assert served.wire.ended == []
    assert await served.take(b"z") == b""
    assert served.wire.ended == ["closed"]
    served = Served(app=refuse)
    assert await served.take(head("PUT / HTTP/1.1", HOST, CLOSE, "Content-Length: 3") + b"xyz") == refused
    assert served.wire.ended == ["closed"], "nothing is waited for"
    served = Served(app=refuse)
    asked = head("PUT / HTTP/1.1", HOST, CLOSE, "Content-Length: 3", "Expect: 100-continue")
    assert await served.take(asked) == refused
    assert served.wire.ended == ["closed"], "a client that asks first has nothing on its way"


async def test_http_1_0_gets_no_chunks_and_the_end_of_the_connection_ends_its_answer() -> None:
    served = Served(app=stream)
    assert await served.take(head("GET / HTTP/1.0")) == (
        b"HTTP/1.1 200 OK\r\nx-length: 2\r\nconnection: close\r\n\r\nonethree"
    )
    assert served.wire.ended == ["closed"]
    served = Served(app=stream)
    assert await served.take(head("PUT / HTTP/1.0", "Content-Length: 3")) == (
        b"HTTP/1.1 200 OK\r\nx-length: 2\r\nconnection: close\r\n\r\nonethree"
    )
    assert served.wire.ended == ["closed"], "it could not be told where the answer ends"
    served = Served(app=stream)
    chunks = b"HTTP/1.1 200 OK\r\nx-length: 2\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    pieces = b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"
    assert await served.take(head("PUT / HTTP/1.1", HOST, CLOSE, "Content-Length: 3")) == chunks + pieces
    assert served.wire.ended == []
    served = Served()
    assert await served.take(head("GET / HTTP/1.0")) == answer(b"GET /? ", b"connection: close")
    served = Served(app=refuse)
    await served.take(head("PUT / HTTP/1.0", "Content-Length: 3"))
    assert served.wire.ended == [], "its length tells where the answer ends"


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        ({"subjectAltName": (("DNS", "clinic"), ("IP Address", "192.0.2.7"))}, ("clinic", "192.0.2.7")),
        ({"subject": ()}, ()),
        ({}, ()),
        (None, ()),
        ("no TLS", ()),
    ],
)
async def test_a_request_tells_the_names_of_its_clients_certificate(certificate: Any, names: tuple[str, ...]) -> None:  # noqa: ANN401
    tls = None if certificate == "no TLS" else SimpleNamespace(getpeercert=lambda: certificate)
    served = Served(Wire(ssl_object=tls))
    await served.take(head("GET / HTTP/1.1", HOST))
    assert served.scopes[0]["state"][CERTIFIED]() == names


async def test_a_request_signs_its_connection_in_and_its_end_signs_it_out() -> None:
    served = Served()
    await served.take(head("GET / HTTP/1.1", HOST))
    served.scopes[0]["state"][SIGNED_IN]("ann", is_kept_room=False)
    assert served.line.caller == "ann"
    assert served.line in served.server.server_state.connections
    served.line.connection_lost(None)
    assert served.line.caller is None
    assert served.line not in served.server.server_state.connections


async def test_a_route_may_take_its_connection_over() -> None:
    taken: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def take(scope: Any, _: Any, send: Any) -> None:  # noqa: ANN401 -- of ASGI
        taken.append(scope["state"][TAKE_OVER](b"a head"))
        await send({"type": "http.response.start", "status": 200, "headers": []})

    served = Served(app=take)
    served.wire.paused = True
    served.line.flow.read_paused = True
    assert await served.take(head("GET / HTTP/1.1", HOST)) == b"a head"
    ((reader, writer),) = taken
    assert isinstance(served.wire.protocol, asyncio.StreamReaderProtocol)
    assert not served.wire.paused
    assert served.line not in served.server.server_state.connections
    assert served.line.timeout_keep_alive_task is None
    writer.write(b"mine")
    served.wire.protocol.data_received(b"theirs")
    served.wire.protocol.eof_received()
    assert (served.wire.sent, await reader.read()) == (b"a headmine", b"theirs")
    assert writer.transport is served.wire
    writer.close()


class Clock:
    """The event loop of a connection, whose time a test sets."""

    def __init__(self, now: float) -> None:
        self.now, self._loop = now, asyncio.get_running_loop()

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- all else is the loop's
        return getattr(self._loop, name)


async def test_a_wait_for_the_client_begins_with_the_connection_and_with_each_answer() -> None:
    served = Served(receive_seconds=5)
    served.line.loop = clock = Clock(100.0)
    served.line.connection_made(served.wire)
    assert (served.line.waiting_since, served.line.last_heard) == (100.0, 100.0)
    clock.now = 101.0
    get = head("GET / HTTP/1.1", HOST)
    served.line.data_received(get[:5])
    assert (served.line.waiting_since, served.line.last_heard) == (101.0, 101.0)
    clock.now = 102.0
    served.line.data_received(get[5:])
    assert (served.line.waiting_since, served.line.last_heard) == (None, 101.0), "now the client waits"
    await settled()
    assert (served.line.waiting_since, served.line.last_heard) == (102.0, 102.0)
    clock.now = 103.0
    served.line.data_received(get + get)
    await settled()
    assert (served.line.waiting_since, served.line.last_heard) == (103.0, 103.0)


async def test_a_connection_that_keeps_the_service_waiting_is_ended_at_the_second_look() -> None:
    served = Served(receive_seconds=5)
    served.line.loop = clock = Clock(100.0)
    served.line.connection_made(served.wire)

    def look(*times: float) -> list[str]:
        served.wire.ended.clear()
        for clock.now in times:
            served.line.expire()
        return list(served.wire.ended)

    assert look(105.0, 105.0) == [], "five seconds are not too many"
    assert look(105.1) == []
    assert look(105.2) == ["aborted"]
    served.line.waiting_since = 105.0
    assert look(111.0) == [], "another wait"
    served.line.waiting_since = None
    assert look(200.0, 201.0) == []
    clock.now = 201.0
    served.line.pause_writing()
    assert served.line.flow.write_paused
    assert look(206.0, 206.0) == []
    assert look(206.5, 207.0) == ["aborted"], "an answer that is not taken"
    served.line.resume_writing()
    assert look(300.0, 301.0) == []
    served.line.waiting_since = 250.0
    served.line.flow.read_paused = True
    assert look(302.0, 303.0) == [], "the wait is for this service to read"
    served.line.flow.read_paused = False
    assert look(304.0, 305.0) == ["aborted"]


@pytest.mark.parametrize(
    ("limit", "is_known", "peers", "allowed"),
    [(-1, True, 0, 512), (1000, True, 0, 512), (300, True, 5, 300 - 10 - 24 - 5), (300, False, 5, 300 - 48 - 5)],
)
def test_no_more_connections_are_allowed_than_files(
    monkeypatch: pytest.MonkeyPatch, limit: int, peers: int, allowed: int, *, is_known: bool
) -> None:
    class Descriptors:
        def __init__(self, path: str) -> None:
            assert path == "/dev/fd"

        def iterdir(self) -> Any:  # noqa: ANN401 -- an iterator
            if not is_known:
                raise OSError
            return iter(range(10))

    def limits_of(kind: int) -> tuple[int, int]:
        assert kind == resource.RLIMIT_NOFILE
        return limit, -1

    monkeypatch.setattr(connections, "Path", Descriptors)
    monkeypatch.setattr(resource, "getrlimit", limits_of)
    assert connections_allowed(Limits(), peers) == allowed
    assert connections_allowed(Limits(connections=3), peers) == 3


def test_too_few_files_are_refused_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_count_open_files", lambda: 10)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (49, 49))
    assert connections_allowed(Limits(), 7) == 8
    monkeypatch.setattr(resource, "getrlimit", lambda _: (48, 48))
    with pytest.raises(InvalidInputError) as refused:
        connections_allowed(Limits(), 7)
    assert refused.value.detail == (
        "this process may have 48 files open (ulimit -n), and needs 49 at least: 41 of its own and 8 connections; "
        "limits.connections = 512 needs 553"
    )


async def test_a_server_has_a_crowd_of_its_limits_or_of_what_it_is_told() -> None:
    config = uvicorn.Config(refuse, log_config=None)
    for given, most, share in (((), 512, 256), (((), 1), 1, 1), (((), 7), 7, 3), (((), 70, 2), 70, 2)):
        server = BoundedServer(config, Limits(), _nothing, *given)
        shared: Any = vars(server.crowd)["_share"]
        assert (server.crowd.most, shared.most) == (most, share)
    words = (shared.name, shared.things, shared.remedy, shared.retry_seconds)
    assert words == ("connections", "connections open", "use those again, or close some", 5)


async def test_a_server_looks_at_its_connections_and_tends_once_in_ten_ticks() -> None:
    done: list[str] = []

    async def tend() -> None:
        done.append("tended")

    server = BoundedServer(uvicorn.Config(refuse, log_config=None), Limits(), tend)
    line = Served().line
    line.expire = lambda: done.append("looked")
    server.server_state.connections |= {line, cast("Any", object())}
    assert [await server.on_tick(counter) for counter in range(1, 21)] == [False] * 20
    assert done == ["looked", "tended"] * 2
    server.should_exit = True
    assert await server.on_tick(1)


class Accepting:
    """A socket that gives these connections, or raises these errors."""

    def __init__(self, *gives: Any) -> None:  # noqa: ANN401 -- sockets and errors
        self.gives, self.closed = list(gives), False

    def accept(self) -> tuple[Any, None]:
        given = self.gives.pop(0) if self.gives else BlockingIOError()
        if isinstance(given, Exception):
            raise given
        return given, None

    def fileno(self) -> int:
        return -1 if self.closed else 3


@pytest.fixture
async def door() -> Any:  # noqa: ANN401 -- with parts that are replaced
    """A door of a server, with a loop that notes what it is asked for."""
    server = BoundedServer(uvicorn.Config(refuse, log_config=None), Limits(receive_seconds=4), _nothing)
    made: Any = Door.__new__(Door)
    made._server, made._welcomed, made.done = server, set(), []

    def note(name: str) -> Callable[..., None]:
        return lambda *given, **options: made.done.append((name, *given, *options.items()))

    made._loop = SimpleNamespace(
        time=lambda: 100.0,
        add_reader=note("read"),
        remove_reader=note("unread"),
        call_later=note("later"),
        create_task=asyncio.get_running_loop().create_task,
    )
    return made


async def test_a_few_connections_are_accepted_at_once_and_one_too_many_is_closed(door: Any) -> None:  # noqa: ANN401
    pairs = [socket.socketpair() for _ in range(6)]
    door._socket = Accepting(*[pair[0] for pair in pairs[:5]])
    welcomed: list[object] = []

    async def welcome(accepted: object) -> None:
        welcomed.append(accepted)

    door._welcome = welcome
    rooms = [True, False, True, True]
    door._server.crowd.make_room = lambda: rooms.pop(0)
    door._accept()
    kept = [pairs[n][0] for n in (0, 2, 3)]
    assert list(door._server.crowd.arrivals.items()) == [(each, 100.0) for each in kept]
    assert pairs[1][0].fileno() < 0, "it is closed"
    assert not any(each.getblocking() for each in kept)
    assert (len(door._socket.gives), len(door._welcomed)) == (1, 3)
    await settled()
    assert (welcomed, door._welcomed) == (kept, set())
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


async def test_where_no_file_can_be_opened_one_makes_room_and_it_is_tried_again_soon(
    door: Any,  # noqa: ANN401
    capfd: pytest.CaptureFixture[str],
) -> None:
    door._socket = Accepting(OSError(24, "Too many open files"))
    door._server.crowd.make_room = lambda: door.done.append(("room",))
    door._accept()
    assert door.done == [("room",), ("unread", door._socket), ("later", 0.1, door._open)]
    said = "".join(capfd.readouterr())
    assert all(word in said for word in ("connections", "accepted", "Too many open files"))
    door.done.clear()
    for error in (BlockingIOError(), InterruptedError(), ConnectionAbortedError()):
        door._socket = Accepting(error)
        door._accept()
    assert door.done == []
    door._open()
    assert door.done == [("read", door._socket, door._accept)]
    door._socket.closed = True
    door._open()
    assert len(door.done) == 1, "a closed door stays closed"


@pytest.mark.parametrize(("context", "seconds"), [("a context", 4.0), (None, None)])
async def test_a_connection_is_counted_until_its_tls_has_begun(door: Any, context: Any, seconds: float | None) -> None:  # noqa: ANN401
    door._server.config.ssl = context
    made: list[Any] = []

    async def connect(factory: object, accepted: object, **options: object) -> None:
        assert list(door._server.crowd.arrivals) == [accepted]
        made.append((factory, options))
        if len(made) == 2:
            raise OSError

    door._loop.connect_accepted_socket = connect
    for _ in range(2):
        door._server.crowd.arrivals["a socket"] = 1.0
        await door._welcome("a socket")
        assert door._server.crowd.arrivals == {}
    assert made == [(door._server.protocol, {"ssl": context, "ssl_handshake_timeout": seconds})] * 2
