"""Both tools end as docs/exit-codes.md says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = [
    ("parley-party", "--nope", 2),
    ("parley-learner", "--nope", 2),
    ("parley-party", "check --config absent.toml", 2),
    ("parley-learner", "check --config absent.toml", 2),
    ("parley-party", "health --config absent.toml", 1),
    ("parley-learner", "health --config absent.toml", 1),
]


@pytest.mark.parametrize(("tool", "arguments", "code"), CASES)
def test_a_command_ends_with_its_documented_code(tool: str, arguments: str, code: int, tmp_path: Path) -> None:
    """No service runs, and the settings are not there."""
    command = [str(Path(sys.executable).parent / tool), *arguments.split()]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
