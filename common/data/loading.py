"""An owner's table as a shard, block by block: it takes memory for the shard and one block, and counts every fault.

Columns that a study maps are all in memory until they are mapped, unless rows arrive complete.

Rows of a study of persons go straight to the places that `parley.common.data.persons` finds for them: a shard has all
rows of a person side by side, and those that are held out last.

Blocks hold some rows of some columns. Values that are missing, unknown, no number or beyond their bounds are counted by
column, so that an owner sees all of them at once, and no message contains a value or the row that it stood in.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.cells import (
    AS_THEY_ARE,
    MISSING,
    UNLISTED,
    Block,
    CellRules,
    Column,
    as_coded,
    as_codes,
    as_numbers,
)
from parley.common.data.columns import Bounded, Category, Columns, Feature, Label, RealLabel, scaled
from parley.common.data.faults import (
    MOSTLY,
    CodeWatch,
    Doubt,
    FaultKind,
    Faults,
    missing_code,
    mostly_clipped,
    mostly_other,
    other_truths,
    truths_among,
)
from parley.common.data.layout import DesignLayout
from parley.common.data.persons import PersonCounts, PersonIndex, PersonKeys, PersonOrder, PlacesOfRows, keys_of_column
from parley.common.data.shard import Shard
from parley.common.data.study import Study, move_held_out_last
from parley.common.data.weighing import WEIGHT_OF_ROW_BITS, Weighing
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import FEATURE_BITS, truncate
from parley.common.encoding.texts import spelling
from parley.common.errors import InvalidDataError

BLOCK_ROWS = 2**14
NARROW = 0.1
"""Values that differ by less than this part of their bounds make a column narrow.

If bounds were ten times too wide, at epsilon 1, breast cancer fell from .92 to .78, and wine from .78 to .43; five
times, to .90 and .52.
"""
NO_NORM = 10 * float(np.finfo(np.float64).eps)
"""A shorter row counts as one of zeros, except for rounding: such as numbers halfway between their bounds.

It has no direction, and is not divided. scikit-learn's `Normalizer` draws the line there too.
"""
_CACHED = 2**18
"""The numbers that stay in a processor's cache while they are scaled: 2 MiB."""
_PART = 2**20
"""The numbers of rows that are stored together: 3 MiB, because allocators return pieces of this size to the system."""
_FEW = 2**15
"""The numbers that are packed or scattered together."""


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A shard and what its owner may want to know about it: shares of values clipped, by column, and of rows dropped.

    ``others`` are the shares of a category's values that the study does not name, and that count as its ``other``.
    ``missing`` counts by column the rows dropped for it, the most first. ``narrow`` are the numeric columns whose
    values differ by less than `NARROW` of their bounds, if they differ. The rows that the study holds out come last.
    ``notes`` say how the table was read, if its owner should know, ``doubts`` what is most likely read wrongly.
    ``contents`` has a digest of each table that was read, if the reader keeps them. ``persons`` counts the rows of
    persons, if examples are persons; the shares are of rows.
    """

    shard: Shard
    clipped: Mapping[str, float] = field(default_factory=dict)
    clipped_share: float = 0.0
    dropped_share: float = 0.0
    missing: Mapping[str, int] = field(default_factory=dict)
    narrow: tuple[str, ...] = ()
    others: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    contents: tuple[bytes, ...] = ()
    persons: PersonCounts | None = None


class Loading:
    """A shard of at most ``n_rows`` rows under construction; those of persons go where ``order`` says."""

    def __init__(
        self, study: Study, n_rows: int, rules: CellRules = AS_THEY_ARE, order: PersonOrder | None = None
    ) -> None:
        rules.check(study)
        layout = DesignLayout.of(study)
        self._layout, self._label, self._rules, self._share = layout, study.label, rules, study.hold_out
        self._norm, self._names = study.norm, study.source_names
        self._person, self._weights_name = study.person, study.row_weights.column if study.row_weights else None
        self._order = order
        self._index = PersonIndex(study.person) if study.person and order is None else None
        if order is not None:
            n_rows = len(order.begins) + 1  # the last is for those that are left out
        self._policies = layout.policies | {study.label.name: "drop" if study.missing == "drop" else "refuse"}
        self._X, self._y = self._room(n_rows), np.ones(n_rows)
        self._dropped = np.zeros(n_rows, dtype=np.bool_)
        self._weights = np.ones(n_rows) if self._weights_name else np.ones(0)
        self._faults, self._seen = Faults(), set[str]()
        self._clipped, self._others, self._missing = Counter[str](), Counter[str](), Counter[str]()
        self._n_dropped = 0
        self._least, self._most = layout.numbers.upper.copy(), layout.numbers.lower.copy()
        self._codes = CodeWatch(len(layout.numbers.features) + 1)  # the label's are the last
        self._truths: dict[str, set[str]] = {}

    def _room(self, n_rows: int) -> FloatArray:
        """Return the array for the columns; each column is written to or absent."""
        return np.empty((n_rows, self._layout.n_columns))

    def expect(self, names: Iterable[str]) -> None:
        """Record which columns the table has."""
        self._seen.update(names)

    def add(self, start: int, block: Block) -> None:
        """Take the rows from ``start`` on of some columns; columns that the study does not name are ignored."""
        index = self._layout.numbers.index
        block = {name: self._rules.read(name, column) for name, column in block.items()}
        self._check_end(start + max(map(len, block.values()), default=0))
        numeric = sorted((name for name in block if name in index), key=index.__getitem__)
        most = max(1, _CACHED // max(len(block[numeric[0]]), 1)) if numeric else 1
        for i in range(0, len(numeric), most):
            self._add_numbers(start, {name: block[name] for name in numeric[i : i + most]})
        for name in block:
            if name in self._layout.categories:
                self._add_category(start, block[name], *self._layout.categories[name])
        if self._label.name in block:
            self._add_label(start, block[self._label.name])
        if self._weights_name in block:
            self._add_weights(start, block[self._weights_name])

    def identify(self, keys: PersonKeys) -> None:
        """Take the identifiers of the next rows, if no order of rows is known before they come."""
        assert self._index is not None  # noqa: S101 -- its caller has read the study
        self._index.add(keys)

    def end_file(self, name: str) -> None:
        """Record that the rows of one of several files have all arrived."""
        self._faults.end_file(name)

    def finish(self, n_rows: int) -> Loaded:
        """Return the shard of the first ``n_rows`` rows.

        Raises InvalidDataError that names every column that does not fit, and how many of its rows.
        """
        names = tuple(dict.fromkeys((*self._policies, *self._names)))
        for name in names:
            self._faults.note(name, "absent", name not in self._seen)
        if self._index is not None and self._index.column in self._seen:
            self._order = self._index.ordered(self._share)
        order = self._order
        if self._person is not None and order is not None:
            for kind, rows in order.faults.items():
                self._faults.note(self._person.column, kind, rows)
        self._faults.check(names, self.doubts(n_rows))
        if order is not None and n_rows != len(order.places):
            raise _changed_error()
        if n_rows == 0:
            raise InvalidDataError("the data has no row")
        n_numbers = self._n_numbers(n_rows) + n_rows * isinstance(self._label, RealLabel)
        n_left = n_rows if order is None else len(order.begins)
        return Loaded(
            self._shard(n_left),
            clipped={name: self._clipped[name] / self._n_values(name, n_rows) for name in names if self._clipped[name]},
            clipped_share=self._clipped.total() / max(n_numbers, 1),
            dropped_share=self._n_dropped / n_left,
            missing=dict((+self._missing).most_common()),
            narrow=self._narrow(),
            others={name: self._others[name] / n_rows for name in names if self._others[name]},
            doubts=self.doubts(n_rows),
            persons=None if order is None else order.counts,
        )

    def _check_end(self, n_rows: int) -> None:
        """Raise InvalidDataError if more rows have come than there were identifiers."""
        if self._order is not None and n_rows > len(self._order.places):
            raise _changed_error()

    def _rows(self, start: int, n_rows: int) -> slice | npt.NDArray[np.intp]:
        """Return where some rows from ``start`` on go."""
        some = slice(start, start + n_rows)
        return some if self._order is None else self._order.places[some].astype(np.intp)  # NumPy is slow with others

    def _narrow(self) -> tuple[str, ...]:
        """Return the columns whose values differ by little of their bounds."""
        numbers, width = self._layout.numbers, self._most - self._least
        is_narrow = (width > 0) & (width < NARROW * (numbers.upper - numbers.lower))
        return tuple(numbers.features[i].name for i in np.flatnonzero(is_narrow).tolist())

    def _shard(self, n_rows: int) -> Shard:
        X, y = self._examples(n_rows)
        if self._share is not None and self._order is None:
            move_held_out_last(self._share, X, y, *([self._weights[:n_rows]] if self._weights_name else []))
        return Shard.adopt(X, y, self._norm, self._weighing(n_rows))

    def _weighing(self, n_rows: int) -> Weighing | None:
        """Return whose the rows of the shard are, and how much each counts."""
        begins = None if self._order is None else self._order.begins
        weights = self._weights[:n_rows] if self._weights_name else None
        return Weighing.of(np.ones(n_rows, dtype=np.bool_), begins, weights)

    def _examples(self, n_rows: int) -> tuple[FloatArray, FloatArray]:
        """Return X (n_rows, d) and y (n_rows,) of the first rows; dropped rows are zero."""
        X, (y, dropped) = self.design(n_rows), self._labels(n_rows)
        X[dropped] = 0.0
        self._n_dropped = int(dropped.sum())
        return X, y

    def _labels(self, n_rows: int) -> tuple[FloatArray, BoolArray]:
        """Return the labels (n_rows,) of the first rows, and which rows are dropped."""
        y, dropped = self._y[:n_rows], self._dropped[:n_rows]
        y[dropped] = 1.0
        return y, dropped

    def _count_dropped(self, dropped: BoolArray) -> None:
        """Count the rows dropped, of those that stay: of all that were read, (n,), as they were read."""
        self._n_dropped = int((dropped if self._order is None else dropped[self._order.places >= 0]).sum())

    def _n_numbers(self, n_rows: int) -> int:
        """Return how many numbers were read, which may have been clipped."""
        return n_rows * len(self._layout.numbers.features)

    def _n_values(self, name: str, n_rows: int) -> int:  # noqa: ARG002
        """Return how many numbers of a feature or label were read."""
        return n_rows

    def design(self, n_rows: int) -> FloatArray:
        """Return the first rows (n_rows, d): not yet on the grid, nor projected if a bound does not hold."""
        X = self._X[:n_rows]  # there may be room for more, which nothing was written to
        if self._layout.maps:
            X = self._layout.mapped(X)
        if self._layout.intercept:
            X[:, -1] = self._layout.intercept
        if self._layout.own:
            _divide_by_norms(X)
        return X

    def _add_numbers(self, start: int, block: Block) -> None:
        """Scale some numeric columns together, and write them to their positions."""
        numbers, unit = self._layout.numbers, self._layout.unit
        which = np.array([numbers.index[name] for name in block])
        lower, upper = numbers.lower[which], numbers.upper[which]
        cells = [as_numbers(column) for column in block.values()]
        values = np.stack([numeric for numeric, _ in cells])
        least, most = values.min(axis=1, initial=math.inf), values.max(axis=1, initial=-math.inf)
        unfit = np.flatnonzero(~((least >= lower) & (most <= upper))).tolist()  # NaN is not fine either
        for i in unfit:
            present = values[i][~np.isnan(values[i])]
            least[i], most[i] = present.min(initial=math.inf), present.max(initial=-math.inf)
        self._codes.add(which, values, least, most)
        for i in unfit:
            values[i] = self._mended(start, numbers.features[which[i]], values[i], cells[i][1])
        self._least[which] = np.minimum(self._least[which], np.maximum(least, lower))
        self._most[which] = np.maximum(self._most[which], np.minimum(most, upper))
        values -= lower[:, None]
        values /= (upper - lower)[:, None]
        values *= 2 * unit
        values -= unit
        _write(self._X, self._rows(start, values.shape[1]), _as_slice(numbers.positions[which]), values.T)

    def _mended(self, start: int, column: Bounded, values: FloatArray, strange: BoolArray | None) -> FloatArray:
        """Return numbers (n,) within their bounds, for all values; count those that were changed."""
        empty = np.isnan(values)
        if strange is not None:
            self._faults.note(column.name, "not numeric", int(strange.sum()))
            empty &= ~strange
        self._note_missing(start, column.name, empty)
        beyond = int(((values < column.lower) | (values > column.upper)).sum())
        if self._rules.clip:
            self._clipped[column.name] += beyond
        else:
            self._faults.note(column.name, "beyond the bounds", beyond)
        fill = column.fill if isinstance(column, Feature) else None
        stand_in = column.lower if fill is None else fill
        return np.where(np.isnan(values), stand_in, np.clip(values, column.lower, column.upper))

    def _add_category(self, start: int, column: Column, category: Category, position: int) -> None:
        """Set the one column of each row's value."""
        codes = as_codes(column, category.codes, category.other_code)
        self._note_missing(start, category.name, codes == MISSING)
        self._faults.note(category.name, "unknown category", int((codes == UNLISTED).sum()))
        self._others[category.name] += int((codes == category.other_code).sum()) if category.other else 0
        self._note_truths(category, column)
        if category.fill is not None:
            codes = np.where(codes == MISSING, category.codes[spelling(category.fill)], codes)
        rows = self._rows(start, len(codes))
        self._X[rows, position : position + category.n_columns] = 0.0
        present = codes >= 0
        places = np.arange(start, start + len(codes)) if isinstance(rows, slice) else rows
        self._X[places[present], position + codes[present]] = self._layout.unit

    def _add_label(self, start: int, column: Column) -> None:
        """Write the labels: numbers in [-1, 1], or classes."""
        rows = self._rows(start, len(column))
        if isinstance(self._label, Label):
            codes = as_codes(column, self._label.codes)
            self._note_missing(start, self._label.name, codes == MISSING)
            self._faults.note(self._label.name, "unknown label", int((codes == UNLISTED).sum()))
            self._note_truths(self._label, column)
            self._y[rows] = encode_classes(np.maximum(codes, 0), len(self._label.values))
        else:
            values, strange = as_numbers(column)
            present = values[~np.isnan(values)]
            ends = (np.array([present.min(initial=math.inf)]), np.array([present.max(initial=-math.inf)]))
            self._codes.add(np.array([len(self._layout.numbers.features)]), values[None], *ends)
            within = self._mended(start, self._label, values, strange)
            self._y[rows] = scaled(within, np.asarray(self._label.lower), np.asarray(self._label.upper))

    def _add_weights(self, start: int, column: Column) -> None:
        """Write the rows' weights, on the grid of 2^-16."""
        weights, _ = as_numbers(column)
        fits = (weights >= 0) & (weights <= 1)  # NaN does not
        self._faults.note(str(self._weights_name), "no weight from 0 to 1", int((~fits).sum()))
        self._weights[self._rows(start, len(weights))] = truncate(np.where(fits, weights, 0.0), WEIGHT_OF_ROW_BITS)

    def _note_truths(self, column: Category | Label, cells: Column) -> None:
        """Note the words for yes and no in a column of two values, which may be such words."""
        if len(column.values) == 2:  # noqa: PLR2004
            self._truths.setdefault(column.name, set()).update(truths_among(as_coded(cells).values))

    def doubts(self, n_rows: int) -> tuple[Doubt, ...]:
        """Return what is most likely read wrongly in the first rows."""
        doubts = [mostly_other(name, part) for name, part in self._shares(self._others, n_rows) if part > MOSTLY]
        doubts += [mostly_clipped(name, part) for name, part in self._shares(self._clipped, n_rows) if part > MOSTLY]
        named = [feature.name for feature in self._layout.numbers.features] + [self._label.name]
        for place, name in enumerate(named):
            codes = {code: n for code, n in self._codes.codes(place).items() if not self._rules.has_meaning(name, code)}
            if codes:
                doubts.append(missing_code(name, sum(codes.values())))
        columns: list[Category | Label] = [category for category, _ in self._layout.categories.values()]
        columns += [self._label] if isinstance(self._label, Label) else []
        for column in columns:
            if doubt := other_truths(column.name, column.values, self._truths.get(column.name, ())):
                doubts = [doubt, *(other for other in doubts if other.column != column.name)]
        return tuple(doubts)

    def _shares(self, counts: Counter[str], n_rows: int) -> list[tuple[str, float]]:
        """Return counts of rows by column as parts of all."""
        return [(name, count / max(self._n_values(name, n_rows), 1)) for name, count in counts.items() if count]

    def _note_missing(self, start: int, name: str, empty: BoolArray) -> None:
        """Drop the rows that miss a value, or count them as faulty, unless a value replaces it."""
        policy = self._policies[name]
        if policy == "drop":
            self._dropped[self._rows(start, len(empty))] |= empty
            self._missing[name] += int(empty.sum())
        elif policy == "refuse":
            self._faults.note(name, self._missing_kind(name), int(empty.sum()))

    def _missing_kind(self, name: str) -> FaultKind:  # noqa: ARG002
        """Return the kind of fault of a missing feature or label."""
        return "missing"


class RowLoading(Loading):
    """A shard of rows that arrive complete and in order, in an unknown number.

    A row's result depends on that row alone, so some at a time are put on the grid, whose numbers three bytes hold.
    They take their eight bytes a number once all have arrived: the code that makes them may need the memory until then.
    Persons' identifiers arrive with their rows, eight bytes each, and say only then where the rows go.
    """

    def __init__(self, study: Study, rules: CellRules = AS_THEY_ARE) -> None:
        super().__init__(study, 0, rules)
        self._first, self._end, self._parts = 0, 0, deque[_Packed]()
        self._parts_of_weights, self._parts_dropped = [self._weights], [self._dropped]

    def add(self, start: int, block: Block) -> None:
        """Take the rows from ``start`` on, which are those after the last."""
        end = start + len(next(iter(block.values())))
        if end - self._first > len(self._y):
            self._part(max(end - start, _PART // self._layout.n_columns))
        super().add(start - self._first, block)
        self._end = end

    def _part(self, n_rows: int) -> None:
        """Store the rows that have arrived since the last part, and make room for the next."""
        self._parts.append(_Packed(Shard.adopt(*super()._examples(self._end - self._first), self._norm, None)))
        self._parts_dropped.append(self._dropped[: self._end - self._first])
        self._X = np.zeros((n_rows, self._layout.n_columns))  # zeros for a column that is absent
        self._y, self._dropped = np.ones(n_rows), np.zeros(n_rows, dtype=np.bool_)
        if self._weights_name:
            self._parts_of_weights.append(self._weights[: self._end - self._first].astype(np.float32))
            self._weights = np.ones(n_rows)
        self._first = self._end

    def _examples(self, n_rows: int) -> tuple[FloatArray, FloatArray]:
        """Return all rows, and free their parts."""
        self._part(0)
        places = None if self._order is None else self._order.places
        X, y, start = np.empty((n_rows, self._parts[0].n_columns)), np.empty(n_rows), 0
        while self._parts:
            part = self._parts.popleft()
            end = start + part.n_rows
            if places is None:
                part.write(X[start:end], y[start:end])
            else:
                part.scatter(X, y, places[start:end])
            start = end
        self._count_dropped(np.concatenate(self._parts_dropped))
        if self._weights_name:
            self._weights = np.concatenate(self._parts_of_weights).astype(np.float64)
            if self._order is not None:
                self._weights = self._weights[self._order.rows]
        return X, y


class _Packed:
    """Rows of a shard in one piece of memory: y as float32 holds it, and three bytes for each number of X.

    The lowest bits of these are its size in units of 2^-16, and the highest is its sign's: zeros have one too.
    """

    def __init__(self, shard: Shard) -> None:
        self.n_rows, self.n_columns = shard.shape
        self._bytes = np.empty(self.n_rows * (4 + 3 * self.n_columns), dtype=np.uint8)
        y, X = self._views()
        y[:] = shard.y
        for rows in self._few():
            codes = np.abs(shard.X[rows] * 2.0**FEATURE_BITS).astype("<u4")
            codes |= np.signbit(shard.X[rows]).astype("<u4") << 23
            X[rows] = codes.view(np.uint8).reshape(*codes.shape, 4)[..., :3]

    def write(self, X: FloatArray, y: FloatArray) -> None:
        """Write the rows to arrays (n, d) and (n,)."""
        y[:], packed = self._views()
        for rows in self._few():
            codes = np.zeros((*packed[rows].shape[:2], 4), dtype=np.uint8)
            codes[..., :3] = packed[rows]
            words = codes.view("<u4")[..., 0]
            np.multiply(words & 0x7FFFFF, 2.0**-FEATURE_BITS, out=X[rows])
            np.negative(X[rows], out=X[rows], where=words >= 1 << 23)

    def scatter(self, X: FloatArray, y: FloatArray, places: PlacesOfRows) -> None:
        """Write each row to its place in arrays (n, d) and (n,), unless it is left out."""
        rows, labels = np.empty((self.n_rows, self.n_columns)), np.empty(self.n_rows)
        self.write(rows, labels)
        stays = places >= 0
        X[places[stays]], y[places[stays]] = rows[stays], labels[stays]

    def _views(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
        """Return views of y (n,), and of the numbers' bytes (n, d, 3)."""
        end = 4 * self.n_rows
        return self._bytes[:end].view(np.float32), self._bytes[end:].reshape(self.n_rows, self.n_columns, 3)

    def _few(self) -> Iterator[slice]:
        """Yield slices of rows whose numbers need little extra memory."""
        few = max(1, _FEW // self.n_columns)
        return (slice(start, start + few) for start in range(0, self.n_rows, few))


def load_columns(study: Study, columns: Columns, *, clip: bool = False) -> Loaded:
    """Load an owner's columns, (n,) each, as a shard, and report what was mended.

    Values beyond a feature's bounds are refused, or clipped to them if the owner chose ``clip``. Raises
    InvalidDataError, naming each column that does not fit and never a value.
    """
    names = [name for name in study.source_names if name in columns]
    n_rows = max((len(columns[name]) for name in names), default=0)
    order = None
    if study.person is not None and study.person.column in columns:
        index = PersonIndex(study.person)
        index.add(keys_of_column(columns[study.person.column]))
        order = index.ordered(study.hold_out)
    loading = Loading(study, n_rows, CellRules(clip), order)
    loading.expect(names)
    for start in range(0, max(n_rows, 1), BLOCK_ROWS):
        loading.add(start, {name: columns[name][start : start + BLOCK_ROWS] for name in names})
    return loading.finish(n_rows)


def shard_of(study: Study, columns: Columns, *, clip: bool = False) -> Shard:
    """Load an owner's columns as a shard. Raises InvalidDataError as `load_columns` does."""
    return load_columns(study, columns, clip=clip).shard


def _changed_error() -> InvalidDataError:
    return InvalidDataError("the data changed while it was read: it has other rows than those that had identifiers")


def _divide_by_norms(X: FloatArray) -> None:
    """Divide rows (n, d) by their norms, in place, surely into the unit ball; rows of zeros (`NO_NORM`) stay."""
    most = max(_CACHED // X.shape[1], 1)
    for start in range(0, len(X), most):
        rows = X[start : start + most]
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows *= ((1 - 2.0**-30) / np.where(norms < NO_NORM, 1.0, norms))[:, None]


def _write(X: FloatArray, rows: slice | IntArray, columns: slice | IntArray, values: FloatArray) -> None:
    """Write values (n, m) to some rows and columns of X."""
    if isinstance(rows, slice):
        X[rows, columns] = values
    elif isinstance(columns, slice):  # a row's values as one, which NumPy writes in half the time
        as_one = f"V{values.itemsize * values.shape[1]}"
        to, together = X[:, columns].view(as_one)[:, 0], max(1, _FEW // values.shape[1])
        for start in range(0, len(rows), together):
            some = slice(start, start + together)
            to[rows[some]] = np.ascontiguousarray(values[some]).view(as_one)[:, 0]
    else:
        X[np.ix_(rows, columns)] = values


def _as_slice(positions: IntArray) -> slice | IntArray:
    """Return rising positions (m,) as a slice if they are consecutive: NumPy copies faster by a slice."""
    first, last = int(positions[0]), int(positions[-1])
    return slice(first, last + 1) if last - first == len(positions) - 1 else positions
