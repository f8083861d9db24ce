"""A program asks, parties answer, a log remembers.

The learner's half of an algorithm is a generator: it yields a `Query` of public values, receives a `Reply`, and returns
a `Model`. It draws no private noise, so all it does is post-processing, and the log of replies is its whole state: a
restart is a replay, and so is an audit. The party's half is a pure function of the shard and of private noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import compress
from types import EllipsisType
from typing import ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from common.arrays import FloatArray, IntArray
from common.data.shard import Shard
from common.errors import InvalidInputError, ReplayMismatchError
from common.learning.losses import Loss
from common.privacy.accountant import Event, Guarantee
from common.privacy.noise import Noise

Reveal = Literal["sum", "each"]


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """What every party is asked in one round: public values only.

    ``round`` counts from 1; ``step`` names the party's step that answers; ``message`` is a float64 array; ``reveal`` is
    what the learner needs to see: the ``sum`` of the answers, or ``each`` of them.
    """

    round: int
    step: str
    message: FloatArray
    reveal: Reveal = "sum"

    @property
    def digest(self) -> str:
        """SHA-256 over the query's canonical bytes, in hexadecimal."""
        message = np.ascontiguousarray(self.message, dtype="<f8")
        head = f"{self.round}\0{self.step}\0{self.reveal}\0{message.shape}\0"
        return hashlib.sha256(head.encode() + message.tobytes()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What the learner gets to see of a round: ``value`` (d,) for a sum, (contributors, d) for each; in reals.

    ``contributors`` are indices into the federation's parties, ascending.
    """

    value: FloatArray
    contributors: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A linear classifier or regressor: weights (d,), or (K, d) where each of K parties has its own."""

    weights: FloatArray


Program = Generator[Query, Reply, Model]


@dataclass(frozen=True, slots=True, eq=False)
class FederationFacts:
    """What all agree on before a run, public: who takes part, how much data and budget each brings, what trust holds.

    ``n_examples``, ``epsilon``, ``delta`` are (K,) for K parties. ``minimum_contributors`` is m_min, the least number
    of parties in a sum; ``colluders`` is t, those whose noise may be subtracted. ``secure_sum`` says that the learner
    sees nothing but sums, so noise may be added in shares. ``index`` says whose facts these are: one party's, or
    (``...``) those of all parties stacked; the ``own_`` properties are () arrays or (K,) arrays accordingly, stacked
    like the shard.
    """

    parties: tuple[str, ...]
    n_examples: IntArray
    epsilon: FloatArray
    delta: FloatArray
    n_features: int
    loss: Loss
    minimum_contributors: int
    colluders: int = 0
    secure_sum: bool = False
    clip_norm: float = 1.0
    index: int | EllipsisType = ...

    def __post_init__(self) -> None:
        if not 1 <= self.minimum_contributors <= len(self.parties):
            raise InvalidInputError(
                f"minimum_contributors must lie between 1 and {len(self.parties)}, not {self.minimum_contributors}"
            )
        if not 0 <= self.colluders < self.minimum_contributors:
            raise InvalidInputError(f"colluders must lie between 0 and minimum_contributors - 1, not {self.colluders}")

    @classmethod
    def uniform(
        cls, n_examples: IntArray, *, epsilon: float, delta: float, n_features: int, loss: Loss, **terms: object
    ) -> FederationFacts:
        """Facts of parties with equal budgets; ``terms`` are the remaining fields (by default all must contribute)."""
        k = len(n_examples)
        given = {"parties": tuple(f"party-{i + 1}" for i in range(k)), "minimum_contributors": k} | terms
        return cls(
            n_examples=np.asarray(n_examples, dtype=np.int64),
            epsilon=np.full(k, epsilon),
            delta=np.full(k, delta),
            n_features=n_features,
            loss=loss,
            **given,  # type: ignore[arg-type]
        )

    def of(self, index: int) -> FederationFacts:
        """The facts as one party of the run sees them."""
        return replace(self, index=index)

    def curated(self) -> FederationFacts:
        """The facts when one trusted curator holds all shards: a federation of one party, with the strictest budget."""
        return replace(
            self,
            parties=("curator",),
            n_examples=self.n_examples.sum(keepdims=True),
            epsilon=self.epsilon.min(keepdims=True),
            delta=self.delta.min(keepdims=True),
            minimum_contributors=1,
            colluders=0,
            secure_sum=False,
            index=...,
        )

    def coalition(self, members: npt.NDArray[np.bool_]) -> FederationFacts:
        """The facts of a run among these parties, (K,), alone; as many may be missing from a sum as before.

        Raises InvalidInputError when the others are too few to bear the missing and the colluders.
        """
        missing = len(self.parties) - self.minimum_contributors
        return replace(
            self,
            parties=tuple(compress(self.parties, members.tolist())),
            n_examples=self.n_examples[members],
            epsilon=self.epsilon[members],
            delta=self.delta[members],
            minimum_contributors=max(1, int(members.sum()) - missing),
            index=...,
        )

    @property
    def own_examples(self) -> IntArray:
        """The number of examples of the party, or of each party of the stack."""
        return np.asarray(self.n_examples[self.index])

    @property
    def own_epsilon(self) -> FloatArray:
        """The epsilon that the party's noise must honour: its own; the strictest where noise is added in shares."""
        return np.asarray(self._strictest(self.epsilon)[self.index])

    @property
    def own_delta(self) -> FloatArray:
        """The delta that the party's noise must honour, as `own_epsilon`."""
        return np.asarray(self._strictest(self.delta)[self.index])

    def examples(self, contributors: tuple[int, ...]) -> int:
        """How many examples these parties hold together."""
        return int(self.n_examples[list(contributors)].sum())

    @property
    def share(self) -> float:
        """The part of a sum's noise variance that each party adds: 1 / (m_min - t) under secure sum, else all of it."""
        return 1.0 / (self.minimum_contributors - self.colluders) if self.secure_sum else 1.0

    @property
    def n_total(self) -> int:
        """The number of examples of all parties."""
        return int(self.n_examples.sum())

    def _strictest(self, budget: FloatArray) -> FloatArray:
        return np.full_like(budget, budget.min()) if self.secure_sum else budget


class Algorithm(Protocol):
    """A paper's algorithm: a frozen dataclass whose fields are the run's parameters, validated when built.

    ``curator`` marks baselines in which one trusted curator holds all shards (a federation of one party).
    """

    curator: ClassVar[bool]

    def rounds(self, facts: FederationFacts) -> int:
        """The number of queries the program asks; a party answers no more."""

    def program(self, facts: FederationFacts) -> Program:
        """The learner's half: yields queries, receives replies, returns the model."""

    def local(self, query: Query, shard: Shard, facts: FederationFacts, noise: Noise) -> IntArray:
        """The party's half: the noisy answer (..., m) in integers of 2^-32, for one shard or a stack."""

    def sensitivity(self, query: Query, facts: FederationFacts) -> FloatArray | float:
        """How far replacing one record moves the answer before its noise, in the norm of its noise; in reals, (...)."""

    def event(self, round: int, facts: FederationFacts) -> Event:
        """What one party's answer of this round costs it; ``facts`` are that party's."""

    def claims(self, facts: FederationFacts) -> tuple[Guarantee, ...]:
        """Guarantees of the paper beyond the composed transcript, as one party's facts state them; often none."""


class Federation(Protocol):
    """Whoever answers queries: simulated shards, real services, or a log."""

    async def answer(self, run: str, query: Query) -> Reply:
        """All parties' answers to a query, or their sum."""


class Log(Protocol):
    """The replies of a run in order."""

    def recall(self, query: Query) -> Reply | None:
        """The reply logged for this query; None for a new round; ReplayMismatchError if another was asked."""

    def append(self, query: Query, reply: Reply) -> None:
        """Remember a reply, durably if the log is durable."""


class MemoryLog:
    """A log in memory: for simulation and tests."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[str, Reply]] = {}

    def recall(self, query: Query) -> Reply | None:
        """The reply logged for this query, or None."""
        return recall(self.entries.get(query.round), query)

    def append(self, query: Query, reply: Reply) -> None:
        """Remember a reply."""
        self.entries[query.round] = (query.digest, reply)


def recall(entry: tuple[str, Reply] | None, query: Query) -> Reply | None:
    """The reply of a log's entry (query digest, reply) if it answers this query; None where there is no entry."""
    if entry is None:
        return None
    digest, reply = entry
    if digest != query.digest:
        raise ReplayMismatchError(f"the log of round {query.round} answers another query than the program asks")
    return reply


async def drive(program: Program, federation: Federation, run: str, log: Log) -> Model:
    """Run a program to its model, asking the federation only what the log does not hold."""
    try:
        query = next(program)
        while True:
            if (reply := log.recall(query)) is None:
                reply = await federation.answer(run, query)
                log.append(query, reply)
            query = program.send(reply)
    except StopIteration as stop:
        model: Model = stop.value
        return model
