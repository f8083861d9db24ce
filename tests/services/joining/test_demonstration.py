"""Four owners with Adult's raw table, by the commands that people type: few lines, seconds, no open port."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ADULT = Path(os.environ.get("PARLEY_DATA") or "$PARLEY_DATA", "adult", "adult-train.parquet")


@pytest.mark.slow
@pytest.mark.skipif(not ADULT.exists(), reason="needs PARLEY_DATA with Adult")
@pytest.mark.skipif(shutil.which("ss") is None, reason="needs ss, which tells who listens")
def test_four_owners_join_and_train() -> None:
    command = [sys.executable, "-m", "scripts.demonstrations.joining"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    seconds = [float(text) for text in re.findall(r"connected ([\d.]+) s after its invitation came", done.stdout)]
    assert len(seconds) == 4
    assert max(seconds) < 60  # 3 are usual
    listens = re.findall(r"listens on (.*)", done.stdout)
    assert all(re.fullmatch(r"nothing|127\.0\.0\.1:\d+( and 127\.0\.0\.1:\d+)*", text) for text in listens), listens
    lines, accuracy = re.findall(r"typed by each owner: (\d); accuracy on Adult's test rows: ([\d.]+)", done.stdout)[0]
    assert int(lines) <= 3
    assert float(accuracy) > 0.78  # the majority is 0.76
