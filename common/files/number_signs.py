"""Which signs the numbers of CSV files have: imported only while a file is read, because pyarrow is large.

A cell such as ``1,5`` or ``1.234,5`` tells that commas are decimal signs; ``0.5`` or ``1,234.5`` that points are.
``1.234`` tells nothing: it is 1.234 or 1234. The signs of a file are one for all of its columns. They are what its
cells tell; nothing is guessed, nor taken from other files of a pattern: where cells contradict one another, or a sign
stands in some and none of them tells, the file is refused until its owner says. One convention is taken without proof:
between commas, a point is decimal.
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
"""Stands for a cell that would be a number with other signs; it is counted as not numeric."""


def _proof(decimal: str) -> str:
    """Texts that are numbers only if this sign is the decimal one."""
    d, o = _DECIMALS[decimal], _DECIMALS[_OTHER[decimal]]
    ways = (
        rf"\d+{d}(?:\d{{0,2}}|\d{{4,}})",  # not three places
        rf"{d}\d+",
        rf"(?:0\d*|\d{{4,}}){d}\d{{3}}",  # more than three digits before it, or a zero
        rf"\d+{d}\d{{3}}[eE][-+]?\d+",
        rf"\d{{1,3}}(?:{o}\d{{3}}|{_BLANKS}\d{{3}}|['’]\d{{3}})+{d}\d+",
        rf"\d{{1,3}}(?:{o}\d{{3}}){{2,}}",  # what stands twice is no decimal sign
    )
    return rf"^\s*[-+]?(?:{'|'.join(ways)})(?:[eE][-+]?\d+)?\s*$"


def _either(sign: str) -> str:
    """Texts in which a sign may be decimal, or stand between thousands."""
    return rf"^\s*[-+]?[1-9]\d{{0,2}}{_DECIMALS[sign]}\d{{3}}\s*$"


_PROOFS = {sign: _proof(sign) for sign in _DECIMALS}
_EITHERS = {sign: _either(sign) for sign in _DECIMALS}


@dataclass(slots=True)
class SignEvidence:
    """What cells tell of the signs of numbers: the first column that proves each decimal sign, and that may have it."""

    proved: dict[str, str] = field(default_factory=dict)
    possible: dict[str, str] = field(default_factory=dict)

    def add(self, column: str, cells: Any) -> None:  # noqa: ANN401 -- pyarrow has no types
        """Look at some cells (n,) of a column, which are texts."""
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
        """Take what another column told."""
        self.proved = other.proved | self.proved
        self.possible = other.possible | self.possible


@dataclass(frozen=True, slots=True)
class NumberSigns:
    """The decimal sign of numbers, ``point`` or ``comma``, and which signs may stand between thousands."""

    decimal: str = "point"
    thousands: tuple[str, ...] = ("comma", "space", "apostrophe")

    @classmethod
    def of(cls, decimal: str) -> NumberSigns:
        """Those of a decimal sign, with what it leaves between thousands."""
        return cls(decimal, (_OTHER[decimal], "space", "apostrophe"))

    @property
    def decimal_point(self) -> str:
        """The decimal sign itself."""
        return "," if self.decimal == "comma" else "."

    def cleaned(self, cells: Any, missing: Collection[str] = MISSING_TEXTS, seen: set[str] | None = None) -> Any:  # noqa: ANN401 -- as above
        """Texts (n,) as programs spell numbers, null where one stands for a missing value; what is none stays.

        The signs that stand between thousands are added to ``seen``.
        """
        trimmed = compute.utf8_trim_whitespace(cells)
        empty = compute.is_in(trimmed, value_set=pa.array(["", *missing], trimmed.type))
        trimmed = compute.if_else(empty, pa.scalar(None, trimmed.type), trimmed)
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
        spelt = compute.if_else(fits, plain, pa.scalar(_NO_NUMBER, trimmed.type))
        return compute.if_else(signed, spelt, trimmed)


AS_PROGRAMS = NumberSigns()
"""How programs write numbers."""


def said_sign(said: CsvFormat) -> str | None:
    """The decimal sign that an owner says, or leaves by saying which stands between thousands."""
    return said.decimal or _OTHER.get(said.thousands or "")


def first_sign(evidence: SignEvidence, separator: str) -> str | None:
    """The decimal sign that some cells of a file tell; None where they tell too little, or contradict one another."""
    if len(evidence.proved) == 1:
        return next(iter(evidence.proved))
    return "point" if separator == "," and "comma" not in {*evidence.proved, *evidence.possible} else None


def decide(evidence: SignEvidence, said: CsvFormat, separator: str, where: str) -> NumberSigns:
    """The signs of a file's numbers, by what its owner says, else by its cells.

    Raises InvalidDataError, which names columns and never a value, where cells contradict one another or tell too
    little.
    """
    decimal = said_sign(said) or _decided(evidence, separator, where)
    if said.thousands is None:
        return NumberSigns.of(decimal)
    return NumberSigns(decimal, () if said.thousands == "none" else (said.thousands,))


def _decided(evidence: SignEvidence, separator: str, where: str) -> str:
    """The decimal sign that cells tell of."""
    say = 'say which by --csv "decimal=comma" or "decimal=point", or data.csv in the settings'
    proved, possible = evidence.proved, evidence.possible
    if len(proved) == 2:  # noqa: PLR2004 -- both signs
        raise InvalidDataError(
            f"{where}: numbers have a decimal point in column {shortened(proved['point'])!r}, and a decimal comma "
            f"in column {shortened(proved['comma'])!r}: {say}"
        )
    if proved:
        return next(iter(proved))
    doubtful: Mapping[str, str] = possible
    if "comma" not in possible and separator == ",":
        doubtful = {}
    for sign, column in doubtful.items():
        raise InvalidDataError(
            f"{where}: in column {shortened(column)!r} a {sign} may be the decimal sign of numbers, or stand between "
            f"thousands, and no column tells: {say}"
        )
    return "point"


def casts(cells: Any, kind: Any) -> bool:  # noqa: ANN401 -- as above
    """Whether texts can all be of a type."""
    try:
        cells.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _any(which: Any) -> bool:  # noqa: ANN401 -- as above
    return bool(compute.any(which).as_py())
