"""The cells of an owner's columns: their numbers, or codes of a category, and what the owner says about them.

A column arrives as a NumPy array, or as `Coded` if it holds anything but numbers: then each distinct value is read
once, however many rows repeat it. `CellRules` are the owner's: what a table's values mean in the study's words, and
whether numbers out of bounds are clipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real

import numpy as np
import numpy.typing as npt

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.columns import Category, Label
from parley.common.data.study import Study
from parley.common.encoding.texts import spelling
from parley.common.errors import InvalidDataError

MISSING_TEXTS = frozenset({
    "#N/A", "#N/A N/A", "#NA", "-", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", ".", "1.#IND", "1.#QNAN", "<NA>", "?", "N/A",
    "NA", "NULL", "NaN", "n/a", "nan", "null",
})  # fmt: skip
"""Texts that mean a missing value unless a study declares them: those of pyarrow's and pandas' readers, and
the signs ``?``, ``-`` and ``.``."""

ROUNDED_SIGN = "\N{ALMOST EQUAL TO}"
"""What a number begins with that `is_rounded`, where identifiers are numbers and texts, and become texts."""
MISSING, UNLISTED = -1, -2
"""Codes of cells that hold no value, and of cells whose value the study does not list."""


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column (n,) of anything: row i holds ``values[codes[i]]``, or nothing if the code is negative."""

    codes: IntArray
    values: tuple[object, ...]

    def __len__(self) -> int:
        return len(self.codes)


Column = npt.NDArray[np.generic] | Coded
Block = Mapping[str, Column]
"""Some rows of some columns, as many of each."""


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The entries of some rows: places and values (m,) as they are in the table, NaN for anything but a number.

    Row i of n has those from ``starts[i]`` to ``starts[i + 1]``; it is ``missing`` (n,) if it has no list at all.
    ``unequal`` (n,) says that it has more places than values, or fewer: then it has neither here.
    """

    places: FloatArray
    values: FloatArray
    starts: IntArray
    missing: BoolArray
    unequal: BoolArray


def as_coded(column: Column) -> Coded:
    """Return a column by its distinct values."""
    if isinstance(column, Coded):
        return column
    if column.dtype.kind in "Mm":
        times = as_coded(column.astype(str))
        return Coded(np.where(np.isnat(column), MISSING, times.codes), times.values)
    if column.dtype.kind == "O":  # objects may have no order
        index: dict[tuple[type, str], int] = {}
        values = column.tolist()
        codes = [index.setdefault((type(value), str(value)), len(index)) for value in values]
        first = dict(zip(reversed(codes), reversed(values), strict=True))
        return Coded(np.array(codes, dtype=np.int64), tuple(first[code] for code in range(len(first))))
    distinct, inverse = np.unique(column, return_inverse=True)
    return Coded(inverse.astype(np.int64), tuple(distinct.tolist()))


def is_rounded(value: object) -> bool:
    """Whether a number has no whole number of its own: two, beside each other, may have become one.

    >>> [is_rounded(value) for value in (2.0**53 - 1, 2.0**53, 2**60, "1e60")]
    [False, True, False, False]
    """
    return isinstance(value, float) and abs(value) >= 2.0**53


def as_numbers(column: Column) -> tuple[FloatArray, npt.NDArray[np.bool_] | None]:
    """Return a column's numbers (n,), NaN if a cell holds none, and (n,) whether that is because it is not numeric.

    A truth value is 1 or 0; a number may be spelt as a text.
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiub":
        return column.astype(np.float64, copy=False), None
    if isinstance(column, np.ndarray) and column.dtype.kind in "Mm":
        return np.full(len(column), np.nan), ~np.isnat(column)
    coded = as_coded(column)
    numbers = [_number(value) for value in coded.values]
    odd = [math.isnan(number) and not _is_missing(value) for number, value in zip(numbers, coded.values, strict=True)]
    table, strange = np.array([*numbers, math.nan]), np.array([*odd, False])
    codes = np.where(coded.codes < 0, len(coded.values), coded.codes)
    return table[codes], strange[codes] if strange.any() else None


def as_codes(column: Column, codes_by_spelling: Mapping[str | None, int], other: int | None = None) -> IntArray:
    """Return the codes (n,) of a column's values by their spellings, or `MISSING` or `UNLISTED`.

    ``other`` is the code of every unlisted value, if there is one.
    """
    coded = as_coded(column)
    table = np.array([*(_code(value, codes_by_spelling, other) for value in coded.values), MISSING], dtype=np.int64)
    return np.asarray(table[np.where(coded.codes < 0, len(coded.values), coded.codes)])


def _code(value: object, codes_by_spelling: Mapping[str | None, int], other: int | None) -> int:
    spelt = spelling(value)
    if spelt in codes_by_spelling:
        return codes_by_spelling[spelt]
    if _is_missing(value):
        return MISSING
    return UNLISTED if other is None else other


def _is_missing(value: object) -> bool:
    """Whether a value stands for a missing one; a text may say so."""
    return spelling(value) is None or (isinstance(value, str) and value.strip() in MISSING_TEXTS)


def _number(value: object) -> float:
    """Return a value's number: NaN if it is missing or not numeric, infinity if it is too large for a float."""
    if isinstance(value, str):
        text = spelling(value) or ""
        value = {"True": 1, "False": 0}.get(text, "" if "_" in text else text)
    if not isinstance(value, Real | Decimal | str):
        return math.nan
    try:
        return float(value)
    except ValueError:
        return math.nan
    except OverflowError:
        return -math.inf if isinstance(value, int) and value < 0 else math.inf


Meanings = Mapping[str, str]
"""The meanings of a column's values: a value as it is spelt, and a value of the study, or nothing for a missing one."""


@dataclass(frozen=True, slots=True)
class CellRules:
    """An owner's rules for cells: ``clip`` is whether numbers beyond bounds are clipped; ``values`` are meanings.

    >>> CellRules(values={"smoker": {"True": "yes", "False": "no"}, "age": {"-999": ""}})
    CellRules(clip=False, values={'smoker': {'True': 'yes', 'False': 'no'}, 'age': {'-999': ''}})
    """

    clip: bool = False
    values: Mapping[str, Meanings] = field(default_factory=dict)

    def check(self, study: Study) -> None:
        """Raise InvalidDataError for a column that is not the study's, or a meaning that the study does not list."""
        columns = {feature.name: feature for feature in (*study.named, study.label)}
        for name, meanings in self.values.items():
            if (column := columns.get(name)) is None:
                raise InvalidDataError(f"data.values: the study has no column {name!r}")
            for meaning in meanings.values():
                if spelling(meaning) is None:
                    continue
                if isinstance(column, Category | Label):
                    if spelling(meaning) not in column.codes:
                        raise InvalidDataError(f"data.values: the study knows no value {meaning!r} of column {name!r}")
                elif _number_in(meaning) is None:
                    raise InvalidDataError(f"data.values: {meaning!r}, a meaning in column {name!r}, is no number")

    def has_meaning(self, name: str, value: float) -> bool:
        """Whether the owner says what a number means in a column."""
        return any(_number_in(text) == value for text in self.values.get(name, ()))

    def read(self, name: str, column: Column) -> Column:
        """Replace each value of a column (n,) by its meaning."""
        meanings = self.values.get(name)
        if not meanings:
            return column
        if isinstance(column, np.ndarray) and column.dtype.kind in "fiu" and all(map(_is_numeric, meanings.values())):
            numbers = column.astype(np.float64)
            for text, meaning in meanings.items():
                if (number := _number_in(text)) is not None:
                    numbers[column == number] = math.nan if spelling(meaning) is None else float(meaning)
            return numbers
        coded = as_coded(column)
        by_spelling = {spelling(text): meaning or None for text, meaning in meanings.items()}
        return Coded(coded.codes, tuple(by_spelling.get(spelling(value), value) for value in coded.values))


AS_THEY_ARE = CellRules()
"""No rules: every cell means what it says."""


def said_values(texts: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Read meanings by column from texts ``COLUMN:VALUE=MEANING``. Raises InvalidDataError for another text.

    >>> said_values(("smoker:True=yes", "smoker:False=no", "age:-999="))
    {'smoker': {'True': 'yes', 'False': 'no'}, 'age': {'-999': ''}}
    """
    by_column: dict[str, dict[str, str]] = {}
    for text in texts:
        column, colon, pair = text.partition(":")
        value, equals, meaning = pair.rpartition("=")
        if not (column and colon and equals and value):
            raise InvalidDataError("--value: say COLUMN:VALUE=MEANING, and nothing after = for a missing value")
        by_column.setdefault(column, {})[value] = meaning
    return by_column


def _number_in(text: str) -> float | None:
    """Return the number that a text spells, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def _is_numeric(meaning: str) -> bool:
    """Whether a meaning is a number or a missing value."""
    return spelling(meaning) is None or _number_in(meaning) is not None
