"""How long the sum of a person's rows is, if each is multiplied by a number: from the products of rows, made once.

Products are of rows on the grid, so they are exact, and the same for dense rows and sparse ones. Of persons of more
than `MOST_PAIRED` rows there are none: they would take most of the memory, and few rows are theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.weighing import Persons

RowPlaces: TypeAlias = npt.NDArray[np.int32]
MOST_PAIRED = 8
"""The most rows of a person whose rows are multiplied by each other."""
_TOGETHER = 2**14


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of rows of the same person, also of a row with itself, of persons of 2 to `MOST_PAIRED` rows.

    Of each pair ``one`` (m,) and ``other`` (m,) are the places of its rows among all of the shard, and ``products``
    (m,) their product, twice where they are two rows. Pairs lie by person: ``begins`` (p,) are the places of persons'
    first pairs.
    """

    one: RowPlaces
    other: RowPlaces
    products: FloatArray
    begins: IntArray

    @classmethod
    def of(cls, persons: Persons, product: Callable[[RowPlaces, RowPlaces], FloatArray]) -> Self:
        """Return the pairs of a shard of these persons; ``product`` multiplies rows by their places."""
        sizes, left = persons.sizes, persons.left().reshape(-1)
        is_paired = persons.repeated((sizes > 1) & (sizes <= MOST_PAIRED)).reshape(-1)
        ones = [np.flatnonzero(is_paired & (left >= beyond)).astype(np.int32) for beyond in range(MOST_PAIRED)]
        others = [one + np.int32(beyond) for beyond, one in enumerate(ones)]
        order = np.argsort(np.concatenate(ones), kind="stable")
        one, other = (np.concatenate(places)[order] for places in (ones, others))
        products = product(one, other) * np.where(one == other, 1.0, 2.0)
        return cls(one, other, products, np.flatnonzero(np.diff(persons.owners(one), prepend=-1)))

    def between(self, start: int, end: int) -> Pairs:
        """Return the pairs of the rows from ``start`` to before ``end``, whole persons, as those of all rows."""
        low, high = np.searchsorted(self.one, (start, end))
        begins = self.begins[slice(*np.searchsorted(self.begins, (low, high)))] - low
        moved = np.int32(start)
        return Pairs(self.one[low:high] - moved, self.other[low:high] - moved, self.products[low:high], begins)

    def squares(self, factors: FloatArray) -> FloatArray:
        """Return the squared 2-norm (p,) of the sum of rows times factors (n,), of each person that has pairs."""
        if not len(self.begins):
            return np.zeros(0)
        of_pairs = factors[self.one]
        of_pairs *= factors[self.other]
        of_pairs *= self.products
        return np.asarray(np.add.reduceat(of_pairs, self.begins))


def in_parts(first: RowPlaces, second: RowPlaces, multiply: Callable[[RowPlaces, RowPlaces], FloatArray]) -> FloatArray:
    """Return the products of rows by their places, some at a time, because rows are copied for it."""
    parts = [
        multiply(first[start : start + _TOGETHER], second[start : start + _TOGETHER])
        for start in range(0, len(first), _TOGETHER)
    ]
    return np.concatenate([np.zeros(0), *parts])
