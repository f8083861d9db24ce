"""Read CSV files, however they are written: imported only while one is read, because pyarrow is large.

A `CsvFile` detects from its first lines how it is written: the encoding, the separator, and the lines above the names.
Then it looks once at the whole file for what the first lines cannot show: whether the encoding holds to the end, how
many lines there are, and whether quotes are closed. pyarrow parses it from a source of ours that decompresses, decodes
and removes what is above and below the table, block by block. No block ends between CR and LF, where pyarrow would lose
a byte of a quoted cell, and each block holds the end of a row.

A `CsvTable` is one or more such files of the same columns. A CSV file names no types. A column that a study compares by
spelling holds texts as they are in the file. Any other column holds numbers if all of its cells in all files are
numbers or missing; it holds texts if not, or if a number begins with a 0 as codes do. Each file is written in its own
way, and its own cells prove which signs its numbers have (`parley.common.files.number_signs`).

A file that fits two ways of reading is refused until its owner states which one is right
(`parley.common.files.sources`). An error names lines and columns, and never a cell.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from threading import Event, Lock
from typing import Any, BinaryIO, Self

import pyarrow as pa
from pyarrow import compute
from pyarrow import csv as arrow_csv

from parley.common.data.cells import MISSING_TEXTS
from parley.common.encoding.texts import so_many, spelling
from parley.common.errors import InvalidDataError
from parley.common.files.arrow import TableStream, join_batches
from parley.common.files.column_names import check_same_columns, match_all_columns, match_columns
from parley.common.files.kinds import check_names, reading, unreadable_error
from parley.common.files.number_signs import (
    AS_PROGRAMS,
    NumberSigns,
    SignEvidence,
    can_cast,
    decide_signs,
    likely_decimal,
    stated_decimal,
)
from parley.common.files.sources import SEPARATORS, CsvFormat

_BLOCK = 2**19
_LONGEST_ROW = 2**26
"""Bytes that a row may take."""
_FIRST, _HEADER = 2**18, 2**22
"""Bytes of a file's beginning that are examined; at most the second, where the first do not hold three lines."""
_TAIL = 2**12
"""Bytes that hold some last lines."""
_UNPACKED, _MOST_TIMES = 2**28, 200
"""A compressed file may decompress to the first in bytes, or to the second times its size if that is more."""
_PACKED: tuple[tuple[bytes, Any], ...] = (
    (b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ", lzma.open),
)  # fmt: skip
"""The first bytes of compressed files, and what decompresses them."""
_OTHER_KINDS = (
    (b"PK\x03\x04", "it is a ZIP archive or a workbook: unpack it, or let its name end in .xlsx"),
    (b"PAR1", "it is Parquet: let its name end in .parquet"),
    (b"ARROW1", "it is Feather: let its name end in .feather"),
    (b"SQLite format 3", "it is a database: let its name end in .sqlite, and say FILE::TABLE"),
)
"""The first bytes of files of other kinds, and what to do about one that is named as CSV."""
_UNPACKING_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip
"""Byte order marks; of two that begin with the same bytes the longer one is first."""
_EIGHT_BITS = "cp1252"
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_UNUSED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
"""Bytes that Windows-1252 has no character for."""
_LINE_END = re.compile(r"\r\n?|\n")
_TOTALS = frozenset({"total", "totals", "sum", "grand total", "subtotal", "summe", "gesamt", "insgesamt", "somme"})
"""Words in the first cell of a last line that is not a row."""
_RAGGED = re.compile(r"CSV parse error: (Row #\d+: )?Expected \d+ columns, got \d+")
_LAST_READ = 0.2
"""Seconds to wait for a reader to notice that its file has ended."""
_OPTION = "--csv, or data.csv in the settings"
_ENCODING_NAMES = {
    "cp1252": "Windows-1252", "iso8859-1": "Latin-1", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16",
    "utf-32-le": "UTF-32", "utf-32-be": "UTF-32",
}  # fmt: skip
_PLURALS = {
    ",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes", "^": "carets", "~": "tildes", ":": "colons",
}  # fmt: skip
_RARE = "^~:\x01\x1f"
"""Separators to try where no usual one fits all lines: programs write these where cells hold the usual ones."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the beginning of a file is laid out with one separator.

    ``names`` follow ``above`` lines. ``line`` is the number of the last line of names, ``body`` the characters before
    the first row, ``width`` the number of cells that most records have, and ``misfits`` the number of records with more
    or fewer.
    """

    separator: str
    names: tuple[str, ...]
    above: int
    line: int
    body: int
    width: int
    misfits: int


@dataclass(frozen=True, slots=True)
class _Content:
    """What only the whole file shows: encoding, number of line ends, whether quotes are paired, and the last bytes.

    ``bare`` is whether it may have a line of empty cells alone.
    """

    encoding: str
    n_ends: int
    paired: bool
    tail: bytes
    bare: bool


class CsvFile:
    """A CSV file and how it is written: as its owner states, or as is detected.

    Raises InvalidDataError for a file that is empty or not text, or whose beginning fits two ways of reading, or none.
    """

    def __init__(self, path: Path, csv_format: CsvFormat | None = None) -> None:
        self.path, self.csv_format = path, csv_format or CsvFormat()
        self.signs = AS_PROGRAMS
        self._thousands: set[str] = set()
        self._n_bare = 0
        first, ended = self._read_beginning()
        if not first:
            raise self._fault("it is empty")
        self._encoding, self._bom = self._detect_encoding(first)
        text = self._text(first, ended=ended)
        if not text.strip():
            raise self._fault("it is empty" if ended else "its first line is too long")
        self._layout = self._find_layout(text, ended=ended)

    @property
    def separator(self) -> str:
        """The character between cells."""
        return self._layout.separator

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, without surrounding blanks."""
        return self._layout.names

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each column with a unique name; of columns with one name, the only one that is not blank."""
        of_name: dict[str, list[int]] = {}
        for place, name in enumerate(self.names):
            if name or len(self.names) == 1:
                of_name.setdefault(name, []).append(place)
        twice = [place for places in of_name.values() if len(places) > 1 for place in places]
        blank = self._blank(twice) if twice else frozenset()
        filled = {name: [place for place in places if place not in blank] for name, places in of_name.items()}
        return {
            name: (filled[name] or places)[0]
            for name, places in of_name.items()
            if len(places) == 1 or len(filled[name]) == 1
        }

    @cached_property
    def n_lines(self) -> int:
        """The number of lines below the names, at least the number of rows.

        Raises InvalidDataError where the file is not text throughout, a quote stays open, or the last line holds
        totals.
        """
        if not self._content.paired:
            self._check_quotes()
        if self.csv_format.end is None:
            self._check_last_line()
        return max(self._content.n_ends + (not self._content.tail.endswith((b"\n", b"\r"))) - self._layout.line, 0)

    @property
    def notes(self) -> list[str]:
        """How the file is read, in words, where programs write otherwise; about numbers, as far as they were read."""
        encoding, above = self._content.encoding, self._layout.above
        return [
            *([_separator_words(self.separator)] if self.separator != "," else []),
            *([_ENCODING_NAMES.get(encoding, encoding.upper())] if encoding != "utf-8" else []),
            *([f"{so_many(above, 'title line')} skipped"] if above else []),
            *([f"{so_many(self.csv_format.end, 'line')} below the table skipped"] if self.csv_format.end else []),
            *([f"{so_many(self._n_bare, 'line')} of empty cells skipped"] if self._n_bare else []),
            *([f"decimal {self.signs.decimal}"] if self.signs.decimal != "point" else []),
            *(f"thousands by {sign}" for sign in sorted(self._thousands)),
        ]

    def numbers(self, cells: Any, missing: Collection[str]) -> Any:  # noqa: ANN401 -- pyarrow has no types
        """Spell texts (n,) of a column of numbers as programs do, null for a missing number."""
        return self.signs.cleaned(cells, missing, self._thousands)

    def batches(self, columns: Mapping[str, Any], missing: Collection[str] = ()) -> Iterator[Any]:
        """Read the rows of some columns, by name and type, in the order of ``columns``; texts as they are in the file.

        In columns of numbers the texts ``missing`` are null. Raises pyarrow's ArrowInvalid for a cell that is not a
        number, and InvalidDataError, which names the line, for a row of more or fewer cells than there are names.
        """
        if self.n_lines == 0 or not columns:  # this examines the whole file before any row is used
            return
        places = {str(self.places[name]): name for name in columns}
        types = {place: columns[name] for place, name in places.items()}
        read = arrow_csv.ReadOptions(
            block_size=_BLOCK, use_threads=False, column_names=[str(place) for place in range(len(self.names))]
        )
        convert = arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=list(places),
            null_values=["", *missing],
            strings_can_be_null=False,
            decimal_point=self.signs.decimal_point,
        )
        parse = arrow_csv.ParseOptions(delimiter=self.separator, newlines_in_values=True)
        schema = pa.schema([(name, columns[name]) for name in columns])
        try:
            with _Source(self._filled_rows()) as source, arrow_csv.open_csv(source, read, parse, convert) as file:
                for batch in file:
                    yield pa.record_batch(batch.columns, schema=schema)
        except pa.ArrowInvalid as error:
            if str(error).startswith("Empty CSV file"):
                return
            if _RAGGED.match(str(error)):
                raise self._ragged() from None
            if "straddling" in str(error):
                raise self._fault(f"a row takes more than {_LONGEST_ROW >> 20} MB: a quote may not be closed") from None
            raise

    # ── the beginning ────────────────────────────────────────────────────────

    def _read_beginning(self) -> tuple[bytes, bool]:
        """Read bytes that hold the first lines; return them, and whether they are the whole file."""
        with self._open() as file:
            first, size = b"", _FIRST
            while True:
                while len(first) < size and (more := file.read(size - len(first))):
                    first += more
                if len(first) < size:
                    return first, True
                if size >= _HEADER or len(re.findall(rb"[\r\n]+", first)) > 2:  # noqa: PLR2004 -- names and two rows
                    return first, False
                size *= 4

    def _detect_encoding(self, first: bytes) -> tuple[str | None, int]:
        """Detect the encoding that the beginning shows, if any, and the length of its byte order mark in bytes."""
        for bom, name in _BOMS:
            if first.startswith(bom):
                return self._stated_or(name), len(bom)
        if self.csv_format.encoding is not None:
            return self._stated_or(""), 0
        if b"\0" in first:
            even, odd = first[0::2].count(0), first[1::2].count(0)
            many, few = 0.3 * len(first) / 2, 0.02 * len(first) / 2
            if odd > many and even <= few:
                return "utf-16-le", 0
            if even > many and odd <= few:
                return "utf-16-be", 0
            raise self._fault(
                next((words for magic, words in _OTHER_KINDS if first.startswith(magic)), "it is no text")
            )
        return None, 0

    def _stated_or(self, detected: str) -> str:
        """Return the encoding that the owner states, or the one that is detected."""
        stated = self.csv_format.encoding
        if stated is None:
            return detected
        if stated == "utf-16":
            return detected if detected.startswith("utf-16") else "utf-16-le"
        return "utf-8" if stated in {"utf-8-sig", "ascii"} else stated

    def _text(self, first: bytes, *, ended: bool) -> str:
        """Decode the beginning, without a character that is cut off at its end."""
        for encoding in (self._encoding,) if self._encoding else ("utf-8", _EIGHT_BITS):
            try:
                return str(codecs.getincrementaldecoder(encoding)().decode(first[self._bom :], ended))
            except UnicodeDecodeError:
                continue
        raise self._not_in(self._encoding)

    def _find_layout(self, text: str, *, ended: bool) -> _Layout:
        """Find the layout of the beginning; raises InvalidDataError where two separators fit equally well."""
        lines = list(io.StringIO(text, newline=""))
        if not ended and len(lines) > 1:
            lines.pop()  # a part of one
        if self.csv_format.separator is not None:
            return self._layout_of(
                lines, SEPARATORS.get(self.csv_format.separator, self.csv_format.separator), ended=ended
            )
        layouts = [self._layout_of(lines, separator, ended=ended) for separator in SEPARATORS.values()]
        several = [layout for layout in layouts if len(layout.names) > 1]
        if all(layout.misfits for layout in several):
            rare = [self._layout_of(lines, separator, ended=ended) for separator in _RARE]
            several += [layout for layout in rare if len(layout.names) > 1 and all(layout.names) and not layout.misfits]
        if not several:
            return layouts[0]
        if self.path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab")) and (
            tabs := next((layout for layout in several if layout.separator == "\t" and not layout.misfits), None)
        ):
            return tabs
        least = min(layout.misfits for layout in several)
        best = [layout for layout in several if layout.misfits == least]
        if len(best) > 1:
            which = " or ".join(_separator_words(layout.separator) for layout in best)
            raise self._fault(f"its cells may stand between {which}: say which by separator= in {_OPTION}")
        return best[0]

    def _layout_of(self, lines: Sequence[str], separator: str, *, ended: bool) -> _Layout:
        """Return the layout with one separator: the names are in the first record that has as many cells as most have.

        A line whose first cell alone is filled is a title, if more than one column follows.
        """
        skipped = self.csv_format.skip or 0
        reader = csv.reader(lines[skipped:], delimiter=separator)
        records: list[tuple[list[str], int, int]] = []  # its cells, its first line and its last, from 0
        before = 0
        try:
            for cells in reader:
                if cells:
                    records.append((cells, skipped + before, skipped + reader.line_num))
                before = reader.line_num
        except csv.Error:  # a cell that continues beyond the beginning
            pass
        else:
            if not ended and len(records) > 1:
                records.pop()  # its cells may go on
        if not records:
            raise self._fault("it has no line of names")
        place = 0 if self.csv_format.skip is not None else _names_at([cells for cells, _, _ in records])
        cells, first, last = records[place]
        names = tuple(name.strip().removeprefix("\ufeff").strip() for name in cells)
        counts = [len(cells) for cells, _, _ in records if any(map(str.strip, cells))]
        width = _usual_width(counts)
        return _Layout(
            separator,
            names,
            first if self.csv_format.skip is None and place else skipped,
            last,
            sum(map(len, lines[:last])),
            width,
            sum(count != width for count in counts),
        )

    # ── the whole file ────────────────────────────────────────────────────────────

    @cached_property
    def _content(self) -> _Content:
        """Examine the whole file once, block by block; raises InvalidDataError where it is not text throughout."""
        n_lines, n_quotes, tail, bare, text = 0, 0, b"", False, _Utf8()
        empty = rb"[\x1a \t\"" + re.escape(self.separator.encode()) + rb"]+"
        below_feed, below_return = (re.compile(end + empty + rb"[\r\n]") for end in (b"\n", b"\r"))
        is_stated = self._encoding not in {None, "utf-8"}
        try:
            for block in self._decoded(str(self._encoding)) if is_stated else self._bytes():
                for part in () if bare else (tail + block[:_TAIL], block):  # a pattern of one first byte is fast
                    bare |= bool(below_feed.search(part) or (b"\r" in part and below_return.search(part)))
                n_lines, n_quotes, tail = (
                    n_lines + _count_lines(block),
                    n_quotes + block.count(b'"'),
                    _join_tail(tail, block),
                )
                if not is_stated:
                    text.take(block)
        except UnicodeDecodeError:
            raise self._not_in(str(self._encoding)) from None
        bare = len(self.names) > 1 and (bare or re.search(rb"[\r\n]" + empty + rb"\Z", tail) is not None)
        if is_stated:
            return _Content(str(self._encoding), n_lines, n_quotes % 2 == 0, tail, bare)
        text.end()
        if text.is_utf8:
            encoding = "utf-8"
        elif self._encoding == "utf-8":
            raise self._not_in("utf-8")
        elif text.has_multibyte or text.has_unused:
            raise self._not_in(None)
        else:
            encoding = _EIGHT_BITS
        return _Content(encoding, n_lines, n_quotes % 2 == 0, tail, bare)

    def _check_quotes(self) -> None:
        """Raise InvalidDataError for a quoted cell that does not end: it would swallow all rows after it."""
        end = "\0end"
        for start, cells in self._records([end]):
            if cells != [end] and cells[-1].endswith(end):
                raise self._fault(f"a quoted cell in the row of line {start:,} does not end")

    def _check_last_line(self) -> None:
        """Raise InvalidDataError for a last line that begins with a word for totals."""
        encoding = "utf-8" if self._encoding not in {None, "utf-8"} else self._content.encoding
        lines = [
            line
            for line in self._content.tail.decode(encoding, errors="replace").splitlines()
            if line.strip(self._empty_characters)
        ]
        starts = [
            next((text for cell in line.split(self.separator) if (text := cell.strip(' "'))), "") for line in lines
        ]
        if len(starts) > 1 and _is_total(starts[-1]) and not _is_total(starts[-2]) and len(self.names) > 1:
            rows = (start for start, cells in self._records() if any(map(self._is_filled, cells)))
            if number := max(rows, default=0):  # else it is the line of names
                raise self._fault(
                    f"line {number:,}, the last, begins as one of totals: say end=1 in {_OPTION} if it is no row, or "
                    "end=0"
                )

    def _blank(self, places: Sequence[int]) -> frozenset[int]:
        """Return those of some columns that hold nothing."""
        filled = {
            place for _, cells in self._records() for place in places if place < len(cells) and cells[place].strip()
        }
        return frozenset(places) - filled

    def _ragged(self) -> InvalidDataError:
        """Return the error for the first row that has more or fewer cells than there are names."""
        width = len(self.names)
        ragged = (
            (start, len(cells))
            for start, cells in self._records()
            if len(cells) != width and any(map(self._is_filled, cells))
        )
        number, count = next(ragged, (0, 0))
        words = f"line {number:,} has {so_many(count, 'cell')}, and the line of names {width:,}"
        if count == self._layout.width:
            return self._fault(
                f"{words}, as most lines: name each column, that of row numbers too, and end all lines alike, with "
                f"or without {_separator_words(self.separator)}"
            )
        if count > width:
            return self._fault(f"{words}: quote cells that have {_separator_words(self.separator)}")
        return self._fault(f"{words}: if it stands below the table, say end= in {_OPTION}")

    def _records(self, more: Sequence[str] = ()) -> Iterator[tuple[int, list[str]]]:
        """Yield rows as the standard library parses them, each with the number of its first line; used for errors."""
        limit = csv.field_size_limit(_LONGEST_ROW)
        try:
            reader, before = csv.reader(chain(_lines(self._rows()), more), delimiter=self.separator), 0
            for cells in reader:
                if cells:
                    yield self._layout.line + before + 1, cells
                before = reader.line_num
        except csv.Error:
            raise self._fault(f"a row takes more than {_LONGEST_ROW >> 20} MB: a quote may not be closed") from None
        finally:
            csv.field_size_limit(limit)

    # ── bytes and rows ────────────────────────────────────────────────────────────

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        """Open the file's bytes, decompressed."""
        with self.path.open("rb") as file:
            start = file.read(8)
            file.seek(0)
            unpack = next((opener for magic, opener in _PACKED if start.startswith(magic)), None)
            if unpack is None:
                yield file
                return
            try:
                with unpack(file) as unpacked:
                    yield unpacked
            except _UNPACKING_ERRORS:
                raise self._fault("it cannot be unpacked: a part of it is missing or wrong") from None

    def _bytes(self) -> Iterator[bytes]:
        """Decompress the file in blocks, without its byte order mark; raises InvalidDataError for too many bytes."""
        with self._open() as file:
            most, size = max(_UNPACKED, _MOST_TIMES * self.path.stat().st_size), 0
            packed = not isinstance(file, io.BufferedReader)
            file.read(self._bom)
            while block := file.read(_BLOCK):
                size += len(block)
                if packed and size > most:
                    raise self._fault(f"it unpacks to more than {_MOST_TIMES} times its size: unpack it yourself")
                yield block

    def _decoded(self, encoding: str) -> Iterator[bytes]:
        """Yield blocks of the file in UTF-8; raises UnicodeDecodeError."""
        if encoding == "utf-8":
            yield from self._bytes()
            return
        decoder = codecs.getincrementaldecoder(encoding)()
        for block in self._bytes():
            yield decoder.decode(block).encode()
        yield decoder.decode(b"", final=True).encode()

    @property
    def _empty_characters(self) -> str:
        """The characters that a line of empty cells may have; the last marks the end of old files."""
        return f'{self.separator} \t\r\n"\x1a'

    def _is_filled(self, cell: str) -> bool:
        return bool(cell.strip(self._empty_characters))

    def _filled_rows(self) -> Iterator[bytes]:
        """Yield blocks below the names without lines below the table or those of empty cells that spreadsheets save."""
        self._n_bare = 0
        if not self._content.bare:
            yield from self._rows()
            return
        in_quotes, bare, bare_end = False, self._empty_characters.encode(), b" \t\r\n\x1a"
        for lines in _whole_lines(self._rows()):
            filled = []
            for line in lines:
                odd = line.count(b'"') % 2 == 1
                if in_quotes or odd or line.strip(bare):
                    filled.append(line)
                else:
                    self._n_bare += bool(line.strip(bare_end))
                in_quotes ^= odd
            if filled:
                yield b"".join(filled)

    def _rows(self) -> Iterator[bytes]:
        """Return the blocks below the names, without the lines below the table."""
        blocks = self._below_names(self._content.encoding)
        if self.csv_format.end:
            blocks = _without_last(blocks, self.csv_format.end, self._empty_characters.encode())
        return filter(None, blocks)  # pyarrow takes an empty block for the end

    def _below_names(self, encoding: str) -> Iterator[bytes]:
        skipped = self._layout.body
        decoder = codecs.getincrementaldecoder("utf-8")()
        for block in self._decoded(encoding):
            if not skipped:
                yield block
                continue
            text = decoder.decode(block)
            body = text[skipped:]
            skipped = max(skipped - len(text), 0)
            if not skipped:
                pending = decoder.getstate()[0]
                yield body.encode() + pending

    # ── errors ────────────────────────────────────────────────

    def _fault(self, reason: str) -> InvalidDataError:
        return InvalidDataError(f"data file {self.path} cannot be read: {reason}")

    def _not_in(self, encoding: str | None) -> InvalidDataError:
        name = _ENCODING_NAMES.get(encoding, encoding.upper()) if encoding else "UTF-8 throughout"
        return self._fault(f"it is not {name}: say its encoding by encoding= in {_OPTION}")


class _Utf8:
    """Whether blocks are UTF-8; if not, whether they have multibyte characters, or bytes that Windows-1252 lacks."""

    def __init__(self) -> None:
        self.is_utf8, self.has_multibyte, self.has_unused = True, False, False
        self._decoder, self._pending = codecs.getincrementaldecoder("utf-8")(), b""

    def take(self, block: bytes) -> None:
        """Examine the next block."""
        if self.is_utf8:
            if block.isascii() and not self._decoder.getstate()[0]:
                return
            self._pending = self._decoder.getstate()[0]
            try:
                decoded = self._decoder.decode(block)
            except UnicodeDecodeError:
                self.is_utf8 = False
            else:
                self.has_multibyte |= not decoded.isascii()
                return
        block = self._pending + block
        end = len(block)
        while end > len(block) - 3 and end and block[end - 1] >= 0x80:  # noqa: PLR2004 -- a character may go on
            end -= 1
        self._examine(block[:end])
        self._pending = block[end:]

    def end(self) -> None:
        """Examine what is pending: no block follows."""
        if self.is_utf8 and self._decoder.getstate()[0]:
            self.is_utf8 = False
            self._pending = self._decoder.getstate()[0]
        self._examine(self._pending)

    def _examine(self, block: bytes) -> None:
        if block.isascii():
            return
        self.has_multibyte |= _MULTIBYTE.search(block) is not None
        self.has_unused |= _UNUSED.search(_MULTIBYTE.sub(b"", block)) is not None


class _Source:
    """Blocks as a file for pyarrow: none ends between CR and LF, and each but the last holds the end of a row.

    A block may be longer than asked, up to the length that a row may have. pyarrow reads ahead in a thread of its own,
    and goes on after an error. So the end of a ``with`` block lets that thread find the end of the file: a process that
    exits earlier would hang.
    """

    closed = False

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._in_quotes = blocks, False
        self._turn, self._stopped, self._ended = Lock(), False, Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped = True
        with self._turn:  # after a read that goes on
            self.closed = True
        if kind not in {None, GeneratorExit}:  # an error, after which the process may end
            self._ended.wait(_LAST_READ)  # no longer, for a reader that has read far ahead reads no more

    def read(self, _: int = -1) -> bytes:
        """Return the next block; empty at the end."""
        with self._turn:
            block = b"" if self._stopped else self._next()
        if not block:
            self._ended.set()
        return block

    def _next(self) -> bytes:
        block = next(self._blocks, b"")
        while block and (block.endswith(b"\r") or not self._ends_a_row(block)):
            if not (more := next(self._blocks, b"")):
                break
            block += more
            while len(block) < _LONGEST_ROW and len(more) < len(block) // 2 and (another := next(self._blocks, b"")):
                block, more = block + another, more + another
            if len(block) > _LONGEST_ROW and not block.endswith(b"\r"):
                break
        self._in_quotes ^= block.count(b'"') % 2 == 1
        return block

    def readable(self) -> bool:
        """Return True: it can be read."""
        return True

    def writable(self) -> bool:
        """Return False: it cannot be written."""
        return False

    def seekable(self) -> bool:
        """Return False: it is read from start to end."""
        return False

    def close(self) -> None:
        """Mark the file as closed."""
        self.closed = True

    def _ends_a_row(self, block: bytes) -> bool:
        """Return whether a row ends in a block: at the end of a line, outside quotes."""
        place, in_quotes = 0, self._in_quotes
        while True:
            quote = block.find(b'"', place)
            if not in_quotes and (end := _line_end(block, place)) >= 0 and (quote < 0 or end < quote):
                return True
            if quote < 0:
                return False
            place, in_quotes = quote + 1, not in_quotes


def _names_at(records: Sequence[Sequence[str]]) -> int:
    """Return the place of the record that holds the names: the first that has as many cells as most have.

    A record whose first cell alone is filled is a title. One that lacks a single cell holds names, one of them missing.
    """
    width = _usual_width(len(cells) for cells in records)
    if width == 1:
        return 0
    for place, cells in enumerate(records):
        if len(cells) == width and any(cell.strip() for cell in cells[1:]):
            above = records[place - 1] if place else ()
            n_above = sum(bool(cell.strip()) for cell in above)
            return place - 1 if n_above > 1 and width - 1 <= n_above and len(above) != width else place
    return 0


def _usual_width(counts: Iterable[int]) -> int:
    """Return the number of cells of most records, among those with more than one; 1 where none has more."""
    several = Counter(count for count in counts if count > 1)
    return max(several, key=lambda count: several[count], default=1)  # the first of several


def _line_end(block: bytes, place: int) -> int:
    """Return the place of the next line end from ``place`` on; -1 if there is none."""
    feed = block.find(b"\n", place)
    if feed >= 0:
        carriage = block.find(b"\r", place, feed)
        return carriage if carriage >= 0 else feed
    return block.find(b"\r", place)


def _count_lines(block: bytes) -> int:
    """Count the lines that end in a block; one more where CR and LF are split between two blocks."""
    feeds = block.count(b"\n")
    return feeds + block.count(b"\r") - block.count(b"\r\n") if b"\r" in block else feeds


def _join_tail(tail: bytes, block: bytes) -> bytes:
    """Return the last bytes read so far, which hold some last lines."""
    return block[-_TAIL:] if len(block) >= _TAIL else (tail + block)[-_TAIL:]


def _lines(blocks: Iterator[bytes]) -> Iterator[str]:
    """Decode blocks of UTF-8 into lines with their ends."""
    decoder, pending = codecs.getincrementaldecoder("utf-8")(errors="replace"), ""
    for block in blocks:
        pending += decoder.decode(block)
        place = 0
        for match in _LINE_END.finditer(pending, 0, len(pending) - pending.endswith("\r")):
            yield pending[place : match.end()]
            place = match.end()
        pending = pending[place:]
    pending += decoder.decode(b"", final=True)
    yield from io.StringIO(pending, newline="")


def _whole_lines(blocks: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Split blocks into lists of lines with their ends."""
    pending = b""
    for block in blocks:
        lines = (pending + block).splitlines(keepends=True)
        pending = lines.pop()
        yield lines
    yield pending.splitlines(keepends=True)


def _without_last(blocks: Iterator[bytes], n_lines: int, bare: bytes) -> Iterator[bytes]:
    """Yield blocks without the last lines that hold more than the characters of ``bare``."""
    pending = b""
    for block in blocks:
        pending += block
        if len(pending) > 2 * _BLOCK:
            yield pending[:-_BLOCK]
            pending = pending[-_BLOCK:]
    lines = pending.splitlines(keepends=True)
    for _ in range(n_lines):
        while lines and not lines[-1].strip(bare):
            lines.pop()
        if lines:
            lines.pop()
    yield b"".join(lines)


def _separator_words(separator: str) -> str:
    """Return a separator in words."""
    return _PLURALS.get(separator, f"signs {separator!r}")


def _is_total(text: str) -> bool:
    return text.strip().rstrip(":").casefold() in _TOTALS


TextColumns = Mapping[str, Collection[str]]
"""Columns of texts, and the values that a study declares for each: these never stand for a missing value."""

_EXAMINED_ROWS = 2**10
"""Rows whose cells are examined together: with more, the system's allocator keeps more memory."""
_CODE = r"^\s*[-+]?0[0-9xX]"
"""The beginning of a code that is not a number; pyarrow would read one with an x as hexadecimal."""
_NUMBERS = (pa.int64(), pa.float64())
_DECIMALS = ("point", "comma")


class CsvTable:
    """Files of the same columns, in their order; ``where`` is their name in errors.

    With ``wanted``, only those columns must be the same; files may differ in others. Raises InvalidDataError as
    `CsvFile` does, and for a file that has other columns than the first.
    """

    def __init__(
        self, where: str, paths: Sequence[Path], csv_format: CsvFormat | None = None, wanted: Collection[str] = ()
    ) -> None:
        self.where, self.csv_format = where, csv_format or CsvFormat()
        self.files: list[CsvFile] = []
        self._repeated: list[set[str]] = []
        for path in paths:
            with reading(path):
                file = CsvFile(path, self.csv_format)
                self._repeated.append({name for name in file.names if name} - file.places.keys())
                self.files.append(file)
        if wanted:
            self._select_wanted(wanted)
        else:
            self._select_all()

    def _select_wanted(self, wanted: Collection[str]) -> None:
        """Have each file show the wanted columns, by the first file's names."""
        self.check_wanted(wanted)
        first = self.files[0].path
        of_first = match_columns(self.files[0].places, wanted)
        for file in self.files:
            meant = match_columns(file.places, wanted)
            check_same_columns(file.path, meant, first, of_first)
            file.places = {of_first[name]: file.places[column] for name, column in meant.items()}

    def _select_all(self) -> None:
        """Have each file show all its columns, by the first file's names."""
        first = self.files[0]
        for file in self.files[1:]:
            if not self._repeated[0]:
                check_names(file.path, [name for name in file.names if name])
            meant = match_all_columns(file.path, file.places, first.path, first.places)
            file.places = {name: file.places[column] for name, column in meant.items()}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in the first file, without those that have no unique name."""
        return tuple(self.files[0].places)

    def check_wanted(self, names: Collection[str]) -> None:
        """Raise InvalidDataError where several columns match one of some names, and more than one of them is filled."""
        for file, repeated in zip(self.files, self._repeated, strict=True):
            if match_columns(repeated, names):
                check_names(file.path, file.names)

    @property
    def are_as_programs(self) -> bool:
        """Whether commas separate cells in all files, and no comma is stated as the decimal sign."""
        return stated_decimal(self.csv_format) != "comma" and all(file.separator == "," for file in self.files)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the files are read, where programs write otherwise; about numbers, as far as they were read."""
        files_by_note: dict[str, list[str]] = {}
        for file in self.files:
            with reading(file.path):
                files_by_note.setdefault(", ".join(file.notes), []).append(file.path.name)
        of_all = len(files_by_note) == 1
        return tuple(
            f"{'' if of_all else f'{_file_names(names)}: '}read as: {words}"
            for words, names in files_by_note.items()
            if words
        )

    def cells_of(self, file: CsvFile, columns: Mapping[str, Any], missing: Collection[str] = ()) -> Iterator[Any]:
        """Yield the rows of one file, as `CsvFile.batches` yields them.

        Raises InvalidDataError, and ArrowInvalid for a cell that is not of its type.
        """
        try:
            yield from file.batches(columns, missing)
        except pa.ArrowInvalid:
            raise
        except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
            raise unreadable_error(file.path, error) from None

    def try_signs(self, numbers: Collection[str]) -> bool:
        """Give each file the decimal sign that its first rows suggest; False where some file suggests none."""
        for file in self.files:
            evidence, decimal = SignEvidence(), stated_decimal(self.csv_format)
            if decimal is None:
                for batch in islice(self.cells_of(file, dict.fromkeys(numbers, pa.string())), 1):
                    for name in numbers:
                        evidence.add(name, batch.column(name))
                decimal = likely_decimal(evidence, file.separator)
            if decimal is None:
                return False
            file.signs = NumberSigns.of(decimal)
        return True

    def find_signs(self, numbers: Collection[str]) -> None:
        """Give each file the signs that all cells of its number columns prove; raises as `decide_signs` does."""
        for file in self.files:
            evidence = SignEvidence()
            for batch in self.cells_of(file, dict.fromkeys(numbers, pa.string())) if numbers else ():
                for name in numbers:
                    evidence.add(name, batch.column(name))
            file.signs = decide_signs(evidence, self.csv_format, file.separator, f"data file {file.path}")

    def texts(self, cells: Any, declared: Collection[str]) -> Any:  # noqa: ANN401 -- as above
        """Return texts (n,) as they are, null where the owner states that one is missing and no study declares it."""
        missing = [
            text for text in self.csv_format.missing if spelling(text) not in {spelling(value) for value in declared}
        ]
        if not missing:
            return cells
        empty = compute.is_in(compute.utf8_trim_whitespace(cells), value_set=pa.array(missing))
        return compute.if_else(empty, None, cells)

    def missing(self, texts: TextColumns | None = None) -> frozenset[str]:
        """Return the texts that stand for a missing number, without the declared ones, as columns may be renamed."""
        declared = {value for values in (texts or {}).values() for value in values}
        return (MISSING_TEXTS | frozenset(self.csv_format.missing)) - declared


def csv_stream(table: CsvTable, texts: TextColumns, *, as_texts: bool = False) -> TableStream:
    """Stream a table in typed columns; ``texts`` hold no numbers.

    With ``as_texts`` all columns are texts; numbers with signs of their own are spelt as programs do. Raises
    InvalidDataError where the cells do not prove how numbers are written.
    """
    if as_texts:
        table.check_wanted([name for name in table.files[0].names if name])
    missing = table.missing(texts)
    types = _plain_types(table, texts, missing)
    if types is None:
        types, plain = _signed_types(table, texts, missing), False
    else:
        plain = True
    pa.default_memory_pool().release_unused()
    schema = pa.schema([(name, pa.string() if as_texts else types.get(name, pa.string())) for name in table.columns])

    def read() -> Iterator[Any]:
        direct = plain and not as_texts
        wanted = {field.name: field.type if direct else pa.string() for field in schema}
        for file in table.files:
            for batch in table.cells_of(file, wanted, missing):
                columns = []
                for field, cells in zip(schema, batch.columns, strict=True):
                    if field.name not in types:
                        made = table.texts(cells, texts.get(field.name, ()))
                    else:
                        made = cells if plain else file.numbers(cells, missing).cast(field.type)
                    columns.append(made)
                yield pa.record_batch(columns, schema=schema)
        stream.notes[:] = table.notes

    stream = TableStream(table.where, schema, read)
    stream.notes[:] = table.notes
    return stream


def _plain_types(table: CsvTable, texts: TextColumns, missing: frozenset[str]) -> dict[str, Any] | None:
    """Return the types of columns of numbers as programs write them; None where some numbers are written otherwise."""
    if not table.are_as_programs:
        return None
    kinds = {name: list(_NUMBERS) for name in table.columns if name not in texts}
    empty = pa.array(["", *missing])
    all_cells = dict.fromkeys(table.columns, pa.string())
    by_file = (join_batches(table.cells_of(file, all_cells), _EXAMINED_ROWS) for file in table.files)
    for batch in chain.from_iterable(by_file):
        for name, possible in kinds.items():
            if not possible:
                continue
            cells = batch.column(name)
            full = cells.filter(compute.not_equal(cells, ""))
            if _has_codes(full):
                kinds[name] = []
                continue
            kinds[name] = [kind for kind in possible if can_cast(full, kind)]
            if len(kinds[name]) < len(possible):  # some may be missing
                full = full.filter(compute.invert(compute.is_in(full, value_set=empty)))
                kinds[name] = [kind for kind in possible if can_cast(full, kind)]
            if not kinds[name] and any(_kinds(cells, decimal, list(_NUMBERS), missing) for decimal in _DECIMALS):
                return None
    return {name: possible[0] for name, possible in kinds.items() if possible}


def _signed_types(table: CsvTable, texts: TextColumns, missing: frozenset[str]) -> dict[str, Any]:
    """Return the types of columns of numbers by how each file writes them, which all cells of these columns prove."""
    looks = [_examine(table, file, texts, missing) for file in table.files]
    numeric = [name for name in table.columns if all(any(kinds.get(name, {}).values()) for kinds, _ in looks)]
    types = {name: list(_NUMBERS) for name in numeric}
    for file, (kinds, evidence) in zip(table.files, looks, strict=True):
        of_numbers = SignEvidence()
        for name in numeric:
            of_numbers.join(evidence[name])
        file.signs = decide_signs(of_numbers, table.csv_format, file.separator, f"data file {file.path}")
        types = {
            name: [kind for kind in possible if kind in kinds[name][file.signs.decimal]]
            for name, possible in types.items()
        }
    return {name: possible[0] for name, possible in types.items() if possible}


def _examine(
    table: CsvTable, file: CsvFile, texts: TextColumns, missing: frozenset[str]
) -> tuple[dict[str, dict[str, list[Any]]], dict[str, SignEvidence]]:
    """Find the types, by decimal sign, of each column that may hold numbers, and the signs that its cells prove."""
    candidates = [name for name in table.columns if name not in texts]
    kinds = {name: {decimal: list(_NUMBERS) for decimal in _DECIMALS} for name in candidates}
    evidence = {name: SignEvidence() for name in candidates}
    for batch in join_batches(table.cells_of(file, dict.fromkeys(table.columns, pa.string())), _EXAMINED_ROWS):
        for name, by_decimal in kinds.items():
            if not any(by_decimal.values()):
                continue
            cells = batch.column(name)
            if _has_codes(cells):
                by_decimal.update({decimal: [] for decimal in _DECIMALS})
                continue
            for decimal, possible in by_decimal.items():
                by_decimal[decimal] = _kinds(cells, decimal, possible, missing) if possible else []
            evidence[name].add(name, cells)
    return kinds, evidence


def _kinds(cells: Any, decimal: str, possible: list[Any], missing: frozenset[str]) -> list[Any]:  # noqa: ANN401 -- as above
    """Return those of some number types that texts fit, with a decimal sign."""
    cleaned = NumberSigns.of(decimal).cleaned(cells, missing)
    return [kind for kind in possible if can_cast(cleaned, kind)]


def _has_codes(column: Any) -> bool:  # noqa: ANN401 -- as above
    """Return whether a number begins with a 0 as codes do; cheap tests exclude most cells before a slow pattern."""
    bare = compute.utf8_ltrim(column, " \t\n\f\r+-")
    suspects = compute.and_not(
        compute.starts_with(bare, "0"), compute.or_(compute.starts_with(bare, "0."), compute.starts_with(bare, "0,"))
    )
    return bool(compute.any(compute.match_substring_regex(column.filter(suspects), _CODE)).as_py())


def _file_names(names: Sequence[str]) -> str:
    """Return names of files: the first of them, and how many more."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"
