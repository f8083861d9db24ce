"""How an owner, or a key holder, becomes a learner's member: its folder, and its enrolment.

An owner joins by an invitation. Keys, certificate, settings and ledger lie in one folder, and the service opens all
connections itself. Tokens and TLS files for a learner after the first begin with its name, so that no learner's
replace another's.

The steps that need a person come first, then those that need the network; those that need the disk come before the
invitation is used up. Keys and tokens are stored in the folder before they are sent. So after any failure the same
command continues from there, and the learner gives the same request the same answer. A member that joins again, by a
new invitation, keeps its key and ledger. It gets new tokens, unless it only adds a study: then a service that runs
goes on with those that it has.

A learner tells its members each other's keys, in invitations and on request, and could make those keys itself. So a
key counts once its six words have been compared with those that its owner reads out, and ``compared = true`` beside it
in the settings says so. A key that was not compared stays in the settings, so that it can be compared later, and
counts for nothing.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.errors import ConflictError, InvalidInputError, ParleyError, UnavailableError
from parley.common.routes import JOIN
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.http.proxy import ProxyAccess, spell_hosts
from parley.common.service.tokens import hash_token, new_token
from parley.common.storage.certificates import request_certificate
from parley.common.storage.keys import identity_key, read_private, replace_private, write_private, writing
from parley.common.strict import one_line
from parley.common.wire.membership import Invitation, JoinRequest, Membership

_DRAWN = ("connect.token", "learner.token", "tls.key")
"""The files of secrets that are drawn for an invitation: as ``.new`` until the learner knows them."""
_SKEW_SECONDS = 600.0
_TIMEOUT = httpx.Timeout(10.0, read=60.0)
_NOT_YET, _EXPIRED = 9, 10  # OpenSSL's codes for a certificate that is not valid yet, and for one that has expired


@dataclass(frozen=True, slots=True)
class Folder:
    """A member's folder: its settings, state, and the secrets that it shares with one learner.

    ``learner`` is empty for the first learner, and for another its name in the settings. ``kept_in`` is the state where
    that is elsewhere.
    """

    root: Path
    learner: str = ""
    kept_in: Path | None = None

    @property
    def state(self) -> Path:
        """The folder that the service writes to."""
        return self.kept_in or self.root / "state"

    @property
    def secrets(self) -> Path:
        """The folder of the tokens and TLS keys."""
        return self.root / "secrets"

    def secret(self, name: str) -> Path:
        """Return the path of a file of this name for the learner."""
        return self.secrets / self._named(name)

    @property
    def certificate(self) -> Path:
        """The file of the TLS certificate, which is no secret; it lies in ``state`` because the service renews it."""
        return self.state / self._named("tls.pem")

    @property
    def monitor_token(self) -> Path:
        """The file of the token that the owner's own monitor shows."""
        return self.secrets / "metrics.token"

    def key(self) -> Ed25519PrivateKey:
        """Return the key that the member signs with; the first call makes it."""
        return identity_key(self.state / "identity.key")

    def begin(self, invitation: Invitation, *, keeps_tokens: bool = False) -> None:
        """Draw and store the keys and tokens for an invitation, once; or keep those that the learner knows already.

        Raises ConflictError where the folder is another member's, and UnavailableError where it cannot be written.
        """
        mark = hash_token(invitation.secret)
        with writing(self.root):
            if self._read("invitation.mark") == mark:
                return
            if self.secret("invitation.mark").exists() and invitation.name != self._read("name"):
                raise ConflictError(f"{self.root} is {self._read('name')}'s: choose another folder by --out")
            if keeps_tokens and self._is_complete():
                replace_private(self.secret("invitation.mark"), mark.encode())
                return
            request, key = request_certificate(invitation.name)
            for name, text in (
                ("name", invitation.name),
                ("connect.token.new", new_token()),
                ("learner.token.new", new_token()),
                ("tls.key.new", key),
                ("tls.request", request),
                ("invitation.mark", mark),  # the last: it says that all others were written
            ):
                replace_private(self.secret(name), text.encode())

    def request(self, invitation: Invitation, key: Ed25519PrivateKey) -> JoinRequest:
        """Return the request to join, signed with the member's key; it is the same each time for an invitation."""
        request = JoinRequest(
            public_key=public_hex(key),
            connects_with=hash_token(self._drawn("connect.token")),
            token=self._drawn("learner.token"),
            certificate_request=self._read("tls.request") if invitation.authority else None,
        )
        return request.signed(invitation.name, key)

    def finish(self, invitation: Invitation, membership: Membership, settings: Path, text: str) -> None:
        """Store the learner's reply, and settings of this text. Raises UnavailableError."""
        certificate = membership.certificate
        with writing(self.root, "; say the same again"):
            for file in ("connect.token", "tls.key"):
                replace_private(self.secret(file), self._drawn(file).encode())
            if certificate and invitation.authority:
                replace_private(self.certificate, certificate.encode())
                replace_private(self.secret("authority.pem"), invitation.authority.encode())
            if not settings.exists() or settings.read_bytes() != text.encode():
                replace_private(settings.resolve(), text.encode())
            # the last, because `with_token` finds the old token's hash in the settings by it
            replace_private(self.secret("learner.token"), self._drawn("learner.token").encode())
            for file in _DRAWN:
                self.secret(f"{file}.new").unlink(missing_ok=True)

    def with_token(self, settings: Path, text: str) -> str:
        """Return the text of settings with the hash of the learner's present token in place of the old one's.

        Raises InvalidInputError if neither is there.
        """
        new, old = self.learner_token_hash(), hash_token(self._read("learner.token"))
        if new not in text and old not in text:
            raise InvalidInputError(
                f'{settings} has not the token_hash that it was made with: write token_hash = "{new}"'
            )
        return text if new in text else text.replace(old, new)

    def learner_token_hash(self) -> str:
        """Return the hash by which the member's settings recognise the learner's token."""
        return hash_token(self._drawn("learner.token"))

    def monitor_token_hash(self) -> str:
        """Return the hash of the monitor's token; the first call draws it. Raises UnavailableError."""
        with writing(self.root):
            if not self.monitor_token.exists():
                write_private(self.monitor_token, new_token().encode())
        return hash_token(read_private(self.monitor_token).decode().strip())

    def _is_complete(self) -> bool:
        """Say whether the tokens are there, and no others were drawn that the learner may or may not know."""
        return bool(self._read("connect.token") and self._read("learner.token")) and not any(
            self.secret(f"{file}.new").exists() for file in _DRAWN
        )

    def _drawn(self, name: str) -> str:
        return self._read(f"{name}.new") or self._read(name)

    def _named(self, name: str) -> str:
        """Return the name of a file that is for the learner alone."""
        return f"{self.learner}.{name}" if self.learner else name

    def _read(self, name: str) -> str:
        """Return a secret's text, or an empty one if there is no such file."""
        path = self.secret(name)
        return read_private(path).decode().strip() if path.exists() else ""


class Enrolment:
    """The connection to the learner of an invitation, through an HTTP proxy if there is one."""

    def __init__(self, invitation: Invitation, proxy: ProxyAccess | None = None) -> None:
        self._invitation = invitation
        self._proxy = proxy
        self._context = ssl.create_default_context(cadata=invitation.authority)

    def check(self) -> None:
        """Raise UnavailableError or InvalidInputError unless the learner answers with a valid certificate and clock.

        Its clock may differ by ten minutes from this machine's.
        """
        date = self._send("GET", "/healthz").headers.get("date")
        apart = abs((datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()) if date else 0.0
        if apart > _SKEW_SECONDS:
            raise InvalidInputError(
                f"this machine's clock and the learner's are {apart / 60:.0f} minutes apart: set it"
            )

    def join(self, request: JoinRequest) -> Membership:
        """Send the request, which uses the invitation up. Raises ConflictError where somebody else has used it."""
        headers = {"Authorization": f"Bearer {self._invitation.secret}", "Content-Type": "application/json"}
        response = self._send(*JOIN.to(), request.model_dump_json(), headers)
        if not response.is_success:
            detail = one_line(str(_json(response).get("detail", f"HTTP status {response.status_code}"))[:500])
            unknown = response.status_code == httpx.codes.UNAUTHORIZED
            gone = "it has been used, replaced or taken back, or has expired: ask the learner's operator for the newest"
            reason = gone if unknown else detail
            raise ConflictError(f"the learner does not take the invitation: {reason}")
        return Membership.model_validate_json(response.content)

    def _send(self, method: str, path: str, body: str = "", headers: dict[str, str] | None = None) -> httpx.Response:
        url = f"{self._invitation.url}{path}"
        proxy = self._proxy.for_client() if self._proxy else None
        hooks = {"request": [spell_hosts]}
        way = httpx.Client(verify=self._context, proxy=proxy, trust_env=False, timeout=_TIMEOUT, event_hooks=hooks)
        try:
            with way:
                return way.request(method, url, content=body or None, headers=headers)
        except httpx.TransportError as error:
            raise self._failure(error) from None

    def _failure(self, error: httpx.TransportError) -> ParleyError:
        """Return the error that says what went wrong."""
        url, cause = self._invitation.url, _tls_cause(error)
        if self._proxy and isinstance(error, httpx.ProxyError):
            return UnavailableError(self._proxy.refusal(str(error), url))
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
    """Return the TLS error that caused one of httpx's, or None."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _json(response: httpx.Response) -> dict[str, object]:
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
