"""A bit that flips anywhere in a ledger's file is served to nobody and acted on by nobody."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from parley.common.errors import ConflictError, LedgerError, ParleyError, UnavailableError
from parley.common.privacy.account import Account, Price
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.ledger.ledger import Ask, Ledger, OneTimeNoise
from tests.support.cluster import made_up
from tests.support.ledgers import open_ledger

FLIPS, QUICK_FLIPS = 1_000, 100
ROUNDS = 8
LIMIT = Account(10**6, 10**12, composition="basic")
PRICE = Price(tuple(range(1, ROUNDS + 1)), (1,) * ROUNDS, (0,) * ROUNDS, (0,) * ROUNDS)
RUNS = ("first", "second", "third")
SPEC = RunSpec(
    study=made_up(3),
    algorithm="dp_gd",
    parameters={},
    parties=(Member(name="party", n_examples=40, budget=Budget(epsilon=1, delta=1e-5)),),
    minimum_contributors=1,
)


def compute(earlier: OneTimeNoise) -> tuple[bytes, OneTimeNoise]:
    """An answer with one-time noise, by fixed numbers."""
    eta = earlier["eta"] if "eta" in earlier else np.arange(20.0)
    return bytes(range(200)) + eta.tobytes(), {"eta": eta}


def live(directory: Path) -> None:
    """Three runs: one half done, one in a secure sum, one ended; refusals; a limit that was changed."""
    with open_ledger(directory, LIMIT) as store:
        for run in RUNS:
            store.consents.approve("ann", RunProposal(run=run, spec=SPEC), PRICE)
            store.rounds.join("ann", run, b"invitation " * 30)
            for round in range(1, ROUNDS - 2):
                store.rounds.answer(Ask("ann", run, round, f"query {round}"), compute)
        store.consents.refuse("ann", "fourth", "gop", "algorithms", "not allowed")
        store.consents.end("ann", "third")
    with closing(sqlite3.connect(directory / "ledger.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")


def everything(store: Ledger) -> list[object]:
    """All that a ledger says, serves and decides by: what the flipped one must say too, or refuse."""
    contents: list[object] = [store.account(), store.rounds.joined(), store.consents.open_runs(), store.chain.head]
    for run in RUNS:
        contents += [
            store.consents.find("ann", run),
            store.rounds.invitation("ann", run),
            store.rounds.last_answer("ann", run),
        ]
        contents += [
            store.rounds.answer(Ask("ann", run, round, f"query {round}"), compute) for round in range(1, ROUNDS - 2)
        ]
    contents.append([(entry.number, entry.record, dict(entry.attached)) for entry in store.entries()])
    try:
        contents.append(store.rounds.answer(Ask("ann", "first", ROUNDS, "new"), compute).body)  # of its one-time noise
    except UnavailableError:
        contents.append("unavailable")
    with pytest.raises(ConflictError):
        store.rounds.answer(Ask("ann", "third", ROUNDS, "new"), compute)
    return contents


def outcome(directory: Path, due: list[object]) -> str:
    """Open a flipped ledger; return what happens."""
    try:
        with open_ledger(directory, LIMIT) as store:
            opened = True
            return "harmless" if everything(store) == due else "ACTED ON"
    except LedgerError:
        return "refused at use" if "opened" in locals() else "refused at start"
    except ParleyError as error:
        return f"refused: {error.kind}"


@pytest.mark.parametrize("flips", [QUICK_FLIPS, pytest.param(FLIPS, marks=pytest.mark.slow)])
def test_flipped_bits_are_not_acted_on(tmp_path: Path, flips: int) -> None:
    live(tmp_path / "whole")
    content = (tmp_path / "whole" / "ledger.db").read_bytes()
    shutil.copytree(tmp_path / "whole", tmp_path / "control")
    with open_ledger(tmp_path / "control", LIMIT) as store:
        intact = everything(store)
    rng, seen = random.Random(flips), Counter[str]()
    for number in range(flips):
        directory = tmp_path / f"flip-{number}"
        shutil.copytree(tmp_path / "whole", directory)
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (directory / "ledger.db").write_bytes(flipped)
        seen[outcome(directory, intact)] += 1
        shutil.rmtree(directory)
    print(f"{flips} flipped bits of {len(content):,} bytes: {seen['ACTED ON']} acted on; {dict(seen)}")
    assert seen["ACTED ON"] == 0
    assert seen["refused at start"] + seen["refused at use"] > flips / 3
