"""The learner's own certificate, which it signs anew before it ends, where the authority is its own."""

from __future__ import annotations

from functools import partial

from parley.common.client.renewal import is_due, keep_renewed, read_credentials, renewing
from parley.common.service.http.connections import Beside
from parley.common.service.settings import Tls
from parley.common.storage.certificates import renew
from parley.learner.settings import Joining, LearnerSettings


def renewals(settings: LearnerSettings) -> list[Beside]:
    """What renews the certificate that these settings name, beside the server; nothing where they name no authority."""
    tls, joining = settings.tls, settings.joining
    if tls is None or joining is None or joining.authority_key is None:
        return []
    return [renewing(settings.name, partial(renew_own, tls, joining, settings.name))]


def renew_own(tls: Tls, joining: Joining, name: str) -> None:
    """Renew the learner's certificate when a third of its lifetime is left, if the settings' authority signed it.

    One that has ended too. Raises InvalidInputError where files cannot be read, UnavailableError where the disk does
    not take the new one.
    """
    held = read_credentials(tls.certificate, tls.key)
    if not is_due(held) or joining.authority is None or joining.authority_key is None:
        return
    authority = read_credentials(joining.authority, joining.authority_key)
    if held.certificate.issuer == authority.certificate.subject:
        keep_renewed(tls.certificate, renew(authority, held), name)
