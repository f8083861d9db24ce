"""How an owner, or a key holder, becomes a learner's member: its folder, its enrolment, its pins of others' keys.

An owner joins by an invitation: keys, certificate, settings and ledger in one folder, and outbound alone.

What needs a person comes first, what needs the network next, what needs the disk before the invitation is used up. All
that is drawn is kept in the folder before it is sent; so whatever fails, the same command goes on from there, and the
learner answers the same request as it did before. Joined again with a new invitation, a member keeps its key and
ledger, and gets new tokens and a new certificate.

A learner tells its members each other's keys, in invitations and on request, and may tell keys of its own making. So a
key counts once its six words have been compared with those that its owner reads out, and ``compared = true`` beside it
in the settings says so. What was not compared stays written down, so that it can be compared later, and counts for
nothing.
"""

from __future__ import annotations

import re
import ssl
import tomllib
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.encoding.texts import decode_text
from parley.common.errors import ConflictError, InvalidInputError, ParleyError, UnavailableError
from parley.common.routes import JOIN
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.http.proxy import ProxyAccess, spell_hosts
from parley.common.service.tokens import hash_token, new_token
from parley.common.storage.certificates import request_certificate
from parley.common.storage.keys import identity_key, read_private, replace_private, write_private, writing
from parley.common.strict import one_line
from parley.common.wire.membership import Invitation, JoinRequest, KnownKey, Membership

_SKEW_SECONDS = 600.0
_TIMEOUT = httpx.Timeout(10.0, read=60.0)
_NOT_YET, _EXPIRED = 9, 10  # OpenSSL's codes: a certificate that does not count yet, or any more


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a member keeps what is its own."""

    root: Path

    @property
    def state(self) -> Path:
        """What its service writes."""
        return self.root / "state"

    @property
    def secrets(self) -> Path:
        """Tokens and the TLS key."""
        return self.root / "secrets"

    @property
    def certificate(self) -> Path:
        """The TLS certificate: no secret, and beside what the service writes, for the service renews it."""
        return self.state / "tls.pem"

    def key(self) -> Ed25519PrivateKey:
        """What it signs with; made when first asked for."""
        return identity_key(self.state / "identity.key")

    def begin(self, invitation: Invitation) -> None:
        """Draw what is to be drawn for an invitation, once; raises UnavailableError where the disk does not take it."""
        mark = hash_token(invitation.secret)
        with writing(self.root):
            if self._read("invitation.mark") == mark:
                return
            if (self.secrets / "invitation.mark").exists() and invitation.name != self._read("name"):
                raise ConflictError(f"{self.root} is {self._read('name')}'s: choose another folder by --out")
            request, key = request_certificate(invitation.name)
            for name, text in (
                ("name", invitation.name),
                ("connect.token.new", new_token()),
                ("learner.token.new", new_token()),
                ("tls.key.new", key),
                ("tls.request", request),
                ("invitation.mark", mark),  # the last: all else is there
            ):
                replace_private(self.secrets / name, text.encode())

    def request(self, invitation: Invitation) -> JoinRequest:
        """What joins, signed; the same each time for the same invitation."""
        key = self.key()
        asked = JoinRequest(
            public_key=public_hex(key),
            connects_with=hash_token(self._drawn("connect.token")),
            token=self._drawn("learner.token"),
            certificate_request=self._read("tls.request") if invitation.authority else None,
        )
        return asked.signed(invitation.name, key)

    def finish(self, invitation: Invitation, membership: Membership, settings: str, name: str) -> None:
        """Keep what has come back, and the settings; raises UnavailableError."""
        certificate = membership.certificate
        with writing(self.root, "; say the same again"):
            if (self.root / name).exists():
                self._change_token(self.root / name)  # the first: afterwards nobody knows the token before
            for file in ("connect.token", "learner.token", "tls.key"):
                replace_private(self.secrets / file, self._drawn(file).encode())
            if certificate and invitation.authority:
                replace_private(self.certificate, certificate.encode())
                replace_private(self.secrets / "authority.pem", invitation.authority.encode())
            if not (self.root / name).exists():
                write_private(self.root / name, settings.encode())
            for drawn in self.secrets.glob("*.new"):
                drawn.unlink()

    def learner_token_hash(self) -> str:
        """By which the learner is known here."""
        return hash_token(self._drawn("learner.token"))

    def _change_token(self, path: Path) -> None:
        """Put the learner's new token's hash into settings in the place of the one before; InvalidInputError."""
        text, new = decode_text(path.read_bytes()), self.learner_token_hash()
        if new in text:
            return
        if (old := hash_token(self._read("learner.token"))) not in text:
            raise InvalidInputError(f'{path} has not the token_hash that it was made with: write token_hash = "{new}"')
        replace_private(path, text.replace(old, new).encode())

    def _drawn(self, name: str) -> str:
        return self._read(f"{name}.new") or self._read(name)

    def _read(self, name: str) -> str:
        """A secret's text; nothing where there is none."""
        path = self.secrets / name
        return read_private(path).decode().strip() if path.exists() else ""


class Enrolment:
    """The way to the learner of an invitation, through an HTTP proxy if need be."""

    def __init__(self, invitation: Invitation, proxy: ProxyAccess | None = None) -> None:
        self._invitation = invitation
        self._proxy = proxy
        self._context = ssl.create_default_context(cadata=invitation.authority)

    def check(self) -> None:
        """Raise UnavailableError or InvalidInputError unless the learner is there, and itself, at the same time."""
        told = self._send("GET", "/healthz").headers.get("date")
        apart = abs((datetime.now(UTC) - parsedate_to_datetime(told)).total_seconds()) if told else 0.0
        if apart > _SKEW_SECONDS:
            raise InvalidInputError(
                f"this machine's clock and the learner's are {apart / 60:.0f} minutes apart: set it"
            )

    def join(self, asked: JoinRequest) -> Membership:
        """Use the invitation up; raises ConflictError where somebody else has."""
        headers = {"Authorization": f"Bearer {self._invitation.secret}", "Content-Type": "application/json"}
        response = self._send(*JOIN.to(), asked.model_dump_json(), headers)
        if not response.is_success:
            detail = one_line(str(_json(response).get("detail", f"HTTP status {response.status_code}"))[:500])
            unknown = response.status_code == httpx.codes.UNAUTHORIZED
            why = "it has been used, replaced or taken back, or has expired" if unknown else detail
            raise ConflictError(f"the learner does not take the invitation: {why}")
        return Membership.model_validate_json(response.content)

    def _send(self, method: str, path: str, body: str = "", headers: dict[str, str] | None = None) -> httpx.Response:
        url = f"{self._invitation.url}{path}"
        proxy = self._proxy.for_client() if self._proxy else None
        hooks = {"request": [spell_hosts]}
        way = httpx.Client(verify=self._context, proxy=proxy, trust_env=False, timeout=_TIMEOUT, event_hooks=hooks)
        try:
            with way:
                return way.request(method, url, content=body or None, headers=headers)
        except httpx.ProxyError as error:
            raise UnavailableError(f"the proxy {self._refusal(str(error))}") from None
        except httpx.TransportError as error:
            raise self._failure(error) from None

    def _refusal(self, answer: str) -> str:
        """What a proxy's answer, status and reason, means."""
        if not answer.startswith(("401", "407")):
            return f"does not connect to {self._invitation.url}: {one_line(answer[:100])}"
        if self._proxy and self._proxy.password:
            return "does not take this user and password"
        return "asks for a password: --proxy http://user:password@host:port"

    def _failure(self, error: httpx.TransportError) -> ParleyError:
        """What went wrong, in words."""
        url, cause = self._invitation.url, _tls_cause(error)
        if cause is None:
            way = f" through the proxy {self._proxy.url}" if self._proxy else ""
            return UnavailableError(f"the learner at {url} cannot be reached{way} ({type(error).__name__})")
        if cause.verify_code in {_NOT_YET, _EXPIRED}:
            return InvalidInputError(
                f"the certificate of {url} does not count at this time: is this machine's clock right?"
            )
        return InvalidInputError(
            f"{url} shows a certificate that is not by the invitation's authority: {cause.verify_message}"
        )


def _tls_cause(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The TLS error behind one of httpx's."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _json(response: httpx.Response) -> dict[str, object]:
    try:
        found = response.json()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


Table = Literal["key_holders", "parties"]
"""The arrays of ``[secure_sum]``."""

_TABLES = re.compile(r"(?m)^(?=[ \t]*\[)")
_PUBLIC_KEY, _COMPARED = re.compile(r"\s*public_key\s*="), re.compile(r"\s*compared\s*=")


def spell_pins(table: Table, keys: Iterable[KnownKey], compared: Iterable[str]) -> str:
    """TOML of pins; ``compared`` are the names of those that the owner has compared."""
    return "".join(
        f'\n[[secure_sum.{table}]]\nname = "{key.name}"\n{_spell(key, compared=key.name in compared)}' for key in keys
    )


def with_pin(text: str, table: Table, key: KnownKey) -> str:
    """The text of settings with this key as compared: under its name if that is there, else at the end.

    Raises InvalidInputError where the pins are written otherwise than as arrays of tables.
    """
    due = deepcopy(tomllib.loads(text))
    pins = due.setdefault("secure_sum", {}).setdefault(table, [])
    compared = {"name": key.name, "public_key": key.public_key, "compared": True}
    if known := next((pin for pin in pins if pin.get("name") == key.name), None):
        known |= compared
        pinned = "".join(_marked(part, table, key) for part in _TABLES.split(text))
    else:
        pins.append(compared)
        pinned = text.rstrip("\n") + "\n" + spell_pins(table, [key], [key.name])
    try:
        if tomllib.loads(pinned) == due:
            return pinned
    except tomllib.TOMLDecodeError:
        pass
    by_hand = f'{{ name = "{key.name}", public_key = "{key.public_key}", compared = true }}'
    raise InvalidInputError(f"secure_sum is not spelt as [[secure_sum.{table}]]: write the pin by hand: {by_hand}")


def save_settings(config: Path, text: str) -> None:
    """Replace settings by others, if a party can start with them; raises InvalidInputError, UnavailableError.

    Raises OwnKeyError where the party's own key cannot be read.
    """
    from parley.party.settings import PartySettings  # noqa: PLC0415 -- help comes faster without

    draft = config.resolve().with_name(f".{config.name}.draft")
    with writing(config):
        replace_private(draft, text.encode())
        try:
            _ = PartySettings.load(draft).identity
        except InvalidInputError as error:
            raise InvalidInputError(error.detail.replace(str(draft), str(config))) from None
        finally:
            draft.unlink()
        replace_private(config.resolve(), text.encode())


def _spell(key: KnownKey, *, compared: bool) -> str:
    """A pin's key, and whether it counts."""
    counts = "true" if compared else "false  # until you say: parley-party pin NAME WORDS"
    return f'public_key = "{key.public_key}"\ncompared = {counts}\n'


def _marked(part: str, table: Table, key: KnownKey) -> str:
    """A part of settings, from the head of a table to the next; with the key if it is that pin's."""
    try:
        found = tomllib.loads(part).get("secure_sum", {})
    except tomllib.TOMLDecodeError:
        return part
    pins = found.get(table, []) if isinstance(found, dict) else []
    if not part.lstrip().startswith("[[") or [pin.get("name") for pin in pins] != [key.name]:
        return part
    lines = (line for line in part.splitlines(keepends=True) if not _COMPARED.match(line))
    return "".join(_spell(key, compared=True) if _PUBLIC_KEY.match(line) else line for line in lines)
