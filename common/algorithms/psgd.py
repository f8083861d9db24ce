"""PSGD: stochastic gradient descent on noisy sums with one-time noise.

Rajkumar & Agarwal, "A Differentially Private Stochastic Gradient Descent Algorithm for Multiparty Classification",
AISTATS 2012.

Party k answers sum grad + rho + eta_k: eta_k ~ N(0, sigma*^2 / K) is drawn once in a run and kept (noise that is drawn
again could be averaged away); rho has density exp(-beta |rho|) and is fresh each round. The learner steps w <- w - z_t
(sum / N + (lambda + Delta) w) with sum z_t infinite and sum z_t^2 finite, and so finds the minimiser of the risk tilted
by eta, objective perturbation's (Theorem 4.2).

*Which epsilon.* sigma* takes epsilon~, the part that computeSlack leaves, as the proof of Theorem 4.2 needs. beta is
epsilon / 2L with ``calibration = "paper"``: Procedure 3 and Section 3.2 have the epsilon that was asked for, and no
theorem rests on rho. ``"better_branch"``, which is ours, takes epsilon~ / 2L: more noise, and less to charge for T
rounds. Either way the transcript's guarantee composes the rho that is drawn.

*Why eta is whole without a secure sum.* Shares of sigma*^2 / K hide an owner only in the sum. A learner who sees each
answer can descend on one owner's alone, and the footnote to Theorem 4.1 says what that owner has left (`delta_alone`):
at epsilon = .1 and delta = .05, with N = 1,000 rows in even shares, d = 10 and lambda = .1, a delta of .612 for 2
owners, .994 for 5 and 1.000 for 15. That promises nothing, so each owner draws all of eta then.

Theorem 4.2 covers the final model, as exact minimiser, seen without the rounds. It does not cover the learner, who
sees T noisy sums, nor an early stop; eta does not help there. So there are two guarantees: the paper's claim, and the
transcript's, which composes the rho of T rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from parley.common.algorithms._noisy_gradients import ask_gradients, mean_gradient, start_of
from parley.common.algorithms._parameters import ClipNorm, Regularization, Rounds, algorithm
from parley.common.algorithms._regularization import BETTER_BRANCH, choose_regularization
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import check_single_score
from parley.common.learning.model import Model
from parley.common.privacy import calibration
from parley.common.privacy.calibration import cliff_caution, delta_of_sigma, sigma_star
from parley.common.privacy.events import FLOATS, Event, L2LaplaceEvent
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.mechanisms.additive import add_gaussian, add_l2_laplace, fitting, l2_laplace_deviation
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.protocol.algorithm import Algorithm, Choice, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

_DRIFT = 1.8


@algorithm
class Psgd(Algorithm):
    """Stochastic gradient descent on sums with one-time and per-round noise, as published, its misprints corrected."""

    n_rounds: Rounds = 100
    regularization: Regularization = 0.01
    clip_norm: ClipNorm = 1.0
    calibration: Annotated[
        Literal["paper", "better_branch"],
        Field(
            description="the branch of computeSlack: the paper's, or whichever of its two has less noise; the paper's "
            "rho takes epsilon, the other's what computeSlack leaves of it"
        ),
    ] = "paper"
    sparse: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    persons: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """Choose the better branch, and lambda by the rule of `_regularization`.

        Rho is drawn again in each round, so its effect fades.
        """
        chosen = {} if "calibration" in given else {"calibration": BETTER_BRANCH}
        terms: dict[str, Any] = dict(given) | {name: choice.value for name, choice in chosen.items()}
        one = cls(**terms | {"regularization": 1.0})
        sigma, beta = one.scales(facts)
        fading = float(l2_laplace_deviation(beta, facts.n_features)) * math.sqrt(len(facts.parties) / one.n_rounds)
        tilt = facts.deviation_of_sum(np.full(len(facts.parties), sigma))
        return chosen | choose_regularization(given, math.hypot(tilt, fading) / facts.n_total, _DRIFT)

    def cautions(self, facts: FederationFacts) -> tuple[str, ...]:
        """Warn if the published branch is near its cliff."""
        terms = float(facts.epsilon.min()), self.regularization, facts.n_total, facts.loss.smoothness
        return cliff_caution(*terms, "better_branch") if self.calibration == "paper" else ()

    def whole_noise(self, round: int) -> bool:
        """Whether each party adds all of a round's noise: always all of rho, and of eta without a secure sum."""
        return True

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask for T sums of gradients. Raises InvalidInputError for a loss of more than one score."""
        check_single_score(facts.loss)
        return ask_gradients(facts, self.n_rounds, self.clip_norm)

    def program(self, facts: FederationFacts) -> Program:
        """Run Procedure 1 with steps z_t = 1 / ((lambda + Delta) t + c)."""
        regularization, _ = self.slack(facts)
        weights = start_of(facts)
        for round in range(1, self.n_rounds + 1):
            reply = yield Query(round, "gradient", weights)
            gradient = mean_gradient(reply, facts) + regularization * weights
            weights = weights - gradient / (regularization * round + facts.loss.smoothness)
        return Model(weights)

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Run Procedure 2: return the sum of gradients + rho + eta."""
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
        sigma, beta = self.scales(facts)
        eta = noise.once("eta", lambda: add_gaussian(np.zeros_like(total), sigma, facts.share, noise))
        return add_l2_laplace(total + eta, beta, 1, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return 2 L, because gradients are clipped to L."""
        return 2 * self.clip_norm

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Return the proof of a sum plus rho; eta, which is drawn once, only adds to it."""
        return Additive()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the release of rho, which is what the learner sees in each round."""
        return L2LaplaceEvent(self._epsilon_of_rho(facts), facts.n_features)

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if eta or rho does not fit on the wire."""
        sigma, beta = self.scales(facts)
        fitting(np.maximum(sigma, l2_laplace_deviation(beta, facts.n_features)))

    def claims(self, facts: OwnFacts) -> tuple[Guarantee, ...]:
        """Return Theorem 4.2's guarantee, for the final model alone.

        It is about the clipped loss if gradients are longer: its slope in the score ends at C / |x|, so it is convex
        and no less smooth, as the Huber loss is. The theorem's change of variables needs only a slope without jumps.

        Of persons of several rows it claims nothing: their rows share the clip norm, and so scaled their gradients are
        those of no convex loss. What the transcript's rho hides stands.
        """
        if facts.most_rows > 1:
            return ()
        of = " of the clipped loss" if self.clip_norm < facts.loss.lipschitz else ""
        assumptions = (
            f"the model is the exact minimiser{of}",
            "nobody, not even the learner, sees the rounds",
            "the run does not stop early",
            "every party contributes to every round",
            FLOATS,
        )
        epsilon = float(facts.epsilon.min())
        return (Guarantee(epsilon, self._delta(facts), "model", "paper", assumptions=assumptions),)

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Return that rho is drawn in floating point; eta is drawn in integers."""
        return (FLOATS,)

    def slack(self, facts: FederationFacts) -> tuple[float, float]:
        """Return ``(lambda + Delta, epsilon~)`` by computeSlack, for the strictest party's epsilon."""
        extra, epsilon_tilde = calibration.slack(
            float(facts.epsilon.min()), self.regularization, facts.n_total, facts.loss.smoothness, self.calibration
        )
        return self.regularization + extra, epsilon_tilde

    def scales(self, facts: FederationFacts) -> tuple[float, float]:
        """Return ``(sigma*, beta)`` of eta and of rho."""
        _, epsilon_tilde = self.slack(facts)
        sigma = sigma_star(facts.n_features, epsilon_tilde, self._delta(facts), self.clip_norm)
        return sigma, self._epsilon_of_rho(facts) / (2 * self.clip_norm)

    def delta_alone(self, facts: OwnFacts) -> float:
        """Return the delta of one owner at the run's epsilon, if eta were in shares without a secure sum.

        It is the footnote to Theorem 4.1: eta_k of deviation sigma* / sqrt(K), and computeSlack for the owner's rows.
        """
        rows, parties = int(facts.n_examples[facts.index]), len(facts.parties)
        epsilon = float(facts.epsilon.min())
        left = epsilon - 2 * math.log1p(facts.loss.smoothness / (rows * self.regularization))
        sigma, _ = self.scales(facts)
        return delta_of_sigma(facts.n_features, left, sigma / math.sqrt(parties), self.clip_norm)

    def _epsilon_of_rho(self, facts: FederationFacts) -> float:
        return float(facts.epsilon.min()) if self.calibration == "paper" else self.slack(facts)[1]

    def _delta(self, facts: FederationFacts) -> float:
        return float(facts.delta.min())
