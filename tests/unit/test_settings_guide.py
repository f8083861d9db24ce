"""Settings explain themselves: every one has a meaning, and none of them tells a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parley.common.service.settings import Limits, Settings, explain_settings, settings_in_effect
from parley.common.service.tokens import hash_token
from parley.learner.cli.main import learner_app
from parley.learner.settings import LearnerSettings
from parley.party.cli.main import party_app
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings

SERVICES = [PartySettings, LearnerSettings, KeyHolderSettings]
SECRET = "kept-from-everybody-else"


@pytest.mark.parametrize("settings", SERVICES)
def test_every_setting_has_a_meaning_and_a_type(settings: type[Settings]) -> None:
    explained = list(explain_settings(settings))
    assert {each.key for each in explained} >= {"name", "port", "tls.certificate", "limits.body_bytes"}
    assert not [each.key for each in explained if len(each.meaning) < 3]
    assert not [each.key for each in explained if not each.type or "typing" in each.type or "." in each.type]


def test_tables_and_lists_of_tables_are_walked() -> None:
    explained = {setting.key: setting for setting in explain_settings(LearnerSettings)}
    assert explained["users[].role"].type == '"viewer" or "submitter" or "operator"'
    assert explained["users[].tokens[].expires"].type == "day"
    assert explained["users"].required
    assert explained["tls"].type == "table"
    assert explained["users"].type == "list of table"
    assert explained["port"].default == 8000


def test_defaults_are_those_that_the_service_takes() -> None:
    of_holder = {setting.key: setting.default for setting in explain_settings(KeyHolderSettings)}
    assert of_holder["limits.body_bytes"] == 2**26 != Limits().body_bytes


@pytest.mark.parametrize(
    ("app", "command"),
    [(learner_app, []), (party_app, []), (party_app, ["keyholder"])],
    ids=["learner", "party", "key"],
)
def test_config_explains_every_setting_without_a_file(app: object, command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "config", "--explain"])  # type: ignore[arg-type]
    rows = CliRunner().invoke(app, [*command, "config", "--explain", "--format", "json"])  # type: ignore[arg-type]
    assert result.exit_code == rows.exit_code == 0
    keys = [row["key"] for row in json.loads(rows.stdout)]
    assert len(keys) > 30
    assert all(key in result.stdout for key in keys)


def key_holder_file(folder: Path) -> Path:
    (folder / "vault.secret").write_text(SECRET)
    text = f"""\
name = "holder"
state = "{folder / "state"}"
secret_file = "{folder / "vault.secret"}"
[[learners]]
name = "learner"
token_hash = "{hash_token("t")}"
public_key = "{"0" * 64}"
"""
    (folder / "keyholder.toml").write_text(text)
    return folder / "keyholder.toml"


def learner_file(folder: Path, more: str = "") -> Path:
    text = f"""\
name = "learner"
state = "{folder / "state"}"
{more}
[[users]]
name = "alice"
token_hash = "{hash_token("t")}"
"""
    (folder / "learner.toml").write_text(text)
    return folder / "learner.toml"


def test_settings_in_effect_say_where_they_come_from_and_hide_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLEY_KEYHOLDER_LIMITS__CONNECTIONS", "7")
    path = key_holder_file(tmp_path)
    found = {each.key: each for each in settings_in_effect(KeyHolderSettings.load(path))}
    assert (found["limits.connections"].value, found["limits.connections"].source) == (7, "environment")
    assert (found["name"].value, found["name"].source) == ("holder", "file")
    assert found["port"].source == "default"
    result = CliRunner().invoke(party_app, ["keyholder", "config", "--config", str(path)])
    assert result.exit_code == 0
    assert "(hidden)" in result.stdout
    assert SECRET not in result.output


def test_a_learner_that_would_start_is_reported(tmp_path: Path) -> None:
    done = CliRunner().invoke(learner_app, ["check", "--config", str(learner_file(tmp_path)), "--format", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["users"] == ["alice"]
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("prot = 1", "prot"),
        ('studies = "nowhere"', "studies"),
        ('public_data = {loans = "loans.csv"}', "public_data"),
        ('tls = {certificate = "nowhere.pem", key = "nowhere.key"}', "nowhere.pem"),
        ('parties = [{name = "a", url = "http://127.0.0.1:1", token_file = "no.token"}]', "no.token"),
        ('parties = [{name = "a", url = "http://127.0.0.1:1", token = "sesame-x", ca = "no.pem"}]', "parties: 'a': ca"),
    ],
)
def test_a_learner_that_would_not_start_says_which_setting(tmp_path: Path, more: str, words: str) -> None:
    done = CliRunner().invoke(learner_app, ["check", "--config", str(learner_file(tmp_path, more))])
    assert done.exit_code == 3
    assert words in done.stderr
    assert "sesame" not in done.output
    assert len(done.stderr.strip().splitlines()) == 1
