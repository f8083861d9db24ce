"""A table on disk, CSV or Parquet, as columns."""

from __future__ import annotations

from pathlib import Path

from common.data.columns import Columns


def read_columns(path: Path) -> Columns:
    """The columns of a CSV (``.csv``, with a header) or Parquet (``.parquet``) file; empty numeric cells become NaN.

    Raises InvalidDataError, which names the file and never its content, where the file is missing, unreadable, of
    another kind or not a table, or names a column twice.
    """
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, and needed once in the life of a service

    from common.files.examples import check_names, is_csv, unreadable  # noqa: PLC0415 -- as above

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
