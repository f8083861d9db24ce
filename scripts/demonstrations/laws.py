"""Two other laws of noise: ``python -m scripts.demonstrations.laws``, in half a minute.

*Pathak, Rane & Raj 2010* draw Laplace noise in each coordinate of the average of local minimisers, which hides what is
measured in the 1-norm. A minimiser's move is bounded in the 2-norm, by S, so in the 1-norm by sqrt(d) S; with that the
noise is as private as `local_average`'s of density exp(-beta |b|_2), and its deviation is sqrt(2 d / (d + 1)) times it.

*Rajkumar & Agarwal 2012, footnote 4*, as we read it: a party's share of eta may have a variance by its own data,
sigma^2 n_k / N, instead of sigma^2 / K. The sum has the same law, so the model does. But a party is then hidden from
the others who collude by its own share alone, and one with a hundredth of the data by a tenth of the deviation.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import numpy as np

from parley.common.algorithms._parameters import algorithm
from parley.common.algorithms.average import LocalAverage
from parley.common.algorithms.psgd import Psgd
from parley.common.algorithms.release import Prepared
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.learning.gradients import gradient_sum
from parley.common.privacy.events import Event, LaplaceEvent
from parley.common.privacy.mechanisms.additive import add_gaussian, add_l2_laplace, add_laplace, fitting
from parley.common.privacy.noise import Noise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import OwnFacts
from parley.common.protocol.messages import Query
from parley.learner.experiments.simulation import Metric, SimulationSettings
from scripts.demonstrations.attempts import Finding, accuracies, report

SHARES = (0.01, 0.29, 0.2, 0.25, 0.25)
EVEN = (0.2,) * 5
EPSILON, REPEAT, EQUAL, REGULARIZATION = 0.2, 100, 0.05, 0.1


@algorithm
class LocalAverageByCoordinates(LocalAverage):
    """LA with Pathak's law: Laplace noise in each coordinate."""

    def local(self, query: Query, prepared: Prepared, facts: OwnFacts, noise: Noise) -> IntArray:  # noqa: ARG002
        """The minimiser, plus the party's share of the noise."""
        (minimisers,) = prepared.parts  # of all parties, who do the same
        scale = math.sqrt(facts.n_weights) / self.beta(facts)
        return add_laplace(minimisers, scale, noise, 1 / facts.share)

    def event(self, round: int, facts: OwnFacts) -> Event:  # noqa: ARG002 -- as all algorithms
        """Return the event of a round: the 1-norm of the sensitivity over the scale."""
        return LaplaceEvent(float(facts.own_epsilon))

    def check_noise(self, facts: OwnFacts) -> None:
        """Check that noise of this scale fits the numbers of an answer."""
        fitting(math.sqrt(2 * facts.n_weights) / self.beta(facts))


@algorithm
class PsgdByOwnData(Psgd):
    """PSGD whose eta_k has a variance by the party's own data; for runs in which all contribute."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the sum of gradients + rho + eta_k."""
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
        sigma, beta = self.scales(facts)
        own_sigma = sigma * np.sqrt(facts.own_examples / facts.n_total)
        eta = noise.once("eta", lambda: add_gaussian(np.zeros_like(total), own_sigma, 1.0, noise))
        return add_l2_laplace(total + eta, beta, 1, noise)


def findings() -> Iterator[Finding]:
    """Accuracies on the paper's simulated data, five parties, epsilon = .2, delta = .05, all in shares."""
    for shares, name in ((EVEN, "even shares"), (SHARES, "a party with a hundredth")):
        norm, coordinates = (
            _accuracy(kind(regularization=REGULARIZATION), shares) for kind in (LocalAverage, LocalAverageByCoordinates)
        )
        claim = f"LA, {name}: noise by coordinates is no better than by the 2-norm"
        yield Finding(claim, coordinates.mean < norm.mean + _error(norm, coordinates), _both(norm, coordinates))
    equal, own_accuracy = (_accuracy(kind(regularization=REGULARIZATION), SHARES) for kind in (Psgd, PsgdByOwnData))
    same = abs(equal.mean - own_accuracy.mean) < max(EQUAL, _error(equal, own_accuracy))
    yield Finding("PSGD: η by own data makes as good a model as in equal shares", same, _both(equal, own_accuracy))


def _accuracy(kind: Algorithm, shares: tuple[float, ...]) -> Metric:
    settings = SimulationSettings("simulated", epsilon=EPSILON, delta=0.05, repeat=REPEAT, seed=12, shares=shares)
    return accuracies(lambda _: kind, settings)


def _error(*metrics: Metric) -> float:
    """Return two standard errors of the difference of means."""
    return 2 * math.hypot(*(metric.sd for metric in metrics)) / math.sqrt(REPEAT)


def _both(first: Metric, second: Metric) -> str:
    return f"accuracy {first.mean:.3f} and {second.mean:.3f}, two standard errors {_error(first, second):.3f}"


if __name__ == "__main__":
    sys.exit(report("laws", findings()))
