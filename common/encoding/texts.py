"""How values and texts are spelt, so that a value is the same in every file, and how text files are decoded.

Text files are as people save them: UTF-8, with or without the byte order mark that editors and shells of Windows put
first. PowerShell's ``>`` writes UTF-16, which its mark shows too.
"""

from __future__ import annotations

import io
import json
import math
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from unicodedata import normalize

MOST_TOLD = 200
"""The most characters of a text from outside in a message: as many as a name in a study may have."""
_DECIMAL = re.compile(r"(-?\d+)\.(\d*?)0*")


def toml_value(value: object) -> str:
    """Spell a text, path, number, truth value or list in TOML: as JSON does, except for ASCII's last character."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


def spelling(value: object) -> str | None:
    r"""Spell a value as in a study. Blanks around a text and the case of truth values do not count; all else does.

    It does not matter whether a letter and its mark are one character or two (Unicode's NFC and NFD), as nobody can see
    that. A number is spelt without zeros after its point. A text stays a text, for 250.1 and 250.10 may be two codes.
    Returns None for a missing value, which is None, NaN or no text at all.

    >>> [spelling(value) for value in (1, 1.0, " a ", True, "true", float("nan"), "")]
    ['1', '1', 'a', 'True', 'True', None, None]
    >>> [spelling(value) for value in ("1.0", "250.10", 250.10)]
    ['1.0', '250.10', '250.1']
    >>> spelling("Mu\u0308ller") == "M\xfcller"
    True
    """
    if value is None or value != value:  # noqa: PLR0124 -- NaN and NaT, of every type
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = (value.decode(errors="replace") if isinstance(value, bytes) else str(value)).strip()
    if not text.isascii():
        text = normalize("NFC", text)
    if text.lower() in {"true", "false"}:
        return text.capitalize()
    if isinstance(value, str | bytes) or not (number := _DECIMAL.fullmatch(text)):
        return text or None
    integer_part, fraction = number.groups()
    return (
        f"{integer_part}.{fraction}"
        if fraction
        else integer_part.removeprefix("-")
        if integer_part == "-0"
        else integer_part
    )


def basis_points(parts: Sequence[float]) -> list[int]:
    """Round parts of a whole to hundredths of a percent that add up as the parts do, by the largest remainders.

    ``parts`` are not negative. Of two equal remainders the first counts as the larger.

    >>> basis_points([1 / 3, 1 / 3, 1 / 3])
    [3334, 3333, 3333]
    >>> basis_points([0.12345, 0.00004, 0.87651])
    [1235, 0, 8765]
    """
    exact = [10_000 * part for part in parts]
    rounded = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(exact)), key=lambda place: rounded[place] - exact[place])
    for place in by_remainder[: round(math.fsum(exact)) - sum(rounded)]:
        rounded[place] += 1
    return rounded


def shortened(text: str) -> str:
    """Shorten a text from outside, such as a column's name, to its first 200 characters, for a message.

    >>> shortened("age"), len(shortened("a" * 1000))
    ('age', 203)
    """
    return text if len(text) <= MOST_TOLD else f"{text[:MOST_TOLD]}..."


def so_many(count: int, thing: str) -> str:
    """Return a number of things in words; their plural ends in s.

    >>> so_many(1, "round"), so_many(2000, "row")
    ('1 round', '2,000 rows')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return words that ask whether one of some names was meant by another one; none if no name is near it.

    >>> did_you_mean("rounds", ["step", "n_rounds"]), did_you_mean("Psgd", ["dp_gd", "psgd"]), did_you_mean("x", ["a"])
    ('; did you mean n_rounds?', '; did you mean psgd?', '')
    """
    by_letters = {_letters(other): other for other in names}
    letters = _letters(name)
    near = get_close_matches(letters, by_letters, 1) or [
        other for other in by_letters if letters and other and (letters in other or other in letters)
    ]
    return f"; did you mean {by_letters[near[0]]}?" if near else ""


def _letters(name: str) -> str:
    """Return a name's letters and digits, without capitals."""
    return "".join(filter(str.isalnum, name.casefold()))


def first_names(names: Sequence[str], most: int = 10) -> str:
    """Return the first of some names as one text, and how many more there are.

    >>> first_names(["a", "b", "c"]), first_names(["a", "b", "c"], 2)
    ('a, b, c', 'a, b and 1 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def as_told(value: float | str) -> str:
    """Return a parameter's value for people: numbers with six digits, texts unchanged.

    >>> as_told(0.1 + 0.2), as_told(40), as_told("output")
    ('0.3', '40', 'output')
    """
    return value if isinstance(value, str) else f"{value:g}"


_UTF16 = (BOM_UTF16_LE, BOM_UTF16_BE)


def is_utf16(start: bytes) -> bool:
    """Return whether a file that begins so has the mark of UTF-16."""
    return start.startswith(_UTF16)


def text_of(file: io.BufferedReader, errors: str = "strict") -> io.TextIOWrapper:
    """Open a binary file's text without its mark, to be read piece by piece; ``errors`` is that of `open`."""
    encoding = "utf-16" if is_utf16(file.peek(len(BOM_UTF16_LE))) else "utf-8-sig"
    return io.TextIOWrapper(file, encoding, errors)


def as_utf8(content: bytes) -> bytes:
    """Return the content of a file as UTF-8 without a mark. Raises UnicodeDecodeError."""
    return content.decode("utf-16").encode() if is_utf16(content) else content.removeprefix(BOM_UTF8)


def decode_text(content: bytes) -> str:
    r"""Return the text of a file without its byte order mark, line ends unchanged. Raises UnicodeDecodeError.

    >>> decode_text(b"\xef\xbb\xbfa word")
    'a word'
    >>> decode_text("a word".encode("utf-16"))
    'a word'
    """
    return as_utf8(content).decode()
