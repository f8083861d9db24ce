"""The average of the parties' own models, with noise for all that a party holds.

Pathak, Rane & Raj, NIPS 2010, as Hamm, Cao & Belkin 2016 compare with it (Section 5), for two classes and more. One
party moves the sum of M minimisers by at most 2 L / lambda (``calibration="paper"``, which takes them for exact). A
minimiser has a norm of at most some r (`parley.common.learning.losses.largest_minimiser`); with weights kept within
that ball, in integers, the sum moves by at most 2 r for every way of training (``"tight"``, Gaussian noise if there is
a delta).

If parties lack classes (`parley.common.privacy.mechanisms.class_means`), the published average is the sum of fits of
the classes that each party has, divided by M; the tight one is the sum of fits of all classes, divided by how many
parties have the class, which they report at no cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from parley.common.algorithms._parameters import CalibrationChoice, Regularization, algorithm
from parley.common.algorithms._regularization import ask_minimiser, choose_for_ball, choose_regularization
from parley.common.algorithms.ensemble import is_pure, unit_of_noise
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import FRACTION_BITS, UNIT, WEIGHT_BITS
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Softmax, bounded_slope, largest_minimiser
from parley.common.learning.model import Model
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.events import FLOATS, Event, GaussianEvent, L2LaplaceEvent
from parley.common.privacy.guarantee import Adjacency
from parley.common.privacy.mechanisms import class_means
from parley.common.privacy.mechanisms.additive import add_gaussian, add_l2_laplace, fitting, l2_laplace_deviation
from parley.common.privacy.mechanisms.output import on_grid, solve, within
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.privacy.shrinkage import shrunk
from parley.common.protocol.algorithm import Algorithm, Choice, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

_DRIFT = 0.15
_EXACT = "each party's model is the exact minimiser on its shard"


@algorithm
class ParameterAverage(Algorithm):
    """The average of local minimisers, private for whole parties."""

    regularization: Regularization = 1e-4
    calibration: CalibrationChoice = "tight"
    adjacency: ClassVar[Adjacency] = "whole_party"
    weighs_classes: ClassVar[bool] = True
    persons: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """Choose lambda by the rules of `parley.common.algorithms._regularization`."""
        one = cls(**dict(given) | {"regularization": 1.0})  # type: ignore[arg-type]
        one.questions(facts)
        noise = facts.deviation_of_sum(one.deviation(facts.everyone)) / len(facts.parties)
        return (choose_regularization if one.calibration == "paper" else choose_for_ball)(given, noise, _DRIFT)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask one question, for the sum. Raises InvalidInputError for fewer than two parties."""
        bounded_slope(facts.loss)
        if len(facts.parties) < 2:  # noqa: PLR2004
            raise InvalidInputError("an average that hides a party needs at least two")
        return (replace(ask_minimiser(facts)[0], answer=self.lanes(facts)),)

    def program(self, facts: FederationFacts) -> Program:
        """Ask for the sum of local minimisers; return their average."""
        reply = yield ask_minimiser(facts)[1]
        weights = (self.unit(facts) * reply.value[: facts.n_weights]).reshape(facts.shape)
        if not self.counts_classes(facts):
            return Model(weights / len(reply.contributors))
        one, drawn = self.class_step(facts) / UNIT, self.deviation(facts.everyone)[list(reply.contributors)]
        counts = shrunk(reply.value[facts.n_weights :] / one, facts.deviation_of_sum(drawn) / self.unit(facts) / one)
        return Model(weights / np.clip(counts, 1.0, len(reply.contributors))[:, None])

    def prepare(self, shard: Shard, facts: OwnFacts) -> IntArray:
        """Solve for the minimiser on the party's shard, within its ball.

        If classes are counted, a 1 for each class that the party has comes after it.
        """
        k, radius = facts.loss.outputs, largest_minimiser(facts.loss, self.regularization)
        strength = self.regularization * np.maximum(shard.n_examples, 1)
        if isinstance(facts.loss, Softmax) and self.calibration == "paper":
            return within(radius, on_grid(class_means.minimise_own(facts.loss, shard, strength)))
        fit = on_grid(solve(facts.loss, shard, strength, most_steps=0))
        if k == 1:
            return within(radius, fit)
        has_class = class_means.classes_had(shard, k)
        radii = class_means.longest_of_own(k, self.regularization)[has_class.sum(axis=-1)]
        return np.concatenate([within(radii[..., None], fit), has_class], axis=-1)

    def local(self, query: Query, prepared: IntArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return what was prepared, plus the party's share of the noise, in `unit`."""
        unit, n = self.unit(facts), facts.n_weights
        exact = prepared[..., :n] // int(unit)
        if self.counts_classes(facts):
            exact = np.concatenate([exact, prepared[..., n:] * self.class_step(facts)], axis=-1)
        if self.is_gaussian(facts):
            return add_gaussian(exact, self.deviation(facts) / unit, facts.share, noise)
        return add_l2_laplace(exact, facts.own_epsilon / self.sum_sensitivity(facts) * unit, 1 / facts.share, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray:
        """Return `sum_sensitivity` for every query, in `unit`."""
        return np.full(facts.own_epsilon.shape, self.sum_sensitivity(facts) / self.unit(facts))

    def counts_classes(self, facts: FederationFacts) -> bool:
        """Whether parties also answer which classes they have."""
        return self.calibration == "tight" and facts.loss.outputs > 1

    def lanes(self, facts: FederationFacts) -> int:
        """Return how many integers an answer has."""
        return facts.n_weights + self.counts_classes(facts) * facts.loss.outputs

    def class_step(self, facts: FederationFacts) -> int:
        """Return the number, in `unit`, that a party answers for a class that it has."""
        return int(class_means.largest_mark(facts.loss.outputs, self.regularization) * UNIT / self.unit(facts))

    def sum_sensitivity(self, facts: FederationFacts) -> float:
        """Return how far a party moves the sum, in the 2-norm; the paper's, with the rounding to the weights' grid."""
        if self.calibration == "tight":
            return 2 * largest_minimiser(facts.loss, self.regularization)
        return 2 * bounded_slope(facts.loss) / self.regularization + float(np.sqrt(facts.n_weights)) * 2.0**-WEIGHT_BITS

    def is_gaussian(self, facts: FederationFacts) -> bool:
        """Whether the noise is Gaussian; otherwise its density is exp(-beta |b|)."""
        return self.calibration == "tight" and not is_pure(facts)

    @property
    def noise_is_gaussian(self) -> bool:
        """Whether it is, unless delta is 0."""
        return self.calibration == "tight"

    def deviation(self, facts: OwnFacts) -> FloatArray:
        """Return the deviation of the noise on a sum in each coordinate, (...)."""
        if self.is_gaussian(facts):
            return gaussian_sigmas(facts.own_epsilon, facts.own_delta, self.sum_sensitivity(facts))
        return l2_laplace_deviation(facts.own_epsilon / self.sum_sensitivity(facts), self.lanes(facts))

    def noise_of_model(self, facts: FederationFacts) -> float:
        """Return the deviation of the noise on a coordinate of the sum."""
        return facts.deviation_of_sum(self.deviation(facts.everyone))

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Return the proof of minimisers plus noise."""
        return Additive()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of one release."""
        if self.is_gaussian(facts):
            return GaussianEvent(self.sum_sensitivity(facts) / float(self.deviation(facts)))
        return L2LaplaceEvent(float(facts.own_epsilon), self.lanes(facts))

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the noise of `deviation` does not fit on the wire."""
        fitting(self.deviation(facts) / self.unit(facts))

    def unit(self, facts: FederationFacts) -> float:
        """Return the power of two that is the unit of answers.

        Noise may be a million times a weight, and weights stay on the grid.
        """
        return unit_of_noise(float(self.deviation(facts.everyone).max()), FRACTION_BITS - WEIGHT_BITS)

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Return that the paper's minimisers are exact, and which noise is drawn in floating point."""
        return (_EXACT,) * (self.calibration == "paper") + (FLOATS,) * (not self.is_gaussian(facts))
