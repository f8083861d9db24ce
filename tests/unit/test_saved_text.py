"""Texts as Windows saves them, with a byte order mark, wherever Parley reads a text that a person may save."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from common.client.endpoints import LearnerAddress, PeerEntry
from common.client.handshake import proxy_of
from common.files.studies import read_study
from common.service.http.tls import _make_client_context
from common.service.tokens import hash_token
from common.storage.certificates import make_authority
from learner.cli.models.verify import _read_keys
from learner.client.token import read_token
from learner.settings import LearnerSettings
from party.cli.output import read_text
from tests.support.studies import numbers_study

STUDY, KEY = numbers_study(2), "ab" * 32

MARKS: dict[str, Callable[[str], bytes]] = {
    "UTF-8": str.encode,
    "UTF-8 with a mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "UTF-16, little end first": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "UTF-16, big end first": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
}


@pytest.fixture(params=MARKS)
def save(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], Path]:
    """Saves a text under a name."""

    def saved(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_bytes(MARKS[request.param](text))
        path.chmod(0o600)
        return path

    return saved


def test_a_mark_is_no_part_of_a_text(save: Callable[[str, str], Path]) -> None:
    token = save("token", "a-token\r\n")
    assert read_token(file=token) == "a-token"
    assert PeerEntry(name="p", url="http://127.0.0.1:1", token_file=token).token_text() == "a-token"
    assert read_text(save("invitation", "parley-invitation")) == "parley-invitation"
    assert read_study(save("study.json", STUDY.model_dump_json())) == STUDY
    keys = _read_keys(save("keys.json", json.dumps({"learner": KEY, "parties": {}})))
    assert keys is not None
    assert keys.learner == KEY


def test_settings_and_their_secrets_may_begin_with_a_mark(save: Callable[[str, str], Path], tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    token = save("p.token", "a-token\n")
    settings = save(
        "learner.toml",
        f'name = "l"  # für Ärzte\nstate = "{tmp_path}"\nstudies = "{tmp_path / "studies"}"\n'
        f'[[parties]]\nname = "p"\nurl = "http://127.0.0.1:1"\ntoken_file = "{token}"\n'
        f'[[users]]\nname = "u"\nrole = "viewer"\ntoken_hash = "{hash_token("another")}"\n',
    )
    read = LearnerSettings.load(settings)
    assert read.name == "l"
    assert read.parties[0].token_text() == "a-token"


def test_an_authority_and_a_proxys_password_may_begin_with_a_mark(save: Callable[[str, str], Path]) -> None:
    authority = save("authority.pem", f"Die Behörde\n{make_authority('made-up').certificate_pem}")
    assert len(_make_client_context(authority, None, None).get_ca_certs()) == 1
    address = LearnerAddress(
        name="l",
        url="https://learner.example",
        token="a-token",
        proxy="http://proxy.example:3128",
        proxy_password_file=save("password", "ann:pässword\n"),
    )
    proxy = proxy_of(address)
    assert proxy is not None
    assert proxy.raw_auth == (b"ann", "pässword".encode())
