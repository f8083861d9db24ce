"""Rows to predict for are the same of records, columns, arrays, and data frames of each library that people use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from parley.common.errors import InvalidInputError
from parley.learner.client.calls import columns_of, records_of

COLUMNS: dict[str, list[Any]] = {
    "age": [61, 48, 70],
    "dose": [0.5, None, 1.25],
    "ward": ["north", None, "south"],
    "smokes": [True, False, True],
}
RECORDS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
FRAMES = {
    "records": RECORDS,
    "columns": COLUMNS,
    "pandas": pd.DataFrame(COLUMNS),
    "pandas, nullable": pd.DataFrame(COLUMNS).convert_dtypes(),
    "pandas, of categories": pd.DataFrame(COLUMNS).astype({"ward": "category"}),
    "pandas, another index": pd.DataFrame(COLUMNS, index=[7, 7, 9]),
    "polars": pl.DataFrame(COLUMNS),
    "polars, of categories": pl.DataFrame(COLUMNS).with_columns(pl.col("ward").cast(pl.Categorical)),
    "pyarrow": pa.table(COLUMNS),
}


@pytest.mark.parametrize("rows", FRAMES.values(), ids=FRAMES)
def test_all_say_the_same(rows: object) -> None:
    assert records_of(rows) == RECORDS
    columns = columns_of(rows, ("dose", "age"))
    assert list(columns) == ["dose", "age"]
    assert columns["age"].tolist() == COLUMNS["age"]


@pytest.mark.parametrize("name", sorted(set(FRAMES) - {"records"}))
def test_a_column_that_they_lack_is_named(name: str) -> None:
    with pytest.raises(InvalidInputError, match="the rows lack 'height'"):
        columns_of(FRAMES[name], ("age", "height"))


@pytest.mark.parametrize("rows", [[], (), {"age": [], "dose": []}, pd.DataFrame({"age": [], "dose": []})], ids=repr)
def test_no_rows_are_rows_too(rows: object) -> None:
    assert records_of(rows) == []
    assert [len(column) for column in columns_of(rows, ("age", "dose")).values()] == [0, 0]


def test_rows_without_names_are_refused() -> None:
    for rows in (pl.Series([1, 2]), 7, "age"):
        with pytest.raises(InvalidInputError, match=r"columns by name|must be"):
            records_of(rows)
    assert columns_of(np.array([[1.0, 2.0]]), ("a", "b"))["b"].tolist() == [2.0]
