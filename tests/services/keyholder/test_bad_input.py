"""What a key holder refuses to start or go on with: settings, key files, a missing gmpy2."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from parley.common.errors import InvalidInputError, SecureSumError
from parley.common.secure_sum import paillier
from parley.common.secure_sum.errors import Reason
from parley.common.service.tokens import hash_token
from parley.common.storage.keys import identity_key, read_private, write_private
from parley.party.cli.main import party_app
from parley.party.keyholder.app import create_key_holder_app
from parley.party.keyholder.settings import KeyHolderSettings
from tests.support.keyholder import TOKEN, FreshKeys, ask_to_open, begin, keyholder_settings, open_round

Serve = Callable[[], AbstractContextManager[httpx.Client]]
VALUES = np.arange(5)
SECRET = "a secret for tests only"
CONFIG = f"""
name = "key-holder"
state = "{{root}}/state"
secret = "{SECRET}"
key_bits = 2048

[[learners]]
name = "learner"
token_hash = "{hash_token(TOKEN)}"
public_key = "{"ab" * 32}"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "keyholder.toml"
    path.write_text(CONFIG.format(root=tmp_path))
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    """A command's exit status, output and errors."""
    result = CliRunner().invoke(party_app, ["keyholder", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def elliptic_pem() -> bytes:
    """A key of another kind."""
    return generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_identity_keys_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "identity.key"
    first = identity_key(path).private_bytes_raw()
    assert identity_key(path).private_bytes_raw() == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    write_private(path, b"another")
    assert identity_key(path).private_bytes_raw() == first
    assert [file.name for file in path.parent.iterdir()] == ["identity.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666, 0o777])
def test_key_files_that_others_may_read_are_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    identity_key(path)
    path.chmod(mode)
    with pytest.raises(SecureSumError, match=f"mode {mode:04o}") as caught:
        identity_key(path)
    assert (caught.value.reason, caught.value.status) == (Reason.KEY_FILE_OPEN, 503)
    with pytest.raises(SecureSumError) as caught:
        create_key_holder_app(keyholder_settings(tmp_path), FreshKeys())
    assert caught.value.reason == Reason.KEY_FILE_OPEN


@pytest.mark.parametrize("content", [b"", b"\xff" * 32, b"-----BEGIN PRIVATE KEY-----\n", elliptic_pem()])
def test_identity_files_without_an_ed25519_key_are_refused(content: bytes, tmp_path: Path) -> None:
    write_private(tmp_path / "identity.key", content)
    with pytest.raises(SecureSumError, match="holds no Ed25519 key") as caught:
        identity_key(tmp_path / "identity.key")
    assert caught.value.reason == Reason.KEY_FILE_CORRUPT


def test_unreadable_key_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "identity.key").mkdir()
    for path in (tmp_path / "identity.key", tmp_path / "missing.key"):
        with pytest.raises(SecureSumError, match=path.name) as caught:
            read_private(path)
        assert caught.value.reason == Reason.KEY_FILE_UNREADABLE
    (tmp_path / "file").touch()
    with pytest.raises(SecureSumError) as caught:
        identity_key(tmp_path / "file" / "identity.key")
    assert caught.value.reason == Reason.KEY_FILE_UNREADABLE


def test_a_sessions_key_file_that_cannot_be_used_stops_that_session_only(serve: Serve, tmp_path: Path) -> None:
    with serve() as client:
        session = begin(client, seed=1)
    (path,) = (tmp_path / "keys").iterdir()
    sealed = path.read_bytes()
    queries = session.ask(1)
    for name in session.parties:
        session.learner.receive(session.contribute(name, queries, VALUES))
    request = ask_to_open(session, list(session.parties))
    seeds = itertools.count(2)

    def spoil(how: Callable[[], object], reason: Reason) -> None:
        how()
        with serve() as client:
            response = open_round(client, session, 1, request)
            assert (response.status_code, response.json()["reason"]) == (503, reason)
            assert path.name in response.json()["detail"]
            begin(client, seed=next(seeds))
            assert client.get("/readyz").status_code == 200

    spoil(lambda: path.chmod(0o644), Reason.KEY_FILE_OPEN)
    path.chmod(0o600)
    spoil(lambda: path.write_bytes(sealed[:-1] + bytes([sealed[-1] ^ 1])), Reason.KEY_FILE_CORRUPT)
    spoil(lambda: path.write_bytes(b"torn"), Reason.KEY_FILE_CORRUPT)
    spoil(path.unlink, Reason.KEY_FILE_UNREADABLE)
    write_private(path, sealed)
    with serve() as client:
        assert open_round(client, session, 1, request).status_code == 200


def test_missing_gmpy2_is_refused_by_name(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paillier, "gmpy2", None)
    with pytest.raises(SecureSumError) as caught:
        create_key_holder_app(keyholder_settings(tmp_path), FreshKeys())
    assert caught.value.reason == Reason.GMPY2_MISSING
    for command in ("serve", "check"):
        status, _, errors = run(command, "--config", config)
        assert (status, errors.strip()) == (3, "parley-party: phe computes without gmpy2; install gmpy2")


def test_check_and_identity_print_what_others_pin(config: Path, tmp_path: Path) -> None:
    status, printed, _ = run("identity", "--config", config)
    assert status == 0
    assert len(bytes.fromhex(printed.strip())) == 32
    status, facts, _ = run("check", "--config", config, "--format", "json")
    assert status == 0
    assert json.loads(facts)["public_key"] == printed.strip()
    assert SECRET not in facts
    status, _, errors = run("serve", "--config", config)
    assert status == 3
    assert "parley-party keyholder init" in errors
    assert run("init", "--config", config)[0] == 0
    (tmp_path / "state" / "identity.key").chmod(0o644)
    for command in ("serve", "check", "identity"):
        status, _, errors = run(command, "--config", config)
        assert status == 3
        assert "mode 0644, not 0600" in errors


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"secret": "tell-nobody"}, "secret"),
        ({"key_bits": 1024}, "key_bits"),
        ({"key_bits": 3073}, "key_bits"),
        ({"learners": []}, "learners"),
        ({"learners": [{"name": "l", "token_hash": hash_token("x"), "public_key": "AB" * 32}]}, "public_key"),
        ({"learners": [{"name": "l", "token_hash": hash_token("x")}]}, "public_key"),
        ({"further": 1}, "further"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_key(wrong: dict[str, object], named: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        keyholder_settings(tmp_path, **wrong)
    assert "tell-nobody" not in str(caught.value)


def test_learners_must_not_share_a_key(tmp_path: Path) -> None:
    both = [{"name": name, "token_hash": hash_token(name), "public_key": "ab" * 32} for name in ("l", "m")]
    with pytest.raises(ValueError, match="two share a public_key"):
        keyholder_settings(tmp_path, learners=both)


def test_the_secret_may_come_from_a_file(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(config.read_text().replace(f'secret = "{SECRET}"', ""))
    with pytest.raises(InvalidInputError, match="secret"):
        KeyHolderSettings.load(config)
    (tmp_path / "secret").write_text(SECRET + "\n")
    monkeypatch.setenv("PARLEY_KEYHOLDER_SECRET_FILE", str(tmp_path / "secret"))
    settings = KeyHolderSettings.load(config)
    assert settings.secret.get_secret_value() == SECRET
    assert SECRET not in repr(settings)
