"""The certificates of a deployment's services as files: made where there are none, and renewed.

The authority's private key stays in a folder that no service reads. It is needed to make certificates alone: an
operator may keep it elsewhere in between.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from parley.common.storage.certificates import CERTIFICATE_LASTS, Credentials, hosts_of, issue, make_authority
from scripts.deployment.files import make_folder, write_file
from scripts.deployment.settings import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE
from scripts.deployment.sites import SETUP, Site

_AUTHORITY_KEY = "authority.key"


def certify(root: Path, sites: Sequence[Site]) -> None:
    """A certificate for each of these services that has none, by the authority of the deployment in a folder."""
    lacking = [site for site in sites if not (_secrets(root, site.name) / CERTIFICATE_FILE).exists()]
    if lacking:
        authority = _authority(root)
        for site in lacking:
            hosts = list(dict.fromkeys([site.name, site.host, "localhost", "127.0.0.1"]))
            _write(_secrets(root, site.name), issue(authority, hosts), authority)


def renew(root: Path) -> int:
    """New certificates and keys for all services that have one, for the same names; how many.

    A new authority is made where the old one would expire before them. Raises SystemExit where there is nothing to
    renew.
    """
    files = _certificates(root)
    if not files:
        raise SystemExit("this deployment has no certificates: it was made without --tls")
    authority = _authority(root)
    for file in files:
        hosts = hosts_of(x509.load_pem_x509_certificate(file.read_bytes()))
        _write(file.parent, issue(authority, hosts), authority)
    return len(files)


def expiry(root: Path) -> dt.datetime | None:
    """When the first of a deployment's certificates ends; None without any."""
    files = [*_certificates(root), *(root / SETUP).glob(AUTHORITY_FILE)]
    return min((x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc for file in files), default=None)


def _certificates(root: Path) -> list[Path]:
    return sorted(root.glob(f"*/secrets/{CERTIFICATE_FILE}"))


def _secrets(root: Path, name: str) -> Path:
    return root / name / "secrets"


def _authority(root: Path) -> Credentials:
    """The deployment's authority, made where there is none that outlasts a new certificate; raises SystemExit."""
    folder = make_folder(root / SETUP)
    certificate, key = folder / AUTHORITY_FILE, folder / _AUTHORITY_KEY
    if certificate.exists():
        try:
            credentials = Credentials.read(certificate.read_bytes(), key.read_bytes())
        except (OSError, ValueError):
            raise SystemExit(f"{certificate} and {key}: the authority cannot be used; put both back") from None
        if credentials.lasts > CERTIFICATE_LASTS:
            return credentials
    made = make_authority("Parley deployment")
    write_file(key, made.key_pem)
    write_file(certificate, made.certificate_pem)
    return made


def _write(folder: Path, credentials: Credentials, authority: Credentials) -> None:
    """The files in a service's folder of secrets under TLS."""
    write_file(folder / AUTHORITY_FILE, authority.certificate_pem)
    write_file(folder / KEY_FILE, credentials.key_pem)
    write_file(folder / CERTIFICATE_FILE, credentials.certificate_pem)
