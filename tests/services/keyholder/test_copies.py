"""A malicious learner, and a key holder whose files are put back: a round is opened for one set only.

The learner keeps what the parties answered, has a round opened for some of them, waits for a restore, shows no receipt,
and asks for the others: the difference of two sets is one owner's answer.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from parley.common.protocol.receipts import RECEIPT_HEADER
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.in_process import LocalSession
from parley.party.cli.main import party_app
from parley.party.keyholder import journal
from parley.party.keyholder.app import create_key_holder_app
from parley.party.keyholder.journal import Anchors
from parley.party.keyholder.settings import KeyHolderSettings
from tests.support import toml
from tests.support.attacks import request
from tests.support.keyholder import TOKEN, FreshKeys, begin, call, keyholder_settings, open_round

VALUES = np.arange(5)
ROUND = 2


@dataclass
class Attack:
    """A round that was opened for one set, after the state was copied; and the request for another set."""

    settings: KeyHolderSettings
    copy: Path
    session: LocalSession
    first: Signed
    second: Signed
    answer: bytes

    @property
    def state(self) -> Path:
        """The key holder's directory."""
        return self.settings.state

    def ask(self, query: Signed) -> httpx.Response:
        """Start the key holder on what is in its directory now, and ask it."""
        with served(self.settings) as client:
            return open_round(client, self.session, ROUND, query)


def served(settings: KeyHolderSettings) -> TestClient:
    return TestClient(create_key_holder_app(settings, FreshKeys()))


def opened(session: LocalSession, round: int) -> tuple[Signed, Signed]:
    """Requests to open a round for two sets."""
    query = session.ask(round)
    contributions = [session.contribute(name, query, VALUES) for name in session.parties]
    return request(session, contributions[:3]), request(session, contributions[1:])


def run(*command: str | Path) -> None:
    """A program that an operator copies with."""
    subprocess.run(command, check=True, capture_output=True)


def prepare(root: Path, copy_with: Callable[[Path, Path], None]) -> Attack:
    """Open a round, copy the state while the service is stopped, and open the next."""
    settings = keyholder_settings(root / "state")
    with served(settings) as client:
        session = begin(client, parties=4, m_min=3)
        assert open_round(client, session, ROUND - 1, opened(session, ROUND - 1)[0]).is_success
    copy_with(settings.state, root / "copy")
    first, second = opened(session, ROUND)
    with served(settings) as client:
        answer = open_round(client, session, ROUND, first).raise_for_status().content
    return Attack(settings, root / "copy", session, first, second, answer)


def by_cp(source: Path, target: Path) -> None:
    run("cp", "-a", source, target)


def by_tar(source: Path, target: Path) -> None:
    target.mkdir()
    run("tar", "-C", source, "-cf", target.with_suffix(".tar"), ".")
    run("tar", "-C", target, "-xpf", target.with_suffix(".tar"))


def replaced(attack: Attack) -> None:
    """The directory is emptied and filled from the copy."""
    shutil.rmtree(attack.state)
    run("cp", "-a", attack.copy, attack.state)


def renamed(attack: Attack) -> None:
    """Rename the copy to the directory's name."""
    attack.state.rename(attack.state.with_name("newer"))
    attack.copy.rename(attack.state)


def written_over(attack: Attack) -> None:
    """Each file is written over in place, with the copy's times: the newer ones that the copy lacks stay."""
    run("cp", "-a", f"{attack.copy}/.", attack.state)


def unpacked(attack: Attack) -> None:
    """An archive is unpacked over what is there."""
    run("tar", "-C", attack.copy, "-cf", attack.copy.with_suffix(".tar"), ".")
    run("tar", "-C", attack.state, "-xpf", attack.copy.with_suffix(".tar"))


def synchronised(attack: Attack) -> None:
    """As ``rsync -a --inplace --delete``: what differs in size or time is written over, what is newer goes."""
    for path in [path for path in attack.state.rglob("*") if path.is_file()]:
        if not (attack.copy / path.relative_to(attack.state)).exists():
            path.unlink()
    for path in [path for path in attack.copy.rglob("*") if path.is_file()]:
        target = attack.state / path.relative_to(attack.copy)
        if not target.exists() or (facts(target) != facts(path)):
            shutil.copy2(path, target)


def facts(path: Path) -> tuple[int, int]:
    """What rsync tells a file that changed by."""
    return path.stat().st_size, path.stat().st_mtime_ns


def journal_alone(attack: Attack) -> None:
    """The journal and its head file are put back; keys, and all else, stay as they are."""
    for path in attack.copy.glob("keyholder.*"):
        shutil.copy2(path, attack.state)


def journal_and_anchor(attack: Attack) -> None:
    """All but the keys is put back."""
    journal_alone(attack)
    shutil.rmtree(attack.state / "anchor")
    run("cp", "-a", attack.copy / "anchor", attack.state)


@pytest.mark.parametrize(
    ("copy_with", "put_back"),
    [
        (by_cp, replaced),
        (by_cp, renamed),
        (by_cp, written_over),
        (by_tar, unpacked),
        (by_tar, synchronised),
        (by_cp, journal_alone),
        (by_cp, journal_and_anchor),
    ],
)
def test_a_copy_that_is_put_back_opens_nothing(
    tmp_path: Path, copy_with: Callable[[Path, Path], None], put_back: Callable[[Attack], None]
) -> None:
    attack = prepare(tmp_path, copy_with)
    put_back(attack)
    for query in (attack.second, attack.first):
        refused = attack.ask(query)
        assert (refused.status_code, refused.json()["reason"]) == (409, Reason.OUT_OF_TURN)
        assert "put back from a copy" in refused.json()["detail"]
    assert not list((attack.state / "keys").iterdir()), "the keys are destroyed"


def by_backup(source: Path, target: Path) -> None:
    """With Parley's own command, whose settings file is beside the state."""
    toml.write(source.with_name("keyholder.toml"), keyholder_settings(source).model_dump())
    command(source, "backup", target)


def command(state: Path, *words: str | Path) -> None:
    file = state.with_name("keyholder.toml")
    done = CliRunner().invoke(party_app, ["keyholder", *map(str, words), "--config", str(file)])
    assert done.exit_code == 0, done.output


def test_a_backup_that_is_brought_back_opens_nothing(tmp_path: Path) -> None:
    attack = prepare(tmp_path, by_backup)
    assert not {"keys", "anchor"} & {path.name for path in attack.copy.iterdir()}
    with served(attack.settings) as client:
        newest = call(client, "GET", "/v1/keyholder").headers[RECEIPT_HEADER]
    shutil.rmtree(attack.state)
    command(attack.state, "restore", attack.copy)
    for query in (attack.second, attack.first):
        refused = attack.ask(query)
        assert (refused.status_code, "which ended all sessions" in refused.json()["detail"]) == (404, True)
    headers = {"Authorization": f"Bearer {TOKEN}", RECEIPT_HEADER: newest}
    with served(attack.settings) as client:
        assert client.get("/v1/keyholder", headers=headers).is_success, "its receipts are accounted for"
    assert (attack.state / "replaced-1" / "keyholder.db").exists()


def test_a_clone_elsewhere_opens_nothing(tmp_path: Path) -> None:
    attack = prepare(tmp_path, by_cp)
    clone = attack.settings.model_copy(update={"state": attack.copy})
    with served(clone) as client:
        assert open_round(client, attack.session, ROUND, attack.second).json()["reason"] == Reason.OUT_OF_TURN
    assert attack.ask(attack.first).content == attack.answer, "where it was written, it goes on"


def test_no_session_outlives_a_restart_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a disk whose snapshot is put back, inodes and all, opens nothing."""
    attack = prepare(tmp_path, by_cp)
    monkeypatch.setattr(journal, "_boot", lambda: "another")
    assert attack.ask(attack.second).json()["reason"] == Reason.OUT_OF_TURN


@pytest.mark.parametrize("taken", ["keys", "anchor"])
def test_parts_that_hold_no_opening_change_nothing(tmp_path: Path, taken: str) -> None:
    """The keys, or files of anchors that are past, put back beside the newest journal."""
    attack = prepare(tmp_path, by_cp)
    run("cp", "-a", f"{attack.copy / taken}/.", attack.state / taken)
    assert attack.ask(attack.second).json()["reason"] == Reason.ROUND_OPENED
    assert attack.ask(attack.first).content == attack.answer


def test_without_anchors_a_copy_would_open_a_second_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the attack works where nothing tells a copy."""
    attack = prepare(tmp_path, by_cp)
    replaced(attack)
    monkeypatch.setattr(Anchors, "holds", lambda *_: True)
    assert attack.ask(attack.second).is_success


def test_a_restart_goes_on(tmp_path: Path) -> None:
    """Of a service that was stopped or killed, also with a file of a record that was never committed."""
    attack = prepare(tmp_path, by_cp)
    (attack.state / "anchor" / "cut-off").touch()
    attack.state.rename(attack.state.with_name("moved"))
    attack.state.with_name("moved").rename(attack.state)
    assert attack.ask(attack.first).content == attack.answer
    with served(attack.settings) as client:
        assert open_round(client, attack.session, ROUND + 1, opened(attack.session, ROUND + 1)[0]).is_success
    assert len(list((attack.state / "anchor").iterdir())) == 1


def test_a_second_process_starts_while_the_first_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at the anchor while nobody writes: or the first would delete it meanwhile, as of a copy."""
    attack, looked, holds = prepare(tmp_path, by_cp), [], Anchors.holds

    def locked(self: Anchors, anchor: str | None) -> bool:
        with closing(sqlite3.connect(attack.state / "keyholder.db", timeout=0)) as other:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
            looked.append(anchor)
        return holds(self, anchor)

    monkeypatch.setattr(Anchors, "holds", locked)
    assert attack.ask(attack.first).content == attack.answer
    assert len(looked) == 1
