"""Counts, means, variances and histograms of a study's columns, in one sum of integers with Gaussian noise.

A vector of counts and bounded sums moves by at most its sensitivity in the 2-norm when one record is replaced
(`parley.common.learning.column_sums` derives it), so one Gaussian release hides all of it at once: (epsilon,
delta)-private by Balle & Wang 2018 ("Improving the Gaussian Mechanism"), Theorem 8, with noise that is added to
integers exactly. Everything that is computed from it (`parley.common.learning.description`) is post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from parley.common.algorithms._parameters import algorithm
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import NORMS, Norm
from parley.common.errors import InvalidInputError
from parley.common.learning.column_sums import ColumnChoice, ColumnSums
from parley.common.learning.description import Description, read_sums
from parley.common.learning.model import Model
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.events import Event, GaussianEvent
from parley.common.privacy.guarantee import EXAMPLE_NAMES
from parley.common.privacy.mechanisms.additive import add_gaussian, fitting
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.protocol.algorithm import Algorithm, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question
from parley.common.strict import Name

_MOST_BINS = 100

Bins = Annotated[int, Field(ge=0, le=_MOST_BINS)]


@algorithm
class Describe(Algorithm):
    """Sums that describe a study's columns over the rows of all owners; it trains nothing.

    Numbers get moments and a histogram between their bounds; categories and classes get the count of each value. So it
    shows whether the study's bounds and values fit.
    """

    columns: Annotated[
        dict[Name, Bins | None] | None,
        Field(
            min_length=1,
            description="by name: how many bins the histogram has, null for `bins`; all of the study if not given",
        ),
    ] = None
    bins: Annotated[int, Field(ge=0, le=_MOST_BINS, description="equal bins between the bounds; 0: no histogram")] = 10
    moments: Annotated[bool, Field(description="whether numbers get a mean and a variance")] = True
    trains: ClassVar[bool] = False
    norms: ClassVar[frozenset[Norm]] = NORMS
    persons: ClassVar[bool] = True

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask one question, for the sums.

        Raises InvalidInputError if `ColumnSums.of` refuses the columns, or a party has no delta.
        """
        if not facts.delta.all():
            raise InvalidInputError(
                "describe has Gaussian noise alone, which needs a delta above 0, such as 1e-6: without one there is no "
                "description"
            )
        return (Question("sums", (0,), self.sums(facts).n_lanes),)

    def program(self, facts: FederationFacts) -> Program:
        """Ask for the noisy sums and return them unchanged."""
        reply = yield Query(1, "sums", np.zeros(0))
        return Model(reply.value, "statistics")

    def prepare(self, shard: Shard, facts: OwnFacts) -> IntArray:
        """Compute the exact sums, in integers."""
        return self.sums(facts).add_up(shard)

    def local(self, query: Query, prepared: IntArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the sums plus this party's share of the noise."""
        return add_gaussian(prepared, self.sigma(facts), facts.share, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return `ColumnSums.sensitivity`."""
        return self.sums(facts).sensitivity

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """Return the deviation of the noise on each sum, (...)."""
        return gaussian_sigmas(facts.own_epsilon, facts.own_delta, self.sums(facts).sensitivity)

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Return the proof of a sum plus Gaussian noise."""
        return Additive()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of one Gaussian release."""
        return GaussianEvent(self.sums(facts).sensitivity / float(self.sigma(facts)))

    @property
    def noise_is_gaussian(self) -> bool:
        """It is."""
        return True

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the noise of `sigma` does not fit on the wire."""
        fitting(self.sigma(facts))

    def sums(self, facts: FederationFacts) -> ColumnSums:
        """Return the layout of the sums. Raises InvalidInputError if `ColumnSums.of` refuses the columns."""
        return ColumnSums.of(facts.columns, ColumnChoice(self.columns or {}, self.bins, self.moments))

    def deviation(self, facts: FederationFacts, contributors: Sequence[int]) -> float:
        """Return the deviation of the noise on each sum over the parties that contributed."""
        return facts.deviation_of_sum(self.sigma(facts.everyone)[list(contributors)])

    def read(self, model: Model, facts: FederationFacts, contributors: tuple[int, ...]) -> Description:
        """Compute the description of the contributors' columns from a run's noisy sums."""
        deviation = self.deviation(facts, contributors)
        n_examples, examples = facts.examples(contributors), EXAMPLE_NAMES[facts.unit]
        return read_sums(self.sums(facts), model.weights, deviation, n_examples, examples)
