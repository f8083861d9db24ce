"""Records of JSON as tables: imported only while files are read. They are read as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from common.encoding.canonical_json import NameTwiceError, distinct_names
from common.encoding.saved_text import decode_text
from common.errors import InvalidDataError
from common.files.cell_columns import cell_array, cell_type
from common.files.streams import STREAM_ROWS, TableStream
from common.files.tables import reading

_RECORDS = "save the rows as a list of objects, or an object a line"


def json_table(path: Path) -> TableStream:
    """The records of a file of JSON: a list of objects, or an object a line. Raises InvalidDataError."""
    with reading(path):
        content = path.read_bytes()
    try:
        records = _records(decode_text(content))
    except UnicodeDecodeError:
        raise InvalidDataError(f"data file {path} cannot be read: it is not UTF-8: save it as such") from None
    except NameTwiceError:
        raise InvalidDataError(f"data file {path} cannot be read: a record has a name twice") from None
    except _LineError as error:
        raise InvalidDataError(f"data file {path} cannot be read: line {error.line:,} is no object of JSON") from None
    except (ValueError, RecursionError):
        raise InvalidDataError(f"data file {path} cannot be read: it is no JSON") from None
    if records is None:
        raise InvalidDataError(f"data file {path} cannot be read: {_RECORDS}")
    names = list(dict.fromkeys(name for record in records for name in record))
    return _table(path, {name: [record.get(name) for record in records] for name in names})


class _LineError(ValueError):
    """A line that is no object."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


def _records(text: str) -> Sequence[Mapping[str, Any]] | None:
    """The objects of a text, one a line or in a list; None where it is anything else."""
    if text.lstrip()[:1] == "[":
        rows = json.loads(text, object_pairs_hook=distinct_names)
        return rows if all(isinstance(row, dict) for row in rows) else None
    records = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=distinct_names)
        except NameTwiceError:
            raise
        except ValueError:
            raise _LineError(number) from None
        if not isinstance(record, dict):
            raise _LineError(number)
        records.append(record)
    return None if len(records) == 1 and _holds_tables(records[0]) else records


def _holds_tables(record: Mapping[str, Any]) -> bool:
    """Whether an object is no row: it holds nothing but lists and objects, and not only lists of numbers."""
    cells = [*record.values()]
    lists = [cell for cell in cells if isinstance(cell, list)]
    are_numbers = len(lists) == len(cells) and all(isinstance(each, int | float) for cell in lists for each in cell)
    return bool(cells) and all(isinstance(cell, list | dict) for cell in cells) and not are_numbers


def _table(path: Path, columns: Mapping[str, Sequence[Any]]) -> TableStream:
    schema = pa.schema([(name, cell_type(cells)) for name, cells in columns.items()])
    table = pa.table([cell_array(columns[field.name], field.type) for field in schema], schema=schema)

    def read() -> Iterator[Any]:
        yield from table.to_batches(STREAM_ROWS)

    return TableStream(f"data file {path}", schema, read)
