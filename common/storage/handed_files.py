"""Files that others have handed over, an invitation, a study, receipts: read no further than such a file goes."""

from __future__ import annotations

from pathlib import Path

from parley.common.encoding.canonical_json import NameTwiceError, check_counts, read_json
from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidInputError, TooLargeError

_LONGEST = 2**23
"""Bytes: as many as a body in JSON may have, and more."""
_MOST_VALUES, _MOST_NESTS = 2**19, 2**18  # a study of the most columns has four values, and two nests, in each


def read_handed_json(path: Path) -> bytes:
    """The JSON in a file that somebody has handed over, for a reader that says what else is wrong with it.

    Raises as `read_handed`, and InvalidInputError for a name twice in an object, or more names than any has.
    """
    content = read_handed(path).encode()
    try:
        read_json(content)
    except NameTwiceError:
        raise InvalidInputError(
            f"{path} cannot be read: a name is twice in an object of its JSON, and nobody could tell which counts"
        ) from None
    except TooLargeError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.detail}") from None
    except (ValueError, RecursionError):
        return content
    return content


def read_handed(path: Path) -> str:
    """The text of a file that somebody has handed over.

    Raises InvalidInputError for a file that is longer than any such, or would make more objects than any; OSError and
    UnicodeDecodeError.
    """
    with path.open("rb") as file:
        content = file.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise InvalidInputError(f"{path} cannot be read: it may have at most {_LONGEST:,} bytes")
    text = decode_text(content)
    try:
        check_counts(text.encode(), _MOST_VALUES, _MOST_NESTS)
    except TooLargeError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.detail}") from None
    return text
