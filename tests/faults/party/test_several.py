"""Three studies of two tables, asked about by two learners at once, at one party that dies and is set back."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from parley.common.privacy.account import Cost
from parley.common.protocol.receipts import RECEIPT_HEADER, read_receipt
from parley.common.runs.pricing import schedule
from parley.common.runs.specification import RunSpec
from parley.learner.settings import LearnerSettings
from parley.party.answers.party import open_store
from parley.party.ledger.audit import export, verify
from parley.party.ledger.records import Answered
from tests.support.cluster import AUTHORIZED
from tests.support.nightly import repeats
from tests.support.outage import SameNoise
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready
from tests.support.replays import extra_charges, stored
from tests.support.rounds import ask, propose
from tests.support.several import ASKED_BY, LEARNERS, STUDIES, Owner, asking, spec_on

KILLS, COPIES = repeats(3, 100), repeats(3, 200)
ROUNDS = (8, 13, 21)
OPEN_RUNS = 2
"""How many runs of a learner are open at a time."""
SAME = SameNoise(0)


# ── two learners, and a party that is killed ─────────────────────────────────


@dataclass
class Learner:
    """A learner's service, and its runs with what was asked for."""

    name: str
    settings: LearnerSettings
    process: BaseProcess = field(init=False)
    client: httpx.Client = field(init=False)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.process = start_learner(self.settings)
        url = f"http://127.0.0.1:{self.settings.port}"
        self.client = httpx.Client(base_url=url, headers=AUTHORIZED, trust_env=False, timeout=60)

    @property
    def studies(self) -> list[str]:
        """The studies about which it may ask."""
        return [study for study, learners in ASKED_BY.items() if self.name in learners]

    def submit(self) -> None:
        """Submit one more run: studies and numbers of rounds take turns."""
        number = len(self.runs)
        study, n_rounds = self.studies[number % 2], ROUNDS[number % len(ROUNDS)]
        self.runs[self.begin(study, n_rounds)] = {"study": study, "n_rounds": n_rounds}

    def begin(self, study: str, n_rounds: int) -> str:
        """Submit a run; its identifier."""
        request = {"study": study, "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": n_rounds}}
        run: str = self.client.post("/v1/runs", json=request).raise_for_status().json()["id"]
        return run

    def keep_busy(self) -> None:
        """Have two runs open; those that pause go on at once."""
        states = {run: self.client.get(f"/v1/runs/{run}").json()["state"] for run in list(self.runs)[-OPEN_RUNS - 2 :]}
        for run, state in states.items():
            if state == "paused":
                self.client.post(f"/v1/runs/{run}/resume")
        for _ in range(OPEN_RUNS - sum(state != "completed" for state in states.values())):
            self.submit()

    def model(self, run: str) -> dict[str, Any]:
        """A run's model, once it is there."""
        self.client.post(f"/v1/runs/{run}/resume")
        self.client.get(f"/v1/runs/{run}/events", timeout=120).raise_for_status()
        document: dict[str, Any] = self.client.get(f"/v1/runs/{run}/model").raise_for_status().json()
        return document


@contextmanager
def two_learners(owner: Owner, url: str) -> Iterator[list[Learner]]:
    """Both learners' services."""
    learners = [
        Learner(name, owner.learner_settings(name, url, port=free_port(), deadline_seconds=2.0)) for name in LEARNERS
    ]
    with stopped_at_exit(*(learner.process for learner in learners)):
        for learner in learners:
            wait_until_ready(str(learner.client.base_url))
        yield learners
        for learner in learners:
            learner.client.close()


@contextmanager
def killed_at_end(owner: Owner, port: int) -> Iterator[BaseProcess]:
    """The party's process, which is killed when the block ends."""
    process = start_party(owner.settings(port=port), SAME)
    try:
        yield process
    finally:
        process.kill()
        process.join()


def twins(root: Path, kinds: set[tuple[str, str, int]]) -> dict[tuple[str, str, int], list[float]]:
    """The models of runs of each kind, by learner, study and rounds, at a party that nobody kills."""
    owner, port = Owner(root), free_port()
    url = f"http://127.0.0.1:{port}"
    with stopped_at_exit(start_party(owner.settings(port=port), SAME)), two_learners(owner, url) as learners:
        wait_until_ready(url)
        by_name = {learner.name: learner for learner in learners}
        runs = {kind: by_name[kind[0]].begin(*kind[1:]) for kind in sorted(kinds)}
        return {kind: by_name[kind[0]].model(run)["weights"] for kind, run in runs.items()}


def models_in_spite_of_kills(
    owner: Owner, port: int, learners: list[Learner], rng: random.Random
) -> dict[tuple[str, str], dict[str, Any]]:
    """The models of all runs that the learners begin while the party is killed again and again."""
    url = f"http://127.0.0.1:{port}"
    for _ in range(KILLS):
        with killed_at_end(owner, port):
            if rng.random() > 0.1:  # some die while they start
                wait_until_ready(url)
            for learner in learners:
                learner.keep_busy()
            time.sleep(rng.uniform(0, 0.5))
    with killed_at_end(owner, port):
        wait_until_ready(url)
        return {(learner.name, run): learner.model(run) for learner in learners for run in learner.runs}


@pytest.mark.slow
async def test_kill_at_random_while_two_learners_ask_about_three_studies(tmp_path: Path) -> None:
    owner, port = Owner(tmp_path / "killed"), free_port()
    with two_learners(owner, f"http://127.0.0.1:{port}") as learners:
        models = models_in_spite_of_kills(owner, port, learners, random.Random(41))
    asked = {(learner.name, run): terms for learner in learners for run, terms in learner.runs.items()}
    kinds = {key: (key[0], terms["study"], terms["n_rounds"]) for key, terms in asked.items()}
    unkilled = twins(tmp_path / "twins", set(kinds.values()))
    changed = sum(
        np.array(model["weights"]).tobytes() != np.array(unkilled[kinds[key]]).tobytes()
        for key, model in models.items()
    )
    extra = 0
    for learner in learners:
        extra += sum([await extra_charges(learner.settings, run, models[learner.name, run]) for run in learner.runs])
    prices = {key: due(learners, *key) for key in asked}
    amiss, n_answers = check_charges(owner, prices)
    lost = sum(map(len, prices.values())) - n_answers
    figures = f"{len(asked)} runs, {n_answers} answers: {amiss} units amiss, {extra} charges wrong, {lost} lost"
    print(f"party of three studies killed {KILLS} times under two learners: {figures}, {changed} models changed")
    assert (amiss, extra, lost, changed) == (0, 0, 0, 0)
    assert {kind[1] for kind in kinds.values()} == set(STUDIES)


def due(learners: list[Learner], name: str, run: str) -> list[Cost]:
    """What each round of a run costs by the price list."""
    (settings,) = [learner.settings for learner in learners if learner.name == name]
    spec = RunSpec.model_validate_json(stored(settings, run, "spec"))
    return list(schedule(spec.build(), spec.facts().of(0)))


def check_charges(owner: Owner, prices: dict[tuple[str, str], list[Cost]]) -> tuple[int, int]:
    """Compare the account with what all runs cost: units that differ, and how many answers there are in the chain."""
    with open_store(owner.settings()) as store:
        entries, receipt = verify(export(store), store.identity.key)
        account, uses = store.account(), store.books.uses
        assert receipt.head == store.chain.head
    paid: dict[tuple[str, str], list[Cost]] = {key: [] for key in prices}
    for entry in entries:
        if isinstance(entry.record, Answered):
            paid[entry.record.learner, entry.record.run].append(entry.record.cost)
    assert paid == prices
    total = sum((cost for costs in prices.values() for cost in costs), Cost(0, 0))
    by_use = sum((use.spent for use in uses.values()), Cost(0, 0))
    assert set(account.reserved.units) == {0}
    amiss = sum(
        abs(one - other) + abs(one - third)
        for one, other, third in zip(account.spent.units, total.units, by_use.units, strict=True)
    )
    return amiss, sum(map(len, paid.values()))


# ── two learners, and a party whose state is put back ────────────────────────


@dataclass
class Asker:
    """A learner played here: it asks round after round in run after run, and shows the newest receipt that it has."""

    name: str
    url: str
    client: httpx.Client = field(init=False)
    answered: list[float] = field(default_factory=list)
    """When each question was asked that was answered, on the monotonic clock."""
    place: int = 0

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=self.url, headers=asking(self.name), trust_env=False, timeout=60)

    def ask(self) -> httpx.Response:
        """Ask the next round, or propose the next run."""
        number, round = divmod(self.place, ROUNDS[0] + 1)
        studies = [study for study, learners in ASKED_BY.items() if self.name in learners]
        study, run = studies[number % 2], f"run-{number}"
        if round == 0:
            return propose(self.client, spec_on(study, ROUNDS[0]), run)
        return ask(self.client, round, np.full(STUDIES[study].n_features, round / 64), run)

    def ask_on(self, stop: threading.Event) -> None:
        """Ask on until it is told to stop."""
        while not stop.is_set():
            began = time.monotonic()
            response = self.ask().raise_for_status()
            self.client.headers[RECEIPT_HEADER] = response.headers[RECEIPT_HEADER]
            self.place += 1
            self.answered.append(began)

    def is_refused(self) -> bool:
        """Whether the party refuses the next question because its ledger is an old copy."""
        response = self.ask()
        return not response.is_success and response.json()["type"] == "urn:parley:problem:ledger-refused"


def copy_whole(state: Path, copy: Path) -> None:
    """Copy all files of a state while the party writes them: what may lag behind the database first."""
    copy.mkdir()
    for path in state.iterdir():
        if path.is_file() and ".db" not in path.name:
            shutil.copy(path, copy / path.name)
    for path in state.glob("*.db"):
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy / path.name)) as target:
            source.backup(target)
        (copy / path.name).chmod(0o600)


def put_back(state: Path, copy: Path, kind: str) -> None:
    """Put back of a copy the whole, the database alone, or the head file alone."""
    if kind != "head":
        for path in state.glob("ledger.db*"):
            path.unlink()
    for path in copy.iterdir():
        if kind == "whole" or path.name == {"database": "ledger.db", "head": "ledger.head"}[kind]:
            shutil.copy(path, state / path.name)


def n_entries(state: Path) -> int:
    """How many entries a party's ledger has."""
    with closing(sqlite3.connect(state / "ledger.db")) as connection:
        ((count,),) = connection.execute("SELECT COUNT(*) FROM entries").fetchall()
        return int(count)


@contextmanager
def living(owner: Owner, port: int) -> Iterator[bool]:
    """The party's service; whether it has started and is ready, or has ended. It is killed at the end."""
    with killed_at_end(owner, port) as process:
        while process.is_alive():
            with suppress(httpx.HTTPError):
                httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).raise_for_status()
                break
            time.sleep(0.01)
        yield process.is_alive()


def ask_at_once(askers: list[Asker], meanwhile: Callable[[], float]) -> list[Asker]:
    """Have all ask at once, and do something meanwhile that says when it was done; who has asked since, at random."""
    stop = threading.Event()
    threads = [threading.Thread(target=asker.ask_on, args=(stop,)) for asker in askers]
    for thread in threads:
        thread.start()
    done = meanwhile()
    while all(asker.answered[-1:] < [done] for asker in askers) and all(thread.is_alive() for thread in threads):
        time.sleep(0.001)
    stop.set()
    for thread in threads:
        thread.join()
    return [asker for asker in askers if asker.answered[-1:] >= [done]]


@pytest.mark.slow
def test_copies_put_back_are_refused_once_either_learner_has_asked_since(tmp_path: Path) -> None:
    rng, port = random.Random(42), free_port()
    owner = Owner(tmp_path)
    askers = [Asker(name, f"http://127.0.0.1:{port}") for name in LEARNERS]
    refused = dict.fromkeys(("whole", "database", "head"), 0)
    since = dict.fromkeys(LEARNERS, 0)
    with ExitStack() as stack:
        for asker in askers:
            stack.enter_context(asker.client)
        for number in range(COPIES):
            kind, copy, present = list(refused)[number % 3], tmp_path / "copy", tmp_path / "present"

            def copy_soon(copy: Path = copy) -> float:
                time.sleep(rng.uniform(0, 0.1))
                copy_whole(owner.state, copy)
                return time.monotonic()

            with living(owner, port) as is_alive:
                assert is_alive, "the party goes on with its own ledger"
                have_asked = ask_at_once(askers, copy_soon)
            shutil.copytree(owner.state, present)
            put_back(owner.state, copy, kind)
            rng.shuffle(have_asked)
            refused[kind] += is_refused(owner, port, have_asked, askers)
            for asker in have_asked:
                since[asker.name] += 1
            shutil.rmtree(owner.state)
            present.rename(owner.state)
            shutil.rmtree(copy)
    accepted = COPIES - sum(refused.values())
    print(f"{COPIES} copies put back while two learners ask (asked since: {since}): {accepted} accepted, {refused}")
    assert accepted == 0
    assert min(since.values()) > 0


def is_refused(owner: Owner, port: int, have_asked: list[Asker], askers: list[Asker]) -> bool:
    """Whether what was put back answers nobody, before and after a restart.

    A head file alone is no old copy: the party has all that it answered, and must not have lost any of it.
    """
    had = n_entries(owner.state)
    with living(owner, port) as is_alive:
        if not is_alive:
            return True
        others = [asker for asker in askers if asker not in have_asked]
        answers = [asker.is_refused() for asker in (*have_asked, *others)]
    shown = [read_receipt(asker.client.headers[RECEIPT_HEADER]).head.count for asker in have_asked]
    if n_entries(owner.state) > had:
        return not any(answers) and max(shown) <= had
    with living(owner, port) as is_alive:
        return all(answers) and not is_alive
