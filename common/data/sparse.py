"""Private examples whose rows are mostly zeros: `Shard` with its rows kept in compressed form (CSR)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from common.arrays import BoolArray, FloatArray
from common.data.shard import Shard, rows_of_a_block
from common.encoding.fixed_point import FEATURE_BITS, truncate
from common.errors import InvalidInputError

DENSE_COLUMNS = 2048
"""Up to so many columns sparse rows are read in blocks of dense ones, so that what is computed has the same bits."""
_MOST_NUMBERS = 2**27
_MOST_ROWS = 2**20
_LARGEST = 2.0**FEATURE_BITS


class SparseShard(Shard):
    """Examples as `Shard` has them, with ``rows`` a CSR array (n, d), or (K n, d) of K stacked parties."""

    __slots__ = ("rows",)

    rows: csr_array

    def __init__(self, rows: csr_array, y: FloatArray, mask: BoolArray | None = None) -> None:
        y = np.array(y, dtype=np.float64)
        mask = np.ones(y.shape, dtype=np.bool_) if mask is None else np.array(mask, dtype=np.bool_)
        if rows.shape[0] != y.size or mask.shape != y.shape:
            raise ValueError(f"rows must be (K n, d) and y, mask (..., n); got {rows.shape} and {y.shape}")
        rows = csr_array(rows.astype(np.float64), copy=True)
        rows.sum_duplicates()
        bad = ~(mask & (np.abs(y) <= 1)).ravel()
        bad[np.repeat(np.arange(y.size), np.diff(rows.indptr))[~np.isfinite(rows.data)]] = True
        keep = np.repeat(~bad, np.diff(rows.indptr))
        rows.data = np.where(keep, rows.data, 0.0)
        y.ravel()[bad] = 1.0
        for i in np.flatnonzero((rows.multiply(rows)).sum(axis=1) > 1 - 2.0**-30):
            part = slice(rows.indptr[i], rows.indptr[i + 1])
            row = Shard(rows.data[None, part], np.ones(1)).X[0]
            rows.data[part] = row
        rows.data = truncate(rows.data, FEATURE_BITS)
        rows.eliminate_zeros()
        self._keep(rows, truncate(y, FEATURE_BITS), mask, [])

    def _keep(self, rows: Any, y: FloatArray, mask: BoolArray, norms: list[FloatArray]) -> None:  # noqa: ANN401 -- CSR
        for value in (y, mask, rows.data, rows.indices, rows.indptr):
            value.flags.writeable = False
        for name, kept in (("rows", rows), ("y", y), ("mask", mask), ("_norms_l1", norms)):
            object.__setattr__(self, name, kept)

    @classmethod
    def of(cls, shard: Shard) -> SparseShard:
        """The same shard, with its rows in compressed form."""
        if isinstance(shard, SparseShard):
            return shard
        made = object.__new__(cls)
        made._keep(csr_array(shard.X.reshape(-1, shard.n_features)), shard.y, shard.mask, [])
        return made

    @property
    def X(self) -> FloatArray:
        """The dense rows; raises InvalidInputError where they are too many."""
        if self.y.size * self.n_features > _MOST_NUMBERS:
            raise InvalidInputError("sparse rows are too many to be written out")
        return self.rows.toarray().reshape(*self.y.shape, -1)

    @property
    def n_features(self) -> int:
        """The number of columns, d."""
        return int(self.rows.shape[1])

    @property
    def shape(self) -> tuple[int, ...]:
        """(..., n, d)."""
        return (*self.y.shape, self.n_features)

    @property
    def most_entries(self) -> int:
        """The largest number of entries of a row that are not zero."""
        return int(np.diff(self.rows.indptr).max(initial=0))

    @property
    def norms_l1(self) -> FloatArray:
        """As `Shard.norms_l1`."""
        if not self._norms_l1:
            total = abs(self.rows) @ np.full(self.n_features, _LARGEST)
            self._norms_l1.append(total.reshape(self.y.shape))
        return self._norms_l1[0]

    def scores(self, weights: FloatArray) -> FloatArray:
        """As `Shard.scores`."""
        if self.y.ndim == 1 or weights.ndim == 2:  # noqa: PLR2004
            return np.asarray(self.rows @ weights.T).reshape(*self.y.shape, -1)
        return np.stack([part.scores(own) for part, own in zip(self._each(), weights, strict=True)])

    def weighted_sum(self, slopes: FloatArray) -> FloatArray:
        """As `Shard.weighted_sum`."""
        if self.y.ndim == 1:
            return np.ascontiguousarray((self.rows.T @ slopes).T)
        return np.stack([part.weighted_sum(own) for part, own in zip(self._each(), slopes, strict=True)])

    def blocks(self) -> Iterator[Shard]:
        """As `Shard.blocks`: of dense rows up to `DENSE_COLUMNS`, else of sparse ones."""
        if self.n_features > DENSE_COLUMNS:
            most = _MOST_ROWS
        else:
            most = _MOST_ROWS if self.y.ndim > 1 else rows_of_a_block(self.n_features)
        n = self.y.shape[-1]
        for start in range(0, max(n, 1), most):
            part = self if n <= most else self.view(slice(start, start + most))
            yield part if self.n_features > DENSE_COLUMNS else part._dense()  # noqa: SLF001

    def _dense(self) -> Shard:
        dense = object.__new__(Shard)
        for name, value in (("X", self.X), ("y", self.y), ("mask", self.mask), ("_norms_l1", list(self._norms_l1))):
            object.__setattr__(dense, name, value)
        return dense

    def _each(self) -> Iterator[SparseShard]:
        for i in range(len(self.y)):
            yield self._picked(i * self.y.shape[1], (i + 1) * self.y.shape[1], i)

    def view(self, rows: slice) -> SparseShard:
        """As `Shard.view`."""
        start, stop, _ = rows.indices(self.y.shape[-1])
        if self.y.ndim == 1:
            return self._picked(start, stop, rows)
        n = self.y.shape[-1]
        chosen = (np.arange(len(self.y))[:, None] * n + np.arange(start, stop)).ravel()
        made = object.__new__(SparseShard)
        norms = [each[:, rows] for each in self._norms_l1]
        made._keep(self.rows[chosen], self.y[:, rows], self.mask[:, rows], norms)
        return made

    def _picked(self, start: int, stop: int, index: int | slice) -> SparseShard:
        a, b = self.rows.indptr[start], self.rows.indptr[stop]
        parts = (self.rows.data[a:b], self.rows.indices[a:b], self.rows.indptr[start : stop + 1] - a)
        made = object.__new__(SparseShard)
        picked = csr_array(parts, shape=(stop - start, self.n_features))
        made._keep(picked, self.y[index], self.mask[index], [each[index] for each in self._norms_l1])
        return made

    def parties(self, most: int) -> Iterator[tuple[slice | EllipsisType, Shard]]:
        """As `Shard.parties`."""
        if self.y.ndim == 1 or len(self.y) <= most:
            yield ..., self
            return
        n = self.y.shape[-1]
        for start in range(0, len(self.y), most):
            index = slice(start, start + most)
            yield index, self._picked(start * n, min(start + most, len(self.y)) * n, index)

    @classmethod
    def stack(cls, shards: Sequence[Shard]) -> SparseShard:
        """As `Shard.stack`."""
        longest = max(len(shard.y) for shard in shards)
        indptr, indices, data, y, mask = [np.zeros(1, dtype=np.int64)], [], [], [], []
        for shard in shards:
            rows = cls.of(shard).rows
            ends = np.concatenate([rows.indptr[1:], np.full(longest - len(shard.y), rows.indptr[-1])])
            indptr.append(ends + indptr[-1][-1])
            indices.append(rows.indices)
            data.append(rows.data)
            y.append(np.pad(shard.y, (0, longest - len(shard.y)), constant_values=1.0))
            mask.append(np.pad(shard.mask, (0, longest - len(shard.y))))
        d = shards[0].n_features
        rows = csr_array(
            (np.concatenate(data), np.concatenate(indices), np.concatenate(indptr)), shape=(longest * len(y), d)
        )
        return cls(rows, np.stack(y), np.stack(mask))

    def party(self, index: int) -> SparseShard:
        """As `Shard.party`."""
        n = self.y.shape[-1]
        part = self._picked(index * n, (index + 1) * n, index)
        keep = np.flatnonzero(part.mask)
        return SparseShard(part.rows[keep], part.y[keep])

    def pooled(self) -> SparseShard:
        """As `Shard.pooled`."""
        keep = np.flatnonzero(self.mask.ravel())
        return SparseShard(self.rows[keep], self.y.ravel()[keep])
