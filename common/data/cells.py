"""What the cells of an owner's column hold: numbers, or codes of a category; and which of them hold nothing usable.

A column arrives as a NumPy array, or as `Coded` where it is of anything but numbers: then each distinct value is looked
at once, however many rows repeat it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real

import numpy as np
import numpy.typing as npt

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.encoding.spelling import spelling

MISSING_TEXTS = frozenset({
    "#N/A", "#N/A N/A", "#NA", "-", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", ".", "1.#IND", "1.#QNAN", "<NA>", "?", "N/A",
    "NA", "NULL", "NaN", "n/a", "nan", "null",
})  # fmt: skip
"""Texts that mean a missing value unless a study declares them: those of pyarrow's and pandas' readers, and
the signs ``?``, ``-`` and ``.``."""

MISSING, UNKNOWN = -1, -2
"""Codes of cells that hold no value, and of cells that hold one that the study does not know."""


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column (n,) of anything: row i holds ``values[codes[i]]``, or nothing where the code is negative."""

    codes: IntArray
    values: tuple[object, ...]

    def __len__(self) -> int:
        return len(self.codes)


Column = npt.NDArray[np.generic] | Coded
Block = Mapping[str, Column]
"""Some rows of some columns, as many of each."""


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Some rows' entries: places and values (m,) as they are told, NaN for what is no number.

    Row i of n has those from ``starts[i]`` to ``starts[i + 1]``; it is ``missing`` (n,) if it has no list at all.
    ``unequal`` (n,) says that it has more places than values, or fewer: then it has neither here.
    """

    places: FloatArray
    values: FloatArray
    starts: IntArray
    missing: BoolArray
    unequal: BoolArray


def as_coded(column: Column) -> Coded:
    """A column by its distinct values."""
    if isinstance(column, Coded):
        return column
    if column.dtype.kind in "Mm":
        times = as_coded(column.astype(str))
        return Coded(np.where(np.isnat(column), MISSING, times.codes), times.values)
    if column.dtype.kind == "O":  # objects of no known order
        index: dict[tuple[type, str], int] = {}
        values = column.tolist()
        codes = [index.setdefault((type(value), str(value)), len(index)) for value in values]
        first = dict(zip(reversed(codes), reversed(values), strict=True))
        return Coded(np.array(codes, dtype=np.int64), tuple(first[code] for code in range(len(first))))
    found, inverse = np.unique(column, return_inverse=True)
    return Coded(inverse.astype(np.int64), tuple(found.tolist()))


def as_numbers(column: Column) -> tuple[FloatArray, npt.NDArray[np.bool_] | None]:
    """A column's numbers (n,), NaN where a cell holds none, and (n,) where that is because it is not numeric.

    A truth value is 1 or 0; a number may be spelt as a text.
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiub":
        return column.astype(np.float64, copy=False), None
    if isinstance(column, np.ndarray) and column.dtype.kind in "Mm":
        return np.full(len(column), np.nan), ~np.isnat(column)
    coded = as_coded(column)
    found = [_number(value) for value in coded.values]
    odd = [math.isnan(number) and not _is_missing(value) for number, value in zip(found, coded.values, strict=True)]
    table, strange = np.array([*found, math.nan]), np.array([*odd, False])
    codes = np.where(coded.codes < 0, len(coded.values), coded.codes)
    return table[codes], strange[codes] if strange.any() else None


def as_codes(column: Column, known: Mapping[str | None, int], other: int | None = None) -> IntArray:
    """The codes (n,) of a column's values by their spellings, `MISSING` or `UNKNOWN` where they have none.

    ``other`` is the code of any value not known, where there is one.
    """
    coded = as_coded(column)
    table = np.array([*(_code(value, known, other) for value in coded.values), MISSING], dtype=np.int64)
    return np.asarray(table[np.where(coded.codes < 0, len(coded.values), coded.codes)])


def _code(value: object, known: Mapping[str | None, int], other: int | None) -> int:
    spelt = spelling(value)
    if spelt in known:
        return known[spelt]
    if _is_missing(value):
        return MISSING
    return UNKNOWN if other is None else other


def _is_missing(value: object) -> bool:
    """Whether a value stands for none; a text may say so."""
    return spelling(value) is None or (isinstance(value, str) and value.strip() in MISSING_TEXTS)


def _number(value: object) -> float:
    """A value's number, NaN where it is missing or not numeric; of a number past all floats, infinity."""
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
