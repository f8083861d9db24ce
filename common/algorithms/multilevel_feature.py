"""The multilevel feature method: releases climb a tree of sites, each weighing those of its children.

Xie's thesis, Section 6.1 and Fig. 6.1, on what Chaudhuri et al. 2011 and Kifer et al. 2012 release. A leaf releases a
private model of its own rows. A node above leaves maps its own rows to what its children's models make of them, 1 long
(`parley.common.algorithms._span`), learns private weights w from these, and releases B^T w, a model of the rows
themselves. The root's is the model. Each level is a round, whose message carries the releases of all levels below; each
site has a part in one round, and is charged once, for it uses its rows once.

*Who sees what*: the learner every release, and each site that is asked the releases of the levels below it. All of them
are private, so what anybody does with them is post-processing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parley.common.algorithms._parameters import algorithm
from parley.common.algorithms._releases import Releases, own_indices, set_site, those
from parley.common.algorithms._span import ask_models, collected, in_span, placed, spanned
from parley.common.algorithms._tree import Nodes, children_of, levels_of
from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import MAX_NORM, to_integers, to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import check_single_score
from parley.common.learning.model import Model
from parley.common.privacy.events import Event, NoEvent
from parley.common.privacy.mechanisms.site import SiteRelease
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Proof, applied_after, read_after
from parley.common.protocol.algorithm import Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

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
