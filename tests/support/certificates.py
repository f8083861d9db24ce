"""Certificates for 127.0.0.1 by an authority made up for a test."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from parley.common.storage.certificates import issue, make_authority

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the authority's certificate, and a service's certificate and key."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(directory: Path, lasts: dt.timedelta = _DAY) -> Certificates:
    """An authority and a service on 127.0.0.1, valid for a day unless told otherwise."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = make_authority("test authority", _DAY)
    credentials = issue(authority, ["127.0.0.1"], lasts)
    files = Certificates(directory / "authority.pem", directory / "service.pem", directory / "service.key")
    for path, pem in (
        (files.authority, authority.certificate_pem),
        (files.certificate, credentials.certificate_pem),
        (files.key, credentials.key_pem),
    ):
        path.write_text(pem, encoding="ascii")
    return files
