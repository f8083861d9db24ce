"""Whose each row of a table is: rows with one identifier are one person's, and a shard has them side by side.

Identifiers of every kind of table become *keys* of 64 bits, so that 10^7 rows take 80 MB until they are in order. Two
persons with one key are hidden together, which is safe; a person with two keys is hidden in pieces. So keys are coarse:
blanks around a text, capitals and the ways in which Unicode composes a character do not count, and numbers are read
alike: 7, 7.0, "007" and "7,0" are one. A whole number below 2^63 is its own key. Any other text has a hash: the sum,
modulo 2^64, of its bytes and its length, each times a random number of its place, which this process drew; or, if it is
long, BLAKE2b with a key. Two texts that differ by d in a byte, 0 < d < 2^8, share a hash if d times a random number is
one certain value: with a chance of at most 2^-57, so among 4 million persons any two do with one below 10^-4. Keys show
nowhere: persons are numbered in the order in which they first appear.

*Places.* Persons that a study holds out come last. The others, and these, are in the order in which they first appear,
and so are the rows of a person. Those beyond the most rows that a study lets a person have are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, cast
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.cells import MISSING, MISSING_TEXTS, ROUNDED_SIGN, Coded, Column, as_coded, is_rounded
from parley.common.data.faults import FaultKind
from parley.common.data.study import Person, training_first
from parley.common.encoding.fixed_point import MAX_EXAMPLES
from parley.common.encoding.texts import so_many, spelling
from parley.common.errors import InvalidDataError

PlacesOfRows = npt.NDArray[np.int32]
"""Places of rows in a shard: -1 for a row that is left out."""

_NUMBER = re.compile(r"([+-]?)(\d*+)(?:[.,](\d*+))?(?:e([+-]?\d{1,4}))?")
_ROUNDED = ROUNDED_SIGN.encode()
_DIGITS = 18
"""So many digits are a number below 2^63."""
_MOST_ZEROS = 40
"""A whole number that would end in more zeros is spelt with an exponent."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number, near 2^64 over the golden ratio: the highest bits of its products with keys spread evenly."""

_DIGIT, _NUMERIC, _OTHER, _FOREIGN = 0, 1, 2, 4
_CAPITAL = ord("a") - ord("A")
"""The kind of a capital is also how far its small letter is from it."""
_KINDS = np.full(256, _OTHER, dtype=np.uint8)
_KINDS[128:] = _FOREIGN
_KINDS[list(b"0123456789")] = _DIGIT
_KINDS[list(b"+-.,")] = _NUMERIC
_KINDS[list(range(ord("A"), ord("Z") + 1))] = _OTHER | _CAPITAL
_KINDS[ord("e")] = _NUMERIC
_KINDS[ord("E")] = _NUMERIC | _CAPITAL
_TOGETHER = 2**13
"""So many identifiers are worked on together: a processor's cache holds what is worked out of them."""
_LONG = 2**8
"""Longer texts, in bytes, become keys one by one: those beside them need not wait for their last places."""
_DRAWN = np.random.default_rng()
_FACTORS, _KEY = _DRAWN.integers(0, 2**64, _LONG + 1, dtype=np.uint64), _DRAWN.bytes(16)
"""What this process drew to hash texts: a number for their length and one for each place, and a key for longer ones."""


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
    part = _parts_of(keys)
    by_person = np.argsort(part, kind="stable").astype(np.int32)
    if missing.any():
        alone = missing[by_person]
        by_person = np.append(by_person[~alone], by_person[alone])
    ends = np.cumsum(np.bincount(part[~missing], minlength=2**8))
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


def _parts_of(keys: IntArray) -> npt.NDArray[np.uint8]:
    """Return one of 256 parts for each key (n,): a part is put in order by itself, in a processor's cache."""
    parts = np.empty(len(keys), dtype=np.uint8)
    for start in range(0, len(keys), _TOGETHER):
        some = slice(start, start + _TOGETHER)
        parts[some] = keys[some].view(np.uint64) * _SPREAD >> np.uint64(64 - 8)
    return parts


def _sorting(keys: IntArray) -> IntArray:
    """Return an order of keys (n,) that has equal ones side by side, and these in their own order.

    It sorts by 16 bits at a time, the lowest first: NumPy counts numbers of so few bits, and compares none. It ends as
    soon as keys that agree so far are equal.
    """
    digits = keys.view(np.uint16).reshape(len(keys), 4)[:, :: 1 if sys.byteorder == "little" else -1]
    order = np.argsort(digits[:, 0], kind="stable")
    for place in (1, 2, 3):
        order = order[np.argsort(digits[order, place], kind="stable")]
        of_order = keys[order]
        so_far = of_order << (48 - 16 * place)
        if not bool(((so_far[1:] == so_far[:-1]) & (of_order[1:] != of_order[:-1])).any()):
            break
    return order


def _alike(keys: IntArray, spelt: IntArray, is_first: BoolArray) -> int:
    """Return how many spellings there are beyond one a key; equal keys are side by side, the first of each marked."""
    changes = (spelt[1:] != spelt[:-1]) & ~is_first[1:]
    if not changes.any():
        return 0
    several = np.isin(keys, keys[1:][changes])
    keys, spelt = keys[several], spelt[several]
    order = np.lexsort((spelt, keys))
    return int(((np.diff(keys[order]) == 0) & (np.diff(spelt[order]) != 0)).sum())


def _placed(
    by_person: PlacesOfRows, is_first: BoolArray, most_rows: int, share: float | None
) -> tuple[PlacesOfRows, BoolArray, npt.NDArray[np.int32]]:
    """Return where rows (n,) go, which of those that stay begin a person, and how many rows each person has, (p,).

    ``by_person`` (n,) are the rows with those of a person together, ``is_first`` (n,) which of them begin one.
    """
    n, groups = len(by_person), np.flatnonzero(is_first).astype(np.int32)
    n_rows = np.diff(groups, append=np.int32(n))
    firsts = by_person[groups]
    places = np.zeros(n, dtype=np.int32)
    places[firsts] = n_rows
    appearing = places > 0
    staying = np.minimum(places[appearing], most_rows)
    order = slice(None) if share is None else training_first(len(n_rows), share)
    starts = np.empty(len(n_rows), dtype=np.int32)
    starts[order] = np.cumsum(staying[order], dtype=np.int32) - staying[order]
    begins = np.zeros(int(staying.sum()), dtype=np.bool_)
    begins[starts] = True
    places[appearing] = starts
    to_place, ends = places[firsts] - groups, groups + n_rows
    for first in range(0, len(groups), _TOGETHER):
        some = slice(first, first + _TOGETHER)
        rows = slice(groups[first], ends[some][-1])
        placed = np.arange(rows.start, rows.stop, dtype=np.int32)
        placed += np.repeat(to_place[some], n_rows[some])
        if n > len(begins):
            within = np.arange(rows.start, rows.stop, dtype=np.int32) - np.repeat(groups[some], n_rows[some])
            placed[within >= most_rows] = -1
        places[by_person[rows].astype(np.intp)] = placed
    return places, begins, n_rows


# ── keys ─────────────────────────────────────────────────────────────────────


def weights_by_person(keys: PersonKeys) -> FloatArray:
    """Return the weight (n,) of each row: 1/r of a person's r rows; a row without an identifier is a person by itself.

    >>> weights_by_person(PersonKeys(np.array([7, 9, 7]), np.array([7, 9, 7]), np.array([False, False, False])))
    array([0.5, 1. , 0.5])
    """
    weights = np.ones(len(keys.keys))
    _, places, counts = np.unique(keys.keys[~keys.missing], return_inverse=True, return_counts=True)
    weights[~keys.missing] = 1 / counts[places]
    return weights


def keys_of_column(column: Column) -> PersonKeys:
    """Return the keys of a column (n,) of identifiers of any kind."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu" and column.dtype != np.uint64:
        return keys_of_whole(column.astype(np.int64))
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        return keys_of_floats(cast("npt.NDArray[np.floating[Any]]", column))
    coded = as_coded(column)
    texts = [b"" if (text := spelling(value)) is None or text in MISSING_TEXTS else text.encode(errors="surrogatepass")
             for value in coded.values]  # fmt: skip
    distinct = keys_of_texts(np.frombuffer(b"".join(texts), dtype=np.uint8), np.cumsum([0, *map(len, texts)]))
    if not len(distinct.keys):
        return PersonKeys(*(np.zeros(len(column), dtype=np.int64),) * 2, np.ones(len(column), dtype=np.bool_))
    rounded = np.array([is_rounded(value) for value in coded.values]) & ~distinct.missing
    codes = np.maximum(coded.codes, 0)
    missing = distinct.missing[codes] | (coded.codes < 0)
    keys = distinct.keys[codes]
    spelt = keys if distinct.spelt is distinct.keys else distinct.spelt[codes]
    return PersonKeys(keys, spelt, missing, int((rounded[codes] & ~missing).sum()))


def keys_of_whole(numbers: IntArray, missing: BoolArray | None = None) -> PersonKeys:
    """Return the keys of whole numbers (n,), which they are themselves; ``missing`` (n,) has none if it is None."""
    return PersonKeys(numbers, numbers, np.zeros(len(numbers), dtype=np.bool_) if missing is None else missing)


def keys_of_floats(numbers: npt.NDArray[np.floating[Any]]) -> PersonKeys:
    """Return the keys of numbers (n,) of any precision: NaN is no identifier, and rounded ones are counted."""
    missing = np.isnan(numbers)
    exact = np.abs(numbers) < 2.0 ** min(np.finfo(numbers.dtype).nmant + 1, 53)
    n_rounded = int((~exact & ~missing).sum())
    if (exact & (numbers != np.trunc(numbers))).any():
        distinct, codes = np.unique(numbers, return_inverse=True)  # spelt with as few digits as tell them apart
        of_column = keys_of_column(Coded(np.where(missing, MISSING, codes), tuple(distinct.astype(str).tolist())))
        return replace(of_column, inexact=n_rounded)
    keys = np.where(exact, numbers, 0.0).astype(np.int64)
    return PersonKeys(keys, keys, missing, n_rounded)


def keys_of_texts(characters: npt.NDArray[np.uint8], ends: IntArray) -> PersonKeys:
    """Return the keys of texts (n,) without blanks around them, in UTF-8 one after another; an empty one is missing.

    Text i are the bytes from ``ends[i]`` to ``ends[i + 1]``.
    """
    starts, sizes = ends[:-1], np.diff(ends)
    rows = np.flatnonzero(sizes)
    keys, spelt = np.zeros((2, len(sizes)), dtype=np.int64)
    n_rounded = 0
    for first in range(0, len(rows), _TOGETHER):
        some = rows[first : first + _TOGETHER]
        keys[some], spelt[some], rounded = _keys_of_some(characters, starts[some], sizes[some])
        n_rounded += rounded
    return PersonKeys(keys, keys if np.array_equal(keys, spelt) else spelt, sizes == 0, n_rounded)


def _keys_of_some(
    characters: npt.NDArray[np.uint8], starts: IntArray, sizes: IntArray
) -> tuple[IntArray, IntArray, int]:
    """Return keys of some texts (n,), which begin at ``starts``, finer ones, and how many texts are rounded numbers."""
    keys, spelt = np.empty((2, len(sizes)), dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")[int((sizes > _LONG).sum()) :]
    texts = _Texts.of(characters, starts[order], sizes[order])
    kinds = np.full(len(sizes), _FOREIGN, dtype=np.uint8)
    kinds[order], keys[order], spelt[order] = texts.hashed()
    are_digits = order[(kinds[order] == _DIGIT) & (sizes[order] <= _DIGITS)]
    if len(are_digits):
        numbers = keys[are_digits] = _Texts.of(characters, starts[are_digits], sizes[are_digits]).numbers()
        bare = (characters[starts[are_digits]] != ord("0")) | (sizes[are_digits] == 1)
        spelt[are_digits[bare]] = numbers[bare]
    odd = ((kinds & _OTHER) == 0) | ((kinds & _FOREIGN) > 0)
    odd[are_digits] = False
    n_rounded = 0
    for i in np.flatnonzero(odd).tolist():
        text = characters[starts[i] : starts[i] + sizes[i]].tobytes()
        keys[i], spelt[i] = _key_of(text.decode(errors="replace")), _hash_of(text)
        n_rounded += text.startswith(_ROUNDED)
    return keys, spelt, n_rounded


@dataclass(frozen=True, slots=True, eq=False)
class _Texts:
    """Some texts, the longest first: ``columns[j]`` are the bytes at place j of those that are so long, ``sizes`` (n,).

    To go through all texts place by place is several times as fast as text by text.
    """

    columns: list[npt.NDArray[np.uint8]]
    sizes: IntArray

    @classmethod
    def of(cls, characters: npt.NDArray[np.uint8], starts: IntArray, sizes: IntArray) -> _Texts:
        """Return texts that begin at ``starts``, the longest first."""
        n_at = np.searchsorted(-sizes, -np.arange(int(sizes.max(initial=0)))).tolist()
        return cls([characters[starts[:n] + place] for place, n in enumerate(n_at)], sizes)

    def hashed(self) -> tuple[npt.NDArray[np.uint8], IntArray, IntArray]:
        """Return the kinds of characters of each text (n,), its hash in small letters, and its hash as it is spelt."""
        kinds, beyond = np.zeros(len(self.sizes), dtype=np.uint8), np.zeros(len(self.sizes), dtype=np.uint64)
        sums = self.sizes.astype(np.uint64) * _FACTORS[0]
        for column, factor in zip(self.columns, _FACTORS[1:], strict=False):
            of_column = _KINDS.take(column)
            kinds[: len(column)] |= of_column
            sums[: len(column)] += np.multiply(column, factor, dtype=np.uint64)
            capitals = of_column & _CAPITAL
            if capitals.any():
                beyond[: len(column)] += np.multiply(capitals, factor, dtype=np.uint64)
        return kinds, (sums + beyond).view(np.int64), sums.view(np.int64)

    def numbers(self) -> IntArray:
        """Return the numbers (n,) that texts of at most 18 digits spell."""
        numbers = np.zeros(len(self.sizes), dtype=np.int64)
        for column in self.columns:
            shorter = numbers[: len(column)]
            shorter *= 10
            shorter += column
            shorter -= ord("0")
        return numbers


def coarse(text: str) -> str:
    """Return how a text is spelt that is a number, or has characters beyond ASCII, so that texts alike are equal.

    >>> [coarse(text) for text in ("007", "7.0", "7,00", "+7", "0.70e1", "-0", "7.5", "07,50", "010e998", "Ä1")]
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
    minus = "-" if sign == "-" else ""
    return f"{minus}{bare}{'0' * shift}" if 0 <= shift <= _MOST_ZEROS else f"{minus}{bare}e{shift}"


def _key_of(text: str) -> int:
    """Return the key of a text that is a number, or has characters beyond ASCII."""
    spelt = coarse(text)
    bare = spelt.removeprefix("-")
    if bare.isascii() and bare.isdigit() and -(2**63) <= (number := int(spelt[:_MOST_ZEROS])) < 2**63:
        return number
    return _hash_of(spelt.encode())


def _hash_of(text: bytes) -> int:
    """Return the hash of one text as it is spelt, as `_Texts.hashed` does of many that are not long."""
    if len(text) > _LONG:
        return int.from_bytes(blake2b(text, digest_size=8, key=_KEY).digest(), "little", signed=True)
    return int((np.array([len(text), *text], dtype=np.uint64) * _FACTORS[: len(text) + 1]).sum().view(np.int64))
