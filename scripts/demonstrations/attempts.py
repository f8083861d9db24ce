"""Drafts of PSGD that its authors try and give up, for simulation alone: each demonstration shows what one lacks.

Rajkumar & Agarwal, "A Differentially Private Stochastic Gradient Descent Algorithm for Multiparty Classification",
AISTATS 2012, Section 3. PSGD's answers carry a one-time noise eta and a noise rho that is fresh in each round. A draft
with rho alone is averaged away, one with eta alone is subtracted away, and budgets that halve from round to round
drown the rounds. The drafts that break have no privacy event, and none is in the registry: no party approves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from parley.common.algorithms._parameters import algorithm
from parley.common.algorithms.psgd import Psgd
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Logistic
from parley.common.learning.metrics import accuracy
from parley.common.privacy.events import Event, L2LaplaceEvent, NonPrivateEvent
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.mechanisms.additive import add_gaussian, add_l2_laplace, fitting, l2_laplace_deviation
from parley.common.privacy.noise import Noise, NoNoise, SeededNoise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query
from parley.common.protocol.simulation import simulate
from parley.learner.experiments.datasets import simulated
from parley.learner.experiments.simulation import Metric, SimulationSettings, deal_repetition

N, D = 25, 10
TRIALS = 200
BROKEN, CHANCE = 0.9, 0.65
"""An adversary who is right so often has broken a promise; of 200 trials fewer than .65 right are within four standard
errors of a coin's .5."""
Combine = Callable[[FloatArray], FloatArray]


@algorithm
class Draft(Psgd):
    """PSGD's rounds under other noise; nothing is claimed."""

    def claims(self, facts: OwnFacts) -> tuple[Guarantee, ...]:  # noqa: ARG002 -- as all algorithms
        """Return no guarantees: the drafts prove none."""
        return ()

    def event(self, round: int, facts: OwnFacts) -> Event:  # noqa: ARG002 -- as all algorithms
        """The promise is broken, so there is no price."""
        return NonPrivateEvent()


@algorithm
class FreshNoise(Draft):
    """Attempt 1: rho drawn again in each round, and no eta."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the sum of gradients + rho."""
        return add_l2_laplace(gradient_of(self, query, prepared, facts), self.scales(facts)[1], 1, noise)


@algorithm
class OneTimeNoise(Draft):
    """Adds eta, drawn once a run, and no rho."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the sum of gradients + eta."""
        total = gradient_of(self, query, prepared, facts)
        sigma, _ = self.scales(facts)
        return total + noise.once("eta", lambda: add_gaussian(np.zeros_like(total), sigma, facts.share, noise))


@algorithm
class RedrawnNoise(Draft):
    """Eta and rho, both drawn again in each round."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the sum of gradients + rho + eta."""
        sigma, beta = self.scales(facts)
        tilted = add_gaussian(gradient_of(self, query, prepared, facts), sigma, facts.share, noise)
        return add_l2_laplace(tilted, beta, 1, noise)


@algorithm
class Composed(Draft):
    """Rho of epsilon_t, whose sum over the rounds is at most epsilon: epsilon / 2^t, or epsilon / T. Private, pure."""

    halving: bool = True

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the sum of gradients + rho."""
        return add_l2_laplace(gradient_of(self, query, prepared, facts), self.beta(query.round, facts), 1, noise)

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of round t, whose noise is for epsilon_t."""
        return L2LaplaceEvent(self.part(round) * float(facts.epsilon.min()), facts.n_features)

    def check_noise(self, facts: OwnFacts) -> None:
        """Check the noise of the last round, which has the most."""
        fitting(l2_laplace_deviation(self.beta(self.n_rounds, facts), facts.n_features))

    def part(self, round: int) -> float:
        """Return the part of the budget that a round gets, epsilon_t / epsilon."""
        return 2.0**-round if self.halving else 1 / self.n_rounds

    def beta(self, round: int, facts: OwnFacts) -> float:
        """The parameter of rho_t, the gradients' sum being moved by 2 L."""
        return self.part(round) * float(facts.epsilon.min()) / (2 * self.clip_norm)


def gradient_of(draft: Psgd, query: Query, shard: Shard, facts: OwnFacts) -> IntArray:
    """The sum of clipped gradients (..., d) at the weights of a query."""
    return gradient_sum(facts.loss, shard, query.message, draft.clip_norm)


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Two shards (n, d) whose first records are the first and the second unit vector, and their party's facts."""

    shards: tuple[Shard, Shard]
    facts: FederationFacts

    @classmethod
    def drawn(cls, epsilon: float, delta: float = 0.05) -> Neighbours:
        """The other records are on the sphere, the same in both."""
        rng = np.random.default_rng(12)
        X = rng.standard_normal((N, D))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        y = np.sign(X @ rng.standard_normal(D))
        y[0] = 1.0
        one, other = (Shard(np.concatenate([record[None], X[1:]]), y) for record in np.eye(D)[:2])
        facts = FederationFacts.uniform(np.array([N]), epsilon=epsilon, delta=delta, n_features=D, loss=Logistic())
        return cls((one, other), facts)

    def guessed_right(self, draft: Psgd, weights: FloatArray, combine: Combine) -> float:
        """How often an adversary tells the shard, who asks about weights (T, d) and knows all records but one.

        ``combine`` makes a statistic (..., d) of the answers (T, ..., d); the guess is the shard whose exact answers
        have the nearer one. Each shard has half of the trials.
        """
        centres = [combine(self._answers(draft, weights, shard, NoNoise())) for shard in self.shards]
        right = []
        for place, shard in enumerate(self.shards):
            stack = Shard.stack([shard] * (TRIALS // 2))  # parties of one shard, whose noise is independent
            seen = combine(self._answers(draft, weights, stack, SeededNoise([12, place])))
            near, far = (np.linalg.norm(seen - centres[which], axis=-1) for which in (place, 1 - place))
            right.append(float((near < far).mean()))
        return sum(right) / 2

    def _answers(self, draft: Psgd, weights: FloatArray, shard: Shard, noise: Noise) -> FloatArray:
        """What is answered in T rounds, (T, ..., d)."""
        facts = self.facts.of(0)
        queries = (Query(round, "gradient", w) for round, w in enumerate(weights, start=1))
        return to_reals(np.stack([draft.local(query, shard, facts, noise) for query in queries]))


def accuracies(algorithm: Callable[[FederationFacts], Algorithm], settings: SimulationSettings) -> Metric:
    """Measure the accuracies of an algorithm that no registry has, on the paper's simulated data.

    Data and noise are drawn again in each repetition.
    """
    data, values = simulated(), []
    for repetition in range(settings.repeat):
        train, test, facts = deal_repetition(settings, data, repetition)
        model = simulate(algorithm(facts), train, facts, SeededNoise([settings.seed, repetition, 3]))
        values.append(accuracy(model, test))
    return Metric(tuple(values))


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim in words, whether it was found so, and the figures that say it."""

    claim: str
    holds: bool
    evidence: str


def report(name: str, findings: Iterable[Finding]) -> int:
    """Print each claim with its verdict; returns 1 if one does not hold, and 0 if all do."""
    holds = True
    for finding in findings:
        print(f"{name}: {finding.claim}: {'holds' if finding.holds else 'DOES NOT HOLD'} ({finding.evidence})")
        holds &= finding.holds
    return int(not holds)
