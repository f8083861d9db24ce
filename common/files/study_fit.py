"""Whether an owner's table fits a study, before anything is set up: names of columns and counts, never a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from parley.common.data.columns import Feature
from parley.common.data.doubts import Doubt
from parley.common.data.faults import MOST_COLUMNS, FaultKind, UnfitDataError, remedies
from parley.common.data.loading import NARROW, Loaded
from parley.common.data.study import Study
from parley.common.encoding.spelling import shortened, so_many
from parley.common.files.column_names import check_header, columns_meant, identifier_words, near_name, person_words
from parley.common.files.examples import load_examples, load_source
from parley.common.files.file_tables import column_names, source_files
from parley.common.files.sources import DataSource

_MOST_EMPTY = 0.5
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class StudyFit:
    """What of a table fits a study. All of it is for the owner alone, and none of it is a value.

    ``faults`` counts, by column and kind, the rows that do not fit; an absent column is one fault. ``extra`` are
    columns that the study does not name, which are never read. ``identifiers`` are columns of the *study* whose names
    say that they tell who somebody is. ``n_rows`` is None where faults kept the table from being loaded. ``clipped``
    are the shares of values that were clipped, by column; ``dropped`` that of rows which miss a value, ``missing`` how
    many miss that of a column, the most first. ``narrow`` are columns whose bounds are far wider than what is in them,
    ``others`` the shares of values that the study does not name and takes as other ones, by column. ``file`` is the
    first of several files with a fault, where that is known. ``notes`` say how the table is read,
    ``doubts`` what fits by the letter and is most likely read wrongly, unless its owner takes it ``as_is``.
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

    @property
    def fits(self) -> bool:
        """Whether a party could start with this table, of which nothing is in doubt, or which is taken as it is."""
        return self.has_room and (self.as_is or not self.doubts)

    @property
    def has_room(self) -> bool:
        """Whether all rows fit by the letter, and there are enough."""
        return self.n_rows is not None and self.n_rows >= self.minimum_rows

    @property
    def mostly_empty(self) -> bool:
        """Whether more than half of the rows would be empty ones: the table fits, and hardly teaches anything."""
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
        """The report for programs."""
        return {"fits": self.fits, **asdict(self), "absent": self.absent, "mostly_empty": self.mostly_empty}

    def lines(self) -> list[str]:
        """The report for people, the verdict first."""
        details = (*self.notes, *self._faults(), *(doubt.words for doubt in self.doubts), *self._hints())
        return [self._verdict(), *self._warnings(), *(f"  {line}" for line in details)]

    def _verdict(self) -> str:
        if self.fits and self.n_rows:
            return f"the data fits {self.study}: {so_many(self.n_rows, 'row')}"
        if self.has_room:
            columns = "column is" if len(self.doubted) == 1 else "columns are"
            return f"the data does not fit {self.study}: {len(self.doubted):,} {columns} most likely read wrongly"
        if self.n_rows is not None:
            return f"the data does not fit {self.study}: {self.n_rows:,} rows, and {self.minimum_rows:,} are needed"
        columns = "column does" if len(self.faults) == 1 else "columns do"
        return f"the data does not fit {self.study}: {len(self.faults):,} {columns} not"

    def _warnings(self) -> list[str]:
        """What an owner should not overlook where a table fits."""
        return [*self._emptiness(), *self._narrowness()]

    def _narrowness(self) -> list[str]:
        """That rows are alike, for the study expects far wider ones."""
        if not self.narrow:
            return []
        more = f" and {len(self.narrow) - _MOST_NAMED:,} more" if len(self.narrow) > _MOST_NAMED else ""
        columns = "1 column fills" if len(self.narrow) == 1 else f"{len(self.narrow):,} columns fill"
        return [
            f"warning: {columns} less than {NARROW:.0%} of the bounds, which leaves rows alike: noise is the more",
            f"  namely {', '.join(self.narrow[:_MOST_NAMED])}{more}; take narrower bounds if they are common knowledge",
        ]

    def _emptiness(self) -> list[str]:
        """That most rows miss a value."""
        if self.n_rows is None or not self.mostly_empty:
            return []
        told = ", ".join(f"{name} in {rows:,}" for name, rows in list(self.missing.items())[:_MOST_NAMED])
        empty = f"{round(self.dropped * self.n_rows):,} of its {self.n_rows:,} rows ({self.dropped:.2%})"
        remedy = 'a study may leave such columns out, or put a "fill" there by "missing": "value"'
        return [
            f"warning: {empty} miss a value and would be empty ones, of which nothing is learnt",
            f"  most often missing: {told}; {remedy}",
        ]

    def _faults(self) -> list[str]:
        """What does not fit, by column."""
        told = [
            f"{name}: "
            + ", ".join(
                self._absent(name) if kind == "absent" else f"{kind}: {so_many(n, 'row')}" for kind, n in kinds.items()
            )
            for name, kinds in list(self.faults.items())[:MOST_COLUMNS]
        ]
        more = len(self.faults) - MOST_COLUMNS
        return [*told, *([f"and {more:,} columns more"] if more > 0 else [])]

    def _absent(self, name: str) -> str:
        """That a column is absent, and which may be meant."""
        near = near_name(name, self.extra)
        return "absent" if near is None else f"absent, but there is {near!r}: its name has to be spelt alike"

    def _hints(self) -> list[str]:
        """What helps, and what the owner should know, whether the table fits or not."""
        hints = remedies(self.faults, self.file)
        hints += [f"{name}: {share:.2%} of the values clipped" for name, share in self.clipped.items()]
        hints += [
            f"{name}: {share:.2%} of the values are none of the study's: other" for name, share in self.others.items()
        ]
        if self.dropped and not self.mostly_empty:
            hints.append(f"{self.dropped:.2%} of the rows miss a value and are kept as empty ones")
        if self.extra:
            names = ", ".join(self.extra[:MOST_COLUMNS]) + (" ..." if len(self.extra) > MOST_COLUMNS else "")
            hints.append(f"not in the study, and never read: {names}")
        hints += [f"{name}: looks like an identifier: ask why the study wants it" for name in self.identifiers]
        return hints


def fit_of(
    study: Study, names: Sequence[str], load: Callable[[], Loaded], minimum_rows: int = 1, *, as_is: bool = False
) -> StudyFit:
    """How a table with columns ``names`` fits a study; ``load`` loads it, and raises `UnfitDataError` where it cannot.

    Any other InvalidDataError passes: then there is no table, or no row.
    """
    known = frozenset(columns_meant(names, study.table_names).values())
    extra = tuple(shortened(name) for name in names if name and name not in known)
    numbers = {each.name for each in study.named if isinstance(each, Feature) and each.upper - each.lower > 1}
    wanted = tuple(
        name for name in study.table_names if identifier_words(name) or (name in numbers and person_words(name))
    )
    try:
        loaded = load()
    except UnfitDataError as error:
        order = {name: place for place, name in enumerate(study.table_names)}
        faults = {
            name: dict(error.rows[name]) for name in sorted(error.rows, key=lambda name: order.get(name, math.inf))
        }
        return StudyFit(
            study.name,
            None,
            minimum_rows,
            faults,
            extra,
            wanted,
            file=error.file,
            notes=error.notes,
            doubts=error.doubts,
            as_is=as_is,
        )
    return StudyFit(
        study.name,
        int(loaded.shard.n_examples),
        minimum_rows,
        {},
        extra,
        wanted,
        dict(loaded.clipped),
        loaded.dropped_share,
        loaded.missing,
        loaded.narrow,
        dict(loaded.others),
        notes=loaded.notes,
        doubts=loaded.doubts,
        as_is=as_is,
    )


def fit_of_file(study: Study, path: Path, *, clip: bool = False, minimum_rows: int = 1) -> StudyFit:
    """How a file fits a study; ``clip`` is whether its owner would clip values to the study's bounds.

    Raises InvalidDataError for a file that is no table, or has no row, or no names in its first line.
    """
    names = () if study.sparse else column_names(path)
    _check_header(study, str(path), names)
    return fit_of(study, names, lambda: load_examples(path, study, clip=clip), minimum_rows)


def fit_of_source(
    study: Study, data: DataSource, *, clip: bool = False, as_is: bool = False, minimum_rows: int = 1
) -> StudyFit:
    """How a source fits a study: a file, a pattern of some, or a table of SQLite; raises what `fit_of_file` raises."""
    names = () if study.sparse or data.is_query else _source_names(data)
    _check_header(study, data.source, names)
    return fit_of(study, names, lambda: load_source(data, study, clip=clip), minimum_rows, as_is=as_is)


def _source_names(data: DataSource) -> tuple[str, ...]:
    """The columns of a source that is no query: of several files those of the first."""
    if (paths := source_files(data)) is not None:
        return column_names(paths[0], data.csv)
    from parley.common.files.named_tables import open_stream  # noqa: PLC0415 -- databases, for who has one

    with open_stream(data) as rows:
        return tuple(rows.schema.names)


def _check_header(study: Study, where: str, names: Sequence[str]) -> None:
    """Raise InvalidDataError where no name is the study's, and the first line names no columns."""
    if not columns_meant(names, study.table_names):
        check_header(where, [name for name in names if name])
