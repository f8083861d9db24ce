"""Files that others have handed over, an invitation, a study, receipts: read no further than such a file goes."""

from __future__ import annotations

from pathlib import Path

from common.encoding.canonical_json import check_counts
from common.encoding.saved_text import decode_text
from common.errors import InvalidInputError, TooLargeError

_LONGEST = 2**23
"""Bytes: as many as a body in JSON may have, and more."""
_MOST_VALUES, _MOST_NESTS = 2**19, 2**18  # a study of the most columns has four values, and two nests, in each


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
