"""One owner's private examples, or those of many owners stacked.

A `Shard` that exists is safe to compute on: its constructor projects every row into the unit ball of its norm, replaces
rows that are not numbers by zeros and puts everything on the grid of `parley.common.encoding.fixed_point`, so no
algorithm has to check again and no row can move a sum by more than the declared sensitivity. Loading an owner's file is
stricter (`parley.common.data.loading` refuses). `parley.common.data.sparse` is for rows with few numbers not zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.pairs import Pairs, RowPlaces, in_parts
from parley.common.data.weighing import Persons, Weighing
from parley.common.encoding.fixed_point import FEATURE_BITS, Norm, truncate

_S = TypeVar("_S", bound="Shard")
Index: TypeAlias = tuple[slice | EllipsisType | IntArray | None, ...]
"""An index into y."""
_CACHED = 2**17
"""The numbers that stay in a processor's cache while several operations pass over them: 1 MiB."""
SUMMED_ROWS = 2**9
"""The most rows of one sum of a gradient that is rounded: sums of few rows, and then of these, round least."""
SURELY_INSIDE = 1.0 - 2.0**-30
"""A computed squared norm up to this is below 1 for every rounding, for rows of fewer than 2^22 features."""
OUTWARDS = 1.0 + 2.0**-40
"""The factor of a projected row before it is truncated.

Without it the last bit of its norm, which depends on the order in which its squares were added up, could decide on
which side of a grid point a number falls. Integers never show the excess.
"""
INWARDS = 1.0 - 2.0**-40
"""The factor of a row whose integers show an excess: each number falls one step of the grid inward."""


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Examples X (..., n, d) with labels y (..., n) and a mask (..., n) that is False on padding.

    Rows of X have norm at most 1 by ``norm`` and lie on the grid of 2^-16; y lies in [-1, 1], and is -1 or +1 for two
    classes. Leading axes stack parties: one party has none, K stacked parties have one of length K.

    ``weighing`` says which rows are one person's, and how much each counts; None if each is an example of weight 1. A
    shard that is made of another says whose it is: there is no default, so that no person becomes several by mistake.
    """

    X: FloatArray
    y: FloatArray
    mask: BoolArray
    norm: Norm
    weighing: Weighing | None
    _norms_l1: list[FloatArray] = field(init=False, repr=False)
    _pairs: list[Pairs] = field(init=False, repr=False)
    _blocks: dict[int, tuple[Shard, ...]] = field(init=False, repr=False)

    def __init__(  # noqa: PLR0913 -- two of them by name
        self,
        X: FloatArray,
        y: FloatArray,
        mask: BoolArray | None = None,
        norm: Norm = "euclidean",
        *,
        begins: BoolArray | None = None,
        row_weights: FloatArray | None = None,
    ) -> None:
        X, y = (np.array(values, dtype=np.float64, order="C") for values in (X, y))
        if X.ndim < 2 or y.shape != X.shape[:-1] or (mask is not None and mask.shape != y.shape):  # noqa: PLR2004
            raise ValueError(f"X must be (..., n, d) and y, mask (..., n); got {X.shape} and {y.shape}")
        mask = np.ones(y.shape, dtype=np.bool_) if mask is None else np.array(mask, dtype=np.bool_)
        _make_safe(X.reshape(-1, X.shape[-1]), y.reshape(-1), mask.reshape(-1), norm)
        keep(self, X=X, y=y, mask=mask, norm=norm, weighing=Weighing.of(mask, begins, row_weights))

    @classmethod
    def adopt(cls, X: FloatArray, y: FloatArray, norm: Norm, weighing: Weighing | None) -> Shard:
        """Make a shard from X (n, d) and y (n,), which the caller gives away.

        They are made safe in place, without a copy.
        """
        if not (X.ndim == 2 and X.flags.c_contiguous and y.flags.c_contiguous and X.flags.writeable):  # noqa: PLR2004
            return weighed(Shard(X, y, norm=norm), weighing)
        mask = np.ones(y.shape, dtype=np.bool_)
        _make_safe(X, y, mask, norm)
        return assembled(Shard, X=X, y=y, mask=mask, norm=norm, weighing=weighing)

    @property
    def n_examples(self) -> IntArray:
        """The number of examples, (...): of persons, or of rows that stand for themselves."""
        counted = self.mask if self.begins is None else self.mask & self.begins
        return np.asarray(counted.sum(axis=-1), dtype=np.int64)

    @property
    def n_rows(self) -> IntArray:
        """The number of rows, (...), which is private if examples are persons."""
        return np.asarray(self.mask.sum(axis=-1), dtype=np.int64)

    @property
    def begins(self) -> BoolArray | None:
        """Whether each row (..., n) is the first of its person; None if each row is an example."""
        return None if self.weighing is None else self.weighing.begins

    @property
    def persons(self) -> Persons | None:
        """Where each person's rows lie; None if each row is an example."""
        return None if self.weighing is None else self.weighing.persons

    @property
    def weights(self) -> FloatArray:
        """How much each row counts, (..., n): 1, or less by `parley.common.data.weighing`; 0 on padding."""
        return self.mask.astype(np.float64) if self.weighing is None else self.weighing.weights(self.mask)

    @property
    def n_features(self) -> int:
        """The number of columns of X, d."""
        return self.shape[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (..., n, d) of the rows."""
        return self.X.shape

    @property
    def present(self) -> BoolArray:
        """Whether each row (..., n) is neither padding nor zero, as rows are that a study has dropped."""
        return np.asarray(self.mask & self.X.any(axis=-1))

    @property
    def norms_l1(self) -> FloatArray:
        """The 1-norms (..., n) of the rows in units of 2^-16: integers, added up once and cached."""
        if not self._norms_l1:
            parts = [np.abs(block.X) @ np.full(self.n_features, 2.0**FEATURE_BITS) for block in self.blocks()]
            self._norms_l1.append(np.concatenate(parts, axis=-1))
        return self._norms_l1[0]

    @property
    def pairs(self) -> Pairs:
        """The products of rows of the same person, made once. Raises ValueError if examples are no persons."""
        if self.persons is None:
            raise ValueError("each row is an example")
        if not self._pairs:
            self._pairs.append(Pairs.of(self.persons, lambda one, other: in_parts(one, other, self._products)))
        return self._pairs[0]

    def _products(self, one: RowPlaces, other: RowPlaces) -> FloatArray:
        """Return the products (m,) of rows by their places among all."""
        X = self.X.reshape(-1, self.n_features)
        return np.asarray(np.einsum("ij,ij->i", X[one], X[other]))

    def _pairs_at(self, index: Index) -> list[Pairs]:
        """Return the pairs of the rows that an index into y selects, if they are one party's and made already."""
        rows, begins = index[-1], self.begins
        if not self._pairs or begins is None or begins.ndim > 1 or not isinstance(rows, slice):
            return []
        start, end, _ = rows.indices(len(begins))
        is_whole = start < end and begins[start] and (end == len(begins) or begins[end])
        return [self._pairs[0].between(start, end)] if is_whole else []

    def scores(self, weights: FloatArray) -> FloatArray:
        """Return the scores (..., n, k) of each example under k rows of weights, (k, d) or (..., k, d).

        Weights (k, d) are for all parties.
        """
        scores: FloatArray = self.X @ np.swapaxes(weights, -1, -2)
        return scores

    def weighted_sum(self, slopes: FloatArray) -> FloatArray:
        """Return the sums (..., k, d) over the examples of x times each of their k slopes, (..., n, k)."""
        total: FloatArray = np.swapaxes(slopes, -1, -2) @ self.X
        return total

    def blocks(self, together: int = 1) -> Iterator[Shard]:
        """Yield the shard in blocks of rows, in order: each fits a processor's cache, and an exact sum of it float64.

        A shard of no rows is one block; so is a stack whose parties are small. Up to four may be ``together``.
        """
        n = self.y.shape[-1]
        most = 2**20 if self.y.ndim > 1 else together * rows_of_a_block(self.n_features)
        if n <= most:
            yield self
        elif self.begins is None:
            yield from (self.view(slice(start, start + most)) for start in range(0, n, most))
        else:  # what is worked out of a block's persons stays
            if together not in self._blocks:
                self._blocks[together] = tuple(self._whole_persons(most))
            yield from self._blocks[together]

    def _whole_persons(self, most: int) -> Iterator[Shard]:
        """Yield the shard in blocks of so many rows, or a few more, that cut no person."""
        start, n = 0, self.y.shape[-1]
        while start < n:
            end = self._end_of_person(min(start + most, n))
            yield self.view(slice(start, end))
            start = end

    def _end_of_person(self, end: int) -> int:
        """Return the end of the person, at every party, whose rows the place before ``end`` is among."""
        begins = self.begins
        while begins is not None and end < begins.shape[-1] and not begins[..., end].all():
            end += 1
        return end

    def view(self, rows: slice) -> Shard:
        """Return some rows, as safe as all of them, without a copy; each keeps its weight."""
        return self._view((..., rows))

    def examples(self, first: int, end: int | None = None) -> Shard:
        """Return some of one party's examples, from the ``first`` to before the ``end``, without a copy."""
        if self.begins is None:
            return self.view(slice(first, end))
        places = np.append(np.flatnonzero(self.begins), len(self.y))
        most = len(places) - 1
        return self.view(slice(int(places[min(first, most)]), int(places[min(most if end is None else end, most)])))

    def take_examples(self, which: IntArray) -> Shard:
        """Return some of one party's examples, all rows of each, in this order."""
        if self.begins is None:
            return self.take(which)
        first = np.flatnonzero(self.begins)
        ends = np.append(first[1:], len(self.y))
        return self.take(np.concatenate([np.arange(0), *map(np.arange, first[which], ends[which])]))

    def relabelled(self, y: FloatArray) -> Shard:
        """Return the same rows with other labels (..., n), each -1 or +1."""
        return assembled(
            Shard, X=self.X, y=y, mask=self.mask, norm=self.norm, weighing=self.weighing, _norms_l1=self._norms_l1,
            _pairs=self._pairs,
        )  # fmt: skip

    def replaced(self, X: FloatArray) -> Shard:
        """Return the same examples with other rows (..., n, k), which are made safe in the 2-norm."""
        return weighed(Shard(X, self.y, self.mask), self.weighing)

    def parties(self, most: int) -> Iterator[tuple[slice | EllipsisType, Shard]]:
        """Yield at most ``most`` parties of a stack at a time, in order, with the index of each.

        The index is ``...`` if all parties fit.
        """
        if self.y.ndim == 1 or len(self.y) <= most:
            yield ..., self
            return
        for start in range(0, len(self.y), most):
            index = slice(start, start + most)
            yield index, self._view((index, ...))

    def of_parties(self, which: IntArray) -> Shard:
        """Return some parties of a stack, in this order, with their padding; one party's shard as a stack of one."""
        return self._view((None, ...) if self.y.ndim == 1 else (which, ...))

    def _view(self, index: Index) -> Shard:
        """Return the rows that an index into y selects."""
        return assembled(
            Shard, X=self.X[(*index, slice(None))], y=self.y[index], mask=self.mask[index], norm=self.norm,
            weighing=self.weighing and self.weighing.at(index, self.mask),
            _norms_l1=[norms[index] for norms in self._norms_l1], _pairs=self._pairs_at(index),
        )  # fmt: skip

    @staticmethod
    def stack(shards: Sequence[Shard]) -> Shard:
        """Stack K shards of one party each, all of one kind, padded to the largest."""
        return shards[0].stacked_with(shards)

    def stacked_with(self, shards: Sequence[Shard]) -> Shard:
        """Stack shards of this one's kind, as `stack` does."""
        longest = max(shard.X.shape[-2] for shard in shards)
        X, y, mask = zip(*(_pad(shard, longest) for shard in shards), strict=True)
        stacked = Shard(np.stack(X), np.stack(y), np.stack(mask), self.norm)
        return weighed(stacked, Weighing.stacked([shard.weighing for shard in shards], longest))

    def take(self, places: IntArray) -> Shard:
        """Return some rows of one party, in this order. Raises ValueError if those of a person do not stand together.

        If only some rows of a person are taken, these are weighed as all of it.
        """
        weighing = self.weighing and self.weighing.taken(places)
        return Shard.adopt(self.X[places], self.y[places], self.norm, weighing)

    def party(self, index: int) -> Shard:
        """Return the shard of one party of a stack, without its padding."""
        keep = self.mask[index]
        weighing = self.weighing and self.weighing.kept((index, keep))
        return Shard.adopt(self.X[index][keep], self.y[index][keep], self.norm, weighing)

    def pooled(self) -> Shard:
        """Return all examples of a stack as one party's, as a trusted curator would hold them."""
        weighing = self.weighing and self.weighing.kept(self.mask)
        return Shard.adopt(self.X[self.mask], self.y[self.mask], self.norm, weighing)


def keep(shard: Shard, **fields: Any) -> None:  # noqa: ANN401 -- its own
    """Set the fields of a frozen shard; arrays are read-only from then on."""
    defaults: dict[str, Any] = {} if hasattr(shard, "_norms_l1") else {"_norms_l1": [], "_pairs": [], "_blocks": {}}
    for name, value in (defaults | fields).items():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        object.__setattr__(shard, name, value)


def weighed(shard: Shard, weighing: Weighing | None) -> Shard:
    """Return a shard that nobody else has yet, with its rows weighed so."""
    keep(shard, weighing=weighing)
    return shard


def assembled(kind: type[_S], *, weighing: Weighing | None, **fields: Any) -> _S:  # noqa: ANN401 -- its own
    """Build a shard from values that are safe already."""
    shard = object.__new__(kind)
    keep(shard, weighing=weighing, **fields)
    return shard


def rows_of_a_block(n_features: int) -> int:
    """Return how many rows of one party's shard make a block."""
    return max(_CACHED // max(n_features, 1), 2**8)


def _pad(shard: Shard, n: int) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the arrays of a shard of one party, lengthened to n rows."""
    extra = n - shard.X.shape[-2]
    return (
        np.pad(shard.X, ((0, extra), (0, 0))),
        np.pad(shard.y, (0, extra)),
        np.pad(shard.mask, (0, extra)),
    )


def _make_safe(X: FloatArray, y: FloatArray, mask: BoolArray, norm: Norm) -> None:
    """Put X (n, d) and y (n,) on the grid, in place: rows into the norm's ball, bad and masked ones to (0, 1)."""
    most = max(_CACHED // max(X.shape[-1], 1), 1)
    for start in range(0, len(X), most):
        rows, labels = X[start : start + most], y[start : start + most]
        bad = ~(mask[start : start + most] & (np.abs(labels) <= 1))
        with np.errstate(over="ignore", invalid="ignore"):
            inside = np.einsum("ij,ij->i", rows, rows) <= SURELY_INSIDE
        if not inside.all():  # by either norm: NaN is not inside
            bad |= ~np.isfinite(rows).all(axis=-1)
        if bad.any():
            rows[bad], labels[bad] = 0.0, 1.0
        if not inside.all():
            rows[~inside] = (_into_unit_ball if norm == "euclidean" else into_unit_cube)(rows[~inside])
        for values in (rows, labels):
            np.multiply(values, 2.0**FEATURE_BITS, out=values)
            np.trunc(values, out=values)
            np.multiply(values, 2.0**-FEATURE_BITS, out=values)


def into_unit_cube(X: FloatArray) -> FloatArray:
    """Clip numbers (...) to at most 1 in absolute value."""
    return np.clip(X, -1.0, 1.0)


def _into_unit_ball(X: FloatArray) -> FloatArray:
    """Project rows onto the unit ball, and truncate them to the grid; the squared norm is checked in integers."""
    X = X / np.abs(X).max(axis=-1, initial=1.0, keepdims=True)  # keeps the squares from overflowing
    X = truncate(X / np.maximum(np.linalg.norm(X, axis=-1, keepdims=True), 1.0) * OUTWARDS, FEATURE_BITS)
    outside = ((X * 2.0**FEATURE_BITS) ** 2).sum(axis=-1) > 2.0 ** (2 * FEATURE_BITS)
    if outside.any():  # a last-bit excess of the division: one grid step inward is enough
        X[outside] = truncate(X[outside] * INWARDS, FEATURE_BITS)
    return X
