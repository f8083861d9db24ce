"""The local classifiers of an ensemble: trained once a run, never to leave the party."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.encoding.fixed_point import to_reals
from parley.common.learning.classifiers import Voter
from parley.common.privacy.mechanisms.output import on_grid, solve
from parley.common.protocol.facts import OwnFacts

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
