"""The feature methods: a second level of learning in the span of sites' private models.

By Xie's thesis, Chapter 5: the models f_1, ..., f_N that sites release (`parley.common.algorithms.release`: Chaudhuri
et al. 2011 and Kifer et al. 2012) are the rows of M (N, d). A second level learns from the scores that they give to a
row x, and its weights w (N,) are how much each site counts for: the model is B^T w, B being M divided by a number, so
that B x has a length of about 1.

*Views.* The second level learns from the view x' = B x / |B x|, which has length 1 for every x: the side of a
hyperplane through 0 on which a row lies does not depend on its length, and noise is as large for short views as for
long ones. The thesis prints x' = M x without any scaling; then views are up to some 34 long at epsilon = .1 (threes and
sevens of MNIST), and the proof of the second level's noise, which needs |x'| <= 1, says nothing. Dividing by |M|_op,
which is safe too, left views so short that noise drowned them: of threes and sevens at ten sites of epsilon = .1
(`scripts.figures.xie`) an aggregator's model was wrong in .44 of test rows, now in .32; of KDD99's connections in .24,
now in .10. The choice was made by looking at these, and is no claim for others.

*The feature method* (`FeatureMethod`; Algorithm 5) collects the releases in round 1. The second level's rounds begin
with 2. Who weighs the models, and by whose rows, is ``second``:

- ``public`` (`Public`): the learner weighs the models by labelled rows that are no secret. No budget is charged.
- ``full`` (`Full`): one party, the ``aggregator``, weighs them by its own rows, and releases the weights under its own
  budget, which it has not used in round 1.
- ``all`` (`All`): every site again, by noisy gradients on which the learner descends within the span (`dp_gd`), so that
  noise has N dimensions instead of d. ``first_part`` of each budget goes to the release.
- ``own`` (`Own`): the owner of the ``aggregator``, as learner (``parley-party learn``), weighs them by its own rows,
  without noise, for its own use. Any other learner gets the models, divided by a number.

Under a secure sum the sites add up a stack in which each has a row: the sum shows every release and nothing more. The
thesis's scenario 2, in which the aggregator alone adds noise, is ``mechanism="none"``: it hides nothing of the sites.

*The multilevel feature method* (`MultilevelFeature`; Section 6.1 and Fig. 6.1) lets releases climb a tree of sites, in
which each site weighs those of its children. A leaf releases a private model of its own rows. A node above leaves maps
its own rows to the views that its children's models give, learns private weights w from these, and releases B^T w, a
model of the rows themselves. The root's is the model. Each level is a round, whose message carries the releases of all
levels below. Each site takes part in one round, and is charged once, for it uses its rows once.

*Who sees what*: the learner sees every release, and each site that is asked sees the releases of the levels below it.
All of them are private, so all that anyone computes from them is post-processing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

import numpy as np
from pydantic import Field
from scipy.linalg import qr

from parley.common.algorithms._parameters import Regularization, Rounds, Step, algorithm, check_take_part, rounded
from parley.common.algorithms.dp_gd import DpGd, Momentum
from parley.common.algorithms.release import (
    MechanismChoice,
    Prepared,
    Releases,
    own_indices,
    parties_where,
    set_site,
    solvable_choice,
    strength_by_drift,
)
from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import MAX_NORM, to_integers, to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Loss, check_single_score
from parley.common.learning.model import Model
from parley.common.privacy.events import Event, NoEvent, NonPrivateEvent
from parley.common.privacy.mechanisms.site import SiteRelease, SiteTerms
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Proof, applied_after, read_after
from parley.common.protocol.algorithm import Choice, Program, PublicRowsNeeded
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question, Reply
from parley.common.strict import Identifier, Strict

# ── the span of sites' models ────────────────────────────────────────────────

_RANK = 1e-9
"""A model that adds less than this to the span of others, as a part of the longest, counts as adding nothing."""

Selected = Literal["all", "independent", "best"]
Selection = Annotated[
    Selected,
    Field(description="which sites' models span the second level: all, linearly independent ones, or the best"),
]


def spanned(models: FloatArray) -> FloatArray:
    """Return B = sqrt(d) M / |M|_F of models M (K, d); sites without a part have zeros.

    For rows of length 1 in uniformly spread directions the mean of |B x|^2 is 1, so scores are about as large as those
    of views.
    """
    norm = float(np.linalg.norm(models))
    return models * (math.sqrt(models.shape[1]) / norm) if norm > 0 else models


def fitted(basis: FloatArray, rows: Shard) -> FloatArray:
    """Divide B by the mean of |B x| over rows that are no secret."""
    mean = float(np.linalg.norm(rows.X @ basis.T, axis=1).mean())
    return basis / mean if mean > 0 else basis


def ask_models(step: str, message: tuple[int, ...], facts: FederationFacts) -> Question:
    """Return the question for sites' models: one for each site, or for a stack with a row for each.

    The stack is asked for under a secure sum.
    """
    if facts.secure_sum:
        return Question(step, message, len(facts.parties) * facts.n_features)
    return Question(step, message, facts.n_features, "each")


def placed(models: IntArray, facts: OwnFacts) -> IntArray:
    """Return answers to `ask_models` from models (..., d): unchanged, or in their rows of the stack."""
    if not facts.secure_sum:
        return models
    rows = np.eye(len(facts.parties), dtype=np.int64)[facts.index]
    return np.asarray(rows[..., None] * models[..., None, :]).reshape(*models.shape[:-1], -1)


def collected(reply: Reply, facts: FederationFacts) -> FloatArray:
    """Return the models (K, d) from a reply to `ask_models`; zeros for sites that did not answer."""
    k = len(facts.parties)
    if reply.value.ndim == 1:
        return reply.value.reshape(k, facts.n_features)
    models = np.zeros((k, facts.n_features))
    models[list(reply.contributors)] = reply.value
    return models


def selected(models: FloatArray, selection: Selected, rows: Shard | None, most: int) -> FloatArray:
    """Return the models of a selection, with zeros for all others; ``best`` is by public ``rows``."""
    if selection == "independent":
        return independent(models)
    return models if selection == "all" or rows is None else best(models, rows, most)


def independent(models: FloatArray) -> FloatArray:
    """Return the models that add most to the span of others, at most d; zeros for all others (Section 6.2)."""
    _, triangle, order = qr(models.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    chosen = order[: int((sizes > _RANK * sizes.max(initial=0.0)).sum())].astype(np.int64)
    return _only(models, chosen)


def best(models: FloatArray, rows: Shard, most: int) -> FloatArray:
    """Return the ``most`` models that are right most often on public rows; zeros for all others (Section 6.2)."""
    present = np.flatnonzero(np.abs(models).max(axis=1) > 0)
    right = ((rows.X @ models[present].T > 0) == (rows.y > 0)[:, None]).mean(axis=0)
    return _only(models, present[np.argsort(-right, kind="stable")[:most]])


def labelled(rows: FloatArray) -> Shard:
    """Read public rows (n, d + 1) as examples whose last column is their labels.

    Raises InvalidInputError for one class.
    """
    shard = Shard(rows[:, :-1], rows[:, -1])
    if len(np.unique(shard.y > 0)) < 2:  # noqa: PLR2004
        raise InvalidInputError("the public rows are all of one class: nothing is to be learnt from them")
    return shard


def check_labelled(facts: FederationFacts) -> None:
    """Raise InvalidInputError unless the run's public rows have the parties' features and a label."""
    _, width = facts.public_size
    if width != facts.n_features + 1:
        raise InvalidInputError(
            f"the public rows have {width} columns: they must be the {facts.n_features} features and a label"
        )


def in_span(basis: FloatArray, shard: Shard) -> Shard:
    """Return the views x' = B x / |B x| of a shard (n, d), in N features; 0 if B x is 0."""
    views = shard.X @ basis.T
    lengths = np.linalg.norm(views, axis=-1, keepdims=True)
    return shard.replaced(np.divide(views, lengths, out=np.zeros_like(views), where=lengths > 0))


def weigh(loss: Loss, basis: FloatArray, rows: Shard, regularization: float) -> FloatArray:
    """Return the second level's weights (N,) without noise, for rows that are no secret."""
    return minimise(loss, in_span(basis, rows), regularization * len(rows.y))


def combined(basis: FloatArray, weights: FloatArray) -> Model:
    """Return the model B^T w, with B and w beside it."""
    return Model(basis.T @ weights, made_of={"span": basis, "site_weights": weights})


def _only(models: FloatArray, chosen: IntArray) -> FloatArray:
    masked = np.zeros_like(models)
    masked[chosen] = models[chosen]
    return masked


# ── the second levels: who weighs sites' models, and by whose rows ───────────

_F = TypeVar("_F", bound=FederationFacts)
Second = Literal["public", "full", "all", "own"]
_DRIFT = 0.25
"""How far noise may move a second level's scores, as a part of a first one's.

Views lie near one line, because sites learn the same, so a stronger ridge loses little. Chosen by looking at MNIST,
KDD99, biopsies and digits: between an eighth and a half none of them loses more than .05 at any epsilon; at one, .11.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The inputs of the release, and the rows for the second level."""

    first: Prepared
    shard: Shard


@dataclass(frozen=True, slots=True)
class Public:
    """The learner weighs, by labelled rows that are no secret; no party is asked.

    It is the base of the other second levels.
    """

    terms: FeatureMethod

    def choose(self, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:
        """Choose the second level's lambda, a third of an example's share, because there is no noise to hold down."""
        if "second_regularization" in given:
            return {}
        n, _ = facts.public_size
        return {"second_regularization": Choice(rounded(0.3 / n), "0.3 / n: no noise has to be held down")}

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask nothing. Raises InvalidInputError if the public rows have another width."""
        check_labelled(facts)
        return ()

    def program(self, basis: FloatArray, facts: FederationFacts, rows: Shard | None) -> Program:
        """Minimise the risk on the public rows."""
        if rows is None:
            raise InvalidInputError("the run names no public rows to weigh the models by")
        basis = fitted(basis, rows)
        return combined(basis, weigh(facts.loss, basis, rows, self.terms.second_regularization))
        yield  # never reached: it makes this a program that asks nothing

    def local(self, query: Query, shard: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Raise InvalidInputError: no party is asked."""
        raise InvalidInputError(f"there is no step {query.step!r}")

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Return None: there is no answer to prove anything about."""
        return None

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray | float:
        """Return 0: there is no answer."""
        return 0.0

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of no answer."""
        return NoEvent()

    def check_noise(self, facts: OwnFacts) -> None:
        """Accept: there is no noise."""

    def releases(self, facts: FederationFacts, index: int) -> bool:
        """Whether this party releases a model in round 1."""
        return True

    def first_facts(self, facts: _F) -> _F:
        """Return the facts with the part of each budget that is for the release."""
        return facts


class Full(Public):
    """One party, the aggregator, weighs by its own rows and under its own budget."""

    __slots__ = ()

    def choose(self, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:
        """Choose the second level's lambda by the rule of releases."""
        if "second_regularization" in given or self.aggregator not in facts.parties:
            return {}
        mechanism = self.terms.second_mechanism
        chosen = strength_by_drift(mechanism, lambda strength: self.site(facts, strength).deviation, _DRIFT)
        site_terms = self.site_terms(facts, cast("float", chosen.value))
        return {"second_regularization": solvable_choice(chosen, [(mechanism, site_terms)])}

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask one question, in which the aggregator alone has a part."""
        if not self.aggregator:
            raise InvalidInputError("second = full needs an aggregator: the party whose rows weigh the others' models")
        check_take_part("aggregator", [self.aggregator], facts.parties)
        if (k := len(facts.parties)) < 2:  # noqa: PLR2004
            raise InvalidInputError("an aggregator alone has no site's model to weigh")
        return (Question("weigh", (k - 1, facts.n_features), k - 1),)

    def program(self, basis: FloatArray, facts: FederationFacts, rows: Shard | None) -> Program:
        """Ask for the aggregator's weights of the others' models. Raises InvalidInputError if it did not answer."""
        place = facts.parties.index(self.aggregator)
        reply = yield Query(2, "weigh", np.delete(basis, place, axis=0))
        if place not in reply.contributors:
            raise InvalidInputError(f"{self.aggregator} did not weigh the models, and nobody else does")
        return combined(basis, np.insert(reply.value, place, 0.0))

    def local(self, query: Query, shard: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the aggregator's private weights (..., K - 1); zeros for all others."""
        answer = np.zeros((*facts.own_epsilon.shape, len(facts.parties) - 1), np.int64)
        indices, place = own_indices(facts), facts.parties.index(self.aggregator)
        if place not in indices:
            return answer
        stacked, site = answer.ndim > 1, self.site(facts)
        index = indices.index(place)
        rows, drawn = (shard.party(index), noise.member(index)) if stacked else (shard, noise)
        prepared = site.prepare([site], in_span(query.message, rows))
        answer[index if stacked else ...] = site.answer([site], prepared, drawn)
        return answer

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Return the proof of the aggregator's release, in the views of its rows."""
        site = self.site(facts)
        if own_indices(facts) != [facts.parties.index(self.aggregator)]:
            return None
        return applied_after(lambda rows: site.prepare([site], in_span(query.message, rows)), type(site).proof([site]))

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray | float:
        """Return the sensitivity of the aggregator's release, and 0 for all others."""
        return np.where(
            parties_where(facts, lambda index: self.releases(facts, index)), 0.0, self.site(facts).output_sensitivity
        )

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of the aggregator's release."""
        return NoEvent() if self.releases(facts, own_indices(facts)[0]) else self.site(facts).event

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the aggregator's noise does not fit on the wire."""
        self.site(facts).check_noise()

    def site(self, facts: FederationFacts, regularization: float | None = None) -> SiteRelease:
        """Return the aggregator's mechanism, in as many features as there are other parties."""
        return set_site(self.terms.second_mechanism, self.site_terms(facts, regularization), self.aggregator)

    def site_terms(self, facts: FederationFacts, regularization: float | None = None) -> SiteTerms:
        """Return the terms of the aggregator's mechanism."""
        terms, place = self.terms, facts.parties.index(self.aggregator)
        n, k, budget = int(facts.n_examples[place]), len(facts.parties) - 1, facts.of(place).strictest
        strength = terms.second_regularization if regularization is None else regularization
        return SiteTerms(facts.loss, n, k, strength, *budget, terms.law, terms.calibration, most_rows=facts.most_rows)

    @property
    def aggregator(self) -> str:
        """The party that weighs, which is one of the run's."""
        return self.terms.aggregator or ""

    def releases(self, facts: FederationFacts, index: int) -> bool:
        """Whether this party is not the aggregator."""
        return facts.parties[index] != self.aggregator


class Own(Full):
    """The aggregator's owner weighs, as learner, for its own use; any other learner gets the models."""

    __slots__ = ()

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask one question if the aggregator is among the parties: they are this owner's view of the run."""
        return Full.questions(self, facts) if self.aggregator in facts.parties else ()

    def program(self, basis: FloatArray, facts: FederationFacts, rows: Shard | None) -> Program:
        """Return the model by the aggregator's weights, or the models."""
        if self.aggregator in facts.parties:
            return (yield from Full.program(self, basis, facts, rows))
        return Model(basis, "members")

    def check_noise(self, facts: OwnFacts) -> None:
        """Accept: the owner adds no noise."""


class All(Public):
    """Every site weighs, by sums of noisy gradients: a descent within the span of their models."""

    __slots__ = ()

    def choose(self, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:
        """Choose the descent's rounds, step and momentum, by the rule of `dp_gd`.

        Raises InvalidInputError without a delta.
        """
        if not facts.delta.all():
            raise InvalidInputError(
                "second = all weighs by noisy gradients, whose Gaussian noise needs a delta above 0: without one, take "
                "second = public, full or own"
            )
        fixed = {name: given[name] for name in ("n_rounds", "step", "momentum") if name in given}
        fixed |= {"regularization": self.terms.second_regularization, "averaging": 0.5, "clip_norm": 1.0}
        return self.descent.choose(self.second_facts(facts), fixed, most_rounds)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask for T sums of gradients. Raises InvalidInputError if these do not hide such rows."""
        self.descent.check_rows(facts)
        return self.descent.questions(self.second_facts(facts))

    def program(self, basis: FloatArray, facts: FederationFacts, rows: Shard | None) -> Program:
        """Run the descent, with each step projected onto the span."""
        inverse = np.linalg.pinv(basis)
        model = yield from self.descent.descend(self.second_facts(facts), 1, lambda w: inverse @ (basis @ w))
        return combined(basis, inverse.T @ model.weights)

    def local(self, query: Query, shard: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return a noisy sum of gradients."""
        return self.descent.local(replace(query, round=query.round - 1), shard, self.second_facts(facts), noise)

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Return the proof of a noisy sum of gradients."""
        return self.descent.proof(query, facts)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return the sensitivity of a sum of gradients."""
        return self.descent.sensitivity(query, facts)

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of a noisy sum of gradients."""
        return self.descent.event(round - 1, self.second_facts(facts))

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the noise on a sum of gradients does not fit on the wire."""
        self.descent.check_noise(self.second_facts(facts))

    @property
    def descent(self) -> DpGd:
        """The descent, as the algorithm `dp_gd`."""
        terms = self.terms
        return DpGd(
            n_rounds=terms.n_rounds,
            step=terms.step,
            momentum=terms.momentum,
            regularization=terms.second_regularization,
        )

    def first_facts(self, facts: _F) -> _F:
        """Return the facts with ``first_part`` of each budget."""
        return _scaled(facts, self.terms.first_part)

    def second_facts(self, facts: _F) -> _F:
        """Return the facts with the part of each budget that is left for the descent."""
        return _scaled(facts, 1 - self.terms.first_part)


def _scaled(facts: _F, part: float) -> _F:
    return replace(facts, epsilon=facts.epsilon * part, delta=facts.delta * part)


SECOND: Mapping[Second, type[Public]] = {"public": Public, "full": Full, "own": Own, "all": All}


# ── the feature method ───────────────────────────────────────────────────────

_SHOWS_THROUGH = "the sites' models are released without noise: their raw minimisers show through every later step"


@algorithm
class FeatureMethod(Releases):
    """Sites' private models, weighed by a second level."""

    second: Annotated[Second, Field(description="whose rows weigh the sites' models")] = "public"
    second_regularization: Regularization = 0.01
    second_mechanism: MechanismChoice = "objective"
    aggregator: Annotated[Identifier | None, Field(description="the party that weighs (full, own)")] = None
    first_part: Annotated[float, Field(gt=0, lt=1, description="of each budget, for the release (all)")] = 0.5
    select: Selection = "all"
    n_selected: Annotated[int, Field(ge=1, le=100_000, description="how many sites the best are (select = best)")] = 5
    n_rounds: Rounds = 10
    step: Step = 1.0
    momentum: Momentum = 0.0
    persons: ClassVar[bool] = True

    @property
    def makes_one_model(self) -> bool:
        """The aggregator's owner alone weighs its models, unless the second level is another one."""
        return self.second != "own"

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:
        """Choose the parameters of the releases, and those of the second level."""
        check_single_score(facts.loss)
        chosen = cls.choose_release(cls(**given).level.first_facts(facts), given)
        level = cls(**dict(given) | {name: choice.value for name, choice in chosen.items()}).level
        return chosen | level.choose(facts, given, most_rounds)

    @classmethod
    def alternatives(cls, facts: FederationFacts, given: Mapping[str, Any]) -> Iterator[Mapping[str, Choice]]:
        """Yield choices for the releases."""
        return cls.other_releases(cls(**given).level.first_facts(facts), given)

    @classmethod
    def for_owner(cls, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Let an owner who learns weigh the models by its own rows, unless ``given`` says otherwise."""
        return {"second": "own", "aggregator": name} | dict(given)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask for the releases, and then what the second level asks."""
        check_single_score(facts.loss)
        self.check_sites(facts)
        return ask_models("release", (0,), facts), *self.level.questions(facts)

    def program(self, facts: FederationFacts) -> Program:
        """Collect the models, and let the second level weigh them."""
        rows = labelled(facts.public_rows) if self.public_rows == "labelled" else None
        reveal = ask_models("release", (0,), facts).reveal
        models = collected((yield Query(1, "release", np.zeros(0), reveal)), facts)
        basis = spanned(selected(models, self.select, rows, self.n_selected))
        return (yield from self.level.program(basis, facts, rows))

    def prepare(self, shard: Shard, facts: OwnFacts) -> Levels:
        """Compute the release's inputs before noise, and keep the rows for a second level."""
        return Levels(Releases.prepare(self, shard, self.level.first_facts(facts)), shard)

    def local(self, query: Query, prepared: Levels, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the release, in its row of the stack under a secure sum; or the second level's answer."""
        if query.step != "release":
            return self.level.local(query, prepared.shard, facts, noise)
        return self._in_place(self.release(prepared.first, facts, noise), facts)

    def _in_place(self, released: IntArray, facts: OwnFacts) -> IntArray:
        """Put releases (..., d) into their rows of the stack under a secure sum; zeros for parties without one."""
        part = parties_where(facts, lambda index: self.level.releases(facts, index))
        return placed(released * part[..., None], facts)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray | float:
        """Return the sensitivity of a release, 0 for a party without one; or the second level's."""
        if query.step != "release":
            return self.level.sensitivity(query, facts)
        part = parties_where(facts, lambda index: self.level.releases(facts, index))
        return np.where(part, self.output_sensitivity(self.level.first_facts(facts)), 0.0)

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Return the proof of the release, put in its place; or the second level's."""
        if query.step != "release":
            return applied_after(lambda prepared: prepared.shard, self.level.proof(query, facts))
        first = self.level.first_facts(facts)
        proof = applied_after(lambda prepared: prepared.first, self.proof_of_release(first))
        return read_after(
            proof,
            lambda prepared, noise: self.release(prepared.first, facts, noise),
            lambda released: self._in_place(released, facts),
            places_only=True,
        )

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of the release, or the second level's."""
        if round > 1:
            return self.level.event(round, facts)
        releases = self.level.releases(facts, own_indices(facts)[0])
        return self.cost(self.level.first_facts(facts)) if releases else NoEvent()

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the noise of a release or of the second level does not fit on the wire."""
        Releases.check_noise(self, self.level.first_facts(facts))
        self.level.check_noise(facts)

    def whole_noise(self, round: int) -> bool:
        """Whether every site adds all of its noise: except for sums of gradients."""
        return round == 1 or self.second != "all"

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Return which noise is drawn in floating point, and that raw models show, if some are released."""
        first = self.level.first_facts(facts)
        raw = any(isinstance(site.event, NonPrivateEvent) for site in self.own_sites(first))
        return (*Releases.assumptions(self, first), *((_SHOWS_THROUGH,) if raw else ()))

    @property
    def noise_is_gaussian(self) -> bool:
        """Whether all is, in both levels: an aggregator's release too."""
        first = super(FeatureMethod, self).noise_is_gaussian  # noqa: UP008 -- slots make it another
        return first and (self.second not in {"full", "own"} or self.second_mechanism == "output")

    @property
    def level(self) -> Public:
        """The second level."""
        return SECOND[self.second](self)

    @property
    def public_rows(self) -> PublicRowsNeeded:
        """The kind of public rows: labelled ones, if models are weighed or ranked by them."""
        return "labelled" if self.second == "public" or self.select == "best" else "none"

    @property
    def roles(self) -> bool:
        """Whether a party's part depends on which party it is, as an aggregator's does."""
        return bool(self.sites) or self.second in {"full", "own"}


# ── the multilevel feature method ────────────────────────────────────────────


class Node(Strict):
    """A party that weighs the releases of others, its children."""

    party: Identifier
    children: Annotated[tuple[Identifier, ...], Field(min_length=1)]


Nodes = Annotated[
    tuple[Node, ...],
    Field(description="the parties above others, each with its children; none: the last party is above all others"),
]


def levels_of(nodes: Sequence[Node], parties: Sequence[str]) -> Mapping[str, int]:
    """Return each party's level by name: 0 for a leaf, and one more than the highest of its children's for a node.

    Without nodes the last party is above all others.

    Raises:
        InvalidInputError: a party is unknown, twice in the tree, a child of two, in a circle, or left out, or there is
            not one root; the message names the parties.
    """
    children = children_of(nodes, parties)
    below = [child for names in children.values() for child in names]
    if twice := _repeated(below):
        raise InvalidInputError(f"{', '.join(twice)}: a node stands in a tree once, under one other")
    if alone := sorted(set(parties) - {*children, *below}):
        raise InvalidInputError(f"{', '.join(alone)}: alone, neither above nor below any other")
    levels: dict[str, int] = {party: 0 for party in parties if party not in children}
    while waiting := [party for party in children if party not in levels]:
        ready = [party for party in waiting if all(child in levels for child in children[party])]
        if not ready:
            raise InvalidInputError(f"{', '.join(sorted(waiting))}: in a circle, or above one")
        levels |= {party: 1 + max(levels[child] for child in children[party]) for party in ready}
    if len(roots := sorted(set(parties) - set(below))) != 1:
        raise InvalidInputError(f"a tree has one root, and {', '.join(roots)} are below nobody")
    return levels


def children_of(nodes: Sequence[Node], parties: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the children of each party that has some.

    Raises InvalidInputError if a party is unknown, or has children in two nodes.
    """
    if not nodes:
        if len(parties) < 2:  # noqa: PLR2004
            raise InvalidInputError(f"{parties[0]}: alone, neither above nor below any other")
        return {parties[-1]: tuple(parties[:-1])}
    check_take_part("the tree", [name for node in nodes for name in (node.party, *node.children)], parties)
    if twice := _repeated(node.party for node in nodes):
        raise InvalidInputError(f"{', '.join(twice)}: a node stands in a tree once")
    return {node.party: node.children for node in nodes}


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, times in Counter(names).items() if times > 1)


_WHO_SEES_WHAT = "the learner sees every site's release, and sites that are asked see those of the levels below them"


@algorithm
class MultilevelFeature(Releases):
    """A private model that climbs a tree of sites."""

    tree: Nodes = ()
    persons: ClassVar[bool] = True

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask one question for each level, from the leaves up.

        Raises InvalidInputError if the nodes are no tree of the parties.
        """
        check_single_score(facts.loss)
        self.check_sites(facts)
        k, d = len(facts.parties), facts.n_features
        depth = max(levels_of(self.tree, facts.parties).values())
        above = (ask_models(f"level-{level}", (k, d), facts) for level in range(1, depth + 1))
        return ask_models("leaves", (0,), facts), *above

    def program(self, facts: FederationFacts) -> Program:
        """Ask level by level, and return the root's model. Raises InvalidInputError if the root did not answer."""
        models = np.zeros((len(facts.parties), facts.n_features))
        levels = levels_of(self.tree, facts.parties)
        for round, question in enumerate(self.questions(facts), start=1):
            message = models if round > 1 else np.zeros(0)
            reply = yield Query(round, question.step, message, question.reveal)
            models = models + collected(reply, facts)
        root = max(range(len(facts.parties)), key=lambda index: levels[facts.parties[index]])
        if root not in reply.contributors:
            raise InvalidInputError(f"{facts.parties[root]}, the root of the tree, did not answer")
        return Model(models[root], made_of={"releases": models})

    def prepare(self, shard: Shard, facts: OwnFacts) -> Shard:
        """Return the rows unchanged, because what a site learns from depends on the releases below it."""
        return shard

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the releases of the sites of a level; zeros for all others."""
        indices, stacked = own_indices(facts), prepared.y.ndim > 1
        answer = np.zeros((len(indices), facts.n_features), np.int64)
        for place in np.flatnonzero(self._has_part(query.round, facts)).tolist():
            rows, drawn = (prepared.party(place), noise.member(place)) if stacked else (prepared, noise)
            answer[place] = self._release(query.message, rows, facts, indices[place], drawn)
        return placed(answer if stacked else answer[0], facts)

    def _release(self, models: FloatArray, rows: Shard, facts: FederationFacts, index: int, noise: Noise) -> IntArray:
        """Return one site's release, (d,), clipped at the largest weights.

        A refusal instead would reveal something about it, for nothing in return.
        """
        site = self.node(facts, index)
        basis = self._basis(models, facts, index)
        return _of_rows(basis, site.answer([site], site.prepare([site], _views(basis, rows)), noise))

    def _basis(self, models: FloatArray, facts: FederationFacts, index: int) -> FloatArray | None:
        """Return the models that a site weighs, those of its children; None for a leaf."""
        below = self._below(facts, index)
        return spanned(models[below]) if below else None

    def node(self, facts: FederationFacts, index: int) -> SiteRelease:
        """Return a site's mechanism: in as many features as it has children, or in those of the rows for a leaf."""
        mechanism, terms = self.terms(facts, index)
        n_features = len(self._below(facts, index)) or facts.n_features
        return set_site(mechanism, replace(terms, n_features=n_features), facts.parties[index])

    def own_sites(self, facts: OwnFacts) -> tuple[SiteRelease, ...]:
        """Return the mechanisms, as `node` does, of the parties that the facts are about."""
        return tuple(self.node(facts, index) for index in own_indices(facts))

    def _below(self, facts: FederationFacts, index: int) -> list[int]:
        children = children_of(self.tree, facts.parties).get(facts.parties[index], ())
        return [facts.parties.index(child) for child in children]

    def _has_part(self, round: int, facts: OwnFacts) -> BoolArray:
        """Return whether a round asks this site's level, (...)."""
        levels = levels_of(self.tree, facts.parties)
        return parties_where(facts, lambda index: levels[facts.parties[index]] == round - 1)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray:
        """Return the sensitivity of a site's release before it becomes a model of the rows; 0 without a part."""
        return np.where(self._has_part(query.round, facts), self.output_sensitivity(facts), 0.0)

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Return the proof of a site's release, in the views of its rows."""
        index = own_indices(facts)[0]
        if not self._has_part(query.round, facts).all():
            return None
        site, basis = self.node(facts, index), self._basis(query.message, facts, index)

        def release(rows: Shard, noise: Noise) -> IntArray:
            return site.answer([site], site.prepare([site], _views(basis, rows)), noise)

        inner = applied_after(lambda rows: site.prepare([site], _views(basis, rows)), type(site).proof([site]))
        return read_after(inner, release, lambda released: placed(_of_rows(basis, released), facts))

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of the release, in its round."""
        (index,) = own_indices(facts)
        return self.node(facts, index).event if self._has_part(round, facts) else NoEvent()

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Return what releases assume, and who sees which of them."""
        return (*Releases.assumptions(self, facts), _WHO_SEES_WHAT)

    @property
    def roles(self) -> bool:
        """Always true: each party has its place in the tree."""
        return True


def _views(basis: FloatArray | None, rows: Shard) -> Shard:
    """Return a site's rows in the features that its children's models give; a leaf's rows unchanged."""
    return rows if basis is None else in_span(basis, rows)


def _of_rows(basis: FloatArray | None, released: IntArray) -> IntArray:
    """Return a site's release (n,) as a model of the rows themselves, (d,)."""
    if basis is None:
        return released
    return to_integers(np.clip(basis.T @ to_reals(released), -MAX_NORM, MAX_NORM))
