"""A run computed again from its parties' ledgers: what the learner should have made of their answers, at what price."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.common.encoding.fixed_point import to_reals
from parley.common.encoding.npy import unpack_array
from parley.common.protocol.driver import MemoryLog, drive
from parley.common.protocol.messages import Query, Reply
from parley.common.runs.pricing import schedule
from parley.common.runs.specification import RunSpec
from parley.learner.settings import LearnerSettings
from parley.party.ledger.records import Answered
from tests.support.ledgers import stored_answers


@dataclass
class LedgerFederation:
    """The parties' stored answers to one run that has ended, summed as the learner should have."""

    rounds: list[list[tuple[Answered, bytes]]]
    """Each party's answers, round by round."""

    async def answer(self, run: str, query: Query) -> Reply:
        answers = [unpack_array(rounds[query.round - 1][1], "<i8") for rounds in self.rounds]
        return Reply(to_reals(np.sum(answers, axis=0)), tuple(range(len(answers))))


def stored(settings: LearnerSettings, run: str, column: str) -> str:
    """A column of a run's row, as the learner left it."""
    with closing(sqlite3.connect(settings.state / "learner.sqlite")) as connection:
        ((value,),) = connection.execute(f"SELECT {column} FROM runs WHERE id = ?", (run,)).fetchall()  # noqa: S608 -- ours
        return str(value)


async def extra_charges(settings: LearnerSettings, run: str, model: dict[str, Any]) -> int:
    """Compare a model with a replay of the parties' answers; how many charges were too many or wrong."""
    spec = RunSpec.model_validate_json(stored(settings, run, "spec"))
    algorithm, facts = spec.build(), spec.facts()
    rounds = [stored_answers(settings.state.parent / name, run) for name in spec.names]
    replayed = await drive(algorithm.program(facts), LedgerFederation(rounds), run, MemoryLog())
    assert np.array(model["weights"]).tobytes() == replayed.weights.tobytes()

    assert [len(answers) for answers in rounds] == [len(algorithm.questions(facts))] * len(spec.names)
    prices = [[cost.epsilon for cost in schedule(algorithm, facts.of(index))] for index in range(len(spec.names))]
    paid = [[answered.cost.epsilon for answered, _ in answers] for answers in rounds]
    return int((np.array(paid) != np.array(prices)).sum())
