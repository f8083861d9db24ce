"""A small file may be a large table: it is refused, with little memory and in little time."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError
from parley.common.files import databases, parquet_files
from parley.common.files.cell_tables import json_table, sheet_table
from parley.common.files.sources import DataSource
from parley.common.files.study_fit import fit_of_file
from parley.common.files.tables import file_table, open_stream
from tests.support.dresses import write_workbook

_NAMES = '<row r="1"><c r="A1" t="inlineStr"><is><t>age</t></is></c></row>'
_ODS = """<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"><office:body><office:spreadsheet><table:table
 table:name="S"><table:table-row table:number-rows-repeated="10000"><table:table-cell
 table:number-columns-repeated="5000" office:value-type="float" office:value="1"/></table:table-row></table:table>
</office:spreadsheet></office:body></office:document-content>"""


def _far_cells(path: Path) -> None:
    write_workbook(path, visits=_NAMES + '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')


def _repeated_cells(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        book.writestr("META-INF/manifest.xml", "<manifest/>")
        book.writestr("content.xml", _ODS)


@pytest.mark.parametrize(("file", "write"), [("far.xlsx", _far_cells), ("repeated.ods", _repeated_cells)])
@pytest.mark.long
def test_a_sheet_that_takes_too_much_ends_its_reader_alone(file: str, write: object, tmp_path: Path) -> None:
    assert callable(write)
    write(tmp_path / file)
    with pytest.raises(InvalidDataError, match=rf"{file} takes more than 192 MB or 3 seconds to read: save .* as CSV$"):
        sheet_table(tmp_path / file)


@pytest.mark.parametrize(
    "records",
    ["\n".join(f'{{"c{i}": 1}}' for i in range(20_000)), f'[{{"age": [{"[]," * 5_000_000}[]]}}]'],
    ids=["no name in common", "lists in a cell"],
)
@pytest.mark.long
def test_records_that_take_too_much_end_their_reader_alone(records: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(records, encoding="utf-8")
    with pytest.raises(InvalidDataError, match=r"json takes more than \d+ MB or \d+ seconds to read: save .* as CSV$"):
        json_table(path)


@pytest.mark.parametrize(
    "file", ["codes.parquet", "texts.parquet", "codes.feather"], ids=["of codes", "of texts", "of Arrow"]
)
def test_a_long_text_of_many_rows_is_not_written_out(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "MOST_TEXT", 10_000)
    table = pa.table({"age": [40] * 2_000, "ward": pa.array(["x" * 1_000] * 2_000).dictionary_encode()})
    path = tmp_path / file
    if file.endswith("parquet"):
        parquet.write_table(table, path, store_schema=file.startswith("codes"))
    else:
        feather.write_feather(table, path)
    data = DataSource(source="SELECT * FROM visits", tables={"visits": str(path)})
    with pytest.raises(InvalidDataError, match=f"{file}: column 'ward' has more than .* the longest of 1,000 bytes"):  # noqa: SIM117 -- the first is raised by either
        with open_stream(data) as rows:
            list(rows.batches())


@pytest.mark.parametrize("encoding", [None, "DELTA_BYTE_ARRAY"])
def test_texts_of_a_parquet_file_are_the_same_texts(
    encoding: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "MOST_TEXT", 10_000)
    long, n = "x" * 100, 2_800
    table = pa.table({"ward": ["Nord", None, "", long] + ["Süd"] * (n - 4), "large": pa.array(["a"] * n)})
    ways = {"use_dictionary": True} if encoding is None else {"use_dictionary": False, "column_encoding": encoding}
    parquet.write_table(table, tmp_path / "table.parquet", row_group_size=900, **ways)
    stream = file_table(str(tmp_path / "table.parquet"))
    assert pa.Table.from_batches(stream.batches(), stream.schema).equals(table)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT i FROM r", "far more than its file"),
        ("SELECT zeroblob(900000000) AS i", "a cell has more than 16 MB"),
    ],
)
def test_a_view_that_makes_much_of_nothing_is_ended(
    view: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "_STEPS", 10**6)
    with closing(sqlite3.connect(tmp_path / "lab.sqlite")) as connection:
        connection.execute(f"CREATE VIEW labs AS {view}")
    with (
        pytest.raises(InvalidDataError, match=words),
        databases.sqlite_stream(tmp_path / "lab.sqlite", "labs") as rows,
    ):
        list(rows.batches())


@pytest.mark.long
def test_a_long_name_is_told_by_its_beginning(tmp_path: Path) -> None:
    study = Study(
        name="s", features=(Feature(name="age", lower=0, upper=120),), label=Label(name="ill", values=("0", "1"))
    )
    (tmp_path / "table.jsonl").write_text(json.dumps({"age": 40, "ill": "0", "n" * 100_000: 1}), encoding="utf-8")
    fit = fit_of_file(study, tmp_path / "table.jsonl")
    assert fit.fits
    assert len(json.dumps(fit.to_json())) + len("".join(fit.lines())) < 2_000
