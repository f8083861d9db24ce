"""A member's certificate renews itself while it lasts; what has ended says what to do."""

from __future__ import annotations

import datetime as dt
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from parley.common.client import outbound
from parley.common.client.endpoints import LearnerAddress
from parley.common.client.outbound import renew_for
from parley.common.errors import UnavailableError
from parley.common.storage.certificates import Credentials, answer_request, hosts_of, make_authority, pem_of, renew
from parley.learner.api.membership import renew_own, renewals
from parley.learner.cli.main import learner_app
from parley.learner.settings import LearnerSettings
from parley.party.cli.main import party_app
from tests.services.joining.test_joining import NAMES, Scene, scene
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready

NAME = NAMES[0]


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as (made, _):
        assert made.join(made.invite()).exit_code == 0
        assert made.confirm(NAME).exit_code == 0
        yield made


def shorten(made: Scene, lasts: dt.timedelta) -> Credentials:
    """Have the member's certificate, which began an hour ago, last for so long from now on."""
    at_learner = made.root / "learner" / "secrets"
    authority = Credentials.read(
        (at_learner / "authority.pem").read_bytes(), (at_learner / "authority.key").read_bytes()
    )
    certificate = now(made)
    (made.root / NAME / "state" / "tls.pem").write_text(
        pem_of(answer_request(authority, certificate.request(), NAME, lasts))
    )
    return certificate


def now(made: Scene) -> Credentials:
    folder = made.root / NAME
    return Credentials.read((folder / "state" / "tls.pem").read_bytes(), (folder / "secrets" / "tls.key").read_bytes())


def log(made: Scene, state: Path) -> str:
    path = state.with_suffix(".log")
    return path.read_text() if path.exists() else ""


def test_a_certificate_renews_itself_with_the_same_key(member: Scene) -> None:
    before, identity = shorten(member, dt.timedelta(minutes=20)), member.party(NAME).identity.key
    assert now(member).share_left < 1 / 3
    secrets = {file: file.read_bytes() for file in (member.root / NAME / "secrets").iterdir()}
    with stopped_at_exit(start_party(member.party(NAME))):
        member.until(lambda: now(member).lasts > dt.timedelta(days=360))
        member.until(lambda: bool(member.roster()[NAME]["connected"]))
    assert now(member).key_pem == before.key_pem
    assert {file: file.read_bytes() for file in (member.root / NAME / "secrets").iterdir()} == secrets, "read alone"
    assert member.party(NAME).identity.key == identity == member.roster()[NAME]["public_key"]
    assert '"renewed": true' in log(member, member.party(NAME).state)
    assert "certificate renewed" in log(member, member.root / "learner" / "state")


def test_what_lasts_is_left_alone(member: Scene) -> None:
    certificate_pem = now(member).certificate_pem
    renew_for(member.party(NAME).outbound[0])
    assert now(member).certificate_pem == certificate_pem


def test_one_that_has_ended_says_what_to_do(member: Scene) -> None:
    shorten(member, -dt.timedelta(minutes=5))
    with stopped_at_exit(start_party(member.party(NAME))):
        member.until(lambda: f"roster rotate {NAME}, and join again" in log(member, member.party(NAME).state))
    checked = CliRunner().invoke(party_app, ["check", "--config", str(member.root / NAME / "party.toml")])
    assert checked.exit_code == 0, "it would start"
    assert f"cannot be reached: the certificate {member.root / NAME / 'state' / 'tls.pem'} expired" in checked.stderr
    renewed = member.root / "again.json"
    assert member.learner("roster", "rotate", NAME, "--out", renewed).exit_code == 0
    assert member.join(renewed).exit_code == 0
    with stopped_at_exit(start_party(member.party(NAME))):
        member.until(lambda: bool(member.roster()[NAME]["connected"]))


def test_one_that_has_not_begun_is_a_matter_of_the_clock(member: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's clock is three days behind the learner's, by which the certificate begins."""

    class Behind(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Behind:
            return cls.fromtimestamp(dt.datetime.now(tz).timestamp() - 3 * 86400, tz)

    monkeypatch.setattr(outbound, "datetime", Behind)
    with pytest.raises(UnavailableError, match=r"tls\.pem holds from .* UTC on: is this machine's clock behind"):
        outbound.read_access(member.party(NAME).outbound[0])
    (member.root / NAME / "secrets" / "connect.token").unlink()
    checked = CliRunner().invoke(party_app, ["check", "--config", str(member.root / NAME / "party.toml")])
    assert "cannot be reached: 'learner': the token file" in checked.stderr


def test_nobody_else_is_given_one(member: Scene) -> None:
    assert member.join(member.invite(NAMES[1]), NAMES[1]).exit_code == 0
    own_address, other = member.party(NAME).outbound[0], member.party(NAMES[1]).outbound[0]
    request = {"certificate_request": now(member).request()}

    def asked(address: LearnerAddress | None, token: str, body: object = request) -> int:
        context = ssl.create_default_context(cafile=own_address.ca)
        if address and address.certificate:
            context.load_cert_chain(address.certificate, address.key)
        with httpx.Client(verify=context, trust_env=False, headers={"Authorization": f"Bearer {token}"}) as client:
            return client.post(f"{member.url}/v1/roster/certificate", json=body).status_code

    assert asked(own_address, "x" * 40) == 401
    assert asked(None, own_address.token_text()) == 403, "a stolen token is not enough"
    assert asked(other, own_address.token_text()) == 403
    assert asked(None, (member.root / "learner" / "secrets" / "operator.token").read_text().strip()) == 403
    assert asked(own_address, own_address.token_text(), {"certificate_request": "no"}) == 422
    assert asked(own_address, own_address.token_text()) == 200
    assert member.learner("roster", "remove", NAME).exit_code == 0
    assert asked(own_address, own_address.token_text()) == 401


def test_a_folder_that_cannot_be_written_is_named(member: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(member, dt.timedelta(minutes=20))

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("parley.common.client.outbound.replace_private", full)
    with pytest.raises(UnavailableError, match=r"tls\.pem cannot be written: No space left"):
        renew_for(member.party(NAME).outbound[0])


def own(root: Path, lasts: dt.timedelta) -> LearnerSettings:
    """A learner's settings, by init, whose own certificate lasts for so long from now on."""
    made = CliRunner().invoke(learner_app, ["init", f"https://127.0.0.1:{free_port()}", "--out", str(root / "learner")])
    assert made.exit_code == 0, made.output
    settings = LearnerSettings.load(root / "learner" / "learner.toml")
    assert settings.tls is not None
    shortened = renew(authority_of(settings), held_by(settings), lasts)
    settings.tls.certificate.write_text(shortened.certificate_pem)
    return settings


def authority_of(settings: LearnerSettings) -> Credentials:
    joining = settings.joining
    assert joining is not None
    assert joining.authority is not None
    assert joining.authority_key is not None
    return Credentials.read(joining.authority.read_bytes(), joining.authority_key.read_bytes())


def held_by(settings: LearnerSettings) -> Credentials:
    assert settings.tls is not None
    return Credentials.read(settings.tls.certificate.read_bytes(), settings.tls.key.read_bytes())


@pytest.mark.parametrize("minutes", [20, -5])
def test_a_learners_own_renews_itself_even_after_its_end(tmp_path: Path, minutes: int) -> None:
    settings = own(tmp_path, dt.timedelta(minutes=minutes))
    before, secrets = held_by(settings), tmp_path / "learner" / "secrets"
    contents = {file: file.read_bytes() for file in secrets.iterdir()}
    deadline = time.monotonic() + 60
    with stopped_at_exit(start_learner(settings)):
        while held_by(settings).certificate == before.certificate:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        wait_until_ready(f"https://127.0.0.1:{settings.port}", secrets / "authority.pem")
    after = held_by(settings)
    assert after.lasts > dt.timedelta(days=360)
    assert (after.key_pem, hosts_of(after.certificate)) == (before.key_pem, hosts_of(before.certificate))
    assert {file: file.read_bytes() for file in secrets.iterdir()} == contents, "read alone"


def test_a_learners_own_is_left_alone_while_it_lasts_or_where_another_authority_signed_it(tmp_path: Path) -> None:
    settings = own(tmp_path, dt.timedelta(days=300))
    assert settings.tls is not None
    certificate_pem = held_by(settings).certificate_pem
    (renewal,) = renewals(settings)
    assert renewal is not None
    assert settings.joining is not None
    renew_own(settings.tls, settings.joining, settings.name)
    assert held_by(settings).certificate_pem == certificate_pem
    others = renew(make_authority("another"), held_by(settings), dt.timedelta(minutes=20)).certificate_pem
    settings.tls.certificate.write_text(others)
    renew_own(settings.tls, settings.joining, settings.name)
    assert held_by(settings).certificate_pem == others
    plain = settings.model_copy(update={"joining": None})
    assert renewals(plain) == []
