"""Stores public rows: they are uploaded once, kept under their digest, and sent to parties by runs that name them."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.encoding.npy import pack_array, unpack_array
from parley.common.errors import DamagedError, InvalidInputError, NotFoundError, UnavailableError
from parley.common.runs.specification import PublicRows, digest_of_rows
from parley.common.storage.keys import replace_private
from parley.common.storage.sqlite import decoding

MAX_BYTES = 2**24 - 2**12
"""The most bytes that uploaded rows may take as float64: they go to every party in one body of at most 16 MiB."""


class PublicRowStore:
    """Public rows in a directory, one ``.npy`` file each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, rows: FloatArray) -> PublicRows:
        """Keep rows (n, width), and return their name. Raises InvalidInputError if there are none or too many.

        Raises UnavailableError if they cannot be written.
        """
        if rows.nbytes > MAX_BYTES or not rows.size:
            raise InvalidInputError(
                f"public rows may take {MAX_BYTES:,} bytes, 8 a number, and at least one: not {rows.shape[0]:,} rows "
                f"of {rows.shape[1]:,} numbers"
            )
        return self.add_weights(rows)

    def add_weights(self, weights: FloatArray) -> PublicRows:
        """Keep a model's weights (k, width), where width is its study's number of columns, and return their name.

        Raises UnavailableError if they cannot be written.
        """
        name = PublicRows.of(weights)
        try:
            replace_private(self._file(name.digest), pack_array(np.asarray(weights, dtype="<f8")))
        except OSError as error:
            raise UnavailableError(f"the public rows cannot be written: {error.strerror}") from None
        return name

    def find(self, digest: str) -> PublicRows:
        """Return the name of the rows with this digest; raises InvalidInputError if there are none."""
        try:
            return PublicRows.of(self._read(digest))
        except NotFoundError as error:
            raise InvalidInputError(error.detail) from None

    def load(self, name: PublicRows) -> FloatArray:
        """Load the rows of a name, (rows, width); raises NotFoundError if they are gone, DamagedError if changed."""
        rows = self._read(name.digest)
        if PublicRows.of(rows) != name:
            raise NotFoundError(f"the public rows {name.digest[:12]} are not of the shape that the run names")
        return rows

    def delete_unnamed(self, named: Collection[str], before: float) -> list[str]:
        """Delete the rows whose digests are not ``named`` and that were added before a time; returns their digests.

        The time is in seconds since 1970.
        """
        old = [path for path in self._directory.glob("*.npy") if path.stem not in named and _added(path) < before]
        for path in old:
            path.unlink(missing_ok=True)
        return [path.stem for path in old]

    def page(self, limit: int, after: str = "") -> tuple[list[PublicRows], list[str], str | None]:
        """List the names of at most ``limit`` rows whose digests come after this one, in the order of their digests.

        Returns the names, the digests whose files are damaged, and the last digest if more follow it, otherwise None.
        """
        digests = sorted(path.stem for path in self._directory.glob("*.npy") if path.stem > after)
        names, damaged = [], []
        for digest in digests[:limit]:
            try:
                names.append(self.find(digest))
            except DamagedError:
                damaged.append(digest)
        return names, damaged, digests[limit - 1] if len(digests) > limit else None

    def _read(self, digest: str) -> FloatArray:
        try:
            content = self._file(digest).read_bytes()
        except OSError:
            raise NotFoundError(f"there are no public rows {digest[:12]} here: upload them first") from None
        with decoding(f"the file of the public rows {digest[:12]}", "upload them again"):
            rows = unpack_array(content, "<f8")
            if rows.ndim != 2 or digest_of_rows(rows) != digest:  # noqa: PLR2004 -- axes
                raise ValueError("digest")
        return rows

    def _file(self, digest: str) -> Path:
        return self._directory / f"{digest}.npy"


def _added(path: Path) -> float:
    """Return when a file was written last, in seconds since 1970; rows that are added again count as new."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return math.inf
