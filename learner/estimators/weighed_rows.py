"""Reads what a fit is told about its rows: which are one person's (``groups``), and how much each counts.

All rows of a group are one person, and one example: they are hidden together, and are never dealt to two owners.
Persons come in the order of their first rows, so that groups of one row each are the rows as they were. Of a person's
rows the first ``most_rows`` count, a public bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.utils.validation import _check_sample_weight

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard, assembled
from parley.common.data.study import Person
from parley.common.data.weighing import Weighing
from parley.learner.estimators.budget import EstimatorError

if TYPE_CHECKING:
    import numpy.typing as npt

_PERSONS = (
    "which rows are one person's, and how many each has, is private; how many persons there are is public",
    "all rows of a person have the same group: what is of one group is hidden together, and two groups are not",
)
_WEIGHED = "the weight of a row follows from its own example alone, not from others, and is hidden with it"


@dataclass(frozen=True, slots=True, eq=False)
class WeighedRows:
    """The rows of arrays that a fit counts, by person.

    ``places`` (m,) are where they stand. ``begins`` (m,) says whether each is the first of its person, and ``person``
    states it in the study of the run; both are None if each row is an example. ``given`` (m,) are weights in [0, 1],
    which count in multiples of 2^-16; None if all are 1.
    """

    places: IntArray
    begins: BoolArray | None
    given: FloatArray | None
    person: Person | None

    @classmethod
    def of(
        cls, X: FloatArray, sample_weight: npt.ArrayLike | None, groups: npt.ArrayLike | None, most_rows: int
    ) -> Self:
        """Read the weights and groups of examples X (n, d). Raises ValueError that says what is wrong with them."""
        given = None if sample_weight is None else _weights(X, sample_weight)
        if groups is None:
            return cls(np.arange(len(X)), None, given, None)
        person = Person(column="group", most_rows=int(most_rows))
        places, begins = _by_person(_first_rows(groups, len(X)), person.most_rows)
        return cls(places, begins, None if given is None else given[places], person)

    @property
    def n_examples(self) -> int:
        """The number of examples, which is public: of persons, or of rows that stand for themselves."""
        return len(self.places) if self.begins is None else int(self.begins.sum())

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a promise to these examples assumes, in words."""
        return (*(() if self.begins is None else _PERSONS), *(() if self.given is None else (_WEIGHED,)))

    def weigh(self, rows: Shard) -> Shard:
        """Return a shard of the rows that count, in their order, as examples that count so."""
        weighing = Weighing.of(rows.mask, self.begins, self.given)
        return assembled(Shard, X=rows.X, y=rows.y, mask=rows.mask, norm=rows.norm, weighing=weighing)


def _weights(X: FloatArray, sample_weight: npt.ArrayLike) -> FloatArray:
    """Return weights (n,) of examples X (n, d); raises ValueError for any that is no number in [0, 1]."""
    weights: FloatArray = _check_sample_weight(sample_weight, X, dtype=np.float64)
    for wrong, words in ((weights < 0, "below 0"), (weights > 1, "above 1")):
        if wrong.any():
            first = int(wrong.argmax())
            raise EstimatorError(
                f"sample_weight must lie between 0 and 1, and {int(wrong.sum())} of {len(weights)} are {words}, the "
                f"first in row {first}, {weights[first]:g}: noise hides an example that counts at most as one. Divide "
                "weights by the largest that is possible, not by the largest of these rows"
            )
    if ((weights > 0) & (weights < 1)).any() and math.isclose(float(weights.sum()), 1.0):
        raise EstimatorError(
            "sample_weight adds up to 1, as weights do that were divided by their sum: each would follow from all "
            "examples, and noise hides what follows from one"
        )
    return weights


def _first_rows(groups: npt.ArrayLike, n_rows: int) -> IntArray:
    """Return the first row of each row's group, (n,); raises EstimatorError for rows of no group."""
    cells = np.asarray(groups, dtype=object)
    if cells.shape != (n_rows,):
        raise EstimatorError(f"groups must have the shape ({n_rows},), one group a row, and have {cells.shape}")
    if _any_missing(cells):
        raise EstimatorError(
            "groups has rows of no group (None or NaN): say whose they are, or give each a group of its own if it is a "
            "person by itself"
        )
    try:
        _, first, group = np.unique(np.asarray(groups), return_index=True, return_inverse=True)
    except TypeError:
        raise EstimatorError("groups must be of one kind, such as all numbers or all words") from None
    return np.asarray(first[group], dtype=np.int64)


def _any_missing(cells: Iterable[object]) -> bool:
    """Whether any of some values stands for none: None, or one that does not equal itself, as NaN."""
    try:
        return any(cell is None or bool(cell != cell) for cell in cells)  # noqa: PLR0124 -- so is NaN
    except TypeError:  # pandas' NA is neither equal to itself nor not
        return True


def _by_person(first_rows: IntArray, most_rows: int) -> tuple[IntArray, BoolArray]:
    """Return the places of at most ``most_rows`` rows of each person, by person, and whether each is its first."""
    places = np.argsort(first_rows, kind="stable")
    begins = first_rows[places] == places
    starts = np.flatnonzero(begins)
    counts = np.arange(len(places)) - starts[np.cumsum(begins) - 1] < most_rows
    return places[counts], begins[counts]
