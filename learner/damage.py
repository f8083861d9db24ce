"""What of a learner's database is damaged, by table and run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from parley.common.errors import DamagedError
from parley.common.storage.damage import decoding

_REMEDY = "stop the learner and put back a copy of its state, or start the run anew; it goes on with all others"
_FILE_REMEDY = "stop the learner and put back a copy of its state"


class DamagedStoreError(DamagedError):
    """The learner's database cannot be read, or not a part of it that has no run."""

    def __init__(self, detail: str, **facts: object) -> None:
        super().__init__(f"{detail}: {_FILE_REMEDY}", **facts)


@contextmanager
def decoding_row(table: str, run: str) -> Iterator[None]:
    """Decode a row of a run, or what follows from it; raises DamagedError that names the table and the run."""
    with decoding(f"the row of run {readable(run)[:100]!r} in the table {table!r} of the learner's database", _REMEDY):
        yield


def readable(text: str) -> str:
    """A text that may hold bytes that were no UTF-8, without them."""
    return text.encode("utf-8", "replace").decode()
