"""TLS by files that may change while a service runs: each connection goes by what they hold when it begins."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, Self

import structlog
from cryptography import x509

from common.errors import InvalidInputError

_Stamp = tuple[tuple[int, int] | None, ...]


class FreshContext(ssl.SSLContext):
    """A context that stands for the newest that could be made of its files.

    asyncio wraps each connection by asking its context to: this one asks the context that ``make`` made last, and has
    another made first if a file has changed. Files that cannot be used are logged once, and the old context stays.
    """

    _make: Callable[[], ssl.SSLContext]
    _files: tuple[Path, ...]
    _stamp: _Stamp
    _newest: ssl.SSLContext

    @classmethod
    def of(cls, make: Callable[[], ssl.SSLContext], *files: Path | None) -> Self:
        """A context made by ``make`` of these files; raises InvalidInputError as it does."""
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context._make, context._files = make, tuple(file for file in files if file)
        context._stamp, context._newest = context._read_stamp(), make()
        return context

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:  # noqa: ANN401 -- as the standard library's
        """A connection's TLS, by the files as they are now."""
        if (stamp := self._read_stamp()) != self._stamp:
            self._stamp = stamp
            try:
                self._newest = self._make()
                structlog.get_logger().info("certificates", read=[str(file) for file in self._files])
            except InvalidInputError as error:
                structlog.get_logger().warning("certificates", kept="those before", reason=error.detail)
        return self._newest.wrap_bio(*args, **options)

    def _read_stamp(self) -> _Stamp:
        """What changes when a file does."""
        return tuple(_stamp_of(file) for file in self._files)


def _stamp_of(file: Path) -> tuple[int, int] | None:
    """A file's inode and the time it was changed; None while there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def certificate_expiry(path: Path) -> date | None:
    """The day on which the first certificate of a PEM file ends; None if it cannot be read."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.date()
    except (OSError, ValueError):
        return None
