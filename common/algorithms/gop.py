"""GOP: Rajkumar & Agarwal 2012's baseline, global objective perturbation by a trusted curator who holds all shards."""

from __future__ import annotations

import numpy as np

from common.algorithms._parameters import CalibrationChoice, Regularization, algorithm
from common.algorithms.pooled import Pooled
from common.arrays import IntArray
from common.data.shard import Shard
from common.encoding.fixed_point import to_integers
from common.errors import InvalidInputError
from common.forecast.dynamics import Answers, Tilt
from common.privacy.calibration import slack
from common.privacy.events import ApproximateEvent, Event
from common.privacy.guarantee import Guarantee
from common.privacy.mechanisms.objective import EXACT_MINIMISER, objective_perturbation, tilt_sigma
from common.privacy.noise import Noise
from common.protocol.facts import FederationFacts
from common.protocol.messages import Query

_ASSUMPTIONS = (EXACT_MINIMISER, "all owners trust the curator with their raw data")


@algorithm
class Gop(Pooled):
    """The minimiser of the pooled risk, tilted by Gaussian noise (Section 4.1)."""

    regularization: Regularization = 0.01
    calibration: CalibrationChoice = "paper"

    def local(self, query: Query, shard: Shard, facts: FederationFacts, noise: Noise) -> IntArray:
        """The private minimiser on all data: a stack of one curator."""
        if shard.X.shape[:-2] not in ((), (1,)):
            raise InvalidInputError("gop needs one trusted curator who holds all shards")
        epsilon, delta = _budget(facts)
        whole = Shard(shard.X.reshape(-1, shard.n_features), shard.y.ravel(), shard.mask.ravel())
        weights = objective_perturbation(
            facts.loss, whole, self.regularization, epsilon, delta, noise, self.calibration
        )
        return to_integers(weights.reshape(*shard.X.shape[:-2], shard.n_features))

    def event(self, round: int, facts: FederationFacts) -> Event:
        """The model is all that is seen, so the theorem's own claim is the transcript's."""
        return ApproximateEvent(*_budget(facts), _ASSUMPTIONS)

    def method(self, facts: FederationFacts) -> Tilt:
        """The minimiser of the risk with the slack's regularisation, as the forecast sees it."""
        return Tilt(self.regularization, self._slack(facts)[0])

    def answers(self, facts: FederationFacts) -> Answers:
        """The tilt of the sum."""
        (_, epsilon_tilde), (_, delta) = self._slack(facts), _budget(facts)
        sigma = tilt_sigma(facts.n_features, epsilon_tilde, delta, facts.loss, self.calibration)
        return Answers.drawn_once(float(np.square(sigma)))

    def _slack(self, facts: FederationFacts) -> tuple[float, float]:
        """``(Delta, epsilon~)`` of the mechanism."""
        epsilon, _ = _budget(facts)
        return slack(epsilon, self.regularization, facts.n_total, facts.loss.smoothness, self.calibration)

    def claims(self, facts: FederationFacts) -> tuple[Guarantee, ...]:
        """Objective perturbation of the pooled data."""
        return (Guarantee(*_budget(facts), "model", self.calibration, assumptions=_ASSUMPTIONS),)


def _budget(facts: FederationFacts) -> tuple[float, float]:
    """The strictest ``(epsilon, delta)`` of those whose data the curator holds."""
    return float(facts.own_epsilon.min()), float(facts.own_delta.min())
