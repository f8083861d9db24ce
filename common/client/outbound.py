"""Connections that a service opens to its learner, and the renewal of the certificate that it shows there.

*Connections.* A `Dialer` keeps one connection more than is in use; `parley.common.client.awaited` is the other side. It
asks the learner to upgrade each one (`open_to`). From the learner's status 101 on, uvicorn serves the connection as it
serves one that was accepted: the same application, the same limits. If the learner cannot be reached, the dialer tries
again after a pause that grows to ten seconds. `Outbound` has a dialer for each learner of the settings, also when these
change while the service runs.

*Proxy.* An HTTP proxy on the way is asked to connect (RFC 9110, 9.3.6), and gets user and password if the settings have
them. TLS begins behind it, so it sees the learner's name and nothing else.

*Certificate.* A service renews its certificate before it ends: the learner's authority signs the same key again. It
asks for that on a connection of its own, with its token and its present certificate. A certificate that has ended
cannot be shown; the error then says what the owner must do.
"""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx
import structlog
from cryptography import x509
from pydantic import BaseModel, HttpUrl, ValidationError

from parley.common.client.awaited import PING_SECONDS
from parley.common.client.endpoints import LearnerAddress
from parley.common.client.peer import parse_answer
from parley.common.encoding.texts import as_utf8, decode_text
from parley.common.errors import InvalidInputError, ParleyError, TooLargeError, UnavailableError
from parley.common.routes import CONNECT, RENEW_CERTIFICATE
from parley.common.service.http.connections import Beside, BoundedProtocol, BoundedServer, kept_up
from parley.common.service.http.proxy import ProxyAccess, spell_hosts
from parley.common.service.http.tls import client_context
from parley.common.storage.certificates import Credentials, hosts_of
from parley.common.storage.keys import replace_private, writing
from parley.common.wire.membership import CertificateRequest, Membership

UPGRADE = "parley-peer"
"""The protocol that connections are upgraded to: HTTP/1.1 with the roles turned round."""

_Form = TypeVar("_Form", bound=BaseModel)
_LONGEST = 2**16  # bytes of a head and the problem after it
_SWITCHED, _PROXY_PASSWORD, _OK = 101, 407, 200


# ── opening a connection ─────────────────────────────────────────────────────


async def open_to(address: LearnerAddress) -> tuple[asyncio.Transport, bytes]:
    """Open a connection on which a learner will send requests; also returns the bytes of them that have come.

    Raises:
        OSError: nobody answers, or a certificate is not trusted.
        UnavailableError: a proxy or the learner refuses.
        InvalidInputError: a file of the settings cannot be read.
    """
    shake = _Handshake()
    try:
        await _upgrade(shake, address)
    except BaseException:
        shake.close()
        raise
    return shake.transport, bytes(shake.received)


async def _upgrade(shake: _Handshake, address: LearnerAddress) -> None:
    """Connect, through the proxy if there is one, and make the learner upgrade the connection."""
    url = httpx.URL(str(address.url))
    access = read_access(address)
    context = access.context
    port = url.port or (80 if context is None else 443)
    if address.proxy is None:
        await shake.connect(url.host, port, context)
    else:
        proxy = httpx.URL(str(address.proxy))  # whose host is without brackets, as sockets have it
        await shake.connect(proxy.host, proxy.port or 80, None)
        place = f"{url.netloc.decode().removesuffix(f':{port}')}:{port}"
        await _pass_proxy(shake, place, address.proxy, access.proxy_password)
        if context is not None:
            await shake.secure(context, url.host)
    headers = [f"Authorization: Bearer {access.token}", "Connection: Upgrade", f"Upgrade: {UPGRADE}"]
    path = url.raw_path.decode().rstrip("/") + CONNECT.at()
    status = await shake.ask(f"GET {path}", url.netloc.decode(), headers)
    if status != _SWITCHED:
        raise UnavailableError(f"{address.name} does not take the connection: {_meaning(status)}")


@dataclass(frozen=True, slots=True)
class LearnerAccess:
    """What a service shows its learner and its proxy, as the files held it; ``context`` is None for plain HTTP."""

    token: str = field(repr=False)
    proxy_password: bytes = field(repr=False)
    context: ssl.SSLContext | None


def read_access(address: LearnerAddress) -> LearnerAccess:
    """Read what a service shows its learner and its proxy from the files, as they are now.

    Raises InvalidInputError for files that cannot be used, UnavailableError for a certificate that does not count now.
    """
    token, password = address.token_text(), _proxy_password(address)
    is_tls = httpx.URL(str(address.url)).scheme == "https"
    context = client_context(address.ca, address.certificate, address.key) if is_tls else None
    if address.certificate is not None:
        _check_lasts(address.certificate)
    return LearnerAccess(token, password, context)


def _check_lasts(path: Path) -> None:
    """Raise UnavailableError, which says what to do, for a certificate that has ended, or has not begun."""
    try:
        certificate = x509.load_pem_x509_certificate(as_utf8(path.read_bytes()))
    except (OSError, ValueError):
        return  # showing it raises an error that says what is wrong
    if (begins := certificate.not_valid_before_utc) > datetime.now(UTC):
        raise UnavailableError(
            f"the certificate {path} holds from {begins:%Y-%m-%d %H:%M} UTC on: is this machine's clock behind?"
        )
    if (ended := certificate.not_valid_after_utc) <= datetime.now(UTC):
        raise UnavailableError(
            f"the certificate {path} expired on {ended:%Y-%m-%d}: have the learner's operator say "
            f"parley-learner roster rotate {hosts_of(certificate)[0]}, and join again in the same folder"
        )


def ask_as_member(
    address: LearnerAddress, path: str, answer: type[_Form], deed: str, body: BaseModel | None = None
) -> _Form:
    """Ask a learner as a member, with token and certificate, on a connection of its own; a ``body`` is sent by POST.

    Raises UnavailableError, which names the ``deed`` that the learner does not do, for any other answer.
    """
    context = client_context(address.ca, address.certificate, address.key)
    headers = {"Authorization": f"Bearer {address.token_text()}"}
    url = f"{str(address.url).rstrip('/')}{path}"
    try:
        with httpx.Client(
            verify=context,
            proxy=proxy_of(address),
            trust_env=False,
            headers=headers,
            event_hooks={"request": [spell_hosts]},
        ) as client:
            response = client.get(url) if body is None else client.post(url, json=body.model_dump(mode="json"))
        return parse_answer(answer, response.raise_for_status().content)
    except httpx.HTTPStatusError as error:
        reason = f": HTTP status {error.response.status_code}"
    except (httpx.TransportError, ValidationError, TooLargeError) as error:
        reason = f" ({type(error).__name__})"
    raise UnavailableError(f"{address.name} does not {deed}{reason}")


def proxy_of(address: LearnerAddress) -> httpx.Proxy | None:
    """Return the proxy with its user and password; raises InvalidInputError if their file cannot be read."""
    if address.proxy is None:
        return None
    return ProxyAccess(str(address.proxy), _proxy_password(address).decode(errors="replace")).for_client()


def _proxy_password(address: LearnerAddress) -> bytes:
    """Read ``user:password`` for the proxy; empty if the settings name no file."""
    if address.proxy_password_file is None:
        return b""
    try:
        return decode_text(address.proxy_password_file.read_bytes()).strip().encode()
    except (OSError, UnicodeDecodeError):
        raise InvalidInputError(f"{address.name!r}: {address.proxy_password_file} cannot be read") from None


async def _pass_proxy(shake: _Handshake, place: str, proxy: HttpUrl, password: bytes) -> None:
    """Make the proxy connect to ``place``, host:port; raises UnavailableError if it refuses."""
    headers = [f"Proxy-Authorization: Basic {base64.b64encode(password).decode()}"] if password else []
    status = await shake.ask(f"CONNECT {place}", place, headers)
    if status == _PROXY_PASSWORD:
        missing = "does not take this password" if headers else "asks for a password: name proxy_password_file"
        raise UnavailableError(f"the proxy {proxy} {missing}")
    if status != _OK:
        raise UnavailableError(f"the proxy {proxy} does not connect to {place}: {_meaning(status)}")


class _Handshake(asyncio.Protocol):
    """Exchanges heads of requests and responses; ``received`` has the bytes after the last head."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = bytearray()
        self._news = asyncio.Event()
        self._is_lost = False

    async def connect(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Open the connection; raises OSError."""
        self.transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, host, port, ssl=context)

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Begin TLS on the connection; raises OSError."""
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(self.transport, self, context, server_hostname=host)
        if secured is None:
            raise ConnectionResetError("closed while TLS began")
        self.transport = secured

    async def ask(self, line: str, host: str, headers: Sequence[str]) -> int:
        """Send a request without a body and return the status of the response; raises OSError, UnavailableError."""
        head = "\r\n".join([f"{line} HTTP/1.1", f"Host: {host}", *headers])
        self.transport.write(f"{head}\r\n\r\n".encode())
        while (end := self.received.find(b"\r\n\r\n")) < 0:
            if self._is_lost:
                raise ConnectionResetError("closed before it was answered")
            if len(self.received) > _LONGEST:
                raise UnavailableError("the answer is no HTTP")
            self._news.clear()
            await self._news.wait()
        status = bytes(self.received[:end]).split(maxsplit=2)[1:2]
        del self.received[: end + 4]
        return int(status[0]) if status and status[0].isdigit() else 0

    def close(self) -> None:
        """Close the connection, if there is one."""
        if hasattr(self, "transport"):
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Take bytes that have come."""
        self.received += data
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- as asyncio has it
        """Note that the connection has ended."""
        self._is_lost = True
        self._news.set()


def _meaning(status: int) -> str:
    """Return the status of a refusal with what it most likely means."""
    meant = {
        401: "the token is not known, or has expired",
        404: "nobody there takes connections",
        403: "its certificate is not shown, or not this party's",
        409: "the learner's operator has not confirmed this one",
    }
    return f"HTTP status {status}" + (f", {meant[status]}" if status in meant else "")


# ── renewing a certificate ───────────────────────────────────────────────────

_SHARE_LEFT = 1 / 3  # of its lifetime, from when on it is renewed
_LOOK_SECONDS = 3600.0


def renewing(learner: str, renew_if_due: Callable[[], None]) -> Beside:
    """Return the task beside a server that calls ``renew_if_due`` every hour, and logs the ParleyError that it raises.

    ``learner`` names the learner whose authority signs the certificate, for the log.
    """

    async def renew(_: BoundedServer) -> None:
        last_error = None
        while True:
            try:
                await asyncio.to_thread(renew_if_due)
                last_error = None
            except ParleyError as error:
                if error.detail != last_error:
                    last_error = error.detail
                    structlog.get_logger().warning("certificate", learner=learner, renewed=False, reason=last_error)
            await asyncio.sleep(_LOOK_SECONDS)

    return renew


def renew_for(address: LearnerAddress) -> None:
    """Renew a member's certificate for a learner when a third of its lifetime is left.

    Raises InvalidInputError if its files cannot be read, UnavailableError if the learner does not renew it.
    """
    assert address.certificate is not None  # noqa: S101 -- without it there is nothing to renew
    assert address.key is not None  # noqa: S101 -- comes with it
    credentials = read_credentials(address.certificate, address.key)
    if credentials.share_left <= 0 or not is_due(credentials):
        return
    request = CertificateRequest(certificate_request=credentials.request())
    membership = ask_as_member(address, RENEW_CERTIFICATE.at(), Membership, "renew the certificate", request)
    try:
        renewed = Credentials.read((membership.certificate or "").encode(), credentials.key_pem.encode())
    except ValueError:
        raise UnavailableError(f"what {address.name} sent is no certificate of this key") from None
    if renewed.certificate.not_valid_after_utc <= credentials.certificate.not_valid_after_utc:
        raise UnavailableError(f"the certificate that {address.name} sent does not last longer")
    keep_renewed(address.certificate, renewed, address.name)


def is_due(credentials: Credentials) -> bool:
    """Return whether a certificate is to be renewed now."""
    return credentials.share_left < _SHARE_LEFT


def read_credentials(certificate: Path, key: Path) -> Credentials:
    """Read a certificate and its key; raises InvalidInputError if they cannot be read or do not belong together."""
    try:
        return Credentials.read(certificate.read_bytes(), key.read_bytes())
    except (OSError, ValueError):
        raise InvalidInputError(
            f"{certificate} and {key} cannot be renewed: not both are there and belong together"
        ) from None


def keep_renewed(path: Path, renewed: Credentials, learner: str) -> None:
    """Write a new certificate, which services take up by themselves; raises UnavailableError."""
    with writing(path):
        replace_private(path, renewed.certificate_pem.encode())
    structlog.get_logger().info("certificate", learner=learner, renewed=True, days=renewed.lasts.days)


# ── serving opened connections ───────────────────────────────────────────────

_SPARE, _MOST = 1, 8
_SHAKE_SECONDS = 20.0
_FIRST_PAUSE, _LONGEST_PAUSE, _SOON = 0.2, 10.0, 5.0  # seconds; gone before the last, it has failed


class OpenedProtocol(BoundedProtocol):
    """uvicorn's protocol on a connection that this side opened; calls ``changed`` on each request and at its end."""

    def __init__(self, *args: Any, changed: Callable[[], None], **options: Any) -> None:  # noqa: ANN401 -- as uvicorn's
        super().__init__(*args, **options)
        self._changed = changed
        self.timeout_keep_alive = round(3 * PING_SECONDS)
        self.opened_at = self.loop.time()
        self.closed_at: float | None = None

    @property
    def is_spare(self) -> bool:
        """Whether it waits for a request, and so is free for the learner's next one."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def was_asked(self) -> bool:
        """Whether a request has come."""
        return self.cycle is not None

    @property
    def failed_soon(self) -> bool:
        """Whether it ended soon, and before any request came."""
        return self.closed_at is not None and not self.was_asked and self.closed_at - self.opened_at < _SOON

    def on_headers_complete(self) -> None:
        """Report that a request has come: another connection may be needed."""
        super().on_headers_complete()
        self._changed()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note when the connection has ended, and report it."""
        super().connection_lost(exc)
        self.closed_at = self.loop.time()
        self._changed()

    def expire(self) -> None:
        """End the connection when the time for a request is over; a spare one only if the learner stopped trying it."""
        if not self.is_spare or self.loop.time() - (self.waiting_since or 0.0) > 3 * PING_SECONDS:
            super().expire()


class Dialer:
    """Keeps connections of a server open to one learner."""

    def __init__(self, server: BoundedServer, address: LearnerAddress) -> None:
        self._server, self._address = server, address
        self._open: list[OpenedProtocol] = []
        self._news = asyncio.Event()
        self._pause = 0.0
        self._last_problem: str | None = None

    async def keep(self) -> None:
        """Open the connections that are missing, until the task is cancelled."""
        while True:
            if any(connection.was_asked for connection in self._open):
                self._pause = 0.0
            elif any(connection.failed_soon for connection in self._open):
                self._slow_down()
            self._open = [connection for connection in self._open if connection.closed_at is None]
            if len(self._open) >= _MOST or sum(connection.is_spare for connection in self._open) >= _SPARE:
                await self._wait()
                continue
            await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 -- so that not all come at once
            try:
                async with asyncio.timeout(_SHAKE_SECONDS):
                    transport, received = await open_to(self._address)
            except TimeoutError:
                self._fail("nobody answers in time")
            except (OSError, UnavailableError, InvalidInputError) as error:
                self._fail(str(error))
            else:
                self._open.append(self._serve(transport, received))
                self._tell("")

    def close(self) -> None:
        """End the connections, each once it has answered what it was asked."""
        for connection in self._open:
            connection.shutdown()

    async def _wait(self) -> None:
        """Wait until something happens to a connection; after a while without news, pauses start again at the least."""
        try:
            async with asyncio.timeout(_SOON if self._pause else None):
                await self._news.wait()
        except TimeoutError:
            self._pause = 0.0
        self._news.clear()

    def _fail(self, reason: str) -> None:
        self._slow_down()
        self._tell(reason)

    def _slow_down(self) -> None:
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)

    def _tell(self, problem: str) -> None:
        """Log that there is a connection, or why there is none, if that has changed."""
        if problem != self._last_problem:
            self._last_problem = problem
            log = structlog.get_logger().bind(learner=self._address.name)
            if problem:
                log.warning("outbound", connected=False, reason=problem)
            else:
                log.info("outbound", connected=True)

    def _serve(self, transport: asyncio.Transport, received: bytes) -> OpenedProtocol:
        """Make uvicorn serve a connection from here on, with the bytes that have already come."""
        protocol = OpenedProtocol(
            config=self._server.config,
            server_state=self._server.server_state,
            app_state=self._server.lifespan.state,
            limits=self._server.limits,
            crowd=self._server.crowd,
            changed=self._news.set,
        )
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if received:
            protocol.data_received(received)
        return protocol


class _Connecting(Protocol):
    """Settings that name learners to connect to."""

    @property
    def outbound(self) -> tuple[LearnerAddress, ...]: ...


class Outbound:
    """Keeps connections to learners beside a server, and renews the certificates for them.

    The learners may change while it runs: connections to the others stay as they are.
    """

    def __init__(self, addresses: Sequence[LearnerAddress]) -> None:
        self._addresses = tuple(addresses)
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def take_up(self, settings: _Connecting) -> Collection[str]:
        """Connect to the learners of changed settings, and to no others; from any thread. Returns the setting's key."""
        self._addresses = settings.outbound
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)
        return ("outbound",)

    async def keep(self, server: BoundedServer) -> None:
        """Keep up the connections and certificates of a server until the task is cancelled."""
        self._loop = asyncio.get_running_loop()
        tasks: dict[LearnerAddress, list[asyncio.Task[None]]] = {}
        try:
            while True:
                self._changed.clear()
                addresses = self._addresses
                for address in addresses:
                    if address not in tasks:
                        tasks[address] = [asyncio.create_task(kept_up(task, server)) for task in _tasks_for(address)]
                for address in tasks.keys() - set(addresses):
                    await _cancel(tasks.pop(address))
                    if address.name not in {other.name for other in addresses}:  # it is not merely reached otherwise
                        structlog.get_logger().info("outbound", learner=address.name, connected=False, reason="removed")
                await self._changed.wait()
        finally:
            await _cancel(task for each in tasks.values() for task in each)


def _tasks_for(address: LearnerAddress) -> Iterator[Beside]:
    """Yield what keeps connections to a learner, and what renews the certificate for it, if there is one."""
    yield lambda server: dial(server, address)
    if address.certificate:
        yield renewing(address.name, partial(renew_for, address))


async def dial(server: BoundedServer, address: LearnerAddress) -> None:
    """Keep connections of a server open to a learner until the task is cancelled; they end with it."""
    dialer = Dialer(server, address)
    try:
        await dialer.keep()
    finally:
        dialer.close()


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """End tasks, and wait until they have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
