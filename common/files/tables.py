"""A table on disk, CSV or Parquet, as columns."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from common.data.columns import Columns
from common.errors import InvalidDataError

_HEADER = 2**22
"""Bytes that hold a first line, however many columns it names."""
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
"""How files of gzip, ZIP (and so of spreadsheets), bzip2, xz and Zstandard begin."""
_DATABASE, _SHEET = "of a database say FILE::TABLE", "save the sheet as CSV"
UNPACK = dict.fromkeys((".gz", ".zip", ".bz2", ".xz", ".zst"), "unpack it")
"""What to do about packed files, by how their names end."""
_WAYS = UNPACK | {
    ".sqlite": _DATABASE, ".sqlite3": _DATABASE, ".db": _DATABASE, ".xlsx": _SHEET, ".xls": _SHEET, ".ods": _SHEET,
}  # fmt: skip
"""What to do about files of other kinds."""
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_RAGGED = re.compile(r"CSV parse error: (Row #\d+: )?Expected \d+ columns, got \d+")


def read_columns(path: Path) -> Columns:
    """The columns of a CSV (``.csv``, with a header) or Parquet (``.parquet``) file; empty numeric cells become NaN.

    Raises InvalidDataError, which names the file and never its content, where the file is missing, unreadable, of
    another kind or not a table, or names a column twice.
    """
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, and needed once in the life of a service

    try:
        if is_csv(path):
            from pyarrow.csv import read_csv as read  # noqa: PLC0415 -- as above
        else:
            from pyarrow.parquet import read_table as read  # noqa: PLC0415 -- as above
        check_regular(path)
        table = read(path)
        names = table.column_names
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise unreadable(path, error) from None
    check_names(path, names)
    return {name: table.column(name).to_numpy() for name in names}


def column_names(path: Path) -> tuple[str, ...]:
    """The names of the columns of a CSV or Parquet file in its order; raises InvalidDataError as `read_columns`."""
    import pyarrow as pa  # noqa: PLC0415 -- as above

    try:
        check_regular(path)
        if is_csv(path):
            if not path.stat().st_size:
                raise InvalidDataError(f"data file {path} is empty")
            from pyarrow import csv  # noqa: PLC0415 -- as above

            with csv.open_csv(path, csv.ReadOptions(block_size=_HEADER)) as file:
                names = file.schema.names
        else:
            from pyarrow.parquet import read_schema  # noqa: PLC0415 -- as above

            names = read_schema(path).names
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise unreadable(path, error) from None
    check_names(path, names)
    return tuple(names)


def check_regular(path: Path) -> None:
    """Raise InvalidDataError for a pipe or a device: to open it may wait forever, and it cannot be read again.

    A folder passes, for opening it tells what it is; raises OSError as `Path.exists`.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InvalidDataError(f"data file {path} is no regular file: save its rows to one")


def is_csv(path: Path) -> bool:
    """Whether a file is CSV, or else Parquet; raises InvalidDataError for another kind, with what to do."""
    suffix = path.suffix.lower()
    if suffix not in {".csv", ".parquet"}:
        way = "of the files of a folder say FOLDER/*.csv" if path.is_dir() else _WAYS.get(suffix)
        raise InvalidDataError(f"data file {path} must end in .csv or .parquet{f': {way}' if way else ''}")
    return suffix == ".csv"


def check_text(path: Path) -> None:
    """Raise InvalidDataError for a file that begins as no text does that is UTF-8: packed ones do; or OSError."""
    with path.open("rb") as file:
        first = file.readline(_HEADER)
    if first.startswith(_PACKED) or b"\x00" in first:
        raise unreadable(path, ValueError())


def unreadable(path: Path, error: Exception) -> InvalidDataError:
    """What to say of a file and why: never its content, which pyarrow's message holds."""
    if isinstance(error, FileNotFoundError):
        return InvalidDataError(f"data file {path} is missing")
    why = _why(path, error)
    return InvalidDataError(f"data file {path} cannot be read{f': {why}' if why else ''}")


def _why(path: Path, error: Exception) -> str:
    """What is wrong with a file and what to do, or nothing where that is not known."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    try:
        with path.open("rb") as file:
            first = file.readline(_HEADER)
    except OSError:  # of a pattern of files, which one it was is not known
        return ""
    other = _separators(first.decode(errors="replace"))
    not_utf8 = isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error) or b"\x00" in first
    faults = (
        (not first, "it is empty"),
        (path.suffix.lower() == ".parquet", "it is no Parquet file, or a part of one"),
        (first.startswith(_PACKED), "it is packed: unpack it"),
        (not_utf8, "it is not UTF-8: save it as such"),
        (other, _between(other)),
        (_RAGGED.match(str(error)), "a row has more or fewer cells than the first line: quote cells that have commas"),
    )
    return next((words for is_so, words in faults if is_so), "")


def _separators(header: str) -> str | None:
    """What parts the names of a first line where commas do not; None where they do."""
    most = max(_SEPARATORS, key=header.count)
    return _SEPARATORS[most] if header.count(most) > header.count(",") else None


def _between(separators: str | None) -> str:
    """What to say of a file with such separators."""
    return f"its columns stand between {separators}: put commas there, and points into numbers"


def check_names(path: Path, names: Sequence[str]) -> None:
    """Raise InvalidDataError for a file that names a column twice, or whose columns stand between no commas."""
    if len(names) == 1 and is_csv(path) and (other := _separators(names[0])):
        raise InvalidDataError(f"data file {path} cannot be read: {_between(other)}")
    if twice := _twice(names):  # not by name: without a line of names these may be values
        places = ", ".join([str(place) for place, name in enumerate(names, 1) if name == twice[0]][:5])
        raise InvalidDataError(f"data file {path} names columns twice: see places {places} of its first line")


def check_columns(what: str, names: Sequence[str]) -> None:
    """Raise InvalidDataError for rows that have a column twice; ``what`` has them."""
    if twice := _twice(names):
        raise InvalidDataError(f"{what} names columns twice: {', '.join(twice[:5])}")


def _twice(names: Sequence[str]) -> list[str]:
    """The names that are there more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)
