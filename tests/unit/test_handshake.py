"""What a party shows a learner when it opens a connection itself."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import httpx
import pytest
import uvicorn
from pydantic import BaseModel, HttpUrl, SecretStr
from structlog.testing import capture_logs

from parley.common.client.endpoints import LearnerAddress
from parley.common.client.outbound import (
    Dialer,
    OpenedProtocol,
    Outbound,
    _tasks_for,
    ask_as_member,
    open_to,
    read_access,
    renew_for,
    renewing,
)
from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.service.http.connections import BoundedServer
from parley.common.service.http.proxy import spell_hosts
from parley.common.service.settings import Limits
from parley.common.storage.certificates import Credentials, answer_request, issue, make_authority, pem_of
from parley.common.wire.membership import CertificateRequest, Membership
from tests.support.certificates import make_certificates


async def test_what_was_read_and_found_good_is_what_is_shown(tmp_path: Path) -> None:
    """Though token and password change while the proxy connects."""
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("good\n")
    password.write_text("clinic:good\n")
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for status in (b"200 Connected", b"101 Switching Protocols"):
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            token.unlink(missing_ok=True)
            password.unlink(missing_ok=True)
            writer.write(b"HTTP/1.1 %b\r\n\r\n" % status)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        proxy = HttpUrl(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        url = HttpUrl("http://learner.example.org:8100")
        address = LearnerAddress(
            name="learner", url=url, plain_http=True, token_file=token, proxy=proxy, proxy_password_file=password
        )
        assert "good" not in repr(read_access(address))
        transport, _ = await open_to(address)
        transport.close()
    connect, upgrade = heads
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'clinic:good').decode()}\r\n" in connect
    assert "Authorization: Bearer good\r\n" in upgrade


async def test_a_head_that_does_not_end_is_not_read_for_ever() -> None:
    written = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        with suppress(OSError):
            while written < 2**25:
                writer.write(b"X-Endless: y\r\n" * 1000)
                await writer.drain()
                written += 14_000
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = HttpUrl(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(UnavailableError, match="the answer is no HTTP"):
            await open_to(LearnerAddress(name="learner", url=url, token=SecretStr("t")))
    assert written < 2**25, "most of it lies in the system's buffers"


def test_a_member_dials_and_renews_the_certificate_that_it_has(tmp_path: Path) -> None:
    plain = LearnerAddress(name="one", url=HttpUrl("http://127.0.0.1:1"), token=SecretStr("t"))
    files = {"certificate": tmp_path / "member.pem", "key": tmp_path / "member.key"}
    certified = LearnerAddress(name="two", url=HttpUrl("https://127.0.0.1:1"), token=SecretStr("t"), **files)
    assert [len(list(_tasks_for(address))) for address in (plain, certified)] == [1, 2]


async def _echo(scope: Any, _: Any, send: Any) -> None:  # noqa: ANN401 -- as ASGI has them
    """Answer with the path that was asked for."""
    body = scope["path"].encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _nothing() -> None:
    """Nothing has to be tended."""


@asynccontextmanager
async def _serving(connections: Outbound, app: Any = _echo) -> AsyncIterator[None]:  # noqa: ANN401 -- an ASGI app
    """A service that dials learners."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none")
    server = BoundedServer(config, Limits(), _nothing, [connections.keep])
    running = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await running


async def _tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy: connects to where it is told."""
    place = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
    host, _, port = place.partition(":")
    far_reader, far_writer = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")

    async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(2**16):
                sink.write(piece)
        sink.close()

    await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))


class _Asking:
    """A learner that asks twice over the first connection, at once and again; others are spare."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.answers: list[bytes] = []
        self.is_answered, self.has_spare = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open a connection to the service that has connected."""
        with suppress(OSError, asyncio.IncompleteReadError):
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            is_first = len(self.heads) == 1
            ask = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + (ask % b"first" if is_first else b""))
            if is_first:
                self.answers.append(await reader.readuntil(b"/first"))
                writer.write(ask % b"second")
                self.answers.append(await reader.readuntil(b"/second"))
                self.is_answered.set()
            else:
                self.has_spare.set()
            await reader.read()


@pytest.mark.parametrize("by_proxy", [False, True])
async def test_a_learner_asks_over_connections_that_a_service_opens(tmp_path: Path, by_proxy: bool) -> None:  # noqa: FBT001
    """The first request may come with the answer that opens the connection; there is always a spare connection."""
    files = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    asking = _Asking()
    async with (
        await asyncio.start_server(asking.serve, "127.0.0.1", 0, ssl=context) as learner,
        await asyncio.start_server(_tunnel, "127.0.0.1", 0) as tunnel,
    ):
        port, proxy_port = (server.sockets[0].getsockname()[1] for server in (learner, tunnel))
        proxy = HttpUrl(f"http://127.0.0.1:{proxy_port}") if by_proxy else None
        url = HttpUrl(f"https://127.0.0.1:{port}")
        address = LearnerAddress(name="learner", url=url, token=SecretStr("t"), ca=files.authority, proxy=proxy)
        with capture_logs() as lines:
            async with asyncio.timeout(20), _serving(Outbound([address])):
                await asking.is_answered.wait()
                await asking.has_spare.wait()
    assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") for answer in asking.answers)
    assert b"Authorization: Bearer t\r\n" in asking.heads[0]
    assert f"Host: 127.0.0.1:{port}\r\n".encode() in asking.heads[0]
    logged = [line for line in lines if line["event"] == "outbound"]
    assert logged == [{"event": "outbound", "learner": "learner", "connected": True, "log_level": "info"}]


class _Awaiting:
    """A learner that leaves what it does with its connections to the test."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.opened: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        self._writers.append(writer)
        await self.opened.put((reader, writer))

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[LearnerAddress]:
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            url = HttpUrl(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            yield LearnerAddress(name=self.name, url=url, token=SecretStr("t"))
            for writer in self._writers:
                writer.close()
                await writer.wait_closed()


async def test_connections_follow_the_settings_and_none_is_cut_off_in_mid_answer() -> None:
    north, south, connections, goes_on = _Awaiting("north"), _Awaiting("south"), Outbound([]), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- as ASGI has them
        await goes_on.wait()
        await _echo(scope, receive, send)

    async with asyncio.timeout(20), north.listening() as to_north, south.listening() as to_south:
        with capture_logs() as lines:
            async with _serving(connections, slow):
                both = SimpleNamespace(outbound=(to_north, to_south))
                assert await asyncio.to_thread(connections.take_up, both) == ("outbound",)
                asked, spare_of_south = await north.opened.get(), await south.opened.get()
                asked[1].write(b"GET /kept HTTP/1.1\r\nHost: x\r\n\r\n")
                spare = await north.opened.get()
                await asyncio.to_thread(connections.take_up, SimpleNamespace(outbound=(to_south,)))
                assert await spare[0].read() == b"", "it ends"
                goes_on.set()
                assert (await asked[0].read()).endswith(b"/kept"), "answered, and then it ends"
                spare_of_south[1].write(b"GET /still HTTP/1.1\r\nHost: x\r\n\r\n")
                await spare_of_south[0].readuntil(b"/still")
    logged = [(line["learner"], line["connected"]) for line in lines if line["event"] == "outbound"]
    assert sorted(logged[:2]) == [("north", True), ("south", True)]
    assert logged[2:] == [("north", False)]


async def test_a_certificate_that_cannot_be_renewed_is_tried_every_hour_and_logged_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    reasons = ["away", "away", "", "away", "no certificate"]

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if not reasons:
            raise asyncio.CancelledError

    def renew() -> None:
        if reason := reasons.pop(0):
            raise UnavailableError(reason)

    monkeypatch.setattr(asyncio, "sleep", pause)
    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await renewing("learner", renew)(None)  # type: ignore[arg-type]  # it asks nothing of the server
    assert pauses == [3600.0] * 5
    line = {"event": "certificate", "learner": "learner", "renewed": False, "log_level": "warning"}
    assert lines == [line | {"reason": reason} for reason in ("away", "away", "no certificate")]


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (401, "HTTP status 401, the token is not known, or has expired"),
        (403, "HTTP status 403, its certificate is not shown, or not this party's"),
        (404, "HTTP status 404, nobody there takes connections"),
        (409, "HTTP status 409, the learner's operator has not confirmed this one"),
        (500, "HTTP status 500"),
    ],
)
async def test_a_refused_connection_says_what_the_status_means(status: int, meaning: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d No\r\n\r\n" % status)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = HttpUrl(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(UnavailableError) as refused:
            await open_to(LearnerAddress(name="learner", url=url, token=SecretStr("t")))
    assert refused.value.detail == f"learner does not take the connection: {meaning}"


def address_of(url: str, **more: Any) -> LearnerAddress:  # noqa: ANN401 -- other settings
    return LearnerAddress(name="learner", url=HttpUrl(url), token=SecretStr("t"), plain_http=True, **more)


UPGRADE = "Authorization: Bearer t\r\nConnection: Upgrade\r\nUpgrade: parley-peer\r\n\r\n"


async def heads_asked(answers: list[bytes], make: Callable[[int], LearnerAddress]) -> tuple[list[str], bytes]:
    """The heads that a service sends on a connection, which are answered so, and what has come after the last."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            with suppress(asyncio.IncompleteReadError):
                heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        transport, received = await open_to(make(server.sockets[0].getsockname()[1]))
        transport.close()
    return heads, received


async def test_a_connection_is_asked_for_with_token_and_protocol_and_nothing_more() -> None:
    ports: list[int] = []

    def direct(port: int) -> LearnerAddress:
        ports.append(port)
        return address_of(f"http://127.0.0.1:{port}/siteX/")

    heads, received = await heads_asked([b"HTTP/1.1 101 Switching\r\nA: b\r\n\r\nlast"], direct)
    assert heads == [f"GET /siteX/v1/connections HTTP/1.1\r\nHost: 127.0.0.1:{ports[0]}\r\n{UPGRADE}"]
    assert received == b"last"


@pytest.mark.parametrize(
    ("url", "place", "host"),
    [
        ("http://learner.example:8100", "learner.example:8100", "learner.example:8100"),
        ("http://learner.example", "learner.example:80", "learner.example"),
        ("http://[::1]:8100", "[::1]:8100", "[::1]:8100"),
    ],
)
async def test_a_proxy_is_asked_for_the_learners_place_with_its_password(
    tmp_path: Path, url: str, place: str, host: str
) -> None:
    (tmp_path / "password").write_text(" ann:secret\n")

    def by_proxy(port: int) -> LearnerAddress:
        proxy = HttpUrl(f"http://127.0.0.1:{port}")
        return address_of(url, proxy=proxy, proxy_password_file=tmp_path / "password")

    heads, received = await heads_asked([b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 101\r\n\r\nlast"], by_proxy)
    assert heads == [
        f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nProxy-Authorization: Basic YW5uOnNlY3JldA==\r\n\r\n",
        f"GET /v1/connections HTTP/1.1\r\nHost: {host}\r\n{UPGRADE}",
    ]
    assert received == b"last"
    heads, _ = await heads_asked(
        [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 101\r\n\r\nlast"],
        lambda port: address_of(url, proxy=HttpUrl(f"http://127.0.0.1:{port}")),
    )
    assert heads[0] == f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"


@pytest.mark.parametrize(
    ("url", "proxy", "host", "port", "is_tls"),
    [
        ("http://learner.example", None, "learner.example", 80, False),
        ("https://learner.example", None, "learner.example", 443, True),
        ("https://[2001:db8::1]:8100", None, "2001:db8::1", 8100, True),
        ("https://learner.example", "http://proxy.example", "proxy.example", 80, False),
        ("https://learner.example", "http://[2001:db8::2]:3128", "2001:db8::2", 3128, False),
    ],
)
async def test_the_learner_or_the_proxy_is_connected_to_at_its_port(  # noqa: PLR0913 -- a table
    monkeypatch: pytest.MonkeyPatch, url: str, proxy: str | None, host: str, port: int, *, is_tls: bool
) -> None:
    asked: list[tuple[str, int, bool]] = []

    async def connect(_: object, host: str, port: int, *, ssl: object) -> None:
        asked.append((host, port, ssl is not None))
        raise OSError("nobody")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect)
    with pytest.raises(OSError, match="nobody"):
        await open_to(address_of(url, proxy=HttpUrl(proxy) if proxy else None))
    assert asked == [(host, port, is_tls)]


FORBIDDEN = "HTTP status 403, its certificate is not shown, or not this party's"


@pytest.mark.parametrize(
    ("answer", "has_password", "words"),
    [
        (b"HTTP/1.1 407 No\r\n\r\n", False, "the proxy {} asks for a password: name proxy_password_file"),
        (b"HTTP/1.1 407 No\r\n\r\n", True, "the proxy {} does not take this password"),
        (
            b"HTTP/1.1 403\r\n\r\n",
            True,
            f"the proxy {{}} does not connect to learner.example:8100: {FORBIDDEN}",
        ),
        (b"HTTP/1.1 OK\r\n\r\n", True, "the proxy {} does not connect to learner.example:8100: HTTP status 0"),
        (b"\r\n\r\n", False, "the proxy {} does not connect to learner.example:8100: HTTP status 0"),
        (b"HTTP/1.1 200 OK\r\n", False, "closed before it was answered"),
    ],
)
async def test_a_proxy_that_does_not_connect_is_named(
    tmp_path: Path, answer: bytes, words: str, *, has_password: bool
) -> None:
    (tmp_path / "password").write_text("ann:secret")
    proxies: list[HttpUrl] = []

    def by_proxy(port: int) -> LearnerAddress:
        proxies.append(HttpUrl(f"http://127.0.0.1:{port}"))
        file = tmp_path / "password" if has_password else None
        return address_of("http://learner.example:8100", proxy=proxies[0], proxy_password_file=file)

    with pytest.raises((UnavailableError, ConnectionResetError)) as refused:
        await heads_asked([answer], by_proxy)
    assert str(refused.value) == words.format(proxies[0])


async def test_a_proxy_that_closes_while_tls_begins_has_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[object, str]] = []

    async def begin(_: object, __: object, context: object, *, server_hostname: str) -> None:
        begun.append((context, server_hostname))

    monkeypatch.setattr(asyncio.get_running_loop(), "start_tls", begin)
    with pytest.raises(ConnectionResetError, match="closed while TLS began"):
        await heads_asked(
            [b"HTTP/1.1 200 OK\r\n\r\n"],
            lambda port: address_of("https://[2001:db8::1]:8100", proxy=HttpUrl(f"http://127.0.0.1:{port}")),
        )
    ((context, name),) = begun
    assert isinstance(context, ssl.SSLContext)
    assert name == "2001:db8::1"


def certified(folder: Path, lasts: dt.timedelta) -> tuple[Credentials, LearnerAddress]:
    """An authority, and the address of a member whose certificate by it, begun an hour ago, lasts for so long."""
    authority = make_authority("learner")
    own = issue(authority, ["member"])
    pem = pem_of(answer_request(authority, own.request(), "member", lasts))
    files = {"ca": folder / "ca.pem", "certificate": folder / "member.pem", "key": folder / "member.key"}
    for file, text in zip(files.values(), (authority.certificate_pem, pem, own.key_pem), strict=True):
        file.write_text(text)
    return authority, address_of("https://learner.example:8100/siteX/", **files)


def test_a_certificate_that_has_ended_is_not_shown_and_says_what_helps(tmp_path: Path) -> None:
    _, address = certified(tmp_path, dt.timedelta(minutes=-1))
    day = (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)).date()
    with pytest.raises(UnavailableError) as refused:
        read_access(address)
    assert refused.value.detail == (
        f"the certificate {address.certificate} expired on {day}: have the learner's operator say "
        "parley-learner roster rotate member, and join again in the same folder"
    )
    _, lasting = certified(tmp_path, dt.timedelta(minutes=5))
    access = read_access(lasting)
    assert (access.token, access.proxy_password) == ("t", b"")
    assert isinstance(access.context, ssl.SSLContext)
    assert repr(access).startswith("LearnerAccess(context=<")


def test_a_certificate_counts_from_its_first_moment_until_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = certified(tmp_path, dt.timedelta(minutes=5))
    certificate, contexts = held_by(address).certificate, list[object]()
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:  # noqa: ANN401 -- a plain time
            assert tz is dt.UTC
            return now[0]

    now: list[Any] = [begins]
    monkeypatch.setattr("parley.common.client.outbound.datetime", Clock)
    monkeypatch.setattr("parley.common.client.outbound.client_context", lambda *files: contexts.append(files))
    read_access(address)
    assert contexts == [(address.ca, address.certificate, address.key)]
    from_on = f"the certificate {address.certificate} holds from {begins:%Y-%m-%d %H:%M} UTC on"
    for moment, words in (
        (ends, f"the certificate {address.certificate} expired on {ends:%Y-%m-%d}: "),
        (begins - dt.timedelta(microseconds=1), f"{from_on}: is this machine's clock behind?"),
    ):
        now[0] = moment
        with pytest.raises(UnavailableError) as refused:
            read_access(address)
        assert refused.value.detail.startswith(words)


def test_a_password_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "password"
    address = address_of("http://127.0.0.1:1", proxy=HttpUrl("http://proxy"), proxy_password_file=file)
    for content in (None, b"\xff\xfe\x00"):
        if content:
            file.write_bytes(content)
        with pytest.raises(InvalidInputError) as refused:
            read_access(address)
        assert refused.value.detail == f"'learner': {file} cannot be read"


class Learner:
    """What a learner answers a member, and what it was asked; stands for httpx's client."""

    def __init__(self, answer: httpx.Response | Exception) -> None:
        self.answer, self.options = answer, dict[str, Any]()
        self.asked: list[tuple[object, ...]] = []

    def __call__(self, **options: Any) -> Learner:  # noqa: ANN401 -- any option
        self.options = options
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get(self, url: str) -> httpx.Response:
        return self._answer("GET", url)

    def post(self, url: str, json: object) -> httpx.Response:
        return self._answer("POST", url, json)

    def _answer(self, *asked: object) -> httpx.Response:
        self.asked.append(asked)
        if isinstance(self.answer, Exception):
            raise self.answer
        self.answer.request = httpx.Request("GET", "https://learner")
        return self.answer


def test_a_member_asks_with_its_token_and_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, address = certified(tmp_path, dt.timedelta(minutes=5))
    made: list[tuple[object, ...]] = []

    def contexts(*files: object) -> str:
        made.append(files)
        return "tls"

    (tmp_path / "password").write_text("ann:secret")
    proxy = {"proxy": HttpUrl("http://proxy.example:3128"), "proxy_password_file": tmp_path / "password"}
    learner = Learner(httpx.Response(200, json={"certificate": None, "name": "member"}))
    monkeypatch.setattr(httpx, "Client", learner)
    monkeypatch.setattr("parley.common.client.outbound.client_context", contexts)
    request = _Question(day=dt.date(2027, 1, 31))
    ask_as_member(address, "/v1/x", _Answer, "answer")
    assert learner.options["proxy"] is None
    answer = ask_as_member(address.model_copy(update=proxy), "/v1/x", _Answer, "answer", request)
    assert answer.name == "member"
    url = "https://learner.example:8100/siteX/v1/x"
    assert learner.asked == [("GET", url), ("POST", url, {"day": "2027-01-31"})]
    assert made == [(address.ca, address.certificate, address.key)] * 2
    shown = learner.options.pop("proxy")
    assert (shown.url, shown.raw_auth) == (httpx.URL("http://proxy.example:3128/"), (b"ann", b"secret"))
    assert learner.options == {
        "verify": "tls",
        "trust_env": False,
        "headers": {"Authorization": "Bearer t"},
        "event_hooks": {"request": [spell_hosts]},
    }


class _Question(BaseModel):
    day: dt.date


class _Answer(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.Response(409, content=b"no"), ": HTTP status 409"),
        (httpx.ConnectError("no"), " (ConnectError)"),
        (httpx.Response(200, json={}), " (ValidationError)"),
        (httpx.Response(200, content=b" " * (2**22 + 1)), " (TooLargeError)"),
    ],
)
def test_what_a_learner_does_not_do_for_a_member_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: httpx.Response | Exception, reason: str
) -> None:
    _, address = certified(tmp_path, dt.timedelta(minutes=5))
    monkeypatch.setattr(httpx, "Client", Learner(answer))
    with pytest.raises(UnavailableError) as refused:
        ask_as_member(address, "/v1/x", _Answer, "answer")
    assert refused.value.detail == f"learner does not answer{reason}"


class Renewer:
    """What a learner is asked to renew; it sends ``certificate``."""

    certificate: str | None = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[Any, ...]] = []
        monkeypatch.setattr("parley.common.client.outbound.ask_as_member", self.ask)

    def ask(self, *question: object) -> Membership:
        self.asked.append(question)
        return Membership.model_construct(name="member", certificate=self.certificate)


def held_by(address: LearnerAddress) -> Credentials:
    assert address.certificate
    assert address.key
    return Credentials.read(address.certificate.read_bytes(), address.key.read_bytes())


def test_what_is_sent_as_a_renewed_certificate_is_one_of_this_key_that_lasts_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewer = Renewer(monkeypatch)
    authority, address = certified(tmp_path, dt.timedelta(minutes=29))
    before = held_by(address)
    no_certificate = "what learner sent is no certificate of this key"
    no_longer = "the certificate that learner sent does not last longer"
    shorter = pem_of(answer_request(authority, before.request(), "member", dt.timedelta(minutes=28)))
    for text, words in (
        (None, no_certificate),
        (authority.certificate_pem, no_certificate),
        (shorter, no_longer),
        (before.certificate_pem, no_longer),
    ):
        renewer.certificate = text
        with pytest.raises(UnavailableError) as refused:
            renew_for(address)
        assert refused.value.detail == words
        assert held_by(address).certificate == before.certificate


def test_a_certificate_with_less_than_a_third_left_is_renewed_by_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewer = Renewer(monkeypatch)
    for minutes in (31, -1):  # of an hour and a half, or none
        _, address = certified(tmp_path, dt.timedelta(minutes=minutes))
        renew_for(address)
        assert not renewer.asked
    authority, address = certified(tmp_path, dt.timedelta(minutes=29))
    assert address.certificate
    before = held_by(address)
    longer = pem_of(answer_request(authority, before.request(), "member", dt.timedelta(days=30, minutes=5)))
    renewer.certificate = longer
    with capture_logs() as lines:
        renew_for(address)
    assert address.certificate.read_text() == longer
    assert address.certificate.stat().st_mode & 0o777 == 0o600
    line = {"event": "certificate", "learner": "learner", "renewed": True, "days": 30, "log_level": "info"}
    assert lines == [line]
    ((*question, request),) = renewer.asked
    assert question == [address, "/v1/roster/certificate", Membership, "renew the certificate"]
    assert isinstance(request, CertificateRequest)
    assert request.certificate_request.startswith("-----BEGIN CERTIFICATE REQUEST-----")


def test_files_that_cannot_be_renewed_are_named(tmp_path: Path) -> None:
    _, address = certified(tmp_path, dt.timedelta(minutes=5))
    (tmp_path / "member.key").write_text(make_authority("other").key_pem)
    with pytest.raises(InvalidInputError) as refused:
        renew_for(address)
    files = f"{address.certificate} and {address.key}"
    assert refused.value.detail == f"{files} cannot be renewed: not both are there and belong together"


class _EndError(Exception):
    """Ends a loop."""


async def test_a_learner_that_is_away_is_tried_after_growing_pauses_and_logged_when_its_reason_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others wait at random, so that not all come at once."""
    pauses, bounds, seconds = list[float](), list[tuple[float, float]](), list[float | None]()
    reasons: list[Exception] = [TimeoutError(), TimeoutError(), OSError("closed"), UnavailableError("closed")]
    reasons += [InvalidInputError("no file"), *[TimeoutError() for _ in range(4)], _EndError()]

    async def pause(lasts: float) -> None:
        pauses.append(lasts)

    async def open_none(address: LearnerAddress) -> tuple[asyncio.Transport, bytes]:
        assert address is learner
        raise reasons.pop(0)

    def draw(least: float, most: float) -> float:
        bounds.append((least, most))
        return 1.0

    def timeout(lasts: float | None) -> asyncio.Timeout:
        seconds.append(lasts)
        return asyncio.Timeout(None)

    learner = address_of("http://127.0.0.1:1")
    monkeypatch.setattr(asyncio, "sleep", pause)
    monkeypatch.setattr(asyncio, "timeout", timeout)
    monkeypatch.setattr(random, "uniform", draw)
    monkeypatch.setattr("parley.common.client.outbound.open_to", open_none)
    with capture_logs() as lines, pytest.raises(_EndError):
        await Dialer(cast("BoundedServer", None), learner).keep()
    assert pauses == pytest.approx([0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10])
    assert set(bounds) == {(0.5, 1.0)}
    assert seconds == [20.0] * 10
    line = {"event": "outbound", "learner": "learner", "connected": False, "log_level": "warning"}
    words = ("nobody answers in time", "closed", "no file", "nobody answers in time")
    assert lines == [line | {"reason": reason} for reason in words]


def opened(*, is_spare: bool = True, was_asked: bool = False, failed_soon: bool = False, is_open: bool = True) -> Any:  # noqa: ANN401
    """A connection, which stands for an `OpenedProtocol`."""
    closed_at = None if is_open else 1.0
    return SimpleNamespace(is_spare=is_spare, was_asked=was_asked, failed_soon=failed_soon, closed_at=closed_at)


async def pause_of(dialer: Any, *connections: Any) -> float | None:  # noqa: ANN401 -- with parts that nobody else sees
    """How long a dialer with these connections waits before it opens another, and None where it opens none."""
    dialer._open = list(connections)
    with suppress(_EndError):
        await dialer.keep()
    return cast("float | None", dialer.waited)


async def test_a_dialer_keeps_one_spare_connection_and_slows_down_where_they_end_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialer: Any = Dialer(cast("BoundedServer", None), address_of("http://127.0.0.1:1"))
    dialer.waited = None

    async def pause(lasts: float) -> None:
        dialer.waited = lasts
        raise _EndError

    async def wait() -> None:
        dialer.waited = None
        raise _EndError

    monkeypatch.setattr(asyncio, "sleep", pause)
    monkeypatch.setattr(random, "uniform", lambda *_: 1.0)
    monkeypatch.setattr(dialer, "_wait", wait)
    busy = [opened(is_spare=False) for _ in range(8)]
    assert await pause_of(dialer) == 0
    assert await pause_of(dialer, opened()) is None
    assert await pause_of(dialer, *busy[:7]) == 0
    assert await pause_of(dialer, *busy) is None
    assert await pause_of(dialer, opened(is_open=False)) == 0
    assert await pause_of(dialer, opened(failed_soon=True, is_open=False)) == 0.2
    assert await pause_of(dialer, opened(failed_soon=True, is_open=False), *busy[:2]) == 0.4
    assert dialer._open == busy[:2]
    assert await pause_of(dialer, opened(failed_soon=True, is_open=False), opened(was_asked=True)) is None
    assert await pause_of(dialer, *busy[:2]) == 0


async def test_without_news_pauses_start_again_at_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    dialer: Any = Dialer(cast("BoundedServer", None), address_of("http://127.0.0.1:1"))
    seconds: list[float | None] = []

    def timeout(lasts: float | None) -> asyncio.Timeout:
        seconds.append(lasts)
        return asyncio.Timeout(None if lasts is None else asyncio.get_running_loop().time())

    monkeypatch.setattr(asyncio, "timeout", timeout)
    dialer._pause = 3.0
    await dialer._wait()
    assert (dialer._pause, seconds) == (0.0, [5.0])
    dialer._news.set()
    await dialer._wait()
    assert (seconds, dialer._news.is_set()) == ([5.0, None], False)


class _Clock:
    """An event loop's clock, which stands for the loop."""

    now = 100.0

    def time(self) -> float:
        return self.now


def opened_at(clock: _Clock, changes: list[float], aborted: list[float]) -> Any:  # noqa: ANN401 -- its parts are fakes
    """A connection that was opened now, and has no request yet; ``aborted`` gets when it is ended."""
    config = uvicorn.Config(_echo, log_config=None, lifespan="off", ws="none")
    server = BoundedServer(config, Limits(receive_seconds=1), _nothing)
    protocol: Any = OpenedProtocol(
        config=config,
        server_state=server.server_state,
        app_state={},
        limits=server.limits,
        crowd=server.crowd,
        changed=lambda: changes.append(clock.now),
        _loop=clock,
    )
    protocol.transport = SimpleNamespace(abort=lambda: aborted.append(clock.now), close=lambda: None)
    protocol.flow = SimpleNamespace(read_paused=False, resume_writing=lambda: None)
    protocol.waiting_since = clock.now
    return protocol


async def test_a_spare_connection_lasts_while_the_learner_tries_it_and_one_in_use_while_it_is_read() -> None:
    clock, aborted = _Clock(), list[float]()
    protocol = opened_at(clock, [], aborted)
    assert protocol.timeout_keep_alive == 45
    for seconds in (0, 2, 45, 45.5, 46):
        clock.now = 100.0 + seconds
        protocol.expire()
    assert aborted == [146.0], "the second look that finds it too late"
    protocol.waiting_since, clock.now = None, 200.0
    protocol.expire()
    protocol.cycle, protocol.waiting_since = SimpleNamespace(response_complete=False), 200.0
    for seconds in (1, 1.5, 2):
        clock.now = 200.0 + seconds
        protocol.expire()
    assert aborted == [146.0, 202.0], "a request that does not arrive ends it sooner"


async def test_an_opened_connection_says_whether_it_is_spare_and_whether_it_has_failed() -> None:
    clock, changes = _Clock(), list[float]()
    protocol = opened_at(clock, changes, [])
    assert (protocol.opened_at, protocol.closed_at) == (100, None)
    assert (protocol.is_spare, protocol.was_asked, protocol.failed_soon) == (True, False, False)
    for lasted, is_soon in ((4.9, True), (5.0, False)):
        clock.now = 100.0 + lasted
        protocol.connection_lost(None)
        assert (protocol.closed_at, protocol.failed_soon) == (100.0 + lasted, is_soon)
    assert changes == [104.9, 105.0]
    protocol.closed_at, protocol.cycle = 101.0, SimpleNamespace(response_complete=False)
    assert (protocol.is_spare, protocol.was_asked, protocol.failed_soon) == (False, True, False)
    protocol.cycle.response_complete = True
    assert protocol.is_spare
