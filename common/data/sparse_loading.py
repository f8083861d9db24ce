"""Rows of sparse features as a sparse shard, block by block, counting every fault as `loading` does.

A row lists its entries that are not zero. They are divided by the study's bound; the intercept is the last column.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, hstack, vstack

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.cells import AS_THEY_ARE, CellRules, Column, Entries
from parley.common.data.columns import SparseFeatures
from parley.common.data.faults import FaultKind
from parley.common.data.loading import Loading
from parley.common.data.shard import Shard, weighed
from parley.common.data.sparse import Matrix, SparseShard
from parley.common.data.study import Study, training_first


class SparseLoading(Loading):
    """A sparse shard of at most ``n_rows`` rows under construction."""

    def __init__(self, study: Study, n_rows: int, rules: CellRules = AS_THEY_ARE) -> None:
        super().__init__(study, n_rows, rules)
        assert study.sparse is not None  # noqa: S101 -- its caller knows
        self._features: SparseFeatures = study.sparse
        self._parts: list[Matrix] = []
        self._seen.add(self._features.name)

    def _room(self, n_rows: int) -> FloatArray:  # noqa: ARG002
        return np.empty((0, 0))  # rows come as parts

    def reserve(self, n_rows: int) -> None:
        """Make room for ``n_rows`` rows if there is less: a little more, and mostly without a copy."""
        had = len(self._y)
        if n_rows <= had:
            return
        for array in (self._y, self._dropped, *([self._weights] if self._weights_name else [])):
            array.resize(
                max(n_rows, had + had // 256), refcheck=False
            )  # a realloc: the system moves large arrays whole
        self._y[had:] = 1.0
        self._weights[had:] = 1.0

    def add_entries(self, start: int, entries: Entries) -> None:
        """Take the entries of the rows from ``start`` on, which come in order."""
        features, n = self._features, len(entries.missing)
        owner = np.repeat(np.arange(n), np.diff(entries.starts))
        places, values = entries.places - features.first, entries.values / features.bound
        is_whole = places == np.trunc(places)
        in_range = is_whole & (places >= 0) & (places < features.columns)
        columns = np.where(in_range, places, 0.0).astype(np.int64)
        again = _repeated(columns, owner, in_range)
        beyond = np.abs(values) > 1
        self._note_missing(start, features.name, entries.missing)
        self._faults.note(features.index, "no whole number as a place", _rows(~is_whole, owner, n))
        self._faults.note(features.index, "place out of range", _rows(is_whole & ~in_range, owner, n))
        self._faults.note(features.index, "place repeated", _rows(again, owner, n))
        self._faults.note(features.value, "not numeric", _rows(np.isnan(values), owner, n))
        self._faults.note(features.index, "too many entries", int((np.diff(entries.starts) > features.entries).sum()))
        self._faults.note(features.index, "places and values unequal in number", int(entries.unequal.sum()))
        if self._rules.clip:
            self._clipped[features.name] += int(beyond.sum())
        else:
            self._faults.note(features.value, "beyond the bounds", _rows(beyond, owner, n))
        rows = (np.clip(values, -1.0, 1.0), columns, entries.starts)
        self._parts.append(csr_array(rows, shape=(n, features.columns)))

    def add_label(self, start: int, column: Column) -> None:
        """Take the labels of the rows from ``start`` on."""
        self.add(start, {self._label.name: column})

    def matrix(self) -> Matrix:
        """Return all rows (n, d): not yet on the grid, nor projected if a bound does not hold."""
        rows: Matrix = csr_array(vstack(self._parts, format="csr")) if self._parts else csr_array((0, 1))
        scale = self._layout.scale
        if self._layout.intercept:
            constant = np.full((rows.shape[0], 1), self._layout.intercept / scale)
            rows = csr_array(hstack([rows, csr_array(constant)], format="csr"))
        if not self._layout.own:
            return rows * scale
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        norms = np.sqrt(np.bincount(owner, rows.data**2, rows.shape[0]))
        rows.data = rows.data * ((1 - 2.0**-30) / np.where(norms > 0, norms, 1.0))[owner]
        return rows

    def _shard(self, n_rows: int) -> Shard:
        rows = self.matrix()
        n_read = rows.shape[0]
        y, dropped = self._labels(n_read)
        rows.data = np.where(np.repeat(dropped, np.diff(rows.indptr)), 0.0, rows.data)
        self._count_dropped(dropped)
        shard: Shard = SparseShard(rows, y, norm=self._norm)
        if self._order is not None or self._share is not None:
            places = training_first(n_read, self._share) if self._order is None else self._order.rows
            shard = shard.take(places)
            self._weights = self._weights[places] if self._weights_name else self._weights
        return weighed(shard, self._weighing(n_rows))

    def _n_numbers(self, n_rows: int) -> int:  # noqa: ARG002
        return sum(int(part.nnz) for part in self._parts)

    def _missing_kind(self, name: str) -> FaultKind:
        return "list missing" if name == self._features.name else "label missing"  # neither has a fill

    def _n_values(self, name: str, n_rows: int) -> int:
        return self._n_numbers(n_rows) if name == self._features.name else n_rows


def _repeated(columns: IntArray, owner: IntArray, valid: BoolArray) -> BoolArray:
    """Return which of the ``valid`` entries (m,) have the column of another entry in their row."""
    which = np.flatnonzero(valid)
    order = which[np.lexsort((columns[which], owner[which]))]
    again = np.zeros(len(columns), dtype=np.bool_)
    again[order[1:]] = (np.diff(columns[order]) == 0) & (np.diff(owner[order]) == 0)
    return again


def _rows(faulty: BoolArray, owner: IntArray, n: int) -> int:
    """Return how many of n rows have a faulty entry."""
    return int(np.count_nonzero(np.bincount(owner[faulty], minlength=n)))
