"""The non-private ceiling: the minimiser on all data, pooled at a trusted curator, without noise."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from common.algorithms._parameters import Regularization, algorithm
from common.arrays import IntArray
from common.data.shard import Shard
from common.encoding.fixed_point import to_integers, weights_on_grid
from common.forecast.dynamics import Answers, Tilt
from common.learning.erm import check_smooth, minimise
from common.learning.model import Model
from common.privacy.events import Event, NonPrivateEvent
from common.privacy.guarantee import Guarantee
from common.privacy.noise import Noise
from common.protocol.algorithm import Program
from common.protocol.facts import FederationFacts
from common.protocol.messages import Query


@algorithm
class Pooled:
    """What one could learn if the owners pooled their data and nobody cared for privacy."""

    regularization: Regularization = 0.001
    curator: ClassVar[bool] = True
    coupled: ClassVar[bool] = True

    def rounds(self, facts: FederationFacts) -> int:
        """1."""
        return 1

    def program(self, facts: FederationFacts) -> Program:
        """Ask the curator for the model."""
        reply = yield Query(1, "minimise", np.zeros(0))
        return Model(reply.value)

    def local(self, query: Query, shard: Shard, facts: FederationFacts, noise: Noise) -> IntArray:
        """The minimiser, on the weights' grid of 2^-20."""
        strength = self.regularization * np.maximum(shard.n_examples, 1)
        return to_integers(weights_on_grid(minimise(facts.loss, shard, strength)))

    def sensitivity(self, query: Query, facts: FederationFacts) -> float:
        """Infinite: there is no noise to measure it by."""
        return np.inf

    def event(self, round: int, facts: FederationFacts) -> Event:
        """No privacy."""
        return NonPrivateEvent()

    def method(self, facts: FederationFacts) -> Tilt:
        """The minimiser, as the forecast sees it."""
        check_smooth(facts.loss)
        return Tilt(self.regularization)

    def answers(self, facts: FederationFacts) -> Answers:
        """No noise."""
        return Answers.drawn_once(0.0)

    def claims(self, facts: FederationFacts) -> tuple[Guarantee, ...]:
        """None."""
        return ()
