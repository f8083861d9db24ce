"""Sampling from the simplex: Jain & Thakurta, ICML 2014, Section 4, for rows bounded in the largest coordinate.

Each party makes private draws from its minimiser over R times the simplex of signed columns, and answers which columns
were drawn; so the error depends on the dimension only by its logarithm. Several parties' models are averaged by their
sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from parley.common.algorithms._parameters import CalibrationChoice, Regularization, algorithm, rounded_up
from parley.common.algorithms.release import own_indices
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import FRACTION_BITS, NORMS, Norm
from parley.common.errors import InvalidInputError
from parley.common.learning.model import Model
from parley.common.learning.simplex import SimplexProblem, theta_near_minimiser
from parley.common.privacy.events import Event
from parley.common.privacy.mechanisms.sampling import (
    SimplexSampling,
    allowed,
    best_sampling,
    check_smooth_score,
    counts_of,
    encode_draws,
    sampling,
)
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Draws, Proof
from parley.common.protocol.algorithm import Algorithm, Choice, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

_QUERY = Query(1, "draw", np.zeros(0), "each")
_BITS = 10
"""How many bits the wire may cut off of an integer, for the largest shards."""
_SCALES = (100.0, 50.0, 30.0, 20.0, 10.0, 5.0, 3.0, 2.0, 1.0, 0.5, 0.3, 0.2, 0.1)
_BEARABLE = 0.5
"""The largest excess risk at which R is chosen.

Chosen by accuracies on Cod-RNA, Adult, breast cancer and digits, odd or even: flat between .3 and 1.
"""


@algorithm
class SampledSimplex(Algorithm):
    """Draws from the minimiser of (1/n) sum loss + lambda sum theta log theta over R times the simplex of +-columns.

    ``regularization`` is lambda of the mean loss, as everywhere; the paper's is n times as much. ``scale`` is R, the
    largest sum of absolute weights: on rows in [-1, 1] a score is at most R. `choose` finds better values than the
    defaults.
    """

    scale: Annotated[float, Field(ge=1e-3, le=2.0**15, description="R: the sum of absolute weights")] = 1.0
    regularization: Regularization = 10.0
    calibration: CalibrationChoice = "tight"
    norms: ClassVar[frozenset[Norm]] = NORMS
    sparse: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    persons: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """Choose R and lambda for the party with the largest bound on its excess risk."""
        check_smooth_score(facts.loss)
        one, chosen = cls(**dict(given)), dict[str, Choice]()
        if "scale" not in given:
            scale = next((R for R in _SCALES if replace(one, scale=R).best(facts).excess <= _BEARABLE), _SCALES[-1])
            chosen["scale"] = Choice(scale, f"the largest R where privacy surely costs at most {_BEARABLE:g} of loss")
            one = replace(one, scale=scale)
        if "regularization" not in given:
            best = one.best(facts)
            strength = rounded_up(best.problem.strength / best.problem.n_examples)  # with less, a draw fewer fits
            chosen["regularization"] = Choice(strength, f"the bound on the excess risk is least; draws: {best.draws}")
        return chosen

    def best(self, facts: FederationFacts) -> SimplexSampling:
        """Return the mechanism with the largest bound, among each budget's smallest party with its best lambda."""
        smallest = {facts.of(i).strictest: i for i in np.argsort(-facts.n_examples, kind="stable").tolist()}
        mechanisms = (
            best_sampling(self._problem(facts, i), *budget, self.calibration) for budget, i in smallest.items()
        )
        return max(mechanisms, key=lambda site: site.excess)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask which of the 2d signed columns were drawn, as counts or, if it is shorter, as a list."""
        check_smooth_score(facts.loss)
        return (Question("draw", (0,), self._width(facts), "each"),)

    def program(self, facts: FederationFacts) -> Program:
        """Build a model from each party's draws; return their mean by sizes."""
        reply = yield _QUERY
        sizes = facts.n_examples[list(reply.contributors)]
        answers = np.rint(reply.value * 2.0 ** (FRACTION_BITS - _BITS)).astype(np.int64)
        models = np.stack([self._model(facts, answer) for answer in answers])
        return Model(np.average(models, axis=0, weights=sizes))

    def _model(self, facts: FederationFacts, answer: IntArray) -> FloatArray:
        """Return the weights (d,) of draws: R times the share of a column's draws less that of its negative's."""
        counts = counts_of(answer, 2 * facts.n_features)
        plus, minus = counts.reshape(2, -1)
        return np.asarray(self.scale * (plus - minus) / max(counts.sum(), 1))

    def prepare(self, shard: Shard, facts: OwnFacts) -> tuple[tuple[IntArray, IntArray], ...]:
        """Compute the weights of the draws, mantissas and exponents (2d,), for each party."""
        sites = self.own_sites(facts)
        parts = [shard] if shard.y.ndim == 1 else [shard.party(i) for i in range(len(sites))]
        return tuple(
            theta_near_minimiser(site.problem, part, site.error) for site, part in zip(sites, parts, strict=True)
        )

    def local(self, query: Query, prepared: Any, facts: OwnFacts, noise: Noise) -> IntArray:  # noqa: ANN401 -- as prepared
        """Draw, and return the draws in integers that the wire can cut bits off."""
        width, vertices, stack, answers = self._width(facts), 2 * facts.n_features, facts.own_epsilon.ndim, []
        for i, (site, theta) in enumerate(zip(self.own_sites(facts), prepared, strict=True)):
            drawn = (noise.member(i) if stack else noise).categorical(theta[0], theta[1], site.draws)
            answers.append(encode_draws(drawn, width, vertices) << _BITS)
        return np.stack(answers) if stack else answers[0]

    def own_sites(self, facts: OwnFacts) -> tuple[SimplexSampling, ...]:
        """Return the mechanisms of the parties that the facts are about; raises as `sampling` does."""
        return tuple(self._site(facts, index) for index in own_indices(facts))

    def _site(self, facts: FederationFacts, index: int) -> SimplexSampling:
        try:
            return sampling(self._problem(facts, index), *facts.of(index).strictest, self.calibration)
        except InvalidInputError as error:
            raise InvalidInputError(f"{facts.parties[index]}: {error}") from None

    def _problem(self, facts: FederationFacts, index: int) -> SimplexProblem:
        n, d, entries = int(facts.n_examples[index]), facts.n_features, facts.most_entries
        return SimplexProblem(facts.loss, n, d, entries, self.scale, n * self.regularization, facts.most_rows)

    def _width(self, facts: FederationFacts) -> int:
        """Return how many integers an answer has: the most draws of a party, or as many as counts if these are fewer.

        Drafts do not have sizes yet and may allow no draw; that is refused once the sizes are there.
        """
        kinds = {(int(n), *facts.of(i).strictest): i for i, n in enumerate(facts.n_examples)}
        draws = max(allowed(self._problem(facts, i), *kind[1:], self.calibration).draws for kind, i in kinds.items())
        return max(min(draws, 2 * facts.n_features), 1)

    def noise_of_model(self, facts: FederationFacts) -> float:
        """Return how far draws move a party's model: the median over parties of the deviation of its mean of draws."""
        return float(np.median([self.scale / math.sqrt(site.draws) for site in self.own_sites(facts.everyone)]))

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return infinity: a record moves chances, not a sum."""
        return float("inf")

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if a party can make no draw."""
        self.own_sites(facts)

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Return the proof of an answer that is all draws."""
        return Draws()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of all draws together."""
        return self.own_sites(facts)[0].event
