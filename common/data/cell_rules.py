"""What an owner says of the cells of a table: what its values mean in the study's words, and what is out of bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from parley.common.data.cells import Coded, Column, as_coded
from parley.common.data.columns import Category, Label
from parley.common.data.study import Study
from parley.common.encoding.spelling import spelling
from parley.common.errors import InvalidDataError

Meanings = Mapping[str, str]
"""What values of a column mean: a value as it is spelt, and a value of the study, or nothing for a missing one."""


@dataclass(frozen=True, slots=True)
class CellRules:
    """What an owner says of cells: ``clip`` is whether numbers beyond bounds are clipped; ``values`` are meanings.

    >>> CellRules(values={"smoker": {"True": "yes", "False": "no"}, "age": {"-999": ""}})
    CellRules(clip=False, values={'smoker': {'True': 'yes', 'False': 'no'}, 'age': {'-999': ''}})
    """

    clip: bool = False
    values: Mapping[str, Meanings] = field(default_factory=dict)

    def check(self, study: Study) -> None:
        """Raise InvalidDataError for a column that is not the study's, and for a meaning that it does not know."""
        columns = {each.name: each for each in (*study.named, study.label)}
        for name, meanings in self.values.items():
            if (column := columns.get(name)) is None:
                raise InvalidDataError(f"data.values: the study has no column {name!r}")
            for meaning in meanings.values():
                if spelling(meaning) is None:
                    continue
                if isinstance(column, Category | Label):
                    if spelling(meaning) not in column.codes:
                        raise InvalidDataError(f"data.values: the study knows no value {meaning!r} of column {name!r}")
                elif _number(meaning) is None:
                    raise InvalidDataError(f"data.values: {meaning!r}, a meaning in column {name!r}, is no number")

    def is_said(self, name: str, value: float) -> bool:
        """Whether the owner says what a number means in a column."""
        return any(_number(text) == value for text in self.values.get(name, ()))

    def read(self, name: str, column: Column) -> Column:
        """A column (n,) in which each value is what it means."""
        meanings = self.values.get(name)
        if not meanings:
            return column
        if isinstance(column, np.ndarray) and column.dtype.kind in "fiu" and all(map(_is_numeric, meanings.values())):
            numbers = column.astype(np.float64)
            for text, meaning in meanings.items():
                if (number := _number(text)) is not None:
                    numbers[column == number] = math.nan if spelling(meaning) is None else float(meaning)
            return numbers
        coded = as_coded(column)
        by_spelling = {spelling(text): meaning or None for text, meaning in meanings.items()}
        return Coded(coded.codes, tuple(by_spelling.get(spelling(value), value) for value in coded.values))


AS_THEY_ARE = CellRules()
"""No rules: cells mean what they say."""


def said_values(texts: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Meanings by column, of texts ``COLUMN:VALUE=MEANING``; raises InvalidDataError for another text.

    >>> said_values(("smoker:True=yes", "smoker:False=no", "age:-999="))
    {'smoker': {'True': 'yes', 'False': 'no'}, 'age': {'-999': ''}}
    """
    by_column: dict[str, dict[str, str]] = {}
    for text in texts:
        column, colon, rest = text.partition(":")
        value, equals, meaning = rest.rpartition("=")
        if not (column and colon and equals and value):
            raise InvalidDataError("--value: say COLUMN:VALUE=MEANING, and nothing after = for a missing value")
        by_column.setdefault(column, {})[value] = meaning
    return by_column


def _number(text: str) -> float | None:
    """The number that a text spells, if it does."""
    try:
        return float(text)
    except ValueError:
        return None


def _is_numeric(meaning: str) -> bool:
    """Whether a meaning is a number or a missing one."""
    return spelling(meaning) is None or _number(meaning) is not None
