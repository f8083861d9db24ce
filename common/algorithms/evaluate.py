"""How good a model is on rows that owners held out of its training: counts and sums with Gaussian noise, released once.

The model is the run's public rows, so the parties know its digest before they approve. Each party answers the tally of
the model's predictions (`parley.common.learning.evaluation`) on its held-out rows with Gaussian noise for (epsilon,
delta): the analytic one of Balle & Wang 2018, Theorem 8, in shares under a secure sum. However many bins there are, one
example is in one of them (Dwork, McSherry, Nissim & Smith 2006). `parley.common.learning.evaluation` computes estimates
and intervals from the sums.
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
from parley.common.learning.evaluation import Cells, Errors, tally
from parley.common.learning.model import Model
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
    """Counts by label and prediction, for two classes also by bins of the score; squared errors for a real label."""

    bins: ScoreBins = 20
    largest_error: LargestError = 2.0
    rows: ClassVar[Rows] = "held_out"
    trains: ClassVar[bool] = False
    norms: ClassVar[frozenset[Norm]] = NORMS
    sparse: ClassVar[bool] = True

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask one question, about the weights of a model.

        Raises InvalidInputError if the public rows are not such weights.
        """
        if facts.public_size != facts.rows_of_weights:
            raise InvalidInputError(
                f"the public rows must be a model's weights, {facts.rows_of_weights}, not {facts.public_size}"
            )
        return (Question("evaluate", facts.public_size, self.tally(facts).width, public=True),)

    def program(self, facts: FederationFacts) -> Program:
        """Ask for the sums and return them unchanged."""
        reply = yield Query(1, "evaluate", facts.public_rows)
        return Model(reply.value, "statistics")

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the tally of the shard under the query's weights, plus this party's share of the noise."""
        total = tally(self.tally(facts), prepared, query.message)
        return add_gaussian(total, self.sigma(facts), facts.share, noise)

    def tally(self, facts: FederationFacts) -> Cells | Errors:
        """Return which sums are counted, by the study's label; for two classes if there is no study."""
        if facts.study is not None and not facts.study.n_classes:
            return Errors(self.largest_error)
        if facts.loss.outputs > 1:
            return Cells(facts.loss.outputs)
        return Cells(_TWO, self.bins)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return the tally's sensitivity: one example's predictions leave it, another's enter."""
        return self.tally(facts).sensitivity

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """Return the deviation of the noise on a sum, (...)."""
        return gaussian_sigmas(facts.own_epsilon, facts.own_delta, self.tally(facts).sensitivity)

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Return the proof of a tally plus Gaussian noise."""
        return Additive()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of one Gaussian release."""
        return GaussianEvent(self.tally(facts).sensitivity / float(self.sigma(facts)))

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the noise of `sigma` does not fit on the wire."""
        fitting(self.sigma(facts))

    def deviation(self, facts: FederationFacts, contributors: tuple[int, ...]) -> float:
        """Return the deviation of the noise on each number of the sum of these parties' answers."""
        return facts.deviation_of_sum(self.sigma(facts.everyone)[list(contributors)])
