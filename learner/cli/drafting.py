"""Drafts a study from the columns of a table and the choices of its author.

`draft_study` does no input or output of its own: what the author has not chosen is taken from the values of a public
table, or asked for through a `Prompt`. Without a prompt, everything that is still missing is named in one error.
`fit_public_rows` says how many rows of a public table the drafted study would keep as empty ones.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from parley.common.data.columns import OTHER, Category, Label, Missing, missing_policy
from parley.common.data.study import Study
from parley.common.encoding.texts import so_many, spelling
from parley.common.errors import ConflictError, InvalidInputError
from parley.common.files.column_names import similar_name
from parley.common.files.sources import DataSource, split_inner_table
from parley.common.files.study_fit import MOST_VALUES, StudyFit, SurveyedColumn, fit_of_source

Prompt = Callable[[str, str], str]
"""Asks the author for bounds, values, a fill or a label: takes a question and a proposal, returns the answer."""

LABEL_QUESTION = "the column to be learnt"
"""What a prompt is asked for the label."""

_ALONE_OR_REFUSE = "--person-missing alone|refuse"
_FEW_CLASSES = 10
_MOST_NAMED = 5
_MOST_COLUMNS = 12
_Answer = TypeVar("_Answer")
_SOME_VALUES, _SOME_BOUNDS = "VALUE,VALUE", "LOWER:UPPER"


@dataclass(frozen=True, slots=True)
class AuthorChoices:
    """What the author of a study chose, by column; ``columns`` are taken though they look like identifiers.

    ``public`` says whether the table is public. ``shares``, ``mean`` and ``deviation`` are public knowledge about the
    label. ``other`` says whether categories take values that are not declared; None means that those do whose values
    are a public table's. ``hold_out`` is the share of rows that are kept for evaluation, None for none. ``person`` is
    the column that says whose a row is, None if each row stands for itself; of a person ``most_rows`` count, None for
    the usual number, and ``person_missing`` says what a row without an identifier is.
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
    other: bool | None = None
    public: bool = False
    shares: Mapping[str, float] = field(default_factory=dict)
    class_weights: Mapping[str, float] | str | None = None
    mean: float | None = None
    deviation: float | None = None
    hold_out: float | None = None
    person: str | None = None
    most_rows: int | None = None
    person_missing: Literal["refuse", "alone"] | None = None

    @property
    def requested(self) -> frozenset[str]:
        """The columns that the author wants in the study, by name."""
        return frozenset({*self.bounds, *self.values, *self.fills, *self.columns})

    @property
    def named(self) -> frozenset[str]:
        """Every column that some choice names."""
        lone = {name for name in (self.label, self.person) if name is not None}
        return frozenset({*self.requested, *self.left_out, *self.units, *self.descriptions, *lone})


@dataclass(frozen=True, slots=True)
class StudyDraft:
    """A study, with the reasons by column why some were ``left_out``, and why some that were taken are ``doubtful``.

    ``whose`` are columns by which rows may belong to persons, if the author has named none.
    """

    study: Study
    left_out: Mapping[str, str]
    doubtful: Mapping[str, str]
    whose: tuple[str, ...] = ()


def draft_study(columns: Sequence[SurveyedColumn], choices: AuthorChoices, ask: Prompt | None = None) -> StudyDraft:
    """Draft a study of a table's columns in their order; gaps are filled from public values, or asked for.

    Raises InvalidInputError for columns that the table does not have, and, without ``ask``, for everything that is
    still missing.
    """
    by_name = {column.name: column for column in columns}
    if unknown := sorted(choices.named - by_name.keys()):
        near = similar_name(unknown[0], by_name)
        more = f"; it has {_listed([*by_name], _MOST_COLUMNS)}" if near is None else f"; say {near!r}, as it does"
        raise InvalidInputError(f"the table has no column {', '.join(map(repr, unknown[:_MOST_NAMED]))}{more}")
    label = choices.label if choices.label is not None else _ask_label(columns, ask)
    if label in choices.fills:
        raise InvalidInputError(f"--fill {label}: nothing stands in for a label that is missing")
    for option, said in {"--most-rows": choices.most_rows, "--person-missing": choices.person_missing}.items():
        if said is not None and choices.person is None:
            raise InvalidInputError(f"{option}: say whose a row is, by --person COLUMN")
    left_out, doubtful = _classify(columns, choices, label)
    chosen = [column for column in columns if column.name not in left_out and column.name != label]
    if not chosen:
        raise InvalidInputError("no column is left to learn from: ask for some by --column")
    gaps: list[str] = []
    features = [_feature(column, choices, ask, gaps) for column in chosen]
    target = _label(by_name[label], choices, ask, gaps)
    person = None if choices.person is None else _person(by_name[choices.person], choices, ask, gaps)
    if gaps:
        spoken_for = {*choices.left_out, choices.person}
        unsaid = [name for name in left_out if name not in spoken_for]
        raise InvalidInputError(_missing_flags(gaps, by_name[label], choices, unsaid))
    terms = {
        "name": choices.name,
        "title": choices.title or choices.name.replace("_", " ").replace("-", " ").capitalize(),
        "purpose": choices.purpose,
        "features": features,
        "label": target,
        "class_weights": choices.class_weights,
        # nothing stands in for a label: where a public one has blanks, its rows are kept as empty ones, not refused
        "missing": "drop" if choices.missing == "value" and by_name[label].blank else choices.missing,
        "hold_out": choices.hold_out,
    }
    if person is not None:
        terms["person"] = person
    try:
        return StudyDraft(Study.model_validate(terms), left_out, doubtful, _persons_in(columns, choices, label))
    except ValidationError as error:
        raise InvalidInputError(_faults_of(error, [column.name for column in chosen])) from None


def _person(column: SurveyedColumn, choices: AuthorChoices, ask: Prompt | None, gaps: list[str]) -> dict[str, Any]:
    """Return whose a row is, as a study's terms; what rows without an identifier are is asked where a file has such."""
    missing = choices.person_missing
    if missing is None and column.blank:
        if ask is None:
            gaps.append(_ALONE_OR_REFUSE)
        else:
            question = f"some rows of this file have no {column.name!r}: is each a person (alone), or do you refuse"
            missing = until_valid(ask, f"{question} such tables (refuse)", "", _alone_or_refuse)
    stated = {"most_rows": choices.most_rows, "missing": missing}
    return {"column": column.name, **{name: value for name, value in stated.items() if value is not None}}


def _alone_or_refuse(text: str) -> Literal["alone", "refuse"]:
    """Return what a row without an identifier is; raises InvalidInputError."""
    match text.strip():
        case "alone" | "refuse" as said:
            return said
    raise InvalidInputError("say alone or refuse")


def _persons_in(columns: Sequence[SurveyedColumn], choices: AuthorChoices, label: str) -> tuple[str, ...]:
    """Return the columns whose names say that they identify persons, and whose values repeat; none if one is named."""
    if choices.person is not None:
        return ()
    return tuple(
        column.name
        for column in columns
        if column.named_identifier and not column.all_different and not column.constant and column.name != label
    )


def _missing_flags(gaps: Sequence[str], label: SurveyedColumn, choices: AuthorChoices, left_out: Sequence[str]) -> str:
    """Return the message that lists all missing flags, ready to be copied; their placeholders are no values."""
    message = f"not said; add these with what is true of each: {' '.join(gaps)}"
    if _flag("--bounds", label.name, _SOME_BOUNDS) in gaps:
        message += f"; or {_flag('--values', label.name, _SOME_VALUES)}, if the label {label.name!r} is of classes"
    if left_out:
        message += f"; left out, unless you say --column NAME: {_listed(left_out)}"
    if _ALONE_OR_REFUSE in gaps:
        message += (
            f"; some rows of this file have no {choices.person!r}: alone has each of them be a person, refuse keeps "
            "owners who have such rows out, and neither can change once owners are invited"
        )
    if not choices.public:
        return f"{message}; or be asked, by --ask; or say --public, if the file is"
    if any(gap.startswith("--values") for gap in gaps):
        message += f"; or --leave-out NAME what holds more than {MOST_VALUES} different texts"
    return message


def _flag(option: str, name: str, value: str) -> str:
    """Return an option as a shell takes it."""
    return f"{option} {shlex.quote(f'{name}={value}')}"


def _faults_of(error: ValidationError, names: Sequence[str]) -> str:
    """Return what is wrong with a study, by column; the places inside pydantic's models are left out."""
    messages, follows = [], {("too_short", ("features",))}  # from the fault of a feature
    for fault in error.errors():
        words = fault["msg"].removeprefix("Value error, ")
        match fault["loc"]:
            case loc if (fault["type"], loc) in follows or fault["type"] == "default_factory_not_called":
                continue
            case _ if words.startswith(("column '", "label '")):
                messages.append(words)
            case ("features", int(place), _, *path) if path:
                messages.append(f"column {names[place]!r}: {path[0]}: {words}")
            case ("label", _, *path) if path:
                messages.append(f"label: {path[0]}: {words}")
            case loc:
                messages.append(": ".join([*map(str, loc[:1]), words]))
    return "; ".join(messages)


def _ask_label(columns: Sequence[SurveyedColumn], ask: Prompt | None) -> str:
    names = [column.name for column in columns]
    if ask is None:
        raise InvalidInputError(f"--label: say which column is to be learnt; there are {_listed(names, _MOST_COLUMNS)}")

    def named(answer: str) -> str:
        if answer not in names:
            raise InvalidInputError(f"the table has no column {answer!r}; it has {_listed(names, _MOST_COLUMNS)}")
        return answer

    return until_valid(ask, LABEL_QUESTION, names[-1], named)


def until_valid(ask: Prompt, question: str, proposed: str, read: Callable[[str], _Answer]) -> _Answer:
    """Ask until ``read`` takes the answer; the question then begins with what was wrong with the last one."""
    wrong = ""
    while True:
        try:
            return read(ask(f"{wrong}{question}", proposed))
        except (InvalidInputError, ConflictError) as error:
            wrong = f"{error.detail}\n"


def _classify(
    columns: Iterable[SurveyedColumn], choices: AuthorChoices, label: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns that are left out, and those that are taken despite a warning, each with the reason."""
    left_out, doubtful = {}, {}
    for column in columns:
        if column.name == choices.person and column.name not in choices.requested and column.name != label:
            left_out[column.name] = "it says whose a row is"
        elif column.name in choices.left_out and column.name != label:
            left_out[column.name] = "as you said"
        elif (column.name in choices.requested or column.name == label) and column.warning:
            doubtful[column.name] = column.warning
        elif column.name != label and column.name not in choices.requested and column.warning:
            left_out[column.name] = column.warning
    return left_out, doubtful


def _feature(column: SurveyedColumn, choices: AuthorChoices, ask: Prompt | None, gaps: list[str]) -> dict[str, Any]:
    """Return a feature's terms; adds the flags that are missing to the gaps."""
    name = column.name
    if name in choices.values or (column.kind != "number" and name not in choices.bounds):
        values = _values(column, choices, ask, gaps)
        is_public = name not in choices.values and column.values is not None  # owners' tables may have more
        other = is_public if choices.other is None else choices.other
        named = [value for value in values if not (other and spelling(value) == OTHER)]  # which `other` covers
        values, other = (named, other) if named else (values, False)
        words = f"one of {len(values)} values{', or another' if other else ''}"
        terms: dict[str, Any] = {
            "name": name,
            "description": choices.descriptions.get(name, words),
            "values": values,
            "other": other,
        }
        return terms | _fill(name, OTHER if other else None, choices, ask, gaps)
    terms = _number(column, choices, ask, gaps)
    lower, upper = terms["lower"], terms["upper"]
    middle = (lower + upper) / 2 if column.median is None else min(max(column.median, lower), upper)
    fill = _fill(name, middle, choices, ask, gaps)
    try:
        return terms | {key: float(value) for key, value in fill.items()}
    except ValueError:
        raise InvalidInputError(f"--fill {name}: column {name!r} holds numbers, so a number must stand in") from None


def open_categories(study: Study) -> str:
    """Return the first names of a study's columns that take values which it does not declare; "" if none does."""
    return _listed([column.name for column in study.named if isinstance(column, Category) and column.other])


def _fill(
    name: str, default: float | str | None, choices: AuthorChoices, ask: Prompt | None, gaps: list[str]
) -> dict[str, float | str]:
    """Return what stands in for a missing value: the author's choice, or the default or an answer if all are filled."""
    if name in choices.fills or choices.missing != "value":
        return {"fill": choices.fills[name]} if name in choices.fills else {}
    if default is None and ask is not None:
        default = ask(f"fill of {name}, in place of a missing value", "")
    if default is None:
        gaps.append(_flag("--fill", name, "VALUE"))
    return {} if default is None else {"fill": default}


def _number(column: SurveyedColumn, choices: AuthorChoices, ask: Prompt | None, gaps: list[str]) -> dict[str, Any]:
    """Return a number's terms; raises InvalidInputError for a column that holds no numbers."""
    name = column.name
    if column.kind in {"figure", "mixed"}:
        raise InvalidInputError(f"--bounds {name}: column {name!r} {column.warning}")
    if column.kind in {"text", "date"}:
        raise InvalidInputError(
            f"--bounds {name}: column {name!r} does not hold numbers: say --values, or leave it out"
        )
    lower, upper = _bounds(column, choices, ask, gaps)
    unit = choices.units.get(name, "")
    words = f"a number from {lower:.12g} to {upper:.12g}{f' {unit}' if unit else ''}"
    described = {"name": name, "description": choices.descriptions.get(name, words)}
    return {**described, **({"unit": unit} if unit else {}), "lower": lower, "upper": upper}


def _label(column: SurveyedColumn, choices: AuthorChoices, ask: Prompt | None, gaps: list[str]) -> dict[str, Any]:
    """Return the terms of the label, which has classes or is a number."""
    name = column.name
    few = column.values is not None and len(column.values) <= _FEW_CLASSES
    if name in choices.bounds or (
        column.kind == "number" and name not in choices.values and not few and not choices.positive
    ):
        return _number(column, choices, ask, gaps) | _typical_label(column, choices)
    values = _values(column, choices, ask, gaps)
    if choices.positive is not None and values:
        positive = next((value for value in values if spelling(value) == spelling(choices.positive)), None)
        if positive is None or len(values) != 2:  # noqa: PLR2004
            raise InvalidInputError(f"--positive must be one of two values of the label, which has {_listed(values)}")
        values = [*(value for value in values if value != positive), positive]
    words = choices.descriptions.get(name, f"to be learnt: one of {len(values)} classes")
    return {"name": name, "description": words, "values": values} | _shares(values, column, choices)


def _shares(values: Sequence[str], column: SurveyedColumn, choices: AuthorChoices) -> dict[str, Any]:
    """Return the share of each class in the population: as the author says, or as a public table has it."""
    if choices.mean is not None or choices.deviation is not None:
        raise InvalidInputError(f"--mean, --deviation: the label {column.name!r} is of classes: say --share")
    public = dict(zip(column.values, column.shares, strict=True)) if column.values and column.shares else {}
    shares = choices.shares or {value: round(part, 3) for value, part in public.items()}
    if choices.shares and choices.shares.keys() != set(values):
        raise InvalidInputError(f"--share: say one of each value of the label, which has {_listed(values)}")
    if shares.keys() != set(values) or not all(0 < part < 1 for part in shares.values()):
        return {}
    return {"shares": [shares[value] for value in values]}


def _typical_label(column: SurveyedColumn, choices: AuthorChoices) -> dict[str, Any]:
    """Return the label's mean and deviation: as the author says, or as a public table has them."""
    if choices.shares:
        raise InvalidInputError(f"--share: the label {column.name!r} is a number: say --mean and --deviation")
    if choices.mean is not None or choices.deviation is not None:
        return {"mean": choices.mean, "deviation": choices.deviation}
    if column.mean is None or not column.deviation or column.name in choices.bounds:
        return {}
    return {"mean": float(f"{column.mean:.3g}"), "deviation": float(f"{column.deviation:.2g}")}


def _values(column: SurveyedColumn, choices: AuthorChoices, ask: Prompt | None, gaps: list[str]) -> list[str]:
    name = column.name
    if name in choices.values:
        return list(choices.values[name])
    if ask is not None:
        proposed = ",".join(map(_quoted, column.values or ()))
        return split_values(ask(f"values of {name}, with commas between", proposed))
    if column.values is None:
        gaps.append(_flag("--values", name, _SOME_VALUES))
    return list(column.values or ())


def _bounds(column: SurveyedColumn, choices: AuthorChoices, ask: Prompt | None, gaps: list[str]) -> tuple[float, float]:
    name = column.name
    if name in choices.bounds:
        return choices.bounds[name]
    if ask is not None:
        proposed = "{:.12g}:{:.12g}".format(*column.bounds) if column.bounds else ""
        return until_valid(ask, f"bounds of {name}, LOWER:UPPER", proposed, lambda text: split_bounds(name, text))
    if column.bounds is None:
        gaps.append(_flag("--bounds", name, _SOME_BOUNDS))
    return column.bounds or (0.0, 1.0)


def split_values(text: str) -> list[str]:
    """Split a text into values at its commas; a value that has a comma stands in double quotes.

    >>> split_values('a, "b, c"')
    ['a', 'b, c']
    """
    return [value.strip() for value in next(csv.reader([text], skipinitialspace=True), [])]


def split_bounds(name: str, text: str) -> tuple[float, float]:
    """Parse LOWER:UPPER as two numbers; raises InvalidInputError that names the column."""
    lower, _, upper = text.partition(":")
    try:
        return float(lower), float(upper)
    except ValueError:
        raise InvalidInputError(f"bounds of {name!r}: two numbers, LOWER:UPPER") from None


def _quoted(value: str) -> str:
    return f'"{value}"' if "," in value else value


def _listed(values: Sequence[str], most: int = _MOST_NAMED) -> str:
    """Return the first few of many values, which are public or were typed."""
    more = f" and {len(values) - most:,} more" if len(values) > most else ""
    return f"{', '.join(map(repr, values[:most]))}{more}"


def study_name(data: DataSource) -> str:
    """Return a name for a study of a source: after its file, its folder of files, or its table.

    >>> [study_name(DataSource(source=at)) for at in ("loans.csv", "visits/*.csv", "lab.sqlite::labs", "SELECT 1")]
    ['loans', 'visits', 'labs', 'study']
    """
    if data.is_query:
        return next(iter(data.tables), "study")
    if (file_and_table := split_inner_table(data.source)) is not None:
        return file_and_table[1]
    path = Path(data.source)
    named = path.parent.name or "study"
    return named if "*" in path.stem else path.stem


_MOST_LINES = 5


@dataclass(frozen=True, slots=True)
class PublicRowsFit:
    """How a public table fits its study; ``blanks`` has the share of blanks by unfilled column, most first.

    ``label`` is the column to be learnt, which is neither filled nor left out. ``codes`` are numbers by column that
    look like codes of missing values. ``is_sample`` says that bounds are those of its own rows, beyond which others go.
    """

    fit: StudyFit
    blanks: Mapping[str, float]
    label: str
    codes: Mapping[str, Sequence[float]] = field(default_factory=dict)
    is_sample: bool = False

    @property
    def owners_options(self) -> str:
        """What owners of tables like this one add to their commands, for a shell, each after a blank."""
        options = [self.clip_option]
        options += [f" --value {shlex.quote(_meaning(name, code))}" for name, code in self._coded]
        return "".join(options)

    @property
    def clip_option(self) -> str:
        """The option by which values beyond the bounds count as the bounds, if owners' tables are likely to need it."""
        return " --clip" if self._exceeds or self.is_sample else ""

    @property
    def _exceeds(self) -> bool:
        """Whether values lie beyond the bounds."""
        return any("beyond the bounds" in counts for counts in self.fit.faults.values())

    @property
    def _coded(self) -> list[tuple[str, float]]:
        """The columns with their numbers that look like codes."""
        return [(name, code) for name, codes in self.codes.items() for code in codes]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values, for programs."""
        return {"fits": self.fit.fits, "dropped": self.fit.dropped, "blanks": dict(self.blanks)}

    def lines(self) -> list[str]:
        """Return warnings for people, or none if all rows are used."""
        if not self.fit.fits:
            kinds = ((name, kind, rows) for name, counts in self.fit.faults.items() for kind, rows in counts.items())
            faults = [f"{name}: {kind}: {so_many(rows, 'row')}" for name, kind, rows in kinds]
            faults += [doubt.words for doubt in self.fit.doubts if doubt.column not in self.codes]
            clipped = ["owners clip what lies beyond the bounds by --clip"] if self._exceeds else []
            refused = any("identifier missing" in kinds for kinds in self.fit.faults.values())
            alone = ["owners with such rows cannot join: --person-missing alone has each be a person"] * refused
            title = "warning: this file does not fit the study itself"
            return [title, *_few(faults), *clipped, *alone, *_few(self._codes()), *self._blanks()]
        bounds = ["bounds are those of this file: what lies beyond them in owners' rows counts as the bound, by --clip"]
        lines = [*self.fit.oddness, *(bounds if self.is_sample else ()), *_few(self._codes())]
        if self.fit.dropped:
            share = f"{self.fit.dropped:.2%} of the rows of this file miss a value"
            lines += [f"warning: {share}: they would be kept as empty ones, and teach nothing", *self._blanks()]
        return lines

    def _codes(self) -> list[str]:
        """Return lines about numbers that look like codes."""
        return [_doubted(name, code) for name, code in self._coded]

    def _blanks(self) -> list[str]:
        """Return lines that name the columns with the most blanks, and what the author can do about them."""
        if not self.blanks:
            return []
        of_label = {self.label: " (the label)"}
        shares = [f"{name!r}{of_label.get(name, '')} {share:.2%}" for name, share in self.blanks.items()]
        lines = [f"most blanks: {', '.join(_few(shares))}"]
        if self.blanks.keys() - {self.label}:
            lines.append(
                "--leave-out NAME does without a column, --fill NAME=VALUE fills one, --missing value fills all"
            )
        return lines


def _doubted(name: str, code: float) -> str:
    """Say that a number looks like a code for a missing value, and what to do."""
    number, missing = _spelt(code), _meaning(name, code).endswith("=")
    as_number, as_missing = (shlex.quote(f"{name}:{number}={meaning}") for meaning in (number, ""))
    proposed, other = (as_missing, as_number) if missing else (as_number, as_missing)
    kinds = ("missing", "a number") if missing else ("a number", "missing")
    return (
        f"{name}: {number} looks like a code for a missing value: as {kinds[0]}, owners say --value {proposed}; as "
        f"{kinds[1]}, --value {other}; "
        + (
            "the bounds that this file gives leave it out"
            if missing
            else "if it is missing, give the bounds of the others by --bounds"
        )
    )


def _meaning(name: str, code: float) -> str:
    """Return what a code most likely means: missing if it is negative, otherwise the number that it is."""
    return f"{name}:{_spelt(code)}={'' if code < 0 else _spelt(code)}"


def _spelt(number: float) -> str:
    """Return a number as people write it, to its last digit."""
    return repr(number).removesuffix(".0")


def _few(lines: Sequence[str]) -> list[str]:
    """Return the first lines, and one that says how many more there are."""
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], *([f"and {more:,} more"] if more > 0 else [])]


def fit_public_rows(study: Study, data: DataSource, columns: Sequence[SurveyedColumn]) -> PublicRowsFit:
    """Say how a public table fits the study drafted from it; raises InvalidDataError if it cannot be loaded."""
    filled = {column.name for column in study.named if missing_policy(column, study.missing) == "value"}
    wanted = frozenset(study.table_names) - filled
    blank = [(column.name, column.blank) for column in columns if column.name in wanted and column.blank]
    blanks = dict(sorted(blank, key=lambda pair: -pair[1]))
    numbers = {column.name for column in study.named if not isinstance(column, Category | Label)}
    codes = {column.name: column.codes for column in columns if column.name in numbers and column.codes}
    missing = {name: {_spelt(code): "" for code in found if code < 0} for name, found in codes.items()}
    ranges = {column.name: column.bounds for column in columns if column.bounds is not None}
    is_sample = any(
        ranges.get(column.name) == (column.lower, column.upper)
        for column in study.named
        if not isinstance(column, Category | Label)
    )
    as_owners = data.model_copy(update={"values": {name: texts for name, texts in missing.items() if texts}})
    return PublicRowsFit(fit_of_source(study, as_owners), blanks, study.label.name, codes, is_sample)
