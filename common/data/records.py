"""Records, as whoever predicts has them, as rows of a study's design."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from parley.common.arrays import BoolArray, FloatArray
from parley.common.data.cells import MISSING, UNLISTED, Block, CellRules, Entries, as_codes, as_numbers
from parley.common.data.columns import Category, SparseFeatures, missing_policy
from parley.common.data.loading import Loading
from parley.common.data.shard import Shard
from parley.common.data.sparse import Matrix, SparseShard
from parley.common.data.sparse_loading import SparseLoading
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError

Naming = Callable[[int], str]
"""What to call a row in an error, by its number from 0."""
_NUMERIC = "iufO"
"""Kinds of arrays of numbers; decimals, and None beside numbers, are objects."""


def rows_of(study: Study, records: Sequence[Mapping[str, Any]], name: Naming = "record {}".format) -> Any:  # noqa: ANN401 -- a matrix of either kind
    """Records {feature: number, text or None} as rows (n, n_features) of the design, clipped to the bounds.

    Of sparse features {index: places, value: numbers}, as a sparse matrix.

    Raises InvalidInputError that names the record, by its number from 0, and the feature where a value is missing and
    none stands in, is no number, or is not one of the feature's.
    """
    if study.sparse:
        return _sparse_rows(study, study.sparse, records, name)
    columns: dict[str, npt.NDArray[np.generic]] = {}
    for feature in study.named:
        cells = np.empty(len(records), dtype=object)
        for i, record in enumerate(records):  # one by one: a list would be spread over the rows
            cells[i] = record.get(feature.name)
        columns[feature.name] = cells
    check_cells(study, columns, name)
    return rows_of_columns(study, columns, len(records))


def rows_of_columns(study: Study, columns: Block, n_rows: int) -> FloatArray:
    """A study's features (n_rows,) each as rows (n_rows, n_features), clipped to the bounds, as parties hold them.

    Of a row that `check_cells` would refuse nothing is said.
    """
    return Shard(_design(study, columns, n_rows), np.ones(n_rows), norm=study.norm).X


def _sparse_rows(study: Study, features: SparseFeatures, records: Sequence[Mapping[str, Any]], name: Naming) -> Matrix:
    """Records' rows as a sparse matrix."""
    lists = [_lists_of(features, name(i), record) for i, record in enumerate(records)]
    loading = SparseLoading(study, len(records), CellRules(clip=True))
    none, counts = np.zeros(len(records), dtype=np.bool_), [len(places) for places, _ in lists]
    places, values = (np.concatenate([np.zeros(0), *each]) for each in zip(*lists, strict=True))
    loading.add_entries(0, Entries(places, values, np.cumsum([0, *counts]), none, none))
    return SparseShard(loading.matrix(), np.ones(len(records)), norm=study.norm).rows


def _lists_of(features: SparseFeatures, which: str, record: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Places and values of a record; raises InvalidInputError that names it."""
    try:
        places, values = (_numbers(record[name]) for name in features.table_names)
    except (KeyError, TypeError, ValueError):
        wanted = " and ".join(map(repr, features.table_names))
        raise InvalidInputError(f"{which}: {wanted} must be lists of numbers") from None
    offset = places - features.first
    for wrong, words in (
        (places.shape != values.shape, "has not as many places as values"),
        (bool(((offset != np.trunc(offset)) | (offset < 0) | (offset >= features.columns)).any()),
         f"has a place that is none of the {features.columns} columns"),
        (len(np.unique(places)) < places.size, "has a place twice"),
        (places.size > features.entries, f"has more entries than the {features.entries} of the study"),
        (bool(np.isnan(values).any()), "has a value that is not a number"),
    ):  # fmt: skip
        if wrong:
            raise InvalidInputError(f"{which}: {words}")
    return places, values


def _numbers(cells: Any) -> FloatArray:  # noqa: ANN401 -- whatever a record has
    """A list of numbers (m,); raises TypeError or ValueError for anything else, as texts and truth values are."""
    found = np.asarray(cells)
    if found.ndim != 1 or (found.size and found.dtype.kind not in _NUMERIC):
        raise TypeError
    return found.astype(np.float64)


def design_of(study: Study, columns: Block, n_rows: int) -> FloatArray:
    """A study's features (n_rows,) each as rows (n_rows, n_features) as `Loading.design` has them; no label is needed.

    Numbers are clipped to the bounds. Raises InvalidInputError as `rows_of`.
    """
    check_cells(study, columns)
    return _design(study, columns, n_rows)


def check_cells(study: Study, columns: Block, name: Naming = "record {}".format) -> None:
    """Raise InvalidInputError for the first cell, by columns, that the study's rules have no place for."""
    for unfit, words in unfit_cells(study, columns):
        first, more = int(unfit.argmax()), int(unfit.sum()) - 1
        others = f", and so it is in {more:,} more" if more else ""
        raise InvalidInputError(f"{name(first)}: {words}{others}")


def unfit_cells(study: Study, columns: Block) -> Iterator[tuple[BoolArray, str]]:
    """Which rows (n,) have a cell that the study's rules have no place for, by feature, and what is wrong with it."""
    for feature in study.named:
        cells = columns[feature.name]
        if isinstance(feature, Category):
            codes = as_codes(cells, feature.codes, feature.other_code)
            empty, strange, words = codes == MISSING, codes == UNLISTED, "is not one of its values"
        else:
            values, bad = as_numbers(cells)
            strange, words = np.zeros(len(cells), dtype=np.bool_) if bad is None else bad, "is not a number"
            empty = np.isnan(values) & ~strange
        if missing_policy(feature, study.missing) != "value" and empty.any():
            yield empty, f"feature {feature.name!r} is missing"
        if strange.any():
            yield strange, f"feature {feature.name!r} {words}"


def _design(study: Study, columns: Block, n_rows: int) -> FloatArray:
    loading = Loading(study, n_rows, CellRules(clip=True))
    loading.add(0, {name: columns[name] for name in study.feature_names})
    return loading.design(n_rows)
