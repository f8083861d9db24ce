"""Sums of the rows of each class: a classifier from noisy sums, and averages of parties that lack classes.

*Centroids* (`Centroids`). Of K classes, each one's rows are added up with noise. A record replaced by another takes a
row of norm up to 1 from one class's sum and adds such a row to one, so the norms of the K sums' moves add up to at most
2; so they do for a person's rows, whose norms times their weights add up to at most 1. Noise of density exp(-(epsilon /
2) sum_k |b_k|), which is drawn for each class alone, in d dimensions, is therefore epsilon-private, *however many
classes there are*: the K-norm mechanism of that norm (Hardt & Talwar 2010, "On the Geometry of Differential Privacy").
A softmax's minimiser, which moves in the 2-norm of K d numbers, needs noise of sqrt(2 K) times the deviation. Gaussian
noise is that of a move of 2. All else is post-processing.

*A linear classifier from the sums* (`class_scores`) is the likeliest one given the noise. Rows of norm up to 1 have a
direction in common, that of their total, most of all if they have an intercept: along it, where noise is next to
nothing, a class's sum says how many rows the class has. Across it a class's mean is modelled as Gaussian about 0, with
a variance per coordinate that is estimated from all sums together (empirical Bayes), so that the mean of a class with
few rows is trusted little. Rows are modelled as Gaussian about their class's mean, equally in every direction: a row x
has the score

    kappa m_k . x - kappa |m_k|^2 / 2 + log p_k,

kappa being one over a sum of two variances: that of a row in a direction, and that of the uncertain means. The terms
without x are put along the common direction, along which rows are taken to be as long as their mean is. If the total is
hardly longer than its noise, or rows along it are hardly longer than they would be in any direction, there is no common
direction, and a class's score is the cosine to its sum (Rocchio 1971, "Relevance Feedback in Information Retrieval"),
however common it is.

*What was chosen by looking at data*: `_KNOWN`, `_NEAREST`, `_FURTHEST` and `_SHARPNESS`, by accuracy and log loss on
digits, KDD99, adults' occupation, education, marital status and relationship, loans' purpose, grade, home and
employment, and three made-up sets, with 300 to 10,000 rows and Gaussian noise of epsilon .3 to 3, delta 1e-5. No
epsilon counts that.

*Parties that lack classes* (`minimise_own`). A softmax of all K classes takes those that a party has never seen for
unlikely everywhere, which is what it learns most surely. If parties have few rows, the mean of their fits then says how
common classes are rather than what they look like. It does not if each party fits its own classes alone; nor if the
weights of a class are divided by how many parties have it, which is better by far, and under noise best with fits of
all classes. Both follow what HAR's 1,000 parties of six rows showed; digits' 120 of ten neither gain nor surely lose.

*A mark for each class that a party has costs no privacy* (`largest_mark`). A minimiser of k classes is no longer than
some r_k < r_K (`parley.common.learning.losses.largest_minimiser`). With the weights of a party that has k kept within
r_k, two that lack a and b classes lie at most r_(K-a) + r_(K-b) apart, and differ in a + b at most. With marks of a
size s for which

    (r_(K-a) + r_(K-b))^2 + (a + b) s^2 <= (2 r_K)^2        for all a and b,

weights and marks together lie no further apart than the weights of two parties that have all classes. The proof is
ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Self

import numpy as np

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes, encode_classes
from parley.common.encoding.fixed_point import UNIT, to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import TOLERANCE, minimise
from parley.common.learning.losses import Softmax, largest_minimiser
from parley.common.privacy.events import Event, GaussianEvent, L2LaplaceEvent, ParallelEvent, SequentialEvent
from parley.common.privacy.mechanisms.additive import add_gaussian, add_l2_laplace, fitting, l2_laplace_deviation
from parley.common.privacy.mechanisms.output import OutputPerturbation, hiding, on_grid, output
from parley.common.privacy.mechanisms.site import SiteRelease, SiteTerms, stacked
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, PostProcessing, Proof
from parley.common.privacy.shrinkage import shrunk

_KNOWN = 2.0
"""When rows count as having a direction in common: two conditions with this factor.

The total's square is at least this many times its noise's, and the square of how long rows are along it is at least
this many times that in other directions.
"""
_NEAREST, _FURTHEST = 0.05, 0.25
"""The range of the square of a class's mean across the common direction."""
_SHARPNESS, _SHARPEST = 0.5, 100.0
"""Bounds on kappa: a part of its value if rows were equal in all directions, which they are not; and a number."""
_LEAST_SPREAD = 0.05
"""The least squared spread of rows about their class's mean."""
_LEAST_SHARE = 1e-6


def class_scores(sums: FloatArray, spread: FloatArray, n: FloatArray, longest: FloatArray) -> FloatArray:
    """Return weights (..., K, d) of K classes from noisy sums of their rows (..., K, d).

    ``spread`` (...) is the deviation of the noise on each number, ``n`` (...) the number of rows, and ``longest`` (...)
    the length of weights that are cosines.
    """
    total = sums.sum(axis=-2)
    drawn = spread**2 * sums.shape[-1]
    size = (total**2).sum(axis=-1)
    noise, across = sums.shape[-2] * drawn, sums.shape[-1] - 1
    squared = (size - noise) / n**2
    has_direction = (size > _KNOWN * noise) & (squared * across > _KNOWN * (1 - squared)) & (across > 0)
    if has_direction.any():
        with np.errstate(divide="ignore", invalid="ignore"):  # divides by zero if there is no direction
            means = _by_means(sums, spread, n, total / np.sqrt(size)[..., None], squared)
        return np.where(has_direction[..., None, None], means, _cosines(sums, drawn, longest))
    return _cosines(sums, drawn, longest)


def _cosines(sums: FloatArray, drawn: FloatArray, longest: FloatArray) -> FloatArray:
    """Divide a class's sum by the root of |sum|^2 + |noise|^2, the latter about how long noise alone would be.

    So a class with hardly a row is not as long as others, and a common one no longer.
    """
    return np.asarray(sums * (longest[..., None] / np.sqrt((sums**2).sum(axis=-1) + drawn[..., None]))[..., None])


def _by_means(
    sums: FloatArray, spread: FloatArray, n: FloatArray, common: FloatArray, squared: FloatArray
) -> FloatArray:
    """Return the weights by classes' means across the ``common`` direction (..., d), and their shares along it.

    ``squared`` (...) is the square of how long rows are along it on the average.
    """
    k, across, noise = sums.shape[-2], sums.shape[-1] - 1, (spread**2)[..., None]
    along = (sums * common[..., None, :]).sum(axis=-1)
    rows = shares_of(along, spread) * n[..., None]
    apart = sums - along[..., None] * common[..., None, :]
    variance = ((apart**2).sum(axis=(-1, -2)) - k * across * spread**2) / (across * (rows**2).sum(axis=-1))
    variance = np.clip(variance, _NEAREST / across, _FURTHEST / across)[..., None]
    believed = rows**2 * variance / (rows**2 * variance + noise)
    means = (believed / rows)[..., None] * apart
    size, unknown = (means**2).sum(axis=-1), (rows * variance * (1 - believed)).sum(axis=-1) / n
    length = along.sum(axis=-1) / n
    about = 1 - squared - (rows * size).sum(axis=-1) / n
    sharpness = np.minimum(_SHARPNESS * across / np.maximum(about, _LEAST_SPREAD), _SHARPEST)
    kappa = (1 / (1 / sharpness + unknown))[..., None]
    base = (np.log(rows / n[..., None]) - kappa * size / 2) / length[..., None]
    return np.asarray(kappa[..., None] * means + base[..., None] * common[..., None, :])


def shares_of(counts: FloatArray, spread: FloatArray) -> FloatArray:
    """Return the shares (..., K) of noisy counts (..., K), pulled together.

    None is below what noise of ``spread`` (...) hides.
    """
    total = counts.sum(axis=-1, keepdims=True)
    shares = np.maximum(shrunk(counts, spread) / total, np.maximum(spread[..., None] / total, _LEAST_SHARE))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


_MOVED = 2.0
_LONGEST = 20.0
"""The length of weights if there is no noise.

Longer ones take a cosine for more certain than it is; of 10, 20 and 40 it was chosen by log loss on digits, HAR, MNIST
and made-up clusters. No epsilon counts that.
"""


@dataclass(frozen=True, slots=True)
class Centroids(SiteRelease):
    """The mechanism for one site: ``scale`` is the deviation of Gaussian noise on the sums, or beta of a class's."""

    terms: SiteTerms
    scale: float

    @classmethod
    def prepare(cls, sites: Sequence[Self], shard: Shard) -> IntArray:
        """Return the exact sums (..., K, d), in integers of 2^-32."""
        return class_sums(shard, sites[0].terms.loss.outputs)

    @classmethod
    def answer(cls, sites: Sequence[Self], prepared: IntArray, noise: Noise) -> IntArray:
        """Return the weights by the noisy sums, no longer than 1 / lambda."""
        return cls.read(sites, cls.noisy_sums(sites, prepared, noise))

    @classmethod
    def read(cls, sites: Sequence[Self], noisy: IntArray) -> IntArray:
        """Compute the weights from noisy sums (..., K, d) and public terms alone."""
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
        """Add their noise to sums (..., K, d); all that is released is a function of the result."""
        scale = stacked([site.scale for site in sites], sums[..., 0, :])[..., None]
        law = add_gaussian if sites[0].terms.law == "gaussian" else add_l2_laplace
        return law(sums, scale, 1.0, noise)

    @classmethod
    def proof(cls, sites: Sequence[Self]) -> Proof:
        """Return the proof of a function of the noisy sums; pure noise is that of each class alone."""
        terms = sites[0].terms
        law = L2LaplaceEvent(terms.pure_on_answer, terms.n_features)
        additive = Additive() if terms.law == "gaussian" else Additive(law, ((_MOVED,), (_MOVED / 2, _MOVED / 2)))
        return PostProcessing(partial(cls.noisy_sums, sites), partial(cls.read, sites), additive)

    @property
    def output_sensitivity(self) -> float:
        """The sensitivity of the sums."""
        return _MOVED

    @property
    def event(self) -> Event:
        """The event of a Gaussian release, or of the worse of two: one class's sum is moved by 2, or two by 1."""
        if self.terms.law == "gaussian":
            return GaussianEvent(_MOVED / self.scale)
        epsilon, d = self.terms.pure_on_answer, self.terms.n_features
        one_class, two_classes = L2LaplaceEvent(epsilon, d), (L2LaplaceEvent(epsilon / 2, d),) * 2
        return ParallelEvent((one_class, SequentialEvent(two_classes)))

    @property
    def spread(self) -> float:
        """The deviation of the noise on a number of the sums."""
        if self.terms.law == "gaussian":
            return self.scale
        return float(l2_laplace_deviation(self.scale, self.terms.n_features))

    @property
    def length(self) -> float:
        """The length of weights: 1 / lambda, or less if the noise is large beside the sum of an average class."""
        drawn = self.spread * math.sqrt(self.terms.n_features)
        usual = self.terms.n_examples / self.terms.loss.outputs
        return min(1 / self.terms.regularization, _LONGEST * usual / (usual + drawn))

    @property
    def deviation(self) -> float:
        """The deviation of the noise on weights, if all classes are as common and rows have norm 1."""
        return self.length * self.spread * self.terms.loss.outputs / self.terms.n_examples

    def check_noise(self) -> None:
        """Raise InvalidInputError if the noise on the sums does not fit on the wire."""
        fitting(self.spread)


@lru_cache(maxsize=4096)
def centroids(terms: SiteTerms) -> Centroids | OutputPerturbation:
    """Set the mechanism for a site; for a loss of one score, `output`. Raises InvalidInputError for unfit terms."""
    if not isinstance(terms.loss, Softmax):
        return output(terms)
    if terms.loss.class_weights:
        raise InvalidInputError("means of classes have no loss that class weights could scale: take mechanism = output")
    terms.check("tight", "paper", "jain_thakurta")
    return Centroids(terms, hiding(terms, terms.loss, _MOVED).scale)


def class_sums(shard: Shard, n_classes: int) -> IntArray:
    """Return the exact sums (..., K, d) of the rows of each class by their weights, in integers of 2^-32."""
    total = np.zeros((*shard.y.shape[:-1], n_classes, shard.n_features), dtype=np.int64)
    for block in shard.blocks():  # the sum over a block is exact in float64
        of_class = decode_classes(block.y, n_classes)[..., None] == np.arange(n_classes)
        total += (block.weighted_sum(of_class * block.weights[..., None]) * UNIT).astype(np.int64)
    return total


def classes_had(shard: Shard, n_classes: int) -> BoolArray:
    """Return whether a party has a row of each class that was not dropped, (..., K)."""
    seen = decode_classes(shard.y, n_classes)[..., None] == np.arange(n_classes)
    return np.asarray((seen & shard.present[..., None]).any(axis=-2))


def minimise_own(loss: Softmax, shard: Shard, strength: FloatArray) -> FloatArray:
    """Return the minimisers (..., K d) of softmax risks over the classes that a party has; zeros for others.

    ``strength`` (...) is the regularization on the sum scale. A party of a single class has nothing to distinguish: all
    of its weights are zeros.
    """
    (n, d), n_classes, strength = shard.shape[-2:], loss.outputs, strength.reshape(-1)
    has_class, classes = classes_had(shard, n_classes).reshape(-1, n_classes), decode_classes(shard.y, n_classes)
    weights = np.zeros((len(has_class), n_classes, d))
    for pattern in np.unique(has_class, axis=0):
        present = np.flatnonzero(pattern)
        if len(present) > 1:
            members = np.flatnonzero((has_class == pattern).all(axis=1))
            numbered = np.minimum(np.searchsorted(present, classes.reshape(-1, n)[members]), len(present) - 1)
            part = shard.of_parties(members).relabelled(encode_classes(numbered, len(present)))
            weights_of_present = tuple(loss.class_weights[i] for i in present) if loss.class_weights else ()
            of_present = Softmax(len(present), class_weights=weights_of_present)
            fit = minimise(of_present, part, strength[members], tolerance=TOLERANCE)
            weights[members[:, None], present] = fit
    return weights.reshape(*shard.y.shape[:-1], n_classes * d)


def longest_of_own(n_classes: int, regularization: float) -> FloatArray:
    """Return the largest norms (K + 1,) of minimisers over 0, 1, ... K classes; lambda is of the mean loss."""
    longest = [largest_minimiser(Softmax(k), regularization) for k in range(2, n_classes + 1)]
    return np.array([0.0, 0.0, *longest])


def largest_mark(n_classes: int, regularization: float) -> float:
    """Return the largest mark s that costs no privacy."""
    longest = longest_of_own(n_classes, regularization)
    have = np.arange(len(longest))
    differ = 2 * have[-1] - np.add.outer(have, have)
    room = 4 * longest[-1] ** 2 - np.add.outer(longest, longest) ** 2
    return math.sqrt(float((room[differ > 0] / differ[differ > 0]).min()))
