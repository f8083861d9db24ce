"""Choosing lambda without tuning, and what the algorithms that solve for a minimiser share.

*The rule.* Noise of deviation s on each coordinate of the mean gradient moves the minimiser of a regularised risk by s
/ lambda along directions without curvature, and by less along others. Noise that is added to a minimiser is s / lambda
outright, because the minimiser's sensitivity is proportional to 1 / lambda, or grows a little less as lambda falls,
which `choose_for_output` takes into account. So lambda is to a minimiser what 1 / distance is to a descent
(`parley.common.algorithms._noisy_gradients`), and

    lambda = s / drift

lets noise move the scores of rows of norm 1 by the drift. *What was chosen by looking at data*: the drifts, by the
excess risk on five of the public sets that ``scripts/benchmarks/forecast_quality.py`` trains on; four others have the
same optima, and twice as much or half as much makes little difference. No epsilon counts that.

*Noise for a ball* (`parley.common.learning.losses.largest_minimiser`) falls with the root of lambda alone, so the
square of s takes its place. A minimiser that is strongly regularised shrinks with lambda itself: above some lambda,
more takes away more signal than noise, and predictions get worse, although they do not depend on the scale of scores.
That lambda was chosen from .003, .01, .03 and .1 by accuracy on scikit-learn's digits, wine and breast cancer and on
two sets of Gaussian clusters; on iris and three other sets of clusters it does no worse than none.

*The shared parts* are the question for a minimiser (`ask_minimiser`), and the two baselines: `Curated`, in which a
trusted curator holds all shards, and `Exact`, which adds no noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from parley.common.algorithms._parameters import rounded
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import NORMS, Norm
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import check_smooth
from parley.common.learning.model import Model
from parley.common.privacy.events import Event, NonPrivateEvent
from parley.common.privacy.mechanisms.output import on_grid, solve
from parley.common.privacy.noise import Noise
from parley.common.protocol.algorithm import Algorithm, Choice, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question, Reveal

BETTER_BRANCH = Choice("better_branch", "of the paper's two branches, both private, the one with less noise")
"""The choice of a branch of computeSlack (`parley.common.privacy.calibration.slack`) if the caller gives none."""
_LEAST = 1e-6
_MOST_FOR_BALL = 0.01
_MOST_STEPS, _NEAR = 20, 1e-3


def choose_regularization(given: Mapping[str, float], noise: float, drift: float) -> dict[str, Choice]:
    """Choose lambda, unless it is ``given``, for noise that moves weights by ``noise`` at lambda = 1."""
    if "regularization" in given:
        return {}
    chosen = max(_LEAST, rounded(noise / drift))
    return {
        "regularization": Choice(chosen, f"noise moves scores by about {noise / chosen:.2g}, and by more with less")
    }


def choose_for_output(noise: Callable[[float], float], drift: float) -> Choice:
    """Choose lambda for noise on a minimiser, which moves weights by ``noise`` of lambda.

    As lambda falls, lambda times the noise grows (`parley.common.learning.losses.gradients_apart`), and with less than
    its root: so the rule for one lambda's noise gives the next lambda, nearer by half at least. If no solver surely
    finds a minimiser for some lambda, the choice is the one before.
    """
    strength = 1.0
    for _ in range(_MOST_STEPS):
        try:
            reached, strength = strength, max(_LEAST, strength * noise(strength) / drift)
        except InvalidInputError:
            break
        if abs(reached / strength - 1) < _NEAR:
            break
    return choose_regularization({}, strength * drift, drift)["regularization"]


def choose_for_ball(given: Mapping[str, float], noise: float, drift: float) -> dict[str, Choice]:
    """Choose lambda, unless it is ``given``, for noise that hides the whole ball of minimisers.

    ``noise`` is how far that noise moves weights at lambda = 1. The choice is never above `_MOST_FOR_BALL`.
    """
    if "regularization" not in given and noise**2 / drift > _MOST_FOR_BALL:
        return {
            "regularization": Choice(_MOST_FOR_BALL, "more would take more from what is learnt than from the noise")
        }
    return choose_regularization(given, noise**2, drift)


def ask_minimiser(facts: FederationFacts, reveal: Reveal = "sum") -> tuple[Question, Query]:
    """Return the one question of an algorithm that asks for minimisers, and the query that asks it.

    Raises InvalidInputError if the loss has unbounded curvature.
    """
    check_smooth(facts.loss)
    query = Query(1, "minimise", np.zeros(0), reveal)
    return Question(query.step, query.message.shape, facts.n_weights, reveal), query


class Curated(Algorithm):
    """A baseline in which a trusted curator, who holds all shards, answers with the model; subclasses compute it."""

    __slots__ = ()

    curator: ClassVar[bool] = True

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask one question, for the model."""
        return (ask_minimiser(facts)[0],)

    def program(self, facts: FederationFacts) -> Program:
        """Ask the curator for the model."""
        reply = yield ask_minimiser(facts)[1]
        return Model(reply.value.reshape(facts.shape))


class Exact(Algorithm):
    """A baseline without privacy, which answers exact minimisers. No private algorithm may build on it."""

    __slots__ = ()

    regularization: float
    norms: ClassVar[frozenset[Norm]] = NORMS
    sparse: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    persons: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """Choose lambda as a tenth of an example's share, just enough to make the minimiser unique."""
        if "regularization" in given:
            return {}
        return {
            "regularization": Choice(rounded(0.1 / facts.n_examples.mean()), "0.1 / n: no noise has to be held down")
        }

    def prepare(self, shard: Shard, facts: OwnFacts) -> IntArray:
        """Solve for the minimiser, on the weights' grid: (m,), or (P, m) for a stack of P parties."""
        strength = self.regularization * np.maximum(shard.n_examples, 1)
        return on_grid(solve(facts.loss, shard, strength, most_steps=0))

    def local(self, query: Query, prepared: IntArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the minimiser without noise."""
        return prepared

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return infinity: there is no noise that a sensitivity would scale."""
        return np.inf

    def proof(self, query: Query, facts: OwnFacts) -> None:
        """Return None: the baseline claims nothing."""

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of an answer without any privacy."""
        return NonPrivateEvent()
