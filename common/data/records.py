"""Records to predict for, as rows of a study's design."""

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
"""Returns the name of a row in an error, for its number from 0."""
_NUMERIC = "iufO"
"""Kinds of arrays of numbers; decimals, and None beside numbers, are objects."""


def rows_of(study: Study, records: Sequence[Mapping[str, Any]], name: Naming = "record {}".format) -> Any:  # noqa: ANN401 -- a matrix of either kind
    """Return records {feature: number, text or None} as rows (n, n_features) of the design, clipped to the bounds.

    For sparse features, records are {index: places, value: numbers}, and the result is a sparse matrix.

    Raises InvalidInputError that names the record, by its number from 0, and the feature if a value is missing without
    a replacement, is no number, or is not one of the feature's.
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
    """Return a study's features (n_rows,) each as rows (n_rows, n_features), clipped to the bounds.

    They are as parties hold them. The result is undefined for a row that `check_cells` would refuse.
    """
    return Shard(_design(study, columns, n_rows), np.ones(n_rows), norm=study.norm).X


def _sparse_rows(study: Study, features: SparseFeatures, records: Sequence[Mapping[str, Any]], name: Naming) -> Matrix:
    """Return records' rows as a sparse matrix."""
    lists = [_lists_of(features, name(i), record) for i, record in enumerate(records)]
    loading = SparseLoading(study, len(records), CellRules(clip=True))
    none, counts = np.zeros(len(records), dtype=np.bool_), [len(places) for places, _ in lists]
    places, values = (np.concatenate([np.zeros(0), *arrays]) for arrays in zip(*lists, strict=True))
    loading.add_entries(0, Entries(places, values, np.cumsum([0, *counts]), none, none))
    return SparseShard(loading.matrix(), np.ones(len(records)), norm=study.norm).rows


def _lists_of(features: SparseFeatures, which: str, record: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Return places and values of a record. Raises InvalidInputError that names it."""
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


def _numbers(cells: Any) -> FloatArray:  # noqa: ANN401 -- any value of a record
    """Return a list of numbers (m,). Raises TypeError or ValueError for texts, truth values and all else."""
    numbers = np.asarray(cells)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in _NUMERIC):
        raise TypeError
    return numbers.astype(np.float64)


def design_of(study: Study, columns: Block, n_rows: int) -> FloatArray:
    """Return a study's features (n_rows,) each as rows (n_rows, n_features), as `Loading.design` does.

    No label is needed. Numbers are clipped to the bounds. Raises InvalidInputError as `rows_of` does.
    """
    check_cells(study, columns)
    return _design(study, columns, n_rows)


def check_cells(study: Study, columns: Block, name: Naming = "record {}".format) -> None:
    """Raise InvalidInputError for the first cell, by columns, that the study's rules do not accept."""
    for unfit, words in unfit_cells(study, columns):
        first, more = int(unfit.argmax()), int(unfit.sum()) - 1
        others = f", and so it is in {more:,} more" if more else ""
        raise InvalidInputError(f"{name(first)}: {words}{others}")


def unfit_cells(study: Study, columns: Block) -> Iterator[tuple[BoolArray, str]]:
    """Yield by feature which rows (n,) have a cell that the study's rules do not accept, and what is wrong with it."""
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
