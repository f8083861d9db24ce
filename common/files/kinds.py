"""Which kinds of files hold tables, and the errors for files that cannot be read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from parley.common.encoding.texts import is_utf16, shortened
from parley.common.errors import InvalidDataError

TableKind = Literal["csv", "parquet", "arrow", "json", "sheet"]

_HEADER = 2**22
"""Bytes that are enough for a first line, for any number of columns."""
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
"""The first bytes of gzip, ZIP (and so of workbooks), bzip2, xz and Zstandard files."""
_KINDS: dict[str, TableKind] = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".txt": "csv", "": "csv",
    ".parquet": "parquet", ".pq": "parquet", ".feather": "arrow", ".arrow": "arrow", ".ipc": "arrow",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".xlsx": "sheet", ".xlsm": "sheet", ".xlsb": "sheet", ".xls": "sheet", ".ods": "sheet",
}  # fmt: skip
"""The kind of file by the ending of its name."""
WORKBOOK_ENDINGS = frozenset(suffix for suffix, kind in _KINDS.items() if kind == "sheet")
"""The endings of workbooks' names."""
_BY_START: tuple[tuple[bytes, TableKind], ...] = ((b"PAR1", "parquet"), (b"ARROW1", "arrow"))
"""The kind of file by its first bytes, where its name does not say it."""
_UNPACKED = (".gz", ".bz2", ".xz")
"""The endings of compressed CSV files that are read as they are."""
_DATABASE = "of a database say FILE::TABLE"
_SAVE = "save the table as CSV or Parquet, such as by pandas: pandas.read_{}(FILE).to_parquet(...)"
UNPACK = dict.fromkeys((".gz", ".zip", ".bz2", ".xz", ".zst"), "unpack it")
"""What to do about a compressed file, by the ending of its name."""
_PICKLE = "a pickle may run any program when it is read: save the table as Parquet"
_REMEDIES = UNPACK | {
    ".sqlite": _DATABASE, ".sqlite3": _DATABASE, ".db": _DATABASE, ".dta": _SAVE.format("stata"),
    ".sav": _SAVE.format("spss"), ".sas7bdat": _SAVE.format("sas"), ".xpt": _SAVE.format("sas"), ".pkl": _PICKLE,
    ".pickle": _PICKLE,
}  # fmt: skip
"""What to do about files of other kinds, by the ending of their names."""


def table_kind(path: Path) -> TableKind:
    """Return the kind of a file, by its name, or by its first bytes where the name does not say it.

    Raises InvalidDataError, with what to do, for a file that holds no table; OSError for one that cannot be opened.
    """
    suffix = path.suffix.lower()
    if suffix in _UNPACKED and _KINDS.get(Path(path.stem).suffix.lower()) == "csv":
        return "csv"
    if suffix not in _KINDS or path.is_dir():
        must = f"data file {path} must end in"
        if path.is_dir():
            raise InvalidDataError(f"{must} .csv or .parquet: of the files of a folder say FOLDER/*.csv")
        if suffix in _REMEDIES:
            raise InvalidDataError(f"{must} .csv or .parquet: {_REMEDIES[suffix]}")
        raise InvalidDataError(f"{must} .csv, .tsv, .txt, .parquet, .feather, .json, .jsonl or .xlsx; {_DATABASE}")
    if suffix in {"", ".txt"} and path.is_file():
        with path.open("rb") as file:
            start = file.read(16)
        if start.startswith(b"SQLite format 3"):
            raise InvalidDataError(f"data file {path} is a database: say FILE::TABLE")
        return next((kind for magic, kind in _BY_START if start.startswith(magic)), "csv")
    return _KINDS[suffix]


def common_kind(where: str, paths: Sequence[Path]) -> TableKind:
    """Return the one kind of some files, at least one; raises InvalidDataError where they are of several kinds."""
    kinds: set[TableKind] = set()
    for path in paths:
        with reading(path):
            kinds.add(table_kind(path))
    if len(kinds) > 1:
        raise InvalidDataError(f"data files {where}: they are of several kinds: {', '.join(sorted(kinds))}")
    return kinds.pop()


def check_regular(path: Path) -> None:
    """Raise InvalidDataError for a pipe or a device: opening one may wait forever, and it cannot be read twice.

    A folder passes, since opening it gives a clear error; raises OSError as `Path.exists` does.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InvalidDataError(f"data file {path} is no regular file: save its rows to one")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise InvalidDataError, which names the file, in place of errors of the system, the decoder and pyarrow."""
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, and needed once in the life of a service

    try:
        check_regular(path)
        yield
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise unreadable_error(path, error) from None


def check_text(path: Path) -> None:
    """Raise InvalidDataError for a file that begins as no text does, such as a compressed one; or OSError."""
    with path.open("rb") as file:
        first = file.readline(_HEADER)
    if first.startswith(_PACKED) or (b"\x00" in first and not is_utf16(first)):
        raise unreadable_error(path, ValueError())


def unreadable_error(path: Path, error: Exception) -> InvalidDataError:
    """Return the error for a file that cannot be read: it never quotes the content, as pyarrow's message does."""
    if isinstance(error, FileNotFoundError):
        return InvalidDataError(f"data file {path} is missing")
    reason = _reason(path, error)
    return InvalidDataError(f"data file {path} cannot be read{f': {reason}' if reason else ''}")


def _reason(path: Path, error: Exception) -> str:
    """Say what is wrong with a file and what to do; empty where that is not known."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    try:
        with path.open("rb") as file:
            first = file.readline(_HEADER)
    except OSError:
        return ""
    faults = (
        (not first, "it is empty"),
        (path.suffix.lower() in {".parquet", ".pq"}, "it is no Parquet file, or a part of one"),
        (path.suffix.lower() in {".feather", ".arrow", ".ipc"}, "it is no Arrow file, or a part of one"),
        (first.startswith(_PACKED), "it is packed: unpack it"),
        (isinstance(error, UnicodeDecodeError) or b"\x00" in first, "it is not UTF-8: save it as such"),
    )
    return next((words for applies, words in faults if applies), "")


def check_names(path: Path, names: Sequence[str]) -> None:
    """Raise InvalidDataError for a file that names a column twice."""
    if twice := _repeated(names):  # places, not names: without a line of names these may be values
        places = ", ".join([str(place) for place, name in enumerate(names, 1) if name == twice[0]][:5])
        raise InvalidDataError(f"data file {path} names columns twice: see places {places} of its first line")


def check_columns(table: str, names: Sequence[str]) -> None:
    """Raise InvalidDataError, which names the ``table``, where a column occurs twice."""
    if twice := _repeated(names):
        raise InvalidDataError(f"{table} names columns twice: {', '.join(map(shortened, twice[:5]))}")


def _repeated(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)
