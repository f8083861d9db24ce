"""SQLite, set up to survive a crash and a power cut, and to let nobody race.

Write-ahead log with ``synchronous=FULL``: a commit is on the disk before it returns. Every transaction is ``BEGIN
IMMEDIATE``: it takes the write lock at once, so that what it read still holds when it writes. A process has one
connection, lent to one thread at a time (SQLite before 3.51.3 may corrupt its log when two connections of a process
write and checkpoint at once); other processes wait for each other.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

BUSY_SECONDS = 30

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA secure_delete = ON",  # what is deleted is overwritten: pads' seeds, sums that were opened
)


def open_database(path: Path) -> sqlite3.Connection:
    """The process's connection to the database at ``path``, made readable by its owner alone if it is new.

    Raises sqlite3.Error where the file is not a database, and OSError where it cannot be opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        for pragma in _PRAGMAS:
            connection.execute(pragma)
    except sqlite3.Error:
        connection.close()
        raise
    structlog.get_logger().info("database", path=str(path), sqlite=sqlite3.sqlite_version)
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """One transaction: committed at the end, rolled back by whatever is raised."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
