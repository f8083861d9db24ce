"""The HTTP proxy on the way to a learner.

httpx writes an IPv6 host to a proxy without brackets, so that ``::1:443`` may be any address: `spell_hosts` adds them,
as a hook of a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import unquote

from pydantic import HttpUrl, TypeAdapter, UrlConstraints, ValidationError

from parley.common.errors import InvalidInputError
from parley.common.strict import one_line

if TYPE_CHECKING:
    import httpx

ProxyUrl = Annotated[HttpUrl, UrlConstraints(allowed_schemes=["http"])]
"""The connection to it is not encrypted: the traffic through it is TLS of its own."""

DENIALS = ("401", "407")
"""How the answers of a proxy begin that wants a password, or another one."""


@dataclass(frozen=True, slots=True)
class ProxyAccess:
    """A proxy's ``url``, without secrets, and the ``password``: ``user:password`` decoded, or empty."""

    url: str
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a URL with user and password; raises InvalidInputError, which does not repeat it."""
        try:
            url = TypeAdapter(ProxyUrl).validate_python(text)
        except ValidationError:
            raise InvalidInputError(
                "the proxy is named http://host:port or http://user:password@host:port, in which @ : / % of a "
                "password are spelt %40 %3A %2F %25"
            ) from None
        user, password = unquote(url.username or ""), unquote(url.password or "")
        return cls(f"{url.scheme}://{url.host}:{url.port}", f"{user}:{password}" if user or password else "")

    def refusal(self, answer: str, url: str) -> str:
        """Explain its answer, a status and a reason, to who asked it for ``url``."""
        if not answer.startswith(DENIALS):
            words = f"does not connect to {url}: {one_line(answer[:100])}"
        elif self.password:
            words = "does not take this user and password"
        else:
            words = "asks for a password: name it http://user:password@host:port"
        return f"the proxy {self.url} {words}"

    def for_client(self) -> httpx.Proxy:
        """Return the proxy as an HTTP client takes it."""
        import httpx  # noqa: PLC0415 -- settings name a proxy without it

        user, _, password = self.password.partition(":")
        return httpx.Proxy(self.url, auth=(user, password) if self.password else None)


def spell_hosts(request: httpx.Request) -> None:
    """Write an IPv6 host to a proxy in brackets: a hook of a client of httpx."""
    if b":" in (host := request.url.raw_host):
        request.extensions["trace"] = partial(_spell_host, host)


async def spell_hosts_async(request: httpx.Request) -> None:
    """Write an IPv6 host to a proxy in brackets: a hook of an asynchronous client of httpx."""
    if b":" in (host := request.url.raw_host):

        async def spell(step: str, parts: Mapping[str, Any]) -> None:
            _spell_host(host, step, parts)

        request.extensions["trace"] = spell


def _spell_host(host: bytes, step: str, parts: Mapping[str, Any]) -> None:
    """Put brackets around the host in the request line, before it is sent to the proxy."""
    if not step.endswith(".send_request_headers.started"):
        return
    request = parts["request"]
    if (bare := request.url.target).startswith((host + b":", b"http://" + host)):
        request.url.target = bare.replace(host, b"[%b]" % host, 1)
        request.headers = [(name, request.url.target if value == bare else value) for name, value in request.headers]
