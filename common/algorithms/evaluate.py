"""How good a model is on rows that owners held out of its training: counts and sums with Laplace noise, released once.

The model is the run's public rows, so the parties know its digest before they approve. Each party answers the tally of
the model's predictions (`parley.common.learning.evaluation`) on its held-out rows with discrete Laplace noise for its
epsilon, in shares under a secure sum: replacing one example moves a tally by its sensitivity in the 1-norm, and of
counts moves but two (Dwork, McSherry, Nissim & Smith 2006). On a count, Laplace noise is 1.9 times smaller than a
Gaussian's of the same epsilon and a delta of 1e-5, and needs no delta; by the rule of a ledger that adds up Gaussian
parameters it costs more of them.

Of two classes a first round, of a small part of the budget, counts scores alone; the learner then sets edges where the
scores are, and the second round counts by class between them. Its message is the model with the edges below, in a unit
that the model gives, so that those of large weights fit as well.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from parley.common.algorithms._parameters import algorithm
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.class_weights import prior_offset
from parley.common.data.shard import Shard
from parley.common.data.study import Rows
from parley.common.encoding.fixed_point import NORMS, WEIGHT_BITS, Norm
from parley.common.errors import InvalidInputError
from parley.common.learning.evaluation import ClassCells, Errors, ScoreCells, ScoreSteps, Tally, spread_edges, tally
from parley.common.learning.model import Model
from parley.common.learning.noise_law import SummedLaplace
from parley.common.privacy.events import Event, LaplaceEvent, SequentialEvent
from parley.common.privacy.mechanisms.additive import ROUNDED_SHARES, add_laplace, fitting
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.protocol.algorithm import Algorithm, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

_FIRST = 0.1
"""The part of the budget of two classes that finds where scores are."""
_STEPS, _LEAST_STEPS, _MOST_STEPS = 0.6, 8, 256
_EDGES, _LEAST_EDGES, _MOST_EDGES = 0.375, 2, 40

_LEAST_WEIGHT = 2.0 ** -(WEIGHT_BITS + 1)
"""Weights that are no larger count as 0."""

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
    """Counts by label and score or prediction; squared and absolute errors for a real label."""

    largest_error: LargestError = 2.0
    rows: ClassVar[Rows] = "held_out"
    trains: ClassVar[bool] = False
    norms: ClassVar[frozenset[Norm]] = NORMS
    sparse: ClassVar[bool] = True
    persons: ClassVar[bool] = True

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask about the weights of a model; of two classes first for scores, then by class between edges.

        Raises InvalidInputError if the public rows are not such weights.
        """
        if facts.public_size != facts.rows_of_weights:
            raise InvalidInputError(
                f"the public rows must be a model's weights, {facts.rows_of_weights}, not {facts.public_size}"
            )
        if not self.has_scores(facts):
            return (Question("evaluate", facts.public_size, self.fixed_tally(facts).width, public=True),)
        width, edges = facts.n_features, self.n_edges(facts)
        return (
            Question("scores", facts.public_size, self.n_steps(facts), public=True),
            Question("evaluate", (1 + math.ceil(edges / width), width), 2 * (edges + 1), public=True),
        )

    def program(self, facts: FederationFacts) -> Program:
        """Ask for the sums; return them unchanged, those between edges with the edges."""
        weights = facts.public_rows
        if not self.has_scores(facts):
            reply = yield Query(1, "evaluate", weights)
            return Model(reply.value, "statistics")
        reply = yield Query(1, "scores", weights)
        law = self.noise_law(1, facts, reply.contributors)
        edges = spread_edges(
            reply.value,
            ScoreSteps(self.n_steps(facts), largest_score(weights, facts)),
            law.deviation,
            facts.examples(reply.contributors),
            self.n_edges(facts) - 1,
        )
        edges = np.sort(np.append(edges, 0.0))
        below = np.zeros((math.ceil(len(edges) / facts.n_features), facts.n_features))
        below.ravel()[: len(edges)] = edges / edge_unit(weights, facts)
        reply = yield Query(2, "evaluate", np.concatenate([weights, below]))
        return Model(reply.value, "statistics", {"edges": edges})

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the tally of the shard under the query's weights, plus this party's noise or its share of it."""
        weights = query.message[: facts.rows_of_weights[0]]
        total = tally(self.tally(query, facts), prepared, weights)
        return add_laplace(total, self.scale(query.round, facts), noise, 1 / facts.share)

    def has_scores(self, facts: FederationFacts) -> bool:
        """Whether scores of two classes are counted; without a study a loss of one score has two classes."""
        return facts.loss.outputs == 1 and (facts.study is None or bool(facts.study.n_classes))

    def fixed_tally(self, facts: FederationFacts) -> ClassCells | Errors:
        """Return which sums are counted of more than two classes, or a real label."""
        if (k := facts.loss.outputs) == 1:
            return Errors(self.largest_error)
        weights = facts.loss.class_weights
        return ClassCells(k, tuple(prior_offset(weights, k).tolist()) if weights else ())

    def tally(self, query: Query, facts: FederationFacts) -> Tally:
        """Return which sums a query asks for."""
        if not self.has_scores(facts):
            return self.fixed_tally(facts)
        if query.round == 1:
            return ScoreSteps(self.n_steps(facts), largest_score(query.message, facts))
        edges = query.message[1:].ravel()[: self.n_edges(facts)]
        return ScoreCells(edges * edge_unit(query.message[:1], facts))

    def n_steps(self, facts: FederationFacts) -> int:
        """Return in how many steps scores are counted: the more, the more rows there are beside the noise."""
        rows = _STEPS * facts.n_total / self._noise_of_all(1, facts)
        return int(2 ** np.clip(round(math.log2(max(rows, 1.0))), math.log2(_LEAST_STEPS), math.log2(_MOST_STEPS)))

    def n_edges(self, facts: FederationFacts) -> int:
        """Return how many edges there are: one at 0, and more the more rows there are beside the noise."""
        rows = _EDGES * math.sqrt(facts.n_total / (self._noise_of_all(2, facts) * math.sqrt(2)))
        return int(np.clip(round(rows), _LEAST_EDGES, _MOST_EDGES)) + 1

    def _noise_of_all(self, round: int, facts: FederationFacts) -> float:
        """Return the noise on a sum of all parties' answers, as the scale of one with the same deviation."""
        return self.noise_law(round, facts, tuple(range(len(facts.parties)))).deviation / math.sqrt(2)

    def part(self, round: int, facts: FederationFacts) -> float:
        """Return which part of the budget a round costs."""
        if not self.has_scores(facts):
            return 1.0
        return _FIRST if round == 1 else 1.0 - _FIRST

    def moves(self, facts: FederationFacts) -> tuple[float, ...]:
        """Return by how much a replaced example moves numbers of a round's tally."""
        return ScoreCells.moves if self.has_scores(facts) else self.fixed_tally(facts).moves

    def reach(self, facts: FederationFacts) -> float:
        """Return how far a replaced example moves a round's tally, in the 1-norm."""
        return math.fsum(self.moves(facts))

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return the tally's sensitivity: one example's predictions leave it, another's enter."""
        return self.reach(facts)

    def scale(self, round: int, facts: OwnFacts) -> FloatArray:
        """Return the scale of the noise on a sum, (...)."""
        return self.reach(facts) / (self.part(round, facts) * facts.own_epsilon)

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Return the proof of a tally plus Laplace noise."""
        return Additive(LaplaceEvent(self._epsilon(query.round, facts)), (self.moves(facts),))

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of Laplace noise on all numbers that a replaced example moves."""
        in_all, in_shares = self._epsilon(round, facts) / self.reach(facts), facts.share < 1
        return SequentialEvent(tuple(LaplaceEvent(in_all * move, in_shares) for move in self.moves(facts)))

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Return that Laplace noise is not exact in shares, if it comes in shares."""
        return (ROUNDED_SHARES,) if facts.share < 1 else ()

    def _epsilon(self, round: int, facts: OwnFacts) -> float:
        return self.part(round, facts) * float(facts.own_epsilon.min())

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the noise of `scale` does not fit on the wire."""
        fitting(math.sqrt(2) * self.scale(1, facts))

    def noise_law(self, round: int, facts: FederationFacts, contributors: tuple[int, ...]) -> SummedLaplace:
        """Return the law of the noise on each number of the sum of these parties' answers."""
        scales = np.broadcast_to(self.scale(round, facts.everyone), (len(facts.parties),))[list(contributors)]
        if facts.share == 1:
            return SummedLaplace.of(scales.tolist())
        return SummedLaplace.of([float(scales[0])], facts.share * len(contributors))


def largest_score(weights: FloatArray, facts: FederationFacts) -> float:
    """Return how large the score of a row can be under public weights (1, d), at most; 1 if all round to 0.

    Rows are at most 1 in the 2-norm, or in each of their entries. A sum is rounded once, so that learner and parties
    get the same number.
    """
    if facts.norm == "euclidean":
        largest = math.sqrt(math.fsum((weights**2).ravel().tolist()))
    else:
        largest = math.fsum(np.sort(np.abs(weights).ravel())[-facts.most_entries :].tolist())
    return largest if largest > _LEAST_WEIGHT else 1.0


def edge_unit(weights: FloatArray, facts: FederationFacts) -> float:
    """Return in which unit edges are asked about: 1 where scores are at most 64, otherwise a power of two (exact).

    It is so large that a message of weights of the largest norm that parties take is no longer with the edges.
    """
    largest = largest_score(weights, facts)
    return 1.0 if largest <= 64 else float(2.0 ** (math.ceil(math.log2(largest)) + 20))  # noqa: PLR2004
