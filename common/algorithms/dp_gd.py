"""Full-batch gradient descent with Gaussian noise, private over the whole transcript.

The tight counterpart of Rajkumar & Agarwal 2012: there is no one-time noise, and in each of T rounds the answer is the
exact sum of clipped gradients plus Gaussian noise of deviation 2 C sqrt(T) / mu(epsilon, delta), so that all T answers
together are (epsilon, delta)-private (Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2022, Corollary 3.3). All that the
learner computes from them is post-processing: momentum, projection, averaging. For K classes the gradients are matrices
(K, d), and C bounds their Frobenius norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from parley.common.algorithms._noisy_gradients import (
    ask_gradients,
    check_stable,
    choose_descent,
    mean_gradient,
    start_of,
)
from parley.common.algorithms._parameters import ClipNorm, Regularization, Rounds, Step, algorithm
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import loss_at_zero
from parley.common.learning.model import Model
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.events import Event, GaussianEvent
from parley.common.privacy.mechanisms.additive import add_gaussian, fitting
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.protocol.algorithm import Algorithm, Choice, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

Momentum = Annotated[float, Field(ge=0, lt=1, description="beta: what part of the last move is made again")]
Averaging = Annotated[
    float,
    Field(ge=0, le=1, description="the model is the mean of this part of the iterates, the last; 0: the last alone"),
]

_FLAT = 4.0
"""Log-odds beyond which the logistic loss is nearly flat. Chosen by looking at data: 4 to 7 give the same results."""


@algorithm
class DpGd(Algorithm):
    """w <- P(w + momentum (w - last w) - step (sum / N + lambda w)), for T rounds of noisy sums.

    The intercept loses its momentum once it has gone too far (`_carried`). P projects onto the ball of radius sqrt(2
    loss(0) / lambda), which holds the minimiser. The model is the mean of the last iterates: noise averages out in it
    where the loss has curvature (Polyak & Juditsky 1992). The defaults here are merely stable for every loss; `choose`
    derives better ones from a run's public facts.
    """

    n_rounds: Rounds = 10
    step: Step = 1.0
    momentum: Momentum = 0.0
    averaging: Averaging = 0.5
    regularization: Regularization = 0.01
    clip_norm: ClipNorm = 1.0
    sparse: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    persons: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:
        """Choose parameters by the rule of `parley.common.algorithms._noisy_gradients`."""
        return choose_descent(facts, given, most_rounds)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask for T sums of gradients. Raises InvalidInputError if the step is so long that descent may diverge."""
        check_stable(facts.loss, self.step, self.momentum, self.regularization)
        return ask_gradients(facts, self.n_rounds, self.clip_norm)

    def program(self, facts: FederationFacts) -> Program:
        """Run projected gradient descent on the noisy sums of the parties that contributed."""
        return (yield from self.descend(facts))

    def descend(
        self, facts: FederationFacts, after: int = 0, within: Callable[[FloatArray], FloatArray] = np.asarray
    ) -> Program:
        """Run the descent, after ``after`` rounds of another kind; ``within`` projects weights onto a subspace."""
        radius, first = self.radius(facts), self.n_rounds - self.n_averaged
        weights = last = average = within(start_of(facts, radius))
        for round in range(1, self.n_rounds + 1):
            reply = yield Query(after + round, "gradient", weights)
            gradient = mean_gradient(reply, facts) + self.regularization * weights
            stepped = within(weights + self._carried(weights - last, gradient, weights) - self.step * gradient)
            last, weights = weights, stepped * min(1.0, radius / max(float(np.linalg.norm(stepped)), radius))
            if round > first:
                average = average + (weights - average) / (round - first)
        return Model(average)

    def _carried(self, move: FloatArray, gradient: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the momentum's move: ``momentum`` times the last one, or 0 for an intercept that has gone too far.

        If a class is rare, no curvature stops the intercept soon: it would coast far beyond that class's log-odds. So
        beyond `_FLAT` its momentum ends when the gradient opposes it (O'Donoghue & Candes 2015). Without an intercept
        the rule applies to the last feature, which does no harm.
        """
        carried = self.momentum * move
        weight = weights[..., -1]
        outward, opposed = weight * move[..., -1] > 0, weight * gradient[..., -1] > 0
        carried[..., -1] *= ~(outward & opposed & (np.abs(weight) > _FLAT))
        return carried

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the sum of clipped gradients at the query's weights, plus this party's share of the noise."""
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
        return add_gaussian(total, self.sigma(facts), facts.share, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return 2 C: one clipped gradient leaves the sum, another enters."""
        return 2 * self.clip_norm

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """Return the deviation of the noise on a sum, (...)."""
        return gaussian_sigmas(facts.own_epsilon, facts.own_delta, 2 * self.clip_norm * math.sqrt(self.n_rounds))

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Return the proof of a sum plus Gaussian noise."""
        return Additive()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of one Gaussian release."""
        return GaussianEvent(2 * self.clip_norm / float(self.sigma(facts)))

    @property
    def noise_is_gaussian(self) -> bool:
        """It is."""
        return True

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the noise of `sigma` does not fit on the wire."""
        fitting(self.sigma(facts))

    def radius(self, facts: FederationFacts) -> float:
        """Return the radius of P's ball: within it lies the minimiser, whose fitness is no worse than that of 0."""
        return math.sqrt(2 * loss_at_zero(facts.loss) / self.regularization)

    @property
    def n_averaged(self) -> int:
        """The number of iterates whose mean is the model."""
        return max(1, math.ceil(self.averaging * self.n_rounds))
