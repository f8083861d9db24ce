"""A table on disk, CSV or Parquet, as columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common.data.columns import Columns
from common.errors import InvalidDataError


def read_columns(path: Path) -> Columns:
    """The columns of a CSV (``.csv``, with a header) or Parquet (``.parquet``) file; empty numeric cells become NaN.

    Raises InvalidDataError, which names the file and never its content, where the file is missing, unreadable, of
    another kind or not a table, or names a column twice.
    """
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, and needed once in the life of a service

    try:
        table = _reader(path)(path)
    except (OSError, pa.ArrowException) as error:
        missing = isinstance(error, FileNotFoundError)
        raise InvalidDataError(f"data file {path} {'is missing' if missing else 'cannot be read'}") from None
    names = table.column_names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidDataError(f"data file {path} names columns twice: {', '.join(twice[:5])}")
    return {name: _column(table.column(name)) for name in names}


def _reader(path: Path) -> Any:  # noqa: ANN401 -- pyarrow has no types
    """The function that reads files of this kind."""
    match path.suffix.lower():
        case ".csv":
            from pyarrow.csv import read_csv  # noqa: PLC0415 -- as above

            return read_csv
        case ".parquet":
            from pyarrow.parquet import read_table  # noqa: PLC0415 -- as above

            return read_table
    raise InvalidDataError(f"data file {path} must end in .csv or .parquet")


def _column(values: Any) -> npt.NDArray[np.generic]:  # noqa: ANN401 -- pyarrow has no types
    """A column as a NumPy array; missing values are NaN in numbers and None elsewhere."""
    array: npt.NDArray[np.generic] = values.to_numpy()
    return array
