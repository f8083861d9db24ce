"""``parley-learner init``: a learner's settings, keys and authority, so that owners can be invited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from parley.common.encoding.texts import toml_value
from parley.common.errors import ConflictError, InvalidInputError
from parley.common.service.commands import Printer, deferred
from parley.learner.cli.options import AUTHORITY, HERE, OPERATOR_TOKEN, SETTINGS

with deferred():
    import httpx

    from parley.common import strict
    from parley.common.encoding import key_words
    from parley.common.secure_sum import envelope
    from parley.common.service import compose as composing
    from parley.common.service import tokens
    from parley.common.storage import certificates, keys

PlainHttpOption = Annotated[
    bool, typer.Option("--plain-http", help="no TLS: for a URL on this machine, or behind a proxy that has TLS")
]
BEGINNINGS = "Example: parley-learner init https://learner.example.org:8100 --out learner"
"""The command's example, for its help."""

_EVERYWHERE = "0.0.0.0"  # noqa: S104 -- a learner is to be reached
_PORTS = 2**16


def init_learner_command(
    url: Annotated[str, typer.Argument(help="where owners and users will reach this learner, https://host:port")],
    folder: Annotated[Path, typer.Option("--out", help="folder to make")] = HERE,
    name: Annotated[str, typer.Option("--name", help="the learner's name")] = "learner",
    listen: Annotated[
        str | None, typer.Option("--listen", help="address to listen on; default: all, or for a loopback URL that one")
    ] = None,
    plain_http: PlainHttpOption = False,
    compose: Annotated[
        bool, typer.Option("--compose", help="write a Compose file too, which runs the learner in a container")
    ] = False,
    *,
    out: Printer,
) -> None:
    """Make a learner: settings, an authority of its own for certificates, TLS, and an operator's token.

    Then put studies into its folder, start it, and invite owners.
    """
    root = folder.resolve()
    made = make_learner(root, url, name, listen, plain_http=plain_http, compose=compose)
    text = f"""\
a learner in {root}; owners will ask for the words of its key:
  {made.words}
put studies into {root / "studies"}, one JSON file each, start it, and invite owners:
  {made.export}
  parley-learner invite NAME --study STUDY"""
    out.done(text, folder=str(root), words=made.words, start=made.start, environment=made.environment)
    out.next(made.start)


@dataclass(frozen=True, slots=True)
class NewLearner:
    """A learner that was made: the words of its key, the command that starts it, and the environment of its users."""

    words: str
    start: str
    environment: dict[str, str]

    @property
    def export(self) -> str:
        """The line for a shell from which the learner is used."""
        return exported(self.environment)


def make_learner(root: Path, url: str, name: str, listen: str | None, *, plain_http: bool, compose: bool) -> NewLearner:
    """Make a learner in the folder ``root``: settings, keys, TLS, an operator's token.

    Raises InvalidInputError for an address that cannot be, ConflictError where there is a learner already.
    """
    where = _url(url)
    host, port = _address(where, listen, plain_http=plain_http, compose=compose)
    if (root / SETTINGS).exists():
        raise ConflictError(f"{root} has a learner already")
    token, secrets = tokens.new_token(), root / "secrets"
    try:
        (root / "studies").mkdir(parents=True, exist_ok=True)
        keys.write_private(root / OPERATOR_TOKEN, f"{token}\n".encode())
        tls = "" if plain_http else _make_certificates(secrets, root / "state", name, where.host)
        key = keys.identity_key(root / "state" / "identity.key")
        joining: dict[str, str | Path] = {"url": url.rstrip("/")}
        if not plain_http:
            joining |= {"authority": root / AUTHORITY, "authority_key": secrets / "authority.key"}
        settings = f"""\
# The learner: where it listens, who may use it. Owners join by invitations: parley-learner invite.
name = {toml_value(name)}
host = "{host}"
port = {port}
state = {toml_value(root / "state")}
studies = {toml_value(root / "studies")}
{"plain_http = true  # something else has to protect it" if plain_http and not strict.is_loopback(host) else ""}
joining = {{ {", ".join(f"{name} = {toml_value(value)}" for name, value in joining.items())} }}
{tls}
[[users]]
name = "operator"
role = "operator"
token_hash = "{tokens.hash_token(token)}"
"""
        keys.write_private(root / SETTINGS, settings.encode())
    except OSError as error:
        raise InvalidInputError(f"{root} cannot be written: {error.strerror}") from None
    words = " ".join(key_words.words_of(envelope.public_hex(key)))
    start = _start(root / SETTINGS, where.host, port, compose=compose)
    return NewLearner(words, start, environment_of(root, url, plain_http=plain_http))


def exported(environment: Mapping[str, str]) -> str:
    """Return the line for a shell that sets these variables."""
    return f"export {' '.join(f'{name}={quote(value)}' for name, value in environment.items())}"


def environment_of(root: Path, url: str, *, plain_http: bool) -> dict[str, str]:
    """Return the variables by which commands find the learner in a folder, as its operator."""
    environment = {"PARLEY_URL": url.rstrip("/"), "PARLEY_TOKEN_FILE": str(root / OPERATOR_TOKEN)}
    return environment | ({} if plain_http else {"PARLEY_CA": str(root / AUTHORITY)})


def url_of_learner(text: str, *, plain_http: bool) -> str:
    """Return the URL of a learner to make; raises InvalidInputError for one that it cannot have."""
    _address(_url(text), None, plain_http=plain_http, compose=False)
    return text


def _url(text: str) -> httpx.URL:
    """Parse a URL as it was typed; raises InvalidInputError for text that is no URL."""
    try:
        return httpx.URL(text)
    except httpx.InvalidURL:
        raise InvalidInputError(f"{text} is not https://host:port") from None


def _address(url: httpx.URL, listen: str | None, *, plain_http: bool, compose: bool) -> tuple[str, int]:
    """Return the host and port where a learner of this URL listens; raises InvalidInputError for a wrong one."""
    if url.scheme not in {"https", "http"} or not url.host or url.raw_path not in {b"", b"/"}:
        raise InvalidInputError(f"{url} is not https://host:port")
    port = (80 if plain_http else 443) if url.port is None else url.port
    if not 0 < port < _PORTS:
        raise InvalidInputError(f"{url}: a port is a number from 1 to {_PORTS - 1}")
    if "%" in url.host:
        raise InvalidInputError(f"{url}: a zone (%...) has a meaning on one machine only: give an address without it")
    if (url.scheme == "http") != plain_http:
        raise InvalidInputError("https:// means TLS, and http:// needs the option --plain-http")
    reached = "127.0.0.1" if url.host == "localhost" else url.host
    everywhere = "::" if ":" in url.host else _EVERYWHERE
    host = listen.strip("[]") if listen else reached if strict.is_loopback(reached) and not compose else everywhere
    if compose and strict.is_loopback(host):
        raise InvalidInputError(
            f"--listen {host}: nobody reaches this address within a container; leave the option out"
        )
    return host, port


def serve_line(settings: Path) -> str:
    """Return the line for a shell that starts the learner of these settings."""
    return f"parley-learner serve --config {quote(str(settings))}"


def _start(settings: Path, host: str, port: int, *, compose: bool) -> str:
    """Return the command that starts the learner; with ``compose``, write the Compose file of its container first."""
    if not compose:
        return serve_line(settings)
    own_address = f"[{host}]" if ":" in host else "127.0.0.1"
    published = f"{f'{own_address}:' if strict.is_loopback(host) else ''}{port}:{port}"
    return composing.ContainerService("learner", ("parley-learner",), settings, ports=(published,)).write().start


def _make_certificates(secrets: Path, state: Path, name: str, host: str) -> str:
    """Write an authority and the learner's certificate; returns the settings that name them. Raises OSError."""
    authority = certificates.make_authority(f"{name} {datetime.now(UTC):%Y-%m-%d}")
    learner_pair = certificates.issue(authority, list(dict.fromkeys([host, "127.0.0.1", "localhost"])))
    for file, text in (
        (secrets / "authority.pem", authority.certificate_pem),
        (secrets / "authority.key", authority.key_pem),
        (state / "tls.pem", learner_pair.certificate_pem),  # beside what the service writes, for the service renews it
        (secrets / "tls.key", learner_pair.key_pem),
    ):
        keys.write_private(file, text.encode())
    (secrets / "authority.pem").chmod(0o644)  # for all who are to trust it
    return f"""
[tls]  # users show tokens; members show certificates too
certificate = {toml_value(state / "tls.pem")}
key = {toml_value(secrets / "tls.key")}
client_ca = {toml_value(secrets / "authority.pem")}
clients = "optional"
"""
