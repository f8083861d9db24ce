"""How good a model is on the rows that owners held out of its training: counts and sums with Gaussian noise, once.

The model is the run's public rows, so the parties know it by its digest before they approve. Each answers the tally of
its predictions (`parley.common.learning.tallies`) on held-out rows with Gaussian noise for (epsilon, delta): the
analytic one of Balle & Wang 2018, Theorem 8, in shares under a secure sum. However many bins there are, one example is
in one of them (Dwork, McSherry, Nissim & Smith 2006). `parley.common.learning.evaluation` makes estimates and intervals
of the sums.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from parley.common.algorithms._parameters import algorithm
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.data.study import Rows
from parley.common.encoding.fixed_point import NORMS, Norm
from parley.common.errors import InvalidInputError
from parley.common.learning.model import Model
from parley.common.learning.tallies import Cells, Errors, tally
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.events import Event, GaussianEvent
from parley.common.privacy.mechanisms.additive import add_gaussian, fitting
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.protocol.algorithm import Algorithm, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

_TWO = 2

ScoreBins = Annotated[
    int,
    Field(ge=2, le=1000, multiple_of=2, description="bins of the score of two classes, of equal steps in probability"),
]
LargestError = Annotated[
    float,
    Field(
        gt=0,
        le=2,
        description="a real label's errors count as no larger than this, its bounds being -1 and +1. At 2 none is "
        "larger; at 1 noise is four times smaller beside the squared error, which is right if none is",
    ),
]


@algorithm
class Evaluate(Algorithm):
    """Counts by label and prediction, of two classes by bins of the score too; squared errors of a real label."""

    bins: ScoreBins = 20
    largest_error: LargestError = 2.0
    rows: ClassVar[Rows] = "held_out"
    trains: ClassVar[bool] = False
    norms: ClassVar[frozenset[Norm]] = NORMS
    sparse: ClassVar[bool] = True

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One, about the weights of a model of the study."""
        if facts.public_size != facts.rows_of_weights:
            raise InvalidInputError(
                f"the public rows must be a model's weights, {facts.rows_of_weights}, not {facts.public_size}"
            )
        return (Question("evaluate", facts.public_size, self.tally(facts).width, public=True),)

    def program(self, facts: FederationFacts) -> Program:
        """Ask for the sums, and return them as they are."""
        reply = yield Query(1, "evaluate", facts.public_rows)
        return Model(reply.value, "statistics")

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The tally of the shard under the query's weights, plus this party's share of the noise."""
        total = tally(self.tally(facts), prepared, query.message)
        return add_gaussian(total, self.sigma(facts), facts.share, noise)

    def tally(self, facts: FederationFacts) -> Cells | Errors:
        """What is counted, by the study's label; two classes where there is no study."""
        if facts.study is not None and not facts.study.n_classes:
            return Errors(self.largest_error)
        if facts.loss.outputs > 1:
            return Cells(facts.loss.outputs)
        return Cells(_TWO, self.bins)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """One example's predictions leave the tally, another's enter."""
        return self.tally(facts).sensitivity

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """The deviation that a sum's noise needs, (...)."""
        return gaussian_sigmas(facts.own_epsilon, facts.own_delta, self.tally(facts).sensitivity)

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """The tally plus Gaussian noise."""
        return Additive()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """A Gaussian release."""
        return GaussianEvent(self.tally(facts).sensitivity / float(self.sigma(facts)))

    def check_noise(self, facts: OwnFacts) -> None:
        """Gaussian noise of `sigma`."""
        fitting(self.sigma(facts))

    def deviation(self, facts: FederationFacts, contributors: tuple[int, ...]) -> float:
        """The deviation of the noise on the sum of what these parties answered, in each number."""
        return facts.deviation_of_sum(self.sigma(facts.everyone)[list(contributors)])
