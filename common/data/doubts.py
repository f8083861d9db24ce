"""What fits a study by the letter, and is most likely not what it means: an owner looks at it before anybody is asked.

A number that stands for a missing value, such as -999, is told by its digits and by its distance from all others. So is
a column most of whose values are none of the study's, or beyond its bounds. All of it is about counts and columns; no
value is told, but for words that mean yes or no.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.encoding.spelling import so_many, spelling

MOSTLY = 0.5
"""A larger share of a column's values is most of it."""

_NINES = [10.0**digits - 1 for digits in range(1, 8)]
_ENDS = [2.0**15 - 1, 2.0**31 - 1, 1e20, 1e30, 3.4028234663852886e38, 9.969209968386869e36, 1.7976931348623157e308]
_SIGNED = [*_NINES, *(nines + 0.9 for nines in _NINES[1:]), *_ENDS]
CODES = np.array(sorted({*(-each for each in _SIGNED), *_SIGNED[1:], -(2.0**15), -(2.0**31)}))
"""Numbers that forms, statistics programs and instruments write for a missing value: nines, and the ends of types."""

_TWO_DIGITS, _LONE = 99, 999
"""Where codes begin: -9 may be one of a few degrees, and a column may hold 99 alone."""

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


@dataclass(frozen=True, slots=True)
class Doubt:
    """A ``column`` that is most likely read wrongly: ``what`` is strange about it, and the ``remedy``."""

    column: str
    what: str
    remedy: str

    @property
    def words(self) -> str:
        """The doubt for the owner."""
        return f"{self.column}: {self.what}: {self.remedy}"


def mostly_other(column: str, share: float) -> Doubt:
    """Most values are none of those that the study declares."""
    what = f"{share:.0%} of its values are none of the study's, and count as other"
    return Doubt(column, what, _mapped(column, "VALUE", "MEANING"))


def mostly_clipped(column: str, share: float) -> Doubt:
    """Most values lie beyond the bounds."""
    return Doubt(column, f"{share:.0%} of its values lie beyond the bounds", "are they in the study's unit?")


def missing_code(column: str, rows: int) -> Doubt:
    """What looks like a code for a missing value counts as a number."""
    what = f"what looks like a code for a missing value, such as -999, counts as a number in {so_many(rows, 'row')}"
    return Doubt(column, what, f"{_mapped(column, '-999', '')} says that it is missing, with the code that you have")


def other_truths(column: str, declared: Iterable[str], values: Iterable[str]) -> Doubt | None:
    """A study's no and yes are spelt by other words in a table's ``values``; None where they are not."""
    pairs = {frozenset(words): words for words in _TRUTHS}
    in_study, in_table = ({each.lower(): each for each in words} for words in (declared, values))
    words, others = pairs.get(frozenset(in_study)), pairs.get(frozenset(in_table))
    if {*in_study.values()} == {*in_table.values()}:
        return None
    if (words and in_table.keys() == _NUMBERED) or (others and in_study.keys() == _NUMBERED):
        one, two = sorted(in_table.values())
        what = f"it has {one} and {two} for {' and '.join(sorted(in_study.values()))}, and no rule says which is which"
        remedy = f"look up what they mean, and say {_mapped(column, one, 'MEANING')} {_mapped(column, two, 'MEANING')}"
        return Doubt(column, what, remedy)
    if words is None or others is None:
        return None
    meanings = [(in_table[other], in_study[word]) for word, other in zip(words[::-1], others[::-1], strict=True)]
    spelt, meant = (" and ".join(each) for each in zip(*meanings, strict=True))
    return Doubt(column, f"it spells {meant} as {spelt}", " ".join(_mapped(column, *each) for each in meanings))


def _mapped(column: str, value: str, meaning: str) -> str:
    """The option that says what a value means."""
    return f"--value {column}:{value}={meaning}"


class CodeWatch:
    """Looks for codes of missing values among the numbers of columns as they come: only an outermost one can be one."""

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
            rest = values[i][~is_code & ~np.isnan(values[i])]
            least[i], most[i] = rest.min(initial=math.inf), rest.max(initial=-math.inf)
        self._least[which] = np.minimum(self._least[which], least)
        self._most[which] = np.maximum(self._most[which], most)

    def codes(self, column: int) -> Mapping[float, int]:
        """The numbers of a column that are most likely codes, and in how many rows each stands."""
        rows = self._rows.get(column, Counter())
        least, most = float(self._least[column]), float(self._most[column])
        near = [code for code in rows if not _is_far(code, least, most)]
        least, most = min([least, *near]), max([most, *near])
        return {code: count for code, count in rows.items() if _is_far(code, least, most)}


def _is_far(code: float, least: float, most: float) -> bool:
    """Whether a number lies far from those between two: further than these from each other, or it alone is negative."""
    if least > most:  # there is no other
        return code < 0 or code >= _LONE
    if code <= -_TWO_DIGITS and least >= 0:
        return True
    gap = max(least - code, code - most)
    return gap > most - least and gap > abs(code) / 2


def truths_among(values: Iterable[object]) -> set[str]:
    """Of values those that are words for yes or no, as they are spelt."""
    return {text for value in values if (text := spelling(value)) is not None and text.lower() in _TRUTH_WORDS}
