"""PSGD: stochastic gradient descent on noisy sums with one-time noise.

Rajkumar & Agarwal, "A Differentially Private Stochastic Gradient Descent Algorithm for Multiparty Classification",
AISTATS 2012.

Party k answers sum grad + rho + eta_k: eta_k ~ N(0, sigma*^2 / K) is drawn once a run and kept (a redrawn one could be
averaged away); rho has density exp(-epsilon~ |rho| / 2L) and is fresh each round. The learner steps w <- w - z_t (sum /
N + (lambda + Delta) w) with sum z_t infinite and sum z_t^2 finite, and so finds the minimiser of the risk tilted by
eta, objective perturbation's (Theorem 4.2).

That theorem covers the final model, as exact minimiser, seen without the rounds. It does not cover the learner, who
sees T noisy sums, nor an early stop; eta helps not there. So there are two guarantees: the paper's claim, and the
transcript's, which composes the rho of T rounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from common.algorithms._parameters import Regularization, Rounds, algorithm
from common.arrays import IntArray
from common.data.shard import Shard
from common.forecast.dynamics import Answers, Descent
from common.learning.gradients import gradient_sum
from common.learning.model import Model
from common.privacy.calibration import sigma_star, slack
from common.privacy.events import Event, L2LaplaceEvent
from common.privacy.guarantee import Guarantee
from common.privacy.mechanisms.additive import add_gaussian, add_l2_laplace
from common.privacy.mechanisms.objective import EXACT_MINIMISER
from common.privacy.noise import Noise
from common.protocol.algorithm import Program
from common.protocol.facts import FederationFacts
from common.protocol.messages import Query


@algorithm
class Psgd:
    """Stochastic gradient descent on sums with one-time and per-round noise, as published (misprints mended)."""

    n_rounds: Rounds = 100
    regularization: Regularization = 0.01
    curator: ClassVar[bool] = False
    coupled: ClassVar[bool] = True

    def rounds(self, facts: FederationFacts) -> int:
        """T."""
        return self.n_rounds

    def program(self, facts: FederationFacts) -> Program:
        """Procedure 1 with steps z_t = 1 / ((lambda + Delta) t + c)."""
        regularization, _ = self._slack(facts)
        weights = np.zeros(facts.n_features)
        for round in range(1, self.n_rounds + 1):
            reply = yield Query(round, "gradient", weights)
            gradient = reply.value / facts.examples(reply.contributors) + regularization * weights
            weights = weights - gradient / (regularization * round + facts.loss.smoothness)
        return Model(weights)

    def local(self, query: Query, shard: Shard, facts: FederationFacts, noise: Noise) -> IntArray:
        """Procedure 2: the sum of gradients + rho + eta."""
        total = gradient_sum(facts.loss, shard, query.message, facts.clip_norm)
        sigma, beta = self._scales(facts)
        eta = noise.once("eta", lambda: add_gaussian(np.zeros_like(total), sigma, facts.share, noise))
        return add_l2_laplace(total + eta, beta, 1, noise)

    def sensitivity(self, query: Query, facts: FederationFacts) -> float:
        """2 L, the gradients being clipped to L."""
        return 2 * facts.clip_norm

    def event(self, round: int, facts: FederationFacts) -> Event:
        """The release of rho: what the learner sees each round."""
        return L2LaplaceEvent(self._slack(facts)[1], facts.n_features)

    def method(self, facts: FederationFacts) -> Descent:
        """Descent on the tilted risk, as the forecast sees it."""
        convexity, _ = self._slack(facts)
        steps = tuple(1 / (convexity * round + facts.loss.smoothness) for round in range(1, self.n_rounds + 1))
        return Descent(steps, self.regularization, facts.clip_norm, tilt=convexity - self.regularization)

    def answers(self, facts: FederationFacts) -> Answers:
        """Each party's rho, fresh and whole, and its share of eta, drawn once."""
        sigma, beta = self._scales(facts)
        k = len(facts.parties)
        rho = Answers.l2_laplace(np.full(k, beta), facts.n_features)
        return replace(rho, once=np.full(k, np.square(sigma) * facts.share))

    def claims(self, facts: FederationFacts) -> tuple[Guarantee, ...]:
        """Theorem 4.2: the final model alone."""
        assumptions = (
            EXACT_MINIMISER,
            "nobody, not even the learner, sees the rounds",
            "the run does not stop early",
            "every party contributes to every round",
        )
        epsilon = float(facts.epsilon.min())
        return (Guarantee(epsilon, self._delta(facts), "model", "paper", assumptions=assumptions),)

    def _slack(self, facts: FederationFacts) -> tuple[float, float]:
        """``(lambda + Delta, epsilon~)`` by computeSlack, for the strictest party's epsilon."""
        extra, epsilon_tilde = slack(
            float(facts.epsilon.min()), self.regularization, facts.n_total, facts.loss.smoothness
        )
        return self.regularization + extra, epsilon_tilde

    def _scales(self, facts: FederationFacts) -> tuple[float, float]:
        """``(sigma*, beta)`` of eta and of rho."""
        _, epsilon_tilde = self._slack(facts)
        sigma = sigma_star(facts.n_features, epsilon_tilde, self._delta(facts), facts.clip_norm)
        return sigma, epsilon_tilde / (2 * facts.clip_norm)

    def _delta(self, facts: FederationFacts) -> float:
        return float(facts.delta.min())
