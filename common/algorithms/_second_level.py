"""Who weighs sites' models, and by whose rows: the four second levels of `parley.common.algorithms.feature`.

Rounds are the run's: the first is the release, so a second level's begin with 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from parley.common.algorithms._parameters import check_take_part, rounded
from parley.common.algorithms._regularization import choose_regularization
from parley.common.algorithms._releases import DRIFTS, Prepared, own_indices, set_site, solvable_choice, those
from parley.common.algorithms._span import check_labelled, combined, fitted, in_span, weigh
from parley.common.algorithms.dp_gd import DpGd
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.model import Model
from parley.common.privacy.events import Event, NoEvent
from parley.common.privacy.mechanisms.site import SiteRelease, SiteTerms
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Proof, applied_after
from parley.common.protocol.algorithm import Choice, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

if TYPE_CHECKING:
    from parley.common.algorithms.feature import FeatureMethod

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
