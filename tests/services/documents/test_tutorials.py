"""The tutorials do what they say: their commands and programs run as printed, against hospitals that run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.demonstrations.hospitals import Hospitals

TUTORIALS = Path(__file__).parents[3] / "docs" / "tutorials"
pytestmark = pytest.mark.slow


def blocks(tutorial: str) -> Iterator[tuple[str, str]]:
    """The blocks of a tutorial that run, with their language, but for make's: the hospitals run already."""
    text = (TUTORIALS / tutorial).read_text()
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if not re.match(r"make |\.venv/bin/pytest", block):
            yield language, block


def script(tutorial: str) -> str:
    """All of them as one shell script, whose programs in Python are one, in the places of their blocks."""
    parts, program = ["set -eu"], ""
    for language, block in blocks(tutorial):
        if language == "sh":
            parts.append(block)
        else:
            program += block
    if program:
        Path("tutorial.py").write_text(program)
        parts.append(f"{sys.executable} tutorial.py")
    return "\n".join(parts)


def run(tutorial: str, folder: Path, hospitals: Hospitals | None = None) -> str:
    """What a tutorial prints; asserts that nothing of it fails."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if hospitals:
        environment |= {"PARLEY_URL": hospitals.url, "PARLEY_TOKEN": hospitals.token, "ROWS": str(hospitals.table)}
    command = ["bash", "-c", script(tutorial)]
    how: dict[str, Any] = {"cwd": folder, "env": environment, "timeout": 300}
    done: subprocess.CompletedProcess[str] = subprocess.run(command, check=False, capture_output=True, text=True, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_data_scientist_trains_verifies_and_predicts(hospitals: Hospitals, folder: Path) -> None:
    out = run("data-scientist.md", folder, hospitals)
    count = re.search(r"(\d+) of (\d+) right", out)
    assert count
    right, rows = map(int, count.groups())
    print(f"{right} of {rows} right")
    assert rows == len(hospitals.diagnoses)
    assert right > 0.64 * rows, "the commonest class alone"
    assert "completed after" in out
    assert "ALTERED" not in out
    assert "<h1>biopsies: model card</h1>" in (folder / "card.html").read_text()


def test_the_application_asks_follows_predicts_and_checks(hospitals: Hospitals, folder: Path) -> None:
    out = run("application-developer.md", folder, hospitals)
    assert out.count("True\n") == 1
    assert "completed" in out
    assert "invalid-input - epsilon" in out
    assert "nothing was altered - 5 parties approved" in out


def test_the_researcher_simulates(folder: Path) -> None:
    out = run("researcher.md", folder)
    accuracies = re.findall(r"epsilon [\d.]+: accuracy ([\d.]+)", out)
    assert len(accuracies) == 3
    assert float(accuracies[-1]) > 0.9
