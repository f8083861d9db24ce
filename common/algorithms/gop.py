"""GOP: Rajkumar & Agarwal 2012's baseline, global objective perturbation by a trusted curator who holds all shards."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from common.accounting import ApproximateEvent, Event, Guarantee
from common.algorithms.parameters import Calibration, Regularization, algorithm
from common.arrays import FloatArray, IntArray
from common.calibration import slack
from common.errors import InvalidInputError
from common.fixed_point import to_integers
from common.mechanisms.objective import EXACT_MINIMISER, objective_perturbation, tilt_sigma
from common.methods import Answers, Tilt
from common.noise import Noise
from common.protocol import FederationFacts, Model, Program, Query
from common.shard import Shard

_ASSUMPTIONS = (EXACT_MINIMISER, "all owners trust the curator with their raw data")


@algorithm
class Gop:
    """The minimiser of the pooled risk, tilted by Gaussian noise (Section 4.1)."""

    regularization: Regularization = 0.01
    calibration: Calibration = "paper"
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
        """The private minimiser on all data: a stack of one curator."""
        if shard.X.shape[:-2] not in ((), (1,)):
            raise InvalidInputError("gop needs one trusted curator who holds all shards")
        epsilon, delta = float(facts.own_epsilon.min()), float(facts.own_delta.min())
        whole = Shard(shard.X.reshape(-1, shard.n_features), shard.y.ravel(), shard.mask.ravel())
        weights = objective_perturbation(
            facts.loss, whole, self.regularization, epsilon, delta, noise, self.calibration
        )
        return to_integers(weights.reshape(*shard.X.shape[:-2], shard.n_features))

    def sensitivity(self, query: Query, facts: FederationFacts) -> FloatArray | float:
        """Infinite: the noise is inside the objective, not on the answer."""
        return np.inf

    def event(self, round: int, facts: FederationFacts) -> Event:
        """The model is all that is seen, so the theorem's own claim is the transcript's."""
        return ApproximateEvent(float(facts.own_epsilon.min()), float(facts.own_delta.min()), _ASSUMPTIONS)

    def method(self, facts: FederationFacts) -> Tilt:
        """The minimiser of the risk with the slack's regularisation, as the forecast sees it."""
        return Tilt(self.regularization, self._slack(facts)[0])

    def answers(self, facts: FederationFacts) -> Answers:
        """The tilt of the sum."""
        sigma = tilt_sigma(
            facts.n_features, self._slack(facts)[1], float(facts.own_delta.min()), facts.loss, self.calibration
        )
        return Answers.drawn_once(float(np.square(sigma)))

    def _slack(self, facts: FederationFacts) -> tuple[float, float]:
        """``(Delta, epsilon~)`` of the mechanism."""
        epsilon = float(facts.own_epsilon.min())
        return slack(epsilon, self.regularization, facts.n_total, facts.loss.smoothness, self.calibration)

    def claims(self, facts: FederationFacts) -> tuple[Guarantee, ...]:
        """Objective perturbation of the pooled data."""
        epsilon, delta = float(facts.own_epsilon.min()), float(facts.own_delta.min())
        return (Guarantee(epsilon, delta, "model", self.calibration, assumptions=_ASSUMPTIONS),)
