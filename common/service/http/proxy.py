"""The HTTP proxy on the way to a learner, and what it is told.

httpx names a host of IPv6 to a proxy without its brackets, where ``::1:443`` may be any address: `spell_hosts` puts
them back, as a hook of a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import unquote

from pydantic import HttpUrl, TypeAdapter, UrlConstraints, ValidationError

from parley.common.errors import InvalidInputError

if TYPE_CHECKING:
    import httpx

ProxyUrl = Annotated[HttpUrl, UrlConstraints(allowed_schemes=["http"])]
"""It is met in the clear: what goes through it is TLS of its own."""


@dataclass(frozen=True, slots=True)
class ProxyAccess:
    """A proxy's ``url``, which holds no secret, and the ``password``: ``user:password`` as they are, or nothing."""

    url: str
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, text: str) -> Self:
        """The proxy of one URL with all in it; raises InvalidInputError, which does not repeat it."""
        try:
            url = TypeAdapter(ProxyUrl).validate_python(text)
        except ValidationError:
            raise InvalidInputError(
                "the proxy is named http://host:port or http://user:password@host:port, in which @ : / % of a "
                "password are spelt %40 %3A %2F %25"
            ) from None
        user, password = unquote(url.username or ""), unquote(url.password or "")
        return cls(f"{url.scheme}://{url.host}:{url.port}", f"{user}:{password}" if user or password else "")

    def for_client(self) -> httpx.Proxy:
        """As an HTTP client takes it."""
        import httpx  # noqa: PLC0415 -- settings name a proxy without it

        user, _, password = self.password.partition(":")
        return httpx.Proxy(self.url, auth=(user, password) if self.password else None)


def spell_hosts(request: httpx.Request) -> None:
    """Have a request name a host of IPv6 to a proxy in brackets: a hook of a client of httpx."""
    if b":" in (host := request.url.raw_host):
        request.extensions["trace"] = partial(_spell_host, host)


async def spell_hosts_async(request: httpx.Request) -> None:
    """As `spell_hosts`, for a client in an event loop."""
    if b":" in (host := request.url.raw_host):

        async def spell(step: str, parts: Mapping[str, Any]) -> None:
            _spell_host(host, step, parts)

        request.extensions["trace"] = spell


def _spell_host(host: bytes, step: str, parts: Mapping[str, Any]) -> None:
    """Put brackets around the host in what a proxy is asked for, before it is asked."""
    if not step.endswith(".send_request_headers.started"):
        return
    request = parts["request"]
    if (bare := request.url.target).startswith((host + b":", b"http://" + host)):
        request.url.target = bare.replace(host, b"[%b]" % host, 1)
        request.headers = [(name, request.url.target if value == bare else value) for name, value in request.headers]
