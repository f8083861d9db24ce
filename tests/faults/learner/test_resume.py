"""Kill the learner whenever; start it again; nothing is asked twice at a price, and the model is the same."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from common.encoding.fixed_point import to_reals
from common.encoding.npy import unpack_array
from common.protocol.driver import MemoryLog, drive
from common.protocol.messages import Query, Reply
from common.runs.pricing import schedule
from common.runs.specification import RunSpec
from learner.settings import LearnerSettings
from party.ledger.records import Answered
from tests.support.cluster import AUTHORIZED, Cluster
from tests.support.ledgers import stored_answers
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready

BOUNDARY_ROUNDS, RANDOM_ROUNDS, RANDOM_KILLS = 10, 30, 170
JOIN_SECONDS = 30


@dataclass
class LedgerFederation:
    """The parties' stored answers to one run, summed as the learner should have."""

    states: list[Path]
    run: str

    async def answer(self, run: str, query: Query) -> Reply:
        answers = [unpack_array(rounds[query.round - 1][1], "<i8") for rounds in self.rounds()]
        return Reply(to_reals(np.sum(answers, axis=0)), tuple(range(len(answers))))

    def count(self) -> list[Any]:
        """How many rounds each party has answered."""
        return [len(rounds) for rounds in self.rounds()]

    def rounds(self) -> list[list[tuple[Answered, bytes]]]:
        """Each party's answers, round by round."""
        return [stored_answers(state, self.run) for state in self.states]


@dataclass
class Killed:
    """A learner that is killed and started again, and the parties that go on."""

    cluster: Cluster
    settings: LearnerSettings

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    def client(self) -> httpx.Client:
        wait_until_ready(self.url)
        return httpx.Client(base_url=self.url, headers=AUTHORIZED, trust_env=False, timeout=60)

    def submit(self, n_rounds: int) -> str:
        request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": n_rounds}}
        with self.client() as client:
            run: str = client.post("/v1/runs", json=request).raise_for_status().json()["id"]
            return run

    def state(self, run: str) -> str:
        """A run's state as the dead learner left it."""
        return str(_look_up(self.settings.state / "learner.sqlite", "SELECT state FROM runs WHERE id = ?", run))

    def models(self, runs: list[str]) -> dict[str, dict[str, Any]]:
        """The models of runs, which a last learner brings to their ends."""
        with stopped_at_exit(start_learner(self.settings)), self.client() as client:
            for run in runs:
                client.get(f"/v1/runs/{run}/events").raise_for_status()
            return {run: client.get(f"/v1/runs/{run}/model").raise_for_status().json() for run in runs}

    def spec(self, run: str) -> RunSpec:
        found = _look_up(self.settings.state / "learner.sqlite", "SELECT spec FROM runs WHERE id = ?", run)
        return RunSpec.model_validate_json(found)


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    cluster = Cluster(tmp_path)
    with party_processes(cluster) as urls:
        yield Killed(cluster, cluster.learner_settings(urls, port=free_port()))


@pytest.mark.slow
async def test_a_killed_learner_resumes_to_the_same_model_at_no_charge(killed: Killed) -> None:
    runs = [_kill_at_every_boundary(killed), *_kill_at_random(killed)]
    models = killed.models(runs)
    extra = [await _check(killed, run, models[run]) for run in runs]
    assert sum(extra) == 0
    print(
        f"learner killed at every round boundary ({BOUNDARY_ROUNDS}) and at {RANDOM_KILLS} random points: "
        f"same final model bit for bit, {sum(extra)} extra charges"
    )


def _kill_at_every_boundary(killed: Killed) -> str:
    """One run, whose learner dies as the rounds begin and after each round."""
    for round in range(BOUNDARY_ROUNDS + 1):
        learner = start_learner(killed.settings, die_after_round=round)
        with stopped_at_exit(learner):
            if round == 0:
                run = killed.submit(BOUNDARY_ROUNDS)
            learner.join(JOIN_SECONDS)
            assert learner.exitcode == -9
    assert killed.state(run) == "running"
    return run


def _kill_at_random(killed: Killed) -> list[str]:
    """Runs one after the other, whose learner dies at any time from its first moment on."""
    rng = random.Random(5)
    runs: list[str] = []
    for _ in range(RANDOM_KILLS):
        started = time.monotonic()
        learner = start_learner(killed.settings)
        with stopped_at_exit(learner):
            if not runs or killed.state(runs[-1]) == "completed":
                runs.append(killed.submit(RANDOM_ROUNDS))
                patience = time.monotonic() - started  # a start, and a little
            time.sleep(rng.uniform(0, patience))
            learner.kill()
            learner.join(JOIN_SECONDS)
    return runs


def _look_up(database: Path, question: str, *values: object) -> Any:  # noqa: ANN401 -- whatever is stored
    """The one value that answers a question."""
    with closing(sqlite3.connect(database)) as connection:
        ((value,),) = connection.execute(question, values).fetchall()
        return value


async def _check(killed: Killed, run: str, model: dict[str, Any]) -> int:
    """Compare a model with an offline replay of the parties' answers; return how many charges were too many."""
    spec = killed.spec(run)
    algorithm, facts = spec.build(), spec.facts()
    ledgers = LedgerFederation([killed.settings.state.parent / name for name in spec.names], run)
    replayed = await drive(algorithm.program(facts), ledgers, run, MemoryLog())
    assert np.array(model["weights"]).tobytes() == replayed.weights.tobytes()

    assert ledgers.count() == [len(algorithm.questions(facts))] * len(spec.names)
    due = [[cost.epsilon for cost in schedule(algorithm, facts.of(index))] for index in range(len(spec.names))]
    paid = [[answered.cost.epsilon for answered, _ in rounds] for rounds in ledgers.rounds()]
    return int((np.array(paid) != np.array(due)).sum())
