"""Two published data sets of finance, as Wu, Farokhi, Smith & Kaafar 2020 use them: loans and card frauds.

*Lending Club*: loans with the interest rate to predict, from what is numeric and known before issue. Left out are the
grades and the instalment, which are functions of the rate, and all that comes after issue (payments, status).

*Credit card*: transactions with frauds to find, 28 principal components and the amount (Worldline and ULB, 2013).

A path leads to the publisher's CSV or to a Parquet file of the same columns; without one, files are looked for in the
folder that ``$PARLEY_DATA`` names. Bounds are typed below, not computed: round figures that hold most of what published
descriptions of these public sets give. What lies beyond is clipped.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from common.arrays import FloatArray
from common.data.columns import Columns, Feature, Label, RealLabel
from common.data.loading import shard_of
from common.data.losses import HingeLoss, SquaredLoss
from common.data.shard import Shard
from common.data.study import Study
from common.errors import InvalidDataError
from common.files.tables import read_columns

_Column = npt.NDArray[np.generic]

LENDING_CLUB = Study(
    name="lending-club",
    features=(
        Feature(name="loan_amnt", lower=0, upper=35_000),
        Feature(name="term_months", lower=36, upper=60),
        Feature(name="annual_inc", lower=0, upper=150_000),
        Feature(name="dti", lower=0, upper=30),
        Feature(name="revol_util", lower=0, upper=1),
        Feature(name="delinq_2yrs", lower=0, upper=2),
        Feature(name="inq_last_6mths", lower=0, upper=4),
        Feature(name="open_acc", lower=0, upper=20),
        Feature(name="pub_rec", lower=0, upper=1),
        Feature(name="revol_bal", lower=0, upper=40_000),
        Feature(name="total_acc", lower=0, upper=50),
        Feature(name="credit_years", lower=0, upper=30),
    ),
    label=RealLabel(name="int_rate", lower=0.05, upper=0.25),
    loss=SquaredLoss(),
)
"""Interest rates by linear regression; rates and utilisations are fractions."""

_COMPONENT_SPREADS = (
    2.0, 1.7, 1.5, 1.4, 1.4, 1.3, 1.2, 1.2, 1.1, 1.1, 1.0, 1.0, 1.0, 1.0,
    0.9, 0.9, 0.8, 0.8, 0.8, 0.8, 0.7, 0.7, 0.6, 0.6, 0.5, 0.5, 0.4, 0.3,
)  # fmt: skip

CREDIT_CARD = Study(
    name="credit-card",
    features=(
        *(
            Feature(name=f"V{i}", lower=-5 * spread, upper=5 * spread)
            for i, spread in enumerate(_COMPONENT_SPREADS, start=1)
        ),
        Feature(name="Amount", lower=0, upper=1000),
    ),
    label=Label(name="Class", values=("0", "1")),
    loss=HingeLoss(),
)
"""Frauds by a linear support vector machine; a fraud is positive."""

_FILES = {
    LENDING_CLUB.name: Path("lending-club", "loans-2007-2011.parquet"),
    CREDIT_CARD.name: Path("creditcard-subset", "creditcard-subset.parquet"),
}


def published(study: Study, path: Path | None = None) -> Shard | None:
    """The examples of `LENDING_CLUB` or `CREDIT_CARD` in the order of the file, without rows that miss a value.

    None where there is neither a path nor ``$PARLEY_DATA``. Raises InvalidDataError for a file that does not fit.
    """
    if path is None:
        folder = os.environ.get("PARLEY_DATA")
        if not folder:
            return None
        path = Path(folder) / _FILES[study.name]
    columns = read_columns(path)
    if study.name == LENDING_CLUB.name:
        columns = loans(columns)
    return shard_of(study, complete(study, columns), clip=True)


def loans(columns: Columns) -> Columns:
    """Lending Club's columns with numbers for its spellings: ``36 months``, ``13.56%``, ``Jan-1985``."""
    needed = {"int_rate", "revol_util", "issue_d", "earliest_cr_line"}
    if missing := sorted(needed - columns.keys()):
        raise InvalidDataError(f"columns missing from the data: {', '.join(missing)}")
    term = columns.get("term_months", columns.get("term"))
    return {
        **columns,
        "int_rate": _fractions(columns["int_rate"]),
        "revol_util": _fractions(columns["revol_util"]),
        "credit_years": _years(columns["issue_d"]) - _years(columns["earliest_cr_line"]),
        **({} if term is None else {"term_months": _numbers(term)}),
    }


def complete(study: Study, columns: Columns) -> Columns:
    """A study's columns, (n,) each, without the rows in which a feature is missing."""
    names = [name for name in study.table_names if name in columns]
    known = np.all([~_absent(columns[name]) for name in names], axis=0)
    return {name: columns[name][known] for name in names}


def _absent(column: _Column) -> npt.NDArray[np.bool_]:
    """Where a number is missing, or a text."""
    return np.isnan(column) if column.dtype.kind == "f" else np.array([value is None for value in column.tolist()])


def _fractions(column: _Column) -> FloatArray:
    """A column of fractions, or of percentages, spelt with their sign or without, as fractions."""
    numbers = _numbers(column)
    percent = column.dtype.kind == "O" or float(np.nanmax(numbers, initial=0.0)) > 2  # noqa: PLR2004 -- 200 %
    return numbers / 100 if percent else numbers


def _numbers(column: _Column) -> FloatArray:
    """A column's numbers, the first of each text."""
    if column.dtype.kind != "O":
        return column.astype(np.float64)
    found = (re.search(r"\d+(\.\d+)?", value or "") for value in column.tolist())
    return np.array([float(match[0]) if match else np.nan for match in found])


def _years(column: _Column) -> FloatArray:
    """The years of a column of dates, or of texts that hold four digits."""
    if column.dtype.kind != "M":
        found = (re.search(r"\d{4}", value or "") for value in column.tolist())
        return np.array([float(match[0]) if match else np.nan for match in found])
    years = column.astype("datetime64[Y]").astype(np.float64) + 1970
    return np.where(np.isnat(column), np.nan, years)
