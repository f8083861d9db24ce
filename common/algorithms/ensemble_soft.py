"""Algorithm 2 of Hamm, Cao & Belkin 2016: a global classifier from each class's part of the votes on public rows."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from parley.common.algorithms._ensemble import Ensemble, classes_of, is_pure
from parley.common.algorithms._parameters import algorithm
from parley.common.arrays import FloatArray, IntArray
from parley.common.encoding.fixed_point import FEATURE_BITS, UNIT
from parley.common.errors import InvalidInputError
from parley.common.learning.soft_labels import fit_label_sum, fit_votes, is_linear
from parley.common.privacy.events import L2LaplaceEvent, LaplaceEvent
from parley.common.privacy.mechanisms.additive import add_l2_laplace, l2_laplace_deviation
from parley.common.privacy.mechanisms.site import FLOATS
from parley.common.privacy.noise import Noise
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Question, Reply

_ISOTROPIC = 20.0
"""How many times the harm of noise on counts that of a statistic does; of four sets, flat from 10 to 30."""
_LEAST_REACH = 2.0**-8
"""Rows that add up to less, or to nothing, bear as much noise as this: none too little for integers."""

ReleaseChoice = Annotated[
    Literal["counts", "statistic"],
    Field(
        description="the votes on each row, N K numbers, or the one sum, K d numbers, by which they enter the risk of "
        "the logistic and the softmax loss: for many rows of many classes"
    ),
]


@algorithm
class EnsembleSoft(Ensemble):
    """The minimiser of the risk of the rows under each class, weighted by its part of the votes.

    ``release="statistic"``: parties answer the sum of one-hot votes times rows, sum_i v_i (x) x_i. One party moves v by
    at most sqrt 2 in each of N rows, hence the sum by at most sqrt 2 min(sum_i |x_i|, sqrt(N) s), s the largest
    singular value of the rows (and by no sqrt 2 for two classes, of which one is answered).
    """

    release: ReleaseChoice = "counts"
    part_moved: ClassVar[Literal["vote", "share"]] = "share"

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """As of every ensemble; the Huber loss has no statistic."""
        if self.release == "statistic" and not is_linear(facts.loss):
            raise InvalidInputError("labels in doubt enter the Huber loss by no sum: take release = 'counts'")
        return Ensemble.questions(self, facts)

    def learn(self, rows: FloatArray, reply: Reply, facts: FederationFacts) -> FloatArray:
        """The minimiser."""
        if self.release == "statistic":
            total = reply.value * 2.0 ** self._shift(facts) / len(reply.contributors)
            return fit_label_sum(facts.loss, rows, self._as_weights(total, rows, facts), self.regularization)
        return fit_votes(facts.loss, rows, self.shares(rows, reply, facts), self.regularization)

    def tally(self, votes: IntArray, rows: FloatArray, facts: FederationFacts) -> IntArray:
        """The votes one by one, or rows added up by their votes, in units that make a mean of them."""
        if self.release == "counts":
            return Ensemble.tally(self, votes, rows, facts)
        k, unit = classes_of(facts), float(UNIT) / 2.0 ** self._shift(facts)
        answered = range(1 if k == 2 else 0, k)  # noqa: PLR2004
        each = [(votes == own).astype(np.float64) @ rows for own in answered]  # exact: multiples of 2^-16
        totals = np.stack(each, axis=-2)
        return np.asarray(totals * unit).astype(np.int64).reshape(*votes.shape[:-1], -1)

    def hidden(self, total: IntArray, rows: FloatArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """A tally with noise; of pure epsilon on a statistic, noise of density exp(-beta |b|)."""
        if self.release == "statistic" and is_pure(facts):
            return add_l2_laplace(total, facts.own_epsilon / self.moved(rows, facts), 1 / facts.share, noise)
        return Ensemble.hidden(self, total, rows, facts, noise)

    def pure_law(self, facts: OwnFacts) -> LaplaceEvent | L2LaplaceEvent:
        """As of votes; of a statistic, density exp(-beta |b|)."""
        if self.release == "counts":
            return Ensemble.pure_law(self, facts)
        return L2LaplaceEvent(float(facts.own_epsilon.min()), self.lanes(facts))

    def width(self, moved: float, facts: OwnFacts) -> FloatArray:
        """As of votes; of pure epsilon on a statistic, the deviation of each of its numbers."""
        if self.release == "statistic" and is_pure(facts):
            return l2_laplace_deviation(facts.own_epsilon / moved, self.lanes(facts))
        return Ensemble.width(self, moved, facts)

    def moved(self, rows: FloatArray, facts: FederationFacts) -> float:
        """As of votes; of a statistic of rows (N, d) in the 2-norm, and where no rows are told, of any in the ball."""
        if self.release == "counts":
            return Ensemble.moved(self, rows, facts)
        n, flip = len(rows), 1.0 if classes_of(facts) == 2 else math.sqrt(2)  # noqa: PLR2004
        reach = float(n)
        if rows.shape[1]:
            spectral = math.sqrt(n) * float(np.linalg.norm(rows, 2))
            reach = max(min(float(np.linalg.norm(rows, axis=1).sum()), spectral, reach), _LEAST_REACH)
        return flip * reach * (1 + 2.0**-40) / 2.0 ** self._shift(facts)

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """As of votes; of pure epsilon on a statistic, what is drawn in floating point."""
        if self.release == "statistic" and self.hides_votes and is_pure(facts):
            return (FLOATS,)
        return Ensemble.assumptions(self, facts)

    def lanes(self, facts: FederationFacts) -> int:
        """N K of counts, K d of a statistic; of two classes N and d."""
        if self.release == "counts":
            return Ensemble.lanes(self, facts)
        return facts.n_features * (1 if classes_of(facts) == 2 else facts.loss.outputs)  # noqa: PLR2004

    def noise_on_slope(self, facts: FederationFacts) -> float:
        """As of counts; a statistic's noise is as large in each direction, so it does as much harm as more would."""
        if self.release == "counts" or not self.hides_votes:
            return Ensemble.noise_on_slope(self, facts)
        own, n = facts.everyone, self.n_asked(facts)
        moved = self.moved(np.zeros((n, 0)), facts)
        return (
            _ISOTROPIC
            * facts.deviation_of_sum(self.width(moved, own))
            * 2.0 ** self._shift(facts)
            / len(facts.parties)
            / n
        )

    def _shift(self, facts: FederationFacts) -> int:
        """How many bits a statistic is divided by, so that its noise fits whatever N is: it stays on the grid."""
        return min(FEATURE_BITS, self.n_asked(facts).bit_length())

    def _as_weights(self, total: FloatArray, rows: FloatArray, facts: FederationFacts) -> FloatArray:
        """A sum per class answered, (m,), shaped as the weights are: two scores of two classes share all rows."""
        each = total.reshape(-1, facts.n_features)
        if facts.loss.outputs == 2:  # noqa: PLR2004
            each = np.concatenate([rows.sum(axis=0, keepdims=True) - each, each])
        return each.reshape(facts.shape)
