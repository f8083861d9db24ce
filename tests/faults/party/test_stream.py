"""An owner's stream killed at any moment ends as one that was left alone: the same actions, charged once."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from parley.common.online import Leader
from parley.common.privacy.account import limit
from parley.common.privacy.noise import SeededNoise
from parley.party.ledger.books import OWNER
from parley.party.owner.stream import Stream, StreamTerms, play
from parley.party.settings import Policy
from tests.support.ledgers import open_ledger

_CONTEXT = multiprocessing.get_context("forkserver")
ROUNDS = 100
TERMS = StreamTerms(name="prices", actions=4, horizon=ROUNDS, bound=1.0, epsilon=2.0, delta=1e-6, adversary="oblivious")
"""It keeps an action over many rounds, so that more has to be known again than the sums of costs."""
POLICY = Policy(epsilon=3, delta=1e-5, max_epsilon_per_run=3, max_delta_per_run=1e-5)
LIMIT = limit(3, 1e-5)


def cost(round: int) -> list[float]:
    """What a round costs, no matter who is asked, or how often."""
    return [float(value) for value in np.random.default_rng([2, round]).uniform(-1, 1, TERMS.actions)]


def live(directory: Path, shown: Path) -> None:
    """A process that leads the stream to its end, is told each round's cost, and notes what it has shown."""
    with shown.open("a", encoding="utf-8") as out, open_ledger(directory, LIMIT) as ledger:
        if (book := ledger.books.runs.get((OWNER, TERMS.name))) and book.ended:
            return  # killed after the end
        stream = Stream(ledger, POLICY, TERMS, lambda round: SeededNoise([9, round]))
        for action in play(stream, (json.dumps(cost(round)) for round in range(1, ROUNDS + 1))):
            out.write(f"{action}\n")
            out.flush()


def killed(directory: Path, shown: Path, seconds: float) -> bool:
    """Whether a life that goes on from there ends by a kill, so long after it has first shown an action."""
    before = shown.stat().st_size
    process = _CONTEXT.Process(target=live, args=(directory, shown))
    process.start()
    while process.is_alive() and shown.stat().st_size == before:
        time.sleep(0.001)
    time.sleep(seconds)
    process.kill()
    process.join()
    assert process.exitcode in {0, -signal.SIGKILL}
    return process.exitcode != 0


def uninterrupted() -> tuple[Leader, dict[int, int]]:
    """A leader with the same noise that nobody stops, and its actions."""
    leader, actions = Leader(4, ROUNDS, 1.0, 2.0, 1e-6, adversary="oblivious"), {}
    assert leader.terms.board is not None
    for round in range(1, ROUNDS + 1):
        leader.noise = SeededNoise([9, round])
        actions[round] = leader.act()
        leader.observe(cost(round))
    return leader, actions


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path: Path) -> None:
    rng, output, kills = random.Random(1), tmp_path / "shown", 0
    output.touch()
    open_ledger(tmp_path / "ledger", LIMIT).close()
    while killed(tmp_path / "ledger", output, rng.uniform(0, 0.03)):
        kills += 1
        assert kills < 500
    leader, expected = uninterrupted()
    actions = [json.loads(line) for line in output.read_text().splitlines()]
    assert {action["round"]: action["action"] for action in actions} == expected
    assert all(expected[action["round"]] == action["action"] for action in actions), "no round ever had another action"
    with open_ledger(tmp_path / "ledger", LIMIT) as ledger:
        costs = [answer.cost for answer in ledger.answers()]
        assert [answer.round for answer in ledger.answers()] == list(expected)
        assert ledger.books.runs[OWNER, "prices"].ended == "owner"
    assert costs[0].epsilon == pytest.approx(leader.guarantee.epsilon * 1e6, abs=1)
    assert not any(any(later.units) for later in costs[1:]), "charged once"
    print(f"{kills} kills: {len(actions)} lines shown of {ROUNDS} rounds, each with its one action")
    assert kills > 1  # how many a machine has time for differs
