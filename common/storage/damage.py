"""What a service finds damaged among what it wrote down itself: one error, whatever a decoder says of it.

A disk, a copy that was cut off, or somebody with an editor may change any byte. What is read of a row is decoded within
`decoding`, so that no error of a decoder leaves as it is, and none that says that a request was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from parley.common.errors import DamagedError, NotFoundError, ParleyError, UnavailableError

_FAULTS = (ArithmeticError, AttributeError, LookupError, ParleyError, RecursionError, TypeError, ValueError)


@contextmanager
def decoding(what: str, remedy: str) -> Iterator[None]:
    """Decode ``what`` a service wrote; raises DamagedError, which names it and the ``remedy``, where that cannot be.

    >>> with decoding("the row of run 7 in the table runs", "put back a copy"):
    ...     int("seven")
    Traceback (most recent call last):
    parley.common.errors.DamagedError: the row of run 7 in the table runs is damaged: put back a copy
    """
    try:
        yield
    except (DamagedError, NotFoundError, UnavailableError):  # which no decoder raises
        raise
    except _FAULTS:
        raise DamagedError(f"{what} is damaged: {remedy}") from None
