"""What the child process of `cell_tables` runs for JSON: it reads records and sends Arrow's messages."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa

from parley.common.encoding.canonical_json import NameTwiceError, distinct_names
from parley.common.encoding.saved_text import decode_text
from parley.common.errors import InvalidDataError, TooLargeError
from parley.common.files.cell_columns import cell_array, cell_type
from parley.common.files.cell_tables import arrow_message, cell_bounds
from parley.common.files.streams import STREAM_ROWS
from parley.common.service.child import AnyArray, send_arrays

_DECODER = json.JSONDecoder(object_pairs_hook=distinct_names)
_SPACE, _COMMA = re.compile(r"[ \t\n\r]*"), re.compile(r"[ \t\n\r]*,[ \t\n\r]*(?!\])")


def _arrays() -> Iterator[AnyArray]:
    """The schema of the file that the command line names, then its rows, each as bytes."""
    columns = _columns(Path(sys.argv[1]))
    schema = pa.schema([(name, cell_type(cells)) for name, cells in columns.items()])
    yield arrow_message(schema)
    table = pa.table([cell_array(columns.pop(field.name), field.type) for field in schema], schema=schema)
    for batch in table.to_batches(STREAM_ROWS):
        yield arrow_message(batch)


def _columns(path: Path) -> dict[str, list[Any]]:
    """The columns of the records of a file, None where a record has none of a name; raises InvalidDataError."""
    try:
        return _gathered(decode_text(path.read_bytes()))
    except UnicodeDecodeError:
        why = "it is not UTF-8: save it as such"
    except NameTwiceError:
        why = "a record has a name twice"
    except TooLargeError as error:
        why = error.detail
    except _LineError as error:
        why = f"line {error.line:,} is no object of JSON"
    except _NoRecordsError:
        why = "save the rows as a list of objects, or an object a line"
    except (ValueError, RecursionError):
        why = "it is no JSON"
    raise InvalidDataError(f"data file {path} cannot be read: {why}")


class _NoRecordsError(Exception):
    """A text of JSON is no table."""


class _LineError(ValueError):
    """A line that is no object."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


def _gathered(text: str) -> dict[str, list[Any]]:
    """The columns of a text's records, of which one at a time is there besides."""
    is_list = text.startswith("[", _after_space(text, 0))
    columns: dict[str, list[Any]] = {}
    n_records = 0
    for record in _listed(text) if is_list else _lines(text):
        for name, cell in record.items():
            cells = columns.setdefault(name, [])
            cells.extend(repeat(None, n_records - len(cells)))
            cells.append(cell)
        n_records += 1
    if n_records == 1 and not is_list and _hold_tables([cells[0] for cells in columns.values()]):
        raise _NoRecordsError
    if n_records and not columns:
        raise _NoRecordsError
    for cells in columns.values():
        cells.extend(repeat(None, n_records - len(cells)))
    return columns


def _listed(text: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; raises ValueError, and _NoRecordsError where an item is anything else."""
    place = _after_space(text, _after_space(text, 0) + 1)
    while not text.startswith("]", place):
        record, place = _DECODER.raw_decode(text, place)
        if not isinstance(record, dict):
            raise _NoRecordsError
        yield record
        if comma := _COMMA.match(text, place):
            place = comma.end()
        elif not text.startswith("]", place := _after_space(text, place)):
            raise ValueError
    if _after_space(text, place + 1) < len(text):
        raise ValueError


def _lines(text: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a text, one a line; raises _LineError."""
    start = number = 0
    while start < len(text):
        end = text.find("\n", start) % (len(text) + 1)  # the last line may have none
        line, number, start = text[start:end], number + 1, end + 1
        if not line.strip():
            continue
        try:
            record = _DECODER.decode(line)
        except NameTwiceError:
            raise
        except ValueError:
            raise _LineError(number) from None
        if not isinstance(record, dict):
            raise _LineError(number)
        yield record


def _after_space(text: str, start: int) -> int:
    """Where a text goes on after what stands between JSON's values."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _hold_tables(cells: Iterable[Any]) -> bool:
    """Whether cells of an object are no row: nothing but lists and objects, and not only lists of numbers."""
    cells = list(cells)
    lists = [cell for cell in cells if isinstance(cell, list)]
    are_numbers = len(lists) == len(cells) and all(isinstance(each, int | float) for cell in lists for each in cell)
    return bool(cells) and all(isinstance(cell, list | dict) for cell in cells) and not are_numbers


if __name__ == "__main__":
    send_arrays(_arrays, cell_bounds(Path(sys.argv[1])))
