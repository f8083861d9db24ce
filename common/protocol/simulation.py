"""A federation in this process: all parties' shards stacked, so that 20,000 parties are one batched call."""

from __future__ import annotations

from dataclasses import dataclass

from common.data.shard import Shard
from common.encoding.fixed_point import checked_integers, to_reals
from common.errors import InvalidInputError
from common.learning.model import Model
from common.privacy.noise import Noise
from common.protocol.algorithm import Algorithm
from common.protocol.driver import MemoryLog, drive
from common.protocol.facts import FederationFacts
from common.protocol.messages import Query, Reply


@dataclass(frozen=True, slots=True)
class Simulation:
    """K parties whose shards (K, n, d) are stacked; answers are computed in one call to the algorithm's party half."""

    algorithm: Algorithm
    shard: Shard
    facts: FederationFacts
    noise: Noise

    def __post_init__(self) -> None:
        if self.shard.X.shape[:-2] != (len(self.facts.parties),):
            raise InvalidInputError(f"{len(self.facts.parties)} parties need a stack of as many shards")

    async def answer(self, run: str, query: Query) -> Reply:
        """All parties' answers, or their exact sum."""
        answers = self.algorithm.local(query, self.shard, self.facts, self.noise)
        value = checked_integers(answers.sum(axis=0)) if query.reveal == "sum" else answers
        return Reply(to_reals(value), tuple(range(len(self.facts.parties))))


def simulate(algorithm: Algorithm, shard: Shard, facts: FederationFacts, noise: Noise) -> Model:
    """Run an algorithm on stacked shards (K, n, d) to its model; baselines with a curator run on the pooled shard."""
    if algorithm.curator:
        whole = shard.pooled()
        shard, facts = Shard(whole.X[None], whole.y[None]), facts.curated()
    run = drive(algorithm.program(facts), Simulation(algorithm, shard, facts, noise), "simulation", MemoryLog())
    try:
        run.send(None)
    except StopIteration as stop:
        model: Model = stop.value
        return model
    raise AssertionError("a simulation never waits")
