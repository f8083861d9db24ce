"""Averages of parties that lack classes.

A softmax of all K classes takes those that a party has never seen for unlikely everywhere, which is what it learns
most surely. Where parties have few rows, the mean of their fits then tells how common classes are rather than what they
look like. It does not if each party fits its own classes alone; nor if what is said of a class is divided by how many
parties have it, which is better by far, and under noise best with fits of all classes. Both are after what HAR's 1,000
parties of six rows showed; digits' 120 of ten neither gain nor surely lose.

*A mark for each class that a party has costs no privacy.* For a minimiser of k classes is no longer than some r_k < r_K
(`parley.common.learning.losses.largest_minimiser`). With the weights of a party that has k kept within r_k, two that
lack a and b classes lie at most r_(K-a) + r_(K-b) apart, and differ in a + b at most. With marks of a size s for which

    (r_(K-a) + r_(K-b))^2 + (a + b) s^2 <= (2 r_K)^2        for all a and b,

weights and marks together lie no further apart than the weights of two parties that have all classes. The proof is
ours.
"""

from __future__ import annotations

import math

import numpy as np

from parley.common.arrays import BoolArray, FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes, encode_classes
from parley.common.learning.convergence import TOLERANCE
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Softmax, largest_minimiser


def classes_had(shard: Shard, n_classes: int) -> BoolArray:
    """Which classes a party has a row of that was not dropped, (..., K)."""
    seen = decode_classes(shard.y, n_classes)[..., None] == np.arange(n_classes)
    return np.asarray((seen & shard.present[..., None]).any(axis=-2))


def minimise_own(shard: Shard, n_classes: int, strength: FloatArray) -> FloatArray:
    """The minimisers (..., K d) of softmax risks over a party's own classes; zeros for others.

    ``strength`` (...) is the regularization on the sum scale. A party of a single class has nothing to tell apart: all
    of its weights are zeros.
    """
    n, d = shard.X.shape[-2:]
    X, mask, strength = shard.X.reshape(-1, n, d), shard.mask.reshape(-1, n), strength.reshape(-1)
    own, classes = classes_had(shard, n_classes).reshape(-1, n_classes), decode_classes(shard.y, n_classes)
    weights = np.zeros((len(X), n_classes, d))
    for some in np.unique(own, axis=0):
        kept = np.flatnonzero(some)
        if len(kept) > 1:
            alike = np.flatnonzero((own == some).all(axis=1))
            numbered = np.minimum(np.searchsorted(kept, classes.reshape(-1, n)[alike]), len(kept) - 1)
            part = Shard(X[alike], encode_classes(numbered, len(kept)), mask[alike], shard.norm)
            found = minimise(Softmax(len(kept)), part, strength[alike], tolerance=TOLERANCE)
            weights[alike[:, None], kept] = found
    return weights.reshape(*shard.y.shape[:-1], n_classes * d)


def longest_of_own(n_classes: int, regularization: float) -> FloatArray:
    """The largest norms (K + 1,) of minimisers of 0, 1, ... K own classes; lambda is of the mean loss."""
    longest = [largest_minimiser(Softmax(k), regularization) for k in range(2, n_classes + 1)]
    return np.array([0.0, 0.0, *longest])


def largest_mark(n_classes: int, regularization: float) -> float:
    """The largest s that costs nothing."""
    longest = longest_of_own(n_classes, regularization)
    have = np.arange(len(longest))
    differ = 2 * have[-1] - np.add.outer(have, have)
    left = 4 * longest[-1] ** 2 - np.add.outer(longest, longest) ** 2
    return math.sqrt(float((left[differ > 0] / differ[differ > 0]).min()))
