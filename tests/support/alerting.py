"""Causes of every alert at a federation that a real Prometheus watches, and how each is mended."""

from __future__ import annotations

import shutil
import sqlite3
import time
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import yaml  # type: ignore[import-untyped]

from parley.learner.runs.states import ENDS
from scripts.loopback import wait_until
from tests.support import toml
from tests.support.prometheus import RULES, Watch

ALERTS = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
BUDGET, MORE = 3.0, 100.0
"""The epsilon that each owner allows at first, and once it is spent."""
_END_SECONDS = 300.0
DEADLINE = 7.0
"""How long the learner waits for a silent party: longer than no round may pass."""


class Watched(ABC):
    """A learner and three parties that run, each with a settings file, a folder of state, and metrics."""

    parties: tuple[str, str, str]
    study: str
    asking: httpx.Client
    """A user of the learner."""

    @abstractmethod
    def settings(self, name: str) -> Path:
        """The settings file of a service."""

    @abstractmethod
    def state(self, name: str) -> Path:
        """The folder that a service writes to."""

    @abstractmethod
    def metrics(self, name: str) -> str:
        """The URL of a party's metrics."""

    @abstractmethod
    def stop(self, name: str) -> None:
        """End a service."""

    @abstractmethod
    def start(self, name: str) -> None:
        """Start it again."""

    @abstractmethod
    def freeze(self, name: str) -> None:
        """Have a service stand still."""

    @abstractmethod
    def thaw(self, name: str) -> None:
        """Have it go on."""

    def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        """Change the settings file of a service, which reads tokens of it at once and the others when it starts."""
        path = self.settings(name)
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
        edit(settings)
        toml.write(path, settings)

    def submit(self, n_rounds: int, epsilon: float = 0.05, **terms: object) -> str:
        """The identifier of a new run."""
        request = {"study": self.study, "epsilon": epsilon, "delta": 1e-5, "parameters": {"n_rounds": n_rounds}}
        answer = self.asking.post("/v1/runs", json=request | terms)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def view(self, run: str) -> dict[str, Any]:
        """A run as its user sees it."""
        shown: dict[str, Any] = self.asking.get(f"/v1/runs/{run}").raise_for_status().json()
        return shown

    def finished(self, run: str) -> str:
        """The state in which a run ends."""
        wait_until(lambda: self.view(run)["state"] in ENDS, seconds=_END_SECONDS, pause=0.05)
        return str(self.view(run)["state"])

    def cancel(self, *runs: str) -> None:
        """End runs."""
        for run in runs:
            self.asking.post(f"/v1/runs/{run}/cancel").raise_for_status()


def cause_and_mend_all(made: Watched, watch: Watch, copy: Path) -> str:
    """Cause every alert and wait until it fires, then mend all and wait for silence; returns what was measured.

    ``copy`` becomes a copy of a party's state.
    """
    watch.until_silent()
    watch.fired.clear()
    began = time.monotonic()
    first, second, third = made.parties
    shutil.copytree(made.state(third), copy)
    made.submit(3, epsilon=2 * BUDGET)  # which a policy refuses, and so it fails
    show_wrong_tokens(made.metrics(first))
    made.change(first, ends_tomorrow)
    with damaged_row(made):
        watch.until("ParleyRefusals", "ParleyRunFailed", "ParleySignIns", "ParleyInternalErrors", "ParleyExpires")
    sums = made.submit(400, secure_sum="paillier")
    watch.until("ParleyObfuscatorsLate")
    made.cancel(sums)
    stand_still(made, watch, second)
    restart_often(made, watch, first)
    move_away(made, watch, third)
    put_back_an_old_copy(made, watch, third, copy)
    spend(made, watch)
    watch.until(*ALERTS)
    fired = time.monotonic()
    made.change(first, ends_never)
    for name in made.parties:
        made.change(name, lambda settings: settings["policy"].update(epsilon=MORE))
        made.stop(name)
        made.start(name)
    watch.until_silent()
    return (
        f"{len(watch.fired & ALERTS)} of {len(ALERTS)} alerts fired within {fired - began:.0f} s; all were silent "
        f"{time.monotonic() - fired:.0f} s after the last was mended"
    )


def show_wrong_tokens(url: str) -> None:
    """More failed sign-ins than a caller's mistake."""
    with httpx.Client(trust_env=False) as client:
        for number in range(30):
            assert client.get(url, headers={"Authorization": f"Bearer {number}"}).status_code in {401, 429}


def ends_tomorrow(settings: dict[str, Any]) -> None:
    """Have the learner's token end tomorrow."""
    (learner,) = settings["learners"]
    tomorrow = datetime.now(UTC).date() + timedelta(1)
    learner["tokens"] = [{"hash": learner.pop("token_hash"), "expires": tomorrow}]


def ends_never(settings: dict[str, Any]) -> None:
    """Have it end never."""
    (learner,) = settings["learners"]
    learner["token_hash"] = learner.pop("tokens")[0]["hash"]


@contextmanager
def damaged_row(made: Watched) -> Iterator[None]:
    """A row of the learner's database cannot be read for a while."""
    run = made.submit(3)
    assert made.finished(run) == "completed"
    with closing(sqlite3.connect(made.state("learner") / "learner.sqlite", timeout=10)) as file:
        (terms,) = file.execute("SELECT terms FROM runs WHERE id = ?", (run,)).fetchone()
        file.execute("UPDATE runs SET terms = '{' WHERE id = ?", (run,))
        file.commit()
        assert made.asking.get(f"/v1/runs/{run}").status_code == 500
        yield
        file.execute("UPDATE runs SET terms = ? WHERE id = ?", (terms, run))
        file.commit()


def stand_still(made: Watched, watch: Watch, name: str) -> None:
    """A party stands still: one run waits for it, then pauses; another goes on without it."""
    runs = [made.submit(1500, minimum_contributors=least) for least in (2, 3)]
    while not all(made.view(run)["rounds"]["done"] for run in runs):
        time.sleep(0.02)
    made.freeze(name)
    try:
        watch.until("ParleyDown", "ParleyNoRounds", "ParleyPartyDropped", "ParleyRunPaused")
    finally:
        made.thaw(name)
    made.cancel(*runs)


def restart_often(made: Watched, watch: Watch, name: str) -> None:
    """A service starts again, three times."""
    started = f'process_start_time_seconds{{job="parley-{name}"}}'
    for _ in range(3):
        before = watch.value(started)
        made.stop(name)
        made.start(name)
        watch.until_holds(lambda before=before: watch.value(started) not in {None, before})  # type: ignore[misc]
    watch.until("ParleyRestarting")


def move_away(made: Watched, watch: Watch, name: str) -> None:
    """A file of a party's state is moved under it, and back again."""
    ledger = made.state(name) / "ledger.db"
    away = ledger.rename(ledger.with_name("away.db"))
    watch.until("ParleyNotReady")
    away.rename(ledger)


def put_back_an_old_copy(made: Watched, watch: Watch, name: str, copy: Path) -> None:
    """The state of a party is set back to a copy, which the learner's receipt shows, and then it is as it was."""
    state, newest = made.state(name), copy.with_name("newest")
    made.stop(name)
    replace(state, copy, newest)
    made.start(name)
    assert made.finished(made.submit(3)) == "failed"
    watch.until("ParleyLedger")
    made.stop(name)
    replace(state, newest, copy.with_name("older"))
    made.start(name)


def replace(state: Path, by: Path, kept: Path) -> None:
    """Put the files of a folder in the place of another's, which are kept; the folder itself may be mounted."""
    shutil.copytree(state, kept)
    owner = state.stat()
    for file in state.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    shutil.copytree(by, state, dirs_exist_ok=True)
    for file in state.rglob("*"):
        shutil.chown(file, owner.st_uid, owner.st_gid)


def spend(made: Watched, watch: Watch) -> None:
    """All that is left of the budgets."""
    for _ in range(5):
        time.sleep(1)  # until it is read again
        epsilon, delta = watch.value("min(parley_epsilon_left)"), watch.value("min(parley_delta_left)")
        assert epsilon is not None
        if epsilon < BUDGET / 200:
            return
        assert made.finished(made.submit(3, epsilon=epsilon, delta=delta)) == "completed"
