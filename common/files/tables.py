"""A table on disk, CSV or Parquet, as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from common.data.columns import Columns
from common.errors import InvalidDataError

_HEADER = 2**22
"""Bytes that hold a first line, however many columns it names."""


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
        table = read(path)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from None
    check_names(path, table.column_names)
    return {name: table.column(name).to_numpy() for name in table.column_names}


def column_names(path: Path) -> tuple[str, ...]:
    """The names of the columns of a CSV or Parquet file in its order; raises InvalidDataError as `read_columns`."""
    import pyarrow as pa  # noqa: PLC0415 -- as above

    try:
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


def is_csv(path: Path) -> bool:
    """Whether a file is CSV, or else Parquet; raises InvalidDataError for another kind."""
    if path.suffix.lower() not in {".csv", ".parquet"}:
        raise InvalidDataError(f"data file {path} must end in .csv or .parquet")
    return path.suffix.lower() == ".csv"


def unreadable(path: Path, error: Exception) -> InvalidDataError:
    """What to say of a file: never its content, which pyarrow's message holds."""
    missing = isinstance(error, FileNotFoundError)
    return InvalidDataError(f"data file {path} {'is missing' if missing else 'cannot be read'}")


def check_names(path: Path, names: Sequence[str]) -> None:
    """Raise InvalidDataError for a file that names a column twice."""
    check_columns(f"data file {path}", names)


def check_columns(what: str, names: Sequence[str]) -> None:
    """Raise InvalidDataError for rows that have a column twice; ``what`` has them."""
    if len(set(names)) < len(names):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        raise InvalidDataError(f"{what} names columns twice: {', '.join(twice[:5])}")
