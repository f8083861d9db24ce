"""The HTTP proxy on the way to a learner, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Self
from urllib.parse import unquote

from pydantic import HttpUrl, TypeAdapter, UrlConstraints, ValidationError

from common.errors import InvalidInputError

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
