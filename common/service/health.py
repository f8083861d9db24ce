"""Ask a service on this machine whether it is ready: for health checks."""

from __future__ import annotations

import json
import ssl
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection

from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.service.http.tls import load_chain, read_authority
from parley.common.service.settings import ServiceSettings, Tls
from parley.common.strict import spelt_address

_SECONDS = 5.0
_LONGEST_REASON = 2**14  # bytes of a problem document that are read
_ITSELF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- the address to ask a service that listens on all


def ask_ready(settings: ServiceSettings) -> None:
    """Ask the service of these settings, on this machine, for its ``/readyz``.

    Under TLS only the certificate that the settings name is accepted, and it is also presented if the service wants
    one. Raises UnavailableError that says why the service is not ready; InvalidInputError where the settings do not say
    where it listens, or their certificate cannot be used.
    """
    if not settings.port:
        raise InvalidInputError("port 0 does not say where the service listens")
    host, port = _ITSELF.get(settings.host, settings.host), settings.port
    if settings.tls is None:
        connection = HTTPConnection(host, port, timeout=_SECONDS)
    else:
        connection = HTTPSConnection(host, port, timeout=_SECONDS, context=_own_context(settings.tls))
    try:
        with closing(connection):
            connection.request("GET", "/readyz")
            with connection.getresponse() as response:
                reason = _reason(response)
    except ssl.SSLCertVerificationError as error:
        refusal = f"its certificate is refused ({error.verify_message})"
        raise _not_ready(settings, refusal) from None
    except (OSError, HTTPException) as error:
        raise _not_ready(settings, f"{spelt_address(host, port)} does not answer ({type(error).__name__})") from None
    if reason is not None:
        raise _not_ready(settings, reason)


def _not_ready(settings: ServiceSettings, reason: str) -> UnavailableError:
    return UnavailableError(f"{settings.name} is not ready: {reason}")


def _own_context(tls: Tls) -> ssl.SSLContext:
    """Make a client's TLS 1.3 context that trusts the service's own certificate alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is trusted, and need not name the loopback address
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=read_authority(tls.certificate))
        load_chain(context, tls.certificate, tls.key)
    except (OSError, UnicodeDecodeError):  # ssl.SSLError is an OSError
        raise InvalidInputError(f"tls: {tls.certificate} or {tls.key} cannot be used") from None
    return context


def _reason(response: HTTPResponse) -> str | None:
    """Return the reason that a service gives for not being ready; None where it is ready."""
    if response.status == 200:  # noqa: PLR2004 -- OK
        return None
    try:
        problem = json.loads(response.read(_LONGEST_REASON))
    except ValueError:
        problem = None
    detail = problem.get("detail") if isinstance(problem, dict) else None
    return str(detail or f"HTTP status {response.status}")
