"""What another service answers in JSON: counted before it is parsed, for that service may be an adversary."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from parley.common.encoding.canonical_json import check_counts
from parley.common.errors import TooLargeError

_LONGEST, _MOST_VALUES = 2**22, 2**16  # bytes, and values: the longest are a thousand receipts

M = TypeVar("M", bound=BaseModel)


def parse_answer(schema: type[M], content: bytes) -> M:
    """An answer of this form; raises ValidationError, and TooLargeError for one that is larger than any.

    Of each name that nobody expects a fault is told, which takes a hundred times its bytes.
    """
    if len(content) > _LONGEST:
        raise TooLargeError(f"an answer in JSON may have at most {_LONGEST} bytes")
    check_counts(content, _MOST_VALUES, _MOST_VALUES)
    return schema.model_validate_json(content)
