"""Whose each row of a table is: rows with one identifier are one person's, and a shard has them side by side.

Identifiers of every kind of table become *keys* of 64 bits, so that 10^7 rows take 80 MB until they are in order. Two
persons with one key are hidden together, which is safe; a person with two keys is hidden in pieces. So keys are coarse:
blanks around a text, capitals and the ways in which Unicode composes a character do not count, and numbers are read
alike: 7, 7.0, "007" and "7,0" are one. A whole number below 2^63 is its own key. Any other text has a hash: the sum,
modulo 2^64, of its bytes and its length, each times a random number of its place, which this process drew. Two texts
that differ by d in a byte, 0 < d < 2^8, share a hash if d times a random number is one certain value: with a chance of
at most 2^-57, so among 4 million persons any two do with one below 10^-4. Keys show nowhere: persons are numbered in
the order in which they first appear.

*Places.* Persons that a study holds out come last. The others, and these, are in the order in which they first appear,
and so are the rows of a person. Those beyond the most rows that a study lets a person have are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.cells import MISSING_TEXTS, Column, as_coded
from parley.common.data.faults import FaultKind
from parley.common.data.study import Person, training_first
from parley.common.encoding.fixed_point import MAX_EXAMPLES
from parley.common.encoding.texts import so_many, spelling
from parley.common.errors import InvalidDataError

PlacesOfRows = npt.NDArray[np.int32]
"""Places of rows in a shard: -1 for a row that is left out."""

_NUMBER = re.compile(r"([+-]?)(\d*)[.,]?(\d*)(?:e([+-]?\d{1,4}))?")
_EXACT = 2.0**53
"""Floating-point numbers beyond this are not exact: two identifiers may have become one, or one two."""
_DIGITS = 18
"""So many digits are a number below 2^63."""
_MOST_ZEROS = 40
"""A whole number that would end in more zeros stays a text: identifiers of digits and letters may look like it."""
_PARTITION_BITS = 6
"""Keys are put in order by 64 parts, so that a processor's cache holds each."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number, near 2^64 over the golden ratio: the highest bits of its products with keys spread evenly."""

_DIGIT, _NUMERIC, _OTHER, _FOREIGN, _CAPITAL = 0, 1, 2, 4, 8
_KINDS = np.full(256, _OTHER, dtype=np.uint8)
_KINDS[128:] = _FOREIGN
_KINDS[list(b"0123456789")] = _DIGIT
_KINDS[list(b"+-.,")] = _NUMERIC
_KINDS[list(range(ord("A"), ord("Z") + 1))] = _OTHER | _CAPITAL
_KINDS[ord("e")] = _NUMERIC
_KINDS[ord("E")] = _NUMERIC | _CAPITAL
_LOWER = np.arange(256, dtype=np.uint8)
_LOWER[ord("A") : ord("Z") + 1] += 32
_TENS = 10 ** np.arange(_DIGITS, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PersonKeys:
    """The keys (n,) of some rows' identifiers, and finer ones, which differ where a text was spelt in another way.

    ``missing`` (n,) says which rows have no identifier, and ``inexact`` how many have one that floating point rounded.
    """

    keys: IntArray
    spelt: IntArray
    missing: BoolArray
    inexact: int = 0


@dataclass(frozen=True, slots=True)
class PersonCounts:
    """What an owner may want to know about the persons in a table; all of it except ``persons`` is private.

    - ``most`` is the largest number of rows of a person, before any is ``left_out``.
    - ``alike`` is how many identifiers differ from another one by their spelling alone, and so are the same person's.
    - ``missing`` is the number of rows without an identifier.
    """

    persons: int
    rows: int
    most: int
    left_out: int
    alike: int
    missing: int

    @property
    def words(self) -> str:
        """The counts in words."""
        average = self.rows / max(self.persons, 1)
        return f"{so_many(self.persons, 'person')}, up to {so_many(self.most, 'row')} each, {average:,.2f} on average"


@dataclass(frozen=True, slots=True, eq=False)
class PersonOrder:
    """Where each row of a table goes, by person: ``places`` (n,), and ``begins`` (kept,), the first row of each person.

    ``faults`` are rows by what is wrong with their identifier.
    """

    places: PlacesOfRows
    begins: BoolArray
    counts: PersonCounts
    faults: Mapping[FaultKind, int]

    @property
    def rows(self) -> IntArray:
        """The rows of the table that are not left out, (kept,), in their new order."""
        rows = np.flatnonzero(self.places >= 0)
        ordered = np.empty(len(self.begins), dtype=np.int64)
        ordered[self.places[rows]] = rows
        return ordered


class PersonIndex:
    """The persons of a table whose identifiers come some rows at a time."""

    def __init__(self, person: Person) -> None:
        self.column = person.column
        self._person = person
        self._parts: list[PersonKeys] = []
        self._n_rows = 0

    def add(self, keys: PersonKeys) -> None:
        """Take the identifiers of the next rows. Raises InvalidDataError for more rows than sums can be made of."""
        self._parts.append(keys)
        self._n_rows += len(keys.keys)
        if self._n_rows > MAX_EXAMPLES:
            raise InvalidDataError(f"the data has more than {MAX_EXAMPLES:,} rows, and sums of so many are not exact")

    def ordered(self, share: float | None) -> PersonOrder:
        """Return where all rows go, and forget them; ``share`` is the part of the persons that are held out."""
        parts, self._parts = self._parts, []
        finer = any(part.spelt is not part.keys for part in parts)
        spelt = _joined([part.spelt for part in parts]) if finer else None
        missing = np.concatenate([np.zeros(0, dtype=np.bool_), *(part.missing for part in parts)])
        inexact = sum(part.inexact for part in parts)
        keys = _joined([part.keys for part in parts])
        del parts
        by_person, is_first, alike = _grouped(keys, spelt, missing)
        del keys, spelt
        places, begins, n_rows = _placed(by_person, is_first, self._person.most_rows, share)
        n_missing, n_left_out = int(missing.sum()), self._n_rows - len(begins)
        counts = PersonCounts(len(n_rows), self._n_rows, int(n_rows.max(initial=0)), n_left_out, alike, n_missing)
        refused = n_missing if self._person.missing == "refuse" else 0
        faults: dict[FaultKind, int] = {"identifier missing": refused, "identifier rounded": inexact}
        return PersonOrder(places, begins, counts, faults)


def _joined(parts: Sequence[IntArray]) -> IntArray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _grouped(keys: IntArray, spelt: IntArray | None, missing: BoolArray) -> tuple[PlacesOfRows, BoolArray, int]:
    """Return the rows (n,) with those of a person together and in order, which begin a person, and identifiers alike.

    A row without an identifier is a person by itself.
    """
    alike, is_first = 0, np.ones(len(keys), dtype=np.bool_)
    part = (_spread(keys) >> np.uint64(64 - _PARTITION_BITS)).astype(np.uint8)
    part[missing] = 2**_PARTITION_BITS
    by_person = np.argsort(part, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(part, minlength=2**_PARTITION_BITS + 1)[:-1])
    del part
    for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        rows = by_person[start:end]
        of_rows = keys[rows]
        order = _sorting(of_rows)
        of_rows, by_person[start:end] = of_rows[order], rows[order]
        is_first[start + 1 : end] = of_rows[1:] != of_rows[:-1]
        if spelt is not None:
            alike += _alike(of_rows, spelt[by_person[start:end]], is_first[start:end])
    return by_person, is_first, alike


def _spread(keys: IntArray) -> npt.NDArray[np.uint64]:
    """Return a permutation of all 64-bit numbers, of keys (n,)."""
    return np.asarray(keys.view(np.uint64) * _SPREAD)


def _sorting(keys: IntArray) -> IntArray:
    """Return an order of keys (n,) that has equal ones side by side, and these in their own order.

    Numbers of their highest spread bits and, below, of their places are sorted: that is faster than to sort places. Two
    keys may agree in these bits; then all are sorted by themselves.
    """
    bits = np.uint64(max(len(keys) - 1, 1).bit_length())
    places = np.arange(len(keys), dtype=np.uint64)
    numbers = np.sort(((_spread(keys) << np.uint64(_PARTITION_BITS)) >> bits << bits) | places)
    order = (numbers & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    of_order, numbers = keys[order], numbers >> bits
    if bool(((numbers[1:] == numbers[:-1]) & (of_order[1:] != of_order[:-1])).any()):
        return np.argsort(keys, kind="stable")
    return order


def _alike(keys: IntArray, spelt: IntArray, is_first: BoolArray) -> int:
    """Return how many spellings there are beyond one a key; equal keys are side by side, the first of each marked."""
    if not len(keys):
        return 0
    of_first = spelt[is_first][np.cumsum(is_first) - 1]
    several = np.isin(keys, keys[spelt != of_first])
    keys, spelt = keys[several], spelt[several]
    order = np.lexsort((spelt, keys))
    return int(((np.diff(keys[order]) == 0) & (np.diff(spelt[order]) != 0)).sum())


def _placed(
    by_person: PlacesOfRows, is_first: BoolArray, most_rows: int, share: float | None
) -> tuple[PlacesOfRows, BoolArray, IntArray]:
    """Return where rows (n,) go, which of those that stay begin a person, and how many rows each person has, (P,).

    ``by_person`` (n,) are the rows with those of a person together, ``is_first`` (n,) which of them begin one.
    """
    n, groups = len(by_person), np.flatnonzero(is_first)
    sizes = np.diff(groups, append=n)
    firsts = by_person[groups]
    at_first = np.zeros(n, dtype=np.int32)
    at_first[firsts] = sizes
    appearing = np.flatnonzero(at_first)
    n_rows = at_first[appearing].astype(np.int64)
    staying = np.minimum(n_rows, most_rows)
    order = training_first(len(n_rows), share)
    starts = np.empty(len(n_rows), dtype=np.int32)
    starts[order] = np.cumsum(staying[order]) - staying[order]
    begins = np.zeros(int(staying.sum()), dtype=np.bool_)
    begins[starts] = True
    at_first[appearing] = starts
    within = np.arange(n, dtype=np.int32)
    within -= np.repeat(groups.astype(np.int32), sizes)
    placed = np.repeat(at_first[firsts], sizes)
    placed += within
    placed[within >= most_rows] = -1
    places = at_first
    places[by_person] = placed
    return places, begins, n_rows


# ── keys ─────────────────────────────────────────────────────────────────────


def weights_by_person(keys: PersonKeys) -> FloatArray:
    """Return the weight (n,) of each row: 1/r of a person's r rows; a row without an identifier is a person by itself.

    >>> weights_by_person(PersonKeys(np.array([7, 9, 7]), np.array([7, 9, 7]), np.array([False, False, False])))
    array([0.5, 1. , 0.5])
    """
    _, places, counts = np.unique(keys.keys, return_inverse=True, return_counts=True)
    return np.where(keys.missing, 1.0, 1 / counts[places])


def keys_of_column(column: Column) -> PersonKeys:
    """Return the keys of a column (n,) of identifiers of any kind."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu" and column.dtype != np.uint64:
        return keys_of_whole(column.astype(np.int64))
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        return keys_of_floats(column.astype(np.float64))
    coded = as_coded(column)
    texts = [b"" if (text := spelling(value)) is None or text in MISSING_TEXTS else text.encode()
             for value in coded.values]  # fmt: skip
    distinct = keys_of_texts(np.frombuffer(b"".join(texts), dtype=np.uint8), np.cumsum([0, *map(len, texts)]))
    if not len(distinct.keys):
        return PersonKeys(*(np.zeros(len(column), dtype=np.int64),) * 2, np.ones(len(column), dtype=np.bool_))
    inexact = np.array([isinstance(value, float) and not abs(value) <= _EXACT for value in coded.values])
    inexact &= ~distinct.missing
    codes = np.maximum(coded.codes, 0)
    missing = distinct.missing[codes] | (coded.codes < 0)
    keys = distinct.keys[codes]
    spelt = keys if distinct.spelt is distinct.keys else distinct.spelt[codes]
    return PersonKeys(keys, spelt, missing, int((inexact[codes] & ~missing).sum()))


def keys_of_whole(numbers: IntArray, missing: BoolArray | None = None) -> PersonKeys:
    """Return the keys of whole numbers (n,), which they are themselves; ``missing`` (n,) has none if it is None."""
    return PersonKeys(numbers, numbers, np.zeros(len(numbers), dtype=np.bool_) if missing is None else missing)


def keys_of_floats(numbers: npt.NDArray[np.float64]) -> PersonKeys:
    """Return the keys of numbers (n,): NaN is no identifier, and no other may have a fraction that rounding made."""
    missing = np.isnan(numbers)
    whole = np.abs(numbers) <= _EXACT
    fraction = whole & (numbers != np.trunc(numbers))
    if fraction.any():
        coded = as_coded(numbers.astype(object))
        return keys_of_column(coded)
    keys = np.where(whole, numbers, 0.0).astype(np.int64)
    return PersonKeys(keys, keys, missing, int((~whole & ~missing).sum()))


def keys_of_texts(characters: npt.NDArray[np.uint8], ends: IntArray) -> PersonKeys:
    """Return the keys of texts (n,) without blanks around them, in UTF-8 one after another; an empty one is missing.

    Text i are the bytes from ``ends[i]`` to ``ends[i + 1]``.
    """
    sizes = np.diff(ends)
    missing = sizes == 0
    starts, sizes = ends[:-1][~missing], sizes[~missing]
    keys = np.zeros(len(missing), dtype=np.int64)
    if not len(starts):
        return PersonKeys(keys, keys, missing)
    characters = characters[starts[0] : ends[-1]]
    starts = starts - starts[0]
    kinds = np.bitwise_or.reduceat(_KINDS[characters], starts)
    places = np.arange(len(characters)) - np.repeat(starts, sizes)
    lower = _hashed(_LOWER[characters], starts, sizes, places)
    spelt = _hashed(characters, starts, sizes, places) if (kinds & _CAPITAL).any() else lower.copy()
    are_digits = (kinds == _DIGIT) & (sizes <= _DIGITS)
    if are_digits.any():
        values = _values(characters, starts, sizes, places)
        no_zero = are_digits & ((characters[starts] != ord("0")) | (sizes == 1))
        lower[are_digits], spelt[no_zero] = values[are_digits], values[no_zero]
    odd = ~are_digits & (((kinds & _OTHER) == 0) | ((kinds & _FOREIGN) > 0))
    for i in np.flatnonzero(odd).tolist():
        lower[i] = _key_of(characters[starts[i] : starts[i] + sizes[i]].tobytes().decode(errors="replace"))
    keys[~missing] = lower
    if bool((lower == spelt).all()):
        return PersonKeys(keys, keys, missing)
    finer = np.zeros(len(missing), dtype=np.int64)
    finer[~missing] = spelt
    return PersonKeys(keys, finer, missing)


def coarse(text: str) -> str:
    """Return how a text is spelt that is a number, or has characters beyond ASCII, so that texts alike are equal.

    >>> [coarse(text) for text in ("007", "7.0", "7,00", "+7", "0.70e1", "-0", "7.5", "07,50", "1e999", "Ä1")]
    ['7', '7', '7', '7', '7', '0', '75e-1', '75e-1', '1e999', 'ä1']
    """
    text = normalize("NFKC", normalize("NFKC", text).casefold()).strip()
    number = _NUMBER.fullmatch(text)
    if number is None or not (number[2] or number[3]):
        return text
    sign, whole, fraction, exponent = number.groups(default="")
    digits = "".join(str(int(digit)) for digit in f"{whole}{fraction}").lstrip("0")
    shift = int(exponent or 0) - len(fraction)
    bare = digits.rstrip("0")
    if not bare:
        return "0"
    shift += len(digits) - len(bare)
    if shift > _MOST_ZEROS:
        return text
    minus = "-" if sign == "-" else ""
    return f"{minus}{bare}e{shift}" if shift < 0 else f"{minus}{bare}{'0' * shift}"


def _key_of(text: str) -> int:
    """Return the key of a text that is a number, or has characters beyond ASCII."""
    spelt = coarse(text)
    bare = spelt.removeprefix("-")
    if bare.isascii() and bare.isdigit() and -(2**63) <= (number := int(spelt[:_MOST_ZEROS])) < 2**63:
        return number
    characters = np.frombuffer(spelt.encode(), dtype=np.uint8)
    start, size = np.zeros(1, dtype=np.int64), np.array([len(characters)])
    return int(_hashed(_LOWER[characters], start, size, np.arange(len(characters)))[0])


def _values(characters: npt.NDArray[np.uint8], starts: IntArray, sizes: IntArray, places: IntArray) -> IntArray:
    """Return the numbers that texts of at most 18 digits spell; others have any value."""
    powers = np.repeat(sizes, sizes) - 1 - places
    return np.add.reduceat((characters.astype(np.int64) - ord("0")) * _TENS[np.minimum(powers, _DIGITS - 1)], starts)


def _hashed(characters: npt.NDArray[np.uint8], starts: IntArray, sizes: IntArray, places: IntArray) -> IntArray:
    """Return the hashes (n,) of texts, as the module's text says; ``places`` are of each byte in its text."""
    factors = _FACTORS.of(int(sizes.max()) + 1)
    sums = np.add.reduceat(characters.astype(np.uint64) * factors[places + 1], starts)
    return np.asarray((sums + sizes.astype(np.uint64) * factors[0]).view(np.int64))


class _Factors:
    """Random numbers, one for each place in a text, as many as the longest text needs."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng()
        self._factors = np.zeros(0, dtype=np.uint64)

    def of(self, n: int) -> npt.NDArray[np.uint64]:
        """Return at least n numbers; those that were drawn before stay."""
        if n > len(self._factors):
            more = self._rng.integers(0, 2**64, max(n, 64) - len(self._factors), dtype=np.uint64)
            self._factors = np.concatenate([self._factors, more])
        return self._factors


_FACTORS = _Factors()
