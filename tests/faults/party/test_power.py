"""A power cut at any moment loses no answer that was released, and leaves a ledger that opens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from parley.common.errors import ParleyError
from parley.common.privacy.account import Account, Price
from parley.common.wire.party_api import RunProposal
from parley.party.ledger.ledger import Ask, Ledger, OneTimeNoise
from tests.support.cluster import Cluster
from tests.support.ledgers import open_ledger
from tests.support.powercut import Disk, note_heads, recorded_disk
from tests.support.rounds import run_spec

CUTS, RUNS, ROUNDS = 400, 8, 12
LIMIT = Account(10**6, 10**6, composition="basic")
PRICE = Price(tuple(range(1, ROUNDS + 1)), (1,) * ROUNDS, (0,) * ROUNDS, (0,) * ROUNDS)


@dataclass
class Recording:
    """A ledger's life: what was done to its disk, and after how many events each answer was released."""

    disk: Disk
    released: list[tuple[int, Ask, bytes]]


def live(state: Path, pragma: str, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Answer some runs; checkpoints come often, so that cuts fall into them too."""
    rng, released = random.Random(1), []

    def compute(earlier: OneTimeNoise) -> tuple[bytes, OneTimeNoise]:
        eta = earlier["eta"] if "eta" in earlier else np.array(rng.random())
        return rng.randbytes(rng.choice((100, 10_000))), {"eta": eta}

    open_ledger(state, LIMIT).close()
    with recorded_disk() as disk:
        disk.hold(state)
        note_heads(disk, state / "ledger.head", monkeypatch)
        with open_ledger(state, LIMIT) as store:
            with store.chain._database.reading() as connection:
                connection.execute("PRAGMA wal_autocheckpoint = 30")
                connection.execute(pragma)
            proposal = run_spec(Cluster(state.parent / "cluster", n_parties=1, makes_ledgers=False))
            for run in range(RUNS):
                store.consents.approve("learner", RunProposal(run=f"run-{run}", spec=proposal), PRICE)
                for round in range(1, ROUNDS + 1):
                    ask = Ask("learner", f"run-{run}", round, "query")
                    body = store.rounds.answer(ask, compute).body
                    released.append((len(disk.events), ask, body))
        monkeypatch.undo()
    return Recording(disk, released)


def cut(recording: Recording, state: Path, directory: Path, rng: random.Random) -> tuple[int, bool]:
    """Cut the power at a random moment: how many released answers are lost, and whether the ledger does not open."""
    at = rng.randrange(recording.released[0][0], recording.released[-1][0] + 1)
    directory.mkdir()
    for path, content in recording.disk.after_cut(at, rng).items():
        (directory / Path(path).relative_to(state)).write_bytes(content)
    try:
        with open_ledger(directory, LIMIT) as store:
            return sum(lost(store, ask, body) for when, ask, body in recording.released if when <= at), False
    except ParleyError:
        return 0, True


def lost(store: Ledger, ask: Ask, body: bytes) -> bool:
    """Whether a released answer is not the one that the ledger holds."""
    try:
        return store.rounds.answer(ask, lambda earlier: (b"redrawn", earlier)).body != body
    except ParleyError:
        return True


def cuts(tmp_path: Path, pragma: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, bool]]:
    """Many power cuts in the life of one ledger, which runs under one more pragma."""
    rng = random.Random(2)
    try:
        recording = live(tmp_path / "state", pragma, monkeypatch)
    except LookupError as error:
        pytest.skip(str(error))
    for number in range(CUTS):
        yield cut(recording, tmp_path / "state", tmp_path / f"cut-{number}", rng)


def test_power_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = list(cuts(tmp_path, "", monkeypatch))
    lost, corrupt = sum(lost for lost, _ in outcomes), sum(corrupt for _, corrupt in outcomes)
    print(f"{CUTS} simulated power losses: {lost} lost, {corrupt} corrupt")
    assert (lost, corrupt) == (0, 0)


def test_power_cuts_without_sync_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same cuts, where SQLite does not wait for the disk, lose answers and ledgers."""
    outcomes = list(cuts(tmp_path, "PRAGMA synchronous = OFF", monkeypatch))
    lost, corrupt = sum(lost for lost, _ in outcomes), sum(corrupt for _, corrupt in outcomes)
    print(f"{CUTS} simulated power losses with synchronous=OFF: {lost} lost, {corrupt} corrupt")
    assert lost + corrupt > CUTS / 2
