"""Records, as whoever predicts has them, as rows of a study's design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from common.arrays import FloatArray
from common.data.cells import MISSING, UNKNOWN, Entries, as_codes, as_numbers
from common.data.columns import Category, Columns, Feature, SparseFeatures, missing_policy
from common.data.loading import Loading
from common.data.shard import Shard
from common.data.sparse import Matrix, SparseShard
from common.data.sparse_loading import SparseLoading
from common.data.study import Study
from common.errors import InvalidInputError


def rows_of(study: Study, records: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401 -- a matrix of either kind
    """Records {feature: number, text or None} as rows (n, n_features) of the design, clipped to the bounds.

    Of sparse features {index: places, value: numbers}, as a sparse matrix.

    Raises InvalidInputError that names the record and the feature where a value is missing and none stands in, is no
    number, or is not one of the feature's.
    """
    if study.sparse:
        return _sparse_rows(study, study.sparse, records)
    columns: dict[str, npt.NDArray[np.generic]] = {}
    for feature in study.named:
        cells = np.empty(len(records), dtype=object)
        for i, record in enumerate(records):  # one by one: a list would be spread over the rows
            cells[i] = record.get(feature.name)
        columns[feature.name] = cells
    return Shard(design_of(study, columns, len(records)), np.ones(len(records)), norm=study.norm).X


def _sparse_rows(study: Study, features: SparseFeatures, records: Sequence[Mapping[str, Any]]) -> Matrix:
    """Records' rows as a sparse matrix."""
    lists = [_lists_of(features, i, record) for i, record in enumerate(records)]
    loading = SparseLoading(study, len(records), clip=True)
    none, counts = np.zeros(len(records), dtype=np.bool_), [len(places) for places, _ in lists]
    places, values = (np.concatenate([np.zeros(0), *each]) for each in zip(*lists, strict=True))
    loading.add_entries(0, Entries(places, values, np.cumsum([0, *counts]), none, none))
    return SparseShard(loading.matrix(), np.ones(len(records)), norm=study.norm).rows


def _lists_of(features: SparseFeatures, number: int, record: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Places and values of a record; raises InvalidInputError that names it."""
    try:
        places, values = (np.array(record[name], dtype=np.float64) for name in features.table_names)
    except (KeyError, TypeError, ValueError):
        wanted = " and ".join(map(repr, features.table_names))
        raise InvalidInputError(f"record {number}: {wanted} must be lists of numbers") from None
    offset = places - features.first
    for wrong, words in (
        (places.ndim != 1 or places.shape != values.shape, "has not as many places as values"),
        (bool(((offset != np.trunc(offset)) | (offset < 0) | (offset >= features.columns)).any()),
         f"has a place that is none of the {features.columns} columns"),
        (len(np.unique(places)) < places.size, "has a place twice"),
        (places.size > features.entries, f"has more entries than the {features.entries} of the study"),
        (not bool(np.isfinite(values).all()), "has a value that is not a number"),
    ):  # fmt: skip
        if wrong:
            raise InvalidInputError(f"record {number}: {words}")
    return places, values


def design_of(study: Study, columns: Columns, n_rows: int) -> FloatArray:
    """A study's features (n_rows,) each as rows (n_rows, n_features) as `Loading.design` has them; no label is needed.

    Numbers are clipped to the bounds. Raises InvalidInputError as `rows_of`.
    """
    for feature in study.named:
        _check_cells(study, feature, columns[feature.name])
    loading = Loading(study, n_rows, clip=True)
    loading.add(0, {name: columns[name] for name in study.feature_names})
    return loading.design(n_rows)


def _check_cells(study: Study, feature: Feature | Category, cells: npt.NDArray[np.generic]) -> None:
    """Raise InvalidInputError for the first cell that the study's rules have no place for."""
    if isinstance(feature, Category):
        codes = as_codes(cells, feature.codes, feature.other_code)
        empty, strange, words = codes == MISSING, codes == UNKNOWN, "is not one of its values"
    else:
        values, bad = as_numbers(cells)
        strange, words = np.zeros(len(cells), dtype=np.bool_) if bad is None else bad, "is not a number"
        empty = np.isnan(values) & ~strange
    if missing_policy(feature, study.missing) != "value" and empty.any():
        raise InvalidInputError(f"record {int(empty.argmax())}: feature {feature.name!r} is missing")
    if strange.any():
        raise InvalidInputError(f"record {int(strange.argmax())}: feature {feature.name!r} {words}")
