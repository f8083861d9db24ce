"""What `make mutants` is told still fits the code: files that exist, and excuses for lines that are still there."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MUTMUT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
ARGUED: list[dict[str, Any]] = tomllib.loads((ROOT / "tests/mutants/argued.toml").read_text())["argued"]


def test_what_is_mutated_and_what_tries_it_exists() -> None:
    named = [*MUTMUT["only_mutate"], *MUTMUT["pytest_add_cli_args_test_selection"]]
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("entry", ARGUED, ids=lambda entry: entry["function"])
def test_an_excuse_is_for_a_line_that_is_still_there(entry: dict[str, Any]) -> None:
    assert entry["file"] in MUTMUT["only_mutate"]
    assert entry["was"] in " ".join((ROOT / entry["file"]).read_text().split())
    assert entry["function"].rpartition(".")[2] in (ROOT / entry["file"]).read_text()
    assert entry["was"] not in entry["becomes"]
    assert len(entry["reason"].split()) > 2
