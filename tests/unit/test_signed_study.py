"""A study that a learner signed is taken as it was signed, and of that learner alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from parley.common.encoding.key_words import words_of
from parley.common.errors import InvalidInputError
from parley.common.files.studies import read_study
from parley.common.runs.certificate import SignedStudy
from parley.common.secure_sum.envelope import public_hex
from parley.learner.cli.main import learner_app
from parley.party.cli.main import party_app

ADULT = Path(__file__).parents[1] / "data" / "adult" / "study.json"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Adult's study, signed."""
    path = tmp_path / "adult.signed.json"
    path.write_text(SignedStudy.sign(read_study(ADULT), "learner", KEY).model_dump_json())
    return path


def test_a_signed_study_is_the_study(path: Path) -> None:
    assert read_study(path) == read_study(ADULT)
    assert read_study(path, [public_hex(KEY)]).digest == read_study(ADULT).digest


def test_a_study_of_another_learner_is_refused(path: Path) -> None:
    stranger = public_hex(Ed25519PrivateKey.generate())
    with pytest.raises(InvalidInputError, match="with a key that none of your learners has"):
        read_study(path, [stranger])


def _purpose(document: dict[str, Any]) -> None:
    document["study"]["purpose"] = "something else"


def _bound(document: dict[str, Any]) -> None:
    next(feature for feature in document["study"]["features"] if "upper" in feature)["upper"] += 1


def _signer(document: dict[str, Any]) -> None:
    document["learner"] = "another"


def _key(document: dict[str, Any]) -> None:
    document["public_key"] = "0" * 64


@pytest.mark.parametrize("change", [_purpose, _bound, _signer, _key])
def test_what_has_been_changed_is_refused(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidInputError, match="its signature does not verify"):
        read_study(path)


@pytest.mark.parametrize("text", ['{"signature": 1}', '["signature"]', '"signature"', "7", "{", ""])
def test_what_is_neither_is_told_in_a_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "none.json"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=r"study .*none\.json: "):
        read_study(path)


def test_an_invitation_is_told_from_a_study(tmp_path: Path) -> None:
    (tmp_path / "a.invitation.json").write_text('{"invitation": {}, "signature": "00"}')
    with pytest.raises(InvalidInputError, match=r"a.invitation.json is an invitation, not a study: parley-party join "):
        read_study(tmp_path / "a.invitation.json")


def test_a_learner_signs_and_an_owner_sees_by_whose_word(tmp_path: Path) -> None:
    config = tmp_path / "learner.toml"
    config.write_text(
        f'name = "registry"\nstate = "{tmp_path}/state"\n[[users]]\nname = "u"\ntoken_hash = "sha256:{"0" * 64}"\n'
    )
    signed = tmp_path / "signed.json"
    done = CliRunner().invoke(
        learner_app, ["study", "sign", str(ADULT), "--config", str(config), "--out", str(signed), "--format", "json"]
    )
    assert done.exit_code == 0, done.output
    words = words_of(json.loads(signed.read_text())["public_key"])
    assert json.loads(done.stdout) == {"file": str(signed), "words": " ".join(words)}
    signature = "signed by registry, by its own word"
    for study, said in ((signed, signature), (ADULT, "not signed")):
        for app in (learner_app, party_app):
            result = CliRunner().invoke(app, ["study", "check", str(study), "--data", str(tmp_path / "none.csv")])
            assert said in result.stderr, result.output
            assert " ".join(words) not in result.output, "its operator tells them, by telephone"
