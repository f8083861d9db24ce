"""Ensembles: Hamm, Cao & Belkin, "Learning Privately from Multiparty Data", ICML 2016.

Each party trains a classifier of its own (`train`, once in a run; it never leaves the party) and votes with it on rows
that are public. The learner fits a global classifier to the votes: by Algorithm 1 to the majority's (`EnsembleVote`),
by Algorithm 2 to each class's part of the votes (`EnsembleSoft`). What is hidden is all that a party holds.

*Where the noise goes.* One party moves up to N of N votes of two classes, up to 2 N of the N K of more: by sqrt(N) or
sqrt(2 N) in the 2-norm. ``calibration="tight"`` hides that, by integer noise on the counts at the parties, in shares
under a secure sum. All that the learner computes from noisy counts is post-processing, so nobody needs to be trusted,
and the proof says nothing about training, local or global. Before it fits, the learner pulls the shares of similar rows
together, by as much as the noise explains their differences (`parley.common.privacy.shrinkage`).

The published mechanism (``"paper"``) lets the learner see exact counts, and hides the minimiser of the global risk
instead: round 1 collects the votes; in round 2 the parties draw the noise of density exp(-beta |b|), in shares, which
the learner adds. ``"output_tight"`` does the same with the least sensitivity that is proven, and with Gaussian noise if
there is a delta.

*How far a party moves the global minimiser.* Let ``flip`` be how far a row's slope moves when its label does: 2 L by
the paper; at most 1 for the logistic loss, as l'(t) + l'(-t) = -1 there; sqrt 2 for softmax. If all labels may move by
a part p of a vote, the minimiser moves by at most flip p / lambda, by strong convexity; and never by more than twice
the largest norm that it can have (`parley.common.learning.losses.largest_minimiser`).
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
from parley.common.learning.erm import check_smooth, fit_label_sum, fit_votes, is_linear
from parley.common.learning.losses import Logistic, bounded_slope, largest_minimiser
from parley.common.learning.model import Model
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.events import (
    FLOATS,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NoEvent,
    NonPrivateEvent,
    SequentialEvent,
)
from parley.common.privacy.guarantee import Adjacency, Guarantee
from parley.common.privacy.mechanisms.additive import (
    ROUNDED_SHARES,
    add_gaussian,
    add_l2_laplace,
    add_laplace,
    fitting,
    l2_laplace_deviation,
)
from parley.common.privacy.mechanisms.output import on_grid, solve
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.privacy.shrinkage import smoothed
from parley.common.protocol.algorithm import Algorithm, Choice, Program, PublicRowsNeeded
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question, Reply

# ── the local classifiers ────────────────────────────────────────────────────

_BLOCK = 2**22
"""How many scores are computed at a time: 32 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class Voters:
    """The classifiers of the P parties of a stack, or of one: linear ones (P', K, d), and others by index.

    ``has_class`` (P', K) says which classes a party has examples of: it votes for no others. ``stack`` is (P,), or ()
    for one party.
    """

    linear: FloatArray
    has_class: BoolArray
    places: IntArray
    others: Sequence[tuple[int, Voter]]
    stack: tuple[int, ...]

    def votes(self, rows: FloatArray) -> IntArray:
        """Return the class that each party gives to each row, (..., N), of rows (N, d) on the features' grid."""
        votes = np.zeros((len(self.places) + len(self.others), len(rows)), np.int64)
        k = self.has_class.shape[-1]
        most = max(1, _BLOCK // (k * max(1, len(rows))))
        for start in range(0, len(self.places), most):
            part = slice(start, start + most)
            votes[self.places[part]] = _linear_votes(self.linear[part], self.has_class[part], rows)
        for place, voter in self.others:
            votes[place] = voter.votes(rows)
        return votes.reshape(*self.stack, len(rows))


def train(shard: Shard, facts: OwnFacts, regularization: float) -> Voters:
    """Train the classifiers of a shard or a stack: those that the owners chose, or linear ones by the run's loss.

    Rows that a study has dropped have no class, and are not used; nor are rows of no weight.
    """
    stack = shard.y.shape[:-1]
    n, k = math.prod(stack), max(2, facts.loss.outputs)
    parts = (shard.X, shard.y, shard.weights, shard.present & (shard.weights > 0))
    X, y, counts, present = (part.reshape(n, *part.shape[len(stack) :]) for part in parts)
    others = [
        (place, Voter(kind, X[place][rows], decode_classes(y[place][rows], k), counts[place][rows], seed))
        for place, (kind, seed, rows) in enumerate(zip(facts.own_classifiers, facts.seeds, present, strict=True))
        if kind is not None and rows.any()
    ]
    places = np.setdiff1d(np.arange(len(y)), [place for place, _ in others])
    if not len(places):
        return Voters(np.zeros((0, facts.loss.outputs, X.shape[-1])), np.zeros((0, k), np.bool_), places, others, stack)
    linear_shard = shard if len(places) == len(y) else shard.of_parties(places)
    classes = np.where(present[places], decode_classes(y[places], k), -1)
    has_class = (classes[..., None] == np.arange(k)).any(axis=1)
    strength = regularization * np.maximum(linear_shard.n_examples, 1)
    weights = to_reals(on_grid(solve(facts.loss, linear_shard, strength, most_steps=0)))
    return Voters(weights.reshape(len(places), facts.loss.outputs, X.shape[2]), has_class, places, others, stack)


def _linear_votes(weights: FloatArray, has_class: BoolArray, rows: FloatArray) -> IntArray:
    """Return the votes (P, N) of weights (P, K, d), each among the classes that the party has.

    For two classes K is 1: the score of the second.
    """
    p, outputs, d = weights.shape
    scores = (weights.reshape(-1, d) @ rows.T).reshape(p, outputs, -1)
    if outputs == 1:
        one = has_class.sum(axis=-1) == 1  # always votes for that class
        return np.where(one[:, None], has_class[:, 1:], scores[:, 0] > 0).astype(np.int64)
    has_any = has_class | ~has_class.any(axis=-1, keepdims=True)
    return np.asarray(np.where(has_any[..., None], scores, -np.inf).argmax(axis=1))


# ── what both algorithms share ───────────────────────────────────────────────

MOST_ROWS = 2_000
"""The number of public rows that parties vote on if there are more and none is given."""
_FEWEST_ROWS = 30
_PURE_ROWS = 0.03
"""Rows to vote on under pure epsilon, as a part of M epsilon, because the noise of a vote grows with them."""
_DRIFT = 50.0
"""How far noise on the mean slope of the global risk may move scores; on three sets, results are flat from 15 to 150.
"""
_OUTPUT_DRIFT = 2.0
_LEAST_LAMBDA = 1e-4
_NOISE_BITS, _MOST_BITS = 10, 32
_TRUSTED = (
    "the learner is trusted with the exact counts of votes, which one party moves by up to two a row",
    "the model is the exact minimiser",
    "nobody but the learner sees the rounds",
)
_FLOATS = "the noise on the model is drawn in floating point"

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
    persons: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """Choose the number of rows, and a lambda at which noise moves scores by no more than a constant."""
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
        """Ask for votes on the public rows, and then for noise if the votes have none.

        Raises:
            InvalidInputError: there are fewer than two parties, the loss has no classes, the public rows have another
                width, or one of them is to be hidden although no noise is on the model.
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
        """Ask for votes, fit the global classifier, and ask for the noise on it, if it has some."""
        reply = yield Query(1, "votes", facts.public_rows)
        weights = self.learn(self.rows_asked(facts.public_rows), reply, facts)
        if not self.hides_votes:
            weights = weights + self.noise_of((yield Query(2, "noise", np.zeros(0))), facts)
        return Model(weights)

    def noise_of(self, reply: Reply, facts: FederationFacts) -> FloatArray:
        """Return the noise on the model, shaped like the weights, that the parties' shares of it add up to."""
        return self._unit_of_noise(facts) * reply.value.reshape(facts.shape)

    @abstractmethod
    def learn(self, rows: FloatArray, reply: Reply, facts: FederationFacts) -> FloatArray:
        """Fit the global classifier's weights to the rows that were voted on, (N, d), and the votes."""

    def prepare(self, shard: Shard, facts: OwnFacts) -> Voters:
        """Train the classifier of the party, or those of a stack."""
        return train(shard, facts, self.local_regularization)

    def local(self, query: Query, prepared: Voters, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the votes, with or without noise; or in step ``noise`` the party's share of the noise on the model."""
        if query.step == "noise":
            return self._noise_on_model(np.zeros((*facts.own_epsilon.shape, facts.n_weights), np.int64), facts, noise)
        rows = self.rows_asked(query.message)
        total = self.tally(prepared.votes(rows), rows, facts)
        return self.hidden(total, rows, facts, noise) if self.hides_votes else total

    def tally(self, votes: IntArray, rows: FloatArray, facts: FederationFacts) -> IntArray:
        """Count the votes (..., N) as (..., N K), for two classes as the votes for the second, in integers of 2^-32."""
        k = classes_of(facts)
        if k == 2:  # noqa: PLR2004
            return votes * np.int64(UNIT)
        one_hot = np.zeros((*votes.shape, k), np.int64)
        np.put_along_axis(one_hot, votes[..., None], np.int64(UNIT), axis=-1)
        return one_hot.reshape(*votes.shape[:-1], -1)

    def hidden(self, total: IntArray, rows: FloatArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """Add noise for all votes to a tally: discrete Gaussian, or Laplace if delta is 0."""
        sensitivity = self.tally_sensitivity(rows, facts)
        if is_pure(facts):
            return add_laplace(total, sensitivity / facts.own_epsilon, noise, 1 / facts.share)
        return add_gaussian(total, self.sigma(sensitivity, facts), facts.share, noise)

    def tally_sensitivity(self, rows: FloatArray, facts: FederationFacts) -> float:
        """Return how far a party moves its tally on rows (N, d): in the 2-norm, or in the 1-norm if delta is 0."""
        times = 1 if classes_of(facts) == 2 else 2  # noqa: PLR2004
        return float(times * len(rows)) if is_pure(facts) else math.nextafter(math.sqrt(times * len(rows)), math.inf)

    def sigma(self, sensitivity: float, facts: OwnFacts) -> FloatArray:
        """Return the deviation of Gaussian noise on a sum of this sensitivity, (...)."""
        return gaussian_sigmas(facts.own_epsilon, facts.own_delta, sensitivity)

    def width(self, sensitivity: float, facts: OwnFacts) -> FloatArray:
        """Return the width of the noise on a tally of this sensitivity, (...): Laplace's scale, or a deviation."""
        return sensitivity / facts.own_epsilon if is_pure(facts) else self.sigma(sensitivity, facts)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray | float:
        """Return the sensitivity of the votes in the norm of their noise.

        It is infinite if the votes have no noise, and 0 if the answer is noise alone.
        """
        if not self.hides_votes:
            return math.inf if query.step == "votes" else 0.0
        return np.full(facts.own_epsilon.shape, self.tally_sensitivity(self.rows_asked(query.message), facts))

    @property
    def noise_is_gaussian(self) -> bool:
        """Whether it is, unless delta is 0."""
        return self.hides_votes

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Return the proof of a tally plus noise, or None for exact votes, about which nothing is claimed."""
        if not self.hides_votes:
            return None
        if not is_pure(facts):
            return Additive()
        law = self.pure_law(facts)
        return Additive(law, ((1.0,) * self.moved(facts),)) if isinstance(law, LaplaceEvent) else Additive(law)

    def pure_law(self, facts: OwnFacts) -> LaplaceEvent | L2LaplaceEvent:
        """Return the law of the noise if delta is 0."""
        return LaplaceEvent(float(facts.own_epsilon.min()))

    def pure_event(self, facts: OwnFacts) -> Event:
        """Return the event of Laplace noise on all counts that a party moves, each by one."""
        moved = self.moved(facts)
        return SequentialEvent((LaplaceEvent(float(facts.own_epsilon) / moved, facts.share < 1),) * moved)

    def moved(self, facts: FederationFacts) -> int:
        """Return how many counts a party moves under pure epsilon."""
        return int(Ensemble.tally_sensitivity(self, np.zeros((self.n_asked(facts), 0)), facts))

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of one release of all votes. Exact votes have no promise; noise alone reveals nothing."""
        if not self.hides_votes:
            return NonPrivateEvent() if round == 1 else NoEvent()
        if is_pure(facts):
            return self.pure_event(facts)
        return GaussianEvent(1 / float(self.sigma(1.0, facts)))

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the noise on the votes, or on the model, does not fit on the wire."""
        if not self.hides_votes:
            fitting(self.deviation_on_model(facts) / self._unit_of_noise(facts))
            return
        fitting(self.width(self.tally_sensitivity(np.zeros((self.n_asked(facts), 0)), facts), facts))

    def noise_of_model(self, facts: FederationFacts) -> float:
        """Return the deviation of the noise on each count of votes, or of that on the model if votes have none."""
        return self.deviation_of_votes(facts) if self.hides_votes else float(self.deviation_on_model(facts))

    def claims(self, facts: OwnFacts) -> tuple[Guarantee, ...]:
        """Return the guarantees of a model with noise on it, towards someone who sees the model alone.

        It hides all that a party holds, and an auxiliary row too if ``hide_auxiliary_row`` says so.
        """
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
        """Return that Laplace noise is not exact in shares, if the votes have such noise."""
        return (ROUNDED_SHARES,) if self.hides_votes and is_pure(facts) and facts.share < 1 else ()

    @property
    def public_rows(self) -> PublicRowsNeeded:
        """The kind of public rows: those that parties vote on."""
        return "rows"

    @property
    def hides_votes(self) -> bool:
        """Whether the votes have noise, and the model has none."""
        return self.calibration == "tight"

    def n_asked(self, facts: FederationFacts) -> int:
        """Return N, the number of rows that parties vote on."""
        return min(self.auxiliary_rows, facts.public_size[0])

    def rows_asked(self, rows: FloatArray) -> FloatArray:
        """Return the public rows that parties vote on, (N, d), in the unit ball and on the grid.

        They are evenly spaced among all public rows.
        """
        n = min(self.auxiliary_rows, len(rows))
        return Shard(rows[np.arange(n) * len(rows) // n], np.ones(n)).X

    def lanes(self, facts: FederationFacts) -> int:
        """Return how many integers a tally has."""
        k = classes_of(facts)
        return self.n_asked(facts) * (1 if k == 2 else k)  # noqa: PLR2004

    def counts(self, reply: Reply, facts: FederationFacts) -> FloatArray:
        """Return the votes of those who contributed, noisy or not, (N, K)."""
        k = classes_of(facts)
        if k > 2:  # noqa: PLR2004
            return reply.value.reshape(-1, k)
        return np.stack([len(reply.contributors) - reply.value, reply.value], axis=1)

    def shares(self, rows: FloatArray, reply: Reply, facts: FederationFacts) -> FloatArray:
        """Return each class's part of the votes, (N, K): exactly, or estimated from noisy votes and the rows."""
        m, k = len(reply.contributors), classes_of(facts)
        shares = self.counts(reply, facts) / m
        shares += (1 - shares.sum(axis=1, keepdims=True)) / k
        deviation = self.deviation_of_votes(facts, reply.contributors) / m
        return smoothed(shares, rows, deviation * (1.0 if k == 2 else math.sqrt(1 - 1 / k)))  # noqa: PLR2004

    @property
    @abstractmethod
    def part_moved(self) -> Literal["vote", "share"]:
        """Whether a party may change labels altogether, or moves each by its share of the votes."""

    def model_moves(self, facts: FederationFacts) -> float:
        """Return how far a party moves the exact global minimiser, in the 2-norm.

        If an auxiliary row is hidden too, one of N rows may be another one: the labels of N - 1 move by the party, and
        that row's slope by 2 L.
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
        """Return ``(epsilon, delta)`` of the noise on the model: the strictest; the paper's delta is 0."""
        delta = 0.0 if self.calibration == "paper" else float(facts.delta.min())
        return float(facts.epsilon.min()), delta

    def _noise_on_model(self, zeros: IntArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return a party's share of the noise on the model, (..., m), in `_unit_of_noise`.

        It is one of as many shares as parties surely contribute, less those that may collude.
        """
        parts = facts.minimum_contributors - facts.colluders
        epsilon, delta = self._model_budget(facts)
        moved, stack = self.model_moves(facts) / self._unit_of_noise(facts), np.ones(zeros.shape[:-1])
        if delta == 0:
            return add_l2_laplace(zeros, epsilon / moved * stack, parts, noise)
        return add_gaussian(zeros, gaussian_sigmas(epsilon * stack, delta * stack, moved), 1 / parts, noise)

    def deviation_on_model(self, facts: FederationFacts) -> FloatArray:
        """Return the deviation of the noise on each weight."""
        epsilon, delta = self._model_budget(facts)
        moved = self.model_moves(facts)
        if delta == 0:
            return l2_laplace_deviation(epsilon / moved, facts.n_weights)
        return gaussian_sigmas(np.array(epsilon), np.array(delta), moved)

    def _unit_of_noise(self, facts: FederationFacts) -> float:
        """Return the power of two that is the unit of the noise: the paper's may be millions of times a weight."""
        return unit_of_noise(float(self.deviation_on_model(facts)), _MOST_BITS)

    def _rows_to_ask(self, facts: FederationFacts) -> Choice:
        """Choose all rows up to `MOST_ROWS`; under pure epsilon fewer, as the noise on a vote grows with them."""
        rows = facts.public_size[0]
        if not (self.hides_votes and is_pure(facts)):
            return Choice(min(rows, MOST_ROWS), "more rows bring more votes, and the noise of all of them no more harm")
        few = max(_FEWEST_ROWS, int(_PURE_ROWS * len(facts.parties) * float(facts.epsilon.min())))
        return Choice(min(rows, MOST_ROWS, few), "each row more makes the noise on every vote larger")

    def _least_regularization(self, facts: FederationFacts) -> Choice:
        """Choose the lambda at which noise moves scores by a constant, at least 1e-4."""
        noise = self.noise_on_slope(facts) / _DRIFT
        if not self.hides_votes:
            one = type(self)(regularization=1.0, calibration="paper", auxiliary_rows=self.auxiliary_rows)
            noise = float(one.deviation_on_model(facts)) / _OUTPUT_DRIFT
        chosen = max(_LEAST_LAMBDA, rounded(noise))
        return Choice(chosen, "less would let the noise move scores by more, or follow the votes too closely")

    def noise_on_slope(self, facts: FederationFacts) -> float:
        """Return the deviation of the mean slope of the global risk that noise on the votes of all rows causes."""
        return self.deviation_of_votes(facts) / len(facts.parties) / math.sqrt(self.n_asked(facts))

    def deviation_of_votes(self, facts: FederationFacts, contributors: Sequence[int] | None = None) -> float:
        """Return the deviation of the noise on each count of the votes of all parties, or of the contributors."""
        if not self.hides_votes:
            return 0.0
        view, times = facts.everyone, 1 if classes_of(facts) == 2 else 2  # noqa: PLR2004
        n = self.n_asked(facts)
        deviations = (
            math.sqrt(2) * times * n / view.own_epsilon if is_pure(facts) else self.sigma(math.sqrt(times * n), view)
        )
        return facts.deviation_of_sum(deviations if contributors is None else deviations[list(contributors)])


def classes_of(facts: FederationFacts) -> int:
    """Return K, the number of classes."""
    return max(2, facts.loss.outputs)


def unit_of_noise(deviation: float, most_bits: int) -> float:
    """Return the power of two, up to 2^most_bits, that makes noise of this deviation small beside the wire's range."""
    return 2.0 ** min(most_bits, max(0, math.frexp(deviation)[1] - _NOISE_BITS))


def is_pure(facts: FederationFacts) -> bool:
    """Whether a party allows a delta of 0, so that all noise is Laplace's."""
    return float(facts.delta.min()) == 0


# ── the two algorithms ───────────────────────────────────────────────────────


@algorithm
class EnsembleVote(Ensemble):
    """The minimiser of the risk of the rows under the class of most votes.

    In a tie of two classes the second wins, and of more the first. The paper finds votes too sensitive, as one party
    may turn over the label of every row: true of noise on the model. With noise on the counts, taking the largest share
    removes noise.
    """

    part_moved: ClassVar[Literal["vote", "share"]] = "vote"

    def learn(self, rows: FloatArray, reply: Reply, facts: FederationFacts) -> FloatArray:
        """Fit the minimiser under the largest shares, with ties as in eq. 6."""
        shares = self.shares(rows, reply, facts)
        k = shares.shape[1]
        winners = (shares[:, 1] >= shares[:, 0]).astype(np.int64) if k == 2 else shares.argmax(axis=1)  # noqa: PLR2004
        return fit_votes(facts.loss, rows, np.eye(k)[winners], self.regularization)


_ISOTROPIC = 20.0
"""How much more harm a statistic's noise does than that on counts; on four sets, results are flat from 10 to 30."""
_LEAST_REACH = 2.0**-8
"""The least reach: rows that add up to less, or to nothing, get the noise of this much, enough for integers."""

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
    singular value of the rows (without the sqrt 2 for two classes, as only the second is answered).
    """

    release: ReleaseChoice = "counts"
    part_moved: ClassVar[Literal["vote", "share"]] = "share"

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask as every ensemble does. Raises InvalidInputError for a statistic of the Huber loss, which has none."""
        if self.release == "statistic" and not is_linear(facts.loss):
            raise InvalidInputError("labels in doubt enter the Huber loss by no sum: take release = 'counts'")
        return Ensemble.questions(self, facts)

    def learn(self, rows: FloatArray, reply: Reply, facts: FederationFacts) -> FloatArray:
        """Fit the minimiser under the shares, or under the statistic."""
        if self.release == "statistic":
            total = reply.value * 2.0 ** self._shift(facts) / len(reply.contributors)
            return fit_label_sum(facts.loss, rows, self._as_weights(total, rows, facts), self.regularization)
        return fit_votes(facts.loss, rows, self.shares(rows, reply, facts), self.regularization)

    def tally(self, votes: IntArray, rows: FloatArray, facts: FederationFacts) -> IntArray:
        """Return the votes one by one, or the sum of rows by their votes, in a unit that keeps a mean on the wire."""
        if self.release == "counts":
            return Ensemble.tally(self, votes, rows, facts)
        k, unit = classes_of(facts), float(UNIT) / 2.0 ** self._shift(facts)
        answered = range(1 if k == 2 else 0, k)  # noqa: PLR2004
        sums = [(votes == label).astype(np.float64) @ rows for label in answered]  # exact: multiples of 2^-16
        totals = np.stack(sums, axis=-2)
        return np.asarray(totals * unit).astype(np.int64).reshape(*votes.shape[:-1], -1)

    def hidden(self, total: IntArray, rows: FloatArray, facts: OwnFacts, noise: Noise) -> IntArray:
        """Add noise to a tally; under pure epsilon a statistic gets noise of density exp(-beta |b|)."""
        if self.release == "statistic" and is_pure(facts):
            return add_l2_laplace(
                total, facts.own_epsilon / self.tally_sensitivity(rows, facts), 1 / facts.share, noise
            )
        return Ensemble.hidden(self, total, rows, facts, noise)

    def pure_law(self, facts: OwnFacts) -> LaplaceEvent | L2LaplaceEvent:
        """Return Laplace's law for votes, and density exp(-beta |b|) for a statistic."""
        if self.release == "counts":
            return Ensemble.pure_law(self, facts)
        return L2LaplaceEvent(float(facts.own_epsilon.min()), self.lanes(facts))

    def pure_event(self, facts: OwnFacts) -> Event:
        """Return the event of Laplace noise on votes, or of density exp(-beta |b|) on a statistic."""
        return Ensemble.pure_event(self, facts) if self.release == "counts" else self.pure_law(facts)

    def width(self, sensitivity: float, facts: OwnFacts) -> FloatArray:
        """Return the width for votes; for a statistic under pure epsilon, the deviation of each of its numbers."""
        if self.release == "statistic" and is_pure(facts):
            return l2_laplace_deviation(facts.own_epsilon / sensitivity, self.lanes(facts))
        return Ensemble.width(self, sensitivity, facts)

    def tally_sensitivity(self, rows: FloatArray, facts: FederationFacts) -> float:
        """Return the sensitivity of votes; of a statistic of rows (N, d), that in the 2-norm.

        If the rows have no columns, it is that of the N rows of the ball that move it furthest.
        """
        if self.release == "counts":
            return Ensemble.tally_sensitivity(self, rows, facts)
        n, flip = len(rows), 1.0 if classes_of(facts) == 2 else math.sqrt(2)  # noqa: PLR2004
        reach = float(n)
        if rows.shape[1]:
            spectral = math.sqrt(n) * float(np.linalg.norm(rows, 2))
            reach = max(min(float(np.linalg.norm(rows, axis=1).sum()), spectral, reach), _LEAST_REACH)
        return flip * reach * (1 + 2.0**-40) / 2.0 ** self._shift(facts)

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Return the assumptions for votes, or that noise on a statistic is drawn in floating point."""
        if self.release == "statistic" and self.hides_votes and is_pure(facts):
            return (FLOATS,)
        return Ensemble.assumptions(self, facts)

    def lanes(self, facts: FederationFacts) -> int:
        """Return N K for counts and K d for a statistic; for two classes N and d."""
        if self.release == "counts":
            return Ensemble.lanes(self, facts)
        return facts.n_features * (1 if classes_of(facts) == 2 else facts.loss.outputs)  # noqa: PLR2004

    def noise_on_slope(self, facts: FederationFacts) -> float:
        """Return the deviation that counts cause; a statistic's counts `_ISOTROPIC` times.

        A statistic's noise is as large in each direction, so it does as much harm as more noise would.
        """
        if self.release == "counts" or not self.hides_votes:
            return Ensemble.noise_on_slope(self, facts)
        view, n = facts.everyone, self.n_asked(facts)
        sensitivity = self.tally_sensitivity(np.zeros((n, 0)), facts)
        return (
            _ISOTROPIC
            * facts.deviation_of_sum(self.width(sensitivity, view))
            * 2.0 ** self._shift(facts)
            / len(facts.parties)
            / n
        )

    def _shift(self, facts: FederationFacts) -> int:
        """Return how many bits a statistic is shifted by, so that its noise fits for every N, on the grid."""
        return min(FEATURE_BITS, self.n_asked(facts).bit_length())

    def _as_weights(self, total: FloatArray, rows: FloatArray, facts: FederationFacts) -> FloatArray:
        """Shape the sums of the answered classes, (m,), as weights: the two scores of two classes share all rows."""
        class_sums = total.reshape(-1, facts.n_features)
        if facts.loss.outputs == 2:  # noqa: PLR2004
            class_sums = np.concatenate([rows.sum(axis=0, keepdims=True) - class_sums, class_sums])
        return class_sums.reshape(facts.shape)
