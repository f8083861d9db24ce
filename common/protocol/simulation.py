"""A federation in this process: the parties' shards are stacked, so 20,000 parties are one or a few batched calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self, cast

import numpy as np

from parley.common.data.shard import Shard
from parley.common.data.sparse import SparseShard
from parley.common.encoding.fixed_point import from_wire, sum_of_answers, to_wire
from parley.common.errors import InvalidInputError
from parley.common.learning.model import Model
from parley.common.privacy.noise import Noise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.driver import NoLog, drive
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Reply

_LANES = 2**21
"""The most integers of a block's answers, or rows that it is asked about: a dozen arrays have this size."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """K parties whose shards (K, n, d) are stacked; a block of them answers in one call to the algorithm's party half.

    All are one block unless their answers are long, or the question has many rows, so that 20,000 answers of thousands
    of integers fit the memory, and as many votes.
    """

    algorithm: Algorithm
    blocks: tuple[_Block, ...]

    @classmethod
    def of(cls, algorithm: Algorithm, shard: Shard, facts: FederationFacts, noise: Noise) -> Self:
        """Prepare the shards of a federation.

        Raises InvalidInputError for another number of shards, shards of other examples than the facts are about, or if
        the algorithm cannot be run on such facts.
        """
        if shard.y.shape[:-1] != (len(facts.parties),):
            raise InvalidInputError(f"{len(facts.parties)} parties need a stack of as many shards")
        if shard.norm != facts.norm:
            raise InvalidInputError(f"the shards' norm is {shard.norm!r}, and the parties agreed on {facts.norm!r}")
        if facts.row_entries is not None and SparseShard.of(shard).most_entries > facts.row_entries:
            raise InvalidInputError(f"a row has more entries than the {facts.row_entries} that the parties agreed on")
        _check_persons(shard, facts)
        algorithm.check_rows(facts)
        lengths = ((question.answer, *question.message[:1]) for question in algorithm.questions(facts))
        longest = max(chain.from_iterable(lengths), default=1)
        blocks: list[_Block] = []
        for index, part in shard.parties(max(_LANES // max(longest, 1), 1)):
            view, drawn = facts.of(index), cast("Noise", _OwnOnce(noise, len(blocks))) if blocks else noise
            blocks.append(_Block(view, algorithm.prepare(part, view), drawn))
        return cls(algorithm, tuple(blocks))

    async def answer(self, run: str, query: Query) -> Reply:
        """Return all parties' answers, or their exact sum."""
        facts = self.blocks[0].facts
        answers = (
            to_wire(self.algorithm.local(query, block.prepared, block.facts, block.noise), facts.wire_shift)
            for block in self.blocks
        )
        if query.reveal == "sum":
            value = sum_of_answers(np.stack([sum_of_answers(part) for part in answers]))
        else:
            value = np.concatenate(list(answers))
        return Reply(from_wire(value, facts.wire_shift), tuple(range(len(facts.parties))))


def _check_persons(shard: Shard, facts: FederationFacts) -> None:
    """Raise InvalidInputError unless the shards' examples are what the facts say: records, or persons of so many rows.

    Noise that hides one row would be added to sums of persons, or persons hidden row by row, were this not so.
    """
    if (shard.begins is not None) != (facts.unit == "person"):
        raise InvalidInputError("the shards' examples are persons and the run's are records, or the other way around")
    if shard.persons is not None and int(shard.persons.sizes.max(initial=0)) > facts.most_rows:
        raise InvalidInputError(f"a person has more rows than the {facts.most_rows} that the parties agreed on")


@dataclass(frozen=True, slots=True)
class _Block:
    """Parties that answer together: their view of the facts, what was prepared of their shards, and their noise."""

    facts: OwnFacts
    prepared: Any
    noise: Noise


class _OwnOnce:
    """A block's noise: the federation's, except one-time noise, which each block has by itself."""

    def __init__(self, noise: Noise, block: int) -> None:
        self._noise, self._block = noise, block

    def __getattr__(self, law: str) -> Any:  # noqa: ANN401 -- any method of `Noise`
        return getattr(self._noise, law)

    def once(self, name: str, draw: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any array
        return self._noise.once(f"{name} of block {self._block}", draw)


def simulate(algorithm: Algorithm, shard: Shard, facts: FederationFacts, noise: Noise) -> Model:
    """Run an algorithm on stacked shards (K, n, d) to its model; a baseline with a curator runs on the pooled shard."""
    if algorithm.curator:
        shard, facts = Shard.stack([shard.pooled()]), facts.curated()
    federation = Simulation.of(algorithm, shard, facts, noise)
    run = drive(algorithm.program(facts), federation, "simulation", NoLog())
    try:
        run.send(None)
    except StopIteration as stop:
        model: Model = stop.value
        return model
    raise AssertionError("a simulation never waits")
