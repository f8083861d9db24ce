"""Find which signs the numbers of a CSV file have: imported only while a file is read, because pyarrow is large.

A cell such as ``1,5`` or ``1.234,5`` proves that a comma is the decimal sign; ``0.5`` or ``1,234.5`` proves a point.
``1.234`` proves nothing: it is 1.234 or 1234. All columns of a file have the same signs, and only that file's cells
count: nothing is guessed, nor taken from other files of a pattern. Where cells contradict one another, or a sign occurs
and no cell proves what it is, the file is refused until its owner names the sign. One convention needs no proof: in a
file whose separator is a comma, a point is the decimal sign.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import compute

from parley.common.data.cells import MISSING_TEXTS
from parley.common.encoding.texts import shortened
from parley.common.errors import InvalidDataError
from parley.common.files.sources import CsvFormat

_BLANKS = "[ \\x{a0}\\x{202f}\\x{2009}]"
_THOUSANDS = {"point": "[.]", "comma": "[,]", "space": _BLANKS, "apostrophe": "['’]"}
_DECIMALS = {"point": "[.]", "comma": "[,]"}
_OTHER = {"point": "comma", "comma": "point"}
_NO_NUMBER = "no number with these signs"
"""Replaces a cell that would be a number with other signs; it is counted as not numeric."""


def _proof(decimal: str) -> str:
    """Return the pattern of texts that are numbers only if this sign is the decimal one."""
    d, o = _DECIMALS[decimal], _DECIMALS[_OTHER[decimal]]
    alternatives = (
        rf"\d+{d}(?:\d{{0,2}}|\d{{4,}})",  # not three places
        rf"{d}\d+",
        rf"(?:0\d*|\d{{4,}}){d}\d{{3}}",  # more than three digits before it, or a zero
        rf"\d+{d}\d{{3}}[eE][-+]?\d+",
        rf"\d{{1,3}}(?:{o}\d{{3}}|{_BLANKS}\d{{3}}|['’]\d{{3}})+{d}\d+",
        rf"\d{{1,3}}(?:{o}\d{{3}}){{2,}}",  # a sign that occurs twice is not the decimal one
    )
    return rf"^\s*[-+]?(?:{'|'.join(alternatives)})(?:[eE][-+]?\d+)?\s*$"


def _either(sign: str) -> str:
    """Return the pattern of texts in which a sign may be decimal, or separate thousands."""
    return rf"^\s*[-+]?[1-9]\d{{0,2}}{_DECIMALS[sign]}\d{{3}}\s*$"


_PROOFS = {sign: _proof(sign) for sign in _DECIMALS}
_EITHERS = {sign: _either(sign) for sign in _DECIMALS}


@dataclass(slots=True)
class SignEvidence:
    """The first column whose cells prove each decimal sign, and the first whose cells allow it."""

    proved: dict[str, str] = field(default_factory=dict)
    possible: dict[str, str] = field(default_factory=dict)

    def add(self, column: str, cells: Any) -> None:  # noqa: ANN401 -- pyarrow has no types
        """Examine some cells (n,) of a column of texts."""
        commas = _any(compute.match_substring(cells, ","))
        points = _any(compute.match_substring(cells, "."))
        if not commas and (not points or "point" in self.proved):
            return
        if not points and "comma" in self.proved:
            return
        signed = cells.filter(compute.match_substring_regex(cells, "[.,]"))
        for sign in _DECIMALS:
            if sign not in self.proved and _any(compute.match_substring_regex(signed, _PROOFS[sign])):
                self.proved[sign] = column
            if sign not in self.possible and _any(compute.match_substring_regex(signed, _EITHERS[sign])):
                self.possible[sign] = column

    def join(self, other: SignEvidence) -> None:
        """Add the evidence of another column."""
        self.proved = other.proved | self.proved
        self.possible = other.possible | self.possible


@dataclass(frozen=True, slots=True)
class NumberSigns:
    """The decimal sign of numbers, ``point`` or ``comma``, and which signs may stand between thousands."""

    decimal: str = "point"
    thousands: tuple[str, ...] = ("comma", "space", "apostrophe")

    @classmethod
    def of(cls, decimal: str) -> NumberSigns:
        """Return the signs of numbers with this decimal sign; all others may separate thousands."""
        return cls(decimal, (_OTHER[decimal], "space", "apostrophe"))

    @property
    def decimal_point(self) -> str:
        """The decimal sign as a character."""
        return "," if self.decimal == "comma" else "."

    def cleaned(self, cells: Any, missing: Collection[str] = MISSING_TEXTS, seen: set[str] | None = None) -> Any:  # noqa: ANN401 -- as above
        """Spell numbers (n,) as programs do: null for a missing value; a text that is no number stays as it is.

        The signs that separate thousands in these cells are added to ``seen``.
        """
        trimmed = compute.utf8_trim_whitespace(cells)
        empty = compute.is_in(trimmed, value_set=pa.array(["", *missing]))
        trimmed = compute.if_else(empty, None, trimmed)
        odd = "[ ,'’\\x{a0}\\x{202f}\\x{2009}]" if self.decimal == "point" else "[ .,'’\\x{a0}\\x{202f}\\x{2009}]"
        signed = compute.fill_null(compute.match_substring_regex(trimmed, odd), fill_value=False)
        if not _any(signed):
            return trimmed
        groups = "".join(rf"|\d{{1,3}}(?:{_THOUSANDS[sign]}\d{{3}})+" for sign in self.thousands)
        number = rf"^[-+]?(?:\d+{groups})?(?:{_DECIMALS[self.decimal]}\d*)?(?:[eE][-+]?\d+)?$"
        plain = trimmed
        for sign in self.thousands:
            plain = compute.replace_substring_regex(plain, _THOUSANDS[sign], "")
        if self.decimal == "comma":
            plain = compute.replace_substring(plain, ",", ".")
        fits = compute.match_substring_regex(trimmed, number)
        if seen is not None:
            numbers = trimmed.filter(fits)
            seen.update(s for s in self.thousands if _any(compute.match_substring_regex(numbers, _THOUSANDS[s])))
        spelt = compute.if_else(fits, plain, _NO_NUMBER)
        return compute.if_else(signed, spelt, trimmed)


AS_PROGRAMS = NumberSigns()
"""The signs that programs write."""


def stated_decimal(csv_format: CsvFormat) -> str | None:
    """Return the decimal sign that the owner states, or implies by one between thousands; None otherwise."""
    return csv_format.decimal or _OTHER.get(csv_format.thousands or "")


def likely_decimal(evidence: SignEvidence, separator: str) -> str | None:
    """Return the decimal sign to try first, by some cells; None where they suggest none, or contradict one another."""
    if len(evidence.proved) == 1:
        return next(iter(evidence.proved))
    return "point" if separator == "," and "comma" not in {*evidence.proved, *evidence.possible} else None


def decide_signs(evidence: SignEvidence, csv_format: CsvFormat, separator: str, where: str) -> NumberSigns:
    """Return the signs of a file's numbers: those that its owner states, or that its cells prove.

    Raises InvalidDataError where cells contradict one another or prove too little; it names columns and never a value.
    """
    decimal = stated_decimal(csv_format) or _proved_decimal(evidence, separator, where)
    if csv_format.thousands is None:
        return NumberSigns.of(decimal)
    return NumberSigns(decimal, () if csv_format.thousands == "none" else (csv_format.thousands,))


def _proved_decimal(evidence: SignEvidence, separator: str, where: str) -> str:
    """Return the decimal sign that the cells prove; raises InvalidDataError."""
    remedy = 'say which by --csv "decimal=comma" or "decimal=point", or data.csv in the settings'
    proved, possible = evidence.proved, evidence.possible
    if len(proved) == 2:  # noqa: PLR2004 -- both signs
        raise InvalidDataError(
            f"{where}: numbers have a decimal point in column {shortened(proved['point'])!r}, and a decimal comma "
            f"in column {shortened(proved['comma'])!r}: {remedy}"
        )
    if proved:
        return next(iter(proved))
    doubtful: Mapping[str, str] = possible
    if "comma" not in possible and separator == ",":
        doubtful = {}
    for sign, column in doubtful.items():
        raise InvalidDataError(
            f"{where}: in column {shortened(column)!r} a {sign} may be the decimal sign of numbers, or stand between "
            f"thousands, and no column tells: {remedy}"
        )
    return "point"


def can_cast(cells: Any, kind: Any) -> bool:  # noqa: ANN401 -- as above
    """Return whether texts can all be of a type."""
    try:
        cells.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _any(flags: Any) -> bool:  # noqa: ANN401 -- as above
    return bool(compute.any(flags).as_py())
