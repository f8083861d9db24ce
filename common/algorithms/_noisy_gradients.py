"""What an owner answers in Wu, Farokhi, Smith & Kaafar: sums of gradients under its own budget, for an agreed horizon.

"The Value of Collaboration in Convex Machine Learning with Differential Privacy", IEEE S&P 2020.

The paper's owner answers the mean of its n_l gradients, and the learner weighs the answers by n_l / n. Here the owner
answers the sum, which is n_l times as much, noise included, and the learner divides the sum of the answers by n: the
same numbers, the same noise on the mean, and nothing but a sum to see.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from parley.common.algorithms._bearable import bearable_drift, rounds_until_settled
from parley.common.algorithms._gradients import ask_gradients
from parley.common.algorithms._parameters import CalibrationChoice, ClipNorm, Regularization, Rounds, algorithm
from parley.common.algorithms._regularization import choose_regularization
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.gradients import gradient_sum
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.events import Event, GaussianEvent, LaplaceEvent
from parley.common.privacy.mechanisms.additive import add_gaussian, add_laplace, fitting
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.protocol.algorithm import Algorithm, Choice
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

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
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:
        """Lambda by the rule of `parley.common.algorithms._regularization`: the noise of T rounds is as that of one.

        The rounds too, by `parley.common.algorithms._bearable`; printed steps, for a rho, lead no further by more
        rounds.
        """
        one, chosen = cls(**dict(given)), {}  # type: ignore[arg-type]
        if "n_rounds" not in given and given.get("rho") is None:
            drift = bearable_drift(facts, one.calibration)
            rounds = max(1, bisect_right(range(1, most_rounds + 1), drift, key=lambda n: one.blur_of(facts, n)))
            rounds = rounds_until_settled(replace(one, n_rounds=rounds).steps(facts), facts, given)
            why = f"as many as time and owners allow, until noise moves weights by {drift:.2g} or lambda holds them"
            why = f"{why}; at least one" if drift else "the noise of more would cost more than they bring"
            one, chosen["n_rounds"] = replace(one, n_rounds=rounds), Choice(rounds, why)
        return chosen | choose_regularization(given, one.noise_of_mean(facts) / math.sqrt(one.n_rounds), _DRIFT)

    @abstractmethod
    def steps(self, facts: FederationFacts) -> FloatArray:
        """The step lengths, (T,)."""

    def blur_of(self, facts: FederationFacts, n_rounds: int) -> float:
        """How far the noise of so many rounds moves a weight along directions without curvature."""
        return (run := replace(self, n_rounds=n_rounds)).noise_of_mean(facts) * float(np.linalg.norm(run.steps(facts)))

    def noise_of_mean(self, facts: FederationFacts) -> float:
        """The deviation of the noise on a coordinate of a round's mean gradient."""
        if self.calibration == "paper":
            return math.sqrt(2 * float((self.scale(facts.everyone) ** 2).sum())) / facts.n_total
        return facts.deviation_of_sum(self.sigma(facts.everyone)) / facts.n_total

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """T, the horizon agreed on: the noise is scaled to it, so no owner answers beyond it."""
        return ask_gradients(facts, self.n_rounds, self.clip_norm)

    def whole_noise(self, round: int) -> bool:
        """The paper's, of which each owner adds all."""
        return self.calibration == "paper"

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

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """The sum plus noise."""
        return Additive()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """One answer, and those of the other shards that may hold the same record."""
        if self.calibration == "paper":
            return LaplaceEvent(self._moved(facts) / float(self.scale(facts)))
        return GaussianEvent(self._moved(facts) / float(self.sigma(facts)))

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
        return np.asarray(self._moved(facts) * self.n_rounds / facts.epsilon[facts.index])

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """The deviation that a sum needs, (...)."""
        return gaussian_sigmas(facts.own_epsilon, facts.own_delta, self._moved(facts) * math.sqrt(self.n_rounds))

    def _moved(self, facts: OwnFacts) -> float:
        """How far kappa copies of a record move what the learner sees, of which one moves it by the sensitivity."""
        independent = self.calibration == "tight" and not facts.secure_sum
        return self.sensitivity(_ANY, facts) * (math.sqrt(self.overlap) if independent else float(self.overlap))


_ANY = Query(1, "gradient", np.zeros(0))
"""The sensitivity is every query's."""
