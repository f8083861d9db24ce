"""Texts as Windows saves them, with a byte order mark, wherever Parley reads a text that a person may save."""

from __future__ import annotations

import codecs
import json
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from unicodedata import normalize

import pytest

from parley.common.client.endpoints import LearnerAddress, PeerEntry
from parley.common.client.outbound import proxy_of
from parley.common.data.columns import Category, Feature, Label, SparseFeatures
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.files.examples import load_examples, load_source
from parley.common.files.sources import parse_source
from parley.common.files.studies import read_study
from parley.common.service.commands import read_parameters
from parley.common.service.health import _own_context
from parley.common.service.http.tls import _make_client_context, certificate_expiry, read_authority
from parley.common.service.serve import _make_context
from parley.common.service.settings import Tls
from parley.common.service.tokens import hash_token
from parley.common.storage.certificates import Credentials, issue, make_authority
from parley.common.wire.membership import Invitation
from parley.learner.cli.models import _read_keys
from parley.learner.client.token import read_token
from parley.learner.models.model_files import read_model_file
from parley.learner.settings import LearnerSettings
from parley.party.commands import read_text
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


def test_what_a_service_shows_in_tls_may_begin_with_a_mark(save: Callable[[str, str], Path], tmp_path: Path) -> None:
    """Its certificate, its key and the authority of its clients, with CR LF and blanks at the end."""
    authority = make_authority("made-up")
    own = issue(authority, ("localhost",))
    certificate, key = (
        save(name, text.replace("\n", "\r\n") + " \r\n")
        for name, text in (("tls.pem", own.certificate_pem), ("tls.key", own.key_pem))
    )
    tls = Tls(certificate=certificate, key=key, client_ca=save("authority.pem", authority.certificate_pem))
    server, client = _make_context(tls), _make_client_context(tls.client_ca, certificate, key)
    ends = [ssl.MemoryBIO() for _ in range(2)]
    sides = (
        server.wrap_bio(ends[0], ends[1], server_side=True),
        client.wrap_bio(ends[1], ends[0], server_hostname="localhost"),
    )
    for _ in range(4):
        for side in sides:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert sides[1].version() == "TLSv1.3"
    assert _own_context(tls).cert_store_stats()["x509"] == 1
    assert certificate_expiry(certificate) == own.certificate.not_valid_after_utc.date()
    assert Credentials.read(certificate.read_bytes(), key.read_bytes()).certificate == own.certificate
    assert read_authority(tls.client_ca or tmp_path).startswith("-----BEGIN CERTIFICATE-----")


@pytest.mark.long
def test_records_and_rows_of_texts_may_begin_with_a_mark(save: Callable[[str, str], Path]) -> None:
    records = [{"x0": 0.5, "x1": 0.25, "y": "no"}, {"x0": 0.5, "x1": 0.0, "y": "yes"}]
    for name, text in (
        ("rows.json", json.dumps(records)),
        ("rows.jsonl", "\r\n".join(map(json.dumps, records)) + "\r\n"),
        ("rows.csv", "x0,x1,y\r\n0.5,0.25,no\r\n0.5,0,yes\r\n"),
    ):
        shard = load_examples(save(name, text), STUDY).shard
        assert (shard.y.tolist(), shard.X[1, 1]) == ([-1, 1], 0)
    sparse = Study(
        name="s",
        features=(SparseFeatures(name="f", columns=9, entries=3),),
        label=Label(name="y", values=("no", "yes")),
    )
    loaded = load_examples(save("rows.svm", "no 1:0.5 3:1\r\nyes 2:1\r\n"), sparse)
    assert loaded.shard.n_examples == 2
    model = save("model.json", json.dumps({"weights": [1.0, 2.0]}, indent=1))
    assert read_model_file(model) == {"weights": [1.0, 2.0]}


TWICE = '{"name": "a", "name": "b"}'


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_study, STUDY.model_dump_json().replace('"name"', '"name": "a", "name"', 1)),
        (read_study, STUDY.model_dump_json().replace('"upper"', '"upper": 9, "upper"', 1)),
        (_read_keys, f'{{"learner": "{KEY}", "learner": "{KEY[::-1]}", "parties": {{}}}}'),
        (lambda path: load_examples(path, STUDY), '[{"x0": 1, "x0": 0.5, "x1": 0, "y": "no"}]'),
        (lambda path: load_examples(path, STUDY), '{"x0": 1, "x0": 0.5, "x1": 0, "y": "no"}'),
        (read_model_file, TWICE),
        (lambda path: Invitation.opened(path.read_text(), datetime.now(UTC)), TWICE),
        (lambda path: read_parameters([f"clip={path.read_text()}"]), TWICE),
    ],
)
def test_a_name_twice_in_an_object_is_refused(tmp_path: Path, read: Callable[[Path], object], text: str) -> None:
    """Nobody could tell which counts."""
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises((InvalidInputError, InvalidDataError), match=r"twice|no invitation"):
        read(path)


def test_letters_are_the_same_with_their_marks_apart(tmp_path: Path) -> None:
    """MacOS writes an umlaut as a letter and its mark, and nobody sees a difference."""
    (tmp_path / "rows.csv").write_text(normalize("NFD", "Größe,Ort,y\n1,Köln,nein\n1,Ulm,jä\n1,Müll,jä\n"))
    for form in ("NFC", "NFD"):
        study = Study(
            name="s",
            features=(
                Feature(name=normalize(form, "Größe"), lower=0, upper=2),
                Category(name="Ort", values=(normalize(form, "Köln"), "Ulm"), other=True),
            ),
            label=Label(name="y", values=("nein", normalize(form, "jä"))),
        )
        shard = load_source(parse_source(str(tmp_path / "rows.csv")), study).shard
        assert (shard.X[:, 1:] > 0).argmax(axis=1).tolist() == [0, 1, 2]
        assert shard.y.tolist() == [-1, 1, 1]
        said = parse_source(str(tmp_path / "rows.csv"), values=[normalize(form, "Ort:Müll=Köln")])
        assert (load_source(said, study).shard.X[:, 1:] > 0).argmax(axis=1).tolist() == [0, 1, 0]


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
