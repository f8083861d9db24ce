"""TLS by files that may change while a service runs: each connection uses what they hold when it begins."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Self

import structlog
from cryptography import x509

from parley.common.encoding.texts import as_utf8, decode_text, is_utf16
from parley.common.errors import InvalidInputError

_Stamp = tuple[tuple[int, int] | None, ...]


class FreshContext(ssl.SSLContext):
    """A context that stands for the newest one that its files allowed.

    To wrap a connection, the libraries call its context. This one calls the context that ``make`` made last, and makes
    another first if a file has changed. Files that cannot be used are logged once, and the old context stays.
    """

    _make: Callable[[], ssl.SSLContext]
    _files: tuple[Path, ...]
    _stamp: _Stamp
    _newest: ssl.SSLContext

    @classmethod
    def of(cls, make: Callable[[], ssl.SSLContext], *files: Path | None) -> Self:
        """Return a context made by ``make`` from these files; raises InvalidInputError as ``make`` does."""
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context._make, context._files = make, tuple(file for file in files if file)
        context._stamp, context._newest = context._read_stamp(), make()
        return context

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:  # noqa: ANN401 -- as the standard library's
        """Begin TLS on a connection by the files as they are now, for asyncio."""
        return self._now().wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:  # noqa: ANN401 -- as above
        """Begin TLS on a socket by the files as they are now."""
        return self._now().wrap_socket(*args, **options)

    def _now(self) -> ssl.SSLContext:
        """Return the context of the files as they are now."""
        if (stamp := self._read_stamp()) != self._stamp:
            self._stamp = stamp
            try:
                self._newest = self._make()
                structlog.get_logger().info("certificates", read=[str(file) for file in self._files])
            except InvalidInputError as error:
                structlog.get_logger().warning("certificates", kept="those before", reason=error.detail)
        return self._newest

    def _read_stamp(self) -> _Stamp:
        """Read the stamps of all files, which differ once one has changed."""
        return tuple(stamp_of(file) for file in self._files)


@cache
def client_context(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return the context of connections to a service; cached, for it is slow to make. Raises InvalidInputError."""
    return FreshContext.of(lambda: _make_client_context(ca, certificate, key), ca, certificate, key)


def read_authority(path: Path) -> str:
    """Return the PEM text of authorities as `ssl` takes it, without the text between them; raises OSError."""
    return decode_text(path.read_bytes()).encode("ascii", "ignore").decode()


def load_chain(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Make a context present a certificate. Raises OSError, also for an invalid one, and UnicodeDecodeError."""
    with _as_openssl_reads(certificate) as chain, _as_openssl_reads(key or certificate) as private:
        context.load_cert_chain(chain, private)


@contextmanager
def _as_openssl_reads(path: Path) -> Iterator[str | Path]:
    """Yield the path of a PEM file; of a copy in memory where it is UTF-16, as PowerShell's ``>`` writes it."""
    content = path.read_bytes()
    if not is_utf16(content):
        yield path
        return
    with open(os.memfd_create("pem"), "wb") as file:  # noqa: PTH123 -- by its descriptor
        file.write(as_utf8(content))
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _make_client_context(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Set up TLS 1.3 with given or the system's authorities and a certificate to present, from the files of now."""
    context = context_of_others(ca)
    if certificate is not None:
        try:
            load_chain(context, certificate, key)
        except (OSError, ssl.SSLError, UnicodeDecodeError):
            raise InvalidInputError(f"{certificate} and {key} cannot be used as a certificate") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def context_of_others(ca: Path | None) -> ssl.SSLContext:
    """Return the context of connections to a service that is not Parley's: TLS 1.2 is enough there.

    ``ca`` is the authority that signed its certificate, if not one of the system's. Raises InvalidInputError.
    """
    try:
        return ssl.create_default_context(cadata=read_authority(ca) if ca else None)
    except (OSError, ssl.SSLError, UnicodeDecodeError):
        raise InvalidInputError(f"the authority {ca} cannot be read") from None


def stamp_of(file: Path) -> tuple[int, int] | None:
    """Return a file's inode and the time it was changed: either differs after a change. None without a file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def certificate_expiry(path: Path) -> date | None:
    """Return the day on which the first certificate of a PEM file expires; None if it cannot be read."""
    try:
        return x509.load_pem_x509_certificate(as_utf8(path.read_bytes())).not_valid_after_utc.date()
    except (OSError, ValueError):
        return None
