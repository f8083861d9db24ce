"""JSON whose long rows have lines of their own is JSON as any other, and is read as strictly."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest

from parley.common.encoding.canonical_json import PIECE, canonical_digest
from parley.common.encoding.number_lines import document_lines, read_lines
from parley.common.errors import TooLargeError


def _read(text: str) -> Any:  # noqa: ANN401 -- any JSON value
    return read_lines(io.BytesIO(text.encode()))


def test_what_stands_beside_long_rows_is_bounded() -> None:
    def endless(line: bytes) -> Iterator[bytes]:
        while True:
            yield line

    for line in (b"\n", b'"' + b"a" * 10_000 + b'",\n', b" " * 1000 + b"\n"):
        with pytest.raises(TooLargeError, match="beside long rows of numbers it may have 16,777,216 bytes"):
            read_lines(endless(line))


@pytest.mark.long
def test_a_long_row_is_in_memory_once() -> None:
    count, line = 2**21, b"0.5," * 2**13 + b"\n"
    text = chain([b"[\n"], repeat(line, count // 2**13), [b"0.5]\n"])
    tracemalloc.start()
    assert len(read_lines(text)) == count + 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 8 * count


def _numbers(count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(count).normal(size=count) * 10.0 ** np.arange(-3, count - 3).clip(max=300)


@pytest.mark.parametrize("count", [0, 1, 1000, 1001, PIECE, PIECE + 1, 3 * PIECE + 7])
def test_what_is_written_is_read_to_the_bit(count: int) -> None:
    row = _numbers(count)
    document = {"kind": "é", "weights": [row, row], "deep": [[row]], "entries": {"index": np.arange(count)}, "after": 1}
    text = "".join(document_lines(document))
    told = json.loads(text)
    assert told == {
        **document,
        "weights": [row.tolist()] * 2,
        "deep": [[row.tolist()]],
        "entries": {"index": list(range(count))},
    }
    read = _read(text)
    assert [np.array(part).tobytes() for part in read["weights"]] == [row.tobytes()] * 2
    assert isinstance(read["weights"][0], np.ndarray) == (count > 1000)
    assert np.array(read["entries"]["index"], dtype=np.int64).tolist() == list(range(count))
    assert canonical_digest(document) == canonical_digest(told)


LONG = ", ".join(["0.125"] * 100)


@pytest.mark.parametrize(
    "text",
    [
        "NaN", "[NaN]", f"[\n{LONG},\nNaN]", f"[\n{LONG},\n-Infinity]",
        f'{{"a":\n{LONG}\n}}', LONG, f"[\n{LONG}\n", f"[\n{LONG}\n{LONG}\n]", f"[\n{LONG},\n]", f"[\n{LONG},,\n1]",
        f"[\n{' ' * 600},\n1]",
        f"[\n{LONG}, 1e999\n]", f"[\n{LONG}, 01\n]", f"[\n{LONG}, --1\n]",
        f'["\n{LONG}\n"]', f"[\n{LONG}, 1{'0' * 400}\n]",
        f'{{"a": "\\ud800", "b": [\n{LONG}\n]}}', f'{{"a": [\n{LONG}\n], "a": 1}}',
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- whose words are nobody's
        _read(text)


def test_other_writers_lines_are_read_alike() -> None:
    value = [1.5, *[0.125] * 100, 7]
    for text in (json.dumps(value), json.dumps(value, indent=1), f"[1.5,\r\n{LONG} , \r\n7]"):
        assert np.array(_read(text)).tolist() == value
    assert _read(f'["x",\n{LONG},\n"y"]') == ["x", *[0.125] * 100, "y"]
