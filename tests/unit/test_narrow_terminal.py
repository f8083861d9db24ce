"""A party's tables fit a terminal of 80 columns, and are whole where there is none."""

from __future__ import annotations

import pytest

from parley.party.commands import print_table

WORDS = "runs that cost more than is left of the budget " * 4
TABLES: dict[str, list[tuple[str, ...]]] = {
    "two columns": [("name", "party-1"), ("refuses", WORDS), ("key", "ab" * 60)],
    "many columns": [
        ("learner", "run", "purpose", "empty"),
        ("alice", "5f" * 16, WORDS, ""),
        ("bob", "1c" * 16, "-", ""),
    ],
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_fits_and_loses_nothing(
    table: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_table(TABLES[table])
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    assert "\x1b" not in output
    folded = "".join(output.split())
    assert all("".join(entry.split()) in folded for row in TABLES[table] for entry in row)


@pytest.mark.parametrize("table", TABLES)
def test_where_there_is_room_a_row_is_a_line(
    table: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    print_table(TABLES[table])
    assert len(capsys.readouterr().out.splitlines()) == len(TABLES[table])
