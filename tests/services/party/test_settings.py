"""The party's settings: one file, the environment over it, errors that name keys and never values."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from pydantic import BaseModel

from parley.common.errors import InvalidInputError
from parley.common.service.tokens import KnownToken, NamedCaller, hash_token
from parley.party.settings import PartySettings

HASH = hash_token("token")
FILE = f"""
name = "hospital-a"
state = "state"
study = "study.json"
[data]
source = "data.csv"
[policy]
epsilon = 3
delta = 1e-4
max_epsilon_per_run = 1
max_delta_per_run = 1e-5
[[learners]]
name = "learner"
token_hash = "{HASH}"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "party.toml"
    path.write_text(FILE)
    return path


def settings_fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """All settings below a model with their descriptions."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}", field.description
        for table in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(table, type) and issubclass(table, BaseModel):
                yield from settings_fields(table, f"{prefix}{name}.")


def test_every_setting_is_documented() -> None:
    fields = dict(settings_fields(PartySettings))
    assert {"policy.epsilon", "learners.token_hash", "tls.certificate", "limits.body_bytes", "data.source"} <= set(
        fields
    )
    assert [name for name, description in fields.items() if not description] == []


def test_a_file_is_read_once_and_cannot_be_changed(path: Path) -> None:
    settings = PartySettings.load(path)
    assert settings.policy.epsilon == 3
    assert settings.policy.view == "transcript"
    assert settings.tokens == (KnownToken(HASH, NamedCaller("learner")),)
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1  # type: ignore[misc]


def test_the_environment_wins_over_the_file(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "hash"
    secret.write_text(f'[{{"name": "other", "token_hash": "{HASH}"}}]\n')
    monkeypatch.setenv("PARLEY_PARTY_PORT", "8123")
    monkeypatch.setenv("PARLEY_PARTY_POLICY__EPSILON", "2.5")
    monkeypatch.setenv("PARLEY_PARTY_POLICY__ALGORITHMS", '["dp_gd", "psgd"]')
    monkeypatch.setenv("PARLEY_PARTY_LEARNERS_FILE", str(secret))
    settings = PartySettings.load(path)
    assert settings.port == 8123
    assert settings.policy.epsilon == 2.5
    assert settings.policy.delta == 1e-4
    assert settings.policy.algorithms == ("dp_gd", "psgd")
    assert settings.tokens == (KnownToken(HASH, NamedCaller("other")),)


def test_a_secret_may_stand_in_a_file_of_its_own(path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "identity.pem"
    secret.write_text("of the owner\n")
    path.write_text(f'identity_key_file = "{secret}"\n{FILE}')
    identity = PartySettings.load(path).identity_key
    assert identity is not None
    assert identity.get_secret_value() == "of the owner"
    secret.write_bytes(b"\xff\x81")
    with pytest.raises(InvalidInputError, match=r"party\.toml: identity_key_file: not a text"):
        PartySettings.load(path)
    secret.unlink()
    with pytest.raises(InvalidInputError, match=r"party\.toml: identity_key_file: No such file"):
        PartySettings.load(path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("port", "port = 99999\n"), "port"),
        (("port", 'colour = "sesame"\n'), "colour"),
        (("epsilon = 3", "epsilon = 0"), "policy.epsilon"),
        (("epsilon = 3", "epsilon = -1"), "policy.epsilon"),
        (("epsilon = 3", "epsilon = nan"), "policy.epsilon"),
        (("epsilon = 3", "epsilon = inf"), "policy.epsilon"),
        (("delta = 1e-4", "delta = 1.0"), "policy.delta"),
        (("delta = 1e-4", "delta = -1e-9"), "policy.delta"),
        (("delta = 1e-4", "delta = nan"), "policy.delta"),
        (("epsilon = 3", 'epsilon = 3\nadjacency = "sesame"'), "policy.adjacency"),
        (("epsilon = 3", 'epsilon = 3\npublic_rows = ["sesame"]'), "policy.public_rows"),
        ((HASH, "sesame"), "learners.0.token_hash"),
        (("[[learners]]", 'algorithms = ["sesame"]\n[[learners]]'), "policy"),
        (('"data.csv"', '"data.csv"\nout_of_bounds = "sesame"'), "data.out_of_bounds"),
        (('source = "data.csv"', ""), "data.source"),
        (("port", "version = 2\n"), "version: this Parley reads settings of version 1: use one that knows these"),
        ((f'token_hash = "{HASH}"', ""), "learners.0: 'learner' needs either token_hash or tokens"),
        ((f'token_hash = "{HASH}"', "tokens = []"), "learners.0: 'learner' needs either token_hash or tokens"),
        (("token_hash", f'tokens = [{{hash = "{HASH}"}}]\ntoken_hash'), "needs either token_hash or tokens"),
        (
            (f'token_hash = "{HASH}"', f'tokens = [{{hash = "{HASH}", expires = "soon"}}]'),
            "learners.0.tokens.0.expires",
        ),
    ],
)
def test_errors_name_the_key_and_no_value(path: Path, change: tuple[str, str], named: str) -> None:
    old, new = change
    path.write_text(FILE.replace(old, new) if old in FILE else new + FILE)
    with pytest.raises(InvalidInputError, match=named) as refused:
        PartySettings.load(path)
    assert "sesame" not in refused.value.detail or named == "policy"  # names of algorithms are no secret
    assert HASH not in refused.value.detail


def test_a_learner_may_have_several_tokens(path: Path) -> None:
    later = hash_token("later")
    several = f'tokens = [{{hash = "{HASH}", expires = 2027-01-31}}, {{hash = "{later}"}}]'
    path.write_text("version = 1\n" + FILE.replace(f'token_hash = "{HASH}"', several))
    first, second = PartySettings.load(path).tokens
    assert first == KnownToken(HASH, NamedCaller("learner"), date(2027, 1, 31))
    assert second == KnownToken(later, NamedCaller("learner"))


def test_two_learners_with_one_token_are_refused(path: Path) -> None:
    path.write_text(f'{FILE}\n[[learners]]\nname = "other"\ntoken_hash = "{HASH}"\n')
    with pytest.raises(InvalidInputError, match="share a name or a token") as refused:
        PartySettings.load(path)
    assert HASH not in refused.value.detail


@pytest.mark.parametrize("variable", ["PARLEY_PARTY_POLICI__EPSILON", "PARLEY_PARTY_SIGNING_KEY_FILE"])
def test_a_misspelt_variable_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "sesame")
    with pytest.raises(InvalidInputError, match=variable) as refused:
        PartySettings.load(path)
    assert "sesame" not in refused.value.detail


@pytest.mark.parametrize(("value", "named"), [("{not json", "policy"), ("3", "policy")])
def test_a_malformed_variable_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch, value: str, named: str) -> None:
    monkeypatch.setenv("PARLEY_PARTY_POLICY", value)
    with pytest.raises(InvalidInputError, match=named):
        PartySettings.load(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"none\.toml: No such file or directory: say --config FILE$"):
        PartySettings.load(tmp_path / "none.toml")
    path.write_bytes(b"\xff\x81 = 3")
    with pytest.raises(InvalidInputError, match="not a TOML file, for it is not UTF-8"):
        PartySettings.load(path)
    path.write_text('name = "a"\ntoken = secret\n')
    with pytest.raises(InvalidInputError, match=r"not a TOML file: see line 2, column 9$"):
        PartySettings.load(path)
    path.write_text(f"\ufeff{FILE}", encoding="utf-8")
    assert PartySettings.load(path).name
    path.write_text(FILE)
    monkeypatch.setenv("PARLEY_PARTY_NAME_FILE", str(tmp_path / "none"))
    with pytest.raises(InvalidInputError, match="PARLEY_PARTY_NAME_FILE: No such file"):
        PartySettings.load(path)
