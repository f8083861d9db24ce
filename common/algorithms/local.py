"""The floor: every party alone with its own data, no sharing and no noise."""

from __future__ import annotations

import numpy as np

from common.algorithms._minimisers import ask_minimiser, solve
from common.algorithms._parameters import Regularization, algorithm
from common.arrays import IntArray
from common.data.shard import Shard
from common.learning.model import Model
from common.privacy.events import Event, NonPrivateEvent
from common.privacy.noise import Noise
from common.protocol.algorithm import Algorithm, Program
from common.protocol.facts import FederationFacts, OwnFacts
from common.protocol.messages import Query, Question


@algorithm
class Local(Algorithm):
    """What each owner learns from its own shard: one model a party. Not private: simulated only."""

    regularization: Regularization = 0.001

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One."""
        return (ask_minimiser(facts, "each")[0],)

    def program(self, facts: FederationFacts) -> Program:
        """Collect each party's own minimiser."""
        reply = yield ask_minimiser(facts, "each")[1]
        return Model(reply.value.reshape(-1, *facts.shape), "members")

    def prepare(self, shard: Shard, facts: OwnFacts) -> IntArray:
        """The minimiser of each party."""
        return solve(facts.loss, shard, self.regularization * np.maximum(shard.n_examples, 1))

    def local(self, query: Query, prepared: IntArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """The minimiser as it is."""
        return prepared

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Infinite: there is no noise to measure it by."""
        return np.inf

    def event(self, round: int, facts: OwnFacts) -> Event:
        """No privacy."""
        return NonPrivateEvent()
