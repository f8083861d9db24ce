"""The non-private ceiling: the minimiser on all data, pooled at a trusted curator, without noise.

The floor: every party alone with its own data, no sharing and no noise.
"""

from __future__ import annotations

from parley.common.algorithms._parameters import Regularization, algorithm
from parley.common.algorithms._regularization import Curated, Exact, ask_minimiser
from parley.common.learning.model import Model
from parley.common.protocol.algorithm import Program
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Question


@algorithm
class Pooled(Curated, Exact):
    """What one could learn if the owners pooled their data and nobody cared for privacy."""

    regularization: Regularization = 0.001


@algorithm
class Local(Exact):
    """What each owner learns from its own shard: one model a party. Not private: simulated only."""

    regularization: Regularization = 0.001

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One."""
        return (ask_minimiser(facts, "each")[0],)

    def program(self, facts: FederationFacts) -> Program:
        """Collect each party's own minimiser."""
        reply = yield ask_minimiser(facts, "each")[1]
        return Model(reply.value.reshape(-1, *facts.shape), "members")
