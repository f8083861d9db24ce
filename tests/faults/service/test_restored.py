"""State directories put back as they were: anyone who holds a later receipt has the old copy refused."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from parley.common.protocol.receipts import Receipt, read_receipt
from parley.learner.execution import witnesses
from parley.learner.models.verification import verify_document
from parley.party.keyholder.app import create_key_holder_app
from tests.support.cluster import submit, watch
from tests.support.intercepted import Intercepted, learner_of
from tests.support.keyholder import FreshKeys
from tests.support.nightly import repeats
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services

LEARNER, HOLDER, VICTIM, CO_OWNER = "learner", "key-holder-1", "party-1", "party-2"
SERVICES = (LEARNER, HOLDER, VICTIM, CO_OWNER)
QUICK, MANY = 4, repeats(28, 200)
RUNS: tuple[dict[str, Any], ...] = (SUMS, {}, SUMS, {})
ACTED = frozenset({"approved", "answered", "joined", "session", "roster", "opened"})


class FreshCluster(SecureCluster):
    """A cluster whose key holder makes a new key for each session, before and after a restart."""

    def keyholder_app(self, name: str) -> FastAPI:
        return create_key_holder_app(self.keyholder_settings(name), FreshKeys())


def copy_state(state: Path, copy: Path) -> None:
    """Copy a directory while its service runs: what may lag behind the databases first, then these."""
    copy.mkdir(parents=True)
    files = [
        path for path in state.rglob("*") if path.is_file() and ".db-" not in path.name and "-wal" not in path.name
    ]
    for path in sorted(files, key=lambda path: path.suffix in {".db", ".sqlite"}):
        target = copy / path.relative_to(state)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in {".db", ".sqlite"}:
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as sink:
                source.backup(sink)
            target.chmod(0o600)
        elif path.suffix != ".sqlite-shm":
            with suppress(FileNotFoundError):  # deleted in the meantime, as a key at its session's end
                shutil.copy(path, target)


@dataclass
class Life:
    """A cluster, copies of all its states at many times, and the models that came out of its runs."""

    cluster: SecureCluster
    copies: list[Path] = field(default_factory=list)
    models: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> None:
        """Copy all states as they are now."""
        copy = self.cluster.root / "copies" / str(len(self.copies))
        for name in SERVICES:
            if (self.cluster.root / name).exists():
                copy_state(self.cluster.root / name, copy / name)
        self.copies.append(copy)

    def put_back(self, times: dict[str, int]) -> None:
        """Have each service's state be as it was at a time."""
        for name, time in times.items():
            shutil.rmtree(self.cluster.root / name, ignore_errors=True)
            if (self.copies[time] / name).exists():
                shutil.copytree(self.copies[time] / name, self.cluster.root / name)


@asynccontextmanager
async def living(life: Life) -> AsyncIterator[tuple[dict[str, Intercepted], httpx.AsyncClient]]:
    """All services of a life, started from what is in their directories."""
    async with secure_services(life.cluster) as services, learner_of(life.cluster, services) as client:
        yield services, client


async def live(root: Path, rng: random.Random) -> Life:
    """Some runs, plain and secure; at every few requests all states are copied."""
    life = Life(FreshCluster(root, n_parties=2, learner={"patience_seconds": 0, "deadline_seconds": 10.0}))

    async def copy(_: httpx.Request) -> None:
        if rng.random() < 0.3:
            life.copy()

    async with living(life) as (services, client):
        for terms in RUNS:
            life.copy()
            for service in services.values():
                service.intercept = copy
            run = await submit(client, parameters={"n_rounds": 3}, **terms)
            assert (await watch(client, run))[-1][1]["state"] == "completed"
            life.models[run] = await model_of(client, run)
            await asyncio.sleep(0.1)  # for what goes on after a run; no outcome depends on it
    life.copy()
    return life


async def model_of(client: httpx.AsyncClient, run: str) -> dict[str, Any]:
    """A run's model, whose certificate holds; a learner that was put back signs the same model again, later."""
    document: dict[str, Any] = (await client.get(f"/v1/runs/{run}/model")).raise_for_status().json()
    assert verify_document(document).faults == ()
    return document | {"certificate": None}


def entries(directory: Path) -> list[dict[str, Any]]:
    """The records of the chain in a state directory."""
    (path,) = [path for path in directory.glob("*.db") if path.name != "witness.db"]
    with closing(sqlite3.connect(path)) as connection:
        return [json.loads(row) for (row,) in connection.execute("SELECT record FROM entries ORDER BY number")]


def known(directory: Path) -> Iterator[Receipt]:
    """The receipts that a service holds of others."""
    for name in ("witness.db", "learner.sqlite"):
        if (path := directory / name).exists():
            with closing(sqlite3.connect(path)) as connection:
                yield from (read_receipt(text) for (text,) in connection.execute("SELECT text FROM receipts"))


def trials(life: Life, count: int, rng: random.Random) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Victims, the only witness left, and from which copy each service's state is put back.

    A party's receipts count the entries of the learner's own chain. A receipt that the witness holds is of something
    that was consented to, answered or opened since: the end of a run is written down again as it was, and nothing is
    lost.
    """
    while count:
        victim = rng.choice((VICTIM, HOLDER))
        witness = rng.choice([name for name in SERVICES if name != victim])
        old, new = sorted(rng.sample(range(len(life.copies)), 2))
        before, after = (
            [entry for entry in entries(life.copies[time] / victim) if victim == HOLDER or "learner" in entry]
            for time in (old, new)
        )
        if any(
            receipt.signer == victim
            and any(entry["kind"] in ACTED for entry in after[len(before) : receipt.head.count])
            for receipt in known(life.copies[new] / witness)
        ):
            count -= 1
            yield victim, witness, dict.fromkeys(SERVICES, old) | {witness: new}


async def go_on(life: Life, times: dict[str, int], terms: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Start all services, let them take up what they find, and ask for one more run; how runs ended, and models.

    A run that failed has its problem's reason for an end.
    """
    life.put_back(times)
    async with living(life) as (_, client):
        runs = [run["id"] for run in (await client.get("/v1/runs")).json()["runs"]]
        new = await submit(client, parameters={"n_rounds": 2}, **terms)
        last = [(await watch(client, run))[-1][1] for run in (*runs, new)]
        ends = [end.get("problem", {}).get("reason", end["state"]) for end in last]
        models = {run: await model_of(client, run) for run, end in zip(runs, ends, strict=False) if end == "completed"}
    return ends, models


def acted(directory: Path, since: int) -> int:
    """How many records of a chain, after so many, are of something that was consented to, answered or opened."""
    return sum(entry["kind"] in ACTED for entry in entries(directory)[since:])


@pytest.fixture
def quick_witnesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receipts are handed on often, for the runs are short, and a machine that stalls silences no witness."""
    monkeypatch.setattr(witnesses, "_PAUSE", 0.02)
    monkeypatch.setattr(witnesses, "_PATIENCE_TO_ASK", 60.0)


@pytest.mark.parametrize("count", [QUICK, pytest.param(MANY - QUICK, marks=pytest.mark.slow)])
async def test_copies_put_back_are_refused(count: int, tmp_path: Path, quick_witnesses: None) -> None:
    rng = random.Random(count)
    life = await live(tmp_path, rng)
    tried: Counter[tuple[str, str]] = Counter()
    accepted = []
    for victim, witness, times in trials(life, count * 3 // 4, rng):
        had = len(entries(life.copies[times[victim]] / victim))
        terms = SUMS if victim == HOLDER else rng.choice(RUNS)
        ends, _ = await go_on(life, times, terms)
        if ends[-1] != "ledger-refused" or acted(life.cluster.root / victim, had):
            accepted.append((victim, witness, times, ends))
        tried[victim, witness] += 1
    print(f"copies of {len(life.copies)} moments, one witness left: {dict(tried)}; accepted {len(accepted)}")
    assert not accepted
    await check_learners(life, count - sum(tried.values()), rng)


async def check_learners(life: Life, count: int, rng: random.Random) -> None:
    """Put the learner alone back: it asks the same again, and nothing changes."""
    latest = len(life.copies) - 1
    changed, charged, refused = 0, 0, 0
    for _ in range(count):
        old = rng.choice([time for time in range(latest) if (life.copies[time] / LEARNER).exists()])
        ends, models = await go_on(life, dict.fromkeys(SERVICES, latest) | {LEARNER: old}, {})
        changed += sum(life.models[run] != model for run, model in models.items())
        charged += sum(overcharged(life, name) for name in (VICTIM, CO_OWNER))
        refused += ends[-1] != "completed"
    print(f"learners put back {count} times: {changed} models changed, {charged} runs overcharged, {refused} refused")
    assert (changed, charged, refused) == (0, 0, 0)


def overcharged(life: Life, party: str) -> int:
    """How many of a party's runs were charged for a round twice, or more than was reserved."""
    spent: Counter[str] = Counter()
    rounds: list[tuple[str, int]] = []
    price: dict[str, int] = {}
    for entry in entries(life.cluster.root / party):
        if entry["kind"] == "approved":
            price[entry["run"]] = entry["reserved"][0]
        elif entry["kind"] == "answered":
            spent[entry["run"]] += entry["cost"][0]
            rounds.append((entry["run"], entry["round"]))
    return sum(spent[run] > price[run] for run in spent) + len(rounds) - len(set(rounds))


async def test_what_was_not_put_back_is_not_refused(tmp_path: Path, quick_witnesses: None) -> None:
    """The control: all services as they were at one moment, with all that they hold of each other."""
    rng = random.Random(3)
    life = await live(tmp_path, rng)
    moments: Sequence[int] = (0, len(life.copies) - 1)
    for moment in moments:
        ends, models = await go_on(life, dict.fromkeys(SERVICES, moment), {})
        assert set(ends) == {"completed"}
        assert all(life.models[run] == model for run, model in models.items())
