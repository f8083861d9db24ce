"""Two algorithms of Wu, Farokhi, Smith & Kaafar 2020: gradient descent and projected subgradient descent by noisy sums.

*Algorithm 1* (`WuStronglyConvex`) is gradient descent on a strongly convex fitness. The printed steps rho / (T^2 k) add
up to rho (1 + ln T) / T^2 and vanish as the horizon grows, so Theorem 2 (`theorem_2`) does not hold as stated: the
model stays where it began. Steps 1 / M, M = c + lambda the smoothness of the fitness, correct it: E f - f* <= (1 -
lambda / M)^T (f(0) - f*) + E|noise|^2 / (2 lambda), where by Theorem 1's noise E|noise|^2 = 8 p Xi^2 T^2 S / n^2, S =
sum 1 / epsilon_l^2; the paper drops the dimension p.

*Algorithm 2* (`WuSubgradient`) is projected subgradient descent with polynomial-decay averaging, for convex losses that
need not be smooth, such as the support vector machine's. Averaging is as in Shamir & Zhang, "Stochastic Gradient
Descent for Non-smooth Optimization", ICML 2013, Section 4, with eta = 1 / sqrt(T). Whether a round's old iterate
theta_k or its new one theta_{k+1} enters the average, the print leaves open: here the new one does, so that each
round's answer counts. Theorem 3 (`theorem_3`) has a constant that nobody can compute, and lacks the dimension p,
as Theorem 2 does; with it, E f - f* = O(D (G / sqrt(T) + Xi sqrt(8 p T S) / n)), D the diameter of the box, which is
least at T ~ G n / (Xi sqrt(8 p S)). Shamir & Zhang's theorem needs of a round's noisy subgradient zeta_k its second
moment, E|zeta_k|^2 <= G^2 + 8 p Xi^2 T^2 S / n^2: `parley.common.forecast.dynamics.Descent.bound` has all its terms.

*Remark 2*, what a central learner could do: one owner (N = 1) holds all n examples, and S = 1 / epsilon^2. N owners who
each add noise of their own have S = N / epsilon^2, and N times as much of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field

from parley.common.algorithms._noisy_gradients import NoisyGradients, bearable_step, mean_gradient, start_of
from parley.common.algorithms._parameters import Step, algorithm
from parley.common.arrays import FloatArray
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Squared
from parley.common.learning.model import Model
from parley.common.protocol.algorithm import Choice, Program
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Question

Rho = Annotated[
    float | None,
    Field(gt=0, le=1e9, allow_inf_nan=False, description="rho of the printed steps rho / (T^2 k); 1 / M if null"),
]


def theorem_2(l1_clip: float, rho: float, convexity: float, n_examples: int, epsilons: FloatArray) -> float:
    """Return Theorem 2's bound on E f - f* as printed, 8 Xi^2 rho S / (L n^2), for owners' epsilons (N,).

    It is false for the paper's own steps: see the module. With one owner it is Remark 2's.
    """
    return 8 * l1_clip**2 * rho / (convexity * n_examples**2) * _inverse_squares(epsilons)


def theorem_3(n_examples: int, epsilons: FloatArray) -> float:
    """Return what Theorem 3 as printed multiplies by its c_2, sqrt(S) / n, for owners' epsilons (N,)."""
    return math.sqrt(_inverse_squares(epsilons)) / n_examples


def _inverse_squares(epsilons: FloatArray) -> float:
    return float((1 / np.square(epsilons)).sum())


@algorithm
class WuStronglyConvex(NoisyGradients):
    """theta <- theta - step_k (sum / n + lambda theta), for T rounds, with the corrected or the printed steps."""

    rho: Rho = None

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask for T sums of gradients. Raises InvalidInputError if there are no steps for the loss."""
        self.steps(facts)
        return NoisyGradients.questions(self, facts)

    def program(self, facts: FederationFacts) -> Program:
        """Run gradient descent on the noisy sums of the parties that contributed."""
        weights = start_of(facts)
        for round, step in enumerate(self.steps(facts).tolist(), start=1):
            reply = yield Query(round, "gradient", weights)
            gradient = mean_gradient(reply, facts) + self.regularization * weights
            weights = weights - step * gradient
        return Model(weights)

    def stated(self, facts: FederationFacts) -> str:
        """Return what Theorem 2 says of a run, in words."""
        most = theorem_2(self.l1_clip, self.rho or 1.0, self.regularization, facts.n_total, facts.epsilon)
        size = f"at most {most:.3g}" if self.rho else f"at most {most:.3g} rho, by steps rho / (T² k)"
        return f"Theorem 2: {size}; false, by those steps the model stays where it began"

    def steps(self, facts: FederationFacts) -> FloatArray:
        """Return the step lengths, (T,).

        Raises InvalidInputError if steps of 1 / M are needed for a loss that is not smooth.
        """
        if self.rho is not None:
            return self.rho / (self.n_rounds**2 * np.arange(1.0, self.n_rounds + 1))
        if not math.isfinite(facts.loss.smoothness):
            raise InvalidInputError("steps of 1 / M need a loss of bounded curvature: for 'hinge' take wu_subgradient")
        return np.full(self.n_rounds, 1 / (facts.loss.smoothness + self.regularization))


WeightBound = Annotated[float, Field(ge=1e-9, le=1000, description="theta_max: the largest absolute value of a weight")]


@algorithm
class WuSubgradient(NoisyGradients):
    """theta <- P(theta - (step / sqrt(k)) (sum / n + lambda theta)), for T rounds; the model is an average.

    P projects onto |theta|_inf <= theta_max.
    """

    step: Step = 1.0
    weight_bound: WeightBound = 10.0

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:
        """Choose the step for classes by `parley.common.algorithms._noisy_gradients`, then the rounds and lambda."""
        if "step" in given or isinstance(facts.loss, Squared):
            return super(WuSubgradient, cls).choose(facts, given, most_rounds)  # noqa: UP008 -- slots make it another
        one = cls(**dict(given))  # type: ignore[arg-type]
        blur = one.blur_of(facts, int(given.get("n_rounds", 1)))
        step = bearable_step(facts, one.calibration, blur, given.get("regularization", 0.0))
        chosen = super(WuSubgradient, cls).choose(facts, dict(given) | {"step": step}, most_rounds)  # noqa: UP008
        reason = "steps that fall by the root of their number lead far only if the first is long; noise limits it"
        return {"step": Choice(step, reason)} | chosen

    def program(self, facts: FederationFacts) -> Program:
        """Run projected subgradient descent on the noisy sums of the parties that contributed."""
        weights = average = start_of(facts, self.weight_bound)
        for round, (step, part) in enumerate(zip(self.steps(facts), self.parts(), strict=True), start=1):
            reply = yield Query(round, "gradient", weights)
            subgradient = mean_gradient(reply, facts) + self.regularization * weights
            weights = np.clip(weights - step * subgradient, -self.weight_bound, self.weight_bound)
            average = (1 - part) * average + part * weights
        return Model(average)

    def stated(self, facts: FederationFacts) -> str:
        """Return what Theorem 3 says of a run, in words."""
        return f"Theorem 3: at most {theorem_3(facts.n_total, facts.epsilon):.3g} c₂, and nobody can compute c₂"

    def steps(self, facts: FederationFacts) -> FloatArray:
        """Return the steps c_1 / sqrt(k), (T,)."""
        return np.asarray(self.step / np.sqrt(np.arange(1.0, self.n_rounds + 1)))

    def parts(self) -> FloatArray:
        """Return the weight of the k-th iterate in the average when it arrives, (T,): 1 for the first."""
        decay = 1 / math.sqrt(self.n_rounds)
        return np.asarray((1 + decay) / (np.arange(1.0, self.n_rounds + 1) + decay))
