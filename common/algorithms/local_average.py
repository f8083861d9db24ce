"""LA: the average of local minimisers with noise for the smallest shard.

Pathak, Rane & Raj, "Multiparty Differential Privacy via Aggregation of Locally Trained
Classifiers", NIPS 2010, as in Rajkumar & Agarwal 2012's comparison.

The noise on the average is scaled to the smallest shard: beta = K n_min lambda epsilon / (2 L). It is drawn in K shares
under secure sum (a Gaussian scale mixture; see `common.privacy.noise`), or whole at each party where the learner sees
each answer.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from common.algorithms._parameters import Regularization, algorithm
from common.arrays import FloatArray, IntArray
from common.data.shard import Shard
from common.encoding.fixed_point import WEIGHT_BITS, to_integers, weights_on_grid
from common.forecast.dynamics import Answers, Average
from common.learning.erm import check_smooth, minimise
from common.learning.losses import bounded_slope
from common.learning.model import Model
from common.privacy.events import Event, L2LaplaceEvent
from common.privacy.guarantee import Guarantee
from common.privacy.mechanisms.additive import add_l2_laplace
from common.privacy.noise import Noise
from common.protocol.algorithm import Program
from common.protocol.facts import FederationFacts
from common.protocol.messages import Query

_ASK = Query(1, "minimise", np.zeros(0))
_TOLERANCE = 1e-9


@algorithm
class LocalAverage:
    """The average of the parties' regularised minimisers with noise for the smallest shard."""

    regularization: Regularization = 0.01
    curator: ClassVar[bool] = False
    coupled: ClassVar[bool] = False

    def rounds(self, facts: FederationFacts) -> int:
        """1."""
        return 1

    def program(self, facts: FederationFacts) -> Program:
        """Ask for the sum of local minimisers; return their average."""
        reply = yield _ASK
        return Model(reply.value / len(reply.contributors))

    def local(self, query: Query, shard: Shard, facts: FederationFacts, noise: Noise) -> IntArray:
        """The minimiser on the party's own shard, plus its share of the noise."""
        strength = self.regularization * facts.own_examples.astype(np.float64)
        weights = weights_on_grid(minimise(facts.loss, shard, strength, tolerance=_TOLERANCE))
        return add_l2_laplace(to_integers(weights), self._beta(facts), 1 / facts.share, noise)

    def sensitivity(self, query: Query, facts: FederationFacts) -> FloatArray:
        """2 L / (n lambda), the solver's tolerance, the rounding; under secure sum n is the smallest shard's."""
        rounding = math.sqrt(facts.n_features) * 2.0**-WEIGHT_BITS
        n = facts.n_examples.min() if facts.secure_sum else facts.own_examples
        return np.asarray((2 * bounded_slope(facts.loss) + 2 * _TOLERANCE) / (n * self.regularization) + rounding)

    def method(self, facts: FederationFacts) -> Average:
        """An average of local models, as the forecast sees it."""
        check_smooth(facts.loss)
        return Average(self.regularization)

    def answers(self, facts: FederationFacts) -> Answers:
        """The noise in each party's weights."""
        return Answers.l2_laplace(self._beta(facts), facts.n_features, 1 / facts.share)

    def _beta(self, facts: FederationFacts) -> FloatArray:
        """The noise's parameter, (...)."""
        return facts.own_epsilon / self.sensitivity(_ASK, facts)

    def event(self, round: int, facts: FederationFacts) -> Event:
        """Noise of density exp(-beta |b|)."""
        return L2LaplaceEvent(float(facts.own_epsilon), facts.n_features)

    def claims(self, facts: FederationFacts) -> tuple[Guarantee, ...]:
        """None beyond the transcript."""
        return ()
