"""The exact sum of clipped gradients.

A shard is read in blocks of rows: each block's sum is exact in float64, and the blocks are added as int64, so the bits
do not depend on the blocks (`parley.common.encoding.fixed_point` has the bounds).

*One score.* The gradient of an example is slope * x with |x| <= 1, so clipping the slope clips the gradient.

*Weights* of classes and of rows in [0, 1] scale a slope after it is clipped as one of weight 1, so that classes keep
their ratio, and before it is truncated: toward zero twice, so every bound holds as it does without weights.

*K scores.* It is the outer product of the slopes, (K,), and x, so its norms are the products of theirs. Slopes are
scaled to the clip norm C, truncated to integers q in units of 2^-16, and checked: sum q^2 <= floor(C^2 2^32).
Truncation lengthens nothing, so only the rounding of the scaling can leave q outside; it adds less than 1 to C^2 2^32,
hence sum q^2 exceeds its bound by at most 1. Such a q is not 0, and with 1 taken from every nonzero |q_k| the sum falls
by sum (2 |q_k| - 1) >= 1: one step is enough. The 1-norm, sum |q_k|, also exceeds its bound by at most 1, and falls
by at least 1.

*Persons* share the clip norm: what all rows of one person add to the sum is no longer than C. So exchanged for any
others they move it by at most 2 C, as one record does. All of a person's slopes are scaled by one number, after they
are weighted: what a weight that a row was given scales is the row's slope, as a class weight does. It is min(1, C / sum
|s_i|), by the triangle inequality, as |x| <= 1. Or, of one score and of persons of few rows, if that is more, it is C
by the length of the sum itself. Of one score with bounded slopes, those of a person of several rows are not clipped row
by row before that, for a row that the model has wrong would then count for less beside the person's others: on
readmissions (``scripts/benchmarks/persons.py``) that cost .005 of AUC at epsilon .3 and 1.

*One score.* With B = floor(C 2^16), u_i = trunc(|s_i| 2^32) and f the scale in floating point, a person's first i rows
have reached w_i = min(B, floor(f (u_1 + ... + u_i) 2^-16)), and row i has |q_i| = w_i - w_(i-1). The sums of u are
integers below 2^49 and rounding is monotone, so no |q_i| is negative, and they add up to the last w <= B: exactly, and
for every f. Rounding is carried from row to row, so that all rows together lose less than one unit of 2^-16, however
many they are. f is 2^-50 larger than the quotient, so that a person beyond the norm reaches B. A person of one row is
clipped as a record is.

*The length of the sum*, l^2 = sum s_i s_j x_i.x_j, is computed from the products of rows (`parley.common.data.pairs`)
for persons of r = 2 to 8 rows. As these are exact, rounding adds less than 2^-40 (sum |s_i|)^2 to a square, which is
added to it. With f = min(1, (C - r 2^-16) (1 - 2^-30) / l) and q_i = trunc(2^16 f s_i), the sum of q_i x_i 2^-16 is no
further than r 2^-16 from that of f s_i x_i, so it is no longer than C: roundings of f s_i, by 2^-52 each, add up to
less than 2^-32 of f l.

*K scores.* From the q of each row as a record's, f = C 2^16 / sum |q_i|, less some room, or 1 if that is less or the
person has one row. q_i becomes trunc(f q_i): the norms add up to at most f sum |q_i| <= C 2^16 (1 - 2^-30), up to
roundings of 2^-50. That takes up to one unit from each number, too much from a person of many rows, so in those of more
than 32 rounding is carried from row to row in each of the K numbers: |q_i| becomes floor(S_i) - floor(S_(i-1)), where
S_i is the sum of the first i of trunc(2^14 f |q_i|) 2^-14. Such vectors may be longer than f q_i, by about (K - 1) /
(12 |f q_i|) units in the mean; the room is twice that. Whether their norms, rounded up to units of 2^-30, add up to at
most C 2^30 (1 - 2^-30), a margin of more than the roots' rounding, is checked in integers; where they do not, all of
the person's are truncated. Of 4,000 rows less than 1 % is lost, of 40,000 up to two fifths: their rows are units long.

*The 1-norm of persons*, if it is bounded: sum_i |q_i|_1 |x_i|_1 <= X, in integers. With t_i the truncated slopes, f is
no more than X / sum |t_i|_1 |x_i|_1, less 2^-8 of it as room for the carried rounding. The sum of the result is
checked in integers; where it exceeds X, q_i = trunc(f t_i) instead, for which sum |q_i|_1 |x_i|_1 <= X (1 + 2^-50), and
that, X being an integer below 2^43, says that it is at most X.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.pairs import MOST_PAIRED
from parley.common.data.shard import Shard
from parley.common.data.weighing import Persons, Several
from parley.common.encoding.fixed_point import LANE_EXAMPLES, MAX_EXAMPLES, SLOPE_BITS, UNIT, weights_on_grid
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Loss, unweighted

_LARGER = 1.0 + 2.0**-50
_SMALLER = 1.0 - 2.0**-30
_ROOM = 1.0 - 2.0**-8
_FINE_BITS = 14
_SHORT = 32
"""The most rows of a person whose vectors are just truncated."""
_TOGETHER = 4
"""Measured: persons' slopes are clipped faster in larger blocks, and sums over these are as fast."""


def gradient_sum(
    loss: Loss, shard: Shard, weights: FloatArray, clip_norm: float = 1.0, clip_l1: float = math.inf
) -> IntArray:
    """Return the sum over a shard's examples of the clipped gradients, in units of 2^-32: exact integers.

    Of a loss of one score, weights are (d,) and the sum is (..., d); of K scores, weights are (K, d) and the sum is
    (..., K * d), row after row. ``clip_norm`` is at most 1, or sqrt 2 of K scores. Replacing one example, a row
    or a person of several, moves the sum by at most 2 ``clip_norm`` in the 2-norm and at most 2 ``clip_l1`` in the
    1-norm, exactly, in integers.

    Raises InvalidInputError when the weights are of another shape, not finite or too large, or when there are more
    examples than an exact sum holds: all of it public, so a refusal tells nothing of the data.
    """
    one_score = loss.outputs == 1
    expected = (shard.n_features,) if one_score else (loss.outputs, shard.n_features)
    if weights.shape != expected:
        raise InvalidInputError(f"weights must be of shape {expected}, not {weights.shape}")
    check_size(shard)
    on_grid = np.atleast_2d(weights_on_grid(weights))
    if not math.isinf(clip_l1):
        shard.norms_l1  # noqa: B018 -- so that the blocks find it, now and in every later round
    elif one_score and shard.begins is not None:
        shard.pairs  # noqa: B018 -- as above
    clipped = _clipped_slopes if one_score else _clipped_vectors
    total = np.zeros((*shard.y.shape[:-1], *on_grid.shape), dtype=np.int64)
    for block in shard.blocks(1 if shard.begins is None else _TOGETHER):
        q = clipped(loss, block, block.scores(on_grid), clip_norm, clip_l1)
        total += _exact_sum(block, q)
    return total.reshape(*shard.y.shape[:-1], -1)


def _exact_sum(block: Shard, q: FloatArray) -> IntArray:
    """Return the sum (..., K, d) of rows times their slopes (..., n, K), which are in units of 2^-16."""
    n = block.y.shape[-1]
    if n > LANE_EXAMPLES:  # a block of a stack whose parties' persons end at different rows
        halves = slice(0, n // 2), slice(n // 2, n)
        return np.asarray(np.sum([_exact_sum(block.view(rows), q[..., rows, :]) for rows in halves], axis=0))
    return np.asarray(block.weighted_sum(q * 2.0**-SLOPE_BITS) * float(UNIT)).astype(np.int64)


def check_size(shard: Shard) -> None:
    """Raise InvalidInputError if a party has more examples than an exact sum holds: a public number."""
    n = shard.y.shape[-1]
    if n > MAX_EXAMPLES and shard.begins is not None:
        n = int(shard.n_examples.max())
    if n > MAX_EXAMPLES:
        raise InvalidInputError(f"an exact sum holds {MAX_EXAMPLES} examples, not {n}")


def _clipped_slopes(loss: Loss, block: Shard, scores: FloatArray, clip_norm: float, clip_l1: float) -> FloatArray:
    """Return the slopes (..., n, 1) in units of 2^-16: integers, each example's within both norms."""
    bound: FloatArray | float = clip_norm
    if not math.isinf(clip_l1):
        bound = np.minimum(clip_norm, _largest_l1(block, clip_l1) * 2.0**-SLOPE_BITS)
    slopes = unweighted(loss).slope(scores[..., 0], block.y)
    q = np.trunc(_weighted(loss, block, np.clip(slopes, -bound, bound)) * 2.0**SLOPE_BITS)
    if block.weighing is not None and (several := block.weighing.several) is not None:
        most = loss.lipschitz if math.isfinite(loss.lipschitz) else bound
        shared = _weighted(loss, block, np.clip(slopes, -most, most))
        of_all = q.flatten()  # a copy, surely
        of_all[several.rows] = _shared_slopes(block, several, shared.reshape(-1), clip_norm, clip_l1)
        q = of_all.reshape(q.shape)
    return q[..., None]


def _shared_slopes(block: Shard, several: Several, slopes: FloatArray, clip_norm: float, clip_l1: float) -> FloatArray:
    """Return slopes (k,) of persons of several rows, in units of 2^-16, each person's within both norms.

    ``slopes`` (...,) are those of all rows.
    """
    most, persons, own = math.floor(clip_norm * 2.0**SLOPE_BITS), several.persons, slopes[several.rows]
    fine = (np.abs(own) * 2.0 ** (2 * SLOPE_BITS)).astype(np.int64)
    sums, lengths = persons.summed(fine)
    scale = np.minimum(1.0, most * 2.0**SLOPE_BITS * _LARGER / np.maximum(lengths, 1))
    norms = None if math.isinf(clip_l1) else block.norms_l1.reshape(-1)[several.rows]
    if norms is not None:
        scale = _within_l1(norms, persons, scale, fine >> SLOPE_BITS, clip_l1)
    of_rows = persons.repeated(scale * 2.0**-SLOPE_BITS)
    q = persons.steps(np.minimum((sums * of_rows).astype(np.int64), most))
    if norms is None:
        of_rows = persons.repeated(_scales_of_sums(block, persons, slopes, scale, lengths, clip_norm))
        q = np.where(of_rows > 0, (np.abs(own) * of_rows * 2.0**SLOPE_BITS).astype(np.int64), q)
    elif (outside := _outside_l1(norms, persons, q, clip_l1)).any():
        cut = ((fine >> SLOPE_BITS) * persons.repeated(scale)).astype(np.int64)
        q = np.where(persons.repeated(outside), cut, q)
    return np.asarray(np.copysign(q, own))


def _scales_of_sums(  # noqa: PLR0913, PLR0917 -- what `_shared_slopes` has
    block: Shard, persons: Persons, slopes: FloatArray, scale: FloatArray, lengths: IntArray, clip_norm: float
) -> FloatArray:
    """Return the scale (P,) that leaves a person's sum of gradients within the norm, where it is above ``scale``.

    It is 0 elsewhere. ``slopes`` (...,) are those of all rows, ``lengths`` (P,) the sums of persons' slopes in units of
    2^-32.
    """
    who, squares = persons.sizes <= MOST_PAIRED, block.pairs.squares(slopes)
    rounding = np.square(lengths[who] * 2.0 ** (-2 * SLOPE_BITS - 20))
    longest = np.sqrt(np.maximum(squares, 0.0) + rounding)
    room = (clip_norm - persons.sizes[who] * 2.0**-SLOPE_BITS) * _SMALLER
    largest = np.minimum(1.0, room / np.maximum(longest, 2.0**-60))
    result = np.zeros_like(scale)
    result[who] = np.where(largest > scale[who], largest, 0.0)
    return result


def _clipped_vectors(loss: Loss, block: Shard, scores: FloatArray, clip_norm: float, clip_l1: float) -> FloatArray:
    """Return the vectors of slopes (..., n, K) in units of 2^-16: integers, each example's within both norms."""
    slopes = unweighted(loss).slope(scores, block.y) * 2.0**SLOPE_BITS
    longest = clip_norm * 2.0**SLOPE_BITS
    scale = longest / np.maximum(np.sqrt((slopes**2).sum(axis=-1)), longest)
    largest = math.inf if math.isinf(clip_l1) else _largest_l1(block, clip_l1)
    if not math.isinf(clip_l1):
        scale = np.minimum(scale, largest / np.maximum(np.abs(slopes).sum(axis=-1), np.maximum(largest, 1.0)))
    q = np.trunc(_weighted(loss, block, slopes * scale[..., None]))
    bound = math.floor(Fraction(clip_norm) ** 2 * UNIT)
    squares = (q * q).sum(axis=-1)
    outside = (squares > bound) | (np.abs(q).sum(axis=-1) > largest)
    if outside.any():
        q = np.where(outside[..., None], np.sign(q) * np.maximum(np.abs(q) - 1.0, 0.0), q)
    if (persons := block.persons) is None:
        return np.asarray(q)
    return _shared_vectors(block, persons, q, clip_norm, clip_l1)


def _shared_vectors(block: Shard, persons: Persons, q: FloatArray, clip_norm: float, clip_l1: float) -> FloatArray:
    """Return vectors (..., n, K) in units of 2^-16, each person's within both norms, from those of rows as records."""
    most, n_rows = clip_norm * 2.0 ** (SLOPE_BITS + _FINE_BITS) * _SMALLER, persons.sizes
    room = 1.0 + q.shape[-1] / 6 * (n_rows / (clip_norm * 2.0**SLOPE_BITS)) ** 2
    scale = np.minimum(1.0, most / room / np.maximum(persons.totals(_lengths(q)), 1))
    if not math.isinf(clip_l1):
        scale = _within_l1(block.norms_l1, persons, scale, _lengths_l1(q), clip_l1)
    of_rows = persons.repeated(np.where(n_rows > 1, scale, 1.0))[..., None]
    cut = np.asarray(np.trunc(q * of_rows))
    if n_rows.max(initial=0) <= _SHORT:
        return cut
    fine = (np.abs(q) * of_rows * 2.0**_FINE_BITS).astype(np.int64)
    parts = [persons.steps(persons.running(fine[..., k]) >> _FINE_BITS) for k in range(q.shape[-1])]
    shared = np.copysign(np.stack(parts, axis=-1), q)
    outside = (n_rows <= _SHORT) | (persons.totals(_lengths(shared)) > most)
    if not math.isinf(clip_l1):
        outside |= _outside_l1(block.norms_l1, persons, _lengths_l1(shared), clip_l1)
    return np.where(persons.repeated(outside)[..., None], cut, shared)


def _lengths(q: FloatArray) -> IntArray:
    """Return the 2-norms (..., n) of vectors (..., n, K) in units of 2^-16, in units of 2^-30 and rounded up."""
    return np.asarray(np.ceil(np.sqrt((q * q).sum(axis=-1)) * 2.0**_FINE_BITS)).astype(np.int64)


def _lengths_l1(q: FloatArray) -> IntArray:
    """Return the 1-norms (..., n) of vectors (..., n, K), in their units."""
    return np.asarray(np.abs(q).sum(axis=-1)).astype(np.int64)


def _weighted(loss: Loss, block: Shard, slopes: FloatArray) -> FloatArray:
    """Return slopes (..., n) or (..., n, K) times the weights of classes, and those that rows were given."""
    slopes = loss.weighted(slopes, block.y)
    if block.weighing is None or (own := block.weighing.row_weights) is None:
        return slopes
    return np.asarray(slopes * own.reshape(*own.shape, *(1,) * (slopes.ndim - own.ndim)))


def _within_l1(
    norms_l1: FloatArray, persons: Persons, scale: FloatArray, lengths_l1: IntArray, clip_l1: float
) -> FloatArray:
    """Return persons' scales (P,), or less if the 1-norm needs it, from the 1-norms (..., n) of rows and slopes."""
    within = math.floor(clip_l1 * UNIT) / np.maximum(_totals_l1(norms_l1, persons, lengths_l1), 1)
    return np.where(within < scale, within * _ROOM, scale)


def _outside_l1(norms_l1: FloatArray, persons: Persons, lengths_l1: IntArray, clip_l1: float) -> BoolArray:
    """Return which persons (P,) are beyond the 1-norm, in integers."""
    return np.asarray(_totals_l1(norms_l1, persons, lengths_l1) > math.floor(clip_l1 * UNIT))


def _totals_l1(norms_l1: FloatArray, persons: Persons, lengths_l1: IntArray) -> IntArray:
    """Return the sum (P,) of the 1-norms of each person's gradients, in units of 2^-32, from those of its slopes."""
    return persons.totals(lengths_l1 * norms_l1.astype(np.int64))


def _largest_l1(block: Shard, clip_l1: float) -> FloatArray:
    """Return the largest 1-norm (..., n) of slopes, in units of 2^-16, with a gradient's at most ``clip_l1``; exact."""
    norm = np.maximum(block.norms_l1, 1.0)
    budget = math.floor(clip_l1 * UNIT)
    largest = np.floor(budget / norm)
    return np.asarray(largest - (largest * norm > budget))  # the division may have rounded up
