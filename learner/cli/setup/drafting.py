"""A study from what a table is made of and what its author says: pure, and refused where either leaves a gap."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from common.data.study import Study
from common.errors import InvalidInputError
from common.files.table_survey import SurveyedColumn
from common.strict import faults

Asking = Callable[[str, str], str]
"""Asks for ``bounds``, ``values`` or a ``label``: what, and what is proposed; returns what was typed."""

_FEW_CLASSES = 10
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Sayings:
    """What the author of a study says of it, by column; ``columns`` are asked for though they look like identifiers."""

    name: str
    label: str | None = None
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    positive: str | None = None
    columns: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    units: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    purpose: str = ""
    missing: Literal["refuse", "drop"] = "drop"
    other: bool = False

    @property
    def asked_for(self) -> frozenset[str]:
        """The columns that are named."""
        return frozenset({*self.bounds, *self.values, *self.columns})

    @property
    def named(self) -> frozenset[str]:
        """Every column that is spoken of."""
        label = {self.label} if self.label is not None else set()
        return frozenset({*self.asked_for, *self.left_out, *self.units, *self.descriptions, *label})


@dataclass(frozen=True, slots=True)
class StudyDraft:
    """A study, and what its author should know: which columns were left out, and why; which are in nevertheless."""

    study: Study
    left_out: Mapping[str, str]
    doubtful: Mapping[str, str]


def draft_study(columns: Sequence[SurveyedColumn], said: Sayings, ask: Asking | None = None) -> StudyDraft:
    """A study of a table's columns in its order; what was not said is taken from public values, or asked for.

    Raises InvalidInputError for columns that the table has not, and for all that is still missing where nobody can be
    asked.
    """
    known = {column.name: column for column in columns}
    if unknown := sorted(said.named - known.keys()):
        raise InvalidInputError(f"the table has no column {', '.join(map(repr, unknown[:_MOST_NAMED]))}")
    label = said.label if said.label is not None else _asked_label(columns, ask)
    left_out, doubtful = _sorted_out(columns, said, label)
    chosen = [each for each in columns if each.name not in left_out and each.name != label]
    if not chosen:
        raise InvalidInputError("no column is left to learn from: ask for some by --column")
    gaps: list[str] = []
    features = [_feature(each, said, ask, gaps) for each in chosen]
    target = _label(known[label], said, ask, gaps)
    if gaps:
        more = f", and {len(gaps) - _MOST_NAMED:,} columns more" if len(gaps) > _MOST_NAMED else ""
        raise InvalidInputError(
            f"not said: {'; '.join(gaps[:_MOST_NAMED])}{more}; all may be taken from a file that is --public"
        )
    terms = {
        "name": said.name,
        "title": said.title or said.name.replace("_", " ").replace("-", " ").capitalize(),
        "purpose": said.purpose,
        "features": features,
        "label": target,
        "missing": said.missing,
    }
    try:
        return StudyDraft(Study.model_validate(terms), left_out, doubtful)
    except ValidationError as error:
        raise InvalidInputError(f"no study comes of that: {faults(error)}") from None


def _asked_label(columns: Sequence[SurveyedColumn], ask: Asking | None) -> str:
    if ask is None:
        raise InvalidInputError("--label: say which column is to be learnt")
    label, names = "", {each.name for each in columns}
    while label not in names:
        label = ask("the column to be learnt", columns[-1].name)
    return label


def _sorted_out(columns: Iterable[SurveyedColumn], said: Sayings, label: str) -> tuple[dict[str, str], dict[str, str]]:
    """Columns that are left out and why, and those that are taken though there is a reason."""
    left_out, doubtful = {}, {}
    for each in columns:
        if each.name in said.left_out and each.name != label:
            left_out[each.name] = "as you said"
        elif (each.name in said.asked_for or each.name == label) and each.warning:
            doubtful[each.name] = each.warning
        elif each.name != label and each.name not in said.asked_for and each.warning:
            left_out[each.name] = each.warning
    return left_out, doubtful


def _feature(column: SurveyedColumn, said: Sayings, ask: Asking | None, gaps: list[str]) -> dict[str, Any]:
    """A feature's terms; what is not said goes to the gaps."""
    name = column.name
    if name in said.values or (column.kind != "number" and name not in said.bounds):
        values = _values(column, said, ask, gaps)
        other = (said.other or (name not in said.values and column.values is not None)) and "other" not in values
        words = f"one of {len(values)} values{', or another' if other else ''}"
        return {"name": name, "description": said.descriptions.get(name, words), "values": values, "other": other}
    return _number(column, said, ask, gaps)


def _number(column: SurveyedColumn, said: Sayings, ask: Asking | None, gaps: list[str]) -> dict[str, Any]:
    """A number's terms."""
    name = column.name
    lower, upper = _bounds(column, said, ask, gaps)
    unit = said.units.get(name, "")
    words = f"a number from {lower:.12g} to {upper:.12g}{f' {unit}' if unit else ''}"
    described = {"name": name, "description": said.descriptions.get(name, words)}
    return {**described, **({"unit": unit} if unit else {}), "lower": lower, "upper": upper}


def _label(column: SurveyedColumn, said: Sayings, ask: Asking | None, gaps: list[str]) -> dict[str, Any]:
    """The label's terms: classes, or a number."""
    name = column.name
    few = column.values is not None and len(column.values) <= _FEW_CLASSES
    if name in said.bounds or (column.kind == "number" and name not in said.values and not few and not said.positive):
        return _number(column, said, ask, gaps)
    values = _values(column, said, ask, gaps)
    if said.positive is not None and values:
        if said.positive not in values or len(values) != 2:  # noqa: PLR2004
            raise InvalidInputError("--positive must be one of the two values of the label")
        values = [*(value for value in values if value != said.positive), said.positive]
    words = said.descriptions.get(name, f"to be learnt: one of {len(values)} classes")
    return {"name": name, "description": words, "values": values}


def _values(column: SurveyedColumn, said: Sayings, ask: Asking | None, gaps: list[str]) -> list[str]:
    name = column.name
    if name in said.values:
        return list(said.values[name])
    if ask is not None:
        proposed = ",".join(map(_quoted, column.values or ()))
        return split_values(ask(f"values of {name}, with commas between", proposed))
    if column.values is None:
        gaps.append(f"--values {name}=...")
    return list(column.values or ())


def _bounds(column: SurveyedColumn, said: Sayings, ask: Asking | None, gaps: list[str]) -> tuple[float, float]:
    name = column.name
    if name in said.bounds:
        return said.bounds[name]
    if ask is not None:
        proposed = "{:.12g}:{:.12g}".format(*column.bounds) if column.bounds else ""
        return split_bounds(name, ask(f"bounds of {name}, LOWER:UPPER", proposed))
    if column.bounds is None:
        gaps.append(f"--bounds {name}=LOWER:UPPER")
    return column.bounds or (0.0, 1.0)


def split_values(text: str) -> list[str]:
    """Values with commas between; one that has a comma stands in double quotes.

    >>> split_values('a, "b, c"')
    ['a', 'b, c']
    """
    return [value.strip() for value in next(csv.reader([text], skipinitialspace=True), [])]


def split_bounds(name: str, text: str) -> tuple[float, float]:
    """LOWER:UPPER as numbers; raises InvalidInputError that names the column."""
    lower, _, upper = text.partition(":")
    try:
        return float(lower), float(upper)
    except ValueError:
        raise InvalidInputError(f"bounds of {name!r}: two numbers, LOWER:UPPER") from None


def _quoted(value: str) -> str:
    return f'"{value}"' if "," in value else value


def study_name(path: Path) -> str:
    """What a study of a file is called if nothing is said."""
    return path.stem
