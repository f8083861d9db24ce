"""The feature method: a second level of learning in the span of sites' private models.

Xie's thesis, Algorithm 5, on what Chaudhuri et al. 2011 and Kifer et al. 2012 release
(`parley.common.algorithms.release`) in round 1. Then, by ``second``:

- ``public``: the learner weighs the models by labelled rows that are no secret. Nobody pays any more.
- ``full``: one party, the ``aggregator``, weighs them by its own rows, and releases the weights under its own budget,
  which it has not touched in round 1.
- ``all``: every site again, by noisy gradients on which the learner descends within the span (`dp_gd`), so that the
  noise of d dimensions is met in N. ``first_part`` of each budget goes to the release.
- ``own``: the owner of the ``aggregator``, as learner (``parley-party learn``), weighs them by its own rows, without
  noise, for its own eyes. Any other learner gets the models, over a number.

Under a secure sum sites add up a stack in which each has a row: the sum shows every release and nothing else. The
thesis's scenario 2, in which the aggregator alone adds noise, is ``mechanism="none"``: it hides nothing of the sites.

What the feature methods share: the span of sites' models, and a second level of learning within it.

Xie's thesis, Chapter 5: the models f_1, ..., f_N that sites release are the rows of M (N, d); a second level learns
from what they make of a row x, and its weights w (N,) say how much each site counts for: the model is B^T w, B being M
over a number, so that B x is about 1 long.

What they make of x is its view x' = B x / |B x|, of length 1 whatever x: which side of a hyperplane through 0 a row
lies on does not hang on its length, and noise is as large whether views are long or short. The thesis divides all views
by the longest of the second level's own rows instead, which tells of them. Dividing by |M|_op, which is safe too, left
views so short that noise drowned them: of threes and sevens at ten sites of epsilon = .1 (`scripts.figures.xie`) an
aggregator's model was wrong in .44 of test rows, now in .32; of KDD99's connections in .24, now in .10. The choice was
made by looking at these, and is no claim for others.

Who weighs sites' models, and by whose rows: the four second levels of `parley.common.algorithms.feature`.

Rounds are the run's: the first is the release, so a second level's begin with 2.

A tree of parties: who releases to whom, level by level.

The multilevel feature method: releases climb a tree of sites, each weighing those of its children.

Xie's thesis, Section 6.1 and Fig. 6.1, on what Chaudhuri et al. 2011 and Kifer et al. 2012 release. A leaf releases a
private model of its own rows. A node above leaves maps its own rows to what its children's models make of them, 1 long
(`parley.common.algorithms.feature`), learns private weights w from these, and releases B^T w, a model of the rows
themselves. The root's is the model. Each level is a round, whose message carries the releases of all levels below; each
site has a part in one round, and is charged once, for it uses its rows once.

*Who sees what*: the learner every release, and each site that is asked the releases of the levels below it. All of them
are private, so what anybody does with them is post-processing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field
from scipy.linalg import qr

from parley.common.algorithms._parameters import Regularization, Rounds, Step, algorithm, check_take_part, rounded
from parley.common.algorithms._regularization import choose_regularization
from parley.common.algorithms.dp_gd import DpGd, Momentum
from parley.common.algorithms.release import (
    DRIFTS,
    MechanismChoice,
    Prepared,
    Releases,
    own_indices,
    set_site,
    solvable_choice,
    those,
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

_RANK = 1e-9
"""A model that adds less than this to the span of others, in parts of the longest, adds nothing."""

Selected = Literal["all", "independent", "best"]
Selection = Annotated[
    Selected,
    Field(description="which sites' models span the second level: all, linearly independent ones, or the best"),
]


def spanned(models: FloatArray) -> FloatArray:
    """B = sqrt(d) M / |M|_F of models (K, d), those without a part zero.

    Of rows of length 1 whose directions are all alike, the mean of |B x|^2 is 1: so scores are about those of views.
    """
    norm = float(np.linalg.norm(models))
    return models * (math.sqrt(models.shape[1]) / norm) if norm > 0 else models


def fitted(basis: FloatArray, rows: Shard) -> FloatArray:
    """B over the mean of |B x|, by rows that are no secret."""
    mean = float(np.linalg.norm(rows.X @ basis.T, axis=1).mean())
    return basis / mean if mean > 0 else basis


def ask_models(step: str, message: tuple[int, ...], facts: FederationFacts) -> Question:
    """The question for sites' models: for each, or under a secure sum for their stack, in which each has a row."""
    if facts.secure_sum:
        return Question(step, message, len(facts.parties) * facts.n_features)
    return Question(step, message, facts.n_features, "each")


def placed(models: IntArray, facts: OwnFacts) -> IntArray:
    """Answers to `ask_models` of models (..., d): as they are, or in their rows of the stack."""
    if not facts.secure_sum:
        return models
    rows = np.eye(len(facts.parties), dtype=np.int64)[facts.index]
    return np.asarray(rows[..., None] * models[..., None, :]).reshape(*models.shape[:-1], -1)


def collected(reply: Reply, facts: FederationFacts) -> FloatArray:
    """The models (K, d) of a reply to `ask_models`; zero of who did not answer."""
    k = len(facts.parties)
    if reply.value.ndim == 1:
        return reply.value.reshape(k, facts.n_features)
    models = np.zeros((k, facts.n_features))
    models[list(reply.contributors)] = reply.value
    return models


def selected(models: FloatArray, selection: Selected, rows: Shard | None, most: int) -> FloatArray:
    """The models of a selection, the rest zero; the best by public ``rows``."""
    if selection == "independent":
        return independent(models)
    return models if selection == "all" or rows is None else best(models, rows, most)


def independent(models: FloatArray) -> FloatArray:
    """The models that add most to the span of others, at most d of them; the rest zero (Section 6.2)."""
    _, triangle, order = qr(models.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    kept = order[: int((sizes > _RANK * sizes.max(initial=0.0)).sum())].astype(np.int64)
    return _only(models, kept)


def best(models: FloatArray, rows: Shard, most: int) -> FloatArray:
    """The ``most`` models that are right most often on public rows; the rest zero (Section 6.2)."""
    present = np.flatnonzero(np.abs(models).max(axis=1) > 0)
    right = ((rows.X @ models[present].T > 0) == (rows.y > 0)[:, None]).mean(axis=0)
    return _only(models, present[np.argsort(-right, kind="stable")[:most]])


def labelled(rows: FloatArray) -> Shard:
    """Public rows (n, d + 1) as examples, the last column their labels; raises InvalidInputError for one class."""
    shard = Shard(rows[:, :-1], rows[:, -1])
    if len(np.unique(shard.y > 0)) < 2:  # noqa: PLR2004
        raise InvalidInputError("the public rows are all of one class: nothing is to be learnt from them")
    return shard


def check_labelled(facts: FederationFacts) -> None:
    """Raise InvalidInputError unless the run's public rows are of the parties' features and a label."""
    _, width = facts.public_size
    if width != facts.n_features + 1:
        raise InvalidInputError(
            f"the public rows have {width} columns: they must be the {facts.n_features} features and a label"
        )


def in_span(basis: FloatArray, shard: Shard) -> Shard:
    """The examples x' = B x / |B x| of a shard (n, d), in N features; 0 where B x is."""
    views = shard.X @ basis.T
    lengths = np.linalg.norm(views, axis=-1, keepdims=True)
    return Shard(np.divide(views, lengths, out=np.zeros_like(views), where=lengths > 0), shard.y, shard.mask)


def weigh(loss: Loss, basis: FloatArray, rows: Shard, regularization: float) -> FloatArray:
    """The second level's weights (N,) without noise, for rows that are no secret."""
    return minimise(loss, in_span(basis, rows), regularization * len(rows.y))


def combined(basis: FloatArray, weights: FloatArray) -> Model:
    """B^T w, with what it is made of."""
    return Model(basis.T @ weights, made_of={"span": basis, "site_weights": weights})


def _only(models: FloatArray, kept: IntArray) -> FloatArray:
    some = np.zeros_like(models)
    some[kept] = models[kept]
    return some


_F = TypeVar("_F", bound=FederationFacts)
Second = Literal["public", "full", "all", "own"]
_DRIFT = 0.25
"""How far noise may move a second level's scores, in parts of a first one's.

Views lie near one line, for sites learn the same, so that a stronger ridge loses little. Chosen by looking at MNIST,
KDD99, biopsies and digits: between an eighth and a half none of them loses more than .05 at any epsilon; at one, .11.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """What the first level is released from, and the rows of the second."""

    first: Prepared
    shard: Shard


@dataclass(frozen=True, slots=True)
class Public:
    """The learner, by labelled rows that are no secret; nobody is asked. The base of the others."""

    terms: FeatureMethod

    def choose(self, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:
        """The second level's lambda: a third of an example's share, for there is no noise to hold down."""
        if "second_regularization" in given:
            return {}
        n, _ = facts.public_size
        return {"second_regularization": Choice(rounded(0.3 / n), "0.3 / n: no noise has to be held down")}

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """None; raises InvalidInputError for rows of another width."""
        check_labelled(facts)
        return ()

    def program(self, basis: FloatArray, facts: FederationFacts, rows: Shard | None) -> Program:
        """The least risk on the public rows."""
        if rows is None:
            raise InvalidInputError("the run names no public rows to weigh the models by")
        basis = fitted(basis, rows)
        return combined(basis, weigh(facts.loss, basis, rows, self.terms.second_regularization))
        yield  # never: it makes this a program that asks nothing

    def local(self, query: Query, shard: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Never asked."""
        raise InvalidInputError(f"there is no step {query.step!r}")

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Of nothing."""
        return None

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray | float:
        """Of nothing."""
        return 0.0

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Nothing."""
        return NoEvent()

    def check_noise(self, facts: OwnFacts) -> None:
        """There is none."""

    def releases(self, facts: FederationFacts, index: int) -> bool:
        """Whether a party releases a model in round 1."""
        return True

    def first_facts(self, facts: _F) -> _F:
        """The facts with what each budget leaves to the release."""
        return facts


class Full(Public):
    """One party, the aggregator, by its own rows, and under its own budget."""

    __slots__ = ()

    def choose(self, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:
        """The second level's lambda, by the rule of releases."""
        if "second_regularization" in given or self.aggregator not in facts.parties:
            return {}
        drift = _DRIFT * DRIFTS[self.terms.second_mechanism]
        chosen = choose_regularization({}, self.site(facts, 1.0).deviation, drift)["regularization"]
        told = self.told(facts, float(chosen.value))
        return {"second_regularization": solvable_choice(chosen, [(self.terms.second_mechanism, told)])}

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One, which the aggregator alone has a part in."""
        if not self.aggregator:
            raise InvalidInputError("second = full needs an aggregator: the party whose rows weigh the others' models")
        check_take_part("aggregator", [self.aggregator], facts.parties)
        if (k := len(facts.parties)) < 2:  # noqa: PLR2004
            raise InvalidInputError("an aggregator alone has no site's model to weigh")
        return (Question("weigh", (k - 1, facts.n_features), k - 1),)

    def program(self, basis: FloatArray, facts: FederationFacts, rows: Shard | None) -> Program:
        """The aggregator's weights of the others' models; raises InvalidInputError where it did not answer."""
        place = facts.parties.index(self.aggregator)
        reply = yield Query(2, "weigh", np.delete(basis, place, axis=0))
        if place not in reply.contributors:
            raise InvalidInputError(f"{self.aggregator} did not weigh the models, and nobody else does")
        return combined(basis, np.insert(reply.value, place, 0.0))

    def local(self, query: Query, shard: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The aggregator's private weights (..., K - 1); zeros of everybody else."""
        answer = np.zeros((*facts.own_epsilon.shape, len(facts.parties) - 1), np.int64)
        own, place = own_indices(facts), facts.parties.index(self.aggregator)
        if place not in own:
            return answer
        stacked, site = answer.ndim > 1, self.site(facts)
        index = own.index(place)
        rows, drawn = (shard.party(index), noise.member(index)) if stacked else (shard, noise)
        prepared = site.prepare([site], in_span(query.message, rows))
        answer[index if stacked else ...] = site.answer([site], prepared, drawn)
        return answer

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """The aggregator's release, in the features that the models make of its rows."""
        site = self.site(facts)
        if own_indices(facts) != [facts.parties.index(self.aggregator)]:
            return None
        return applied_after(lambda rows: site.prepare([site], in_span(query.message, rows)), type(site).proof([site]))

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray | float:
        """The aggregator's, and 0 of everybody else."""
        return np.where(those(facts, lambda index: self.releases(facts, index)), 0.0, self.site(facts).moved)

    def event(self, round: int, facts: OwnFacts) -> Event:
        """The aggregator's release."""
        return NoEvent() if self.releases(facts, own_indices(facts)[0]) else self.site(facts).event

    def check_noise(self, facts: OwnFacts) -> None:
        """The aggregator's."""
        self.site(facts).check_noise()

    def site(self, facts: FederationFacts, regularization: float | None = None) -> SiteRelease:
        """The aggregator's mechanism, in as many features as there are other parties."""
        return set_site(self.terms.second_mechanism, self.told(facts, regularization), self.aggregator)

    def told(self, facts: FederationFacts, regularization: float | None = None) -> SiteTerms:
        """What the aggregator's mechanism is told."""
        terms, place = self.terms, facts.parties.index(self.aggregator)
        n, k, budget = int(facts.n_examples[place]), len(facts.parties) - 1, facts.of(place).strictest
        strength = terms.second_regularization if regularization is None else regularization
        return SiteTerms(facts.loss, n, k, strength, *budget, terms.law, terms.calibration)

    @property
    def aggregator(self) -> str:
        """The party that weighs, which is one of the run's."""
        return self.terms.aggregator or ""

    def releases(self, facts: FederationFacts, index: int) -> bool:
        """All but the aggregator."""
        return facts.parties[index] != self.aggregator


class Own(Full):
    """The aggregator's owner as learner, for its own eyes; any other learner gets the models, over a number."""

    __slots__ = ()

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One, if the aggregator is among the parties: then they are this owner's view of the run."""
        return Full.questions(self, facts) if self.aggregator in facts.parties else ()

    def program(self, basis: FloatArray, facts: FederationFacts, rows: Shard | None) -> Program:
        """The aggregator's weights, or the models."""
        if self.aggregator in facts.parties:
            return (yield from Full.program(self, basis, facts, rows))
        return Model(basis, "members")

    def check_noise(self, facts: OwnFacts) -> None:
        """The owner adds none."""


class All(Public):
    """Every site, by sums of noisy gradients: a descent within the span of their models."""

    __slots__ = ()

    def choose(self, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:
        """The descent's rounds, step and momentum, by its own rule."""
        known = {name: given[name] for name in ("n_rounds", "step", "momentum") if name in given}
        known |= {"regularization": self.terms.second_regularization, "averaging": 0.5, "clip_norm": 1.0}
        return self.descent.choose(self.second_facts(facts), known, most_rounds)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """T sums of gradients."""
        return self.descent.questions(self.second_facts(facts))

    def program(self, basis: FloatArray, facts: FederationFacts, rows: Shard | None) -> Program:
        """The descent, each step projected onto the span."""
        inverse = np.linalg.pinv(basis)
        model = yield from self.descent.descend(self.second_facts(facts), 1, lambda w: inverse @ (basis @ w))
        return combined(basis, inverse.T @ model.weights)

    def local(self, query: Query, shard: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """A noisy sum of gradients."""
        return self.descent.local(replace(query, round=query.round - 1), shard, self.second_facts(facts), noise)

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Of a sum of gradients."""
        return self.descent.proof(query, facts)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Of a sum of gradients."""
        return self.descent.sensitivity(query, facts)

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Of a sum of gradients."""
        return self.descent.event(round - 1, self.second_facts(facts))

    def check_noise(self, facts: OwnFacts) -> None:
        """On a sum of gradients."""
        self.descent.check_noise(self.second_facts(facts))

    @property
    def descent(self) -> DpGd:
        """The descent by itself."""
        terms = self.terms
        return DpGd(
            n_rounds=terms.n_rounds,
            step=terms.step,
            momentum=terms.momentum,
            regularization=terms.second_regularization,
        )

    def first_facts(self, facts: _F) -> _F:
        """With a part of each budget."""
        return _scaled(facts, self.terms.first_part)

    def second_facts(self, facts: _F) -> _F:
        """The facts with what each budget leaves to the descent."""
        return _scaled(facts, 1 - self.terms.first_part)


def _scaled(facts: _F, part: float) -> _F:
    return replace(facts, epsilon=facts.epsilon * part, delta=facts.delta * part)


SECOND: Mapping[Second, type[Public]] = {"public": Public, "full": Full, "own": Own, "all": All}


_SHOWS_THROUGH = "the sites' models are released as they are: their raw minimisers show through, whatever comes after"


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

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:
        """As for releases, and what the second level chooses."""
        check_single_score(facts.loss)
        chosen = cls.choose_release(cls(**given).level.first_facts(facts), given)
        level = cls(**dict(given) | {name: choice.value for name, choice in chosen.items()}).level
        return chosen | level.choose(facts, given, most_rounds)

    @classmethod
    def for_owner(cls, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """An owner who learns weighs the models by its own rows, unless it says otherwise."""
        return {"second": "own", "aggregator": name} | dict(given)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """The releases; then what the second level asks."""
        check_single_score(facts.loss)
        self.check_sites(facts)
        return ask_models("release", (0,), facts), *self.level.questions(facts)

    def program(self, facts: FederationFacts) -> Program:
        """Collect the models, and have them weighed."""
        rows = labelled(facts.public_rows) if self.public_rows == "labelled" else None
        reveal = ask_models("release", (0,), facts).reveal
        models = collected((yield Query(1, "release", np.zeros(0), reveal)), facts)
        basis = spanned(selected(models, self.select, rows, self.n_selected))
        return (yield from self.level.program(basis, facts, rows))

    def prepare(self, shard: Shard, facts: OwnFacts) -> Levels:
        """What comes before the noise of the release, and the rows for a second level."""
        return Levels(Releases.prepare(self, shard, self.level.first_facts(facts)), shard)

    def local(self, query: Query, prepared: Levels, facts: OwnFacts, noise: Noise) -> IntArray:
        """The release, in its row of the stack where sums alone are seen; or what the second level asks."""
        if query.step != "release":
            return self.level.local(query, prepared.shard, facts, noise)
        return self._in_place(self.release(prepared.first, facts, noise), facts)

    def _in_place(self, released: IntArray, facts: OwnFacts) -> IntArray:
        """Releases (..., d) of those who make one, in their rows where sums alone are seen; zeros of others."""
        part = those(facts, lambda index: self.level.releases(facts, index))
        return placed(released * part[..., None], facts)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray | float:
        """That of a release, 0 of who has none; or the second level's."""
        if query.step != "release":
            return self.level.sensitivity(query, facts)
        part = those(facts, lambda index: self.level.releases(facts, index))
        return np.where(part, self.moved(self.level.first_facts(facts)), 0.0)

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Of the release, put in its place; or the second level's."""
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
        """The release's, or the second level's."""
        if round > 1:
            return self.level.event(round, facts)
        releases = self.level.releases(facts, own_indices(facts)[0])
        return self.cost(self.level.first_facts(facts)) if releases else NoEvent()

    def check_noise(self, facts: OwnFacts) -> None:
        """Of each release, and of the second level."""
        Releases.check_noise(self, self.level.first_facts(facts))
        self.level.check_noise(facts)

    def whole_noise(self, round: int) -> bool:
        """But for sums of gradients."""
        return round == 1 or self.second != "all"

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """What is drawn in floating point, and what raw models show."""
        first = self.level.first_facts(facts)
        raw = any(isinstance(site.event, NonPrivateEvent) for site in self.own_sites(first))
        return (*Releases.assumptions(self, first), *((_SHOWS_THROUGH,) if raw else ()))

    @property
    def level(self) -> Public:
        """The second level."""
        return SECOND[self.second](self)

    @property
    def public_rows(self) -> PublicRowsNeeded:
        """Labelled ones, to weigh or to rank by."""
        return "labelled" if self.second == "public" or self.select == "best" else "none"

    @property
    def roles(self) -> bool:
        """An aggregator's is another part than a site's."""
        return bool(self.sites) or self.second in {"full", "own"}


class Node(Strict):
    """A party that weighs the releases of others, its children."""

    party: Identifier
    children: Annotated[tuple[Identifier, ...], Field(min_length=1)]


Nodes = Annotated[
    tuple[Node, ...],
    Field(description="the parties above others, each with its children; none: the last party is above all others"),
]


def levels_of(nodes: Sequence[Node], parties: Sequence[str]) -> Mapping[str, int]:
    """Each party's level by name: 0 of a leaf, else one more than the highest of its children's.

    Without nodes the last party is above all others. Raises InvalidInputError that names who is unknown, twice in the
    tree or a child of two, in a circle, or left out; and where there is not one root.
    """
    children = children_of(nodes, parties)
    below = [child for each in children.values() for child in each]
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
    """The children of those that have some.

    Raises InvalidInputError for one that is unknown, and for a party that is said to have some twice.
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

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One a level, from the leaves up; raises InvalidInputError for what is no tree of the parties."""
        check_single_score(facts.loss)
        self.check_sites(facts)
        k, d = len(facts.parties), facts.n_features
        depth = max(levels_of(self.tree, facts.parties).values())
        above = (ask_models(f"level-{level}", (k, d), facts) for level in range(1, depth + 1))
        return ask_models("leaves", (0,), facts), *above

    def program(self, facts: FederationFacts) -> Program:
        """Ask level by level; return the root's model. Raises InvalidInputError where the root did not answer."""
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
        """Nothing: what a site learns from hangs on those below it."""
        return shard

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The releases of the sites of a level; zeros of all others."""
        own, stacked = own_indices(facts), prepared.y.ndim > 1
        answer = np.zeros((len(own), facts.n_features), np.int64)
        for place in np.flatnonzero(self._has_part(query.round, facts)).tolist():
            rows, drawn = (prepared.party(place), noise.member(place)) if stacked else (prepared, noise)
            answer[place] = self._release(query.message, rows, facts, own[place], drawn)
        return placed(answer if stacked else answer[0], facts)

    def _release(self, models: FloatArray, rows: Shard, facts: FederationFacts, index: int, noise: Noise) -> IntArray:
        """One site's release, (d,), cut off at the largest weights: a refusal would tell of it, for nothing."""
        site = self.node(facts, index)
        basis = self._basis(models, facts, index)
        return _of_rows(basis, site.answer([site], site.prepare([site], _views(basis, rows)), noise))

    def _basis(self, models: FloatArray, facts: FederationFacts, index: int) -> FloatArray | None:
        """What a site weighs: the models of its children; None of a leaf."""
        below = self._below(facts, index)
        return spanned(models[below]) if below else None

    def node(self, facts: FederationFacts, index: int) -> SiteRelease:
        """A site's mechanism: in as many features as it has children, or in those of the rows."""
        mechanism, terms = self.terms(facts, index)
        n_features = len(self._below(facts, index)) or facts.n_features
        return set_site(mechanism, replace(terms, n_features=n_features), facts.parties[index])

    def own_sites(self, facts: OwnFacts) -> tuple[SiteRelease, ...]:
        """As `node`."""
        return tuple(self.node(facts, index) for index in own_indices(facts))

    def _below(self, facts: FederationFacts, index: int) -> list[int]:
        children = children_of(self.tree, facts.parties).get(facts.parties[index], ())
        return [facts.parties.index(child) for child in children]

    def _has_part(self, round: int, facts: OwnFacts) -> BoolArray:
        """Whether it is a site's level that a round asks, (...)."""
        levels = levels_of(self.tree, facts.parties)
        return those(facts, lambda index: levels[facts.parties[index]] == round - 1)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray:
        """Of a site's release before it is put into the features of the rows; 0 of those that have no part."""
        return np.where(self._has_part(query.round, facts), self.moved(facts), 0.0)

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Of a site's release, in the features that its rows have to it."""
        index = own_indices(facts)[0]
        if not self._has_part(query.round, facts).all():
            return None
        site, basis = self.node(facts, index), self._basis(query.message, facts, index)

        def release(rows: Shard, noise: Noise) -> IntArray:
            return site.answer([site], site.prepare([site], _views(basis, rows)), noise)

        inner = applied_after(lambda rows: site.prepare([site], _views(basis, rows)), type(site).proof([site]))
        return read_after(inner, release, lambda released: placed(_of_rows(basis, released), facts))

    def event(self, round: int, facts: OwnFacts) -> Event:
        """The release's, in its round."""
        (index,) = own_indices(facts)
        return self.node(facts, index).event if self._has_part(round, facts) else NoEvent()

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Who sees what."""
        return (*Releases.assumptions(self, facts), _WHO_SEES_WHAT)

    @property
    def roles(self) -> bool:
        """Each party has its place in the tree."""
        return True


def _views(basis: FloatArray | None, rows: Shard) -> Shard:
    """A site's rows in the features that its children's models make of them; of a leaf, as they are."""
    return rows if basis is None else in_span(basis, rows)


def _of_rows(basis: FloatArray | None, released: IntArray) -> IntArray:
    """A site's release (n,) as a model of the rows themselves, (d,)."""
    if basis is None:
        return released
    return to_integers(np.clip(basis.T @ to_reals(released), -MAX_NORM, MAX_NORM))
