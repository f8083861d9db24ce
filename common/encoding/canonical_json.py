"""Canonical JSON: one spelling for one value, so that a hash identifies it; and reading JSON with one meaning.

Millions of numbers may be arrays of NumPy, one axis each, in lists or in an object: they are written piece by piece.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from json.encoder import c_make_encoder, encode_basestring, encode_basestring_ascii  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from parley.common.errors import TooLargeError

JSON = "application/json"
"""The media type of JSON."""

PIECE = 2**13
"""The most numbers that are written at once: some milliseconds, in which all other threads wait."""

_MOST_DIGITS = 320
_MANY_NAMES = 2**16  # in a text; beyond it the scanner in C may block all other threads for long
_MOST_NAMES = 2**17  # in one object: more than a study has columns, or a run parties
_MOST_VALUES = 2**20
_MOST_NESTS = 3 * 2**17
"""The most arrays and objects: a run of the most members has fewer, and so have three for each record to predict."""


class _UnhurriedDecoder(json.JSONDecoder):
    """Reads JSON with the scanner in Python, three times slower than that in C, and lets other threads run."""

    def __init__(self, **hooks: Any) -> None:  # noqa: ANN401 -- those of json.loads
        super().__init__(**hooks)
        self.scan_once = py_make_scanner(self)


class UnhurriedEncoder(json.JSONEncoder):
    """Writes JSON with the encoder in C, which calls Python for each text and so lets other threads run.

    A value must not contain itself.
    """

    def iterencode(self, o: Any, _one_shot: bool = False) -> Iterator[str]:  # noqa: ANN401, FBT001, FBT002 -- as json has it
        """Yield the pieces of a value's JSON."""
        spell = _spell_ascii if self.ensure_ascii else _spell_text
        separators = self.key_separator, self.item_separator
        flags = self.sort_keys, self.skipkeys, self.allow_nan
        return c_make_encoder(None, self.default, spell, None, *separators, *flags)(o, 0)  # type: ignore[no-any-return]


def _spell_text(text: str) -> str:
    """Encode a text as JSON: a function in Python, so that threads take turns between calls."""
    return encode_basestring(text)


def _spell_ascii(text: str) -> str:
    """Encode a text as JSON in ASCII, also in Python."""
    return encode_basestring_ascii(text)


_SPELLING = UnhurriedEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_UNSPELT = UnhurriedEncoder(ensure_ascii=False, default=lambda _: None)


def canonical(value: Any) -> bytes:  # noqa: ANN401 -- any JSON value
    """Encode a JSON value as UTF-8: keys sorted, no spaces, no NaN or infinity (ValueError).

    >>> canonical({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return _SPELLING.encode(value).encode()


def canonical_digest(value: Any) -> str:  # noqa: ANN401 -- any JSON value
    """Return SHA-256 of a value's canonical JSON, in hexadecimal, without the JSON of millions of numbers in memory.

    Other threads run meanwhile: a study may have so many columns that it takes a second.
    """
    digest = hashlib.sha256()
    for piece in json_pieces(value, _SPELLING):
        digest.update(piece.encode())
    return digest.hexdigest()


def json_pieces(value: Any, spelling: json.JSONEncoder, row: Callable[[int], str] = lambda _: "") -> Iterator[str]:  # noqa: ANN401
    """Yield a value's JSON in pieces if it is a long array, or contains arrays of NumPy, as its first items show.

    ``row`` returns, for the length of a row, the text before and after each piece of it.
    """
    if isinstance(value, dict) and any(map(_has_arrays, value.values())):
        names = sorted(value) if spelling.sort_keys else value
        for i, name in enumerate(names):
            yield f"{spelling.item_separator if i else '{'}{spelling.encode(name)}{spelling.key_separator}"
            yield from json_pieces(value[name], spelling, row)
        yield "}"
    elif not _is_array(value) and _has_arrays(value):
        for i, item in enumerate(value):
            yield spelling.item_separator if i else "["
            yield from json_pieces(item, spelling, row)
        yield "]"
    elif _is_array(value) or (isinstance(value, list | tuple) and len(value) > PIECE):
        yield from _row(value, spelling, row(len(value)))
    else:
        yield spelling.encode(value)


def _row(numbers: Sequence[Any], spelling: json.JSONEncoder, end: str) -> Iterator[str]:
    """Yield an array, piece by piece."""
    comma = spelling.item_separator.strip() if end else spelling.item_separator
    for start in range(0, len(numbers), PIECE):
        piece: Any = numbers[start : start + PIECE]
        yield f"{comma if start else '['}{end}{spelling.encode(piece.tolist() if _is_array(piece) else piece)[1:-1]}"
    yield f"{end}]" if len(numbers) else "[]"


def _is_array(value: Any) -> bool:  # noqa: ANN401 -- any JSON value
    """Return whether a value is an array of NumPy, without loading NumPy."""
    return getattr(value, "ndim", 0) == 1


def _has_arrays(value: Any) -> bool:  # noqa: ANN401 -- any JSON value
    """Return whether a value is an array, or a list that begins with one."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return _is_array(value)


def check_counts(body: bytes, most_values: int = _MOST_VALUES, most_nests: int = _MOST_NESTS) -> None:
    """Raise TooLargeError for JSON of too many values, or arrays and objects: by default 2^20 and 3 2^17.

    They are counted before parsing: a few megabytes of brackets make gigabytes of objects, and take seconds in which
    the interpreter does nothing else.
    """
    if body.count(b",") >= most_values:
        raise TooLargeError(f"the JSON may have at most {most_values} values")
    if body.count(b"[") + body.count(b"{") > most_nests:
        raise TooLargeError(f"the JSON may have at most {most_nests} arrays and objects")


def own_json(text: bytes | str) -> Any:  # noqa: ANN401 -- any JSON value
    """Read JSON that this program wrote. Raises ValueError. Other threads run while a long text is read."""
    return json.loads(text, cls=_decoder_for(text))


def read_json(body: bytes, absent: deque[Any] | None = None) -> Any:  # noqa: ANN401 -- any JSON value
    r"""Read a JSON value without a name twice in an object, NaN, a number that overflows, or half a character.

    Raises ValueError or RecursionError for anything else, and TooLargeError for an object of more than 2^17 names. If a
    name, such as epsilon, were there twice, nobody could say which counts; and half a character (``"\ud800"``) has no
    bytes, and so no digest.

    The values of ``absent`` replace the body's NaNs in turn, and are used up; the body has no more NaNs than those.
    """

    def constant(text: str) -> Any:  # noqa: ANN401 -- what is absent
        return absent.popleft() if absent and text == "NaN" else _finite(text)

    value = json.loads(
        body,
        cls=_decoder_for(body),
        parse_constant=constant,
        parse_float=_finite,
        parse_int=_whole,
        object_pairs_hook=distinct_names,
    )
    if b"\\u" in body or b"\0" in body:  # the second: of UTF-16, which may spell the first otherwise
        _UNSPELT.encode(value).encode()
    return value


def _decoder_for(text: bytes | str) -> type[json.JSONDecoder] | None:
    """Return the decoder that lets other threads run for a text that may have many names; None for the standard one."""
    n_colons = text.count(":") if isinstance(text, str) else text.count(b":")
    return _UnhurriedDecoder if n_colons > _MANY_NAMES else None


def _finite(text: str) -> float:
    """Read a number. Raises ValueError if it is not finite or not in ASCII."""
    if not (text.isascii() and math.isfinite(value := float(text))):
        raise ValueError(text)
    return value


def _whole(text: str) -> int:
    """Read a whole number. Raises ValueError for more digits than a real number has, which take long to read."""
    if len(text) > _MOST_DIGITS or not text.isascii():  # Python's scanner accepts digits of every script
        raise ValueError("a number of many digits, or of digits that JSON has not")
    return int(text)


class NameTwiceError(ValueError):
    """An object in JSON has a name twice."""


def distinct_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object whose names are all different: a hook for `json`.

    Raises NameTwiceError, and TooLargeError for more names than any object has.
    """
    if len(pairs) > _MOST_NAMES:
        raise TooLargeError(f"an object in JSON may have at most {_MOST_NAMES} names")
    members = dict(pairs)
    if len(members) < len(pairs):
        raise NameTwiceError("a name twice")
    return members
