"""Load files of examples into a shard, batch by batch: imported only while a file is read, because pyarrow is large.

A batch has some rows, and for Parquet only a few columns, so that little more than the shard is ever in memory. Numbers
of a CSV file are parsed as numbers at first; only if that fails is the file read again as texts, to find how its
numbers are written and to count the cells that are none. `parley.common.files.sparse_examples` reads sparse features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from parley.common.data.cells import Block, CellRules
from parley.common.data.faults import UnfitDataError
from parley.common.data.loading import BLOCK_ROWS, Loaded, Loading, RowLoading
from parley.common.data.persons import PersonOrder
from parley.common.data.study import Study, training_first
from parley.common.errors import InvalidDataError
from parley.common.files.arrow import TableStream, column_of, join_batches
from parley.common.files.column_names import check_same_columns, match_columns, renaming_notes
from parley.common.files.csv_files import CsvTable
from parley.common.files.identifiers import keys_of_array, order_of
from parley.common.files.kinds import check_columns, check_names, common_kind, reading
from parley.common.files.parquet_files import as_texts, open_parquet
from parley.common.files.sources import CsvFormat, DataSource
from parley.common.files.sparse_examples import list_blocks, sparse_blocks
from parley.common.files.tables import file_table, open_stream, source_files

_GATHERED_ROWS = 2**12
_PARQUET_COLUMNS = 8
"""Columns of a Parquet file that are read together: a few decoded pages of each, some megabytes, are in memory."""


def load_examples(path: Path, study: Study, *, clip: bool = False, csv_format: CsvFormat | None = None) -> Loaded:
    """Load the examples of a file in the study's columns; other columns are not read.

    Raises InvalidDataError for a file that cannot be read, and for data that do not fit the study, as `load_columns`
    does.
    """
    return _load_files(str(path), [path], study, csv_format, CellRules(clip))


def load_source(
    data: DataSource, study: Study, *, clip: bool = False, places: tuple[int, int | None] = (0, None)
) -> Loaded:
    """Load the examples of a source: a file as `load_examples` does, or files, a table or a query in the order of rows.

    Only those at ``places`` from the first to before the second are kept, and held out as if there were no others.
    That is for rows that stand for themselves: a person may have rows at both sides of a place.

    Raises InvalidDataError as `load_examples` does, for a query that is not one SELECT over the named tables, and if
    there are no rows at these places.
    """
    if places != (0, None):
        if study.person is not None:
            raise InvalidDataError(
                "data.earlier_rows: the study's examples are persons, who may have rows among the earlier ones and "
                "among the later: only the whole table can be taken"
            )
        whole = load_source(data, study.model_copy(update={"hold_out": None}), clip=clip)
        first, end = places
        n_rows = min(whole.shard.n_examples, whole.shard.n_examples if end is None else end) - first
        if n_rows < 1:
            raise InvalidDataError(f"the data has {whole.shard.n_examples} rows, and none after the first {first}")
        return replace(whole, shard=whole.shard.take(first + training_first(int(n_rows), study.hold_out)))
    rules = CellRules(clip, data.values)
    if (paths := source_files(data)) is not None:
        return _load_files(data.source, paths, study, data.csv, rules)
    with open_stream(data, study.text_values | dict.fromkeys(_persons(study), ())) as rows:
        loading, n_rows = _collected(rows, study, rules)
        notes = _notes(rows, study)
    return _finished(loading, n_rows, notes)  # in the memory that the query had


def _load_files(
    where: str, paths: Sequence[Path], study: Study, csv_format: CsvFormat | None, rules: CellRules
) -> Loaded:
    """Load the rows of files of one kind."""
    before = _stamps(paths)
    loaded = _load_as_they_are(where, paths, study, csv_format, rules)
    if study.person is not None and _stamps(paths) != before:
        raise InvalidDataError("the data changed while it was read: whose a row is may be wrong")
    return loaded


def _stamps(paths: Sequence[Path]) -> list[tuple[int, int]]:
    """Return the time of the last change and the size of each file; none of a file that is missing."""
    return [(stat.st_mtime_ns, stat.st_size) for path in paths if path.exists() for stat in [path.stat()]]


def _load_as_they_are(
    where: str, paths: Sequence[Path], study: Study, csv_format: CsvFormat | None, rules: CellRules
) -> Loaded:
    if study.sparse:
        return _load_sparse(paths, study, rules)
    match common_kind(where, paths):
        case "csv":
            return load_csv(CsvTable(f"data file {where}", paths, csv_format, study.source_names), study, rules)
        case "parquet":
            return load_parquet(paths, study, rules)
        case _:
            stream = file_table(where)
            loading, n_rows = _collected(stream, study, rules)
            return _finished(loading, n_rows, _notes(stream, study))


def _persons(study: Study) -> tuple[str, ...]:
    """Return the column that says whose a row is, if there is one."""
    return () if study.person is None else (study.person.column,)


def _finished(loading: Loading, n_rows: int, notes: Sequence[str]) -> Loaded:
    """Finish the shard of the first rows, with notes on how they were read; an error gets these notes too."""
    try:
        return replace(loading.finish(n_rows), notes=tuple(notes))
    except UnfitDataError as error:
        error.notes = tuple(notes)
        raise


def _notes(stream: TableStream, study: Study) -> tuple[str, ...]:
    """Return lines on how a stream was read."""
    return (*stream.notes, *renaming_notes(match_columns(stream.schema.names, study.source_names)))


def _collected(stream: TableStream, study: Study, rules: CellRules) -> tuple[Loading, int]:
    """Load the rows of a stream, and count them: a stream does not know how many it has."""
    check_columns(stream.name, stream.schema.names)
    if study.sparse:
        return _collected_lists(stream, study, rules)
    loading = RowLoading(study, rules)
    meant, texts, start = match_columns(stream.schema.names, study.source_names), study.text_names, 0
    loading.expect(meant)
    persons = [(name, meant.pop(name)) for name in _persons(study) if name in meant]
    for batch in stream.batches() if meant else ():
        for name, column in persons:
            loading.identify(keys_of_array(batch.column(column), name))
        loading.add(start, block_of(_named(batch.select(list(meant.values())), meant), texts))
        start += batch.num_rows
    pa.default_memory_pool().release_unused()
    return loading, start


def _named(batch: Any, meant: Mapping[str, str]) -> Any:  # noqa: ANN401 -- pyarrow has no types
    """Rename the columns of a batch to the names that they match, in the order of these."""
    return batch.rename_columns(list(meant))


def _collected_lists(stream: TableStream, study: Study, rules: CellRules) -> tuple[Loading, int]:
    """Load and count the rows of a stream with two columns of lists."""
    from parley.common.data.sparse_loading import SparseLoading  # noqa: PLC0415 -- SciPy, for who needs it

    loading, start = SparseLoading(study, 0, rules), 0
    names = [name for name in stream.schema.names if name in study.source_names]
    loading.expect(names)
    for rows in list_blocks(stream.batches(), study) if len(names) == len(study.source_names) else ():
        loading.reserve(start + rows.n_rows)
        rows.add_to(loading, start)
        start += rows.n_rows
    pa.default_memory_pool().release_unused()
    return loading, start


def load_parquet(paths: Sequence[Path], study: Study, rules: CellRules) -> Loaded:
    """Load the rows of Parquet files, a few columns at a time; the metadata say how many rows there are."""
    with ExitStack() as stack:
        files = []
        for path in paths:
            with reading(path):
                files.append(stack.enter_context(open_parquet(path, 2**16)))
        wanted = []
        for path, file in zip(paths, files, strict=True):
            check_names(path, names := file.schema_arrow.names)
            wanted.append(match_columns(names, study.source_names))
            check_same_columns(path, wanted[-1], paths[0], wanted[0])
        n_rows = sum(file.metadata.num_rows for file in files)
        names = tuple(wanted[0])
        persons = [name for name in _persons(study) if name in names]
        columns = [[meant.pop(name) for name in persons] for meant in wanted]
        order = order_of(study, _parquet_column(paths, files, columns)) if persons else None
        loading = Loading(study, n_rows, rules, order)
        loading.expect(names)
        start = 0
        for path, file, meant in zip(paths, files, wanted, strict=True):
            with reading(path):
                _add_parquet(loading, start, file, meant, study.text_names)
            start += file.metadata.num_rows
            if len(paths) > 1:
                loading.end_file(str(path))
        pa.default_memory_pool().release_unused()
        return _finished(loading, n_rows, renaming_notes(dict(zip(persons, columns[0], strict=True)) | wanted[0]))


def _parquet_column(paths: Sequence[Path], files: Sequence[Any], columns: Sequence[Sequence[str]]) -> Iterator[Any]:
    """Yield the cells of a column, whose name each file has in a list of its own, some rows at a time."""
    for path, file, names in zip(paths, files, columns, strict=True):
        with reading(path):
            for batch in file.iter_batches(_GATHERED_ROWS * 8, columns=list(names), use_threads=False):
                yield as_texts("the table", names[0], batch.column(0))


def _add_parquet(loading: Loading, first: int, file: Any, meant: Mapping[str, str], texts: frozenset[str]) -> None:  # noqa: ANN401 -- pyarrow has no types
    """Load the rows of one file, at the row ``first`` of the shard and after."""
    order = {column: place for place, column in enumerate(file.schema_arrow.names)}
    names = sorted(meant, key=lambda name: order[meant[name]])
    most = max(_PARQUET_COLUMNS, len(names) // 64)
    rows = max(2**8, BLOCK_ROWS * _PARQUET_COLUMNS // most)
    for i in range(0, len(names), most):
        some = {name: meant[name] for name in names[i : i + most]}
        start = first
        for batch in file.iter_batches(rows, columns=list(some.values()), use_threads=False):
            named = _named(batch.select(list(some.values())), some)
            cells = [
                column if name in texts else as_texts("the table", name, column)
                for name, column in zip(named.schema.names, named.columns, strict=True)
            ]
            loading.add(start, block_of(pa.record_batch(cells, named.schema.names), texts))
            start += batch.num_rows


def load_csv(table: CsvTable, study: Study, rules: CellRules) -> Loaded:
    """Load the rows of CSV files: numbers are parsed as such where all are written as the first ones are."""
    meant = match_columns(table.columns, study.source_names)
    whose = {name: meant.pop(name) for name in _persons(study) if name in meant}
    order = order_of(study, _csv_column(table, whose)) if whose else None
    numbers = [column for name, column in meant.items() if name not in study.text_names]
    if table.try_signs(numbers):
        with suppress(pa.ArrowInvalid):  # a cell of a numeric column is no number, or has signs of its own
            return _load_csv(table, study, meant, rules, whose=whose, order=order, as_text=False)
    table.find_signs(numbers)
    return _load_csv(table, study, meant, rules, whose=whose, order=order, as_text=True)


def _csv_column(table: CsvTable, whose: Mapping[str, str]) -> Iterator[Any]:
    """Yield the cells of a column as texts, some rows at a time."""
    for file in table.files:
        for batch in table.cells_of(file, dict.fromkeys(whose.values(), pa.string())):
            yield table.texts(batch.column(0), ())


def _load_csv(  # noqa: PLR0913 -- three of them by name
    table: CsvTable, study: Study, meant: Mapping[str, str], rules: CellRules, *, whose: Mapping[str, str],
    order: PersonOrder | None, as_text: bool,
) -> Loaded:  # fmt: skip
    texts, start = study.text_values, 0
    n_lines = 0
    for file in table.files:
        with reading(file.path):
            n_lines += file.n_lines
    loading = Loading(study, n_lines, rules, order)
    loading.expect({**meant, **whose})
    types = {column: pa.string() if as_text or name in texts else pa.float64() for name, column in meant.items()}
    missing = table.missing()
    for file in table.files if meant else ():
        for batch in join_batches(table.cells_of(file, types, missing), _GATHERED_ROWS):
            columns = [
                table.texts(cells, texts[name]) if name in texts else file.numbers(cells, missing) if as_text else cells
                for name, cells in zip(meant, batch.columns, strict=True)
            ]
            loading.add(start, block_of(pa.record_batch(columns, list(meant)), study.text_names))
            start += batch.num_rows
        if len(table.files) > 1:
            loading.end_file(str(file.path))
    pa.default_memory_pool().release_unused()
    return _finished(loading, start, (*table.notes, *renaming_notes({**whose, **meant})))


def block_of(batch: Any, texts: frozenset[str]) -> Block:  # noqa: ANN401 -- pyarrow has no types
    """Return a record batch as arrays: numbers where wanted and present; others as codes of their distinct values."""
    block = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        try:
            block[name] = column_of(array, as_number=name not in texts)
        except pa.ArrowNotImplementedError:
            raise InvalidDataError(
                f"column {name!r} is of type {array.type}, which cannot be read: make a number or a text of it"
            ) from None
    return block


def _load_sparse(paths: Sequence[Path], study: Study, rules: CellRules) -> Loaded:
    """Load the examples of files in a study of sparse features, one file after another."""
    from parley.common.data.sparse_loading import SparseLoading  # noqa: PLC0415 -- as above

    files = []
    for path in paths:
        with reading(path):
            files.append(sparse_blocks(path, study))
    n_rows, start = sum(n for n, _, _ in files), 0
    loading = SparseLoading(study, n_rows, rules)
    loading.expect(files[0][1])
    for path, (_, _, blocks) in zip(paths, files, strict=True):
        with reading(path):
            for rows in blocks:
                rows.add_to(loading, start)
                start += rows.n_rows
        if len(paths) > 1:
            loading.end_file(str(path))
    pa.default_memory_pool().release_unused()
    return loading.finish(n_rows)
