"""The baselines without privacy that a private model is compared with.

`Pooled` is the ceiling: the minimiser on all data, pooled at a trusted curator, without noise. `Local` is the floor:
every party alone with its own data, without sharing and without noise.
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
    """What the owners would learn by pooling their data without any privacy."""

    regularization: Regularization = 0.001


@algorithm
class Local(Exact):
    """What each owner learns from its own shard, one model each. It is not private, so it is only simulated."""

    regularization: Regularization = 0.001

    @property
    def makes_one_model(self) -> bool:
        """Each party gets a model of its own."""
        return False

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask one question, for each party's minimiser."""
        return (ask_minimiser(facts, "each")[0],)

    def program(self, facts: FederationFacts) -> Program:
        """Collect each party's minimiser."""
        reply = yield ask_minimiser(facts, "each")[1]
        return Model(reply.value.reshape(-1, *facts.shape), "members")
