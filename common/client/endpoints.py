"""The settings that say how a service reaches its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, HttpUrl, SecretStr, model_validator

from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidInputError
from parley.common.service.http.proxy import ProxyUrl
from parley.common.strict import Identifier, PublicKey, Setting, TokenHash, is_protected


class PeerEntry(Setting):
    """A peer: where it is, or how it identifies itself when it connects; and the token to show it."""

    name: Annotated[Identifier, Field(description="the service's own name")]
    url: Annotated[
        HttpUrl | None, Field(description="where it listens, http:// or https://; unset if it connects itself")
    ] = None
    connects_with: Annotated[
        TokenHash | None,
        Field(description="hash of the token that it shows when it opens its connections to here itself"),
    ] = None
    token: Annotated[SecretStr | None, Field(description="the bearer token to show it")] = None
    token_file: Annotated[Path | None, Field(description="or the file that holds the token")] = None
    ca: Annotated[Path | None, Field(description="PEM file of the authority that signed its certificate")] = None
    certificate: Annotated[
        Path | None, Field(description="PEM file with the certificate chain to show it, if it wants to see one")
    ] = None
    key: Annotated[Path | None, Field(description="PEM file with that certificate's private key")] = None

    plain_http: Annotated[
        bool, Field(description="whether http:// is meant beyond this machine, where something else protects it")
    ] = False

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.url is not None and not (self.plain_http or is_protected(str(self.url))):
            raise ValueError(f"{self.name!r}: http:// beyond this machine needs plain_http = true; https:// is better")
        if (self.url is None) == (self.connects_with is None):
            raise ValueError(f"{self.name!r} needs either url, or connects_with for one that connects itself")
        if (self.token is None) == (self.token_file is None):
            raise ValueError(f"{self.name!r} needs either token or token_file")
        if (self.certificate is None) != (self.key is None):
            raise ValueError(f"{self.name!r} needs both certificate and key, or neither")
        return self

    def token_text(self) -> str:
        """Return the token; raises InvalidInputError when its file cannot be read."""
        if self.token is not None:
            return self.token.get_secret_value()
        assert self.token_file is not None  # noqa: S101 -- validated above
        try:
            token = decode_text(self.token_file.read_bytes()).strip()
            token.encode("ascii")
        except (OSError, UnicodeError):
            raise InvalidInputError(f"{self.name!r}: the token file {self.token_file} cannot be read") from None
        return token


class LearnerAddress(PeerEntry):
    """A learner to whom a service opens its connections itself, so that nobody has to reach it."""

    proxy: Annotated[
        ProxyUrl | None, Field(description="HTTP proxy on the way, http://host:port; none of the environment is used")
    ] = None
    proxy_password_file: Annotated[
        Path | None, Field(description="file that holds user:password for the proxy, if it asks for them")
    ] = None

    @model_validator(mode="after")
    def _has_address(self) -> Self:
        if self.url is None:
            raise ValueError(f"{self.name!r} needs a url to connect to")
        if self.proxy is not None and self.proxy.username:
            raise ValueError(f"{self.name!r}: user and password of a proxy belong into proxy_password_file")
        return self


class PartyEntry(PeerEntry):
    """A party of the roster."""

    public_key: Annotated[
        PublicKey | None, Field(description="its Ed25519 key, as `parley-party identity` prints it: for secure sums")
    ] = None
