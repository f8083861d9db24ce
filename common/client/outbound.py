"""A service opens its connections to those who ask it: see `parley.common.client.awaited` for the other side.

From the learner's 101 on, uvicorn serves a connection as it serves one that was accepted: the same application, the
same limits. One connection more is kept than is in use. Where none can be had, another is tried after a pause that
grows to ten seconds.

What is said on a connection to a learner before its roles are turned round: see `parley.common.client.awaited`.

On the way there may be an HTTP proxy, which is asked to connect (RFC 9110, 9.3.6), and is told user and password where
it asks for them. TLS begins behind it, so it sees the learner's name and nothing else.

A service's certificate, renewed by the service itself before it ends: the same key, signed again.

A member asks its learner, on a connection of its own that shows its token and the certificate that there still is. One
that has ended cannot be shown: then its owner is told what to do.
"""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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
from parley.common.service.http.connections import Beside, BoundedProtocol, BoundedServer
from parley.common.service.http.proxy import ProxyAccess, spell_hosts
from parley.common.service.http.tls import client_context
from parley.common.storage.certificates import Credentials, hosts_of
from parley.common.storage.keys import replace_private, writing
from parley.common.wire.membership import CertificateRequest, Membership

UPGRADE = "parley-peer"
"""What connections become: HTTP/1.1 with the roles turned round."""

_A = TypeVar("_A", bound=BaseModel)
_LONGEST = 2**16  # bytes of a head and the problem after it
_SWITCHED, _PROXY_PASSWORD, _OK = 101, 407, 200


async def open_to(address: LearnerAddress) -> tuple[asyncio.Transport, bytes]:
    """A connection on which a learner will ask, and what has come of its first request.

    Raises OSError where nobody answers or a certificate is not believed, UnavailableError where a proxy or the learner
    refuses, InvalidInputError where a file of the settings cannot be read.
    """
    shake = _Handshake()
    try:
        await _shake(shake, address)
    except BaseException:
        shake.close()
        raise
    return shake.transport, bytes(shake.received)


async def _shake(shake: _Handshake, address: LearnerAddress) -> None:
    """Connect, and have the learner switch."""
    url = httpx.URL(str(address.url))
    shown = shown_to(address)
    context = shown.context
    port = url.port or (80 if context is None else 443)
    if address.proxy is None:
        await shake.connect(url.host, port, context)
    else:
        await shake.connect(address.proxy.host or "", address.proxy.port or 80, None)
        place = f"{url.netloc.decode().removesuffix(f':{port}')}:{port}"
        await _pass(shake, place, address.proxy, shown.proxy_password)
        if context is not None:
            await shake.secure(context, url.host)
    own = [f"Authorization: Bearer {shown.token}", "Connection: Upgrade", f"Upgrade: {UPGRADE}"]
    path = url.raw_path.decode().rstrip("/") + CONNECT.at()
    status = await shake.ask(f"GET {path}", url.netloc.decode(), own)
    if status != _SWITCHED:
        raise UnavailableError(f"{address.name} does not take the connection: {_meaning(status)}")


@dataclass(frozen=True, slots=True)
class Shown:
    """How a learner is met, by the files as they were read: ``context`` is TLS, or None where that is plain HTTP."""

    token: str = field(repr=False)
    proxy_password: bytes = field(repr=False)
    context: ssl.SSLContext | None


def shown_to(address: LearnerAddress) -> Shown:
    """How a learner is met, by the files as they are now.

    Raises InvalidInputError for files that cannot be used, UnavailableError for a certificate that is shown in vain.
    """
    token, password = address.token_text(), _proxy_password(address)
    is_tls = httpx.URL(str(address.url)).scheme == "https"
    context = client_context(address.ca, address.certificate, address.key) if is_tls else None
    if address.certificate is not None:
        _check_lasts(address.certificate)
    return Shown(token, password, context)


def _check_lasts(path: Path) -> None:
    """Raise UnavailableError, which says what to do, for a certificate that has ended, or has not begun."""
    try:
        held = x509.load_pem_x509_certificate(as_utf8(path.read_bytes()))
    except (OSError, ValueError):
        return  # whoever shows it says what is wrong
    if (begins := held.not_valid_before_utc) > datetime.now(UTC):
        raise UnavailableError(
            f"the certificate {path} holds from {begins:%Y-%m-%d %H:%M} UTC on: is this machine's clock behind?"
        )
    if (ended := held.not_valid_after_utc) <= datetime.now(UTC):
        raise UnavailableError(
            f"the certificate {path} expired on {ended:%Y-%m-%d}: have the learner's operator say "
            f"parley-learner roster rotate {hosts_of(held)[0]}, and join again in the same folder"
        )


def ask_as_member(address: LearnerAddress, path: str, answer: type[_A], deed: str, body: BaseModel | None = None) -> _A:
    """What a learner answers a member that shows token and certificate on a connection of its own: by POST a ``body``.

    Raises UnavailableError where it does not answer so, and so does not do the ``deed``.
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
        why = f": HTTP status {error.response.status_code}"
    except (httpx.TransportError, ValidationError, TooLargeError) as error:
        why = f" ({type(error).__name__})"
    raise UnavailableError(f"{address.name} does not {deed}{why}")


def proxy_of(address: LearnerAddress) -> httpx.Proxy | None:
    """A proxy and what it is told; raises InvalidInputError where the file of that cannot be read."""
    if address.proxy is None:
        return None
    return ProxyAccess(str(address.proxy), _proxy_password(address).decode(errors="replace")).for_client()


def _proxy_password(address: LearnerAddress) -> bytes:
    """``user:password``, or nothing."""
    if address.proxy_password_file is None:
        return b""
    try:
        return decode_text(address.proxy_password_file.read_bytes()).strip().encode()
    except (OSError, UnicodeDecodeError):
        raise InvalidInputError(f"{address.name!r}: {address.proxy_password_file} cannot be read") from None


async def _pass(shake: _Handshake, place: str, proxy: HttpUrl, password: bytes) -> None:
    """Have the proxy connect to a place; raises UnavailableError."""
    own = [f"Proxy-Authorization: Basic {base64.b64encode(password).decode()}"] if password else []
    status = await shake.ask(f"CONNECT {place}", place, own)
    if status == _PROXY_PASSWORD:
        missing = "does not take this password" if own else "asks for a password: name proxy_password_file"
        raise UnavailableError(f"the proxy {proxy} {missing}")
    if status != _OK:
        raise UnavailableError(f"the proxy {proxy} does not connect to {place}: {_meaning(status)}")


class _Handshake(asyncio.Protocol):
    """A head each way; what comes after the last is ``received``."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = bytearray()
        self._news = asyncio.Event()
        self._is_lost = False

    async def connect(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Raises OSError."""
        self.transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, host, port, ssl=context)

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Begin TLS on the connection; raises OSError."""
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(self.transport, self, context, server_hostname=host)
        if secured is None:
            raise ConnectionResetError("closed while TLS began")
        self.transport = secured

    async def ask(self, line: str, host: str, headers: Sequence[str]) -> int:
        """The status of the answer to a request without a body; raises OSError, UnavailableError."""
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
        """Let go of the connection, if there is one."""
        if hasattr(self, "transport"):
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        self.received += data
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- as asyncio has it
        """The connection is gone."""
        self._is_lost = True
        self._news.set()


def _meaning(status: int) -> str:
    """What the status of a refusal most likely means."""
    meant = {
        401: "the token is not known, or has expired",
        404: "nobody there takes connections",
        403: "its certificate is not shown, or not this party's",
        409: "the learner's operator has not confirmed this one",
    }
    return f"HTTP status {status}" + (f", {meant[status]}" if status in meant else "")


_SHARE_LEFT = 1 / 3  # of its lifetime, from when on it is renewed
_LOOK_SECONDS = 3600.0


def renewing(learner: str, renew_if_due: Callable[[], None]) -> Beside:
    """What renews a certificate beside a server, by a call now and then that raises ParleyError where it cannot.

    ``learner`` is by whose authority it is signed.
    """

    async def renew(_: BoundedServer) -> None:
        told = None
        while True:
            try:
                await asyncio.to_thread(renew_if_due)
                told = None
            except ParleyError as error:
                if error.detail != told:
                    told = error.detail
                    structlog.get_logger().warning("certificate", learner=learner, renewed=False, reason=told)
            await asyncio.sleep(_LOOK_SECONDS)

    return renew


def renew_for(address: LearnerAddress) -> None:
    """Renew a member's certificate for a learner when a third of its lifetime is left.

    Raises InvalidInputError where its files cannot be read, UnavailableError where the learner does not renew it.
    """
    assert address.certificate is not None  # noqa: S101 -- else there is nothing to renew
    assert address.key is not None  # noqa: S101 -- comes with it
    held = read_credentials(address.certificate, address.key)
    if held.share_left <= 0 or not is_due(held):
        return
    request = CertificateRequest(certificate_request=held.request())
    told = ask_as_member(address, RENEW_CERTIFICATE.at(), Membership, "renew the certificate", request)
    try:
        renewed = Credentials.read((told.certificate or "").encode(), held.key_pem.encode())
    except ValueError:
        raise UnavailableError(f"what {address.name} sent is no certificate of this key") from None
    if renewed.lasts <= held.lasts:
        raise UnavailableError(f"the certificate that {address.name} sent does not last longer")
    keep_renewed(address.certificate, renewed, address.name)


def is_due(held: Credentials) -> bool:
    """Whether a certificate is to be renewed now."""
    return held.share_left < _SHARE_LEFT


def read_credentials(certificate: Path, key: Path) -> Credentials:
    """What is to be renewed; raises InvalidInputError."""
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


_SPARE, _MOST = 1, 8
_SHAKE_SECONDS = 20.0
_FIRST_PAUSE, _LONGEST_PAUSE, _SOON = 0.2, 10.0, 5.0  # seconds; gone before the last, it has failed


class OpenedProtocol(BoundedProtocol):
    """uvicorn's protocol on a connection that this side has opened; ``changed`` hears of all that befalls it."""

    def __init__(self, *args: Any, changed: Callable[[], None], **options: Any) -> None:  # noqa: ANN401 -- as uvicorn's
        super().__init__(*args, **options)
        self._changed = changed
        self.timeout_keep_alive = round(3 * PING_SECONDS)
        self.opened_at = self.loop.time()
        self.closed_at: float | None = None

    @property
    def is_spare(self) -> bool:
        """Whether it waits for a request."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def was_asked(self) -> bool:
        """Whether a request has come."""
        return self.cycle is not None

    @property
    def was_in_vain(self) -> bool:
        """Whether it is gone, soon and unasked."""
        return self.closed_at is not None and not self.was_asked and self.closed_at - self.opened_at < _SOON

    def on_headers_complete(self) -> None:
        """A request has come: another connection may be needed."""
        super().on_headers_complete()
        self._changed()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().connection_lost(exc)
        self.closed_at = self.loop.time()
        self._changed()

    def expire(self) -> None:
        """A spare connection may rest for as long as it is tried now and then; a request may take as long as any."""
        if not self.is_spare or self.loop.time() - (self.waiting_since or 0.0) > 3 * PING_SECONDS:
            super().expire()


class Dialer:
    """Keeps connections of a server open to one learner."""

    def __init__(self, server: BoundedServer, address: LearnerAddress) -> None:
        self._server, self._address = server, address
        self._open: list[OpenedProtocol] = []
        self._news = asyncio.Event()
        self._pause = 0.0
        self._told: str | None = None

    async def keep(self) -> None:
        """Open what is missing, for ever."""
        while True:
            if any(each.was_asked for each in self._open):
                self._pause = 0.0
            elif any(each.was_in_vain for each in self._open):
                self._slow_down()
            self._open = [each for each in self._open if each.closed_at is None]
            if len(self._open) >= _MOST or sum(each.is_spare for each in self._open) >= _SPARE:
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

    async def _wait(self) -> None:
        """Until something happens to a connection; after a while without, the next failure is the first."""
        try:
            async with asyncio.timeout(_SOON if self._pause else None):
                await self._news.wait()
        except TimeoutError:
            self._pause = 0.0
        self._news.clear()

    def _fail(self, why: str) -> None:
        self._slow_down()
        self._tell(why)

    def _slow_down(self) -> None:
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)

    def _tell(self, problem: str) -> None:
        """Log that there is a connection, or why there is none, when that has changed."""
        if problem != self._told:
            self._told = problem
            log = structlog.get_logger().bind(learner=self._address.name)
            if problem:
                log.warning("outbound", connected=False, reason=problem)
            else:
                log.info("outbound", connected=True)

    def _serve(self, transport: asyncio.Transport, received: bytes) -> OpenedProtocol:
        """Have uvicorn serve a connection from here on, what has come of a request included."""
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


def outbound(addresses: Sequence[LearnerAddress]) -> list[Beside]:
    """What keeps connections to each of these learners, and the certificates for them, beside a server."""

    def dial(address: LearnerAddress) -> Beside:
        return lambda server: Dialer(server, address).keep()

    renewals = [renewing(each.name, partial(renew_for, each)) for each in addresses if each.certificate]
    return [*map(dial, addresses), *renewals]
