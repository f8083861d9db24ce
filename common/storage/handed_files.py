"""Read files that other people hand over, such as an invitation, a study or receipts: with bounds on their size."""

from __future__ import annotations

from pathlib import Path

from parley.common.encoding.canonical_json import NameTwiceError, check_counts, read_json
from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidInputError, TooLargeError

_LONGEST = 2**23
"""Bytes, more than a body in JSON may have."""
_MOST_VALUES, _MOST_NESTS = 2**19, 2**18  # a study of the most columns has 4 values and 2 nested ones in each


def read_handed_json(path: Path) -> bytes:
    """Read the JSON of such a file; the caller's validation reports other faults.

    Raises as `read_handed` does, and InvalidInputError for a name that occurs twice in an object, or too many names.
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
    """Read the text of such a file.

    Raises InvalidInputError for a file that is too long, or would make too many objects; OSError and
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
