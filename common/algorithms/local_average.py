"""LA: the average of local minimisers with noise for the smallest shard.

Pathak, Rane & Raj, "Multiparty Differential Privacy via Aggregation of Locally Trained
Classifiers", NIPS 2010, as in Rajkumar & Agarwal 2012's comparison.

The noise on the average is scaled to the smallest shard: beta = K n_min lambda epsilon / (2 L). It is drawn in K shares
under secure sum (a Gaussian scale mixture; see `common.privacy.noise`), or whole at each party where the learner sees
each answer. For softmax L is sqrt 2, and the noise has the dimension of all classes' weights.

A solver's answer is not quite the minimiser. The noise covers the largest gradient that it may leave on any shard of a
size (`common.learning.convergence`); a run for which that is too much is refused from public facts, before any data are
touched, so that neither a refusal nor a failure tells of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from common.algorithms._minimisers import ask_minimiser, solve
from common.algorithms._parameters import Regularization, algorithm
from common.algorithms._regularization import choose_regularization
from common.arrays import FloatArray, IntArray
from common.data.shard import Shard
from common.encoding.fixed_point import WEIGHT_BITS
from common.learning.convergence import gradient_left
from common.learning.losses import bounded_slope
from common.learning.model import Model
from common.privacy.events import Event, L2LaplaceEvent
from common.privacy.mechanisms.additive import add_l2_laplace, fitting, l2_laplace_deviation
from common.privacy.noise import Noise
from common.protocol.algorithm import Algorithm, Choice, Program
from common.protocol.facts import FederationFacts, OwnFacts
from common.protocol.messages import Query, Question

_DRIFT = 0.7


@algorithm
class LocalAverage(Algorithm):
    """The average of the parties' regularised minimisers with noise for the smallest shard."""

    regularization: Regularization = 0.01

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """Lambda by the rule of `common.algorithms._regularization`."""
        ask_minimiser(facts)  # refuses losses whose minimiser cannot be hidden
        deviations = l2_laplace_deviation(cls(1.0).beta(facts.everyone), facts.n_weights)
        return choose_regularization(given, facts.deviation_of_sum(deviations) / len(facts.parties), _DRIFT)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One; a minimiser is private where the loss has a bounded slope, and a solver surely finds it."""
        question, _ = ask_minimiser(facts)
        self.moved(facts.everyone)
        return (question,)

    def program(self, facts: FederationFacts) -> Program:
        """Ask for the sum of local minimisers; return their average."""
        reply = yield ask_minimiser(facts)[1]
        return Model((reply.value / len(reply.contributors)).reshape(facts.shape))

    def prepare(self, shard: Shard, facts: OwnFacts) -> IntArray:
        """The minimiser on the party's own shard."""
        return solve(facts.loss, shard, self.regularization * facts.own_examples.astype(np.float64))

    def local(self, query: Query, prepared: IntArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """The minimiser, plus the party's share of the noise."""
        return add_l2_laplace(prepared, self.beta(facts), 1 / facts.share, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray:
        """`moved`, whatever is asked."""
        return self.moved(facts)

    def moved(self, facts: OwnFacts) -> FloatArray:
        """2 L / (n lambda), what the solver leaves, the rounding; under secure sum the largest of all parties; (...).

        Raises InvalidInputError where no solver surely comes near enough.
        """
        n = facts.n_examples if facts.secure_sum else facts.own_examples
        strength = np.asarray(self.regularization * n.astype(np.float64))
        left = gradient_left(facts.loss, n, facts.n_features, strength)
        moved = 2 * (bounded_slope(facts.loss) + left) / strength + math.sqrt(facts.n_weights) * 2.0**-WEIGHT_BITS
        return np.full_like(facts.own_epsilon, moved.max()) if facts.secure_sum else np.asarray(moved)

    def beta(self, facts: OwnFacts) -> FloatArray:
        """The noise's parameter, (...)."""
        return facts.own_epsilon / self.moved(facts)

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Noise of density exp(-beta |b|)."""
        return L2LaplaceEvent(float(facts.own_epsilon), facts.n_weights)

    def check_noise(self, facts: OwnFacts) -> None:
        """Noise of density exp(-beta |b|)."""
        fitting(l2_laplace_deviation(self.beta(facts), facts.n_weights))
