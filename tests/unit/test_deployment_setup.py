"""What the container `setup` does: a deployment is made once, completed if it was half made, and never made again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.deployment import setup
from scripts.deployment.sites import KEY_HOLDER, hospitals, loopback_site, services_of
from tests.support.deployments import contents

PARTY = "hospital-a"
NAMES = services_of(hospitals(1))


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[pytest.MonkeyPatch]:
    """What the container's process leaves in its environment, where ledgers are made, ends with these tests."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("PARLEY_PARTY_STATE", "PARLEY_KEYHOLDER_STATE"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        yield monkeypatch


def make(folder: Path, parties: int = 1, *, tls: bool = False) -> None:
    """Make a deployment in a folder as in the container's volumes."""
    root = folder / "read"
    setup.set_up(root, folder / "written", lambda name: loopback_site(root, name, 8000), parties, tls=tls)


@pytest.fixture(scope="module")
def complete(environment: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deployment") / "made"
    make(folder)
    return folder


@pytest.fixture
def made(complete: Path) -> Path:
    """A deployment at the place where it was made, which is as it was when the test begins."""
    kept = complete.with_name("kept")
    if kept.exists():
        shutil.rmtree(complete)
        shutil.copytree(kept, complete)
    else:
        shutil.copytree(complete, kept)
    return complete


def test_a_second_start_changes_nothing(made: Path) -> None:
    before = contents(made)
    assert (made / "written" / PARTY / "ledger.db").exists()
    assert (made / "written" / KEY_HOLDER / "keyholder.db").exists()
    make(made)
    assert contents(made) == before


def test_what_was_left_half_made_is_completed(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(made)

    def stopped(*_: object, **__: object) -> None:
        (made / "written" / KEY_HOLDER / "half").write_text("")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(setup, "party_app", stopped)
        with pytest.raises(KeyboardInterrupt):
            make(made)
    token = (made / "read" / "setup" / "user.token").read_bytes()
    (made / "read" / PARTY / "secrets" / "identity.key").unlink()
    make(made)
    assert (made / "read" / "setup" / "user.token").read_bytes() == token
    assert (made / "written" / PARTY / "ledger.db").exists()
    assert not (made / "written" / KEY_HOLDER / "half").exists()


def test_a_start_that_was_ended_as_it_marked_a_volume_is_gone_on_with(made: Path) -> None:
    shutil.rmtree(made)
    (made / "read" / PARTY).mkdir(parents=True)
    (made / "read" / PARTY / ".federation.json.0123456789abcdef").touch()
    make(made)
    assert (made / "written" / PARTY / "ledger.db").exists()


def test_a_ledger_that_cannot_be_made_is_no_beginning(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(made)
    with monkeypatch.context() as patch:
        patch.setenv("PARLEY_PARTY_DATA__SOURCE", str(made / "nowhere.csv"))
        with pytest.raises(SystemExit, match=r"^hospital-a: parley-party: .*nowhere\.csv"):
            make(made)
    make(made)
    assert (made / "written" / PARTY / "ledger.db").exists()


def test_a_draft_that_was_left_is_not_kept(made: Path) -> None:
    draft = made / "read" / PARTY / "secrets" / ".tls.key.0123456789abcdef"
    draft.write_text("")
    make(made)
    draft.unlink()
    make(made)


def test_a_lost_ledger_is_not_made_again(made: Path) -> None:
    for entry in (made / "written" / PARTY).iterdir():
        entry.unlink()
    make(made)
    assert not list((made / "written" / PARTY).iterdir()), "the party itself says that it lost its ledger"


def lose_key(made: Path) -> None:
    (made / "read" / PARTY / "secrets" / "identity.key").unlink()


def lose_settings(made: Path) -> None:
    shutil.rmtree(made / "read" / PARTY)


def lose_setup(made: Path) -> None:
    shutil.rmtree(made / "read" / "setup")


def take_anothers(made: Path) -> None:
    mark = made / "read" / PARTY / "federation.json"
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"federation": "00"}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lose_key, "^hospital-a/secrets/identity.key is lost, and is not made again"),
        (lose_settings, "^volume hospital-a-settings is lost or another's"),
        (lose_setup, "^volume learner-settings is of another federation, whose volume setup is lost"),
        (take_anothers, "^volume hospital-a-settings is of another federation"),
    ],
)
def test_what_is_lost_or_of_others_is_named(made: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(made)
    before = contents(made)
    with pytest.raises(SystemExit, match=f"{said}.*docker compose --profile watch down -v"):
        make(made)
    assert contents(made) == before


@pytest.mark.parametrize(("parties", "tls"), [(2, False), (1, True)])
def test_a_deployment_does_not_become_another(made: Path, parties: int, *, tls: bool) -> None:
    before = contents(made)
    with pytest.raises(SystemExit, match=r"of 1 parties, without TLS.*-p NAME"):
        make(made, parties, tls=tls)
    assert contents(made) == before
