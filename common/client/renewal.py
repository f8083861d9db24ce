"""A service's certificate, renewed by the service itself before it ends: the same key, signed again.

A member asks its learner, on a connection of its own that shows its token and the certificate that there still is. One
that has ended cannot be shown: then its owner is told what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from parley.common.client.endpoints import LearnerAddress
from parley.common.client.handshake import ask_as_member
from parley.common.errors import InvalidInputError, ParleyError, UnavailableError
from parley.common.service.http.connections import Beside, BoundedServer
from parley.common.storage.certificates import Credentials
from parley.common.storage.keys import replace_private, writing
from parley.common.wire.membership import CertificateRequest, Membership

RENEWAL_PATH = "/v1/roster/certificate"

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
    told = ask_as_member(address, RENEWAL_PATH, Membership, "renew the certificate", request)
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
