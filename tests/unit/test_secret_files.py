"""Which files hold a service's secrets, and a warning of those that every user of the machine can read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from parley.common.service.secret_files import is_readable_by_all
from parley.common.service.serve import serve
from parley.common.service.tokens import hash_token
from parley.learner.settings import LearnerSettings
from parley.party.keyholder.settings import KeyHolderSettings
from tests.unit.test_serving import Some, Stage


@pytest.fixture
def opened() -> Iterator[Path]:
    """A folder that every user of this machine can enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_file_is_readable_by_all_if_its_folders_are_too(opened: Path) -> None:
    (opened / "shut").mkdir(mode=0o700)
    for file in (opened / "token", opened / "shut" / "token"):
        file.touch(mode=0o644)
    assert is_readable_by_all(opened / "token")
    assert not is_readable_by_all(opened / "shut" / "token")
    assert not is_readable_by_all(opened / "absent")
    (opened / "token").chmod(0o640)
    assert not is_readable_by_all(opened / "token")


def test_settings_say_which_files_hold_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sealing").write_text("0123456789abcdef")
    learners = f'[[learners]]\nname = "learner"\ntoken_hash = "{hash_token("t")}"\npublic_key = "{"0" * 64}"\n'
    path = tmp_path / "settings.toml"
    path.write_text(
        f'name = "a"\nstate = "{tmp_path}"\ntls = {{ certificate = "tls.pem", key = "tls.key" }}\n{learners}'
    )
    monkeypatch.setenv("PARLEY_KEYHOLDER_SECRET_FILE", str(tmp_path / "sealing"))
    assert KeyHolderSettings.load(path).secret_files == (tmp_path / "sealing", Path("tls.key"))
    users = f'[[users]]\nname = "a"\ntoken_hash = "{hash_token("t")}"\n'
    party = '[[parties]]\nname = "b"\nurl = "http://127.0.0.1:1"\ntoken_file = "b.token"\nca = "ca.pem"\n'
    path.write_text(f'name = "a"\nstate = "{tmp_path}"\n{users}{party}')
    assert LearnerSettings.load(path).secret_files == (Path("b.token"),)
    joining = '[joining]\nurl = "https://a.example"\nauthority = "authority.pem"\nauthority_key = "authority.key"\n'
    sign_in = '[sign_in]\nissuer = "https://b.example"\nclient_id = "a"\nclient_secret_file = "client-secret"\n'
    sign_in += 'url = "https://a.example"\nroles = { staff = "viewer" }\n'
    path.write_text(f'name = "a"\nstate = "{tmp_path}"\n{users}{joining}{sign_in}')
    assert set(LearnerSettings.load(path).secret_files) == {Path("authority.key"), Path("client-secret")}


def test_a_service_warns_of_a_secret_that_all_can_read(opened: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Stage(monkeypatch)
    app = FastAPI()
    app.state.tokens = app.state.metrics = None
    (opened / "tls.key").touch(mode=0o644)
    tls = {"certificate": opened / "tls.pem", "key": opened / "tls.key"}
    with capture_logs() as lines:
        serve(app, Some.model_validate({"name": "clinic", "state": opened, "tls": tls}))
    (warning,) = (line for line in lines if line["log_level"] == "warning")
    assert warning["event"] == "secret"
    assert warning["file"] == str(opened / "tls.key")
