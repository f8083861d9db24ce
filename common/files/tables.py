"""A table on disk, CSV or Parquet: whole, as columns, or as the examples of a study."""

from __future__ import annotations

from pathlib import Path

from common.data.columns import Columns
from common.data.loading import Loaded
from common.data.study import Study
from common.errors import InvalidDataError


def read_columns(path: Path) -> Columns:
    """The columns of a CSV (``.csv``, with a header) or Parquet (``.parquet``) file; empty numeric cells become NaN.

    Raises InvalidDataError, which names the file and never its content, where the file is missing, unreadable, of
    another kind or not a table, or names a column twice.
    """
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, and needed once in the life of a service

    from common.files.arrow_blocks import check_names  # noqa: PLC0415 -- as above

    try:
        if _is_csv(path):
            from pyarrow.csv import read_csv as read  # noqa: PLC0415 -- as above
        else:
            from pyarrow.parquet import read_table as read  # noqa: PLC0415 -- as above
        table = read(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None
    check_names(path, table.column_names)
    return {name: table.column(name).to_numpy() for name in table.column_names}


def load_examples(path: Path, study: Study, *, clip: bool = False) -> Loaded:
    """The examples of a CSV or Parquet file in the study's columns; other columns are not read.

    Raises InvalidDataError as `read_columns`, and for data that does not fit the study, as `load_columns`.
    """
    import pyarrow as pa  # noqa: PLC0415 -- as above

    from common.files.arrow_blocks import load_csv, load_parquet  # noqa: PLC0415 -- as above

    try:
        return (load_csv if _is_csv(path) else load_parquet)(path, study, clip=clip)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _is_csv(path: Path) -> bool:
    """Whether a file is CSV, or else Parquet; raises InvalidDataError for another kind."""
    if path.suffix.lower() not in {".csv", ".parquet"}:
        raise InvalidDataError(f"data file {path} must end in .csv or .parquet")
    return path.suffix.lower() == ".csv"


def _unreadable(path: Path, error: Exception) -> InvalidDataError:
    """What to say of a file: never its content, which pyarrow's message holds."""
    missing = isinstance(error, FileNotFoundError)
    return InvalidDataError(f"data file {path} {'is missing' if missing else 'cannot be read'}")
