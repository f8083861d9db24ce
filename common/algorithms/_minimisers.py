"""What the algorithms that solve for a minimiser share: how it is asked for, and how it becomes integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from parley.common.algorithms._parameters import rounded
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import NORMS, Norm
from parley.common.learning.erm import check_smooth
from parley.common.learning.model import Model
from parley.common.privacy.events import Event, NonPrivateEvent
from parley.common.privacy.mechanisms.output import on_grid, solve
from parley.common.privacy.noise import Noise
from parley.common.protocol.algorithm import Algorithm, Choice, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question, Reveal


def ask_minimiser(facts: FederationFacts, reveal: Reveal = "sum") -> tuple[Question, Query]:
    """The one question of an algorithm that asks for minimisers, and the query that asks it.

    Raises InvalidInputError for a loss whose curvature has no bound.
    """
    check_smooth(facts.loss)
    query = Query(1, "minimise", np.zeros(0), reveal)
    return Question(query.step, query.message.shape, facts.n_weights, reveal), query


class Curated(Algorithm):
    """A baseline in which a trusted curator, who holds all shards, answers with the model; a subclass says which."""

    __slots__ = ()

    curator: ClassVar[bool] = True

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One."""
        return (ask_minimiser(facts)[0],)

    def program(self, facts: FederationFacts) -> Program:
        """Ask the curator for the model."""
        reply = yield ask_minimiser(facts)[1]
        return Model(reply.value.reshape(facts.shape))


class Exact(Algorithm):
    """A baseline without privacy: minimisers as they are. No private algorithm may build on it."""

    __slots__ = ()

    regularization: float
    norms: ClassVar[frozenset[Norm]] = NORMS
    sparse: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """Lambda of a tenth of an example's share: little more than makes the minimiser one."""
        if "regularization" in given:
            return {}
        return {
            "regularization": Choice(rounded(0.1 / facts.n_examples.mean()), "0.1 / n: no noise has to be held down")
        }

    def prepare(self, shard: Shard, facts: OwnFacts) -> IntArray:
        """The minimiser, of each party of a stack."""
        strength = self.regularization * np.maximum(shard.n_examples, 1)
        return on_grid(solve(facts.loss, shard, strength, most_steps=0))

    def local(self, query: Query, prepared: IntArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """The minimiser as it is."""
        return prepared

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Infinite: there is no noise to measure it by."""
        return np.inf

    def proof(self, query: Query, facts: OwnFacts) -> None:
        """Nothing is claimed."""

    def event(self, round: int, facts: OwnFacts) -> Event:
        """No privacy."""
        return NonPrivateEvent()
