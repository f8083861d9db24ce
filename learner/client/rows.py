"""TableRows to predict for, as people have them: records, columns by name, or a data frame of any library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from parley.common.errors import InvalidInputError
from parley.learner.client.call import body_bytes

TableRows = Any
"""Records [{column: value}], columns {name: values}, or a data frame: pandas', polars', or a table of pyarrow."""

_MOST_BYTES, _MOST_RECORDS = 2**21, 100_000
"""Of a request; learners take twice as many bytes unless their operators say otherwise (``limits.run_bytes``)."""


def columns_of(rows: TableRows, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """The columns ``names`` of rows, (n,) each; of an array (n, m) its columns in that order.

    Raises InvalidInputError for rows that lack a column, are of unequal lengths, or are no table.
    """
    if isinstance(rows, np.ndarray | list | tuple):
        records = _are_records(rows)
        rows = {name: [row.get(name) for row in rows] for name in names} if records else _named(rows, names)
    found = _names_of(rows)
    if missing := [name for name in names if name not in found]:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""  # noqa: PLR2004
        raise InvalidInputError(f"the rows lack {', '.join(map(repr, missing[:5]))}{more}")
    columns = {name: _cells(rows[name], name) for name in names}
    if len({len(column) for column in columns.values()}) > 1:
        raise InvalidInputError("the columns have unequal numbers of rows")
    return columns


def records_of(rows: TableRows) -> list[dict[str, Any]]:
    """TableRows as records of JSON values; what is missing is None. Raises InvalidInputError for what is no table."""
    if isinstance(rows, Sequence) and _are_records(rows):
        return [{str(name): _plain(value) for name, value in record.items()} for record in rows]
    names = _names_of(rows)
    lists = [column.tolist() for column in columns_of(rows, names).values()]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in zip(*lists, strict=True)]


def bodies_of(records: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Records as JSON in bodies that a learner takes in one request each; of no record one that holds none."""
    piece: list[bytes] = []
    size = 0
    for spelt in map(body_bytes, records):
        length = len(spelt) + 2
        if piece and (size + length > _MOST_BYTES or len(piece) == _MOST_RECORDS):
            yield _body_of(piece)
            piece, size = [], 0
        piece.append(spelt)
        size += length
    yield _body_of(piece)


def _body_of(records: Sequence[bytes]) -> bytes:
    """The body of one request."""
    return b'{"records": [%b]}' % b", ".join(records)


@contextmanager
def counted_from(start: int) -> Iterator[None]:
    """Say of a piece's records that are refused, whose numbers are the piece's, where it begins."""
    try:
        yield
    except InvalidInputError as error:
        raise type(error)(
            f"of the rows from {start} on: {error.detail}" if start else error.detail, **error.facts
        ) from None


def _are_records(rows: Sequence[Any] | npt.NDArray[Any]) -> bool:
    """Whether each is one: of none so is a list, as of records that a program filtered."""
    return (len(rows) > 0 or isinstance(rows, list | tuple)) and all(isinstance(row, Mapping) for row in rows)


def _names_of(rows: TableRows) -> tuple[str, ...]:
    """The columns that there are."""
    names = rows.keys() if isinstance(rows, Mapping) else getattr(rows, "column_names", getattr(rows, "columns", None))
    if names is None or not hasattr(rows, "__getitem__"):
        raise InvalidInputError("rows must be records, columns by name or a data frame: their columns need names")
    return tuple(map(str, names))


def _named(rows: TableRows, names: Sequence[str]) -> dict[str, Any]:
    """The columns of an array (n, m)."""
    try:
        array = np.asarray(rows) if isinstance(rows, np.ndarray) else np.array(rows, dtype=object)
    except ValueError:
        raise InvalidInputError("the rows are of unequal lengths") from None
    if array.ndim != 2 or array.shape[1] != len(names):  # noqa: PLR2004
        raise InvalidInputError(
            f"an array must have {len(names)} columns, in the order of the study, not {array.shape}"
        )
    return dict(zip(names, array.T, strict=True))


def _cells(column: Any, name: str) -> npt.NDArray[Any]:  # noqa: ANN401 -- of any library
    """A column (n,); texts and mixtures as objects, so that none becomes another."""
    cells = column if isinstance(column, np.ndarray) else None
    if cells is None:
        cells = np.asarray(column, dtype=object) if isinstance(column, list | tuple) else np.asarray(column)
    if cells.ndim != 1:
        raise InvalidInputError(f"column {name!r} must be a list of values, not of shape {cells.shape}")
    return cells


def _plain(value: Any) -> Any:  # noqa: ANN401 -- a cell, and a JSON value
    """A cell as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, bool | int | float | str | list | tuple) or value is None else _odd(value)


def _odd(value: object) -> str | None:
    """A cell of another type in words; None for what its library calls missing, which is not equal to itself."""
    equal = value == value  # noqa: PLR0124 -- pandas' NA and NaT
    return str(value) if equal is True else None
