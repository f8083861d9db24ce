"""What is left of a chain that cannot be used any more: to read it as far as it is whole, and to put it aside."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from parley.common.storage.chain import next_link

_ENDS = (".db", ".db-wal", ".db-shm", ".head")


def salvage(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, record and link of all records of a chain's database before the first that was changed."""
    count, link = 0, bytes(32)
    for number, record, stored in _rows(path):
        if not isinstance(record, bytes) or number != count + 1 or stored != next_link(link, record):
            return
        yield number, record, stored
        count, link = number, stored


def set_aside(stem: Path) -> None:
    """Move what there is of a chain into a folder of its own beside it."""
    present = [path for end in _ENDS if (path := stem.with_suffix(end)).exists()]
    if not present:
        return
    number = 1
    while (aside := stem.parent / f"replaced-{number}").exists():
        number += 1
    aside.mkdir(mode=0o700)
    for path in present:
        path.rename(aside / path.name)


def _rows(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """The rows of a file's chain, as far as SQLite can read them."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path)) as connection:
            yield from connection.execute("SELECT number, record, link FROM entries ORDER BY number")
    except sqlite3.DatabaseError:
        return
