"""Tables as streams of Arrow record batches that can be read again: imported only while data are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from parley.common.errors import InvalidDataError, ParleyError

STREAM_ROWS = 2**11
"""Rows of a batch: of fifty columns of numbers, 800 KB."""


@dataclass(slots=True, eq=False)
class TableStream:
    """A table's columns, and its rows each time that they are asked for. ``name`` is what to call it in errors.

    Other libraries read it by Arrow's interface for streams. These make errors of their own of what goes wrong in
    between, so it is kept as ``fault``. ``notes`` say how the table is read, where its owner should know.
    """

    name: str
    schema: Any
    read: Callable[[], Iterable[Any]]
    fault: ParleyError | None = field(default=None, init=False)
    notes: list[str] = field(default_factory=list, init=False)

    def batches(self) -> Iterator[Any]:
        """The rows, from the first on; raises InvalidDataError that never quotes a value."""
        try:
            yield from self.read()
        except ParleyError as error:
            self.fault = error
            raise
        except (OSError, UnicodeError, pa.ArrowException):
            self.fault = InvalidDataError(f"{self.name} cannot be read to its end")
            raise self.fault from None

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)


def gathered(batches: Iterable[Any], n_rows: int) -> Iterator[Any]:
    """Record batches joined to so many rows or a few more: what is done once a column and batch costs little then."""
    held, rows = [], 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= n_rows:
            yield pa.concat_batches(held)
            held, rows = [], 0
    if held:
        yield pa.concat_batches(held)
