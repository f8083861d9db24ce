"""A member's certificate, renewed by the member itself before it ends: the same key, signed again by its learner.

It asks on a connection of its own that shows its token and the certificate that there still is. One that has ended
cannot be shown: then its owner is told what to do.
"""

from __future__ import annotations

import asyncio

import structlog

from common.client.endpoints import LearnerAddress
from common.client.handshake import ask_as_member
from common.errors import InvalidInputError, ParleyError, UnavailableError
from common.service.http.connections import Beside, BoundedServer
from common.storage.certificates import Credentials
from common.storage.keys import replace_private, writing
from common.wire.membership import CertificateRequest, Membership

RENEWAL_PATH = "/v1/roster/certificate"

_SHARE_LEFT = 1 / 3  # of its lifetime, from when on it is renewed
_LOOK_SECONDS = 3600.0


def renewing(address: LearnerAddress) -> Beside:
    """What renews, beside a server, the certificate that a learner is shown."""

    async def renew(_: BoundedServer) -> None:
        told = None
        while True:
            try:
                await asyncio.to_thread(renew_if_due, address)
                told = None
            except ParleyError as error:
                if error.detail != told:
                    told = error.detail
                    structlog.get_logger().warning("certificate", learner=address.name, renewed=False, reason=told)
            await asyncio.sleep(_LOOK_SECONDS)

    return renew


def renew_if_due(address: LearnerAddress) -> None:
    """Renew the certificate for a learner when a third of its lifetime is left.

    Raises InvalidInputError where its files cannot be read, UnavailableError where the learner does not renew it.
    """
    assert address.certificate is not None  # noqa: S101 -- else there is nothing to renew
    assert address.key is not None  # noqa: S101 -- comes with it
    try:
        key = address.key.read_bytes()
        held = Credentials.read(address.certificate.read_bytes(), key)
    except (OSError, ValueError):
        raise InvalidInputError(
            f"{address.certificate} and {address.key} cannot be renewed: not both are there and belong together"
        ) from None
    if not 0 < held.share_left < _SHARE_LEFT:
        return
    request = CertificateRequest(certificate_request=held.request())
    told = ask_as_member(address, RENEWAL_PATH, Membership, "renew the certificate", request)
    try:
        renewed = Credentials.read((told.certificate or "").encode(), key)
    except ValueError:
        raise UnavailableError(f"what {address.name} sent is no certificate of this key") from None
    if renewed.lasts <= held.lasts:
        raise UnavailableError(f"the certificate that {address.name} sent does not last longer")
    with writing(address.certificate):
        replace_private(address.certificate, renewed.certificate_pem.encode())
    structlog.get_logger().info("certificate", learner=address.name, renewed=True, days=renewed.lasts.days)
