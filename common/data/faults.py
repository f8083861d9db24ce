"""What is wrong with an owner's data, column by column: counts of rows and the remedy, never a value.

*Faults* do not fit the study. *Doubts* fit it by the letter, and are most likely not what the study means: an owner
looks at them before anyone is asked. A number that stands for a missing value, such as -999, is recognised by its
digits and by its distance from all others, and so is a column most of whose values are none of the study's, or beyond
its bounds. All of it is about counts and columns; no value is shown, except words that mean yes or no.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.encoding.texts import so_many, spelling
from parley.common.errors import InvalidDataError

MOSTLY = 0.5
"""A larger share of a column's values counts as most of them."""

_NINES = [10.0**digits - 1 for digits in range(1, 8)]
_ENDS = [2.0**15 - 1, 2.0**31 - 1, 1e20, 1e30, 3.4028234663852886e38, 9.969209968386869e36, 1.7976931348623157e308]
_SIGNED = [*_NINES, *(nines + 0.9 for nines in _NINES[1:]), *_ENDS]
CODES = np.array(sorted({*(-code for code in _SIGNED), *_SIGNED[1:], -(2.0**15), -(2.0**31)}))
"""Numbers that forms, statistics programs and instruments write for a missing value: nines, and the ends of types."""

_TWO_DIGITS, _LONE = 99, 999
"""The least codes: -9 may be a temperature, and a column may hold 99 alone."""

_TRUTHS = (
    ("no", "yes"), ("false", "true"), ("0", "1"), ("0.0", "1.0"), ("n", "y"), ("f", "t"), ("nein", "ja"),
    ("falsch", "wahr"), ("non", "oui"), ("faux", "vrai"), ("no", "si"), ("no", "sí"), ("falso", "verdadero"),
    ("não", "sim"), ("falso", "verdadeiro"), ("falso", "vero"), ("nee", "ja"), ("onwaar", "waar"), ("nej", "ja"),
    ("nei", "ja"), ("ei", "kyllä"), ("nie", "tak"), ("fałsz", "prawda"), ("ne", "ano"), ("ne", "da"), ("nem", "igen"),
    ("nu", "da"), ("нет", "да"), ("όχι", "ναι"), ("否", "是"), ("いいえ", "はい"), ("off", "on"),
    ("absent", "present"), ("negative", "positive"), ("-", "+"),
)  # fmt: skip
"""Words for no and yes, as columns have them."""
_NUMBERED = frozenset({"1", "2"})
"""Values that some forms have for no and yes, and others for yes and no."""
_TRUTH_WORDS = _NUMBERED.union(*_TRUTHS)


def with_yes_last(values: Sequence[str]) -> tuple[str, ...]:
    """Return two values that say no and yes in this order, and all others in theirs.

    >>> with_yes_last(["Ja", "Nein"]), with_yes_last(["on", "off", "other"])
    (('Nein', 'Ja'), ('on', 'off', 'other'))
    """
    folded = tuple(value.casefold() for value in values)
    return tuple(values[::-1] if folded[::-1] in _TRUTHS else values)


@dataclass(frozen=True, slots=True)
class Doubt:
    """A ``column`` that is most likely read wrongly: ``what`` is strange about it, and the ``remedy``."""

    column: str
    what: str
    remedy: str

    @property
    def words(self) -> str:
        """The doubt in words, for the owner."""
        return f"{self.column}: {self.what}: {self.remedy}"


def mostly_other(column: str, share: float) -> Doubt:
    """Return the doubt that most values are none of those that the study declares."""
    finding = f"{share:.0%} of its values are none of the study's, and count as other"
    return Doubt(column, finding, _mapped(column, "VALUE", "MEANING"))


def mostly_clipped(column: str, share: float) -> Doubt:
    """Return the doubt that most values lie beyond the bounds."""
    return Doubt(column, f"{share:.0%} of its values lie beyond the bounds", "are they in the study's unit?")


def missing_code(column: str, rows: int) -> Doubt:
    """Return the doubt that a code for a missing value counts as a number."""
    finding = f"what looks like a code for a missing value, such as -999, counts as a number in {so_many(rows, 'row')}"
    return Doubt(column, finding, f"{_mapped(column, '-999', '')} says that it is missing, with the code that you have")


def other_truths(column: str, declared: Iterable[str], values: Iterable[str]) -> Doubt | None:
    """Return the doubt that a table spells the study's no and yes by other words; None if it does not."""
    pairs = {frozenset(words): words for words in _TRUTHS}
    in_study, in_table = ({word.lower(): word for word in words} for words in (declared, values))
    words, others = pairs.get(frozenset(in_study)), pairs.get(frozenset(in_table))
    if {*in_study.values()} == {*in_table.values()}:
        return None
    if (words and in_table.keys() == _NUMBERED) or (others and in_study.keys() == _NUMBERED):
        one, two = sorted(in_table.values())
        finding = (
            f"it has {one} and {two} for {' and '.join(sorted(in_study.values()))}, and no rule says which is which"
        )
        remedy = f"look up what they mean, and say {_mapped(column, one, 'MEANING')} {_mapped(column, two, 'MEANING')}"
        return Doubt(column, finding, remedy)
    if words is None or others is None:
        return None
    meanings = [(in_table[other], in_study[word]) for word, other in zip(words[::-1], others[::-1], strict=True)]
    spelt, meant = (" and ".join(words) for words in zip(*meanings, strict=True))
    return Doubt(column, f"it spells {meant} as {spelt}", " ".join(_mapped(column, *pair) for pair in meanings))


def _mapped(column: str, value: str, meaning: str) -> str:
    """Return the option that gives a value its meaning."""
    return f"--value {column}:{value}={meaning}"


class CodeWatch:
    """Looks for codes of missing values among the numbers of columns as they arrive.

    Only an outermost number can be a code.
    """

    def __init__(self, n_columns: int) -> None:
        self._rows: dict[int, Counter[float]] = {}
        self._least, self._most = np.full(n_columns, math.inf), np.full(n_columns, -math.inf)

    def add(self, which: IntArray, values: FloatArray, least: FloatArray, most: FloatArray) -> None:
        """Take values (m, n) of the columns ``which`` (m,), and the least and most (m,) of each: infinite for none."""
        least, most = least.copy(), most.copy()
        for i in np.flatnonzero(np.isin(least, CODES) | np.isin(most, CODES)).tolist():
            is_code = np.isin(values[i], CODES)
            codes, rows = np.unique(values[i][is_code], return_counts=True)
            counted = self._rows.setdefault(int(which[i]), Counter())
            counted.update(dict(zip(codes.tolist(), rows.tolist(), strict=True)))
            numbers = values[i][~is_code & ~np.isnan(values[i])]
            least[i], most[i] = numbers.min(initial=math.inf), numbers.max(initial=-math.inf)
        self._least[which] = np.minimum(self._least[which], least)
        self._most[which] = np.maximum(self._most[which], most)

    def codes(self, column: int) -> Mapping[float, int]:
        """Return the numbers of a column that are most likely codes, and the number of rows of each."""
        rows = self._rows.get(column, Counter())
        least, most = float(self._least[column]), float(self._most[column])
        near = [code for code in rows if not _is_far(code, least, most)]
        least, most = min([least, *near]), max([most, *near])
        return {code: count for code, count in rows.items() if _is_far(code, least, most)}


def _is_far(code: float, least: float, most: float) -> bool:
    """Whether a number is further from a range than the range is wide, or is its only negative number."""
    if least > most:  # there is no other number
        return code < 0 or code >= _LONE
    if code <= -_TWO_DIGITS and least >= 0:
        return True
    gap = max(least - code, code - most)
    return gap > most - least and gap > abs(code) / 2


def truths_among(values: Iterable[object]) -> set[str]:
    """Return the values that are words for yes or no, as they are spelt."""
    return {text for value in values if (text := spelling(value)) is not None and text.lower() in _TRUTH_WORDS}


FaultKind = Literal[
    "absent", "not numeric", "missing", "list missing", "label missing", "beyond the bounds", "unknown category",
    "unknown label", "no whole number as a place", "place out of range", "place repeated", "too many entries",
    "places and values unequal in number", "identifier missing", "identifier rounded", "no weight from 0 to 1",
]  # fmt: skip

MOST_COLUMNS = 20
"""The most faulty columns that a message names."""

_DROPS = 'rows that miss their list or their label are kept as empty ones by "missing": "drop" in the study'
_REMEDIES: Mapping[FaultKind, str] = {
    "absent": "a column under another name has to be renamed, or read by a query as the source: SELECT other AS name",
    "missing": 'rows that miss a value are kept as empty ones by "missing": "drop" in the study, on all of it or on a '
    'feature, and "missing": "value" puts a feature\'s "fill" there',
    "list missing": _DROPS,
    "label missing": _DROPS,
    "not numeric": 'a cell without a number has to be empty, or "NA" or the like, or what --csv or data.csv says '
    "is missing, where how numbers are written is said too, and signs beside numbers, such as % or a unit, are taken "
    "off by a query as the source",
    "beyond the bounds": 'data.out_of_bounds = "clip" in the settings, or --clip, clips values to the bounds; a number '
    "that stands for a missing value, such as -999, is said to by --value COLUMN:-999=",
    "no whole number as a place": 'places are whole numbers: other parts of LIBSVM rows, such as a "qid", have to go',
    "place out of range": 'places count from "first" of the study, 0 or 1, and "columns" is how many there are',
    "too many entries": '"entries" of the study is the most that a row may have',
    "unknown category": "--value COLUMN:VALUE=MEANING, or data.values in the settings, says which value is meant; "
    '"other": true on a feature of the study takes the values that it does not declare',
    "identifier missing": "leave such rows out by a query as the source; or ask the learner for a new study with "
    '"missing": "alone" of its person (--person-missing alone), which cannot change in one that owners are invited to: '
    "each row without an identifier is then a person of its own, which hides somebody who has such rows in pieces",
    "identifier rounded": "identifiers have to be whole numbers or texts: floating point does not hold so large ones",
    "no weight from 0 to 1": "each row needs a weight from 0 to 1, as the study's row_weights say",
    "unknown label": "a label has to be spelt as in the study: --value COLUMN:VALUE=MEANING, or data.values in the "
    "settings, says which is meant",
}


class UnfitDataError(InvalidDataError):
    """Data that does not fit a study: ``rows`` counts, by column and kind of fault, the rows that do not.

    ``file`` is the first of several files that has such rows, if it is known. ``notes`` say how the table was read, if
    the reader has put them there, and ``doubts`` are what is most likely read wrongly beside them.
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
        """Record that one of several files ends here: the message names the first with a fault."""
        if self._rows and not self._file:
            self._file = name

    def check(self, order: Iterable[str], doubts: Sequence[Doubt] = ()) -> None:
        """Raise UnfitDataError if there is a fault; it names columns in this order, and adds doubts."""
        if not self._rows:
            return
        columns = [name for name in order if name in self._rows]
        details = "; ".join(f"column {name!r}: {_in_words(self._rows[name])}" for name in columns[:MOST_COLUMNS])
        more = f"; and {len(columns) - MOST_COLUMNS} columns more" if len(columns) > MOST_COLUMNS else ""
        helps = "".join(f"; {words}" for words in remedies(self._rows, self._file))
        helps += "".join(f"; {doubt.words}" for doubt in doubts[:MOST_COLUMNS])
        error = UnfitDataError(f"the data does not fit the study: {details}{more}{helps}", self._rows, self._file)
        error.doubts = tuple(doubts)
        raise error


def remedies(rows: Mapping[str, Mapping[FaultKind, int]], file: str = "") -> list[str]:
    """Return remedies against faults counted by column and kind, and the first file with one, if it is known."""
    kinds = {kind for faults in rows.values() for kind in faults}
    where = [f"the first file with such rows is {file}"] if file else []
    return [*where, *dict.fromkeys(words for kind, words in _REMEDIES.items() if kind in kinds)]


def _in_words(kinds: Mapping[FaultKind, int]) -> str:
    """Return the faults of one column, in words."""
    return ", ".join(
        kind if kind == "absent" else f"{kind} in {rows:,} {'row' if rows == 1 else 'rows'}"
        for kind, rows in kinds.items()
    )
