"""What the Helm chart does before a service starts: secrets made private, and state begun once on an empty volume."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

PREPARE = Path(__file__).parents[3] / "deployments" / "helm" / "parley" / "files" / "prepare.py"


def prepare(root: Path) -> subprocess.CompletedProcess[str]:
    folders = [root / name for name in ("given", "secrets", "begin", "state")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    command = [sys.executable, str(PREPARE), *map(str, folders), str(root / "further")]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)


def mounted(folder: Path, files: dict[str, str]) -> None:
    """Files as a mounted Secret has them: links to links, readable by the group."""
    version = folder / "..2026"
    version.mkdir(parents=True)
    (folder / "..data").symlink_to(version.name)
    for name, text in files.items():
        (version / name).write_text(text)
        (version / name).chmod(0o440)
        (folder / name).symlink_to(f"..data/{name}")


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_secrets_become_private_and_state_begins_once(tmp_path: Path) -> None:
    first = {"identity.key": "key", "ledger.db": "old", "ledger.head": "head"}
    mounted(tmp_path / "given", {"tls.key": "tls"})
    mounted(tmp_path / "begin", first)
    (tmp_path / "state" / "lost+found").mkdir(parents=True)
    assert prepare(tmp_path).returncode == 0
    assert texts(tmp_path / "secrets") == {"tls.key": "tls"}
    assert texts(tmp_path / "state") == first
    for path in (tmp_path / "secrets" / "tls.key", tmp_path / "state" / "identity.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "state" / "ledger.db").write_text("newer")
    (tmp_path / "state" / "identity.key").unlink()
    assert prepare(tmp_path).returncode == 0
    assert texts(tmp_path / "state") == {"ledger.db": "newer", "ledger.head": "head"}, "an old ledger came back"


def test_a_further_learners_secrets_and_certificate_are_added(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    for name, text in (("ledger.db", "newer"), ("tls.pem", "renewed")):
        (tmp_path / "state" / name).write_text(text)
    mounted(tmp_path / "further" / "learner-b", {"connect.token": "token"})
    mounted(tmp_path / "begin", {"ledger.db": "old", "tls.pem": "first", "tls.learner-b.pem": "further"})
    assert prepare(tmp_path).returncode == 0
    token = tmp_path / "secrets" / "learner-b" / "connect.token"
    assert (token.read_text(), stat.S_IMODE(token.stat().st_mode)) == ("token", 0o600)
    assert texts(tmp_path / "state") == {"ledger.db": "newer", "tls.pem": "renewed", "tls.learner-b.pem": "further"}


@pytest.mark.parametrize("left", [{"ledger.db.begin": "ol"}, {"ledger.db": "old", "all.begin": ""}])
def test_an_interrupted_beginning_begins_again(tmp_path: Path, left: dict[str, str]) -> None:
    (tmp_path / "state").mkdir()
    for name, text in left.items():
        (tmp_path / "state" / name).write_text(text)
    gone = prepare(tmp_path)
    assert gone.returncode == 1
    assert "was begun and not finished" in gone.stderr
    mounted(tmp_path / "begin2", {"ledger.db": "old", "ledger.head": "head"})
    (tmp_path / "begin").rmdir()
    (tmp_path / "begin2").rename(tmp_path / "begin")
    assert prepare(tmp_path).returncode == 0
    assert texts(tmp_path / "state") == {"ledger.db": "old", "ledger.head": "head"}


def test_without_anything_to_begin_with_the_volume_stays_empty(tmp_path: Path) -> None:
    assert prepare(tmp_path).returncode == 0
    assert texts(tmp_path / "state") == {}
