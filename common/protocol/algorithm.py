"""A program asks, parties answer, a log remembers.

The learner's half of an algorithm is a generator: it yields a `Query` of public values, receives a `Reply`, and returns
a `Model`. It draws no private noise, so all it does is post-processing, and the log of replies is its whole state: a
restart is a replay, and so is an audit. The party's half is a pure function of the shard and of private noise.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar, Protocol

from common.arrays import FloatArray, IntArray
from common.data.shard import Shard
from common.learning.model import Model
from common.privacy.events import Event
from common.privacy.guarantee import Guarantee
from common.privacy.noise import Noise
from common.protocol.facts import FederationFacts
from common.protocol.messages import Query, Reply

Program = Generator[Query, Reply, Model]


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
