"""The demonstration of a first hour counts lines, and notices where a person could not go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.demonstrations.first_hour import DeadEndError, Person, words_after


def test_a_line_counts_and_must_end_well_and_follow_from_what_was_read(tmp_path: Path) -> None:
    person = Person("ann", tmp_path, {"PATH": os.environ["PATH"]})
    person.types("echo next: parley-party join   FILE")
    assert "joined" in person.types("pwd > where; echo joined", after="parley-party join FILE")
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)
    with pytest.raises(DeadEndError, match="ann cannot know 'true': nobody has said 'serve'"):
        person.types("true", after="serve")
    with pytest.raises(DeadEndError, match="exit status 3"):
        person.types("echo no >&2; exit 3")
    assert len(person.typed) == 3


def test_a_program_runs_on_until_the_end(tmp_path: Path) -> None:
    person = Person("ann", tmp_path, {"PATH": os.environ["PATH"]})
    with person.leaves_running("bash -c 'echo ready; echo $$ > pid; exec sleep 60'", "ready") as printed:
        assert "ready" in printed
    pid = (tmp_path / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists()
    with (
        pytest.raises(DeadEndError, match="it has ended"),
        person.leaves_running("bash -c 'echo wrong; exit 1'", "ready"),
    ):
        pass


def test_six_words_are_found_where_they_are_printed() -> None:
    assert words_after("to its operator:\n  rebel stadium spin lunch movie lake\nnext", "operator:") == (
        "rebel stadium spin lunch movie lake"
    )
    with pytest.raises(DeadEndError, match="no six words follow"):
        words_after("operator:\n  only three words", "operator:")
