"""Cells as columns: what type each kind of cell makes, and the rows of JSON files and workbooks, to the letter.

A child process reads such files; here its code runs in this process, where each row can be looked at.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
import pytest

from parley.common.data.cells import Coded
from parley.common.errors import InvalidDataError
from parley.common.extras import MissingExtraError
from parley.common.files import cell_tables
from parley.common.files.arrow import TableStream, cell_array, cell_type, column_of, join_batches
from parley.common.files.cell_tables import cell_bounds, json_table, sheet_table
from tests.support.dresses import write_workbook

DAY = dt.date(2026, 1, 2)
NOON, MIDNIGHT = dt.datetime(2026, 1, 2, 12, 30), dt.datetime(2026, 1, 2)  # noqa: DTZ001 -- as in workbooks


# ── cells ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([True, None, False], pa.bool_()),
        ([1, None, -(2**63)], pa.int64()),
        ([2**63 - 1], pa.int64()),
        ([2**63], pa.float64()),
        ([0, -(2**63) - 1], pa.float64()),
        ([None, 0.5], pa.float64()),
        ([1, 0.5], pa.float64()),
        ([1, True], pa.string()),
        ([[1, 0.5], None, []], pa.list_(pa.float64())),
        ([[1, True]], pa.string()),
        ([[1], ["a"]], pa.string()),
        ([[1], 2], pa.string()),
        (["a", None], pa.string()),
        ([{"a": 1}], pa.string()),
        ([DAY], pa.string()),
        ([None, None], pa.null()),
        ([], pa.null()),
    ],
)
def test_a_column_of_cells_has_one_type(cells: list[Any], kind: pa.DataType) -> None:
    assert cell_type(cells) == kind
    assert cell_array(cells, kind).type == kind
    assert cell_array([None] * 2, kind).type == kind


@pytest.mark.parametrize(
    ("cells", "kind", "held"),
    [
        (
            ["a", None, 1, 2.0, 2.5, True, b"\xff", [1], {"a": 1}, DAY, NOON, MIDNIGHT, 10**20, float("inf")],
            pa.string(),
            [
                "a", None, "1", "2", "2.5", "True", "(bytes)", "(list)", "(dict)", "2026-01-02", "2026-01-02 12:30:00",
                "2026-01-02", "100000000000000000000", "inf",
            ],
        ),
        ([1, None, 0.5, 10**400, -(10**400)], pa.float64(), [1.0, None, 0.5, float("inf"), float("-inf")]),
        ([7, None, -7], pa.int64(), [7, None, -7]),
        ([True, None], pa.bool_(), [True, None]),
        ([[1, 0.5], None, []], pa.list_(pa.float64()), [[1.0, 0.5], None, []]),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)  # fmt: skip
def test_cells_among_texts_are_spelt_and_others_stay(cells: list[Any], kind: pa.DataType, held: list[Any]) -> None:
    made = cell_array(cells, kind)
    assert (made.type, made.to_pylist()) == (kind, held)


def test_a_rounded_number_among_texts_is_marked_for_identifiers_alone() -> None:
    made = cell_array(["a", 2.0**53], pa.string())
    assert made.to_pylist() == ["a", "\N{ALMOST EQUAL TO}9007199254740992"]
    column = column_of(made, as_number=True)
    assert isinstance(column, Coded)
    assert column.values == ("a", "9007199254740992")


@pytest.mark.parametrize(
    ("array", "numbers"),
    [
        (pa.array([0.5, None]), [0.5, None]),
        (pa.array([1, None, 2**53 + 1]), [1.0, None, 2.0**53]),
        (pa.array([0.5, None], pa.float32()), [0.5, None]),
        (pa.array([Decimal("0.10"), None]), [0.1, None]),
        (pa.array(["1", None, "", "NA", "2.5", "?"]), [1.0, None, None, None, 2.5, None]),
        (pa.array(["1", None, "", "NA"], pa.large_string()), [1.0, None, None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_numbers_and_texts_that_spell_them_are_numbers(array: pa.Array, numbers: list[float | None]) -> None:
    column = column_of(array, as_number=True)
    assert isinstance(column, np.ndarray)
    assert column.dtype == np.float64
    assert [None if np.isnan(number) else number for number in column.tolist()] == numbers
    assert isinstance(column_of(array, as_number=False), Coded)


@pytest.mark.parametrize(
    ("array", "codes", "values"),
    [
        (pa.array(["b", "a", None, "b"]), [0, 1, -1, 0], ("b", "a")),
        (pa.array(["b", "a", None, "b"], pa.string_view()), [0, 1, -1, 0], ("b", "a")),
        (pa.array(["b", None, "b"]).dictionary_encode(), [0, -1, 0], ("b",)),
        (pa.array([True, None, False, True]), [0, -1, 1, 0], (True, False)),
        (pa.array([DAY, None, DAY]), [0, -1, 0], ("2026-01-02",)),
        (pa.array([NOON, None], pa.timestamp("s")), [0, -1], ("2026-01-02 12:30:00",)),
        (pa.array([[1], None, [1]]), [0, 1, 2], ([1], None, [1])),
        (pa.array([{"a": 1}, None]), [0, 1], ({"a": 1}, None)),
        (pa.array([dt.timedelta(days=1), None]), [0, 1], (dt.timedelta(days=1), None)),
        (
            pa.array([pa.MonthDayNano([1, 2, 3]), None]),
            [0, 1],
            (pa.MonthDayNano([1, 2, 3]), None),
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
@pytest.mark.parametrize("as_number", [False, True])
def test_what_is_no_number_is_codes_and_their_values(
    array: pa.Array, codes: list[int], values: tuple[Any, ...], *, as_number: bool
) -> None:
    column = column_of(array, as_number=as_number)
    assert isinstance(column, Coded)
    assert column.codes.dtype == np.int64
    assert (column.codes.tolist(), column.values) == (codes, values)


def test_batches_are_joined_to_so_many_rows_at_least() -> None:
    parts = [pa.record_batch({"x": pa.array(range(n), pa.int64())}) for n in (1, 2, 1, 5, 0, 2, 2)]
    assert [batch.num_rows for batch in join_batches(parts, 3)] == [3, 6, 4]
    assert [batch.column(0).to_pylist() for batch in join_batches(parts[:4], 4)] == [[0, 0, 1, 0], [0, 1, 2, 3, 4]]
    assert list(join_batches([], 3)) == []


def test_a_stream_keeps_the_error_that_another_library_replaces() -> None:
    def fail() -> Iterable[pa.RecordBatch]:
        yield pa.record_batch({"x": [1]})
        raise OSError("a value")

    stream = TableStream("data file t", pa.schema([("x", pa.int64())]), fail)
    with pytest.raises(pa.ArrowInvalid):
        pa.table(stream)
    assert stream.fault is not None
    assert stream.fault.detail == "data file t cannot be read to its end"
    whole = TableStream("t", pa.schema([("x", pa.int64())]), lambda: [pa.record_batch({"x": [1]})])
    assert pa.table(whole).to_pydict() == {"x": [1]}
    assert pa.RecordBatchReader.from_stream(whole, pa.schema([("x", pa.int64())])).read_all().num_rows == 1


# ── JSON ─────────────────────────────────────────────────────────────────────


def json_file(folder: Path, text: str) -> Path:
    path = folder / "t.json"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ('[{"a": 1, "b": "x"}, {"a": 2}, {"c": 3}]', {"a": [1, 2, None], "b": ["x", None, None], "c": [None, None, 3]}),
        (' \t\r\n[ \t\r\n{"a": 1}\r\n \t,\t\r\n {"a": 2} \t\r\n] \r\n', {"a": [1, 2]}),
        ('[{"a":1},{"a":2}]', {"a": [1, 2]}),
        ('{"a": 1}\n{"b": 2}', {"a": [1, None], "b": [None, 2]}),
        ('\n \n{"a": 1}\r\n\n{"a": 2}\n\n', {"a": [1, 2]}),
        ('{"a": 1}', {"a": [1]}),
        ('{"a": 1, "b": [1]}', {"a": [1], "b": [[1]]}),
        ('[{"a": [1]}]', {"a": [[1]]}),
        ('[{"a": {"b": 1}}]', {"a": [{"b": 1}]}),
        ('{"a": [1, 0.5], "b": []}', {"a": [[1, 0.5]], "b": [[]]}),
        ('{"a": {"b": 1}}\n{"a": {"b": 2}}', {"a": [{"b": 1}, {"b": 2}]}),
        ('{"a": {"b": 1}, "c": 2}', {"a": [{"b": 1}], "c": [2]}),
        ("[]", {}),
        (" [ ] ", {}),
        ("", {}),
        ('{"a": "[1, {"}', {"a": ["[1, {"]}),
        ("{}\n" + '{"a": 1}', {"a": [None, 1]}),
    ],
)
def test_records_are_columns_in_the_order_of_their_names(
    tmp_path: Path, text: str, columns: dict[str, list[Any]]
) -> None:
    read = cell_tables._columns(json_file(tmp_path, text))
    assert list(read.items()) == list(columns.items())


_ROWS = "save the rows as a list of objects, or an object a line"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"a": 1}, 2]', _ROWS),
        ("[1]", _ROWS),
        ("[{}]", _ROWS),
        ("{}", _ROWS),
        ('{"a": {"b": 1}}', _ROWS),
        ('{"a": [{"b": 1}]}', _ROWS),
        ('{"a": ["x"], "c": {}}', _ROWS),
        ('{"a": [1], "c": {}}', _ROWS),
        ('[{"a": 1}', "it is no JSON"),
        ('[{"a": 1},]', "it is no JSON"),
        ('[{"a": 1}, ]', "it is no JSON"),
        ('[{"a": 1}] x', "it is no JSON"),
        ('[{"a": 1}]x', "it is no JSON"),
        ('[{"a": 1} {"a": 2}]', "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ('[{"a": 1, "a": 2}]', "a record has a name twice"),
        ('{"a": 1}\n{"a": 1, "a": 2}', "a record has a name twice"),
        ('{"a": 1}\n{"a": }', "line 2 is no object of JSON"),
        ('\n\n{"a": 1}\n[1]\n', "line 4 is no object of JSON"),
        ("x", "line 1 is no object of JSON"),
        ("\n" * 1233 + "7", "line 1,234 is no object of JSON"),
        ('{"a": 1} {"a": 2}', "line 1 is no object of JSON"),
    ],
)
def test_json_that_is_no_table_is_refused_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = json_file(tmp_path, text)
    with pytest.raises(InvalidDataError) as refused:
        cell_tables._columns(path)
    assert refused.value.detail == f"data file {path} cannot be read: {reason}"


def test_json_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b'[{"a": "\xff"}]')
    with pytest.raises(InvalidDataError, match=r"t\.json cannot be read: it is not UTF-8: save it as such$"):
        cell_tables._columns(tmp_path / "t.json")


def read_messages(messages: Iterable[Any]) -> list[pa.RecordBatch]:
    """The batches that a child would send, in the schema that it would send first."""
    first, *others = map(pa.py_buffer, messages)
    schema = pa.ipc.read_schema(first)
    batches = [pa.ipc.read_record_batch(other, schema) for other in others]
    return batches or [pa.record_batch([pa.array([], kind) for kind in schema.types], schema)]


def test_records_are_sent_some_rows_at_a_time(tmp_path: Path) -> None:
    path = json_file(tmp_path, json.dumps([{"a": i, "b": str(i), "c": None} for i in range(5000)]))
    batches = read_messages(cell_tables._json_messages(path))
    assert [batch.num_rows for batch in batches] == [2048, 2048, 904]
    assert batches[0].schema == pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.null())])
    assert pa.Table.from_batches(batches).to_pydict() == {
        "a": list(range(5000)), "b": [str(i) for i in range(5000)], "c": [None] * 5000
    }  # fmt: skip


@pytest.mark.long
def test_a_child_sends_the_table_that_it_reads_as_often_as_wanted(tmp_path: Path) -> None:
    path = json_file(tmp_path, '{"a": 1}\n{"a": 0.5, "b": "x"}')
    stream = json_table(path)
    assert stream.name == f"data file {path}"
    for _ in range(2):
        assert pa.Table.from_batches(stream.batches(), stream.schema).to_pydict() == {"a": [1, 0.5], "b": [None, "x"]}
    with pytest.raises(InvalidDataError) as refused:
        json_table(tmp_path / "none.json")
    assert refused.value.detail == f"data file {tmp_path}/none.json is missing"
    with pytest.raises(InvalidDataError) as refused:
        json_table(json_file(tmp_path, "[1]"))
    assert refused.value.detail == f"data file {path} cannot be read: {_ROWS}"


def test_a_number_beyond_the_range_of_floats_is_infinite(tmp_path: Path) -> None:
    (batch,) = read_messages(cell_tables._json_messages(json_file(tmp_path, f'[{{"a": -1{"0" * 400}}}, {{"a": 0.5}}]')))
    assert batch.to_pydict() == {"a": [float("-inf"), 0.5]}


def test_a_larger_file_may_take_more_memory_and_time_to_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"")
    with path.open("r+b") as file:
        file.truncate(10 * 2**20)
    bounds = cell_bounds(path)
    assert (bounds.memory, bounds.processor_seconds, bounds.seconds) == (272 * 2**20, 5, 62.5)
    assert (bounds.what, bounds.remedy) == (f"data file {path}", "save the table alone, as CSV")


# ── workbooks ────────────────────────────────────────────────────────────────


def in_xml(*rows: Iterable[object]) -> str:
    def cell(value: object) -> str:
        if value is None:
            return "<c/>"
        if isinstance(value, bool):
            return f'<c t="b"><v>{value:d}</v></c>'
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return f"<c><v>{value}</v></c>"

    return "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)


def workbook(folder: Path, *rows: Iterable[object]) -> Path:
    """A workbook of one sheet, called visits."""
    write_workbook(folder / "t.xlsx", visits=in_xml(*rows))
    return folder / "t.xlsx"


def sheet(path: Path, *names: str) -> pa.Table:
    return pa.Table.from_batches(read_messages(cell_tables._sheet_messages(path, names)))


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ([["a", "b"], [1, "x"], [2, None]], {"a": [1.0, 2.0], "b": ["x", None]}),
        ([["Register"], [], ["a", "b"], [1, "x"]], {"a": [1.0], "b": ["x"]}),
        (
            [["Register", None], [None, None], [" a ", "b"], [1, "x"], [None, None], [3, None]],
            {"a": [1.0, 3.0], "b": ["x", None]},
        ),
        ([["a"], [1], [2]], {"a": [1.0, 2.0]}),
        ([["a", "b"], ["c", "d"], ["e", "f"]], {"a": ["c", "e"], "b": ["d", "f"]}),
        ([["a", "b", None], [1, 2, 3]], {"a": [1.0], "b": [2.0]}),
        ([["a", None, "b"], [1, 2, 3], [4, 5, True]], {"a": [1.0, 4.0], "b": ["3", "True"]}),
        ([["a", "b"], [1, "#N/A"], ["", 2]], {"a": [1.0, None], "b": [None, 2.0]}),
        ([["a", "b"]], {"a": [], "b": []}),
        ([["a", 2026], [1, 2]], {"a": [1.0], "2026.0": [2.0]}),
        (
            [["Register", None, None], ["Stand", 1, None], ["a", "b", "c"], [1, 2, 3]],
            {"Stand": ["a", "1"], "1.0": ["b", "2"]},
        ),
    ],
)
def test_the_first_row_with_more_than_one_cell_names_the_columns_of_a_sheet(
    tmp_path: Path, rows: list[list[object]], columns: dict[str, list[Any]]
) -> None:
    assert sheet(workbook(tmp_path, *rows)).to_pydict() == columns


def test_rows_of_a_sheet_are_sent_some_at_a_time(tmp_path: Path) -> None:
    path = workbook(tmp_path, ["a", "b"], *([i, f"b{i}"] for i in range(2500)))
    batches = read_messages(cell_tables._sheet_messages(path, ()))
    assert [batch.num_rows for batch in batches] == [2048, 452]
    assert batches[0].schema == pa.schema([("a", pa.float64()), ("b", pa.string())])
    assert batches[1].to_pylist()[-1] == {"a": 2499.0, "b": "b2499"}


@pytest.mark.long
def test_of_several_sheets_the_one_that_is_named_is_read_or_the_only_filled_one(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsx"
    write_workbook(path, notes="", visits=in_xml(["a"], [1]), empty="")
    assert sheet(path).to_pydict() == sheet(path, "visits").to_pydict() == {"a": [1.0]}
    stream = sheet_table(path, "visits")
    assert stream.name == f"data file {path}"
    assert pa.Table.from_batches(stream.batches(), stream.schema).to_pydict() == {"a": [1.0]}
    write_workbook(path, visits=in_xml(["a"], [1]), labs=in_xml(["b"], [2]))
    assert sheet(path, "visits").to_pydict() == {"a": [1.0]}
    assert sheet(path, "labs").to_pydict() == {"b": [2.0]}


@pytest.mark.parametrize(
    ("sheets", "wanted", "words"),
    [
        ({"visits": in_xml(["a"], [1]), "labs": in_xml(["b"])}, (), "has several sheets: say which by FILE::SHEET"),
        ({"visits": in_xml(["a"], [1])}, ("labs",), "has no sheet of this name"),
        ({"visits": ""}, (), "cannot be read: it is empty"),
        ({"visits": in_xml(["a"], [1]), "labs": ""}, ("labs",), "cannot be read: it is empty"),
        ({"visits": in_xml(["T"], [], ["a", " a"])}, (), "names columns twice: see line 3 of its sheet"),
    ],
)
def test_a_workbook_that_is_no_table_is_refused_with_the_reason(
    tmp_path: Path, sheets: dict[str, str], wanted: tuple[str, ...], words: str
) -> None:
    write_workbook(tmp_path / "t.xlsx", **sheets)
    with pytest.raises(InvalidDataError) as refused:
        sheet(tmp_path / "t.xlsx", *wanted)
    assert refused.value.detail == f"data file {tmp_path}/t.xlsx {words}"


def test_a_file_that_is_no_workbook_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_bytes(b"a,b\n1,2\n")
    reason = "it is no workbook, or it has a password or far too many cells"
    with pytest.raises(InvalidDataError) as refused:
        sheet(tmp_path / "t.xlsx")
    assert refused.value.detail == f"data file {tmp_path}/t.xlsx cannot be read: {reason}"


def test_without_the_extra_a_workbook_is_to_be_saved_as_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(MissingExtraError) as missing:
        sheet_table(tmp_path / "t.xlsx")
    needs = "is a workbook, which needs pip install 'parley-learning[excel]'; or save it as CSV"
    assert str(missing.value) == f"data file {tmp_path}/t.xlsx {needs}"
