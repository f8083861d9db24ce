"""JSON whose long rows of numbers have lines of their own: it is written and read piece by piece.

It is valid JSON. No text of JSON contains an end of line, so a line of digits and commas is a part of an array: it is
read into an array of NumPy at once, 8 bytes a number, where Python's own would take 32.
"""

from __future__ import annotations

import io
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from parley.common.encoding.canonical_json import UnhurriedEncoder, check_counts, json_pieces, read_json
from parley.common.errors import TooLargeError

_LONG = 1000  # a row of more numbers has lines of its own
_LEAST = 500  # a line of more bytes is read into an array: a part of a long row has as many digits and commas
_MOST_VALUES = 2**21  # beside long rows: as many numbers as a model may have that was written in one line
_MOST_OTHER = 2**24
"""The most bytes beside long rows, plus eight for each line, because millions of empty lines take long to read."""
_NUMBERS = re.compile(rb"[-+.0-9eE, ]{%d,}" % _LEAST)
_SPELLING = UnhurriedEncoder()


def document_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield an object as the text of a file, in pieces: a line for each field, and several for long rows of numbers.

    >>> print("".join(document_lines({"kind": "linear", "weights": np.array([1.0, 2.0])})), end="")
    {
      "kind": "linear",
      "weights": [1.0, 2.0]
    }
    """
    for i, (name, value) in enumerate(document.items()):
        yield f"{',' if i else '{'}\n  {json.dumps(name)}: "
        yield from json_pieces(value, _SPELLING, lambda length: "\n" if length > _LONG else "")
    yield "\n}\n"


def read_lines(lines: Iterable[bytes]) -> Any:  # noqa: ANN401 -- any JSON value
    """Read a JSON value, as `read_json` does, from lines with their ends; rows with lines of their own are arrays (d,).

    Raises ValueError or RecursionError for invalid JSON, TooLargeError for more values than a document has.
    """
    other_lines, parts, size = io.BytesIO(), deque[npt.NDArray[Any]](), 0
    for line in _without_numbers(lines, parts):
        size += len(line) + 8
        if size > _MOST_OTHER:
            raise TooLargeError(f"beside long rows of numbers it may have {_MOST_OTHER:,} bytes")
        other_lines.write(line)
    check_counts(other_lines.getvalue(), _MOST_VALUES)
    return _joined(read_json(other_lines.getvalue(), parts))


def _without_numbers(lines: Iterable[bytes], parts: deque[npt.NDArray[Any]]) -> Iterator[bytes]:
    """Yield the lines of JSON without those of numbers alone.

    These go to ``parts``, and a NaN, which no JSON has, is yielded for each row of them. A row's lines go into one
    buffer, so that it is in memory only once.
    """
    row, dtype, end = bytearray(), np.dtype(np.float64), b""
    for line in chain(lines, [b""]):
        match = _NUMBERS.match(line)
        numbers = b"" if match is None or line[match.end() :].strip() else match[0].strip()
        part = _array(numbers.removesuffix(b",")) if numbers else None
        if row and (part is None or part.dtype != dtype or not end):
            parts.append(np.frombuffer(row, dtype))
            yield b"NaN" + end + b"\n"
            row = bytearray()
        if part is None:
            yield line
        else:
            row += part.data
            dtype, end = part.dtype, b"," if numbers.endswith(b",") else b""


def _array(numbers: bytes) -> npt.NDArray[Any]:
    """Read the numbers of a line. Raises ValueError for one that overflows, or if it is no list of numbers."""
    array = np.array(json.loads(b"[" + numbers + b"]"))
    if not array.size or array.dtype.kind not in "if" or not np.isfinite(array).all():
        raise ValueError("a number that overflows, or none")
    return array


def _joined(value: Any) -> Any:  # noqa: ANN401 -- any JSON value
    """Join the lines of each row into one array. Raises ValueError for lines that are in no list."""
    if isinstance(value, dict):
        for name, item in value.items():
            value[name] = _joined(item)
    elif isinstance(value, list):
        kinds = {*map(type, value)}
        if np.ndarray in kinds:
            if kinds <= {np.ndarray, float, int}:
                return np.hstack(value) if len(value) > 1 else value[0]
            value = [part for item in value for part in (item.tolist() if isinstance(item, np.ndarray) else [item])]
        for i, item in enumerate(value):
            if isinstance(item, dict | list):
                value[i] = _joined(item)
    elif isinstance(value, np.ndarray):
        raise ValueError("numbers that are in no list")  # noqa: TRY004 -- as all that is no JSON
    return value
