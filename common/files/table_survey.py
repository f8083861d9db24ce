"""What a table is made of: names and kinds of columns, and, of a public table alone, their values and ranges."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.cells import MISSING_TEXTS, as_coded, as_numbers
from parley.common.encoding.spelling import spelling
from parley.common.errors import InvalidDataError
from parley.common.files.arrow_columns import column_of
from parley.common.files.column_names import check_header, identifier_words, person_words
from parley.common.files.file_tables import file_table, source_files
from parley.common.files.sources import DataSource
from parley.common.files.streams import TableStream
from parley.common.files.tables import check_columns
from parley.common.strict import PLAIN

ColumnKind = Literal["number", "text", "date", "figure", "mixed", "empty"]
"""A figure is a number with a sign that programs do not read; mixed are numbers beside a few texts."""

MOST_VALUES = 200
"""A category of more values than these is taken for free text."""
_FEW_ROWS = 20
"""Of fewer rows, all values of a column being different tells nothing."""
_NEARLY_ALL = 0.95
"""Of a public table, the share of rows from which on texts or integers are taken for different in each."""
_FEW, _FEW_SHARE = 100, 0.05
"""At most so many values, and so large a share of the rows, tell nobody apart, whatever a public column is called."""
_LEAST_CODE = 1000
"""Of fewer digits, whole numbers of equal length are no codes."""
_LEAST_RANGE = 1e-300
"""A smaller range has no two digits more."""
_DATE = re.compile(
    r"\s*(\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}"
    r"|(\d{1,2}[ -])?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[ -]\d{2,4})([ T].*)?",
    re.IGNORECASE,
)
_FIGURE = re.compile(r"\s*[$€£¥]?\s*[-+]?\d+([.,' ]\d{3})*([.,]\d+)?\s*[%$€£¥]?\s*")
_MANY_NUMBERS, _FEW_TEXTS = 20, 3
"""Of so many different numbers, or more, so many different texts, or fewer, stand for something that is missing."""
_WARNINGS: dict[ColumnKind, str] = {
    "date": "is a date: make a number of it, such as an age in years",
    "figure": "holds numbers with a comma, a % or a currency: write them plainly, such as 1234.5",
    "mixed": "holds numbers, but for a few texts: empty the cells that hold no number",
    "empty": "is empty",
}


@dataclass(frozen=True, slots=True)
class SurveyedColumn:
    """A column: its kind, and what a study should not take it for.

    Of public tables alone: ``values`` and what part of the rows that have one holds each, ``shares``; ``bounds``, the
    ``median``, the ``mean`` and its ``deviation``; and the share of rows that are ``blank``.
    """

    name: str
    kind: ColumnKind
    named_identifier: bool = False
    all_different: bool = False
    constant: bool = False
    values: tuple[str, ...] | None = None
    shares: tuple[float, ...] | None = None
    bounds: tuple[float, float] | None = None
    median: float | None = None
    mean: float | None = None
    deviation: float | None = None
    blank: float | None = None

    @property
    def warning(self) -> str | None:
        """Why a study should leave it out, or None."""
        if not re.match(PLAIN, self.name):
            return "has a name of more than one line of plain text: rename it"
        if self.named_identifier or self.all_different:
            return f"looks like an identifier: {'by its name' if self.named_identifier else 'its values differ by row'}"
        return _WARNINGS.get(self.kind) or ("holds one value only" if self.constant else None)


def survey_table(
    data: DataSource, *, public: bool = False, tell: Callable[[str], object] = str
) -> tuple[SurveyedColumn, ...]:
    """The columns of a source; their values and ranges only where it is said to be ``public``.

    How the source is read is told to ``tell``, in lines. Raises InvalidDataError for what is no table, or has no names,
    or no row, and as `open_stream`.
    """
    with _opened(data) as stream:
        table, where = pa.Table.from_batches(stream.batches(), stream.schema), stream.name
        for note in stream.notes:
            tell(note)
    if not table.num_rows:
        raise InvalidDataError(f"{where} has no row")
    return tuple(_surveyed(name, table.column(name).combine_chunks(), public=public) for name in table.column_names)


@contextmanager
def _opened(data: DataSource) -> Iterator[TableStream]:
    """The rows of a source, texts of CSV files as they stand there."""
    if source_files(data) is not None:
        stream = file_table(data.source, said=data.csv, as_texts=True)
        check_header(data.source, stream.schema.names)
        check_columns(stream.name, stream.schema.names)
        yield stream
        return
    from parley.common.files.named_tables import open_stream  # noqa: PLC0415 -- databases, for who has one

    with open_stream(data, as_texts=True) as stream:
        check_columns(stream.name, stream.schema.names)
        yield stream


def _surveyed(name: str, array: Any, *, public: bool) -> SurveyedColumn:  # noqa: ANN401 -- as above
    if pa.types.is_temporal(array.type):
        return SurveyedColumn(name, "date", identifier_words(name))
    coded = as_coded(column_of(array, as_number=False))
    texts = [text if (text := spelling(value)) and text not in MISSING_TEXTS else None for value in coded.values]
    spelt = {text for text in texts if text}
    numbers, strange = as_numbers(coded)
    found = numbers[np.isfinite(numbers)]
    kind = _kind(array, spelt, found, strange is None)
    n_rows = int((coded.codes >= 0).sum())
    values = tuple(sorted(spelt, key=_in_order)) if public and len(spelt) <= MOST_VALUES else None
    is_public_number = public and kind == "number"
    whole = kind == "number" and bool((found == np.trunc(found)).all())
    apart = kind == "text" or whole
    different = apart and n_rows >= _FEW_ROWS and len(spelt) >= n_rows * (_NEARLY_ALL if public else 1)
    named = identifier_words(name) and not (public and (not apart or _few(len(spelt), n_rows)))
    return SurveyedColumn(
        name,
        kind,
        named_identifier=named or (person_words(name) and apart and len(spelt) > 2),  # noqa: PLR2004 -- yes and no
        all_different=different and not (whole and _quantity(found)),
        constant=len(spelt) == 1,
        values=values,
        shares=_shares(values, texts, coded.codes) if values else None,
        bounds=_rounded(found) if is_public_number else None,
        median=float(f"{np.median(found):.12g}") if is_public_number else None,
        mean=float(found.mean()) if is_public_number else None,
        deviation=float(found.std()) if is_public_number else None,
        blank=float(np.array([*(text is None for text in texts), True])[coded.codes].mean()) if public else None,
    )


def _kind(array: Any, spelt: set[str], found: FloatArray, all_numbers: bool) -> ColumnKind:  # noqa: ANN401, FBT001
    """What a column holds, by all of its values."""
    if not spelt:
        return "empty"
    if all_numbers and len(found):
        return "number"
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        if all(map(_DATE.fullmatch, spelt)):
            return "date"
        if all(map(_FIGURE.fullmatch, spelt)):
            return "figure"
        n_numbers = len(np.unique(found))
        if n_numbers >= _MANY_NUMBERS and len(spelt) - n_numbers <= _FEW_TEXTS:
            return "mixed"
    return "text"


def _shares(values: Sequence[str], texts: Sequence[str | None], codes: IntArray) -> tuple[float, ...]:
    """What part of the rows that hold any value holds each; ``texts`` has that of each code, -1 is none."""
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    each = dict.fromkeys(values, 0)
    for text, count in zip(texts, counts.tolist(), strict=True):
        if text:
            each[text] += count
    total = sum(each.values())
    return tuple(count / total for count in each.values())


def _few(n_values: int, n_rows: int) -> bool:
    """Whether values are too few for the rows to tell who somebody is."""
    return n_rows >= _FEW_ROWS and n_values <= max(2, min(_FEW, n_rows * _FEW_SHARE))


def _quantity(found: FloatArray) -> bool:
    """Whether whole numbers that hardly repeat may well measure something, such as seconds or amounts.

    They do where numbers drawn from their range would hardly repeat either, unless all are written alike: as codes of
    so many digits.
    """
    lower, upper = float(found.min()), float(found.max())
    n, places = len(found), upper - lower + 1
    by_chance = n + places * math.expm1(-n / places)
    repeats = n - len(np.unique(found))
    coded = lower >= _LEAST_CODE and math.floor(math.log10(lower)) == math.floor(math.log10(upper))
    return not coded and repeats + 2 * math.sqrt(by_chance) >= by_chance


def _in_order(value: str) -> tuple[bool, float, str]:
    """Numbers by size, then texts."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value


def _rounded(found: FloatArray) -> tuple[float, float]:
    """Bounds around numbers, by two digits of the range more: what is proposed should not be one record's number."""
    lower, upper = float(found.min()), float(found.max())
    if lower == upper:
        return lower - 1, upper + 1
    if not _LEAST_RANGE < upper - lower < math.inf:
        return lower, upper
    places = 1 - math.floor(math.log10(upper - lower))
    step = 10.0**-places
    low, high = round(math.floor(lower / step) * step, places), round(math.ceil(upper / step) * step, places)
    low, high = min(low, lower), max(high, upper)  # of a range of few units in the last place no rounding is finer
    return max(low, 0.0) if lower >= 0 else low, high
