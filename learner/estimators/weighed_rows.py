"""Reads what a fit is told about its rows: which are one person's (``groups``), and how much each counts.

All rows of a group are one person, and one example: they are hidden together, and are never dealt to two owners. Groups
are compared as identifiers in tables are (`parley.common.data.persons`): 7 and "007" are one person's. Persons come in
the order of their first rows, so that groups of one row each are the rows as they were. Of a person's rows the first
``most_rows`` count, a public bound.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, validate_data

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.persons import PersonIndex, PersonOrder, keys_of_column
from parley.common.data.shard import Shard, weighed
from parley.common.data.study import Person
from parley.common.data.weighing import Weighing
from parley.common.encoding.texts import so_many
from parley.learner.estimators.budget import EstimatorError, as_estimator_errors

if TYPE_CHECKING:
    import numpy.typing as npt

_PERSONS = "which rows are one person's, and how many each has, is private; how many persons there are is public"
_DIVIDE = (
    ": noise hides an example that counts at most as one. Divide weights by the largest that is possible, not by the "
    "largest of these rows"
)
_WEIGHED = "the weight of a row follows from its own example alone, not from others, and is hidden with it"


@dataclass(frozen=True, slots=True, eq=False)
class WeighedRows:
    """The rows of arrays that a fit counts, by person.

    ``places`` (m,) are where they stand. ``begins`` (m,) says whether each is the first of its person, and ``person``
    states it in the study of the run; both are None if each row is an example. ``row_weights`` (m,) are in [0, 1],
    and count in multiples of 2^-16; None if all are 1.
    """

    places: IntArray
    begins: BoolArray | None
    row_weights: FloatArray | None
    person: Person | None

    @classmethod
    def of(
        cls, X: FloatArray, sample_weight: npt.ArrayLike | None, groups: npt.ArrayLike | None, most_rows: int
    ) -> Self:
        """Read the weights and groups of examples X (n, d). Raises ValueError that says what is wrong with them."""
        row_weights = None if sample_weight is None else _weights(X, sample_weight)
        if groups is None:
            return cls(np.arange(len(X)), None, row_weights, None)
        person = Person(column="group", most_rows=int(most_rows))
        order = _by_person(groups, len(X), person)
        return cls(order.rows, order.begins, None if row_weights is None else row_weights[order.rows], person)

    @property
    def n_examples(self) -> int:
        """The number of examples, which is public: of persons, or of rows that stand for themselves."""
        return len(self.places) if self.begins is None else int(self.begins.sum())

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a promise to these examples assumes, in words."""
        stated = ((self.begins, _PERSONS), (self.row_weights, _WEIGHED))
        return tuple(words for of_rows, words in stated if of_rows is not None)

    def weigh(self, rows: Shard) -> Shard:
        """Return a new shard of the rows that count, in their order, as examples that count so."""
        return weighed(rows, Weighing.of(rows.mask, self.begins, self.row_weights))


class ArrayEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A model that is trained on arrays, whose rows may be persons' and may have weights."""

    __metadata_request__fit = MappingProxyType({"groups": True})
    _validation: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """What scikit-learn checks of arrays besides."""

    def fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
        groups: npt.ArrayLike | None = None,
    ) -> Self:
        """Train on examples X (n, d) of classes, or with numbers, y (n,).

        All rows of one of the ``groups`` (n,) are one person, and hidden together. ``sample_weight`` (n,) has weights
        in [0, 1]; rows of weight 0 teach nothing, but count in n. Raises EstimatorError, a ValueError, for invalid
        parameters, such as missing bounds, and ValueError for groups or weights that cannot be right.
        """
        with as_estimator_errors():
            rows, labels = validate_data(self, X, y, dtype=np.float64, **self._validation)
            return self._fit(rows, labels, sample_weight, groups)

    @abstractmethod
    def _fit(
        self,
        X: FloatArray,
        y: npt.NDArray[Any],
        sample_weight: npt.ArrayLike | None,
        groups: npt.ArrayLike | None,
    ) -> Self:
        """Train on examples that scikit-learn has checked."""


def _weights(X: FloatArray, sample_weight: npt.ArrayLike) -> FloatArray:
    """Return weights (n,) of examples X (n, d); raises ValueError for any that is no number in [0, 1]."""
    weights: FloatArray = _check_sample_weight(sample_weight, X, dtype=np.float64)
    for wrong, words, remedy in ((weights < 0, "below 0", ""), (weights > 1, "above 1", _DIVIDE)):
        if wrong.any():
            first = int(wrong.argmax())
            raise EstimatorError(
                f"sample_weight must lie between 0 and 1, and {int(wrong.sum())} of {len(weights)} are {words}, the "
                f"first in row {first}, {weights[first]:g}{remedy}"
            )
    if ((weights > 0) & (weights < 1)).any() and math.isclose(float(weights.sum()), 1.0):
        raise EstimatorError(
            "sample_weight adds up to 1, as weights do that were divided by their sum: each would follow from all "
            "examples, and noise hides what follows from one"
        )
    return weights


def _by_person(groups: npt.ArrayLike, n_rows: int, person: Person) -> PersonOrder:
    """Return where rows (n,) of these groups go; raises EstimatorError for rows of no group."""
    cells = np.asarray(groups)
    if cells.dtype.kind not in "iuf":  # of a list, NumPy may have made texts, also of NaN
        cells = np.asarray(groups, dtype=object)
    if cells.shape != (n_rows,):
        raise EstimatorError(f"groups must have the shape ({n_rows},), one group a row, and have {cells.shape}")
    index = PersonIndex(person)
    try:
        index.add(keys_of_column(cells))
    except TypeError:  # as pandas' NA has it
        raise EstimatorError("groups must be numbers or texts, and none may be missing") from None
    order = index.ordered(None)
    if faults := [f"{so_many(rows, 'row')}: {kind}" for kind, rows in order.faults.items() if rows]:
        raise EstimatorError(
            f"groups must say whose each row is, and of {', '.join(faults)}. A row of somebody unknown may have a "
            "group of its own if it is that person's only one"
        )
    return order
