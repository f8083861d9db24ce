"""A federation in this process: all parties' shards stacked, so that 20,000 parties are one batched call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from common.data.shard import Shard
from common.encoding.fixed_point import checked_answer, from_wire, to_wire
from common.errors import InvalidInputError
from common.learning.model import Model
from common.privacy.noise import Noise
from common.protocol.algorithm import Algorithm
from common.protocol.driver import MemoryLog, drive
from common.protocol.facts import FederationFacts, OwnFacts
from common.protocol.messages import Query, Reply


@dataclass(frozen=True, slots=True)
class Simulation:
    """K parties whose shards (K, n, d) are stacked; answers are computed in one call to the algorithm's party half."""

    algorithm: Algorithm
    facts: OwnFacts
    noise: Noise
    prepared: Any

    @classmethod
    def of(cls, algorithm: Algorithm, shard: Shard, facts: FederationFacts, noise: Noise) -> Self:
        """A federation whose shards are prepared; raises InvalidInputError for another number of shards."""
        if shard.y.shape[:-1] != (len(facts.parties),):
            raise InvalidInputError(f"{len(facts.parties)} parties need a stack of as many shards")
        return cls(algorithm, facts.everyone, noise, algorithm.prepare(shard, facts.everyone))

    async def answer(self, run: str, query: Query) -> Reply:
        """All parties' answers, or their exact sum."""
        shift = self.facts.wire_shift
        answers = to_wire(self.algorithm.local(query, self.prepared, self.facts, self.noise), shift)
        value = checked_answer(answers.sum(axis=0)) if query.reveal == "sum" else answers
        return Reply(from_wire(value, shift), tuple(range(len(self.facts.parties))))


def simulate(algorithm: Algorithm, shard: Shard, facts: FederationFacts, noise: Noise) -> Model:
    """Run an algorithm on stacked shards (K, n, d) to its model; baselines with a curator run on the pooled shard."""
    if algorithm.curator:
        shard, facts = Shard.stack([shard.pooled()]), facts.curated()
    algorithm.questions(facts)
    federation = Simulation.of(algorithm, shard, facts, noise)
    run = drive(algorithm.program(facts), federation, "simulation", MemoryLog())
    try:
        run.send(None)
    except StopIteration as stop:
        model: Model = stop.value
        return model
    raise AssertionError("a simulation never waits")
