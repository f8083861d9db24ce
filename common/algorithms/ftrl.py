"""Following the regularised leader on the simplex: Jain & Thakurta, ICML 2014, with a party's rows as its cost vectors.

Columns are actions, except for a study's intercept, and a party's rows, in their order, are the costs of its rounds, in
[-1, 1]. In round t each party draws an action by the sum of its rows before the t-th, so that it does not look at its
row t earlier. If examples are persons, a round is a person's, in the order of their first rows, and its costs are the
mean of the person's rows by their weights, so in [-1, 1] as well: all rows of a person, replaced in the person's place,
change the costs of one round, as those of a record do. The first answer pays for all rounds
(`parley.common.privacy.mechanisms.leader` has the proofs). Labels are not used. A party remembers no action from one
round to the next, so each is drawn again: `parley.common.online.Leader` may draw rarely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from parley.common.algorithms._parameters import CalibrationChoice, Rounds, algorithm
from parley.common.algorithms.release import own_indices
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.data.weighing import WEIGHT_OF_ROW_BITS
from parley.common.encoding.fixed_point import FRACTION_BITS, NORMS, Norm
from parley.common.errors import InvalidInputError
from parley.common.learning.model import Model
from parley.common.privacy.events import Event, NoEvent
from parley.common.privacy.guarantee import EXAMPLE_NAMES
from parley.common.privacy.mechanisms.leader import COST_UNIT, LeaderTerms
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Draws, Proof
from parley.common.protocol.algorithm import Algorithm, Choice, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question, Reply

_BITS = 10
"""How many bits the wire may cut off of an integer, for the largest shards."""
_ABSENT = -1.0


@algorithm
class PrivateLeader(Algorithm):
    """Each party's actions, one in each round, drawn by the costs of its rounds before.

    It trains nothing: the result is the actions (K, T), counted from 0, and -1 if a party did not answer. A party with
    fewer examples than rounds goes on by the sum of all its rows.
    """

    n_rounds: Rounds = 10
    calibration: CalibrationChoice = "tight"
    norms: ClassVar[frozenset[Norm]] = NORMS
    trains: ClassVar[bool] = False
    persons: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:
        """Choose a round for each example of the smallest party, up to ``most_rounds``."""
        if "n_rounds" in given:
            return {}
        least = int(facts.n_examples.min())
        of_smallest = f"as many as the smallest party has {EXAMPLE_NAMES[facts.unit]}"
        reason = of_smallest if least <= most_rounds else "as many as time and owners allow"
        return {"n_rounds": Choice(max(1, min(least, most_rounds)), reason)}

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask for an action in each round. Raises InvalidInputError if there is only one action."""
        if actions_among(facts) < 2:  # noqa: PLR2004 -- of one there is nothing to choose
            raise InvalidInputError("a leader chooses among 2 columns at least, and the study has 1")
        return (Question("act", (0,), 1, "each"),) * self.n_rounds

    def program(self, facts: FederationFacts) -> Program:
        """Ask for the actions; the queries carry nothing."""
        actions = np.full((len(facts.parties), self.n_rounds), _ABSENT)
        for round in range(1, self.n_rounds + 1):
            reply = yield Query(round, "act", np.zeros(0), "each")
            actions[list(reply.contributors), round - 1] = _read(reply, actions_among(facts))
        return Model(actions, "statistics")

    def prepare(self, shard: Shard, facts: OwnFacts) -> IntArray:
        """Compute the sums (..., T, p) of the costs before each round, in units of 1 / `COST_UNIT`: exact integers."""
        costs = _costs(shard, self.n_rounds - 1, actions_among(facts))
        totals = np.zeros((*costs.shape[:-2], self.n_rounds, costs.shape[-1]), np.int64)
        np.cumsum(costs, axis=-2, out=totals[..., 1:, :])
        return totals

    def local(self, query: Query, prepared: IntArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return an action for each party, in integers that the wire can cut bits off."""
        totals = prepared[..., query.round - 1, :]
        if totals.ndim == 1:
            return np.array([self.terms(facts, own_indices(facts)[0]).draw(totals, noise)]) << _BITS
        drawn = [
            [self.terms(facts, index).draw(sums, noise.member(place))]
            for place, (index, sums) in enumerate(zip(own_indices(facts), totals, strict=True))
        ]
        return np.array(drawn) << _BITS

    def terms(self, facts: FederationFacts, index: int) -> LeaderTerms:
        """Return the terms of a party's leader."""
        return LeaderTerms(actions_among(facts), self.n_rounds, *facts.of(index).strictest, self.calibration)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return infinity: a record moves chances, not a sum."""
        return float("inf")

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Return the proof of draws; the first round's event counts those of all rounds."""
        return Draws()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of all rounds for the first, and of no answer for the others."""
        return self.terms(facts, own_indices(facts)[0]).event if round == 1 else NoEvent()

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if a budget sets no lambda, or if no party has rows for all rounds."""
        if self.n_rounds > int(facts.n_examples.max()):
            raise InvalidInputError(
                f"n_rounds is {self.n_rounds}, and no party has more than {int(facts.n_examples.max())} "
                f"{EXAMPLE_NAMES[facts.unit]}: the stream ends early"
            )
        for index in own_indices(facts):
            self.terms(facts, index)

    def cautions(self, facts: FederationFacts) -> tuple[str, ...]:
        """Warn if costs are not in one unit."""
        if facts.study is None or facts.study.row_norm != "own":
            return ()
        words = "the study divides each row by its own norm, so the costs of two rounds are not in one unit"
        return (f"{words}: with norm = 'max' they are as in the table",)

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Return what costs may depend on."""
        return (self.terms(facts, own_indices(facts)[0]).assumption,)


def actions_among(facts: FederationFacts) -> int:
    """Return how many columns are actions: all except a study's intercept.

    The intercept is the last column, and costs the same in each round.
    """
    return facts.n_features - (facts.study is not None and facts.study.intercept)


def _costs(shard: Shard, rounds: int, actions: int) -> IntArray:
    """Return the costs (..., rounds, p) of the first examples, in units of 1 / `COST_UNIT`, or zeros beyond the last.

    Those of a person are the sum of its rows, each by its weight, rounded down.
    """
    if shard.y.ndim > 1:
        return np.stack([_costs(shard.party(index), rounds, actions) for index in range(len(shard.y))])
    first = shard.examples(0, rounds)
    weights = (first.weights * 2.0**WEIGHT_OF_ROW_BITS).astype(np.int64)
    rows = (first.X[:, :actions] * COST_UNIT).astype(np.int64) * weights[:, None]
    starts = np.arange(len(rows)) if first.begins is None else np.flatnonzero(first.begins)
    costs = np.zeros((rounds, actions), np.int64)
    costs[: len(starts)] = np.add.reduceat(rows, starts, axis=0) >> WEIGHT_OF_ROW_BITS
    return costs


def _read(reply: Reply, actions: int) -> FloatArray:
    """Return the actions (contributors,) of a round, clipped to the valid range for any reply."""
    return np.clip(np.rint(reply.value[:, 0] * 2.0 ** (FRACTION_BITS - _BITS)), 0, actions - 1)
