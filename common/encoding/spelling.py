"""How values are spelt, so that one file's 1.0 is another's 1."""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"(-?\d+)\.(\d*?)0*")


def spelling(value: object) -> str | None:
    """How a value is spelt in a study: blanks around it, zeros after the point and the case of truth do not count.

    None for a missing value, which is None, NaN or no text at all.

    >>> [spelling(value) for value in (1, 1.0, "1.0", " a ", True, "true", float("nan"), "")]
    ['1', '1', '1', 'a', 'True', 'True', None, None]
    """
    if value is None or value != value:  # noqa: PLR0124 -- NaN and NaT, of whatever type
        return None
    text = (value.decode(errors="replace") if isinstance(value, bytes) else str(value)).strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if text.lower() in {"true", "false"}:
        return text.capitalize()
    if number := _DECIMAL.fullmatch(text):
        whole, rest = number.groups()
        return f"{whole}.{rest}" if rest else whole.removeprefix("-") if whole == "-0" else whole
    return text or None


def so_many(count: int, thing: str) -> str:
    """A number of things, whose plural ends in s.

    >>> so_many(1, "round"), so_many(2000, "row")
    ('1 round', '2,000 rows')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def as_told(value: float | str) -> str:
    """How a parameter's value is told to people: numbers to six digits, texts as they are.

    >>> as_told(0.1 + 0.2), as_told(40), as_told("output")
    ('0.3', '40', 'output')
    """
    return value if isinstance(value, str) else f"{value:g}"
