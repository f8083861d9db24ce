"""Check an owner's table against a study before anything is set up, and survey a table to draft a study from.

`StudyFit` reports names of columns and counts, never a value. `survey_table` reports the names and kinds of columns
and, for a public table alone, their values and ranges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.cells import MISSING_TEXTS, as_coded, as_numbers
from parley.common.data.columns import Feature
from parley.common.data.faults import MOST_COLUMNS, CodeWatch, Doubt, FaultKind, UnfitDataError, remedies, with_yes_last
from parley.common.data.loading import NARROW, Loaded
from parley.common.data.persons import PersonCounts, weights_by_person
from parley.common.data.study import Study
from parley.common.encoding.texts import shortened, so_many, spelling
from parley.common.errors import InvalidDataError
from parley.common.files.arrow import TableStream, column_of
from parley.common.files.column_names import (
    check_header,
    match_columns,
    names_identifier,
    numbers_people,
    numbers_something,
    similar_name,
)
from parley.common.files.examples import load_examples, load_source
from parley.common.files.identifiers import keys_of_array
from parley.common.files.kinds import check_columns
from parley.common.files.sources import DataSource
from parley.common.files.tables import column_names, file_table, open_stream, source_files
from parley.common.strict import PLAIN

_MOST_EMPTY = 0.5
_MOST_NAMED = 5
_OF_PERSONS = frozenset({"person", "most_rows", "persons"})


@dataclass(frozen=True, slots=True)
class StudyFit:
    """How a table fits a study. All of it is for the owner alone, and none of it is a value of the table.

    - ``n_rows`` is the number of rows; None where faults kept the table from being loaded.
    - ``faults`` counts, by column and kind, the rows that do not fit; an absent column is one fault.
    - ``extra`` are columns that the study does not name, which are never read.
    - ``identifiers`` are columns of the *study* whose names say that they identify a person.
    - ``clipped`` are the shares of values that were clipped, by column.
    - ``dropped`` is the share of rows that miss a value; ``missing`` counts them by column, the most first.
    - ``narrow`` are columns whose bounds are far wider than their values.
    - ``others`` are the shares of values that the study does not list and takes as other ones, by column.
    - ``file`` is the first of several files that has a fault, where that is known.
    - ``notes`` say how the table is read.
    - ``doubts`` are columns that fit and are most likely read wrongly, unless the owner takes the table ``as_is``.
    - ``person`` is the column that says whose a row is, ``persons`` counts them, and ``most_rows`` is how many rows of
      one the study lets count. A study without persons has none of it.
    """

    study: str
    n_rows: int | None
    minimum_rows: int
    faults: Mapping[str, Mapping[FaultKind, int]] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    clipped: Mapping[str, float] = field(default_factory=dict)
    dropped: float = 0.0
    missing: Mapping[str, int] = field(default_factory=dict)
    narrow: tuple[str, ...] = ()
    others: Mapping[str, float] = field(default_factory=dict)
    file: str = ""
    notes: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    as_is: bool = False
    person: str = ""
    most_rows: int = 1
    persons: PersonCounts | None = None

    @property
    def fits(self) -> bool:
        """Whether a party could start with this table: nothing in it is doubtful, or the owner takes it as it is."""
        return self.has_room and (self.as_is or not self.doubts)

    @property
    def has_room(self) -> bool:
        """Whether all rows have valid values, and there are enough rows, or persons."""
        return self.n_examples is not None and self.n_examples >= self.minimum_rows

    @property
    def n_examples(self) -> int | None:
        """The number of rows, or of persons if the study has such; None where the table was not loaded."""
        return self.n_rows if self.persons is None else self.persons.persons

    @property
    def mostly_empty(self) -> bool:
        """Whether more than half of the rows would be empty ones: the table fits, and teaches almost nothing."""
        return self.dropped > _MOST_EMPTY

    @property
    def doubted(self) -> tuple[str, ...]:
        """The columns that are most likely read wrongly."""
        return tuple(dict.fromkeys(doubt.column for doubt in self.doubts))

    @property
    def absent(self) -> tuple[str, ...]:
        """The columns of the study that the table lacks."""
        return tuple(name for name, kinds in self.faults.items() if "absent" in kinds)

    def to_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        report = {"fits": self.fits, **asdict(self), "absent": self.absent, "mostly_empty": self.mostly_empty}
        return report if self.person else {name: value for name, value in report.items() if name not in _OF_PERSONS}

    def lines(self) -> list[str]:
        """Return the report for people, the verdict first."""
        return [self._verdict(), *self.remarks()]

    def remarks(self) -> list[str]:
        """Return all of the report for people but its verdict, warnings first."""
        details = (*self.notes, *self._faults(), *(doubt.words for doubt in self.doubts), *self._hints())
        return [*self._warnings(), *(f"  {line}" for line in details)]

    def _verdict(self) -> str:
        if self.fits and self.n_rows:
            words = self.persons.words if self.persons else so_many(self.n_rows, "row")
            return f"the data fits {self.study}: {words}"
        if self.has_room:
            columns = "column is" if len(self.doubted) == 1 else "columns are"
            return f"the data does not fit {self.study}: {len(self.doubted):,} {columns} most likely read wrongly"
        if self.n_examples is not None:
            units = "persons" if self.persons else "rows"
            return (
                f"the data does not fit {self.study}: {self.n_examples:,} {units}, and {self.minimum_rows:,} are needed"
            )
        columns = "column does" if len(self.faults) == 1 else "columns do"
        return f"the data does not fit {self.study}: {len(self.faults):,} {columns} not"

    def _warnings(self) -> list[str]:
        """Return warnings about a table that fits."""
        return [*self.oddness, *self._emptiness(), *self._narrowness()]

    @property
    def oddness(self) -> list[str]:
        """Warnings that the column of persons may be another one than the study means."""
        if self.persons is None:
            return []
        return [f"warning: {words}" for words in odd_persons(self.persons, self.person, self.most_rows)]

    def _narrowness(self) -> list[str]:
        """Return a warning that rows differ little, since the study expects far wider values."""
        if not self.narrow:
            return []
        more = f" and {len(self.narrow) - _MOST_NAMED:,} more" if len(self.narrow) > _MOST_NAMED else ""
        columns = "1 column fills" if len(self.narrow) == 1 else f"{len(self.narrow):,} columns fill"
        return [
            f"warning: {columns} less than {NARROW:.0%} of the bounds, which leaves rows alike: noise is the more",
            f"  namely {', '.join(self.narrow[:_MOST_NAMED])}{more}; take narrower bounds if they are common knowledge",
        ]

    def _emptiness(self) -> list[str]:
        """Return a warning that most rows miss a value."""
        if self.n_rows is None or not self.mostly_empty:
            return []
        counts = ", ".join(f"{name} in {rows:,}" for name, rows in list(self.missing.items())[:_MOST_NAMED])
        n_rows = self.n_rows - (self.persons.left_out if self.persons else 0)
        empty = f"{round(self.dropped * n_rows):,} of its {n_rows:,} rows ({self.dropped:.2%})"
        remedy = 'a study may leave such columns out, or put a "fill" there by "missing": "value"'
        return [
            f"warning: {empty} miss a value and would be empty ones, which teach nothing",
            f"  most often missing: {counts}; {remedy}",
        ]

    def _faults(self) -> list[str]:
        """Return the faults, one column a line."""
        lines = [
            f"{name}: "
            + ", ".join(
                self._absent(name) if kind == "absent" else f"{kind}: {so_many(n, 'row')}" for kind, n in kinds.items()
            )
            for name, kinds in list(self.faults.items())[:MOST_COLUMNS]
        ]
        more = len(self.faults) - MOST_COLUMNS
        return [*lines, *([f"and {more:,} columns more"] if more > 0 else [])]

    def _absent(self, name: str) -> str:
        """Say that a column is absent, and which one may be meant."""
        near = similar_name(name, self.extra)
        return "absent" if near is None else f"absent, but there is {near!r}: its name has to be spelt alike"

    def _hints(self) -> list[str]:
        """Return remedies, and facts that the owner should know whether the table fits or not."""
        hints = remedies(self.faults, self.file)
        hints += [f"{name}: {share:.2%} of the values clipped" for name, share in self.clipped.items()]
        hints += [
            f"{name}: {share:.2%} of the values are none of the study's: other" for name, share in self.others.items()
        ]
        if self.dropped and not self.mostly_empty:
            hints.append(f"{self.dropped:.2%} of the rows miss a value and are kept as empty ones")
        if self.persons and not self.persons.alike and not self.persons.missing:
            hints.append(
                f"{self.person}: no row is without one, and none differs from another by capitals, leading zeros or "
                "the like alone"
            )
        if self.extra:
            names = ", ".join(self.extra[:MOST_COLUMNS]) + (" ..." if len(self.extra) > MOST_COLUMNS else "")
            hints.append(f"not in the study, and never read: {names}")
        hints += [f"{name}: looks like an identifier: ask why the study wants it" for name in self.identifiers]
        return hints


def odd_persons(counts: PersonCounts, column: str, most_rows: int) -> list[str]:
    """Say for the owner alone why a column may not be what says whose a row is, and which rows do not count with it."""
    lines = []
    if counts.most == 1 and counts.rows > 1:
        lines.append(
            f"each row has another {column!r}: is this a row's number? Then persons are records, and somebody who has "
            "several rows is hidden in pieces"
        )
    if counts.persons == 1 and counts.rows > 1:
        lines.append(f"all rows have one {column!r}: they count as one person's")
    if counts.left_out:
        lines.append(
            f"{so_many(counts.left_out, 'row')} of persons with more than {most_rows:,} are left out: the study lets "
            "no more of one count"
        )
    if counts.alike:
        differ, stand = ("differs", "stands") if counts.alike == 1 else ("differ", "stand")
        lines.append(
            f"{so_many(counts.alike, 'identifier')} of {column!r} {differ} from another by capitals, leading zeros or "
            f"the like alone, and {stand} for the same person"
        )
    if counts.missing:
        count = "counts as a person by itself" if counts.missing == 1 else "count as a person each"
        lines.append(
            f"{so_many(counts.missing, 'row')} without {column!r} {count}: somebody who has such rows beside others is "
            "hidden in pieces"
        )
    return lines


def fit_of(
    study: Study, names: Sequence[str], load: Callable[[], Loaded], minimum_rows: int = 1, *, as_is: bool = False
) -> StudyFit:
    """Check a table with columns ``names`` against a study; ``load`` loads it, or raises `UnfitDataError`.

    Any other InvalidDataError passes: then there is no table, or no row.
    """
    read = frozenset(match_columns(names, study.source_names).values())
    extra = tuple(shortened(name) for name in names if name and name not in read)
    try:
        loaded = load()
    except UnfitDataError as error:
        order = {name: place for place, name in enumerate(study.source_names)}
        faults = {
            name: dict(error.rows[name]) for name in sorted(error.rows, key=lambda name: order.get(name, math.inf))
        }
        return StudyFit(
            study.name,
            None,
            minimum_rows,
            faults,
            extra,
            _identifiers(study),
            file=error.file,
            notes=error.notes,
            doubts=error.doubts,
            as_is=as_is,
            person=study.person.column if study.person else "",
            most_rows=study.most_rows,
        )
    return replace(fit_of_loaded(study, loaded, minimum_rows, as_is=as_is), extra=extra)


def fit_of_loaded(study: Study, loaded: Loaded, minimum_rows: int = 1, *, as_is: bool = False) -> StudyFit:
    """Return how a table that was loaded fits its study, without the columns that the study does not name."""
    return StudyFit(
        study.name,
        loaded.persons.rows if loaded.persons else int(loaded.shard.n_examples),
        minimum_rows,
        {},
        (),
        _identifiers(study),
        dict(loaded.clipped),
        loaded.dropped_share,
        loaded.missing,
        loaded.narrow,
        dict(loaded.others),
        notes=loaded.notes,
        doubts=loaded.doubts,
        as_is=as_is,
        person=study.person.column if study.person else "",
        most_rows=study.most_rows,
        persons=loaded.persons,
    )


def _identifiers(study: Study) -> tuple[str, ...]:
    """Return the columns of a study whose names say that they identify a person."""
    numbers = {
        feature.name for feature in study.named if isinstance(feature, Feature) and feature.upper - feature.lower > 1
    }
    return tuple(
        name for name in study.table_names if names_identifier(name) or (name in numbers and numbers_people(name))
    )


def fit_of_file(study: Study, path: Path, *, clip: bool = False, minimum_rows: int = 1) -> StudyFit:
    """Check a file against a study; ``clip`` is whether its owner would clip values to the study's bounds.

    Raises InvalidDataError for a file that is no table, or has no row, or no names in its first line.
    """
    names = () if study.sparse else column_names(path)
    _check_header(study, str(path), names)
    return fit_of(study, names, lambda: load_examples(path, study, clip=clip), minimum_rows)


def fit_of_source(
    study: Study, data: DataSource, *, clip: bool = False, as_is: bool = False, minimum_rows: int = 1
) -> StudyFit:
    """Check a source against a study: a file, a pattern, a table or a query; raises as `fit_of_file` does."""
    names = () if study.sparse or data.is_query else _source_names(data)
    _check_header(study, data.source, names)
    return fit_of(study, names, lambda: load_source(data, study, clip=clip), minimum_rows, as_is=as_is)


def _source_names(data: DataSource) -> tuple[str, ...]:
    """Return the columns of a source that is not a query; those of the first of several files."""
    if (paths := source_files(data)) is not None:
        return column_names(paths[0], data.csv)
    with open_stream(data) as rows:
        return tuple(rows.schema.names)


def _check_header(study: Study, where: str, names: Sequence[str]) -> None:
    """Raise InvalidDataError where no column matches the study and the first line does not name columns."""
    if not match_columns(names, study.table_names):
        check_header(where, [name for name in names if name])


ColumnKind = Literal["number", "text", "date", "figure", "mixed", "empty"]
"""A ``figure`` is a number with a sign that programs do not read; ``mixed`` are numbers and a few texts."""

MOST_VALUES = 200
"""A column of texts with more values than these is free text, not a category."""
_FEW_ROWS = 20
"""In fewer rows, it means nothing that all values of a column differ."""
_NEARLY_ALL = 0.95
"""In a public table, texts or integers count as all different if at least this share of the rows differ."""
_FEW, _FEW_SHARE = 100, 0.05
"""In a public column of any name, at most so many values, and at most this share of the rows, identify nobody."""
_LEAST_CODE = 1000
"""Whole numbers of equal length below this are not codes."""
_LEAST_RANGE = 1e-300
"""A smaller range cannot be rounded to two more digits."""
_DATE = re.compile(
    r"\s*(\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}"
    r"|(\d{1,2}[ -])?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[ -]\d{2,4})([ T].*)?",
    re.IGNORECASE,
)
_FIGURE = re.compile(r"\s*[$€£¥]?\s*[-+]?\d+([.,' ]\d{3})*([.,]\d+)?\s*[%$€£¥]?\s*")
_MANY_NUMBERS, _FEW_TEXTS = 20, 3
"""Beside at least so many different numbers, at most so many different texts stand for missing values."""
_WARNINGS: dict[ColumnKind, str] = {
    "date": "is a date: make a number of it, such as an age in years",
    "figure": "holds numbers with a comma, a % or a currency: write them plainly, such as 1234.5",
    "mixed": "holds numbers, but for a few texts: empty the cells that hold no number",
    "empty": "is empty",
}


@dataclass(frozen=True, slots=True)
class SurveyedColumn:
    """A column of a surveyed table: its kind, and why a study should leave it out.

    Public tables alone have ``values``, with the share of non-empty rows that holds each, ``shares``; ``bounds``, the
    ``median``, the ``mean`` and the standard ``deviation``, without negative codes; the share of rows that are
    ``blank``; the numbers that look like ``codes`` of missing values; and are ``free_text`` if they hold too many
    different texts for a category.
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
    codes: tuple[float, ...] = ()
    free_text: bool = False

    @property
    def warning(self) -> str | None:
        """Why a study should leave the column out, or None."""
        if not re.match(PLAIN, self.name):
            return "has a name of more than one line of plain text: rename it"
        if self.named_identifier or self.all_different:
            return f"looks like an identifier: {'by its name' if self.named_identifier else 'its values differ by row'}"
        if self.free_text:
            return f"holds more than {MOST_VALUES} different texts: take those you name by --values NAME=A,B --other"
        return _WARNINGS.get(self.kind) or ("holds one value only" if self.constant else None)


def survey_table(
    data: DataSource, *, public: bool = False, person: str | None = None, show_note: Callable[[str], object] = str
) -> tuple[SurveyedColumn, ...]:
    """Survey the columns of a source; values and ranges only if the source is ``public``.

    Of a public source, shares, means and deviations count each row once, or by the column ``person`` each person: each
    of its r rows counts 1/r. ``show_note`` is called with each line on how the source is read. Raises
    InvalidDataError for a source that is no table, or has no names, or no row, and as `open_stream` does.
    """
    with _open_texts(data) as stream:
        table, where = pa.Table.from_batches(stream.batches(), stream.schema), stream.name
        for note in stream.notes:
            show_note(note)
    if not table.num_rows:
        raise InvalidDataError(f"{where} has no row")
    whose = table.column(person).combine_chunks() if public and person in table.column_names else None
    weights = (
        np.ones(table.num_rows) if person is None or whose is None else weights_by_person(keys_of_array(whose, person))
    )
    return tuple(
        _survey_column(name, table.column(name).combine_chunks(), weights, public=public) for name in table.column_names
    )


@contextmanager
def _open_texts(data: DataSource) -> Iterator[TableStream]:
    """Open the rows of a source, with the columns of CSV files as texts."""
    if source_files(data) is not None:
        stream = file_table(data.source, csv_format=data.csv, as_texts=True)
        check_header(data.source, stream.schema.names)
        check_columns(stream.name, stream.schema.names)
        yield stream
        return
    with open_stream(data, as_texts=True) as stream:
        check_columns(stream.name, stream.schema.names)
        yield stream


def _survey_column(
    name: str,
    array: Any,  # noqa: ANN401 -- as above
    weights: FloatArray,
    *,
    public: bool,
) -> SurveyedColumn:
    if pa.types.is_temporal(array.type):
        return SurveyedColumn(name, "date", names_identifier(name))
    coded = as_coded(column_of(array, as_number=False))
    texts = [text if (text := spelling(value)) and text not in MISSING_TEXTS else None for value in coded.values]
    spelt = {text for text in texts if text}
    numbers, strange = as_numbers(coded)
    finite = numbers[np.isfinite(numbers)]
    kind = _kind(array, spelt, finite, strange is None)
    n_rows = int((coded.codes >= 0).sum())
    values = with_yes_last(sorted(spelt, key=_sort_key)) if public and len(spelt) <= MOST_VALUES else None
    is_public_number = public and kind == "number"
    codes = _codes(numbers) if is_public_number else ()
    is_usual = ~np.isin(finite, [code for code in codes if code < 0])
    usual = finite[is_usual] if is_usual.any() else finite
    weights_of_usual = weights[np.isfinite(numbers)]
    weights_of_usual = weights_of_usual[is_usual] if is_usual.any() else weights_of_usual
    mean = float(np.average(usual, weights=weights_of_usual)) if is_public_number else None
    is_whole = kind == "number" and bool((finite == np.trunc(finite)).all())
    may_identify = kind == "text" or is_whole
    is_different = may_identify and n_rows >= _FEW_ROWS and len(spelt) >= n_rows * (_NEARLY_ALL if public else 1)
    named = names_identifier(name) or (public and numbers_something(name))
    named = named and not (public and (not may_identify or _is_category(len(spelt), n_rows)))
    return SurveyedColumn(
        name,
        kind,
        named_identifier=named or (numbers_people(name) and may_identify and len(spelt) > 2),  # noqa: PLR2004 -- yes and no
        all_different=is_different and not (is_whole and _may_be_quantity(finite)),
        constant=len(spelt) == 1,
        values=values,
        shares=_shares(values, texts, coded.codes, weights) if values else None,
        bounds=_rounded_bounds(usual) if is_public_number else None,
        median=float(f"{np.median(usual):.12g}") if is_public_number else None,
        mean=mean,
        deviation=None if mean is None else float(np.average((usual - mean) ** 2, weights=weights_of_usual) ** 0.5),
        blank=float(np.array([*(text is None for text in texts), True])[coded.codes].mean()) if public else None,
        codes=codes,
        free_text=public and kind == "text" and len(spelt) > MOST_VALUES,
    )


def _codes(numbers: FloatArray) -> tuple[float, ...]:
    """Return those of a column's numbers (n,) that look like codes of missing values."""
    watch, finite = CodeWatch(1), numbers[np.isfinite(numbers)]
    watch.add(np.zeros(1, dtype=np.int64), numbers[None], finite.min(keepdims=True), finite.max(keepdims=True))
    return tuple(sorted(watch.codes(0)))


def _kind(array: Any, spelt: set[str], finite: FloatArray, all_numbers: bool) -> ColumnKind:  # noqa: ANN401, FBT001
    """Return the kind of a column, by all of its values."""
    if not spelt:
        return "empty"
    if all_numbers and len(finite):
        return "number"
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        if all(map(_DATE.fullmatch, spelt)):
            return "date"
        if all(map(_FIGURE.fullmatch, spelt)):
            return "figure"
        n_numbers = len(np.unique(finite))
        if n_numbers >= _MANY_NUMBERS and len(spelt) - n_numbers <= _FEW_TEXTS:
            return "mixed"
    return "text"


def _shares(
    values: Sequence[str], texts: Sequence[str | None], codes: IntArray, weights: FloatArray
) -> tuple[float, ...]:
    """Return the share of non-empty rows with each value; ``texts`` are those of the codes, and -1 is an empty cell."""
    counts = np.bincount(codes[codes >= 0], weights[codes >= 0], minlength=len(texts))
    counts_by_text = dict.fromkeys(values, 0)
    for text, count in zip(texts, counts.tolist(), strict=True):
        if text:
            counts_by_text[text] += count
    total = sum(counts_by_text.values())
    return tuple(count / total for count in counts_by_text.values())


def _is_category(n_values: int, n_rows: int) -> bool:
    """Return whether a column has too few values for its rows to identify people."""
    return n_rows >= _FEW_ROWS and n_values <= max(2, min(_FEW, n_rows * _FEW_SHARE))


def _may_be_quantity(values: FloatArray) -> bool:
    """Return whether whole numbers that rarely repeat may measure something, such as seconds or amounts.

    They may if random numbers from their range would rarely repeat either, unless all have the same number of digits,
    as codes do.
    """
    lower, upper = float(values.min()), float(values.max())
    n, places = len(values), upper - lower + 1
    by_chance = n + places * math.expm1(-n / places)
    repeats = n - len(np.unique(values))
    are_codes = lower >= _LEAST_CODE and math.floor(math.log10(lower)) == math.floor(math.log10(upper))
    return not are_codes and repeats + 2 * math.sqrt(by_chance) >= by_chance


def _sort_key(value: str) -> tuple[bool, float, str]:
    """Return a sort key: numbers by size, then texts."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value


def _rounded_bounds(values: FloatArray) -> tuple[float, float]:
    """Return bounds around numbers, rounded outwards to two digits of their range.

    A proposed bound should not be the number of one record.
    """
    lower, upper = float(values.min()), float(values.max())
    if lower == upper:
        return lower - 1, upper + 1
    if not _LEAST_RANGE < upper - lower < math.inf:
        return lower, upper
    places = 1 - math.floor(math.log10(upper - lower))
    step = 10.0**-places
    low, high = round(math.floor(lower / step) * step, places), round(math.ceil(upper / step) * step, places)
    low, high = min(low, lower), max(high, upper)  # of a range of few units in the last place no rounding is finer
    return max(low, 0.0) if lower >= 0 else low, high
