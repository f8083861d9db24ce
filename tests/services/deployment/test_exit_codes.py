"""Both tools end as docs/exit-codes.md says."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

CASES = [
    ("parley-party", "--nope", 2),
    ("parley-learner", "--nope", 2),
    ("parley-party", "check --config absent.toml", 3),
    ("parley-learner", "check --config absent.toml", 3),
    ("parley-party", "health --config absent.toml", 3),
    ("parley-learner", "health --config absent.toml", 3),
    ("parley-party", "audit verify absent --key 00", 3),
    ("parley-learner", "study check absent.json --data absent.csv", 3),
    ("parley-learner", "list --url http://127.0.0.1:1 --token-file token", 4),
]


@pytest.mark.parametrize(("tool", "arguments", "code"), CASES)
def test_a_command_ends_with_its_documented_code(tool: str, arguments: str, code: int, tmp_path: Path) -> None:
    """No service runs, and the settings are not there."""
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    command = [str(Path(sys.executable).parent / tool), *arguments.split()]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("tool", "arguments", "kind"),
    [
        ("parley-party", "check --config absent.toml", "invalid-input"),
        ("parley-learner", "check --config absent.toml", "invalid-input"),
        ("parley-learner", "list --url http://127.0.0.1:1 --token-file token", "unavailable"),
    ],
)
def test_programs_are_told_errors_as_json(tool: str, arguments: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    command = [str(Path(sys.executable).parent / tool), *arguments.split(), "--format", "json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    document = json.loads(ended.stderr)
    assert (set(document), document["type"]) == ({"error", "type"}, kind)
    assert not ended.stdout


def test_a_service_whose_port_is_taken_says_so_in_a_sentence(tmp_path: Path) -> None:
    tool = str(Path(sys.executable).parent / "parley-learner")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = [tool, "init", f"http://127.0.0.1:{port}", "--plain-http", "--out", "learner"]
        subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
        serve = [tool, "serve", "--config", "learner/learner.toml"]
        ended = subprocess.run(serve, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    message = f"parley-learner: 127.0.0.1:{port} cannot be listened on: Address already in use"
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (3, message)
