"""What is wrong with an owner's data, column by column: counts of rows and the remedy, never a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from parley.common.data.doubts import Doubt
from parley.common.errors import InvalidDataError

FaultKind = Literal[
    "absent", "not numeric", "missing", "list missing", "label missing", "beyond the bounds", "unknown category",
    "unknown label", "no whole number as a place", "place out of range", "place repeated", "too many entries",
    "places and values unequal in number",
]  # fmt: skip

MOST_COLUMNS = 20
"""So many faulty columns are told of by name."""

_DROPS = 'rows that miss their list or their label are kept as empty ones by "missing": "drop" in the study'
_REMEDIES: Mapping[FaultKind, str] = {
    "missing": 'rows that miss a value are kept as empty ones by "missing": "drop" in the study, on all of it or on a '
    'feature, and "missing": "value" puts a feature\'s "fill" there',
    "list missing": _DROPS,
    "label missing": _DROPS,
    "not numeric": 'a cell without a number has to be empty, or "NA" or the like, or what --csv or data.csv says '
    "is missing, where how numbers are written is said too, and signs beside numbers, such as % or a unit, are taken "
    "off by a query as the source",
    "beyond the bounds": 'data.out_of_bounds = "clip" in the settings, or --clip, clips values to the bounds; a number '
    "that stands for a missing value, such as -999, is said to by --value COLUMN:-999=",
    "no whole number as a place": 'places are whole numbers: what else LIBSVM rows say, such as a "qid", has to go',
    "place out of range": 'places count from "first" of the study, 0 or 1, and "columns" is how many there are',
    "too many entries": '"entries" of the study is the most that a row may have',
    "unknown category": "--value COLUMN:VALUE=MEANING, or data.values in the settings, says which value is meant; "
    '"other": true on a feature of the study takes the values that it does not declare',
    "unknown label": "a label has to be spelt as in the study: --value COLUMN:VALUE=MEANING, or data.values in the "
    "settings, says which is meant",
}


class UnfitDataError(InvalidDataError):
    """Data that does not fit a study: ``rows`` counts, by column and kind of fault, the rows that do not.

    ``file`` is the first of several files that has such rows, where that is known. ``notes`` say how the table was
    read, if the reader has put them there, and ``doubts`` what else is most likely read wrongly.
    """

    notes: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    def __init__(self, detail: str, rows: Mapping[str, Mapping[FaultKind, int]], file: str = "") -> None:
        super().__init__(detail)
        self.rows, self.file = rows, file


class Faults:
    """The faults of a table as its blocks are read."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[FaultKind, int]] = {}
        self._file = ""

    def note(self, column: str, kind: FaultKind, rows: int) -> None:
        """Count some more rows of a column."""
        if rows:
            kinds = self._rows.setdefault(column, {})
            kinds[kind] = kinds.get(kind, 0) + rows

    def end_file(self, name: str) -> None:
        """Say that one of several files ends here: the first with a fault is told."""
        if self._rows and not self._file:
            self._file = name

    def check(self, order: Iterable[str], doubts: Sequence[Doubt] = ()) -> None:
        """Raise UnfitDataError where there is a fault; tells of columns in this order, and of doubts."""
        if not self._rows:
            return
        columns = [name for name in order if name in self._rows]
        told = "; ".join(f"column {name!r}: {_told(self._rows[name])}" for name in columns[:MOST_COLUMNS])
        more = f"; and {len(columns) - MOST_COLUMNS} columns more" if len(columns) > MOST_COLUMNS else ""
        helps = "".join(f"; {words}" for words in remedies(self._rows, self._file))
        helps += "".join(f"; {doubt.words}" for doubt in doubts[:MOST_COLUMNS])
        error = UnfitDataError(f"the data does not fit the study: {told}{more}{helps}", self._rows, self._file)
        error.doubts = tuple(doubts)
        raise error


def remedies(rows: Mapping[str, Mapping[FaultKind, int]], file: str = "") -> list[str]:
    """What helps against faults that are counted by column and kind, and which file has the first, if it is known."""
    kinds = {kind for found in rows.values() for kind in found}
    where = [f"the first file with such rows is {file}"] if file else []
    return [*where, *dict.fromkeys(words for kind, words in _REMEDIES.items() if kind in kinds)]


def _told(kinds: Mapping[FaultKind, int]) -> str:
    """The faults of one column."""
    return ", ".join(
        kind if kind == "absent" else f"{kind} in {rows:,} {'row' if rows == 1 else 'rows'}"
        for kind, rows in kinds.items()
    )
