"""What is read of a chain that cannot be used: all before the first record that was changed, and nothing after."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from parley.common.storage.chain import next_link, salvage, set_aside

RECORDS = (b"one", b"two", b"three")


def rows() -> list[tuple[int, object, object]]:
    """Three records with their links."""
    made: list[tuple[int, object, object]] = []
    link = bytes(32)
    for number, record in enumerate(RECORDS, 1):
        link = next_link(link, record)
        made.append((number, record, link))
    return made


def stored(directory: Path, content: list[tuple[int, object, object]]) -> Path:
    """Rows in a file whose columns take any type: what a bit that flips may make of them."""
    path = directory / "log.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE entries (number, record, link)")
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", content)
    return path


def test_a_whole_chain_is_read_in_order(tmp_path: Path) -> None:
    assert list(salvage(stored(tmp_path, rows()[::-1]))) == rows()


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(
    ("column", "value"),
    [(0, 9), (1, b"other"), (1, "one"), (1, None), (1, 7), (2, bytes(32)), (2, None), (2, "link")],
)
def test_reading_stops_before_what_was_changed(tmp_path: Path, at: int, column: int, value: object) -> None:
    content = rows()
    changed = list(content[at])
    changed[column] = value
    content[at] = tuple(changed)  # type: ignore[assignment]
    expected = rows()[:at]
    assert list(salvage(stored(tmp_path, content))) == expected


def test_a_record_that_is_missing_ends_what_is_read_even_where_the_links_fit(tmp_path: Path) -> None:
    first, second, third = rows()
    assert list(salvage(stored(tmp_path, [first, (3, *second[1:]), (4, *third[1:])]))) == [first]


def test_what_is_put_aside_leaves_nothing_behind(tmp_path: Path) -> None:
    set_aside(tmp_path / "log")
    assert list(tmp_path.iterdir()) == []
    names = {f"log{end}" for end in (".db", ".db-wal", ".db-shm", ".head")}
    for number in (1, 2):
        for name in names:
            (tmp_path / name).write_text(f"{name} {number}")
        set_aside(tmp_path / "log")
        aside = tmp_path / f"replaced-{number}"
        assert {path.name: path.read_text() for path in aside.iterdir()} == {name: f"{name} {number}" for name in names}
    assert {path.name for path in tmp_path.iterdir()} == {"replaced-1", "replaced-2"}
