"""The certificates of a deployment: for whom, signed by whom, kept where, and how they are renewed."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509

from parley.common.storage.certificates import CERTIFICATE_LASTS, hosts_of, make_authority
from parley.learner.settings import LearnerSettings
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from scripts.deployment import setup
from scripts.deployment.authority import expiry, renew
from scripts.deployment.settings import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE
from scripts.deployment.sites import KEY_HOLDER, LEARNER, SERVICES, SETUP
from tests.support.deployments import contents, in_containers, on_loopback

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    before = os.umask(0o077)
    yield tmp_path / "deploy"
    os.umask(before)


def test_tls_is_between_all_and_settings_say_so(root: Path) -> None:
    services = on_loopback(root, tls=True).services
    learner = LearnerSettings.load(services[LEARNER].config)
    secrets = {name: root.resolve() / name / "secrets" for name in SERVICES}
    assert learner.tls is not None
    assert learner.tls.client_ca is None, "users show tokens, not certificates"
    for peer in (*learner.parties, *learner.key_holders):
        assert peer.url is not None
        assert peer.url.scheme == "https"
        assert (peer.ca, peer.certificate) == (
            secrets[LEARNER] / AUTHORITY_FILE,
            secrets[LEARNER] / CERTIFICATE_FILE,
        )
        kind = KeyHolderSettings if peer.name == KEY_HOLDER else PartySettings
        tls = kind.load(services[peer.name].config).tls
        assert tls is not None
        assert tls.client_ca == secrets[peer.name] / AUTHORITY_FILE


def test_certificates_name_their_services_and_serve_both_sides(root: Path) -> None:
    in_containers(root, tls=True)
    (authority,) = {(root / name / "secrets" / AUTHORITY_FILE).read_bytes() for name in SERVICES}
    signer = x509.load_pem_x509_certificate(authority)
    for name in SERVICES:
        folder = root / name / "secrets"
        certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE_FILE).read_bytes())
        certificate.verify_directly_issued_by(signer)
        assert hosts_of(certificate) == [name, "localhost", "127.0.0.1"]
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert {use._name for use in uses} == {"serverAuth", "clientAuth"}
        context = ssl.create_default_context(cafile=folder / AUTHORITY_FILE)
        context.load_cert_chain(folder / CERTIFICATE_FILE, folder / KEY_FILE)
    keys = {(root / name / "secrets" / KEY_FILE).read_bytes() for name in SERVICES}
    assert len(keys) == len(SERVICES)


def test_the_authoritys_key_is_read_by_no_service(root: Path) -> None:
    in_containers(root, tls=True)
    folder = root / SETUP
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {"setup": 0o700, "authority.pem": 0o600, "authority.key": 0o600, "user.token": 0o600}
    key = (folder / "authority.key").read_bytes()
    assert not [path for path, content in contents(root).items() if content == key and path.parent != folder]
    assert COMPOSE.read_text().count(f"/{SETUP}\n") == 1, "the container that makes certificates alone mounts it"


def test_renewal_makes_new_certificates_and_touches_nothing_else(root: Path) -> None:
    in_containers(root, tls=True)
    before, first = contents(root), expiry(root)
    assert renew(root) == len(SERVICES)
    after = contents(root)
    changed = {path.relative_to(root) for path in before if after[path] != before[path]}
    assert before.keys() == after.keys()
    assert changed == {Path(name) / "secrets" / file for name in SERVICES for file in (CERTIFICATE_FILE, KEY_FILE)}
    last = expiry(root)
    assert first is not None
    assert last is not None
    assert first <= last <= datetime.now(UTC) + CERTIFICATE_LASTS
    print(f"renewed {len(SERVICES)} certificates of {len(before)} files; they expire on {last:%Y-%m-%d}")


def test_an_authority_that_ends_too_soon_is_renewed_with_what_it_signs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = partial(make_authority, lasts=CERTIFICATE_LASTS - timedelta(days=1))
    monkeypatch.setattr("scripts.deployment.authority.make_authority", short)
    in_containers(root, tls=True)
    monkeypatch.undo()
    old = (root / SETUP / AUTHORITY_FILE).read_bytes()
    renew(root)
    new = {path.read_bytes() for path in root.rglob(AUTHORITY_FILE)}
    assert len(new) == 1
    assert old not in new


def test_what_cannot_be_renewed_is_said(root: Path) -> None:
    in_containers(root)
    with pytest.raises(SystemExit, match="has no certificates"):
        renew(root)
    in_containers(root, tls=True)
    (root / SETUP / "authority.key").unlink()
    with pytest.raises(SystemExit, match="put both back"):
        renew(root)


def test_what_makes_them_says_when_certificates_expire(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_containers(root, tls=True)
    monkeypatch.setattr(setup, "MOUNTED", root)
    ends = expiry(root)
    assert ends is not None
    setup.say(5, "8100", tls=True)
    output = capsys.readouterr().out
    assert "https://127.0.0.1:8100/" in output
    assert f"{ends:%Y-%m-%d}" in output
