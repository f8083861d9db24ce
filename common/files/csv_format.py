"""What an owner says of how CSV files are written; what is not said is detected (`parley.common.files.csv_files`).

Settings have it as ``data.csv``, commands as ``--csv "separator=; decimal=,"``.
"""

from __future__ import annotations

import codecs
import re
import string
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from parley.common.errors import InvalidInputError
from parley.common.strict import Setting, faults

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
"""The separators of cells by name; another may be said as the character itself."""
_MORE_SEPARATORS = {*string.punctuation, *map(chr, range(1, 32))} - {*"\"'\\+-._\r\n"}
_ESCAPED = re.compile(r"\\x[01][0-9a-f]")
_THOUSANDS = {"space": " ", "point": ".", "comma": ",", "apostrophe": "'"}
_DECIMALS = {"point": ".", "comma": ","}
_CODECS = re.compile(
    r"ascii|utf-(8|8-sig|16(-[lb]e)?)|cp\d+|iso8859-\d+|mac-\w+|koi8-\w|gb\w+|big5\w*|shift_jis\w*|euc_\w+"
)
_SAID = re.compile(r"\s*(\w+)=(\S*)(?:\s+|$)")


def _encoding(text: object) -> object:
    """An encoding by the name that Python has for it; raises ValueError for what is none of texts."""
    if text is None or not isinstance(text, str):
        return text
    try:
        name = codecs.lookup(text).name
    except (LookupError, ValueError):
        name = ""
    if not _CODECS.fullmatch(name):
        raise ValueError("no encoding of this name: say utf-8, utf-16, windows-1252, latin-1 or the like")
    return name


def _sign(names: dict[str, str]) -> BeforeValidator:
    """Takes a sign for its name."""
    by_sign = {sign: name for name, sign in names.items()} | {"\\t": "tab", "’": "apostrophe"}
    return BeforeValidator(lambda text: by_sign.get(text, text) if isinstance(text, str) else text)


def _separator(text: str) -> str:
    """A separator's name, or the character itself; raises ValueError for what cannot stand between cells."""
    if _ESCAPED.fullmatch(text):
        text = bytes.fromhex(text[2:]).decode()
    if text not in SEPARATORS and text not in _MORE_SEPARATORS:
        names = ", ".join(SEPARATORS)
        raise ValueError(
            f"say {names}, or the character itself, such as ^ or \\x1f: one of ASCII that is no letter, digit, "
            "blank or quote, and in no number"
        )
    return text


class CsvFormat(Setting):
    """How CSV files are written. A field that is left out is detected in each file.

    >>> CsvFormat(separator=";", encoding="cp1252")
    CsvFormat(separator='semicolon', decimal=None, thousands=None, encoding='cp1252', missing=(), skip=None, end=None)
    """

    separator: Annotated[
        Annotated[str, AfterValidator(_separator)] | None,
        _sign(SEPARATORS),
        Field(description="what separates cells: comma, semicolon, tab or pipe, or the character itself"),
    ] = None
    decimal: Annotated[
        Literal["point", "comma"] | None,
        _sign(_DECIMALS),
        Field(description="the decimal sign of numbers: point or comma, or the character itself"),
    ] = None
    thousands: Annotated[
        Literal["point", "comma", "space", "apostrophe", "none"] | None,
        _sign(_THOUSANDS),
        Field(
            description="the sign between thousands: point, comma, space, apostrophe, or none, which refuses any; if "
            "unset, what the decimal sign leaves"
        ),
    ] = None
    encoding: Annotated[
        str | None,
        BeforeValidator(_encoding),
        Field(description="the encoding of the text, such as utf-8, utf-16, windows-1252 or latin-1"),
    ] = None
    missing: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(
            description="more texts that stand for a missing value, beside the usual ones such as NA, null, ? and -; "
            "a value that the study declares stays one"
        ),
    ] = ()
    skip: Annotated[int | None, Field(ge=0, le=1000, description="how many lines stand above the line of names")] = None
    end: Annotated[
        int | None,
        Field(ge=0, le=1000, description="how many lines stand below the last row, such as totals; 0 says none does"),
    ] = None

    @model_validator(mode="after")
    def _distinct(self) -> CsvFormat:
        if self.decimal is not None and self.decimal == self.thousands:
            raise ValueError("decimal and thousands must be different signs")
        return self

    def options(self) -> str:
        """What is said, as ``--csv`` takes it.

        >>> CsvFormat(separator="tab", missing=("-99", "x")).options()
        'separator=tab missing=-99,x'
        """
        said = self.model_dump(exclude_defaults=True)
        if self.separator is not None and not self.separator.isprintable():
            said["separator"] = f"\\x{ord(self.separator):02x}"
        return " ".join(f"{key}={','.join(value) if key == 'missing' else value}" for key, value in said.items())


def said_csv(text: str | None) -> CsvFormat:
    """What ``--csv`` says: ``key=value``, with blanks between; raises InvalidInputError.

    >>> said_csv("separator=; decimal=, missing=?,-99 skip=2").missing
    ('?', '-99')
    """
    said: dict[str, object] = {}
    rest = text or ""
    while rest.strip():
        match = _SAID.match(rest)
        if match is None or match[1] not in CsvFormat.model_fields or match[1] in said:
            keys = ", ".join(f"{name}=" for name in CsvFormat.model_fields)
            raise InvalidInputError(
                f'--csv: say {keys} each at most once, with blanks between, such as "separator=; decimal=,"'
            )
        key, value = match.groups()
        said[key] = tuple(filter(None, value.split(","))) if key == "missing" else value
        rest = rest[match.end() :]
    try:
        return CsvFormat.model_validate(said)
    except ValidationError as error:
        raise InvalidInputError(f"--csv: {faults(error)}") from None
