"""An algorithm that works for seconds at both ends, to see who waits: a forest at each party, another at the learner.

Services in processes of `tests.support.processes` know it as ``forest``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import structlog
from pydantic import Field
from sklearn.ensemble import RandomForestClassifier

from parley.common.algorithms._parameters import algorithm
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import UNIT
from parley.common.learning.model import Model
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.events import Event, GaussianEvent
from parley.common.privacy.guarantee import Adjacency
from parley.common.privacy.mechanisms.additive import add_gaussian
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.protocol.algorithm import Algorithm, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

PLACE = "tests.support.forest:Forest"
GROWN = "forest grown"
"""What a party's log says of each preparation."""

Trees = Annotated[int, Field(ge=1, description="how many trees a forest has")]


@algorithm
class Forest(Algorithm):
    """How many of a party's examples its forest takes for positive; the learner grows a forest of its own first."""

    n_trees: Trees = 200
    learners_trees: Trees = 200
    adjacency: ClassVar[Adjacency] = "whole_party"

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One number."""
        return (Question("count", (1,), 1),)

    def program(self, facts: FederationFacts) -> Program:
        """Grow a forest on rows made up, then ask."""
        rng = np.random.default_rng(1)
        X = rng.normal(size=(2000, 10))
        grown = _grow(X, X.sum(axis=-1) > 0, self.learners_trees)
        reply = yield Query(1, "count", np.array([float(grown.n_features_in_)]))
        return Model(np.full(facts.n_features, float(reply.value[0])))

    def prepare(self, shard: Shard, facts: OwnFacts) -> IntArray:
        """Grow a forest, and count."""
        count = _grow(shard.X, shard.y > 0, self.n_trees).predict(shard.X).sum()
        structlog.get_logger().info(GROWN)
        return np.array([int(count) * UNIT])

    def local(self, query: Query, prepared: IntArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """The count, with noise."""
        return add_gaussian(prepared, self.sigma(facts), facts.share, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray:
        """All of the examples may be others."""
        return facts.own_examples.astype(np.float64)

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """The deviation of the noise."""
        return np.asarray(facts.own_examples * gaussian_sigmas(facts.own_epsilon, facts.own_delta, 1.0))

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Counts plus Gaussian noise."""
        return Additive()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """A Gaussian release."""
        return GaussianEvent(float(facts.own_examples / self.sigma(facts)))


def _grow(X: FloatArray, positive: np.ndarray, n_trees: int) -> RandomForestClassifier:
    return RandomForestClassifier(n_trees, random_state=0).fit(X, positive)
