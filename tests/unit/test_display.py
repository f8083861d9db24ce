"""What commands print of a roster and of opened rounds."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from parley.learner.cli.display import show_members, show_receipts, show_runs


def lines_of(console: Console) -> list[list[str]]:
    """The words of each line that was printed, without the table's lines."""
    assert isinstance(console.file, StringIO)
    words = (line.replace("│", " ").split() for line in console.file.getvalue().splitlines())
    return [line for line in words if any(word.isalnum() for word in line)]


def test_members_are_shown_with_whether_they_are_connected() -> None:
    console = Console(file=StringIO(), width=100)
    terms = {"role": "party", "state": "member"}
    connections = {"clinic": True, "ward": False, "lab": None}
    show_members([{"name": name, "connected": connected} | terms for name, connected in connections.items()], console)
    assert lines_of(console) == [
        ["name", "role", "state", "connected"],
        ["clinic", "party", "member", "yes"],
        ["ward", "party", "member", "no"],
        ["lab", "party", "member", "-"],
    ]


def test_opened_rounds_are_shown_with_who_signed() -> None:
    console = Console(file=StringIO(), width=100)
    receipts = [{"key_holder": "notary", "signature": "0123456789abcdef" * 8}]
    show_receipts([{"round": 3, "contributors": ["a", "b"], "receipts": receipts}], console)
    assert lines_of(console) == [
        ["round", "contributors", "opened", "by", "signed"],
        ["3", "a,", "b", "notary", "0123456789abcdef…"],
    ]


def test_names_and_words_are_aligned_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Table] = []
    monkeypatch.setattr(Console, "print", lambda _, table: made.append(table))
    show_members([], Console())
    show_receipts([], Console())
    show_runs([], Console())
    assert [[column.justify for column in table.columns] for table in made] == [
        ["left"] * 4, ["left"] * 4, ["left"] * 5 + ["right"] * 2,
    ]  # fmt: skip
    assert [column.no_wrap for column in made[2].columns] == [True, True, False, False, False, True, True]
    assert [column.min_width for column in made[2].columns] == [None] * 7
