"""Centroids of classes: of K classes, the noisy sum of each one's rows, which tells of a classifier.

`parley.common.privacy.mechanisms.class_means` makes one of the sums, for rows of norm up to 1. A record replaced by
another takes a row of norm up to 1 from one class's sum and adds such a row to one, so that the norms of the K sums'
moves add up to at most 2. Noise of density exp(-(epsilon / 2) sum_k |b_k|), which is drawn for each class alone, in d
dimensions, is therefore epsilon-private, *however many classes there are*: the K-norm mechanism of that norm (Hardt &
Talwar 2010, "On the Geometry of Differential Privacy"). A softmax's minimiser, which moves in the 2-norm of K d
numbers, needs noise of sqrt(2 K) times the deviation. Gaussian noise is that of a move of 2. All else is
post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Self

import numpy as np

from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.encoding.fixed_point import UNIT, to_reals
from parley.common.learning.losses import Softmax
from parley.common.privacy.events import ApproximateEvent, Event, GaussianEvent, L2LaplaceEvent
from parley.common.privacy.mechanisms.additive import add_gaussian, add_l2_laplace, fitting, l2_laplace_deviation
from parley.common.privacy.mechanisms.class_means import class_scores
from parley.common.privacy.mechanisms.output import OutputPerturbation, hiding, on_grid, output
from parley.common.privacy.mechanisms.site import FLOATS, SiteRelease, SiteTerms, stacked
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, PostProcessing, Proof

_MOVED = 2.0
_LONGEST = 20.0
"""Of weights where noise is nothing. Longer ones take a cosine for more certain than it is; of 10, 20 and 40 it was
chosen by log loss on digits, HAR, MNIST and made-up clusters. No epsilon counts that."""


@dataclass(frozen=True, slots=True)
class Centroids(SiteRelease):
    """The mechanism for one site: ``scale`` is the deviation of Gaussian noise on the sums, or beta of a class's."""

    terms: SiteTerms
    scale: float

    @classmethod
    def prepare(cls, sites: Sequence[Self], shard: Shard) -> IntArray:
        """The exact sums (..., K, d), in integers of 2^-32."""
        return class_sums(shard, sites[0].terms.loss.outputs)

    @classmethod
    def answer(cls, sites: Sequence[Self], prepared: IntArray, noise: Noise) -> IntArray:
        """What the noisy sums tell, weights no longer than 1 / lambda."""
        return cls.read(sites, cls.noisy_sums(sites, prepared, noise))

    @classmethod
    def read(cls, sites: Sequence[Self], noisy: IntArray) -> IntArray:
        """The weights that noisy sums (..., K, d) tell: a function of these and of public terms."""
        sums, like = to_reals(noisy), noisy[..., 0, :]
        spread, length = (stacked([getattr(site, name) for site in sites], like) for name in ("spread", "length"))
        n = stacked([site.terms.n_examples for site in sites], like)
        longest = stacked([1 / site.terms.regularization for site in sites], like)
        weights = class_scores(sums, spread, n, length)
        reached = np.sqrt((weights**2).sum(axis=-1)).max(axis=-1)
        weights *= np.minimum(1.0, longest / np.maximum(reached, 1e-300))[..., None, None]
        return on_grid(weights.reshape(*like.shape[:-1], -1))

    @classmethod
    def noisy_sums(cls, sites: Sequence[Self], sums: IntArray, noise: Noise) -> IntArray:
        """Sums (..., K, d) with their noise, of which all that is released is a function."""
        scale = stacked([site.scale for site in sites], sums[..., 0, :])[..., None]
        law = add_gaussian if sites[0].terms.law == "gaussian" else add_l2_laplace
        return law(sums, scale, 1.0, noise)

    @classmethod
    def proof(cls, sites: Sequence[Self]) -> Proof:
        """A function of the noisy sums; pure noise is that of each class alone."""
        terms = sites[0].terms
        law = None if terms.law == "gaussian" else L2LaplaceEvent(terms.epsilon, terms.n_features)
        return PostProcessing(partial(cls.noisy_sums, sites), partial(cls.read, sites), Additive(law))

    @property
    def moved(self) -> float:
        """Of the sums."""
        return _MOVED

    @property
    def event(self) -> Event:
        """A Gaussian release, or pure epsilon."""
        if self.terms.law == "gaussian":
            return GaussianEvent(_MOVED / self.scale)
        return ApproximateEvent(self.terms.epsilon, assumptions=(FLOATS,))

    @property
    def spread(self) -> float:
        """The deviation of the noise on a number of the sums."""
        if self.terms.law == "gaussian":
            return self.scale
        return float(l2_laplace_deviation(self.scale, self.terms.n_features))

    @property
    def length(self) -> float:
        """Of weights: 1 / lambda, but as little as a class's sum, were all as common, is of what is drawn beside it."""
        drawn = self.spread * math.sqrt(self.terms.n_features)
        usual = self.terms.n_examples / self.terms.loss.outputs
        return min(1 / self.terms.regularization, _LONGEST * usual / (usual + drawn))

    @property
    def deviation(self) -> float:
        """Of weights, where all classes are as common and rows are of norm 1."""
        return self.length * self.spread * self.terms.loss.outputs / self.terms.n_examples

    def check_noise(self) -> None:
        """Of the sums."""
        fitting(self.spread)


@lru_cache(maxsize=4096)
def centroids(terms: SiteTerms) -> Centroids | OutputPerturbation:
    """The mechanism for a site, of one score `output`; raises InvalidInputError for terms that are unfit."""
    if not isinstance(terms.loss, Softmax):
        return output(terms)
    terms.check("tight", "paper", "jain_thakurta")
    return Centroids(terms, hiding(terms, terms.loss, _MOVED).scale)


def class_sums(shard: Shard, n_classes: int) -> IntArray:
    """The exact sums (..., K, d) of the rows of each class, in integers of 2^-32."""
    total = np.zeros((*shard.y.shape[:-1], n_classes, shard.n_features), dtype=np.int64)
    for block in shard.blocks():  # the sum over a block is exact in float64
        of_class = decode_classes(block.y, n_classes)[..., None] == np.arange(n_classes)
        total += (block.weighted_sum((of_class * block.mask[..., None]).astype(np.float64)) * UNIT).astype(np.int64)
    return total
