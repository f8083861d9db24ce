"""Which rows of a shard are one example, and how much each row counts.

An *example* is what a run hides and what sizes count: a row, or a person of several rows, which then stand together.
Each row has a weight in [0, 1], and those of an example add up to at most 1; so a sum over rows of weight times
something of norm at most 1 moves by at most 2 when a whole person is exchanged for another, however many rows
each has. Of a person with r rows each counts 1/r, times a weight of its own if it was given one.

*Whole numbers.* Weights are multiples of 2^-16, and a person's are differences of running sums rounded down
(*diffused*): they add up to floor(2^16 sum w / r) exactly, so a person of thousands of rows loses nothing by rounding;
beyond 2^16 rows some count 2^-16 and others nothing. A shard's rows stay the same bits however it is cut or stacked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from parley.common.arrays import BoolArray, FloatArray, IntArray

_A = TypeVar("_A")
_N = TypeVar("_N", bound=np.generic)
WEIGHT_OF_ROW_BITS = 16
_ONE = 2**WEIGHT_OF_ROW_BITS


@dataclass(frozen=True, slots=True, eq=False)
class Weighing:
    """Where persons begin, and what weights rows were given.

    ``begins`` (..., n) says whether each row is the first of its person; None if each row is an example.
    ``row_weights`` (..., n) are weights in [0, 1] on the grid of 2^-16; None if all are 1.
    """

    begins: BoolArray | None
    row_weights: FloatArray | None = None
    _weights: list[FloatArray] = field(default_factory=list, repr=False)
    _persons: list[Persons] = field(default_factory=list, repr=False)
    _several: list[Several | None] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, mask: BoolArray, begins: BoolArray | None, row_weights: FloatArray | None) -> Self | None:
        """Return the weighing of rows with this mask (..., n), made safe; None if each row is an example of weight 1.

        A weight that is no number counts as 0, others are put into [0, 1]; loading refuses them. Raises ValueError for
        arrays of another shape, and for padding within a person.
        """
        if begins is None and row_weights is None:
            return None
        for values in (begins, row_weights):
            if values is not None and values.shape != mask.shape:
                raise ValueError(f"begins and weights must be {mask.shape} as the mask is, not {values.shape}")
        if begins is not None:
            begins = np.array(begins, dtype=np.bool_)
            begins[..., :1] = True
            begins |= ~mask
            if not bool(begins[..., 1:][~mask[..., :-1]].all()):
                raise ValueError("padding stands within a person")
        if row_weights is not None:
            safe = np.clip(np.nan_to_num(np.array(row_weights, dtype=np.float64), nan=0.0), 0.0, 1.0)
            row_weights = np.trunc(safe * _ONE) / _ONE
        return cls(_locked(begins), _locked(row_weights))

    @property
    def persons(self) -> Persons | None:
        """Where persons' rows lie, worked out once; None if each row is an example."""
        if self.begins is not None and not self._persons:
            self._persons.append(Persons(self.begins))
        return next(iter(self._persons), None)

    @property
    def several(self) -> Several | None:
        """Those rows whose person has several, worked out once; None if there are none."""
        if (persons := self.persons) is None:
            return None
        if not self._several:
            rows = np.flatnonzero(persons.repeated(persons.sizes > 1))
            begins = np.diff(persons.owners(rows), prepend=-1) > 0
            self._several.append(Several(rows, Persons(begins)) if len(rows) else None)
        return self._several[0]

    def weights(self, mask: BoolArray) -> FloatArray:
        """Return the weights (..., n) of rows with this mask: multiples of 2^-16, 0 on padding; computed once."""
        if not self._weights:
            self._weights.append(self._computed(mask))
        return self._weights[0]

    def _computed(self, mask: BoolArray) -> FloatArray:
        own = mask * (1.0 if self.row_weights is None else self.row_weights)
        if (persons := self.persons) is None:
            return np.asarray(own, dtype=np.float64)
        reached = persons.running((own * _ONE).astype(np.int64)) // persons.repeated(persons.sizes)
        return np.asarray(persons.steps(reached) / float(_ONE))

    def at(self, index: tuple[slice | EllipsisType | IntArray | None, ...], mask: BoolArray) -> Weighing:
        """Return the weighing of the rows that an index selects, of rows with this mask: each keeps its weight."""
        begins = None if self.begins is None else self.begins[index]
        row_weights = None if self.row_weights is None else self.row_weights[index]
        return Weighing(begins, row_weights, [self.weights(mask)[index]])

    def taken(self, places: IntArray) -> Weighing:
        """Return the weighing of some rows of one party, in this order.

        Raises ValueError if not all rows that are taken of a person stand together: it would be several.
        """
        row_weights = None if self.row_weights is None else _locked(self.row_weights[places])
        if self.begins is None:
            return Weighing(None, row_weights)
        persons = np.cumsum(self.begins)[places]
        begins = np.ones(len(places), dtype=np.bool_)
        begins[1:] = persons[1:] != persons[:-1]
        if int(begins.sum()) > len(np.unique(persons)):
            raise ValueError("the rows of a person must stay together")
        return Weighing(_locked(begins), row_weights)

    def kept(self, index: BoolArray | tuple[int, BoolArray]) -> Weighing:
        """Return the weighing of rows (...) as one party's: all but padding, of all parties or of one, by its place."""
        begins = None if self.begins is None else _locked(self.begins[index])
        return Weighing(begins, None if self.row_weights is None else _locked(self.row_weights[index]))

    @staticmethod
    def stacked(weighings: Sequence[Weighing | None], n: int) -> Weighing | None:
        """Return the weighing of shards stacked, each padded to n rows. Raises ValueError if not all are of a kind."""
        present = [one for one in weighings if one is not None]
        if not present:
            return None
        if len(present) < len(weighings):
            raise ValueError(_UNLIKE)
        begins, row_weights = ([getattr(one, name) for one in present] for name in ("begins", "row_weights"))
        return Weighing(_stacked(begins, n, fill=True), _stacked(row_weights, n, fill=0.0))


_UNLIKE = "shards of persons, or of weighted rows, and other shards cannot be stacked"


def _stacked(parts: Sequence[Any], n: int, *, fill: float) -> Any:  # noqa: ANN401 -- arrays of one type, or None
    """Return arrays (n_i,) as one (K, n), filled up; None if all are None. Raises ValueError if only some are."""
    if all(part is None for part in parts):
        return None
    if any(part is None for part in parts):
        raise ValueError(_UNLIKE)
    return _locked(np.stack([np.pad(part, (0, n - len(part)), constant_values=fill) for part in parts]))


class Persons:
    """Where each person's rows lie, for exact sums of integers within persons, of one party or of a stack.

    A part of a shard begins a person, and so does each party of a stack. Rows are (..., n), persons (P,) in order.
    """

    __slots__ = ("_first", "_last", "_owner", "_shape")

    def __init__(self, begins: BoolArray) -> None:
        flat = np.array(begins)
        flat[..., :1] = True
        self._shape = begins.shape
        self._owner: npt.NDArray[np.int32] = np.cumsum(flat, dtype=np.int32)  # a party has 2^30 rows at most
        self._owner -= np.int32(1)
        self._first = np.flatnonzero(flat)
        self._last = np.empty_like(self._first)
        np.subtract(self._first[1:], 1, out=self._last[:-1])
        self._last[-1:] = flat.size - 1

    @property
    def sizes(self) -> IntArray:
        """How many rows each person has, (P,)."""
        return np.asarray(self._last - self._first + 1)

    def running(self, values: IntArray) -> IntArray:
        """Return the running sums of integers (..., n) within each person."""
        return self.summed(values)[0]

    def totals(self, values: IntArray) -> IntArray:
        """Return the sum (P,) of integers (..., n) over each person's rows."""
        return self.summed(values)[1]

    def summed(self, values: IntArray) -> tuple[IntArray, IntArray]:
        """Return `running` and `totals`."""
        sums = np.cumsum(values.reshape(-1))
        until = sums[self._last]
        before = np.zeros_like(until)
        before[1:] = until[:-1]
        sums -= before[self._owner]
        return sums.reshape(self._shape), until - before

    def steps(self, reached: IntArray) -> IntArray:
        """Return what each row adds to running sums (..., n) within each person: the inverse of `running`."""
        flat = reached.reshape(-1)
        added = np.empty_like(flat)
        np.subtract(flat[1:], flat[:-1], out=added[1:])
        added[self._first] = flat[self._first]
        return np.asarray(added.reshape(self._shape))

    def left(self) -> IntArray:
        """Return how many rows of its person come after each row, (..., n)."""
        return np.asarray((self._last[self._owner] - np.arange(len(self._owner))).reshape(self._shape))

    def owners(self, places: npt.NDArray[np.integer]) -> IntArray:
        """Return whose rows these are, by their places among all."""
        return np.asarray(self._owner[places])

    def repeated(self, of_persons: npt.NDArray[_N]) -> npt.NDArray[_N]:
        """Return values (P,) of persons for each of their rows, (..., n)."""
        return of_persons[self._owner].reshape(self._shape)


@dataclass(frozen=True, slots=True, eq=False)
class Several:
    """The places ``rows`` (k,), among all, of those whose person has several, and where each person's lie there."""

    rows: IntArray
    persons: Persons


def counted_by_code(codes: IntArray, weights: FloatArray | IntArray, n_codes: int) -> FloatArray:
    """Return how many rows (..., n) have each code from 0 on, (..., n_codes), each row by its weight (..., n)."""
    stacked = codes.shape[:-1]
    n_parties = math.prod(stacked)
    apart = codes + n_codes * np.arange(n_parties).reshape(*stacked, 1)
    counts = np.bincount(apart.ravel(), weights.ravel(), n_parties * n_codes)
    return np.asarray(counts.reshape(*stacked, n_codes), dtype=np.float64)


def _locked(values: _A) -> _A:
    """Make an array read-only, if it is one, and return it."""
    if isinstance(values, np.ndarray):
        values.flags.writeable = False
    return values
