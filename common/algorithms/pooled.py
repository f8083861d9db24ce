"""The non-private ceiling: the minimiser on all data, pooled at a trusted curator, without noise."""

from __future__ import annotations

import numpy as np

from common.algorithms._minimisers import Curated, solve
from common.algorithms._parameters import Regularization, algorithm
from common.arrays import IntArray
from common.data.shard import Shard
from common.privacy.events import Event, NonPrivateEvent
from common.privacy.noise import Noise
from common.protocol.facts import OwnFacts
from common.protocol.messages import Query


@algorithm
class Pooled(Curated):
    """What one could learn if the owners pooled their data and nobody cared for privacy."""

    regularization: Regularization = 0.001

    def prepare(self, shard: Shard, facts: OwnFacts) -> IntArray:
        """The minimiser."""
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
