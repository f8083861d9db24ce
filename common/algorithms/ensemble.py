"""What a party answers in Hamm, Cao & Belkin, "Learning Privately from Multiparty Data", ICML 2016.

Each party trains a classifier of its own and votes with it on rows that are public. The learner fits a global
classifier to the votes. What is hidden is all that a party holds.

*Where the noise goes.* One party moves up to N of N votes of two classes, up to 2 N of the N K of more: by sqrt(N) or
sqrt(2 N) in the 2-norm. ``calibration="tight"`` hides that, by integer noise on the counts at the parties, in shares
under a secure sum. All that the learner does with noisy counts is post-processing, so nobody is trusted, and nothing
about training, local or global, enters the proof. It draws the shares of alike rows together first, by as much as the
noise explains how they differ (`parley.common.privacy.shrinkage`).

The published mechanism (``"paper"``) lets the learner see exact counts, and hides the minimiser of the global risk
instead: round 1 collects the votes; in round 2 the parties draw the noise of density exp(-beta |b|), in shares, which
the learner adds. ``"output_tight"`` is the same with the least sensitivity that is proven, and Gaussian noise where
there is a delta.

*How far a party moves the global minimiser.* Let ``flip`` be how far a row's slope moves when its label does: 2 L by
the paper; at most 1 of the logistic loss, as l'(t) + l'(-t) = -1 there; sqrt 2 of softmax. If all labels may move by a
part p of a vote, the minimiser does by flip p / lambda, by strong convexity; and never by more than twice the norm that
it can have (`parley.common.learning.losses.largest_minimiser`).

The local classifiers of an ensemble: trained once a run, never to leave the party.

Algorithm 1 of Hamm, Cao & Belkin 2016: a global classifier from the majority's votes on public rows.

Algorithm 2 of Hamm, Cao & Belkin 2016: a global classifier from each class's part of the votes on public rows.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from parley.common.algorithms._parameters import Regularization, algorithm, rounded
from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.encoding.fixed_point import FEATURE_BITS, UNIT, to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.classifiers import Voter
from parley.common.learning.erm import check_smooth
from parley.common.learning.losses import Logistic, bounded_slope, largest_minimiser
from parley.common.learning.model import Model
from parley.common.learning.soft_labels import fit_label_sum, fit_votes, is_linear
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.events import (
    ApproximateEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NoEvent,
    NonPrivateEvent,
)
from parley.common.privacy.guarantee import Adjacency, Guarantee
from parley.common.privacy.mechanisms.additive import (
    add_gaussian,
    add_l2_laplace,
    add_laplace,
    fitting,
    l2_laplace_deviation,
)
from parley.common.privacy.mechanisms.output import on_grid, solve
from parley.common.privacy.mechanisms.site import FLOATS
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.privacy.shrinkage import smoothed
from parley.common.protocol.algorithm import Algorithm, Choice, Program, PublicRowsNeeded
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question, Reply

_BLOCK = 2**22
"""Scores that are worked out at a time: 32 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class Voters:
    """The classifiers of the P parties of a stack, or of one: linear ones (P', K, d) and others, by their places.

    ``known`` (P', K) says which classes a party has examples of: it votes for no others. ``stack`` is (P,), or () for
    one party.
    """

    linear: FloatArray
    known: BoolArray
    places: IntArray
    others: Sequence[tuple[int, Voter]]
    stack: tuple[int, ...]

    def votes(self, rows: FloatArray) -> IntArray:
        """The classes that each party gives to rows (N, d) on the features' grid, (..., N)."""
        votes = np.zeros((len(self.places) + len(self.others), len(rows)), np.int64)
        k = self.known.shape[-1]
        most = max(1, _BLOCK // (k * max(1, len(rows))))
        for start in range(0, len(self.places), most):
            part = slice(start, start + most)
            votes[self.places[part]] = _linear_votes(self.linear[part], self.known[part], rows)
        for place, voter in self.others:
            votes[place] = voter.votes(rows)
        return votes.reshape(*self.stack, len(rows))


def train(shard: Shard, facts: OwnFacts, regularization: float) -> Voters:
    """The classifiers of a shard or a stack: those that the owners chose, else linear ones by the run's loss.

    Rows that a study has dropped are of no class, and teach nothing.
    """
    stack = shard.y.shape[:-1]
    n, k = math.prod(stack), max(2, facts.loss.outputs)
    parts = (shard.X, shard.y, shard.mask, shard.present)
    X, y, mask, present = (part.reshape(n, *part.shape[len(stack) :]) for part in parts)
    others = [
        (place, Voter(kind, X[place][present[place]], decode_classes(y[place][present[place]], k), seed))
        for place, (kind, seed) in enumerate(zip(facts.own_classifiers, facts.seeds, strict=True))
        if kind is not None and present[place].any()
    ]
    places = np.setdiff1d(np.arange(len(y)), [place for place, _ in others])
    if not len(places):
        return Voters(np.zeros((0, facts.loss.outputs, X.shape[-1])), np.zeros((0, k), np.bool_), places, others, stack)
    rest = shard if len(places) == len(y) else Shard(X[places], y[places], mask[places])
    classes = np.where(present[places], decode_classes(y[places], k), -1)
    known = (classes[..., None] == np.arange(k)).any(axis=1)
    strength = regularization * np.maximum(rest.n_examples, 1)
    weights = to_reals(on_grid(solve(facts.loss, rest, strength, most_steps=0)))
    return Voters(weights.reshape(len(places), facts.loss.outputs, X.shape[2]), known, places, others, stack)


def _linear_votes(weights: FloatArray, known: BoolArray, rows: FloatArray) -> IntArray:
    """The votes (P, N) of weights (P, K, d), one row of them for two classes, among the classes that are known."""
    p, outputs, d = weights.shape
    scores = (weights.reshape(-1, d) @ rows.T).reshape(p, outputs, -1)
    if outputs == 1:
        one = known.sum(axis=-1) == 1  # votes for that, whatever the score
        return np.where(one[:, None], known[:, 1:], scores[:, 0] > 0).astype(np.int64)
    any_known = known | ~known.any(axis=-1, keepdims=True)
    return np.asarray(np.where(any_known[..., None], scores, -np.inf).argmax(axis=1))


MOST_ROWS = 2_000
"""How many public rows are asked about, where there are more and nobody says how many."""
_FEWEST_ROWS = 30
_PURE_ROWS = 0.03
"""Rows asked about under pure epsilon, in parts of M epsilon: the noise of a vote grows with them."""
_DRIFT = 50.0
"""How far the noise on the mean slope of the global risk may move scores; of three sets, flat from 15 to 150."""
_OUTPUT_DRIFT = 2.0
_LEAST_LAMBDA = 1e-4
_NOISE_BITS, _MOST_BITS = 10, 32
_TRUSTED = (
    "the learner is trusted with the exact counts of votes, which one party moves by up to two a row",
    "the model is the exact minimiser",
    "nobody but the learner sees the rounds",
)
_FLOATS = "the noise on the model is drawn in floating point"
_ROUNDED = "the chances of Laplace noise in shares are rounded, as floating point is"

AuxiliaryRows = Annotated[
    int, Field(ge=1, le=100_000, description="how many of the public rows are asked about, evenly spaced; at most all")
]
EnsembleCalibration = Annotated[
    Literal["tight", "paper", "output_tight"],
    Field(
        description="noise on the counts at the parties (tight), or on the model, the learner being trusted: the "
        "paper's, or the least that a proof supports (output_tight)"
    ),
]


@algorithm
class Ensemble(Algorithm):
    """The party's half of both algorithms, and what the learner's halves share."""

    regularization: Regularization = 1e-4
    local_regularization: Regularization = 1e-4
    auxiliary_rows: AuxiliaryRows = MOST_ROWS
    calibration: EnsembleCalibration = "tight"
    hide_auxiliary_row: Annotated[
        bool, Field(description="whether a model with noise on it hides each auxiliary row too, from who sees it alone")
    ] = False
    adjacency: ClassVar[Adjacency] = "whole_party"

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """How many rows, and a lambda at which the noise moves scores by no more than so much."""
        one = cls(**dict(given))  # type: ignore[arg-type]
        one.questions(facts)
        chosen: dict[str, Choice] = {}
        if "auxiliary_rows" not in given:
            chosen["auxiliary_rows"] = one._rows_to_ask(facts)
            one = cls(**dict(given) | {"auxiliary_rows": chosen["auxiliary_rows"].value})  # type: ignore[arg-type]
        if "regularization" not in given:
            chosen["regularization"] = one._least_regularization(facts)
        return chosen

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Votes on the public rows; then noise, where the votes have none.

        Raises InvalidInputError for fewer than two parties, a loss of no classes, public rows of another width, and for
        one of them to be hidden where no noise is on the model.
        """
        if self.hides_votes and self.hide_auxiliary_row:
            raise InvalidInputError(
                "noise on the votes hides no auxiliary row: take calibration = 'output_tight' or 'paper'"
            )
        check_smooth(facts.loss)
        bounded_slope(facts.loss)
        if len(facts.parties) < 2:  # noqa: PLR2004
            raise InvalidInputError("an ensemble needs at least two parties")
        rows, width = facts.public_size
        if width != facts.n_features:
            raise InvalidInputError(
                f"the public rows have {width} features, and the parties' examples {facts.n_features}"
            )
        votes = Question("votes", (rows, width), self.lanes(facts), public=True)
        return (votes,) if self.hides_votes else (votes, Question("noise", (0,), facts.n_weights))

    def program(self, facts: FederationFacts) -> Program:
        """Ask for votes, fit the global classifier, and ask for the noise that it needs, if any."""
        reply = yield Query(1, "votes", facts.public_rows)
        weights = self.learn(self.asked(facts.public_rows), reply, facts)
        if not self.hides_votes:
            noise = yield Query(2, "noise", np.zeros(0))
            weights = weights + self._unit_of_noise(facts) * noise.value.reshape(weights.shape)
        return Model(weights)

    @abstractmethod
    def learn(self, rows: FloatArray, reply: Reply, facts: FederationFacts) -> FloatArray:
        """The global classifier's weights, from the rows that were asked about (N, d), and the votes on them."""

    def prepare(self, shard: Shard, facts: OwnFacts) -> Voters:
        """The classifier of the party's own, or those of a stack."""
        return train(shard, facts, self.local_regularization)

    def local(self, query: Query, prepared: Voters, facts: OwnFacts, noise: Noise) -> IntArray:
        """The votes, with noise for all that the party holds or none; or its share of the noise on the model."""
        if query.step == "noise":
            return self._noise_on_model(np.zeros((*facts.own_epsilon.shape, facts.n_weights), np.int64), facts, noise)
        rows = self.asked(query.message)
        total = self.tally(prepared.votes(rows), rows, facts)
        return self.hidden(total, rows, facts, noise) if self.hides_votes else total

    def tally(self, votes: IntArray, rows: FloatArray, facts: FederationFacts) -> IntArray:
        """Votes (..., N) one by one, (..., N K), of two classes those for the second, in integers of 2^-32."""
        k = classes_of(facts)
        if k == 2:  # noqa: PLR2004
            return votes * np.int64(UNIT)
        one_hot = np.zeros((*votes.shape, k), np.int64)
        np.put_along_axis(one_hot, votes[..., None], np.int64(UNIT), axis=-1)
        return one_hot.reshape(*votes.shape[:-1], -1)

    def hidden(self, total: IntArray, rows: FloatArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """A tally of votes on rows with noise for all of them: discrete Gaussian, or Laplace where delta is 0."""
        moved = self.moved(rows, facts)
        if is_pure(facts):
            return add_laplace(total, moved / facts.own_epsilon, noise, 1 / facts.share)
        return add_gaussian(total, self.sigma(moved, facts), facts.share, noise)

    def moved(self, rows: FloatArray, facts: FederationFacts) -> float:
        """How far a party moves its tally on rows (N, d): in the 2-norm, or in the 1-norm where delta is 0."""
        times = 1 if classes_of(facts) == 2 else 2  # noqa: PLR2004
        return float(times * len(rows)) if is_pure(facts) else math.nextafter(math.sqrt(times * len(rows)), math.inf)

    def sigma(self, moved: float, facts: OwnFacts) -> FloatArray:
        """The deviation of Gaussian noise on a sum, (...)."""
        return gaussian_sigmas(facts.own_epsilon, facts.own_delta, moved)

    def width(self, moved: float, facts: OwnFacts) -> FloatArray:
        """How wide the noise on a tally is that a party moves so far, (...): Laplace's scale, or a deviation."""
        return moved / facts.own_epsilon if is_pure(facts) else self.sigma(moved, facts)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray | float:
        """That of the votes in the norm of their noise; infinite where they have none, 0 of what is noise alone."""
        if not self.hides_votes:
            return math.inf if query.step == "votes" else 0.0
        return np.full(facts.own_epsilon.shape, self.moved(self.asked(query.message), facts))

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """The tally plus noise; of exact votes nothing is claimed."""
        if not self.hides_votes:
            return None
        return Additive(self.pure_law(facts)) if is_pure(facts) else Additive()

    def pure_law(self, facts: OwnFacts) -> LaplaceEvent | L2LaplaceEvent:
        """The law of noise where delta is 0."""
        return LaplaceEvent(float(facts.own_epsilon.min()))

    def event(self, round: int, facts: OwnFacts) -> Event:
        """One release of all votes; of exact ones there is no promise, and what is noise alone tells nothing."""
        if not self.hides_votes:
            return NonPrivateEvent() if round == 1 else NoEvent()
        if is_pure(facts):
            return ApproximateEvent(float(facts.own_epsilon))
        return GaussianEvent(1 / float(self.sigma(1.0, facts)))

    def check_noise(self, facts: OwnFacts) -> None:
        """That on the votes, or on the model."""
        if not self.hides_votes:
            fitting(self.deviation_on_model(facts) / self._unit_of_noise(facts))
            return
        fitting(self.width(self.moved(np.zeros((self.n_asked(facts), 0)), facts), facts))

    def claims(self, facts: OwnFacts) -> tuple[Guarantee, ...]:
        """Of a model with noise on it: all that a party holds is hidden from who sees the model alone, or a row too."""
        if self.hides_votes:
            return ()
        kind: Literal["paper", "tight"] = "paper" if self.calibration == "paper" else "tight"
        epsilon, delta = self._model_budget(facts)
        claim = Guarantee(epsilon, delta, "model", kind, "whole_party", 0, (*_TRUSTED, _FLOATS))
        row = Guarantee(
            epsilon, delta, "model", kind, "auxiliary_row", 0, ("the model is the exact minimiser", _FLOATS)
        )
        return (claim, row) if self.hide_auxiliary_row else (claim,)

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Of Laplace noise, that it is not exact in shares."""
        return (_ROUNDED,) if self.hides_votes and is_pure(facts) and facts.share < 1 else ()

    @property
    def public_rows(self) -> PublicRowsNeeded:
        """Those that are voted on."""
        return "rows"

    @property
    def hides_votes(self) -> bool:
        """Whether there is noise on the votes, and none on the model."""
        return self.calibration == "tight"

    def n_asked(self, facts: FederationFacts) -> int:
        """N, how many rows are asked about."""
        return min(self.auxiliary_rows, facts.public_size[0])

    def asked(self, rows: FloatArray) -> FloatArray:
        """The public rows that are asked about, (N, d), evenly spaced among all, in the unit ball and on the grid."""
        n = min(self.auxiliary_rows, len(rows))
        return Shard(rows[np.arange(n) * len(rows) // n], np.ones(n)).X

    def lanes(self, facts: FederationFacts) -> int:
        """How many integers a tally is."""
        k = classes_of(facts)
        return self.n_asked(facts) * (1 if k == 2 else k)  # noqa: PLR2004

    def counts(self, reply: Reply, facts: FederationFacts) -> FloatArray:
        """The votes of those who contributed, noisy or not, (N, K)."""
        k = classes_of(facts)
        if k > 2:  # noqa: PLR2004
            return reply.value.reshape(-1, k)
        return np.stack([len(reply.contributors) - reply.value, reply.value], axis=1)

    def shares(self, rows: FloatArray, reply: Reply, facts: FederationFacts) -> FloatArray:
        """What part of the votes each class has, (N, K): exactly, or what noisy votes and the rows make likely."""
        m, k = len(reply.contributors), classes_of(facts)
        shares = self.counts(reply, facts) / m
        shares += (1 - shares.sum(axis=1, keepdims=True)) / k
        deviation = self.deviation_of_votes(facts, reply.contributors) / m
        return smoothed(shares, rows, deviation * (1.0 if k == 2 else math.sqrt(1 - 1 / k)))  # noqa: PLR2004

    @property
    @abstractmethod
    def part_moved(self) -> Literal["vote", "share"]:
        """Whether a party may turn labels over altogether, or moves each by its share of the votes."""

    def model_moves(self, facts: FederationFacts) -> float:
        """How far a party moves the exact global minimiser, in the 2-norm; or with an auxiliary row, if that is hidden.

        Where one of N rows may be another one too, the labels of N - 1 move by the party, and that row's slope by 2 L.
        """
        tight, loss, n = self.calibration == "output_tight", facts.loss, self.n_asked(facts)
        flip = math.sqrt(2) if loss.outputs > 1 else 1.0 if tight and isinstance(loss, Logistic) else 2.0
        part = 1.0
        if self.part_moved == "share":
            part = 1 / facts.minimum_contributors + (0.0 if is_linear(facts.loss) else 2.0**-17)
        moved = flip * part
        if self.hide_auxiliary_row:
            moved = moved * (n - 1) / n + 2 * bounded_slope(loss) / n
        cap = 2 * largest_minimiser(loss, self.regularization)
        return min(moved / self.regularization, cap) if tight else moved / self.regularization

    def _model_budget(self, facts: FederationFacts) -> tuple[float, float]:
        """``(epsilon, delta)`` of the noise on the model: the strictest; the paper's delta is 0."""
        delta = 0.0 if self.calibration == "paper" else float(facts.delta.min())
        return float(facts.epsilon.min()), delta

    def _noise_on_model(self, zeros: IntArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """A party's share, one of as many as surely contribute, less those that may collude; (..., m), in its unit."""
        parts = facts.minimum_contributors - facts.colluders
        epsilon, delta = self._model_budget(facts)
        moved, stack = self.model_moves(facts) / self._unit_of_noise(facts), np.ones(zeros.shape[:-1])
        if delta == 0:
            return add_l2_laplace(zeros, epsilon / moved * stack, parts, noise)
        return add_gaussian(zeros, gaussian_sigmas(epsilon * stack, delta * stack, moved), 1 / parts, noise)

    def deviation_on_model(self, facts: FederationFacts) -> FloatArray:
        """The deviation of the noise on each weight."""
        epsilon, delta = self._model_budget(facts)
        moved = self.model_moves(facts)
        if delta == 0:
            return l2_laplace_deviation(epsilon / moved, facts.n_weights)
        return gaussian_sigmas(np.array(epsilon), np.array(delta), moved)

    def _unit_of_noise(self, facts: FederationFacts) -> float:
        """A power of two in which the noise is: the paper's may be millions of times a weight."""
        return unit_of_noise(float(self.deviation_on_model(facts)), _MOST_BITS)

    def _rows_to_ask(self, facts: FederationFacts) -> Choice:
        """All rows, up to so many; under pure epsilon as many as the noise on a vote, which grows with them, allows."""
        rows = facts.public_size[0]
        if not (self.hides_votes and is_pure(facts)):
            return Choice(min(rows, MOST_ROWS), "more rows bring more votes, and the noise of all of them no more harm")
        few = max(_FEWEST_ROWS, int(_PURE_ROWS * len(facts.parties) * float(facts.epsilon.min())))
        return Choice(min(rows, MOST_ROWS, few), "each row more makes the noise on every vote larger")

    def _least_regularization(self, facts: FederationFacts) -> Choice:
        """Lambda at which the noise moves scores by a constant, and not less than 1e-4."""
        noise = self.noise_on_slope(facts) / _DRIFT
        if not self.hides_votes:
            one = type(self)(regularization=1.0, calibration="paper", auxiliary_rows=self.auxiliary_rows)
            noise = float(one.deviation_on_model(facts)) / _OUTPUT_DRIFT
        chosen = max(_LEAST_LAMBDA, rounded(noise))
        return Choice(chosen, "less would let the noise move scores by more, or follow the votes too closely")

    def noise_on_slope(self, facts: FederationFacts) -> float:
        """The deviation of the mean slope of the global risk, by noise on the votes of all rows."""
        return self.deviation_of_votes(facts) / len(facts.parties) / math.sqrt(self.n_asked(facts))

    def deviation_of_votes(self, facts: FederationFacts, contributors: Sequence[int] | None = None) -> float:
        """That of the noise on each count of the votes of all parties, or of those who contributed."""
        if not self.hides_votes:
            return 0.0
        own, times = facts.everyone, 1 if classes_of(facts) == 2 else 2  # noqa: PLR2004
        n = self.n_asked(facts)
        each = math.sqrt(2) * times * n / own.own_epsilon if is_pure(facts) else self.sigma(math.sqrt(times * n), own)
        return facts.deviation_of_sum(each if contributors is None else each[list(contributors)])


def classes_of(facts: FederationFacts) -> int:
    """K, how many classes there are."""
    return max(2, facts.loss.outputs)


def unit_of_noise(deviation: float, most_bits: int) -> float:
    """The power of two, of up to so many bits, that leaves noise of this deviation far below the wire's range."""
    return 2.0 ** min(most_bits, max(0, math.frexp(deviation)[1] - _NOISE_BITS))


def is_pure(facts: FederationFacts) -> bool:
    """Whether a party asks for a delta of 0: all noise is Laplace's then."""
    return float(facts.delta.min()) == 0


@algorithm
class EnsembleVote(Ensemble):
    """The minimiser of the risk of the rows under the class of most votes: of two in a tie the second, else the first.

    The paper finds votes too sensitive, as one party may turn over the label of every row: true of noise on the model.
    With noise on the counts, taking the largest share removes noise.
    """

    part_moved: ClassVar[Literal["vote", "share"]] = "vote"

    def learn(self, rows: FloatArray, reply: Reply, facts: FederationFacts) -> FloatArray:
        """The minimiser under the largest shares, ties as in eq. 6."""
        shares = self.shares(rows, reply, facts)
        k = shares.shape[1]
        winners = (shares[:, 1] >= shares[:, 0]).astype(np.int64) if k == 2 else shares.argmax(axis=1)  # noqa: PLR2004
        return fit_votes(facts.loss, rows, np.eye(k)[winners], self.regularization)


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
