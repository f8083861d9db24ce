"""A drill: each service is backed up in mid-run, killed, loses its state, and is restored, at random times.

Afterwards the run goes on, or stops and says why. No party is charged less than it answered, no round of a secure sum
is opened for a second set, and the next run completes.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from parley.common.runs.specification import RunSpec
from parley.learner.cli.main import learner_app
from parley.learner.runs.states import ENDS
from parley.party.answers.party import open_store
from parley.party.cli.main import party_app
from tests.support import toml
from tests.support.cluster import AUTHORIZED, DEADLINE
from tests.support.keyholder import noted_openings
from tests.support.keyholder_process import start_keyholder
from tests.support.nightly import repeats
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready
from tests.support.rounds import run_spec
from tests.support.secure_cluster import SUMS, SecureCluster, charges, due

TRIALS = repeats(1, 20)
KINDS = ("none", "paillier")
ROUNDS = {"none": 150, "paillier": 25}
SECONDS = 1.5
"""About how long such a run takes."""
END_SECONDS = 60.0
PARTY, HOLDER, LEARNER = "party-1", "key-holder-1", "learner"


@dataclass
class Drill:
    """Two parties, a key holder and a learner as processes, each with a settings file for its commands."""

    cluster: SecureCluster
    processes: dict[str, BaseProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ports = {name: free_port() for name in (*self.cluster.names, HOLDER, LEARNER)}
        urls = {name: f"http://127.0.0.1:{port}" for name, port in self.ports.items()}
        self.settings: dict[str, Any] = {
            name: self.cluster.party_settings(name, port=self.ports[name]) for name in self.cluster.names
        }
        self.settings[HOLDER] = self.cluster.keyholder_settings(HOLDER, port=self.ports[HOLDER])
        self.settings[LEARNER] = self.cluster.learner_settings(
            urls, port=self.ports[LEARNER], deadline_seconds=DEADLINE
        )
        self.files = {
            name: toml.write(self.cluster.root / f"{name}.toml", settings.model_dump())
            for name, settings in self.settings.items()
        }
        self.starts: dict[str, Callable[[Any], BaseProcess]] = dict.fromkeys(self.cluster.names, start_party)
        self.starts |= {HOLDER: start_keyholder, LEARNER: start_learner}

    def start(self, name: str) -> None:
        """Start a service, and wait until it is ready."""
        self.processes[name] = self.starts[name](type(self.settings[name]).load(self.files[name]))
        wait_until_ready(f"http://127.0.0.1:{self.ports[name]}")

    def kill(self, name: str) -> None:
        """Kill a service, in the middle of its work."""
        self.processes[name].kill()
        self.processes[name].join(END_SECONDS)

    def command(self, name: str, *words: object, stream: bytes | None = None) -> Result:
        """Run a command of a service's owner."""
        app: Typer = learner_app if name == LEARNER else party_app
        group = ["keyholder"] if name == HOLDER else []
        line = [*group, *map(str, words), "--config", str(self.files[name])]
        done = CliRunner().invoke(app, line, input=stream)
        assert done.exit_code == 0, done.output
        return done

    def restore(self, name: str, draw: random.Random, *options: object) -> Callable[[], None]:
        """Back a service up into a folder or a stream; returns what brings that backup back and starts the service."""
        place = self.cluster.root / f"backup-{name}-{draw.getrandbits(64):x}"
        is_stream = draw.random() < 1 / 2
        written = self.command(name, "backup", "-" if is_stream else place)

        def restore() -> None:
            if is_stream:
                self.command(name, "restore", "-", *options, stream=written.stdout_bytes)
            else:
                self.command(name, "restore", place, *options)
            self.start(name)

        return restore


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    made = Drill(SecureCluster(tmp_path_factory.mktemp("drill"), n_parties=2, epsilon=1000.0))
    try:
        for name in made.settings:
            made.start(name)
        yield made
    finally:
        with stopped_at_exit(*made.processes.values()):
            pass


@contextmanager
def user(drill: Drill) -> Iterator[httpx.Client]:
    url = f"http://127.0.0.1:{drill.ports[LEARNER]}"
    with httpx.Client(base_url=url, headers=AUTHORIZED, trust_env=False, timeout=60) as client:
        yield client


def submit(drill: Drill, kind: str) -> str:
    terms = SUMS if kind == "paillier" else {}
    request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": ROUNDS[kind]}, **terms}
    with user(drill) as client:
        run: str = client.post("/v1/runs", json=request).raise_for_status().json()["id"]
    return run


def end_of(drill: Drill, run: str) -> tuple[str, str]:
    """The state of a run that has ended, and what it says of a failure."""
    until = time.monotonic() + END_SECONDS
    with user(drill) as client:
        while (view := client.get(f"/v1/runs/{run}").raise_for_status().json())["state"] not in ENDS:
            assert time.monotonic() < until, view
            time.sleep(0.05)
    return view["state"], (view["problem"] or {}).get("detail", "")


def wait(draw: random.Random) -> None:
    time.sleep(draw.uniform(0, SECONDS))


def check_next_run(drill: Drill) -> None:
    assert end_of(drill, submit(drill, "paillier")) == ("completed", "")


def test_a_party_is_restored_at_any_time(drill: Drill) -> None:
    outcomes: Counter[str] = Counter()
    settings, draw = drill.settings[PARTY], random.Random()
    for _ in range(TRIALS):
        run = submit(drill, draw.choice(KINDS))
        wait(draw)
        receipt = drill.cluster.root / "receipt"
        restore = drill.restore(PARTY, draw, "--receipt", receipt)
        wait(draw)
        drill.kill(PARTY)
        with open_store(settings) as ledger:
            answered = ledger.account().spent
        shutil.rmtree(settings.state)
        with user(drill) as client:
            receipt.write_text(client.get(f"/v1/parties/{PARTY}/receipt").raise_for_status().json()["receipt"])
        restore()
        with open_store(settings) as ledger:
            charged = ledger.account().spent
        assert all(now >= before for now, before in zip(charged.units, answered.units, strict=True))
        state, reason = end_of(drill, run)
        assert state == "completed" or "its ledger was lost and begun again" in reason, reason
        outcomes[state] += 1
    check_next_run(drill)
    print(f"a party restored {TRIALS} times in mid-run, never charged less than it answered: {dict(outcomes)}")


def test_a_key_holder_is_restored_at_any_time(drill: Drill) -> None:
    outcomes: Counter[str] = Counter()
    opened: dict[tuple[str, int], str] = {}
    settings, draw = drill.settings[HOLDER], random.Random()
    for _ in range(TRIALS):
        run = submit(drill, "paillier")
        wait(draw)
        restore = drill.restore(HOLDER, draw)
        wait(draw)
        drill.kill(HOLDER)
        note_openings(settings.state, opened)
        shutil.rmtree(settings.state)
        restore()
        state, reason = end_of(drill, run)
        assert state == "completed" or "which ended all sessions" in reason, reason
        outcomes[state] += 1
    check_next_run(drill)
    note_openings(settings.state, opened)
    print(f"a key holder restored {TRIALS} times in mid-run, {len(opened)} sums opened once: {dict(outcomes)}")


def note_openings(state: Path, opened: dict[tuple[str, int], str]) -> None:
    """Add what a journal has opened since its beginning: no round that an earlier journal has opened."""
    new = {(opening.session, opening.round): opening.contributors for opening in noted_openings(state)}
    assert not {session for session, _ in new} & {session for session, _ in opened}
    opened |= new


def test_a_learner_is_restored_at_any_time(drill: Drill) -> None:
    outcomes: Counter[str] = Counter()
    settings, draw = drill.settings[LEARNER], random.Random()
    for _ in range(TRIALS):
        kind = draw.choice(KINDS)
        run = submit(drill, kind)
        wait(draw)
        restore = drill.restore(LEARNER, draw)
        wait(draw)
        drill.kill(LEARNER)
        shutil.rmtree(settings.state)
        restore()
        state, reason = end_of(drill, run)
        if kind == "none":
            assert state == "completed", "the parties give the same answers again"
        assert state == "completed" or "was brought back from a backup" in reason, reason
        price = due(spec_of(drill, kind))
        for party, charged in charges(drill.cluster, run).items():
            assert charged == price[party][: len(charged)], "each round once"
        outcomes[state] += 1
    check_next_run(drill)
    print(f"a learner restored {TRIALS} times in mid-run, every round charged once: {dict(outcomes)}")


def spec_of(drill: Drill, kind: str) -> RunSpec:
    colluders = int(kind == "paillier")
    return run_spec(drill.cluster, ROUNDS[kind], secure_sum=kind, colluders=colluders)
