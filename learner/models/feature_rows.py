"""Reads a file's rows in a study's features, block by block, to predict for them.

This is imported only when a file is read, because it needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

from parley.common.arrays import BoolArray
from parley.common.data.cells import Block
from parley.common.data.records import check_cells, rows_of, rows_of_columns, unfit_cells
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.files.arrow import TableStream
from parley.common.files.column_names import match_columns, renaming_notes
from parley.common.files.examples import block_of
from parley.common.files.sources import CsvFormat, split_inner_table
from parley.common.files.sparse_examples import check_kind, is_libsvm, libsvm_table
from parley.common.files.tables import file_table, open_tables


class FeatureRows:
    """Reads rows of a table or (sparse) LIBSVM file into a study's design, and columns to ``keep`` unchanged.

    ``path`` may be ``file.sqlite::table`` or ``file.xlsx::sheet``; a database is shut where the ``with`` of this ends.
    Raises InvalidDataError for a file that cannot be read or lacks a feature of the study, or a column to ``keep``.
    """

    def __init__(
        self, path: Path, study: Study, keep: Collection[str] = (), csv_format: CsvFormat | None = None
    ) -> None:
        self._study, self._keep, self._opened = study, tuple(keep), ExitStack()
        if study.sparse:
            check_kind(path)
        self._wanted = [name for feature in study.features for name in feature.table_names]
        texts: dict[str, tuple[str, ...]] = {**dict.fromkeys(keep, ()), **study.text_values}
        self._stream: TableStream
        if study.sparse and is_libsvm(path):
            self._stream = libsvm_table(path, study)
        elif split_inner_table(str(path)) is None:
            self._stream = file_table(str(path), texts, csv_format, wanted=(*self._wanted, *keep))
        else:
            self._stream = self._opened.enter_context(open_tables({"rows": str(path)}, texts))["rows"]
        names = self._stream.schema.names
        self._meant = match_columns(names, self._wanted)
        lacks = {*self._wanted, *keep} - self._meant.keys() - set(names)
        if missing := [name for name in dict.fromkeys((*self._wanted, *keep)) if name in lacks]:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""  # noqa: PLR2004
            named = ", ".join(map(repr, missing[:5]))
            raise InvalidDataError(f"data file {path} lacks {named}{more}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def notes(self) -> list[str]:
        """How the file is read, if that differs from how programs write such files."""
        return [*self._stream.notes, *renaming_notes(self._meant)]

    def blocks(self, *, skip: bool = False) -> Iterator[tuple[Any, BoolArray, list[dict[str, Any]]]]:
        """Yield rows (n, d) of the design, whether each can be used (n,), and the kept columns, row by row.

        Raises InvalidInputError that names the first row that cannot be used, by its number from 1, unless ``skip``.
        """
        start = 1
        for batch in self._stream.batches():
            count, first = batch.num_rows, start
            kept_columns = batch.select(self._keep).to_pylist() if self._keep else [{}] * count
            wanted = batch.select([self._meant[name] for name in self._wanted]).rename_columns(self._wanted)

            def name(row: int, first: int = first) -> str:
                return f"row {first + row:,}"

            if self._study.sparse:
                yield (*self._sparse(wanted.to_pylist(), name, skip=skip), kept_columns)
            else:
                block = block_of(wanted, self._study.text_names)
                yield (*self._dense(block, count, name, skip=skip), kept_columns)
            start += count

    def _dense(self, block: Block, count: int, name: Any, *, skip: bool) -> tuple[Any, BoolArray]:  # noqa: ANN401 -- see blocks
        usable = np.ones(count, dtype=np.bool_)
        if skip:
            for unfit, _ in unfit_cells(self._study, block):
                usable &= ~unfit
        else:
            check_cells(self._study, block, name)
        return rows_of_columns(self._study, block, count), usable

    def _sparse(self, records: list[Any], name: Any, *, skip: bool) -> tuple[Any, BoolArray]:  # noqa: ANN401 -- as above
        if not skip:
            return rows_of(self._study, records, name), np.ones(len(records), dtype=np.bool_)
        usable = np.array([self._fits(record) for record in records])
        sparse = self._study.sparse
        assert sparse is not None  # noqa: S101 -- what a study of lists has
        empty: dict[str, list[float]] = {column: [] for column in sparse.table_names}
        return rows_of(self._study, [r if fits else empty for r, fits in zip(records, usable, strict=True)]), usable

    def _fits(self, record: dict[str, Any]) -> bool:
        try:
            rows_of(self._study, [record])
        except InvalidInputError:
            return False
        return True
