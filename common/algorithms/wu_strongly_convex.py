"""Algorithm 1 of Wu, Farokhi, Smith & Kaafar 2020: gradient descent by noisy gradients on a strongly convex fitness.

The printed steps rho / (T^2 k) add up to rho (1 + ln T) / T^2 and vanish as the horizon grows, so Theorem 2 does not
hold as stated: the model stays where it began. With steps 1 / M, M = c + lambda the smoothness of the fitness, it is
mended: E f - f* <= (1 - lambda / M)^T (f(0) - f*) + E|noise|^2 / (2 lambda), where by Theorem 1's noise
E|noise|^2 = 8 p Xi^2 T^2 S / n^2, S = sum 1 / epsilon_l^2; the paper drops the dimension p.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from parley.common.algorithms._gradients import mean_gradient, start_of
from parley.common.algorithms._noisy_gradients import NoisyGradients
from parley.common.algorithms._parameters import algorithm
from parley.common.arrays import FloatArray
from parley.common.errors import InvalidInputError
from parley.common.learning.model import Model
from parley.common.protocol.algorithm import Program
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Question

Rho = Annotated[
    float | None,
    Field(gt=0, le=1e9, allow_inf_nan=False, description="rho of the printed steps rho / (T^2 k); else 1 / M"),
]


@algorithm
class WuStronglyConvex(NoisyGradients):
    """theta <- theta - step_k (sum / n + lambda theta), for T rounds, with the mended or the printed steps."""

    rho: Rho = None

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """T sums of gradients; raises InvalidInputError where there are no steps for the loss."""
        self.steps(facts)
        return NoisyGradients.questions(self, facts)

    def program(self, facts: FederationFacts) -> Program:
        """Gradient descent on the noisy sums of whoever contributed."""
        weights = start_of(facts)
        for round, step in enumerate(self.steps(facts).tolist(), start=1):
            reply = yield Query(round, "gradient", weights)
            gradient = mean_gradient(reply, facts) + self.regularization * weights
            weights = weights - step * gradient
        return Model(weights)

    def steps(self, facts: FederationFacts) -> FloatArray:
        """The step lengths, (T,); raises InvalidInputError where the mended ones need a smooth loss and it is not."""
        if self.rho is not None:
            return self.rho / (self.n_rounds**2 * np.arange(1.0, self.n_rounds + 1))
        if not math.isfinite(facts.loss.smoothness):
            raise InvalidInputError("steps of 1 / M need a loss of bounded curvature: for 'hinge' take wu_subgradient")
        return np.full(self.n_rounds, 1 / (facts.loss.smoothness + self.regularization))
