"""What is said on a connection to a learner before its roles are turned round: see `parley.common.client.awaited`.

On the way there may be an HTTP proxy, which is asked to connect (RFC 9110, 9.3.6), and is told user and password where
it asks for them. TLS begins behind it, so it sees the learner's name and nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import httpx
from cryptography import x509
from pydantic import BaseModel, HttpUrl, ValidationError

from parley.common.client.answers import parse_answer
from parley.common.client.endpoints import LearnerAddress
from parley.common.encoding.saved_text import as_utf8, decode_text
from parley.common.errors import InvalidInputError, TooLargeError, UnavailableError
from parley.common.service.http.proxy import ProxyAccess, spell_hosts
from parley.common.service.http.tls import client_context
from parley.common.storage.certificates import hosts_of

UPGRADE = "parley-peer"
"""What connections become: HTTP/1.1 with the roles turned round."""
CONNECT_PATH = "/v1/connections"

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
    path = url.raw_path.decode().rstrip("/") + CONNECT_PATH
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
