"""What an owner answers in Wu, Farokhi, Smith & Kaafar: sums of gradients under its own budget, for an agreed horizon.

"The Value of Collaboration in Convex Machine Learning with Differential Privacy", IEEE S&P 2020.

The paper's owner answers the mean of its n_l gradients, and the learner weighs the answers by n_l / n. Here the owner
answers the sum, which is n_l times as much, noise included, and the learner divides the sum of the answers by n: the
same numbers, the same noise on the mean, and nothing but a sum to see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from common.algorithms._gradients import ask_gradients
from common.algorithms._parameters import CalibrationChoice, ClipNorm, Regularization, Rounds, algorithm
from common.algorithms._regularization import choose_regularization
from common.arrays import FloatArray, IntArray
from common.data.shard import Shard
from common.errors import InvalidInputError
from common.learning.gradients import gradient_sum
from common.privacy.calibration import gaussian_sigmas
from common.privacy.events import Event, GaussianEvent, LaplaceEvent
from common.privacy.mechanisms.additive import add_gaussian, add_laplace, fitting
from common.privacy.noise import Noise
from common.protocol.algorithm import Algorithm, Choice
from common.protocol.facts import FederationFacts, OwnFacts
from common.protocol.messages import Query, Question

L1Clip = Annotated[float, Field(ge=1e-9, le=1000, description="Xi: the largest 1-norm of one example's gradient")]
Overlap = Annotated[int, Field(ge=1, le=1_000_000, description="kappa: in how many shards one person's record may be")]

_DRIFT = 0.6


@algorithm
class NoisyGradients(Algorithm):
    """The owner's half of both algorithms (Theorem 1), and what the learner's halves share.

    ``calibration="paper"``: each coordinate of each answer carries Laplace noise of scale 2 Xi T kappa / epsilon_l,
    whole at each owner, whose epsilon_l it honours whatever the others do, under a secure sum too. Pure epsilon_l over
    T rounds. ``"tight"``: Gaussian noise for (epsilon_l, delta_l) over the whole transcript; under a secure sum in
    shares, for the strictest budget.

    A record in kappa shards is seen kappa times. Laplace noises that hide it then compose by adding epsilons, Gaussian
    ones by adding squares; in one sum its kappa copies add up. All are charged to each of its owners, as if the others'
    budgets were its own; an owner with a larger one protects that record less.
    """

    n_rounds: Rounds = 10
    regularization: Regularization = 0.01
    clip_norm: ClipNorm = 1.0
    l1_clip: L1Clip = 1.0
    overlap: Overlap = 1
    calibration: CalibrationChoice = "paper"
    sparse: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """Lambda by the rule of `common.algorithms._regularization`: the noise of T rounds is as that of one."""
        one, everyone = cls(**dict(given)), facts.everyone  # type: ignore[arg-type]
        if one.calibration == "paper":
            noise = math.sqrt(2 * float((one.scale(everyone) ** 2).sum()))
        else:
            noise = facts.deviation_of_sum(one.sigma(everyone))
        return choose_regularization(given, noise / facts.n_total / math.sqrt(one.n_rounds), _DRIFT)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """T, the horizon agreed on: the noise is scaled to it, so no owner answers beyond it."""
        return ask_gradients(facts, self.n_rounds, self.clip_norm)

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The noisy sum of gradients, each of 2-norm up to the clip norm and 1-norm up to Xi.

        Raises InvalidInputError for a round beyond the horizon.
        """
        if not 1 <= query.round <= self.n_rounds:
            raise InvalidInputError(f"round {query.round} lies beyond the agreed horizon of {self.n_rounds} rounds")
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm, self.l1_clip)
        if self.calibration == "paper":
            return add_laplace(total, self.scale(facts), noise)
        return add_gaussian(total, self.sigma(facts), facts.share, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """2 Xi in the 1-norm, or twice the clip norm in the 2-norm: one gradient leaves the sum, another enters."""
        return 2 * self.l1_clip if self.calibration == "paper" else 2 * min(self.clip_norm, self.l1_clip)

    def event(self, round: int, facts: OwnFacts) -> Event:
        """One answer, and those of the other shards that may hold the same record."""
        moved = self._copies(facts) * self.sensitivity(_ANY, facts)
        if self.calibration == "paper":
            return LaplaceEvent(moved / float(self.scale(facts)))
        return GaussianEvent(moved / float(self.sigma(facts)))

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """With overlap, the promise to a record depends on the other shards that hold it."""
        if self.overlap == 1:
            return ()
        return (
            f"no person's record is in more than {self.overlap} shards",
            "the other owners of a shared record protect it with budgets no larger than this owner's",
        )

    def check_noise(self, facts: OwnFacts) -> None:
        """Laplace noise of `scale`, or Gaussian noise of `sigma`."""
        fitting(self.scale(facts) if self.calibration == "paper" else self.sigma(facts))

    def scale(self, facts: OwnFacts) -> FloatArray:
        """The Laplace scale: Theorem 1's b on a sum, (...)."""
        moved = self._copies(facts) * self.sensitivity(_ANY, facts)
        return np.asarray(moved * self.n_rounds / facts.epsilon[facts.index])

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """The deviation that a sum needs, (...)."""
        moved = self._copies(facts) * self.sensitivity(_ANY, facts)
        return gaussian_sigmas(facts.own_epsilon, facts.own_delta, moved * math.sqrt(self.n_rounds))

    def _copies(self, facts: FederationFacts) -> float:
        """How much more kappa copies of a record move what the learner sees than one does."""
        independent = self.calibration == "tight" and not facts.secure_sum
        return math.sqrt(self.overlap) if independent else float(self.overlap)


_ANY = Query(1, "gradient", np.zeros(0))
"""The sensitivity is every query's."""
