"""Examples with few numbers that are not zero: rows as a sparse matrix, of millions of columns.

A `SparseShard` is a `Shard` except for how it stores its rows, and as safe: on the grid, in the ball of its norm, rows
that are not numbers zero. A number that is not zero takes 12 bytes, a zero takes none.

*The same bits.* Sums on the grid are exact, so they are the same for rows of either kind. A solver's results are
rounded, in an order that depends on how rows are stored. So up to `DENSE_COLUMNS` columns `blocks` makes each block
dense as it is read, as a shard of dense rows would have it; beyond, a solver makes dense rows sparse
(`SparseShard.of`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from scipy.sparse import csr_array, vstack

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.pairs import RowPlaces
from parley.common.data.shard import OUTWARDS, SURELY_INSIDE, Index, Shard, assembled, into_unit_cube, keep
from parley.common.data.weighing import Weighing
from parley.common.encoding.fixed_point import FEATURE_BITS, Norm, truncate
from parley.common.errors import InvalidInputError

Matrix: TypeAlias = "csr_array[Any, Any]"
"""A sparse matrix, row by row."""
DENSE_COLUMNS = 2048
"""The most columns for which blocks of sparse rows are made dense."""
_MOST_DENSE = 2**27
"""The most numbers of a dense copy: 1 GiB."""
_FILLED = 8
"""Measured: rows are faster dense if an eighth of their numbers is not zero, up to `_MOST_FILLED` numbers: 128 MiB."""
_MOST_FILLED = 2**24
_ONE = 2.0**FEATURE_BITS


class SparseShard(Shard):
    """Examples with labels y (..., n) and a mask (..., n) as a `Shard`'s; ``rows`` (n, d), or (K n, d) of K parties."""

    __slots__ = ("rows",)

    rows: Matrix

    def __init__(  # noqa: PLR0913 -- two of them by name
        self,
        rows: Matrix,
        y: FloatArray,
        mask: BoolArray | None = None,
        norm: Norm = "euclidean",
        *,
        begins: BoolArray | None = None,
        row_weights: FloatArray | None = None,
    ) -> None:
        y = np.array(y, dtype=np.float64)
        mask = np.ones(y.shape, dtype=np.bool_) if mask is None else np.array(mask, dtype=np.bool_)
        if rows.ndim != 2 or rows.shape[0] != y.size or mask.shape != y.shape:  # noqa: PLR2004
            raise ValueError(f"rows must be (n, d) or (K n, d), y and mask (..., n); got {rows.shape} and {y.shape}")
        safe: Matrix = csr_array(rows).astype(np.float64, copy=True)
        safe.check_format()  # an index beyond the columns would have products read what is no part of them
        safe = _made_safe(safe, y.reshape(-1), mask.reshape(-1), norm)
        keep(self, rows=_locked(safe), y=y, mask=mask, norm=norm, weighing=Weighing.of(mask, begins, row_weights))

    @staticmethod
    def of(shard: Shard) -> SparseShard:
        """Return the same examples with sparse rows; the shard itself if its rows are sparse already."""
        if isinstance(shard, SparseShard):
            return shard
        rows = csr_array(shard.X.reshape(-1, shard.n_features))
        return _assembled(rows, shard.y, shard.mask, shard.norm, shard.weighing)

    @property
    def X(self) -> FloatArray:
        """The rows as a dense array, (..., n, d). Raises InvalidInputError if it would be too large."""
        if self.y.size * self.n_features > _MOST_DENSE:
            raise InvalidInputError(f"{self.y.size} rows of {self.n_features} columns are too many to be kept dense")
        return np.asarray(self.rows.toarray().reshape(self.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (..., n, d) of the rows."""
        return (*self.y.shape, int(self.rows.shape[1]))

    @property
    def present(self) -> BoolArray:
        """Whether each row (..., n) is neither padding nor zero."""
        return np.asarray(self.mask & (np.diff(self.rows.indptr) > 0).reshape(self.y.shape))

    @property
    def most_entries(self) -> int:
        """The largest number of a row's entries that are not zero: private, unless the rows are not."""
        return int(np.diff(self.rows.indptr).max(initial=0))

    @property
    def norms_l1(self) -> FloatArray:
        """The 1-norms (..., n) of the rows in units of 2^-16: integers, added up once and cached."""
        if not self._norms_l1:
            self._norms_l1.append((abs(self.rows) @ np.full(self.n_features, _ONE)).reshape(self.y.shape))
        return self._norms_l1[0]

    def scores(self, weights: FloatArray) -> FloatArray:
        """Return the scores (..., n, k) of each example under k rows of weights, (k, d) or (..., k, d).

        Weights (k, d) are for all parties.
        """
        if weights.ndim > 2:  # noqa: PLR2004 -- weights for each party
            pairs = zip(self._alone(), weights, strict=True)
            return np.stack([_times(rows, of_party) for rows, of_party in pairs]).reshape(*self.y.shape, -1)
        return _times(self.rows, weights).reshape(*self.y.shape, -1)

    def weighted_sum(self, slopes: FloatArray) -> FloatArray:
        """Return the sums (..., k, d) over the examples of x times each of their k slopes, (..., n, k)."""
        if self.y.ndim == 1:
            return _times(self.rows.T, slopes.T).T
        return np.stack([_times(rows.T, of_party.T).T for rows, of_party in zip(self._alone(), slopes, strict=True)])

    def blocks(self, together: int = 1) -> Iterator[Shard]:
        """Yield the shard in blocks of rows, as a `Shard` does: dense ones up to `DENSE_COLUMNS` columns."""
        for block in super().blocks(together):
            yield block if self.n_features > DENSE_COLUMNS else cast("SparseShard", block).dense()

    def relabelled(self, y: FloatArray) -> Shard:
        """Return the same rows with other labels (..., n), each -1 or +1."""
        return _assembled(
            self.rows, y, self.mask, self.norm, self.weighing, _norms_l1=self._norms_l1, _pairs=self._pairs
        )

    def dense(self) -> Shard:
        """Return the same examples with dense rows."""
        return assembled(
            Shard, X=self.X, y=self.y, mask=self.mask, norm=self.norm, weighing=self.weighing,
            _norms_l1=list(self._norms_l1), _pairs=list(self._pairs),
        )  # fmt: skip

    def take(self, places: IntArray) -> Shard:
        """Return some rows of one party, in this order, as `Shard.take` does."""
        return self._taken(places, self.y[places], self.weighing and self.weighing.taken(places))

    def party(self, index: int) -> Shard:
        """Return the shard of one party of a stack, without its padding."""
        n = self.y.shape[-1]
        places = index * n + np.flatnonzero(self.mask[index])
        keep = self.mask[index]
        weighing = self.weighing and self.weighing.kept((index, keep))
        return self._taken(places, self.y[index][keep], weighing)

    def pooled(self) -> Shard:
        """Return all examples of a stack as one party's, as a trusted curator would hold them."""
        weighing = self.weighing and self.weighing.kept(self.mask)
        return self._taken(np.flatnonzero(self.mask), self.y[self.mask], weighing)

    def _taken(self, places: IntArray, y: FloatArray, weighing: Weighing | None) -> SparseShard:
        """Return some rows, none of them padding."""
        mask = np.ones(y.shape, dtype=np.bool_)
        return _assembled(self.rows[places], y.copy(), mask, self.norm, weighing)

    def _alone(self) -> Iterator[Matrix]:
        """Yield the rows of each party of a stack."""
        n = self.y.shape[-1]
        return (self.rows[start : start + n] for start in range(0, self.y.size, n))

    def _view(self, index: Index) -> Shard:
        """Return the rows that an index into y selects."""
        if index == (...,) or index == (..., slice(None)):
            return self
        places = np.arange(self.y.size).reshape(self.y.shape)[index]
        first, last = (int(places.flat[0]), int(places.flat[-1])) if places.size else (0, -1)
        together = last - first + 1 == places.size
        rows = self.rows[first : last + 1] if together else self.rows[places.reshape(-1)]
        norms_l1 = [norms[index] for norms in self._norms_l1]
        weighing = self.weighing and self.weighing.at(index, self.mask)
        return _assembled(
            rows, self.y[index], self.mask[index], self.norm, weighing,
            _norms_l1=norms_l1, _pairs=self._pairs_at(index),
        )  # fmt: skip

    def _products(self, one: RowPlaces, other: RowPlaces) -> FloatArray:
        """Return the products (m,) of rows by their places among all."""
        return np.asarray(self.rows[one].multiply(self.rows[other]).sum(axis=1))

    def stacked_with(self, shards: Sequence[Shard]) -> Shard:
        """Stack shards, as `stack` does, with sparse rows."""
        longest = max(shard.shape[-2] for shard in shards)
        parts = [SparseShard.of(shard) for shard in shards]
        filled = [(shard, longest - shard.shape[-2]) for shard in parts]
        rows = [part for shard, extra in filled for part in (shard.rows, csr_array((extra, self.n_features)))]
        y, mask = (np.stack([np.pad(getattr(shard, name), (0, extra)) for shard, extra in filled]) for name in _PADDED)
        y[~mask] = 1.0
        weighing = Weighing.stacked([shard.weighing for shard in parts], longest)
        return _assembled(csr_array(vstack(rows, format="csr")), y, mask, self.norm, weighing)


def in_occurring_columns(shard: SparseShard) -> tuple[Shard, IntArray]:
    """Return one party's shard of the columns that occur in its rows, and which those are, ascending.

    It is dense if they are well filled. That depends on the rows alone, and not on how the shard stores them.
    """
    rows, occurs = shard.rows, np.zeros(shard.n_features, dtype=np.bool_)
    occurs[rows.indices] = True
    place = np.cumsum(occurs)[rows.indices] - 1
    narrow = csr_array((rows.data, place, rows.indptr), shape=(rows.shape[0], int(occurs.sum())))
    narrowed = _assembled(narrow, shard.y, shard.mask, shard.norm, shard.weighing)
    numbers = math.prod(narrow.shape)
    return narrowed.dense() if numbers <= min(_MOST_FILLED, _FILLED * narrow.nnz) else narrowed, np.flatnonzero(occurs)


_PADDED = ("y", "mask")


def _assembled(
    rows: Matrix,
    y: FloatArray,
    mask: BoolArray,
    norm: Norm,
    weighing: Weighing | None,
    **made: Any,  # noqa: ANN401
) -> SparseShard:
    """Build a shard from rows that are safe already."""
    return assembled(SparseShard, rows=_locked(rows), y=y, mask=mask, norm=norm, weighing=weighing, **made)


def _locked(rows: Matrix) -> Matrix:
    """Make a matrix read-only, and return it."""
    for values in (rows.data, rows.indices, rows.indptr):
        values.flags.writeable = False
    return rows


def _times(matrix: Any, vectors: FloatArray) -> FloatArray:  # noqa: ANN401 -- of either order
    """Multiply a sparse matrix (n, m) by each of k vectors (k, m): (n, k)."""
    if len(vectors) == 1:
        return np.asarray(matrix @ np.ascontiguousarray(vectors[0]))[:, None]
    return np.asarray(matrix @ np.ascontiguousarray(vectors.T))


def _made_safe(rows: Matrix, y: FloatArray, mask: BoolArray, norm: Norm) -> Matrix:
    """Put rows (n, d) on the grid and into the norm's ball, bad and masked ones zero, their labels 1; both in place."""
    rows.sum_duplicates()
    owner = np.repeat(np.arange(len(y)), np.diff(rows.indptr))
    bad = ~(mask & (np.abs(y) <= 1))
    bad[owner[~np.isfinite(rows.data)]] = True
    rows.data[bad[owner]], y[bad] = 0.0, 1.0
    rows.data = (
        truncate(into_unit_cube(rows.data), FEATURE_BITS) if norm == "max" else _in_ball(rows.data, owner, len(y))
    )
    y[:] = truncate(y, FEATURE_BITS)
    rows.eliminate_zeros()
    return rows


def _in_ball(data: FloatArray, owner: IntArray, n: int) -> FloatArray:
    """Project the entries of rows onto the unit ball, on the grid; the squared norm is checked in integers."""
    largest = np.ones(n)
    np.maximum.at(largest, owner, np.abs(data))  # keeps the squares from overflowing
    scaled = data / largest[owner]
    squares = np.bincount(owner, scaled**2, n)
    inside = (largest == 1.0) & (squares <= SURELY_INSIDE)  # as a `Shard` sees it
    projected = scaled / np.sqrt(np.maximum(squares, 1.0))[owner] * OUTWARDS
    data = truncate(np.where(inside[owner], data, projected), FEATURE_BITS)
    outside = np.bincount(owner, (data * _ONE) ** 2, n) > _ONE**2
    if outside.any():  # a last-bit excess of the division: one grid step inward is enough
        data = np.where(outside[owner], truncate(data * (1.0 - 2.0**-40), FEATURE_BITS), data)
    return data
