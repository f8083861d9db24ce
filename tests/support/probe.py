"""An algorithm that is none of the papers', to try the contract with: trees vote on public rows, twice.

After Hamm, Cao & Belkin 2016, Algorithm 1. Round 1: each party's decision tree votes on the public rows, one-hot, with
Gaussian noise for all that the party holds (whole-party adjacency). Round 2: parties are told a fit of the consensus, a
matrix, and answer how many of their examples it puts into each class.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from sklearn.tree import DecisionTreeClassifier

from parley.common.algorithms._parameters import algorithm
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import UNIT, weights_on_grid
from parley.common.learning.model import Model
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.events import Event, GaussianEvent
from parley.common.privacy.guarantee import Adjacency
from parley.common.privacy.mechanisms.additive import add_gaussian, fitting
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.protocol.algorithm import Algorithm, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

K = 2
"""The classes that are voted for."""

Depth = Annotated[int, Field(ge=1, le=20, description="the deepest that a tree may be")]
Prepared = tuple[Shard, tuple[DecisionTreeClassifier, ...]]


@algorithm
class Probe(Algorithm):
    """Two phases, matrices as messages, K N votes from a decision tree as answer."""

    max_depth: Depth = 3
    adjacency: ClassVar[Adjacency] = "whole_party"

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Votes, K N of them, then how many examples fall to each class."""
        rows, width = facts.public_size
        return Question("votes", (rows, width), K * rows, public=True), Question("share", (K, facts.n_features), K)

    def program(self, facts: FederationFacts) -> Program:
        """Ask for votes, fit their consensus, ask how the fit divides the parties' examples, and lean that way."""
        rows = facts.public_rows
        votes = (yield Query(1, "votes", rows)).value.reshape(len(rows), K)
        fitted, *_ = np.linalg.lstsq(rows, np.eye(K)[votes.argmax(axis=-1)], rcond=None)
        share = (yield Query(2, "share", np.ascontiguousarray(fitted.T))).value
        lean = np.clip(share / facts.n_total, 0.5, 1.5)
        return Model(np.asarray(fitted @ (lean * [-1.0, 1.0])))

    def prepare(self, shard: Shard, facts: OwnFacts) -> Prepared:
        """A tree for the shard, or one for each of a stack."""
        X, y, mask = (part.reshape(-1, *part.shape[shard.y.ndim - 1 :]) for part in (shard.X, shard.y, shard.mask))
        shards = zip(X, y, mask, strict=True)
        return shard, tuple(
            _tree(x[rows].tobytes(), label[rows].tobytes(), self.max_depth) for x, label, rows in shards
        )

    def local(self, query: Query, prepared: Prepared, facts: OwnFacts, noise: Noise) -> IntArray:
        """One-hot votes, flat, or how many examples score highest in each class; with noise."""
        shard, trees = prepared
        if query.step == "votes":
            votes = np.stack([np.eye(K)[tree.predict(query.message).astype(np.int64)] for tree in trees])
            total = votes.reshape(*shard.y.shape[:-1], -1)
        else:
            highest = np.eye(K)[shard.scores(weights_on_grid(query.message)).argmax(axis=-1)]
            total = (highest * shard.mask[..., None]).sum(axis=-2)
        return add_gaussian((total * UNIT).astype(np.int64), self.sigma(facts, query.step), facts.share, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray:
        """All that a party holds may be other data."""
        return self.moved(facts, query.step)

    def moved(self, facts: OwnFacts, step: str) -> FloatArray:
        """sqrt(2 N) votes; or all examples from one class to another, in shares those of the largest party; (...)."""
        if step == "votes":
            return np.full(np.shape(facts.own_examples), _root(2 * facts.public_size[0]))
        most = np.full_like(facts.own_examples, facts.n_examples.max()) if facts.secure_sum else facts.own_examples
        return np.asarray(_root(2) * most)

    def sigma(self, facts: OwnFacts, step: str) -> FloatArray:
        """The deviation of the noise on a sum, (...)."""
        return self.moved(facts, step) * gaussian_sigmas(facts.own_epsilon, facts.own_delta, math.sqrt(2))

    @property
    def noise_is_gaussian(self) -> bool:
        """It is."""
        return True

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Counts plus Gaussian noise."""
        return Additive()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """A Gaussian release."""
        step = "votes" if round == 1 else "share"
        return GaussianEvent(float(self.moved(facts, step) / self.sigma(facts, step)))

    def check_noise(self, facts: OwnFacts) -> None:
        """Of both rounds."""
        fitting(np.maximum(self.sigma(facts, "votes"), self.sigma(facts, "share")))


def _root(x: int) -> float:
    """The square root, rounded up: a bound that votes attain."""
    return math.nextafter(math.sqrt(x), math.inf)


@lru_cache(maxsize=4096)
def _tree(X: bytes, y: bytes, max_depth: int) -> DecisionTreeClassifier:
    """The tree of some examples; of none, or of one class, a tree that always votes the same."""
    labels = np.frombuffer(y) > 0
    if not len(labels):
        return DecisionTreeClassifier().fit(np.zeros((1, 1)), [0])
    rows = np.frombuffer(X).reshape(len(labels), -1)
    return DecisionTreeClassifier(random_state=0, max_depth=max_depth).fit(rows, labels.astype(np.int64))
