"""One table as people save it: the dresses in which every command reads it, and the page of the documents on them."""

from __future__ import annotations

import bz2
import gzip
import json
import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
from pyarrow import feather, parquet

from parley.common.data.columns import Category, Feature, Label
from parley.common.data.study import Study
from parley.common.files.examples import load_source
from parley.common.files.sources import DataSource, parse_csv_format

STUDY = Study(
    name="dresses",
    missing="drop",
    features=(
        Feature(name="age", lower=0, upper=120),
        Feature(name="marker", lower=-10, upper=10),
        Feature(name="cost", lower=0, upper=1e6),
        Category(name="ward", values=("Süd", "Nord", "Haus 2, Ost", "007", "NA")),
        Category(name="smoker", values=("no", "yes")),
    ),
    label=Label(name="ill", values=("no", "yes")),
)
"""One of the wards is called NA, and one 007."""
NAMES = ("age", "marker", "cost", "ward", "smoker", "note", "ill")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
Row = tuple[int, float | None, float, str, str, str, str]


def rows(n: int = 60) -> list[Row]:
    """The table: some markers are missing, and notes, which no study reads, hold all kinds of signs."""
    rng = np.random.default_rng(38)
    return [
        (
            int(rng.integers(18, 99)),
            None if i % 13 == 5 else round(float(rng.uniform(-9, 9)), 3),
            round(float(rng.uniform(1, 250_000)), 2),
            str(rng.choice(["Süd", "Nord", "Haus 2, Ost", "007", "NA"])),
            str(rng.choice(["no", "yes"])),
            f"Nr. {i}: “fieberfrei”, 3;4|5",
            str(rng.choice(["no", "yes"])),
        )
        for i in range(n)
    ]


@dataclass(frozen=True, slots=True)
class Text:
    """How a CSV file is written."""

    separator: str = ","
    decimal: str = "."
    thousands: str = ""
    missing: str = ""
    ends: tuple[str, ...] = ("\n",)
    quoted: bool = False
    note_end: str = ""
    encoding: str = "utf-8"
    names: tuple[str, ...] = NAMES
    order: tuple[int, ...] = tuple(range(len(NAMES)))
    above: str = ""
    below: str = ""
    padded: bool = False
    index: str | None = None
    twice: bool = False
    last_end: bool = True

    def __call__(self, path: Path) -> None:
        """Write the table."""
        lines = [[self.names[i] for i in self.order]]
        lines += [[self._cell(row[i]) for i in self.order] for row in self._noted()]
        if self.index is not None:
            lines = [[self.index, *lines[0]], *([str(i), *line] for i, line in enumerate(lines[1:]))]
        if self.twice:
            lines = [[*lines[0], "age"], *([*line, ""] for line in lines[1:])]
        text = self.above
        for i, line in enumerate(lines):
            end = self.ends[i % len(self.ends)] if self.last_end or i + 1 < len(lines) else ""
            text += self.separator.join(map(self._quoted, line)) + end
        content = (text + self.below).encode(self.encoding)
        pack: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress}
        path.write_bytes(pack.get(path.suffix, bytes)(content))

    def _noted(self) -> list[tuple[Any, ...]]:
        end = self.note_end
        return [(*row[:5], f'{row[5]}{end}the "second" line{end}' if end else row[5], row[6]) for row in rows()]

    def _cell(self, cell: object) -> str:
        if cell is None:
            return self.missing
        if not isinstance(cell, int | float):
            return str(cell)
        text = f"{cell:,}" if self.thousands else str(cell)
        text = text.replace(",", "T").replace(".", self.decimal).replace("T", self.thousands)
        return f"  {text} " if self.padded else text

    def _quoted(self, text: str) -> str:
        needs = self.quoted or any(sign in text for sign in (self.separator, '"', "\n", "\r"))
        return '"' + text.replace('"', '""') + '"' if needs else text


@dataclass(frozen=True, slots=True)
class Dress:
    """A dress: what it is, what writes it to a file of a name, and what has to be said by ``--csv``."""

    words: str
    write: Callable[[Path], None]
    file: str = "table.csv"
    said: str = ""
    at: str = ""

    def __str__(self) -> str:
        return self.words


def _columns() -> dict[str, Sequence[Any]]:
    return dict(zip(NAMES, zip(*rows(), strict=True), strict=True))


def _arrow() -> pa.Table:
    columns = _columns()
    table = pa.table({name: list(cells) for name, cells in columns.items()})
    wards = pa.array(columns["ward"]).dictionary_encode()
    return table.set_column(table.schema.get_field_index("ward"), "ward", wards)


def _feather(path: Path) -> None:
    feather.write_feather(_arrow(), str(path))


def _records() -> list[dict[str, Any]]:
    return [dict(zip(NAMES, row, strict=True)) for row in rows()]


def _sqlite(mode: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f"PRAGMA journal_mode = {mode}")
            database.execute(f"CREATE TABLE visits ({', '.join(NAMES)})")
            database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?, ?)", rows())
            database.commit()

    return write


def _workbook(above: Sequence[Sequence[object]] = ()) -> Callable[[Path], None]:
    """A workbook of the table."""

    def cell(value: object) -> str:
        if value is None:
            return "<c/>"
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return f"<c><v>{value}</v></c>"

    def write(path: Path) -> None:
        lines = [*above, NAMES, *rows()]
        write_workbook(path, visits="".join(f"<row>{''.join(map(cell, line))}</row>" for line in lines))

    return write


def write_workbook(path: Path, **sheets: str) -> None:
    """A workbook of named sheets, whose rows are in XML, by the least that its format asks for."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    files = [f"xl/worksheets/sheet{i}.xml" for i in range(1, len(sheets) + 1)]
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        + "".join(f'<Override PartName="/{file}" ContentType="{kind}.worksheet+xml"/>' for file in files)
        + "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}">'
        "<sheets>"
        + "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets, 1))
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        + "".join(
            f'<Relationship Id="r{i}" Type="{office}/worksheet" Target="/{file}"/>' for i, file in enumerate(files, 1)
        )
        + "</Relationships>",
    } | {
        file: f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>'
        for file, rows in zip(files, sheets.values(), strict=True)
    }
    with zipfile.ZipFile(path, "w") as book:
        for name, text in parts.items():
            book.writestr(name, '<?xml version="1.0" encoding="UTF-8"?>' + text)


_GERMAN = Text(separator=";", decimal=",", encoding="cp1252", ends=("\r\n",))
_TITLE = "Auszug aus dem Register, Stand 1.1.2026\n\n"
_MARKS = {
    "NA": "NA",
    "N/A": "N/A",
    "NULL": "NULL",
    "NaN": "NaN",
    "?": "a question mark",
    "-": "a hyphen",
    ".": "a point",
}

DRESSES = (
    Dress("as programs write it", Text()),
    Dress("every cell in quotes", Text(quoted=True)),
    Dress("a mark of UTF-8 at its start", Text(encoding="utf-8-sig")),
    Dress("lines end with CR LF", Text(ends=("\r\n",))),
    Dress("a mark of UTF-8, and lines end with CR LF", Text(encoding="utf-8-sig", ends=("\r\n",))),
    Dress("lines end with CR", Text(ends=("\r",))),
    Dress("lines end in all three ways", Text(ends=("\n", "\r\n", "\r"))),
    Dress("no end of the last line", Text(last_end=False)),
    Dress("blank lines at its end", Text(below="\n\n\n")),
    Dress("lines of empty cells and of blanks at its end", Text(below=",,,,,,\n , ,,,,,\n   \n")),
    Dress("line ends in quoted cells", Text(note_end="\n")),
    Dress("CR LF in quoted cells", Text(note_end="\r\n", ends=("\r\n",))),
    Dress("every line end in quoted cells, doubled quotes", Text(note_end="\r\n\r\n", ends=("\n", "\r"))),
    Dress("columns in another order", Text(order=(6, 5, 4, 3, 2, 1, 0))),
    Dress("an index column without a name", Text(index="")),
    Dress("a column more", Text(index="patient")),
    Dress("a name twice, once over a blank column", Text(twice=True)),
    Dress("names in capitals", Text(names=tuple(name.upper() for name in NAMES))),
    Dress("blanks around names", Text(names=tuple(f" {name}  " for name in NAMES))),
    Dress("blanks around numbers", Text(padded=True)),
    *(Dress(f"missing as {words}", Text(missing=text)) for text, words in _MARKS.items()),
    Dress("missing by a code of its own", Text(missing="-99"), said="missing=-99"),
    Dress("semicolons, decimal point", Text(separator=";")),
    Dress("semicolons, decimal comma", Text(separator=";", decimal=",")),
    Dress("semicolons, 1.234,5", Text(separator=";", decimal=",", thousands=".")),
    Dress("semicolons, 1'234.5", Text(separator=";", thousands="'")),
    Dress("semicolons, 1 234,5 with no-break spaces", Text(separator=";", decimal=",", thousands="\u00a0")),
    Dress("semicolons, 1 234,5 with narrow no-break spaces", Text(separator=";", decimal=",", thousands="\u202f")),
    Dress("commas, quoted 1,234.5", Text(thousands=",")),
    Dress("commas, quoted 1,5", Text(decimal=",")),
    Dress("tabs", Text(separator="\t"), "table.tsv"),
    Dress("tabs, decimal comma", Text(separator="\t", decimal=","), "table.tsv"),
    Dress("tabs, in a text file", Text(separator="\t"), "table.txt"),
    Dress("pipes", Text(separator="|")),
    Dress("carets", Text(separator="^")),
    Dress("colons, where no cell has one", Text(separator=":")),
    Dress("tildes, decimal comma", Text(separator="~", decimal=",")),
    Dress("the unit separator of ASCII", Text(separator="\x1f")),
    Dress("another character, said by itself", Text(separator="#"), said="separator=#"),
    Dress("no ending", Text(), "table"),
    Dress("an ending in capitals", Text(), "TABLE.CSV"),
    Dress("Windows-1252", Text(encoding="cp1252")),
    Dress("Latin-1", Text(encoding="cp1252"), said="encoding=windows-1252"),
    Dress("UTF-16, with its mark", Text(encoding="utf-16")),
    Dress("UTF-16, big-endian, without a mark", Text(encoding="utf-16-be")),
    Dress("UTF-16, little-endian, without a mark", Text(encoding="utf-16-le")),
    Dress("UTF-32, with its mark", Text(encoding="utf-32")),
    Dress("Excel's German CSV", _GERMAN),
    Dress("Excel's Unicode text", Text(separator="\t", decimal=",", encoding="utf-16", ends=("\r\n",)), "table.txt"),
    Dress("title lines above the names", Text(above=_TITLE)),
    Dress("a title in a line of empty cells", Text(separator=";", above="Register" + ";" * 6 + "\n")),
    Dress(
        "a title and a blank line in lines of empty cells",
        Text(separator=";", above="Register" + ";" * 6 + "\n" + ";" * 6 + "\n"),
    ),
    Dress("lines above the names that are said", Text(above="a,b,c,d,e,f,g\n"), said="skip=1"),
    Dress("lines below the table that are said", Text(below="Quelle: Register\nStand: heute\n"), said="end=2"),
    Dress("a line of totals that is said", Text(below="Total,,99,,,,\n"), said="end=1"),
    Dress("gzip", Text(), "table.csv.gz"),
    Dress("gzip of tabs", Text(separator="\t"), "table.tsv.gz"),
    Dress("bzip2", Text(), "table.csv.bz2"),
    Dress(
        "Excel's German CSV with titles, thousands, ? and line ends in cells, packed",
        replace(
            _GERMAN,
            thousands=".",
            missing="?",
            note_end="\r\n",
            above="Auszug;;\r\n\r\n",
            names=tuple(f" {name.upper()}" for name in NAMES),
        ),
        "table.csv.gz",
    ),
    Dress("semicolons, where all is said", _GERMAN, said="separator=; decimal=, encoding=cp1252 skip=0 end=0"),
    Dress("Parquet, categories by a dictionary", lambda path: parquet.write_table(_arrow(), path), "table.parquet"),
    Dress("Feather", _feather, "table.feather"),
    Dress("JSON, a list of records", lambda path: _save(path, json.dumps(_records())), "table.json"),
    Dress(
        "JSON, a record a line",
        lambda path: _save(path, "".join(json.dumps(record) + "\n" for record in _records())),
        "table.jsonl",
    ),
    Dress("a workbook", _workbook(), "table.xlsx"),
    Dress("a workbook with a title", _workbook([["Auszug aus dem Register"], []]), "table.xlsx"),
    Dress("a sheet of a workbook, by name", _workbook(), "table.xlsx", at="::visits"),
    Dress("SQLite", _sqlite("DELETE"), "table.sqlite", at="::visits"),
    Dress("SQLite, in WAL mode", _sqlite("WAL"), "table.sqlite", at="::visits"),
)


def _save(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def page(folder: Path) -> str:
    """The page on dresses, for which each is written to a folder and read."""
    lines = [_HEAD]
    for dress in DRESSES:
        path = folder / dress.file
        dress.write(path)
        data = DataSource(source=f"{path}{dress.at}", csv=parse_csv_format(dress.said) if dress.said else None)
        notes = () if path.suffix == ".xlsx" else load_source(data, STUDY).notes
        names = len(notes) - any(note.startswith("read as: ") for note in notes)
        ways = [note.removeprefix("read as: ") for note in notes if note.startswith("read as: ")]
        ways += [f"{names} names as the study's"] if names else []
        options = f'`--csv "{dress.said}"`' if dress.said else ""
        cells = (dress.words, f"`{dress.file}{dress.at}`", options.replace("|", "\\|"), "; ".join(ways))
        lines.append("|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n")
        path.unlink()
    return "".join(lines)


_HEAD = """\
# Tables as people save them

One table, in each form in which it is the same rows to every command and service: as a file, as one of a pattern, and
as the table of a query. `tests/contracts/test_table_dresses.py` reads each form, and `scripts/make_dresses.py` writes
this page. The last column shows how a command says it has read the file. A table that fits two ways of reading is
refused, until [`--csv`, or `data.csv` in the settings](../how-to/your-data.md), decides.

| the table | its file | option | read as |
|---|---|---|---|
"""
