"""Records, as whoever predicts has them, as rows of a study's design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from common.arrays import FloatArray
from common.data.cells import MISSING, UNKNOWN, as_codes, as_numbers
from common.data.columns import Category, Columns, Feature, missing_policy
from common.data.loading import Loading
from common.data.shard import Shard
from common.data.study import Study
from common.errors import InvalidInputError


def rows_of(study: Study, records: Sequence[Mapping[str, Any]]) -> FloatArray:
    """Records {feature: number, text or None} as rows (n, n_features) of the design, clipped to the bounds.

    Raises InvalidInputError that names the record and the feature where a value is missing and none stands in, is no
    number, or is not one of the feature's.
    """
    columns: dict[str, npt.NDArray[np.generic]] = {}
    for feature in study.features:
        cells = np.empty(len(records), dtype=object)
        cells[:] = [record.get(feature.name) for record in records]
        columns[feature.name] = cells
    return Shard(design_of(study, columns, len(records)), np.ones(len(records)), norm=study.norm).X


def design_of(study: Study, columns: Columns, n_rows: int) -> FloatArray:
    """A study's features (n_rows,) each as rows (n_rows, n_features) as `Loading.design` has them; no label is needed.

    Numbers are clipped to the bounds. Raises InvalidInputError as `rows_of`.
    """
    for feature in study.features:
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
