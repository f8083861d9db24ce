"""What `make mutants` is told still fits the code: files that exist, and excuses for lines that are still there."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.check import area_of, interval, is_wording

ROOT = Path(__file__).parents[2]
MUTMUT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
ARGUED: list[dict[str, Any]] = tomllib.loads((ROOT / "tests/mutants/argued.toml").read_text())["argued"]


def test_what_is_mutated_and_what_tries_it_exists() -> None:
    named = [*MUTMUT["only_mutate"], *MUTMUT["pytest_add_cli_args_test_selection"]]
    assert [path for path in named if not list(ROOT.glob(path))] == []
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("entry", ARGUED, ids=lambda entry: entry["function"])
def test_an_excuse_is_for_a_line_that_is_still_there(entry: dict[str, Any]) -> None:
    source = (ROOT / entry["file"]).read_text()
    assert any(fnmatch(entry["file"], pattern) for pattern in MUTMUT["only_mutate"])
    assert entry["was"] in " ".join(source.split())
    assert f"def {entry['function'].rpartition('.')[2]}(" in source
    assert entry["was"] not in entry["becomes"]
    assert len(entry["reason"].split()) > 2


def test_a_change_of_words_alone_is_recognised() -> None:
    was = 'return {"state": "it is no Parquet file"}'
    assert is_wording(("", "", was, was.upper().replace("RETURN", "return").replace("STATE", "state")))
    assert is_wording(("", "", was, 'return {"state": "XXit is no Parquet fileXX"}'))
    assert not is_wording(("", "", was, 'return {"STATE": "it is no Parquet file"}'))
    assert not is_wording(("", "", was, 'return {"state": None}'))


def test_an_area_is_a_folder_or_privacy() -> None:
    assert area_of("parley/common/client/peer.py") == "common/client"
    assert area_of("parley/learner/cli/main.py") == "learner"
    assert area_of("parley/common/privacy/noise.py") == area_of("parley/party/policy.py") == "privacy"


def test_the_interval_of_a_share_is_wilsons() -> None:
    assert interval(90, 100) == pytest.approx((0.8256, 0.9448), abs=1e-4)
    assert interval(10, 10)[1] == pytest.approx(1.0)
