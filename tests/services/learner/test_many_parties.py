"""Many real parties over HTTP, several to a process, a fifth of them away: the benchmark, in small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_a_run_of_many_goes_on_without_those_who_are_away() -> None:
    terms = ["--parties", "40", "--rounds", "5", "--processes", "2", "--seconds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "scripts.benchmarks.parties", *terms],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    measured = json.loads(done.stdout)
    assert (measured["took_part"], measured["absent"]) == (32, 8)
    print(done.stdout.strip())
