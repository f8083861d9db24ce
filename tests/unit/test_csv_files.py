"""How a CSV file is written, step by step: by its first bytes, and by all of it; and which rows it has."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from parley.common.errors import InvalidDataError
from parley.common.files import csv_files
from parley.common.files.csv_files import CsvFile, CsvTable
from parley.common.files.number_signs import NumberSigns
from parley.common.files.sources import parse_csv_format
from parley.common.files.tables import file_table


def saved(folder: Path, content: str | bytes, said: str | None = None, name: str = "t.csv") -> CsvFile:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return CsvFile(path, parse_csv_format(said))


def refused(folder: Path, content: str | bytes, said: str | None = None, name: str = "t.csv") -> str:
    """Why a file cannot be read, to its end."""
    with pytest.raises(InvalidDataError) as error:
        all_rows(saved(folder, content, said, name))
    return error.value.detail.removeprefix(f"data file {folder}/{name} cannot be read: ")


def all_rows(file: CsvFile) -> list[list[str]]:
    """The cells of all columns of a file, as texts."""
    kinds = dict.fromkeys(file.places, pa.string())
    return [list(row.values()) for batch in file.batches(kinds) for row in batch.to_pylist()]


# ── the beginning ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "n_bytes", "whole"),
    [
        (b"a\nb\nc\nd\ne\n", 8, False),
        (b"aa\r\nb\r\nc\r\n" + b"x" * 90, 32, False),
        (b"a\nb\ncccc" + b"c" * 200, 128, False),
        (b"a,b,c,d,e\n" + b"1\n" * 30, 32, False),
        (b"abcdefg", 7, True),
        (b"abcdefgh", 8, True),
        (b"abcdefghi", 9, True),
        (b"a\nb\nc\nd\n", 8, False),
        (b"x" * 128, 128, False),
        (b"x" * 127, 127, True),
    ],
)
def test_so_much_is_looked_at_first_that_it_holds_three_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, n_bytes: int, *, whole: bool
) -> None:
    monkeypatch.setattr(csv_files, "_FIRST", 8)
    monkeypatch.setattr(csv_files, "_HEADER", 128)
    for packed in (content, gzip.compress(content)):
        assert saved(tmp_path, packed)._read_beginning() == (content[:n_bytes], whole)


def test_a_file_that_begins_with_blanks_alone_is_empty_or_has_too_long_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "_FIRST", 8)
    monkeypatch.setattr(csv_files, "_HEADER", 8)
    assert refused(tmp_path, "") == "it is empty"
    assert refused(tmp_path, "  \n \n") == "it is empty"
    assert refused(tmp_path, " " * 100 + "\na\n") == "its first line is too long"


def zeros(even: int, odd: int, n: int = 200) -> bytes:
    """So many bytes; so many at even places, and at odd ones, are 0."""
    content = bytearray(b"x" * n)
    content[: 2 * even : 2] = bytes(even)
    content[1 : 2 * odd : 2] = bytes(odd)
    return bytes(content)


@pytest.mark.parametrize(
    ("first", "said", "encoding", "n_mark"),
    [
        (b"a,b", None, None, 0),
        (b"\xef\xbb\xbfa", None, "utf-8", 3),
        (b"\xff\xfea\0", None, "utf-16-le", 2),
        (b"\xfe\xff\0a", None, "utf-16-be", 2),
        (b"\xff\xfe\0\0a\0\0\0", None, "utf-32-le", 4),
        (b"\0\0\xfe\xff\0\0\0a", None, "utf-32-be", 4),
        (b"\xef\xbb\xbfa", "encoding=cp1252", "cp1252", 3),
        (b"a", "encoding=cp1252", "cp1252", 0),
        (b"a\0", "encoding=cp1252", "cp1252", 0),
        (b"a\0", "encoding=utf-16", "utf-16-le", 0),
        (b"\xfe\xff\0a", "encoding=utf-16", "utf-16-be", 2),
        (b"\xff\xfea\0", "encoding=utf-16", "utf-16-le", 2),
        (b"\xef\xbb\xbfa", "encoding=utf-16", "utf-16-le", 3),
        (b"a", "encoding=utf-16-be", "utf-16-be", 0),
        (b"a", "encoding=utf-8-sig", "utf-8", 0),
        (b"a", "encoding=ascii", "utf-8", 0),
        (b"a", "encoding=utf-8", "utf-8", 0),
        (zeros(0, 31), None, "utf-16-le", 0),
        (zeros(2, 31), None, "utf-16-le", 0),
        (zeros(31, 0), None, "utf-16-be", 0),
        (zeros(31, 2), None, "utf-16-be", 0),
    ],
)
def test_the_first_bytes_show_the_encoding(
    tmp_path: Path, first: bytes, said: str | None, encoding: str | None, n_mark: int
) -> None:
    file = saved(tmp_path, "a,b\n")
    file.csv_format = parse_csv_format(said)
    assert file._detect_encoding(first) == (encoding, n_mark)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        *((zeros(*counts), "it is no text") for counts in ((0, 30), (3, 31), (30, 0), (31, 3), (1, 0), (100, 100))),
        (b"PK\x03\x04" + zeros(1, 0), "it is a ZIP archive or a workbook: unpack it, or let its name end in .xlsx"),
        (b"PAR1" + zeros(1, 0), "it is Parquet: let its name end in .parquet"),
        (b"xPAR1" + zeros(1, 0), "it is no text"),
    ],
)
def test_bytes_that_are_no_text_say_what_they_are(tmp_path: Path, first: bytes, reason: str) -> None:
    file = saved(tmp_path, "a,b\n")
    with pytest.raises(InvalidDataError) as error:
        file._detect_encoding(first)
    assert error.value.detail == f"data file {tmp_path}/t.csv cannot be read: {reason}"


def test_a_beginning_may_end_within_a_character(tmp_path: Path) -> None:
    file = saved(tmp_path, "a,b\n")
    assert file._text("aü".encode()[:2], ended=False) == "a"
    assert file._text("aü".encode()[:2], ended=True) == "aÃ"
    assert file._text("aü".encode("cp1252"), ended=True) == "aü"
    file._encoding, file._bom = "utf-8", 3
    assert file._text(b"\xef\xbb\xbfa", ended=True) == "a"
    with pytest.raises(InvalidDataError) as error:
        file._text(b"\xef\xbb\xbfa\xff", ended=True)
    told = "it is not UTF-8: say its encoding by encoding= in --csv, or data.csv in the settings"
    assert error.value.detail.endswith(f"cannot be read: {told}")


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("a,b\n1,2\n3,4\n", (",", ("a", "b"), 0, 1, 4, 2, 0)),
        ("a;b\r\n1;2\r\n", (";", ("a", "b"), 0, 1, 5, 2, 0)),
        ("a\tb\n1\t2\n", ("\t", ("a", "b"), 0, 1, 4, 2, 0)),
        ("a|b\n1|2\n", ("|", ("a", "b"), 0, 1, 4, 2, 0)),
        ("a^b\n1^2\n", ("^", ("a", "b"), 0, 1, 4, 2, 0)),
        ("a^b\n1^2\n3^4^5\n", (",", ("a^b",), 0, 1, 4, 1, 0)),
        ("a^^c\n1^2^3\n", (",", ("a^^c",), 0, 1, 5, 1, 0)),
        ("a,b^c\n1^2\n3^4\n", ("^", ("a,b", "c"), 0, 1, 6, 2, 0)),
        ("a,b^c\n1,2^3\n", (",", ("a", "b^c"), 0, 1, 6, 2, 0)),
        ("a\n1\n", (",", ("a",), 0, 1, 2, 1, 0)),
        ("a", (",", ("a",), 0, 1, 1, 1, 0)),
        ("a,b\n1,2\n3\n4,5\n6,7,8\n", (",", ("a", "b"), 0, 1, 4, 2, 2)),
        ("a,b;c\n1,2;3\n1,2\n", (",", ("a", "b;c"), 0, 1, 6, 2, 0)),
        ("T\n\na,b\n1,2\n", (",", ("a", "b"), 2, 3, 7, 2, 1)),
        ("T,\n,\na,b\n1,2\n", (",", ("a", "b"), 2, 3, 9, 2, 0)),
        ('"T\nU"\n\na,b\n1,2\n', (",", ("a", "b"), 3, 4, 11, 2, 1)),
        ('"a\nx",b\n1,2\n', (",", ("a\nx", "b"), 0, 2, 8, 2, 0)),
        ("\n\na,b\n1,2\n", (",", ("a", "b"), 0, 3, 6, 2, 0)),
        (" a , \ufeff b\n1,2\n", (",", ("a", "b"), 0, 1, 9, 2, 0)),
        ("a,b\n1,2\n,\n,,\n", (",", ("a", "b"), 0, 1, 4, 2, 0)),
        ("a,b,c\n1,2\n3,4\n", (",", ("a", "b", "c"), 0, 1, 6, 2, 1)),
    ],
)
def test_the_first_lines_show_the_layout(tmp_path: Path, text: str, layout: tuple[Any, ...]) -> None:
    assert saved(tmp_path, text)._layout == csv_files._Layout(*layout)


@pytest.mark.parametrize(
    ("text", "said", "layout"),
    [
        ("T,1\nx;y\na,b\n1,2\n", "skip=2", (",", ("a", "b"), 2, 3, 12, 2, 0)),
        ("T\na,b\n1,2\n", "skip=0", (",", ("T",), 0, 1, 2, 2, 1)),
        ("a,b;c\n1,2;3\n", "separator=;", (";", ("a,b", "c"), 0, 1, 6, 2, 0)),
        ("a#b\n1#2\n", "separator=#", ("#", ("a", "b"), 0, 1, 4, 2, 0)),
        ("T\n\na b,c\n1,2\n", "separator=,", (",", ("a b", "c"), 2, 3, 9, 2, 1)),
    ],
)
def test_the_layout_is_as_the_owner_says(tmp_path: Path, text: str, said: str, layout: tuple[Any, ...]) -> None:
    assert saved(tmp_path, text, said)._layout == csv_files._Layout(*layout)


def test_the_last_line_of_a_beginning_counts_only_at_the_end_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved(tmp_path, "a,b\n")
    assert file._find_layout("a,b\n1,2\n3,4\n5", ended=True) == csv_files._Layout(",", ("a", "b"), 0, 1, 4, 2, 1)
    assert file._find_layout("a,b\n1,2\n3,4,5\n5", ended=False) == csv_files._Layout(",", ("a", "b"), 0, 1, 4, 2, 0)
    assert file._find_layout("a,b", ended=False) == csv_files._Layout(",", ("a", "b"), 0, 1, 3, 2, 0)
    assert file._find_layout("a,b\n1", ended=False) == csv_files._Layout(",", ("a", "b"), 0, 1, 4, 2, 0)
    long = f'a,b\n1,2\n3,4,5\n6,"{"x" * 200_000}"\n7,8\n9'  # longer than the standard library's longest cell
    assert file._find_layout(long, ended=False) == csv_files._Layout(",", ("a", "b"), 0, 1, 4, 2, 1)
    monkeypatch.setattr(csv_files, "_FIRST", 16)
    file = saved(tmp_path, "a,b\n1,2\n3,4\n5,6,7\n" * 1)
    assert file._layout.misfits == 0


@pytest.mark.parametrize(
    ("name", "text", "separator"),
    [
        ("t.tsv", "a,x\tb\n1,2\t3\n", "\t"),
        ("t.TAB", "a,x\tb\n1,2\t3\n", "\t"),
        ("t.tsv.gz", "a,x\tb\n1,2\t3\n", "\t"),
        ("t.tsv", "a,x\tb\n1,2\t3\n4,5\n", ","),
        ("t.tsv", "a,b\n1,2\n", ","),
    ],
)
def test_a_name_may_tell_that_tabs_separate(tmp_path: Path, name: str, text: str, separator: str) -> None:
    content = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    assert saved(tmp_path, content, name=name).separator == separator


@pytest.mark.parametrize(
    ("name", "text", "which"),
    [
        ("t.csv", "a,x\tb\n1,2\t3\n", "commas or tabs"),
        ("t.csv", "a,x;y|b\n1,2;3|4\n", "commas or semicolons or pipes"),
        ("t.csv", "a^b~c\n1^2~3\n", "carets or tildes"),
        ("t.csv", "a\x01b\x1fc\n1\x012\x1f3\n", r"signs '\x01' or signs '\x1f'"),
    ],
)
def test_cells_that_may_stand_between_several_signs_are_refused(
    tmp_path: Path, name: str, text: str, which: str
) -> None:
    told = f"its cells may stand between {which}: say which by separator= in --csv, or data.csv in the settings"
    assert refused(tmp_path, text, name=name) == told


def test_a_file_of_blank_lines_below_those_skipped_has_no_names(tmp_path: Path) -> None:
    assert refused(tmp_path, "T\n\n", "skip=1") == "it has no line of names"
    assert refused(tmp_path, "T\n", "skip=4") == "it has no line of names"


@pytest.mark.parametrize(
    ("records", "place"),
    [
        ([["a"], ["b"]], 0),
        ([["T"], ["a", "b"], ["1", "2"]], 1),
        ([["T", ""], ["a", "b"], ["1", "2"]], 1),
        ([["", "a"], ["1", "2"]], 0),
        ([["a", "b"], ["1", "2", "3"], ["4", "5", "6"]], 0),  # as R numbers rows
        ([["T"], ["a", "b"], ["1", "2", "3"], ["4", "5", "6"]], 1),
        ([["a", "b"], ["1", "2", "3", "4"], ["4", "5", "6", "7"]], 1),
        ([["T"], ["1", "2"], ["4", "5"]], 1),
        ([["a", "b", "", ""], ["1", "2", "3"], ["4", "5", "6"]], 0),
        ([["a", "b", "c", "d"], ["1", "2", "3"], ["4", "5", "6"]], 0),
        ([["1", ""], ["2", ""]], 0),
        ([], 0),
    ],
)
def test_the_names_are_the_first_record_as_wide_as_most(records: list[list[str]], place: int) -> None:
    assert csv_files._names_at(records) == place


@pytest.mark.parametrize(
    ("counts", "width"), [([], 1), ([1, 1, 1], 1), ([1, 1, 2], 2), ([2, 3, 3], 3), ([2, 2, 3, 3], 2), ([3, 2], 3)]
)
def test_a_record_is_usually_as_wide_as_most_that_have_cells(counts: list[int], width: int) -> None:
    assert csv_files._usual_width(counts) == width


# ── the whole file ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "said", "notes"),
    [
        ("a,b\n1,2\n", None, []),
        ("a;b\n1;2\n", None, ["semicolons"]),
        ("a\x1fb\n1\x1f2\n", None, [r"signs '\x1f'"]),
        ("a,b\nü,2\n".encode("cp1252"), None, ["Windows-1252"]),
        ("a,b\nü,2\n".encode("utf-16"), None, ["UTF-16"]),
        ("a,b\nü,2\n".encode("utf-32"), None, ["UTF-32"]),
        ("a,b\nя,2\n".encode("koi8-r"), "encoding=koi8-r", ["KOI8-R"]),
        ("a,b\nü,2\n".encode("latin-1"), "encoding=latin-1", ["Latin-1"]),
        ("T\na,b\n1,2\n", None, ["1 title line skipped"]),
        ("T\n\na,b\n1,2\n", None, ["2 title lines skipped"]),
        ("a,b\n1,2\nx\n", "end=1", ["1 line below the table skipped"]),
        ("a,b\n1,2\nx\ny\n", "end=2", ["2 lines below the table skipped"]),
        ("a,b\n1,2\n", "end=0", []),
        ("a,b\n,\n1,2\n", None, ["1 line of empty cells skipped"]),
        ("a,b\n,\n1,2\n,\n\n", None, ["2 lines of empty cells skipped"]),
        (
            "T;\na;b\nü;2\n;\nx\n".encode("cp1252"),
            "end=1",
            [
                "semicolons", "Windows-1252", "1 title line skipped", "1 line below the table skipped",
                "1 line of empty cells skipped",
            ],
        ),
    ],
)  # fmt: skip
def test_how_a_file_is_read_is_told(tmp_path: Path, content: str | bytes, said: str | None, notes: list[str]) -> None:
    file = saved(tmp_path, content, said)
    assert file.notes == [note for note in notes if "empty" not in note], "rows are not read yet"
    for _ in range(2):
        all_rows(file)
        assert file.notes == notes


@pytest.mark.parametrize(
    ("content", "said", "n_lines"),
    [
        ("a,b\n", None, 0),
        ("a,b", None, 0),
        ("a,b\n1,2", None, 1),
        ("a,b\r1,2\r", None, 1),
        ("a,b\r\n1,2\r\n3,4", None, 2),
        ("T\n\na,b\n1,2\n", None, 1),
        ("a,b\nü,2\n".encode("utf-16"), None, 1),
        ("Total,b\n", None, 0),
        ("T\nTotal,b\n", None, 0),
        ("Total,b\nTotal,2\n", None, 1),
        ("word\na\ntotal\n", None, 2),
        ("a,b\n1,2\nTotal,2\n", "end=0", 2),
        ("a,b\n1,2\nTotal,2\n", "end=1", 2),
        ("a,b\n1,2\nTotals are high,2\n", None, 2),
    ],
)
def test_lines_below_the_names_are_counted(
    tmp_path: Path, content: str | bytes, said: str | None, n_lines: int
) -> None:
    assert saved(tmp_path, content, said).n_lines == n_lines


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a,b\nTotal,3\n", "line 2, the last, begins as one of totals"),
        ('a;b\n1;2\n;" Summe: "\n;\n', "line 3, the last, begins as one of totals"),
        ("T\na,b\n1,2\nGESAMT,ü\n".encode("cp1252"), "line 4, the last, begins as one of totals"),
        ("a,b\n1,2\nsubtotal,ü\n".encode("utf-16"), "line 3, the last, begins as one of totals"),
        ("a,b\n" + "1,2\n" * 1233 + "sum,3", "line 1,235, the last, begins as one of totals"),
    ],
)
def test_a_last_line_of_totals_is_refused_until_it_is_said_to_be_a_row_or_none(
    tmp_path: Path, content: str | bytes, reason: str
) -> None:
    told = ": say end=1 in --csv, or data.csv in the settings if it is no row, or end=0"
    assert refused(tmp_path, content) == reason + told


def test_the_last_line_is_looked_at_from_the_middle_of_a_character_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "_TAIL", 3)
    assert saved(tmp_path, "a,b\n1,ü2\n").n_lines == 1
    monkeypatch.setattr(csv_files, "_TAIL", 11)
    assert refused(tmp_path, "a,b\n1,ü2\ntotal,9\n").startswith("line 3, the last, begins as one of totals")


def test_no_row_is_read_of_no_columns_or_of_bare_lines_alone(tmp_path: Path) -> None:
    assert all_rows(saved(tmp_path, "a,b\n,\n")) == []
    assert all_rows(saved(tmp_path, "a,b\n")) == []
    assert list(saved(tmp_path, "a,b\n1,2\n").batches({})) == []


def test_cells_are_of_the_types_and_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    file = saved(tmp_path, 'a;b;c\n1,5;x;NA\n;"y";\n')
    file.signs = NumberSigns.of("comma")
    kinds = {"c": pa.string(), "a": pa.float64(), "b": pa.string()}
    (batch,) = file.batches(kinds, {"NA"})
    assert batch.schema == pa.schema(list(kinds.items()))
    assert batch.to_pydict() == {"c": ["NA", ""], "a": [1.5, None], "b": ["x", "y"]}
    (batch,) = file.batches({"c": pa.float64()}, {"NA"})
    assert batch.to_pydict() == {"c": [None, None]}
    with pytest.raises(pa.ArrowInvalid):
        list(file.batches({"c": pa.float64()}))


_WIDTHS = "and the line of names 2"
_BELOW = f"{_WIDTHS}: if it stands below the table, say end= in --csv, or data.csv in the settings"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a;b\n1;2\n\n1;2;3\n4;5\n", f"line 4 has 3 cells, {_WIDTHS}: quote cells that have semicolons"),
        ("a,b\n1,2\n3\n4,5\n", f"line 3 has 1 cell, {_BELOW}"),
        ('a,b\n"1\n\n",2\n,,\n3\n4,5\n', f"line 6 has 1 cell, {_BELOW}"),
        ("a,b\n1,2\n" * 700 + "3\n4,5\n", f"line 1,401 has 1 cell, {_BELOW}"),
        ('a,b\n1,2\n"3,4\n5,6\n', "a quoted cell in the row of line 3 does not end"),
        ('a,b\n1,2\n3,"4\n5,6', "a quoted cell in the row of line 3 does not end"),
        ("a,b\n" + "1,2\n" * 1500 + '3,"4\n5,6', "a quoted cell in the row of line 1,502 does not end"),
    ],
)
def test_a_row_of_too_many_or_too_few_cells_is_told_by_its_line(tmp_path: Path, content: str, reason: str) -> None:
    assert refused(tmp_path, content) == reason


def test_where_a_name_is_missing_names_are_to_be_completed(tmp_path: Path) -> None:
    words = "name each column, that of row numbers too, and end all lines alike, with or without commas"
    assert refused(tmp_path, "a,b\n" + "1,2,3\n" * 3) == f"line 2 has 3 cells, {_WIDTHS}, as most lines: {words}"


def test_rows_of_errors_have_the_numbers_of_their_lines(tmp_path: Path) -> None:
    file = saved(tmp_path, 'T\n\na,b\n1,"x\ny"\n\n2,3\r\n4,5')
    limit = csv.field_size_limit()
    assert list(file._records()) == [(4, ["1", "x\ny"]), (7, ["2", "3"]), (8, ["4", "5"])]
    assert csv.field_size_limit() == limit


def test_a_row_may_take_so_much_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = f'a,b\n1,"{"x" * 300_000}"\n2\n'
    assert refused(tmp_path, content).startswith("line 3 has 1 cell")
    monkeypatch.setattr(csv_files, "_LONGEST_ROW", 2**18)
    told = "a row takes more than 0 MB: a quote may not be closed"
    assert refused(tmp_path, content) == told
    monkeypatch.setattr(csv_files, "_BLOCK", 2**12)
    assert refused(tmp_path, content) == told


@pytest.mark.parametrize(
    ("content", "said", "reason"),
    [
        (b"a,b\n\xff,2\n\xc3\xbc,3\n", None, "it is not UTF-8 throughout"),
        (b"a,b\n\x81,2\n", None, "it is not UTF-8 throughout"),
        (b"\xef\xbb\xbfa,b\n\xff,2\n", None, "it is not UTF-8"),
        (b"a,b\n\xff,2\n", "encoding=utf-8", "it is not UTF-8"),
        (b"a,b\n\x81,2\n", "encoding=cp1252", "it is not Windows-1252"),
        ("a,b\n1,2\n".encode("utf-16")[:-1], None, "it is not UTF-16"),
        (b"a,b\n\xff\xff,2\n", "encoding=shift_jis", "it is not SHIFT_JIS"),
    ],
)
def test_a_file_that_is_not_in_its_encoding_is_refused(
    tmp_path: Path, content: bytes, said: str | None, reason: str
) -> None:
    assert refused(tmp_path, content, said) == f"{reason}: say its encoding by encoding= in {csv_files._OPTION}"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"abc", (True, False, False)),
        ("aüЖ€𝄞b".encode(), (True, True, False)),
        ("aü".encode("cp1252"), (False, False, False)),
        (b"\xff", (False, False, False)),
        ("aü".encode() + b"\xff.", (False, True, False)),
        (b"\xff." + "€b".encode(), (False, True, False)),
        (b"\xff." + "€".encode(), (False, True, False)),
        ("𝄞".encode()[:3], (False, False, True)),
        ("€".encode()[:1], (False, False, False)),
        (b"\xff\x81.", (False, False, True)),
        (b"\x81", (False, False, True)),
        (b"\xff." + "á".encode() + b"\x9d..abc", (False, True, True)),
        (b"\xff." + "Á".encode(), (False, True, False)),
    ],
)
def test_bytes_are_told_for_utf8_wherever_blocks_end(content: bytes, found: tuple[bool, bool, bool]) -> None:
    """``Á`` has a byte that Windows-1252 has no character for."""
    for first in range(len(content) + 1):
        for second in range(first, len(content) + 1):
            text = csv_files._Utf8()
            for block in (content[:first], content[first:second], content[second:]):
                if block:
                    text.take(block)
            text.end()
            told = (text.is_utf8, text.has_multibyte, not text.is_utf8 and text.has_unused)
            assert told == found, (first, second)


# ── bytes and rows ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_file_unpacks_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Any) -> None:  # noqa: ANN401 -- a function
    content = b"a,b\n" + b"1,2\n" * 5000
    packed = pack(content)
    told = "it unpacks to more than 2 times its size: unpack it yourself"
    monkeypatch.setattr(csv_files, "_MOST_TIMES", 2)
    for most in (len(content), len(content) - 1):
        monkeypatch.setattr(csv_files, "_UNPACKED", most)
        if most < len(content):
            assert refused(tmp_path, packed) == told
        else:
            assert len(all_rows(saved(tmp_path, packed))) == 5000
    assert len(all_rows(saved(tmp_path, content))) == 5000
    monkeypatch.setattr(csv_files, "_MOST_TIMES", 1000)
    assert len(all_rows(saved(tmp_path, packed))) == 5000
    cut = "it cannot be unpacked: a part of it is missing or wrong"
    assert refused(tmp_path, pack(bytes(range(256)).hex().encode() * 9)[:-9]) == cut


@pytest.mark.parametrize(
    ("content", "said", "body"),
    [
        ("a,b\n1,2\n3,4\n", None, "1,2\n3,4\n"),
        ("T\n\nü,b\n€,2\r\n3,𝄞", None, "€,2\r\n3,𝄞"),
        ("\ufeffü,b\n€,2\n", None, "€,2\n"),
        ("a,b\n,\n1,2\n \n\n3,4\n,\n", None, "1,2\n3,4\n"),
        ('a,b\n1,"\n,\n"\n,\n"",""\n3,4', None, '1,"\n,\n"\n3,4'),
        ("a,b\r,\r1,2\r\r3,4\r,", None, "1,2\r3,4\r"),
        ("a,b\n\n1,2\n\n", None, "\n1,2\n\n"),
        ("a\n\n1\n \n", None, "\n1\n \n"),
    ],
)
def test_the_rows_are_the_same_bytes_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, said: str | None, body: str
) -> None:
    for size in (1, 2, 3, 5, 8, 2**19):
        monkeypatch.setattr(csv_files, "_BLOCK", size)
        for encoding in ("utf-8", "utf-16"):
            blocks = list(saved(tmp_path, content.encode(encoding), said)._filled_rows())
            assert b"".join(blocks).decode() == body, (size, encoding)
            assert all(blocks), "pyarrow takes an empty block for the end"


@pytest.mark.parametrize(
    ("content", "n", "body"),
    [
        ("1,2\n3,4\nx\n\ny\n", 2, "1,2\n3,4\n"),
        ("1,2\n3,4\nx\n,\n", 1, "1,2\n3,4\n"),
        ("1,2\n,\nx\n", 2, ""),
        ("1,2\n", 9, ""),
        ("1,2\n3,4", 1, "1,2\n"),
    ],
)
def test_lines_below_the_table_are_left_out(tmp_path: Path, content: str, n: int, body: str) -> None:
    assert b"".join(saved(tmp_path, f"a,b\n{content}", f"end={n}")._filled_rows()).decode() == body


def test_of_a_long_file_only_the_end_is_kept_for_lines_below_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK", 8)
    blocks = [b"1234\n678\nbcd\nfgh", b"\nxy\n", b"z\n"]
    assert list(csv_files._without_last(iter(blocks), 2, b" \n")) == [b"1234\n678\nbcd", b"\nfgh\n"]
    assert list(csv_files._without_last(iter([b"x" * 16, b"\n"]), 1, b" \n")) == [b"x" * 9, b""]
    assert list(csv_files._without_last(iter([b"x" * 16]), 0, b" \n")) == [b"x" * 16]


def test_only_lines_that_may_be_bare_are_looked_at_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning and the end of a block count too."""
    for content, bare in (
        ("a,b\n1,2\n", False),
        ("a,b\n,\n1,2\n", True),
        ("a,b\n1,2\n,", True),
        ('a,b\n1,2\n"",""\n', True),
        ("a,b\n1,2\n\x1a", True),
        ("a,b\r1,2\r,\r", True),
        ("a\n,\n", False),
        ("a;b\n1;2\n,\n", False),
        ("a,b\n1,\n", False),
        ("a,b\n1,2\n\n3,4\n", False),
    ):
        for size in (1, 2, 3, 4, 2**19):
            monkeypatch.setattr(csv_files, "_BLOCK", size)
            assert saved(tmp_path, content, "separator=;" if ";" in content else "separator=,")._content.bare is bare, (
                content,
                size,
            )


def test_what_only_all_of_a_file_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_TAIL", 5)
    for size in (1, 2, 4, 7, 2**19):
        monkeypatch.setattr(csv_files, "_BLOCK", size)
        content = saved(tmp_path, 'a,b\n"1,2\n3"",4')._content
        assert content == csv_files._Content("utf-8", 2, paired=False, tail=b'"",4'.rjust(5, b"3"), bare=False)
        content = saved(tmp_path, 'a,b\n"ü",2\n3,4\n'.encode("cp1252"))._content
        assert content == csv_files._Content("cp1252", 3, paired=True, tail=b"\n3,4\n", bare=False)
        content = saved(tmp_path, 'a,b\n"ü",2\n3,ü\n'.encode("utf-16"))._content
        assert content == csv_files._Content("utf-16-le", 3, paired=True, tail="3,ü\n".encode(), bare=False)


@pytest.mark.parametrize(
    ("block", "n"),
    [(b"", 0), (b"a", 0), (b"a\nb\n", 2), (b"a\rb\r", 2), (b"a\r\nb\r\n", 2), (b"\r\n\r\r\n\n", 4), (b"a\r", 1)],
)
def test_lines_of_a_block_are_counted_by_their_ends(block: bytes, n: int) -> None:
    assert csv_files._count_lines(block) == n


@pytest.mark.parametrize(
    ("block", "place", "end"),
    [
        (b"a\nb", 0, 1), (b"a\nb", 2, -1), (b"a\rb", 0, 1), (b"a\r\nb", 0, 1), (b"a\nb\rc", 0, 1), (b"a\nb\rc", 2, 3),
        (b"\nb", 0, 0), (b"\rb\n", 0, 0), (b"ab", 0, -1), (b"a\r\n", 1, 1), (b"a\r\n", 2, 2), (b"a\r\rb", 2, 2),
    ],
)  # fmt: skip
def test_a_line_ends_at_the_first_of_its_signs(block: bytes, place: int, end: int) -> None:
    assert csv_files._line_end(block, place) == end


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_keep_their_ends_wherever_blocks_end(size: int) -> None:
    content = "a\r\nü\n\rb\r\r\nc\n\nd€".encode()
    blocks = (content[i : i + size] for i in range(0, len(content), size))
    assert list(csv_files._lines(blocks)) == ["a\r\n", "ü\n", "\r", "b\r", "\r\n", "c\n", "\n", "d€"]
    assert list(csv_files._lines(iter([b"a\xff\n\xc3"]))) == ["a\ufffd\n", "\ufffd"]
    assert list(csv_files._lines(iter([b"a\r", b"\nb\r"]))) == ["a\r\n", "b\r"]


@pytest.mark.parametrize(
    ("blocks", "reads"),
    [
        ([b"1\n", b"2\n"], [b"1\n", b"2\n"]),
        ([b"1\r", b"\n2\n"], [b"1\r\n2\n"]),
        ([b"1", b"2\n3", b"4\n"], [b"12\n3", b"4\n"]),
        ([b'"1\n', b'2"\n', b"3\n"], [b'"1\n2"\n', b"3\n"]),
        ([b'1\n"2', b'\n"\n3\n', b"4\n"], [b'1\n"2', b'\n"\n3\n', b"4\n"]),
        ([b'1\n"2', b"\n", b'"\n', b"3\n"], [b'1\n"2', b'\n"\n', b"3\n"]),
        ([b"1" * 9, b"2", b"3", b"4", b"5\n", b"6\n"], [b"1111111112345\n6\n"]),
        ([b"1", b"2"], [b"12"]),
        ([b"1\r"], [b"1\r"]),
        ([], []),
    ],
)
def test_a_block_that_is_read_holds_the_end_of_a_row(blocks: list[bytes], reads: list[bytes]) -> None:
    with csv_files._Source(iter(blocks)) as source:
        assert [*iter(source.read, b"")] == reads
        assert source.read() == b""
        assert (source.closed, source.readable(), source.writable(), source.seekable()) == (False, True, False, False)
    assert source.closed


def test_an_error_does_not_wait_for_ever_for_a_reader_that_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_LAST_READ", 0.01)
    with pytest.raises(KeyError), csv_files._Source(iter([b"1\n"])):
        raise KeyError


def test_a_row_without_end_is_not_gathered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_LONGEST_ROW", 8)
    source = csv_files._Source(iter([b"1" * 4, b"2" * 4, b"3" * 4, b"4\n"]))
    assert [*iter(source.read, b"")] == [b"111122223333", b"4\n"]
    source = csv_files._Source(iter([b"1" * 4, b"2" * 8 + b"\r", b"\n3", b"4\n"]))
    assert [*iter(source.read, b"")] == [b"111122222222\r\n3", b"4\n"]
    source.close()
    assert source.closed


@pytest.mark.parametrize(
    ("block", "in_quotes", "ends"),
    [
        (b"a\n", False, True), (b"a", False, False), (b'"a\n', False, False), (b'"a"\n', False, True),
        (b"a\n", True, False), (b'a"\n', True, True), (b'\n"', False, True), (b'"\n"b\n"', False, True),
        (b'"\n""\n"', False, False), (b"\r", False, True), (b'"";\n', False, True), (b'"', True, False),
    ],
)  # fmt: skip
def test_a_row_ends_at_the_end_of_a_line_outside_quotes(block: bytes, *, in_quotes: bool, ends: bool) -> None:
    source = csv_files._Source(iter([]))
    source._in_quotes = in_quotes
    assert source._ends_a_row(block) is ends


# ── tables ───────────────────────────────────────────────────────────────────


def pattern(folder: Path, *texts: str) -> str:
    for number, text in enumerate(texts, 1):
        (folder / f"{number}.csv").write_bytes(text.encode())
    return f"{folder}/*.csv"


def read(
    folder: Path,
    *texts: str,
    said: str | None = None,
    kept: Mapping[str, tuple[str, ...]] | None = None,
    as_texts: bool = False,
) -> tuple[dict[str, str], dict[str, list[Any]], list[str]]:
    """The types, the columns and the notes of a table of files; ``kept`` are its columns of texts."""
    stream = file_table(pattern(folder, *texts), kept or {}, parse_csv_format(said), as_texts=as_texts)
    kinds = {field.name: str(field.type) for field in stream.schema}
    columns = pa.Table.from_batches(stream.batches(), stream.schema).to_pydict()
    return kinds, columns, stream.notes


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", "", "-2"], "int64", [1, None, -2]),
        (["1", "NA", "3"], "int64", [1, None, 3]),
        (["1", "2.5", ""], "double", [1.0, 2.5, None]),
        (["NA", "2.5"], "double", [None, 2.5]),
        (["", ""], "int64", [None, None]),
        (["NA", "?"], "int64", [None, None]),
        (["1", "x"], "string", ["1", "x"]),
        (["x", "NA", ""], "string", ["x", "NA", ""]),
        (["01", "2"], "string", ["01", "2"]),
        (["0", "0.5"], "double", [0.0, 0.5]),
        (["0x1F", "2"], "string", ["0x1F", "2"]),
        (["9223372036854775808", "1"], "double", [2.0**63, 1.0]),
        (['"1,234.5"', '"2"'], "double", [1234.5, 2.0]),
        (['"1,234,567"', '"2"'], "int64", [1234567, 2]),
        (['"1,5"', '"2"'], "double", [1.5, 2.0]),
        (["1'234", "2"], "int64", [1234, 2]),
        (["1 234", "2"], "int64", [1234, 2]),
        (["1 234", "x"], "string", ["1 234", "x"]),
        (["1 234", "01"], "string", ["1 234", "01"]),
        (["1 234", "NA", ""], "int64", [1234, None, None]),
        (["1 23", "2"], "string", ["1 23", "2"]),
    ],
)
def test_a_column_of_a_table_has_the_type_that_all_its_cells_have(
    tmp_path: Path, cells: list[str], kind: str, values: list[Any]
) -> None:
    kinds, columns, _ = read(tmp_path, "x,y\n" + "".join(f"{cell},a\n" for cell in cells))
    assert kinds == {"x": kind, "y": "string"}
    assert columns == {"x": values, "y": ["a"] * len(cells)}
    kinds, columns, _ = read(tmp_path, "x,y\n" + "".join(f"{cell},a\n" for cell in cells), kept={"x": ()})
    assert kinds == {"x": "string", "y": "string"}
    assert columns["x"] == [cell.strip('"') for cell in cells]


def test_a_late_cell_counts_for_the_type_too(tmp_path: Path) -> None:
    """Cells are examined a thousand at a time."""
    for last, kind, value in (
        ("2.5", "double", 2.5),
        ("x", "string", "x"),
        ("01", "string", "01"),
        ("NA", "int64", None),
    ):
        kinds, columns, _ = read(tmp_path, "x,y\n" + "1,a\n" * 3000 + f"{last},b\n")
        assert (kinds["x"], columns["x"][-1], len(columns["x"])) == (kind, value, 3001)
        kinds, columns, _ = read(tmp_path, "x;y\n" + "1;a\n" * 3000 + f"{last};b\n")
        assert (kinds["x"], columns["x"][-1], len(columns["x"])) == (kind, value, 3001)


def test_files_of_a_table_are_read_each_as_it_is_written(tmp_path: Path) -> None:
    kinds, columns, notes = read(tmp_path, "a;b;c\n1,5;x;1\n2;y;2\n", "c,b,a\n3,z,4.25\n", "A|B|C\n1'000,5|w|5\n")
    assert kinds == {"a": "double", "b": "string", "c": "int64"}
    assert columns == {"a": [1.5, 2.0, 4.25, 1000.5], "b": ["x", "y", "z", "w"], "c": [1, 2, 3, 5]}
    assert notes == [
        "1.csv: read as: semicolons, decimal comma",
        "3.csv: read as: pipes, decimal comma, thousands by apostrophe",
    ]
    kinds, columns, _ = read(tmp_path, "a;b\n1,5;x\n", "a;b\n0.5;y\n", "a;b\nz;1\n")
    assert kinds == {"a": "string", "b": "string"}
    assert columns == {"a": ["1,5", "0.5", "z"], "b": ["x", "y", "1"]}
    kinds, _, notes = read(tmp_path, "a;b\n1;x\n", "a;b\n2;y\n", "a;b\n1.5;y\n")
    assert (kinds, notes) == ({"a": "double", "b": "string"}, ["read as: semicolons"])


def test_of_many_files_alike_the_first_is_named(tmp_path: Path) -> None:
    *_, notes = read(tmp_path, "a;b\n1,5;x\n", "a;b\n2,5;y\n", "a,b\n1,z\n", "a;b\n2,25;y\n")
    assert notes == ["1.csv and 2 more: read as: semicolons, decimal comma"]
    assert csv_files._file_names(["a.csv"]) == "a.csv"
    assert csv_files._file_names(["a.csv", *["b.csv"] * 1234]) == "a.csv and 1,234 more"


def test_all_columns_may_be_read_as_the_texts_that_they_are(tmp_path: Path) -> None:
    kinds, columns, _ = read(tmp_path, "a;b\n1.234,50;01\nNA;?\n; x \n", as_texts=True)
    assert kinds == {"a": "string", "b": "string"}
    assert columns == {"a": ["1234.50", None, None], "b": ["01", "?", " x "]}
    kinds, columns, _ = read(tmp_path, "a,b\n1.50,01\nNA,?\n, x \n", as_texts=True)
    assert kinds == {"a": "string", "b": "string"}
    assert columns == {"a": ["1.50", "NA", ""], "b": ["01", "?", " x "]}


@pytest.mark.parametrize("separator", [",", ";"])
def test_what_the_owner_says_is_missing_is_so_unless_the_study_declares_it(tmp_path: Path, separator: str) -> None:
    text = "a,b\n1,x\n-99,k. A.\n,-99\n".replace(",", separator)
    said = "missing=-99"
    kinds, columns, _ = read(tmp_path, text, said=said)
    assert kinds == {"a": "int64", "b": "string"}
    assert columns == {"a": [1, None, None], "b": ["x", "k. A.", None]}
    _, columns, _ = read(tmp_path, text, said=said, kept={"b": (" -99",)})
    assert columns == {"a": [1, None, None], "b": ["x", "k. A.", "-99"]}
    _, columns, _ = read(tmp_path, text, said=said, kept={"b": ("-99",)})
    assert columns == {"a": [1, -99, None], "b": ["x", "k. A.", "-99"]}
    _, columns, _ = read(tmp_path, text, said=said, kept={"a": (), "b": ()})
    assert columns == {"a": ["1", None, ""], "b": ["x", "k. A.", None]}


def test_of_columns_of_one_name_the_filled_one_is_read(tmp_path: Path) -> None:
    assert saved(tmp_path, "a,b,a\n1,2,\n3,4, \n").places == {"a": 0, "b": 1}
    assert saved(tmp_path, "a,b,a\n,2,1\n,4\n".replace("4\n", "4,\n")).places == {"a": 2, "b": 1}
    assert saved(tmp_path, "a,b,a\n,2,\n").places == {"b": 1}
    assert saved(tmp_path, "a,b,a\n1,2,3\n").places == {"b": 1}
    assert saved(tmp_path, "a,,c\n1,2,3\n").places == {"a": 0, "c": 2}
    assert saved(tmp_path, "\n1\n").places == {"1": 0}
    assert saved(tmp_path, '""\n1\n').places == {"": 0}


@pytest.mark.parametrize(
    ("texts", "wanted", "reason"),
    [
        (["a,b,a\n1,2,3\n"], ["a"], "1.csv names columns twice: see places 1, 3 of its first line"),
        (["a,b,a\n1,2,3\n"], ["A"], "1.csv names columns twice: see places 1, 3 of its first line"),
        (["a,b,a\n1,2,3\n"], ["b"], None),
        (["a,b\n1,2\n", "a,c,c\n1,2,3\n"], [], "2.csv names columns twice: see places 2, 3 of its first line"),
        (["a,b\n1,2\n", "a,c\n1,2\n"], [], "2.csv lacks column 'b', which {}/1.csv has"),
        (["a,b\n1,2\n", "a\n1\n"], [], "2.csv lacks column 'b', which {}/1.csv has"),
        (["a\n1\n", "a,b\n1,2\n"], [], "1.csv lacks column 'b', which {}/2.csv has"),
        (["a,b,b\n1,2,3\n", "a,b,b\n1,2,3\n"], [], None),
        (["a,b\n1,2\n", "B,A\n1,2\n"], [], None),
    ],
)
def test_names_that_mean_several_columns_are_refused_where_they_are_wanted(
    tmp_path: Path, texts: list[str], wanted: list[str], reason: str | None
) -> None:
    found = pattern(tmp_path, *texts)
    if reason is None:
        list(file_table(found, wanted=wanted).batches())
        return
    with pytest.raises(InvalidDataError) as error:
        file_table(found, wanted=wanted)
    assert error.value.detail == f"data file {tmp_path}/{reason.format(tmp_path)}"


def test_only_the_wanted_columns_of_files_have_to_be_the_same(tmp_path: Path) -> None:
    pattern(tmp_path, "a,b,x\n1,2,3\n", "c,B,A\n1,2,3\n")
    paths = [tmp_path / "1.csv", tmp_path / "2.csv"]
    table = CsvTable("t", paths, None, ("A", "b"))
    assert table.columns == ("a", "b")
    assert [file.places for file in table.files] == [{"a": 0, "b": 1}, {"a": 2, "b": 1}]
    for wanted, file, other in (("x", 2, 1), ("c", 1, 2)):
        with pytest.raises(InvalidDataError) as error:
            CsvTable("t", paths, None, ("a", wanted))
        assert (
            error.value.detail
            == f"data file {tmp_path}/{file}.csv lacks column {wanted!r}, which {tmp_path}/{other}.csv has"
        )


@pytest.mark.parametrize(
    ("texts", "said", "signs"),
    [
        (["a,b\n1,2\n"], None, ["point"]),
        (["a;b\n1;2\n"], None, None),
        (["a;b\n1.5;2\n"], None, ["point"]),
        (["a;b\n1,5;2\n"], None, ["comma"]),
        (["a;b\n1;2\n"], "decimal=comma", ["comma"]),
        (["a;b\n1;2\n"], "thousands=.", ["comma"]),
        (["a;b\n1,5;2\n", "a,b\n1,2\n"], None, ["comma", "point"]),
        (["a,b\n1,2\n", "a;b\n1;2\n"], None, None),
        (['a,b\n"1,234",2\n'], None, None),
        (['a,b\n1,"2,5"\n'], None, ["comma"]),
    ],
)
def test_the_first_rows_suggest_the_decimal_sign(
    tmp_path: Path, texts: list[str], said: str | None, signs: list[str] | None
) -> None:
    pattern(tmp_path, *texts)
    table = CsvTable("t", sorted(tmp_path.iterdir()), parse_csv_format(said))
    assert table.try_signs(["a", "b"]) is (signs is not None)
    if signs is not None:
        assert [file.signs for file in table.files] == [NumberSigns.of(sign) for sign in signs]
        assert table.are_as_programs is (signs == ["point"] and texts[0][1] == ",") or signs == ["comma"]


def test_all_cells_of_number_columns_prove_the_signs(tmp_path: Path) -> None:
    pattern(tmp_path, "a;b\n" + "1;2\n" * 3000 + "1,5;0.5\n", "a;b\n1.5;x\n")
    table = CsvTable("t", sorted(tmp_path.iterdir()))
    table.find_signs(["a"])
    assert [file.signs.decimal for file in table.files] == ["comma", "point"]
    with pytest.raises(
        InvalidDataError, match=f"^data file {tmp_path}/1.csv: numbers have a decimal point in column 'b'"
    ):
        table.find_signs(["a", "b"])
    table.find_signs([])
    assert [file.signs.decimal for file in table.files] == ["point", "point"]


@pytest.mark.parametrize(
    ("cell", "is_code"),
    [
        ("01", True), ("-01", True), ("+007", True), (" \t01", True), ("0x1", True), ("-0X1", True), ("00.5", True),
        ("0", False), ("0.5", False), ("0,5", False), ("-0.5", False), ("10", False), ("0e1", False), ("", False),
        ("x01", False), ("--01", False), ("0 1", False), ("0-", False), ("\v01", False), (None, False),
    ],
)  # fmt: skip
def test_a_zero_before_digits_makes_a_code(cell: str | None, *, is_code: bool) -> None:
    assert csv_files._has_codes(pa.array(["1", cell, "2.5"])) is is_code
