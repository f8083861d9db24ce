"""The objective F of `parley.common.learning.erm`, and a solver in the span of the rows for few examples.

*F.* `Risk` computes its value, its gradient and its Hessian, one block of rows after another. Blocks of rows of at most
`DENSE_COLUMNS` columns are dense, however the shard keeps its rows. So dense and sparse rows go through the same
operations and give the same bits.

*Weights.* A row counts as much as its shard says, a_i in [0, 1] (`parley.common.data.weighing`): F is sum_i a_i
loss(w.x_i, y_i) and what is added to it. So a_i multiplies the row's loss, its slope and its curvature, and nothing
else.

*The span.* `minimise_in_span` solves stacks of small problems, each in the span of its rows: n unknowns a score instead
of d. Where F's gradient is zero, w = X^T a - linear / Lambda with n numbers a for each score. The scores are then
G a + o, with the Gram matrix G = X X^T and o = -X linear / Lambda, and F's gradient is X^T r with
r = slopes + Lambda a. Of one score Newton's step for a is

    -(Lambda + C G)^-1 r,        C the rows' curvatures, a diagonal,

for X^T times it solves Newton's equation for w; the matrix has an inverse for any rank of G. Of K scores the
softmax's curvature is diag(p) - p p^T in each row. With P_k the probabilities of class k, a diagonal, the classes are
coupled by m = sum_k P_k G step_k alone:

    step_k = (Lambda + P_k G)^-1 (P_k m - r_k).

The r_k add up to zero, and so do the steps, which is what m follows from: K systems of n unknowns and one more, instead
of one of K n (as in Rasmussen & Williams 2006, "Gaussian Processes for Machine Learning", Algorithm 3.3). With R_k the
roots of P_k, each is R_k (Lambda + R_k G R_k)^-1 R_k^-1, whose inverse is symmetric, and found without pivoting. As it
costs the most, it serves twice, by Chebyshev's method: a second step undoes what the first one does to the slopes
beside what Newton expects, to second order. It is kept where it is at most half as long as the first in the Hessian's
norm; so both together descend.

The start is where the labels say: rows fewer than columns can commonly be told apart, and the minimiser then gives each
about the margin t at which the loss pulls no more than the regularization, exp(-t) = Lambda t b. So it is
t (G + ridge)^-1 Y, Y being the labels, of K scores less their mean, and b the mean of what is beside t. Of K scores it
is then led half the way to where the scores are the logarithms of the probabilities that go with it, which are
-Lambda a but for the label's class. Where F is less at 0, it is 0.

Problems are the last axis of all arrays: thousands are solved in one operation, lot by lot, near a core's own memory.
Every problem ends by itself, and those of one size are solved together, without padding: so a party's weights
are the same, to the bit, whichever problems are beside it. They end far below the tolerance, because the rest of the
rounding is then lost on the grid of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import SUMMED_ROWS, Shard
from parley.common.encoding.classes import decode_classes
from parley.common.learning.losses import Loss

_A = TypeVar("_A", FloatArray, BoolArray)


@dataclass(frozen=True, slots=True, eq=False)
class Risk:
    """F for one shard or a stack: ``regularization`` (...) on the sum scale, ``linear`` broadcastable to the weights.

    Weights are (..., d), or (..., K, d) for a loss of K scores. ``parts`` are the blocks of rows, of a shard whose own
    are not to be taken: its sparse rows stay sparse, and products with the Hessian take all of them at once.
    """

    loss: Loss
    shard: Shard
    regularization: FloatArray
    linear: FloatArray | float = 0.0
    parts: tuple[Shard, ...] = ()

    def value(self, weights: FloatArray) -> FloatArray:
        """Return F at weights, (...)."""
        data = np.zeros(self.shard.y.shape[:-1])
        for block in self._blocks():
            losses = self.loss.value(self._scores(block, weights), block.y)
            data = data + (block.weights * losses).sum(axis=-1)
        tilt = self.total(self.linear * weights)
        return np.asarray(data + self.regularization / 2 * self.total(weights**2) + tilt)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Return the gradient of F at weights, shaped like them."""
        data = np.zeros_like(weights)
        for block in self._blocks():
            slopes = _weighed(block, self.loss.slope(self._scores(block, weights), block.y))
            for part, of_part in _in_sums(block, slopes):
                data += self._weighted_sum(part, of_part)
        data += self.spread(self.regularization) * weights
        data += self.linear
        return data

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Return the Hessian of F at weights (..., d), (..., d, d), of a loss of one score."""
        data = self.regularization[..., None, None] * np.eye(self.shard.n_features)
        for block in self._blocks():
            curvature = block.weights * self.loss.curvature(self._scores(block, weights), block.y)
            data = data + block.weighted_sum(block.X * curvature[..., None])
        return data

    def hessian_along(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return a function: the product of F's Hessian at weights with directions, both shaped like the weights."""
        scores = [self._scores(piece, weights) for piece in self._pieces()]

        def times(direction: FloatArray) -> FloatArray:
            product = self.spread(self.regularization) * direction
            for piece, at in zip(self._pieces(), scores, strict=True):
                bent = _weighed(piece, self.loss.curvature_times(at, piece.y, self._scores(piece, direction)))
                product = product + self._weighted_sum(piece, bent)
            return product

        return times

    def total(self, terms: FloatArray) -> FloatArray:
        """Return the sum over the axes of the weights, (...)."""
        return np.asarray(terms.sum(axis=-1) if self.loss.outputs == 1 else terms.sum(axis=(-2, -1)))

    def spread(self, values: _A) -> _A:
        """Return values (...) with an axis of length 1 for each axis of the weights."""
        return values[..., None] if self.loss.outputs == 1 else values[..., None, None]

    def _blocks(self) -> Iterable[Shard]:
        return self.parts or self.shard.blocks()

    def _pieces(self) -> Iterable[Shard]:
        return (self.shard,) if self.parts else self.shard.blocks()

    def _scores(self, block: Shard, weights: FloatArray) -> FloatArray:
        if self.loss.outputs == 1:
            return block.scores(weights[..., None, :])[..., 0]
        return block.scores(weights)

    def _weighted_sum(self, block: Shard, slopes: FloatArray) -> FloatArray:
        if self.loss.outputs == 1:
            return block.weighted_sum(slopes[..., None])[..., 0, :]
        return block.weighted_sum(slopes)


def _weighed(block: Shard, parts: FloatArray) -> FloatArray:
    """Return parts of rows, (..., n) or (..., n, K), times the rows' weights; padding has no entry to multiply."""
    if block.weighing is None:
        return parts
    return np.asarray(parts * block.weights[(..., *(None,) * (parts.ndim - block.y.ndim))])


def _in_sums(block: Shard, slopes: FloatArray) -> Iterator[tuple[Shard, FloatArray]]:
    """Yield a block of rows and their slopes, (..., n) or (..., n, K), in parts of at most `SUMMED_ROWS`."""
    axis = block.y.ndim - 1
    n = slopes.shape[axis]
    if n <= SUMMED_ROWS:
        yield block, slopes
        return
    for start in range(0, n, SUMMED_ROWS):
        rows = slice(start, start + SUMMED_ROWS)
        yield block.view(rows), slopes[(slice(None),) * axis + (rows,)]


# ── in the span of the rows ──────────────────────────────────────────────────

_MAX_NEWTON = 100
_MAX_HALVINGS = 40
_SUFFICIENT_DECREASE = 1e-4
_FAR_BELOW = 2.0**-10
_LOT = 2**18
"""How many numbers the systems of a lot of problems have: 2 MiB."""
_INVERTED, _SOLVED = 24, 12  # measured: the most rows of systems that are so sooner side by side than one by one
_RIDGE = 0.1  # measured, in parts of a row's mean square: whose start is nearest in the median
_RARE, _OWN = 1e-4, 0.3  # measured: the least probabilities of other classes, and of the label's, that a start assumes
_LEAST_ROOT = 1e-100
_PART = 0.5  # of the first step's length: the longest second one that is kept
_WORTH = 8  # measured: the least of what n^2 / d is where conjugate gradients are faster for K scores


def are_few(loss: Loss, shard: Shard) -> BoolArray:
    """Return whether a party's examples are so few that their span is the faster way, (...), for each party alone.

    The system of several scores couples rows of equal weight alone.
    """
    n, d = shard.n_rows, shard.n_features
    if loss.outputs > 1 and (loss.class_weights or shard.weighing is not None):
        return np.zeros_like(n, dtype=np.bool_)
    return np.asarray(n < d if loss.outputs == 1 else (n < d) & (n**2 < _WORTH * d))


def minimise_in_span(
    loss: Loss, shard: Shard, regularization: FloatArray, linear: FloatArray, tolerance: float
) -> FloatArray:
    """Return weights shaped like ``linear``, (..., d) or (..., K, d), at F's minimiser where `are_few`.

    The other problems' are zeros. ``regularization`` (...) is on the sum scale and positive. F's gradient is far
    shorter than ``tolerance`` but where Newton's method gets no further, which the caller has to look at.
    """
    (n, d), strength = shard.X.shape[-2:], regularization.reshape(-1)
    X, y, mask = shard.X.reshape(-1, d), shard.y.reshape(-1), shard.mask.reshape(-1)
    few, sizes = are_few(loss, shard).reshape(-1), shard.n_rows.reshape(-1)
    counts = shard.weights.reshape(-1)
    weights = np.zeros((len(strength), loss.outputs, d))
    if bool(linear.any()):
        weights[few] -= linear.reshape(weights.shape)[few] / strength[few, None, None]
    for size in np.unique(sizes[few & (sizes > 0)]).tolist():
        same = few & (sizes == size)
        rows, parties = np.flatnonzero(mask & np.repeat(same, n)).reshape(-1, size), np.flatnonzero(same)
        most = max(_LOT // (size**2 * loss.outputs), 1)
        for start in range(0, len(parties), most):
            lot = slice(start, start + most)
            lot_rows, whose = _taken(X, rows[lot]), parties[lot]
            gram, offset = (
                lot_rows @ np.swapaxes(lot_rows, -1, -2),
                lot_rows @ np.swapaxes(_taken(weights, whose), -1, -2),
            )
            labels, counted = _taken(y, rows[lot]), _taken(counts, rows[lot])
            problems = _Problems.of(loss, gram, labels, counted, strength[whose], offset)
            weights[whose] += problems.solved(tolerance * _FAR_BELOW) @ lot_rows
    return weights.reshape(linear.shape)


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """The ``unknowns`` (K, n, m), their ``scores`` but for the offset, F (m,), its ``residual`` and ``length``.

    ``bends`` (K, n, m) are the rows' curvatures; of K scores their probabilities. The length is that of the gradient.
    """

    unknowns: FloatArray
    scores: FloatArray
    value: FloatArray
    bends: FloatArray
    residual: FloatArray
    length: FloatArray

    def parts(self) -> tuple[FloatArray, ...]:
        """Return the six arrays in the order of the fields."""
        return self.unknowns, self.scores, self.value, self.bends, self.residual, self.length


@dataclass(frozen=True, slots=True, eq=False)
class _Problems:
    """m problems of n rows: ``gram`` (n, n, m), ``labels`` (K, n, m), ``strength`` (m,), ``offset`` (K, n, m).

    Labels are numbers, or of K scores 1 for a row's class and 0 for others. ``counts`` (n, m) are the rows' weights, 1
    of K scores. The last problem is none: its rows are zeros. For numpy adds up in another order where one problem is
    alone.
    """

    loss: Loss
    gram: FloatArray
    labels: FloatArray
    counts: FloatArray
    strength: FloatArray
    offset: FloatArray

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 -- the parts of a problem
        cls,
        loss: Loss,
        gram: FloatArray,
        y: FloatArray,
        counts: FloatArray,
        strength: FloatArray,
        offset: FloatArray,
    ) -> _Problems:
        """Return the problems of arrays that have the problems first, and the rows before the scores."""
        none = ((0, 1), (0, 0), (0, 0))
        labels = y[..., None] if loss.outputs == 1 else np.eye(loss.outputs)[decode_classes(y, loss.outputs)]
        parts = (_last(np.pad(part, none)) for part in (gram, np.swapaxes(labels, 1, 2), np.swapaxes(offset, 1, 2)))
        gram, labels, offset = parts
        return cls(loss, gram, labels, _last(np.pad(counts, none[:2])), np.append(strength, 1.0), offset)

    def some(self, selected: BoolArray) -> _Problems:
        """Return some of the problems, (m,)."""
        parts = _some(selected, self.gram, self.labels, self.counts, self.strength, self.offset)
        return _Problems(self.loss, *parts)

    def solved(self, tolerance: float) -> FloatArray:
        """Return the unknowns (m - 1, K, n) where the gradient is no longer than the tolerance, or gets no shorter."""
        problems, now = self, self.start()
        solution, which = now.unknowns, np.arange(len(self.strength))
        active = now.length > tolerance
        for _ in range(_MAX_NEWTON):
            if not bool(active.any()):
                break
            active[-1] = True
            if not bool(active.all()):
                solution[..., which] = now.unknowns
                problems, which, now = problems.some(active), which[active], _Point(*_some(active, *now.parts()))
            before, now = now, problems.descend(now)
            active = (now.length > tolerance) & ((now.value < before.value) | (now.length < before.length))
        solution[..., which] = now.unknowns
        return np.ascontiguousarray(np.moveaxis(solution[..., :-1], -1, 0))

    def start(self) -> _Point:
        """Return the unknowns to start from: those that fit the labels, or zeros if these are better."""
        targets = self.labels - (0.0 if self.loss.outputs == 1 else 1.0 / self.loss.outputs)
        targets /= np.abs(targets).max(axis=(0, 1))
        ridge = self.strength + _RIDGE * np.einsum("iim->m", self.gram) / len(self.gram)
        times = _inverse(_raised(self.gram.copy(), ridge))
        unknowns = times(targets)
        unknowns *= np.log1p(self.counts.sum(axis=0) / (self.strength * (unknowns * targets).sum(axis=(0, 1))))
        if self.loss.outputs > 1:
            others = np.maximum(-self.strength * unknowns, _RARE)
            of_label = np.maximum(1.0 - (others * (1.0 - self.labels)).sum(axis=0), _OWN)
            scores = np.log(np.where(self.labels > 0, of_label, others))
            scores -= scores.mean(axis=0)
            unknowns += times(scores + ridge * unknowns)
            unknowns /= 2
        near = self.at(unknowns, self.times(unknowns))
        at_zero, _, _ = self.losses(self.offset)
        worse = ~(near.value < at_zero.sum(axis=0))
        worse[-1] = False
        if not bool(worse.any()):
            return near
        unknowns[..., worse] = 0.0
        return self.at(unknowns, self.times(unknowns))

    def at(self, unknowns: FloatArray, scores: FloatArray) -> _Point:
        """Return the point at these unknowns, with their scores (K, n, m)."""
        losses, slopes, bends = self.losses(scores + self.offset)
        value = losses.sum(axis=0) + self.strength / 2 * (unknowns * scores).sum(axis=(0, 1))
        residual = slopes + self.strength * unknowns
        squared = (residual * self.times(residual)).sum(axis=(0, 1))
        return _Point(unknowns, scores, value, bends, residual, np.sqrt(np.maximum(squared, 0.0)))

    def times(self, unknowns: FloatArray) -> FloatArray:
        """Return the Gram matrix times (K, n, m)."""
        return np.asarray(np.einsum("ijm,kjm->kim", self.gram, unknowns))

    def losses(self, scores: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the losses (n, m) of scores (K, n, m), their slopes and bends, (K, n, m)."""
        if self.loss.outputs == 1:
            one, y, times = scores[0], self.labels[0], self.counts
            slopes, bends = times * self.loss.slope(one, y), times * self.loss.curvature(one, y)
            return times * self.loss.value(one, y), slopes[None], bends[None]
        top = scores.max(axis=0)  # all of a softmax at once, where classes are not the last axis
        powers = np.exp(scores - top)
        total = powers.sum(axis=0)
        powers /= total
        of_label = np.einsum("kim,kim->im", self.labels, scores)
        return np.log(total) + (top - of_label), powers - self.labels, powers

    def step(self, now: _Point) -> tuple[FloatArray, FloatArray]:
        """Return Newton's step, (K, n, m), of K scores by Chebyshev's method, and what it does to the scores."""
        if self.loss.outputs == 1:
            roots = np.sqrt(now.bends) + _LEAST_ROOT
            systems = _raised(roots[0][:, None] * roots[0] * self.gram, self.strength)
            step = -roots * _inverse(systems)(now.residual / roots)
            return step, self.times(step)
        inverse = self.coupled(now.bends)
        step = -inverse(now.residual)
        along = self.times(step)
        beside = along - (now.bends * along).sum(axis=0)
        beside *= beside
        bent = now.bends / 2 * (beside - (now.bends * beside).sum(axis=0))
        more = -inverse(bent)
        further = self.times(more)
        far = ~((bent * further).sum(axis=(0, 1)) >= _PART**2 * (now.residual * along).sum(axis=(0, 1)))
        more[..., far] = further[..., far] = 0.0
        return step + more, along + further

    def coupled(self, bends: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return the inverse of Newton's system of K scores: a function of right sides (K, n, m)."""
        roots = np.sqrt(bends) + _LEAST_ROOT
        rooted = np.ascontiguousarray(np.swapaxes(roots, 0, 1))  # (n, K, m)
        both = rooted[:, None] * rooted
        within = _inverses(_raised(both * self.gram[:, :, None], self.strength))
        by_mean = np.multiply(both, within, out=both)
        for_mean = _inverse(by_mean.sum(axis=2))

        def inverse(sides: FloatArray) -> FloatArray:
            alone = roots * np.einsum("ijkm,kjm->kim", within, sides / roots)
            mean = for_mean(alone.sum(axis=0, keepdims=True))[0]
            return np.asarray(alone - np.einsum("ijkm,jm->kim", by_mean, mean))

        return inverse

    def descend(self, now: _Point) -> _Point:
        """Return the point a step further, halved until F falls enough (Armijo)."""
        step, along = self.step(now)
        descent = (now.residual * along).sum(axis=(0, 1))
        enough = now.value + 1e-12 * np.maximum(np.abs(now.value), 1.0)
        rate = np.ones_like(now.value)
        for _ in range(_MAX_HALVINGS):
            following = self.at(now.unknowns + rate * step, now.scores + rate * along)
            short = following.value > enough + _SUFFICIENT_DECREASE * rate * descent
            if not bool(short.any()):
                break
            rate = np.where(short, rate / 2, rate)
        return following


def _taken(table: FloatArray, rows: IntArray) -> FloatArray:
    """Return some rows of a table, ascending: where they are if all that lie between are asked for too."""
    first, last = int(rows.flat[0]), int(rows.flat[-1])
    if last - first + 1 == rows.size:
        return table[first : last + 1].reshape(*rows.shape, *table.shape[1:])
    return np.asarray(table[rows])


def _last(stack: FloatArray) -> FloatArray:
    """Return a stack (m, ...) as (..., m)."""
    return np.ascontiguousarray(np.moveaxis(stack, 0, -1))


def _some(selected: BoolArray, *parts: FloatArray) -> Iterator[FloatArray]:
    """Yield some of the problems (m,) of arrays (..., m), whose problems stay side by side in memory."""
    return (np.compress(selected, part, axis=-1) for part in parts)


def _raised(systems: FloatArray, by: FloatArray) -> FloatArray:
    """Add something to the diagonals of matrices (n, n, ...), in place."""
    np.einsum("ii...->i...", systems)[...] += by
    return systems


def _inverse(systems: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return the inverses of symmetric positive definite matrices (n, n, m), as a function of right sides (K, n, m).

    The systems are used up.
    """
    if len(systems) <= _SOLVED:
        inverses = _inverses(systems)
        return lambda sides: np.asarray(np.einsum("ijm,kjm->kim", inverses, sides))
    first = np.moveaxis(systems, -1, 0)

    def inverse(sides: FloatArray) -> FloatArray:
        solution = _by_lapack(np.linalg.solve, first, np.moveaxis(sides, (0, -1), (-1, 0)))
        return np.ascontiguousarray(np.moveaxis(solution, (0, -1), (-1, 0)))

    return inverse


def _inverses(systems: FloatArray) -> FloatArray:
    """Return the inverses of symmetric positive definite matrices (n, n, ..., m), in place."""
    n = len(systems)
    if n > _INVERTED:
        inverses = _by_lapack(np.linalg.inv, np.moveaxis(systems, (0, 1), (-2, -1)))
        return np.moveaxis(inverses, (-2, -1), (0, 1))
    pivot_row, product = np.empty_like(systems[0]), np.empty_like(systems[0])
    for row in range(n):  # each sweep solves for one unknown, below the diagonal alone
        pivot_row[:row], pivot_row[row:] = systems[row, :row], systems[row:, row]
        part = pivot_row / pivot_row[row]
        part[row] = 1.0
        for other in range(n):
            below = slice(other + 1)
            systems[other, below] -= np.multiply(pivot_row[other], part[below], out=product[below])
        part[row] = -1.0 / pivot_row[row]
        systems[row, :row], systems[row:, row] = part[:row], part[row:]
    np.negative(systems, out=systems)
    for row in range(1, n):
        systems[:row, row] = systems[row, :row]
    return systems


def _by_lapack(solve: Callable[..., FloatArray], systems: FloatArray, *sides: FloatArray) -> FloatArray:
    """Solve systems (m, ..., n, n); a system that rounding makes singular gets zeros, and no other does."""
    try:
        return np.asarray(solve(systems, *sides))
    except np.linalg.LinAlgError:
        if len(systems) == 1:
            return np.zeros_like(sides[0] if sides else systems)
        half = len(systems) // 2
        parts = ([part[:half] for part in (systems, *sides)], [part[half:] for part in (systems, *sides)])
        return np.concatenate([_by_lapack(solve, *part) for part in parts])
