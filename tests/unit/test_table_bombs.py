"""A small file may be a large table: it is refused, with little memory and in little time."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from common.errors import InvalidDataError
from common.files.cell_tables import json_table, sheet_table
from tests.support.dresses import write_workbook

_NAMES = '<row r="1"><c r="A1" t="inlineStr"><is><t>age</t></is></c></row>'
_ODS = """<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"><office:body><office:spreadsheet><table:table
 table:name="S"><table:table-row table:number-rows-repeated="10000"><table:table-cell
 table:number-columns-repeated="5000" office:value-type="float" office:value="1"/></table:table-row></table:table>
</office:spreadsheet></office:body></office:document-content>"""


def _far_cells(path: Path) -> None:
    write_workbook(path, _NAMES + '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')


def _repeated_cells(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        book.writestr("META-INF/manifest.xml", "<manifest/>")
        book.writestr("content.xml", _ODS)


@pytest.mark.parametrize(("file", "write"), [("far.xlsx", _far_cells), ("repeated.ods", _repeated_cells)])
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
def test_records_that_take_too_much_end_their_reader_alone(records: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(records, encoding="utf-8")
    with pytest.raises(InvalidDataError, match=r"json takes more than \d+ MB or \d+ seconds to read: save .* as CSV$"):
        json_table(path)
