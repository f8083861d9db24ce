"""CSV files whose lines are not alike: each is read as it is meant, or refused by its line and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.common.errors import InvalidDataError
from parley.common.files.csv_files import _Source
from parley.common.files.tables import file_table, read_columns

_ROWS = [f"{i},{'x|y' if i % 3 else 'x'},no" for i in range(30)]


def _saved(folder: Path, names: str, rows: list[str]) -> Path:
    path = folder / "table.csv"
    path.write_text("\n".join([names, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        ("age,note,ill", [f"{row}," for row in _ROWS]),  # a separator at the end
        ("age,note,ill", [f"{i},{row}" for i, row in enumerate(_ROWS)]),  # as R numbers rows
        ("age,note,ill,", _ROWS),
    ],
)
def test_rows_that_all_differ_from_the_names_are_refused_with_what_to_do(
    tmp_path: Path, names: str, rows: list[str]
) -> None:
    """Nor does a pipe, which stands in most rows, become the separator."""
    with pytest.raises(InvalidDataError, match=r"line 2 has \d cells, .* names \d, as most lines: name each column"):
        read_columns(_saved(tmp_path, names, rows))


@pytest.mark.parametrize("bare", [",,", ' ,"",', "   ", "\x1a", '"","",""'])
def test_lines_of_empty_cells_are_no_rows(tmp_path: Path, bare: str) -> None:
    columns = read_columns(_saved(tmp_path, "age,note,ill", [*_ROWS[:9], bare, *_ROWS[9:], bare, bare]))
    assert columns["age"].tolist() == list(range(30))


def test_a_line_of_separators_in_a_quoted_cell_stays(tmp_path: Path) -> None:
    columns = read_columns(_saved(tmp_path, "age,note,ill", ['1,"a\n,,\nb",no', ",,", "2,c,no"]))
    assert columns["note"].tolist() == ["a\n,,\nb", "c"]


def test_a_quote_within_a_cell_is_a_sign_like_others(tmp_path: Path) -> None:
    columns = read_columns(_saved(tmp_path, "age,note,ill", [*_ROWS, '31,5" pipe,no']))
    assert columns["note"][-1] == '5" pipe'


def test_a_quote_that_does_not_end_is_refused_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match="a quoted cell in the row of line 12 does not end"):
        read_columns(_saved(tmp_path, "age,note,ill", [*_ROWS[:10], '10,"x,no', *_ROWS[10:]]))


def test_nothing_is_read_once_an_error_has_ended_a_read() -> None:
    """A reader that is left in its thread keeps the process from ending."""
    blocks = iter([b"1\n", b"2\n", b"3\n"])
    with _Source(blocks) as source:
        assert source.read() == b"1\n"
    assert source.read() == b""
    assert next(blocks) == b"2\n"


@pytest.mark.parametrize(
    ("start", "remedy"),
    [
        (b"PK\x03\x04\0", "unpack it"),
        (b"PAR1\0", r"end in \.parquet"),
        (b"ARROW1\0\0", r"end in \.feather"),
        (b"SQLite format 3\0", "FILE::TABLE"),
    ],
)
def test_a_file_of_another_kind_that_is_called_csv_says_what_it_is(tmp_path: Path, start: bytes, remedy: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(start + bytes(50))
    with pytest.raises(InvalidDataError, match=remedy):
        read_columns(path)


@pytest.mark.parametrize(
    "content",
    [
        '{"age": [1, 2], "ill": ["no", "yes"]}',
        '{"age": {"0": 1}, "ill": {"0": "no"}}',
        '{"columns": ["age"], "data": [[1]]}',
        '{"data": [{"age": 1}]}',
    ],
)
@pytest.mark.long
def test_json_that_is_no_list_of_rows_is_refused_with_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(content)
    with pytest.raises(InvalidDataError, match="save the rows as a list of objects"):
        read_columns(path)


@pytest.mark.long
def test_one_row_of_lists_of_numbers_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text('{"index": [3, 17], "value": [0.5, -1]}')
    assert len(read_columns(path)["index"]) == 1


def test_files_of_a_pattern_may_spell_names_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,ill\n1,no\n")
    (tmp_path / "b.csv").write_text(" ILL;AGE \nno;2\n")
    stream = file_table(f"{tmp_path}/*.csv")
    assert [row for batch in stream.batches() for row in batch.to_pylist()] == [
        {"age": 1, "ill": "no"},
        {"age": 2, "ill": "no"},
    ]
