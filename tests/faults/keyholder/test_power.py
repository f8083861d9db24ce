"""A power cut at any moment: the journal knows all that the key holder has opened, so no other set is opened."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from parley.common.errors import ParleyError, SecureSumError
from parley.common.secure_sum.envelope import Signed, sha256_hex
from parley.common.secure_sum.messages import Opened
from parley.party.keyholder.journal import Journal, create_journal
from tests.support.keyholder import LEARNER
from tests.support.powercut import Disk, note_heads, recorded_disk

CUTS, SESSIONS, ROUNDS = 300, 6, 12


@dataclass
class Recording:
    """A journal's life: what was done to its disk, and after how many events each opening was released."""

    disk: Disk
    released: list[tuple[int, str, Signed]]


def opening(session: int, round: int, contributors: str, sums: bytes) -> Signed:
    """An opening as a key holder signs it."""
    opened = Opened(f"{session:032x}", "aa" * 32, round, sha256_hex(contributors.encode()), sha256_hex(sums))
    return opened.sign(LEARNER.signing_key, [sums])


def live(state: Path, synchronous: str, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Open some rounds; checkpoints come often, so that cuts fall into them too."""
    rng, released = random.Random(1), []
    create_journal(state, LEARNER)
    with recorded_disk() as disk:
        disk.hold(state)
        note_heads(disk, state / "keyholder.head", monkeypatch)
        with closing(Journal(state, LEARNER)) as journal:
            connection = journal.chain._database._connection
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("PRAGMA wal_autocheckpoint = 30")
            for number in range(SESSIONS):
                journal.add("learner", name := f"{number:032x}", n=2 * number + 3)
                for round in range(ROUNDS):
                    signed = opening(number, round, "first", rng.randbytes(rng.choice((100, 10_000))))
                    assert journal.append(journal.get("learner", name), signed) == signed
                    released.append((len(disk.events), name, signed))
        monkeypatch.undo()
    return Recording(disk, released)


def cut(recording: Recording, state: Path, directory: Path, rng: random.Random) -> tuple[int, bool]:
    """Cut the power at a random moment: how many sessions open a round again, and whether the journal is corrupt."""
    at = rng.randrange(recording.released[0][0], recording.released[-1][0] + 1)
    directory.mkdir()
    for path, content in recording.disk.after_cut(at, rng).items():
        (directory / Path(path).relative_to(state)).write_bytes(content)
    last = {session: signed for when, session, signed in recording.released if when <= at}
    try:
        with closing(Journal(directory, LEARNER)) as journal:
            return sum(reopened(journal, session, signed) for session, signed in last.items()), False
    except ParleyError:
        return 0, True


def reopened(journal: Journal, session: str, released: Signed) -> bool:
    """Whether the last round that was opened for one set would be opened for another, or differently."""
    round = Opened.parse(released.body).round
    session_found = journal.find("learner", session)
    if session_found is None:
        return True
    try:
        journal.append(session_found, opening(int(session, 16), round, "second", b"second"))
    except SecureSumError:
        newest = session_found.last
        return newest is None or (Opened.parse(newest.body).round == round and newest != released)
    return True


def cuts(tmp_path: Path, synchronous: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, bool]]:
    """Many power cuts in one journal's life."""
    state, rng = tmp_path / synchronous, random.Random(2)
    try:
        recording = live(state, synchronous, monkeypatch)
    except LookupError as error:
        pytest.skip(str(error))
    for number in range(CUTS):
        yield cut(recording, state, tmp_path / f"{synchronous}-{number}", rng)


def test_power_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = list(cuts(tmp_path, "FULL", monkeypatch))
    again, corrupt = sum(again for again, _ in outcomes), sum(corrupt for _, corrupt in outcomes)
    print(f"key holder, {CUTS} simulated power losses: {again} rounds opened again, {corrupt} journals corrupt")
    assert (again, corrupt) == (0, 0)


def test_power_cuts_without_sync_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same cuts, where SQLite does not wait for the disk."""
    outcomes = list(cuts(tmp_path, "OFF", monkeypatch))
    again, corrupt = sum(again for again, _ in outcomes), sum(corrupt for _, corrupt in outcomes)
    print(f"key holder, {CUTS} losses with synchronous=OFF: {again} rounds opened again, {corrupt} journals corrupt")
    assert again + corrupt > CUTS / 2
