"""A study from what a table is made of and what its author says: pure, and refused where either leaves a gap.

What becomes of the rows of a public table under the study that was drafted of it: how many would be kept empty.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from parley.common.data.columns import OTHER, Missing, missing_policy
from parley.common.data.study import Study
from parley.common.encoding.texts import so_many, spelling
from parley.common.errors import InvalidInputError
from parley.common.files.column_names import similar_name
from parley.common.files.sources import DataSource, split_inner_table
from parley.common.files.study_fit import MOST_VALUES, StudyFit, SurveyedColumn, fit_of_source

Asking = Callable[[str, str], str]
"""Asks for ``bounds``, ``values`` or a ``label``: what, and what is proposed; returns what was typed."""

_FEW_CLASSES = 10
_MOST_NAMED = 5
_SOME_VALUES, _SOME_BOUNDS = "VALUE,VALUE", "LOWER:UPPER"


@dataclass(frozen=True, slots=True)
class Sayings:
    """What the author of a study says of it, by column; ``columns`` are asked for though they look like identifiers.

    ``public`` is whether the table is said to be. ``shares``, ``mean`` and ``deviation`` are what is known of the
    label.
    """

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
    missing: Missing = "drop"
    fills: Mapping[str, str] = field(default_factory=dict)
    other: bool = False
    public: bool = False
    shares: Mapping[str, float] = field(default_factory=dict)
    mean: float | None = None
    deviation: float | None = None

    @property
    def asked_for(self) -> frozenset[str]:
        """The columns that are named."""
        return frozenset({*self.bounds, *self.values, *self.fills, *self.columns})

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
        near = similar_name(unknown[0], known)
        more = "" if near is None else f"; say {near!r}, as it does"
        raise InvalidInputError(f"the table has no column {', '.join(map(repr, unknown[:_MOST_NAMED]))}{more}")
    label = said.label if said.label is not None else _asked_label(columns, ask)
    if label in said.fills:
        raise InvalidInputError(f"--fill {label}: nothing stands in for a label that is missing")
    left_out, doubtful = _sorted_out(columns, said, label)
    chosen = [each for each in columns if each.name not in left_out and each.name != label]
    if not chosen:
        raise InvalidInputError("no column is left to learn from: ask for some by --column")
    gaps: list[str] = []
    features = [_feature(each, said, ask, gaps) for each in chosen]
    target = _label(known[label], said, ask, gaps)
    if gaps:
        raise InvalidInputError(
            _not_said(gaps, known[label], said, [name for name in left_out if name not in said.left_out])
        )
    terms = {
        "name": said.name,
        "title": said.title or said.name.replace("_", " ").replace("-", " ").capitalize(),
        "purpose": said.purpose,
        "features": features,
        "label": target,
        # nothing stands in for a label: where a public one has blanks, its rows are kept as empty ones, not refused
        "missing": "drop" if said.missing == "value" and known[label].blank else said.missing,
    }
    try:
        return StudyDraft(Study.model_validate(terms), left_out, doubtful)
    except ValidationError as error:
        raise InvalidInputError(_wrong(error, [each.name for each in chosen])) from None


def _not_said(gaps: Sequence[str], label: SurveyedColumn, said: Sayings, left_out: Sequence[str]) -> str:
    """All flags that are still to be said, ready to be copied: what stands for a value is refused where it is left."""
    told = f"not said; add these with what is true of each: {' '.join(gaps)}"
    if _flag("--bounds", label.name, _SOME_BOUNDS) in gaps:
        told += f"; or {_flag('--values', label.name, _SOME_VALUES)}, if the label {label.name!r} is of classes"
    if left_out:
        told += f"; left out, unless you say --column NAME: {_listed(left_out)}"
    if not said.public:
        return f"{told}; or be asked, by --ask; or say --public, if the file is"
    if any(gap.startswith("--values") for gap in gaps):
        told += f"; or --leave-out NAME what holds more than {MOST_VALUES} different texts"
    return told


def _flag(option: str, name: str, value: str) -> str:
    """An option as a shell takes it."""
    return f"{option} {shlex.quote(f'{name}={value}')}"


def _wrong(error: ValidationError, names: Sequence[str]) -> str:
    """What is wrong with a study, by column and in the words of whoever found it; never where models keep it."""
    told, follows = [], {("too_short", ("features",))}  # from the fault of a feature
    for fault in error.errors(include_input=False, include_url=False, include_context=False):
        words = fault["msg"].removeprefix("Value error, ")
        match fault["loc"]:
            case loc if (fault["type"], loc) in follows or fault["type"] == "default_factory_not_called":
                continue
            case _ if words.startswith(("column '", "label '")):
                told.append(words)
            case ("features", int(place), _, *path) if path:
                told.append(f"column {names[place]!r}: {path[0]}: {words}")
            case ("label", _, *path) if path:
                told.append(f"label: {path[0]}: {words}")
            case loc:
                told.append(": ".join([*map(str, loc[:1]), words]))
    return "; ".join(told)


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
        other = said.other or (name not in said.values and column.values is not None)
        named = [value for value in values if not (other and spelling(value) == OTHER)]  # which `other` covers
        values, other = (named, other) if named else (values, False)
        words = f"one of {len(values)} values{', or another' if other else ''}"
        terms: dict[str, Any] = {
            "name": name,
            "description": said.descriptions.get(name, words),
            "values": values,
            "other": other,
        }
        return terms | _fill(name, OTHER if other else None, said, ask, gaps)
    terms = _number(column, said, ask, gaps)
    lower, upper = terms["lower"], terms["upper"]
    middle = (lower + upper) / 2 if column.median is None else min(max(column.median, lower), upper)
    fill = _fill(name, middle, said, ask, gaps)
    try:
        return terms | {key: float(value) for key, value in fill.items()}
    except ValueError:
        raise InvalidInputError(f"--fill {name}: column {name!r} holds numbers, so a number must stand in") from None


def _fill(
    name: str, default: float | str | None, said: Sayings, ask: Asking | None, gaps: list[str]
) -> dict[str, float | str]:
    """What stands in for a missing value: as is said; or where all are filled, the default, or what is asked for."""
    if name in said.fills or said.missing != "value":
        return {"fill": said.fills[name]} if name in said.fills else {}
    if default is None and ask is not None:
        default = ask(f"fill of {name}, in place of a missing value", "")
    if default is None:
        gaps.append(_flag("--fill", name, "VALUE"))
    return {} if default is None else {"fill": default}


def _number(column: SurveyedColumn, said: Sayings, ask: Asking | None, gaps: list[str]) -> dict[str, Any]:
    """A number's terms; raises InvalidInputError for a column of anything else."""
    name = column.name
    if column.kind in {"figure", "mixed"}:
        raise InvalidInputError(f"--bounds {name}: column {name!r} {column.warning}")
    if column.kind in {"text", "date"}:
        raise InvalidInputError(
            f"--bounds {name}: column {name!r} does not hold numbers: say --values, or leave it out"
        )
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
        return _number(column, said, ask, gaps) | _usual(column, said)
    values = _values(column, said, ask, gaps)
    if said.positive is not None and values:
        positive = next((value for value in values if spelling(value) == spelling(said.positive)), None)
        if positive is None or len(values) != 2:  # noqa: PLR2004
            raise InvalidInputError(f"--positive must be one of two values of the label, which has {_listed(values)}")
        values = [*(value for value in values if value != positive), positive]
    words = said.descriptions.get(name, f"to be learnt: one of {len(values)} classes")
    return {"name": name, "description": words, "values": values} | _shares(values, column, said)


def _shares(values: Sequence[str], column: SurveyedColumn, said: Sayings) -> dict[str, Any]:
    """What part of the population each class is: as was said, or as a public table has it."""
    if said.mean is not None or said.deviation is not None:
        raise InvalidInputError(f"--mean, --deviation: the label {column.name!r} is of classes: say --share")
    public = dict(zip(column.values, column.shares, strict=True)) if column.values and column.shares else {}
    known = said.shares or {value: round(part, 3) for value, part in public.items()}
    if said.shares and said.shares.keys() != set(values):
        raise InvalidInputError(f"--share: say one of each value of the label, which has {_listed(values)}")
    if known.keys() != set(values) or not all(0 < part < 1 for part in known.values()):
        return {}
    return {"shares": [known[value] for value in values]}


def _usual(column: SurveyedColumn, said: Sayings) -> dict[str, Any]:
    """The label's mean and deviation: as was said, or as a public table has them."""
    if said.shares:
        raise InvalidInputError(f"--share: the label {column.name!r} is a number: say --mean and --deviation")
    if said.mean is not None or said.deviation is not None:
        return {"mean": said.mean, "deviation": said.deviation}
    if column.mean is None or not column.deviation or column.name in said.bounds:
        return {}
    return {"mean": float(f"{column.mean:.3g}"), "deviation": float(f"{column.deviation:.2g}")}


def _values(column: SurveyedColumn, said: Sayings, ask: Asking | None, gaps: list[str]) -> list[str]:
    name = column.name
    if name in said.values:
        return list(said.values[name])
    if ask is not None:
        proposed = ",".join(map(_quoted, column.values or ()))
        return split_values(ask(f"values of {name}, with commas between", proposed))
    if column.values is None:
        gaps.append(_flag("--values", name, _SOME_VALUES))
    return list(column.values or ())


def _bounds(column: SurveyedColumn, said: Sayings, ask: Asking | None, gaps: list[str]) -> tuple[float, float]:
    name = column.name
    if name in said.bounds:
        return said.bounds[name]
    if ask is not None:
        proposed = "{:.12g}:{:.12g}".format(*column.bounds) if column.bounds else ""
        return split_bounds(name, ask(f"bounds of {name}, LOWER:UPPER", proposed))
    if column.bounds is None:
        gaps.append(_flag("--bounds", name, _SOME_BOUNDS))
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


def _listed(values: Sequence[str]) -> str:
    """Values that are public or were typed, a few of many."""
    more = f" and {len(values) - _MOST_NAMED:,} more" if len(values) > _MOST_NAMED else ""
    return f"{', '.join(map(repr, values[:_MOST_NAMED]))}{more}"


def study_name(data: DataSource) -> str:
    """What a study of a source is called if nothing is said: after its file, its folder of files, or its table.

    >>> [study_name(DataSource(source=at)) for at in ("loans.csv", "visits/*.csv", "lab.sqlite::labs", "SELECT 1")]
    ['loans', 'visits', 'labs', 'study']
    """
    if data.is_query:
        return next(iter(data.tables), "study")
    if (found := split_inner_table(data.source)) is not None:
        return found[1]
    path = Path(data.source)
    named = path.parent.name or "study"
    return named if "*" in path.stem else path.stem


_MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class OwnRows:
    """How a public table fits its study; ``blanks`` are shares of rows, by column, most first, of what is not filled.

    ``label`` is the column to be learnt, which is neither filled nor left out.
    """

    fit: StudyFit
    blanks: Mapping[str, float]
    label: str

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"fits": self.fit.fits, "dropped": self.fit.dropped, "blanks": dict(self.blanks)}

    def lines(self) -> list[str]:
        """For people: nothing where all rows are used."""
        if not self.fit.fits:
            kinds = ((name, kind, rows) for name, counts in self.fit.faults.items() for kind, rows in counts.items())
            told = [f"{name}: {kind}: {so_many(rows, 'row')}" for name, kind, rows in kinds]
            return ["warning: this file does not fit the study itself", *_few(told), *self._blanks()]
        if not self.fit.dropped:
            return []
        share = f"{self.fit.dropped:.2%} of the rows of this file miss a value"
        return [f"warning: {share}: they would be kept as empty ones, and teach nothing", *self._blanks()]

    def _blanks(self) -> list[str]:
        """The columns with the most blanks, and what helps."""
        if not self.blanks:
            return []
        of_label = {self.label: " (the label)"}
        told = [f"{name!r}{of_label.get(name, '')} {share:.2%}" for name, share in self.blanks.items()]
        lines = [f"most blanks: {', '.join(_few(told))}"]
        if self.blanks.keys() - {self.label}:
            lines.append(
                "--leave-out NAME does without a column, --fill NAME=VALUE fills one, --missing value fills all"
            )
        return lines


def _few(told: Sequence[str]) -> list[str]:
    """The first, and how many more there are."""
    more = len(told) - _MOST_TOLD
    return [*told[:_MOST_TOLD], *([f"and {more:,} more"] if more > 0 else [])]


def own_rows(study: Study, data: DataSource, columns: Sequence[SurveyedColumn]) -> OwnRows:
    """How the public table fits of which a study was drafted. Raises InvalidDataError where it cannot be loaded."""
    filled = {each.name for each in study.named if missing_policy(each, study.missing) == "value"}
    wanted = frozenset(study.table_names) - filled
    blank = [(each.name, each.blank) for each in columns if each.name in wanted and each.blank]
    blanks = dict(sorted(blank, key=lambda pair: -pair[1]))
    return OwnRows(fit_of_source(study, data), blanks, study.label.name)
