"""CSV and Parquet files as tables: one, or all of a pattern, in the order of their names.

A CSV file tells no types. A column that a study tells apart by spelling is of texts; another is of numbers where all of
its cells are such or empty, in all files, and of texts where not, or where a number begins with a 0 as codes do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute, csv

from common.errors import InvalidDataError
from common.files.sources import DataSource, sqlite_table
from common.files.streams import STREAM_ROWS, TableStream, gathered
from common.files.tables import check_names, check_regular, is_csv, unreadable

_BLOCK = 2**18
_LOOKED_AT = 2**10
"""Rows whose cells are looked at together: of more, what the system's allocator keeps grows."""
_CODE = r"^\s*[-+]?0[0-9]"
_NUMBERS = (pa.int64(), pa.float64())


def is_pattern(text: str) -> bool:
    """Whether a text names files by a pattern: a file that is called so, such as ``rows[1].csv``, is one file."""
    return has_magic(text) and not Path(text).is_file()


def one_file(data: DataSource) -> Path | None:
    """The file that a source is; None of a pattern of some, a table of a database, or a query."""
    if data.is_query or sqlite_table(data.source) is not None or is_pattern(data.source):
        return None
    return Path(data.source)


def matching_files(pattern: str) -> list[Path]:
    """The files of a pattern by name, or the one that it names; raises InvalidDataError where there is none."""
    path = Path(pattern)
    if not is_pattern(pattern):
        return [path]
    if not (found := sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))):
        raise InvalidDataError(f"data files {pattern}: there is none")
    return found


def file_table(pattern: str, texts: Collection[str] = ()) -> TableStream:
    """The rows of files of one kind, ``texts`` being columns of a CSV that hold no numbers.

    Raises InvalidDataError for a file that is missing, unreadable, of another kind, or of other columns than the first.
    """
    paths = matching_files(pattern)
    kinds = {is_csv(path) for path in paths}
    if len(kinds) > 1:
        raise InvalidDataError(f"data files {pattern}: some are .csv and some .parquet")
    return _csv_table(pattern, paths, texts) if kinds.pop() else _parquet_table(pattern, paths)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise InvalidDataError, which names the file, for what goes wrong with it."""
    try:
        check_regular(path)
        yield
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise unreadable(path, error) from None


def _parquet_table(pattern: str, paths: Sequence[Path]) -> TableStream:
    schema = None
    for path in paths:
        with reading(path), _parquet(path) as file:
            found = pa.schema([(field.name, field.type) for field in file.schema_arrow])
        check_names(path, found.names)
        schema = schema or found
        if not found.equals(schema):
            raise InvalidDataError(f"data file {path} has other columns, or of other types, than {paths[0]}")
    assert schema is not None  # noqa: S101 -- there is a file

    def read() -> Iterator[Any]:
        for path in paths:
            with _parquet(path) as file:
                for batch in file.iter_batches(STREAM_ROWS, use_threads=False):
                    yield pa.record_batch(batch.columns, schema=schema)
        pa.default_memory_pool().release_unused()  # pages of all columns, while the query goes on

    return TableStream(f"data file {pattern}", schema, read)


def _parquet(path: Path) -> Any:  # noqa: ANN401 -- pyarrow has no types
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 -- 5 MB, for who needs it

    return ParquetFile(path, buffer_size=2**14, pre_buffer=False)


def _csv_table(pattern: str, paths: Sequence[Path], texts: Collection[str]) -> TableStream:
    names: list[str] = []
    for path in paths:
        with reading(path):
            check_names(path, found := _header(path))
        names = names or found
        if found != names:
            raise InvalidDataError(f"data file {path} has other columns than {paths[0]}")
    as_text = dict.fromkeys(names, pa.string())
    types = {name: list(_NUMBERS) for name in names if name not in texts}
    for path in paths:
        with reading(path):
            for batch in gathered(_csv(path, as_text), _LOOKED_AT):
                types = {name: _possible(batch.column(name), kinds) for name, kinds in types.items()}
    pa.default_memory_pool().release_unused()
    schema = pa.schema([(name, (types.get(name) or [pa.string()])[0]) for name in names])

    def read() -> Iterator[Any]:
        for path in paths:
            yield from _csv(path, {field.name: field.type for field in schema})

    return TableStream(f"data file {pattern}", schema, read)


def _possible(column: Any, types: list[Any]) -> list[Any]:  # noqa: ANN401 -- as above
    """Of some types of numbers those that a column of texts can be of."""
    full = column.filter(compute.not_equal(column, ""))
    if types and _has_codes(full):
        return []
    return [kind for kind in types if _casts(full, kind)]


def _has_codes(column: Any) -> bool:  # noqa: ANN401 -- as above
    """Whether a number begins with a 0 as codes do; most are none at a glance, which a pattern would take long for."""
    bare = compute.utf8_ltrim(column, " \t\n\f\r+-")
    suspects = compute.and_not(compute.starts_with(bare, "0"), compute.starts_with(bare, "0."))
    return bool(compute.any(compute.match_substring_regex(column.filter(suspects), _CODE)).as_py())


def _casts(column: Any, kind: Any) -> bool:  # noqa: ANN401 -- as above
    try:
        column.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _blocks(path: Path) -> Any:  # noqa: ANN401 -- as above
    """How to read a file: by blocks that hold some rows, however long these are."""
    with path.open("rb") as file:
        return csv.ReadOptions(block_size=max(_BLOCK, 64 * len(file.readline())), use_threads=False)


def _header(path: Path) -> list[str]:
    with csv.open_csv(path, _blocks(path)) as file:
        return list(file.schema.names)


def _csv(path: Path, types: dict[str, Any]) -> Iterator[Any]:
    """The rows of a file; an empty cell holds nothing, of texts it is one."""
    convert = csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=False)
    with csv.open_csv(path, _blocks(path), convert_options=convert) as file:
        yield from file
