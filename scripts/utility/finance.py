"""Two published data sets of finance, as Wu, Farokhi, Smith & Kaafar 2020 use them: loans and card frauds.

*Lending Club*: loans with the interest rate to predict, from what is numeric and known before issue. Left out are the
grades and the instalment, which are functions of the rate, and all that comes after issue (payments, status).

*Lending Club, coded*: the same with five categories besides, each value an integer, as the paper has them: the place in
the list below, which is an order for the years of employment alone.

*Credit card*: transactions with frauds to find, 28 principal components and the amount (Worldline and ULB, 2013).

The paper trains on ten principal components. `reduced` fits them to a tenth of the rows, which no owner has then:
components of private rows would have to be paid for.

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

from parley.common.arrays import FloatArray
from parley.common.data.auxiliary import with_projection_of
from parley.common.data.columns import Columns, Feature, Label, RealLabel
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import HingeLoss, SquaredLoss, Study
from parley.common.errors import InvalidDataError
from parley.common.files.tables import read_columns

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

_CODES = {
    "emp_length": ("< 1 year", "1 year", *(f"{years} years" for years in range(2, 10)), "10+ years"),
    "home_ownership": ("RENT", "OWN", "MORTGAGE", "OTHER", "NONE"),
    "verification_status": ("Not Verified", "Source Verified", "Verified"),
    "purpose": (
        "car", "credit_card", "debt_consolidation", "educational", "home_improvement", "house", "major_purchase",
        "medical", "moving", "other", "renewable_energy", "small_business", "vacation", "wedding",
    ),
    "addr_state": (
        "AK", "AL", "AR", "AZ", "CA", "CO", "CT", "DC", "DE", "FL", "GA", "HI", "IA", "ID", "IL", "IN", "KS",
        "KY", "LA", "MA", "MD", "ME", "MI", "MN", "MO", "MS", "MT", "NC", "ND", "NE", "NH", "NJ", "NM", "NV",
        "NY", "OH", "OK", "OR", "PA", "RI", "SC", "SD", "TN", "TX", "UT", "VA", "VT", "WA", "WI", "WV", "WY",
    ),
}  # fmt: skip

LENDING_CLUB_CODED = LENDING_CLUB.model_copy(
    update={
        "name": "lending-club-coded",
        "features": (
            *LENDING_CLUB.features,
            *(Feature(name=name, lower=0, upper=len(values) - 1) for name, values in _CODES.items()),
        ),
    }
)
"""Interest rates with categories as integers, as published."""

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

_ASIDE = 10
"""One row in so many is set aside."""

_FILES = {
    LENDING_CLUB.name: Path("lending-club", "loans-2007-2011.parquet"),
    LENDING_CLUB_CODED.name: Path("lending-club", "loans-2007-2011.parquet"),
    CREDIT_CARD.name: Path("creditcard-subset", "creditcard-subset.parquet"),
}


def published(study: Study, path: Path | None = None) -> Shard | None:
    """The examples of a study of this module in the order of the file, without rows that miss a value.

    None where there is neither a path nor ``$PARLEY_DATA``. Raises InvalidDataError for a file that does not fit.
    """
    columns = _columns(study, path)
    return None if columns is None else shard_of(study, columns, clip=True)


def reduced(study: Study, path: Path | None = None, n_components: int = 10) -> tuple[Study, Shard] | None:
    """The study projected onto the principal components of every tenth row, and the examples of all others.

    None and errors as `published`; raises InvalidInputError for more components than those rows have directions.
    """
    columns = _columns(study, path)
    if columns is None:
        return None
    aside = np.arange(len(columns[study.label.name])) % _ASIDE == 0
    public, examples = ({name: column[rows] for name, column in columns.items()} for rows in (aside, ~aside))
    terms = with_projection_of(study, public, n_components).study
    return terms, shard_of(terms, examples, clip=True)


def _columns(study: Study, path: Path | None) -> Columns | None:
    """A study's columns, (n,) each, without rows that miss a value; None where the file is not here."""
    if path is None:
        folder = os.environ.get("PARLEY_DATA")
        if not folder:
            return None
        path = Path(folder) / _FILES[study.name]
    columns = read_columns(path)
    if study.name != CREDIT_CARD.name:
        columns = loans(columns)
    if study.name == LENDING_CLUB_CODED.name:
        columns = coded(columns)
    return complete(study, columns)


def loans(columns: Columns) -> Columns:
    """Lending Club's columns with numbers for its spellings: ``36 months``, ``13.56%``, ``Jan-1985``."""
    required = {"int_rate", "revol_util", "issue_d", "earliest_cr_line"}
    if missing := sorted(required - columns.keys()):
        raise InvalidDataError(f"columns missing from the data: {', '.join(missing)}")
    term = columns.get("term_months", columns.get("term"))
    return {
        **columns,
        "int_rate": _fractions(columns["int_rate"]),
        "revol_util": _fractions(columns["revol_util"]),
        "credit_years": _years(columns["issue_d"]) - _years(columns["earliest_cr_line"]),
        **({} if term is None else {"term_months": _numbers(term)}),
    }


def coded(columns: Columns) -> Columns:
    """Lending Club's columns with each category's values as integers; others than the lists have are missing."""
    if missing := sorted(_CODES.keys() - columns.keys()):
        raise InvalidDataError(f"columns missing from the data: {', '.join(missing)}")
    numbers = {name: dict(zip(values, range(len(values)), strict=True)) for name, values in _CODES.items()}
    return {
        **columns,
        **{
            name: np.array([codes.get(value, np.nan) for value in columns[name].tolist()], dtype=np.float64)
            for name, codes in numbers.items()
        },
    }


def complete(study: Study, columns: Columns) -> Columns:
    """A study's columns, (n,) each, without the rows in which a feature is missing."""
    names = [name for name in study.table_names if name in columns]
    is_complete = np.all([~_absent(columns[name]) for name in names], axis=0)
    return {name: columns[name][is_complete] for name in names}


def _absent(column: _Column) -> npt.NDArray[np.bool_]:
    """Return the mask of missing numbers or texts."""
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
    matches = (re.search(r"\d+(\.\d+)?", value or "") for value in column.tolist())
    return np.array([float(match[0]) if match else np.nan for match in matches])


def _years(column: _Column) -> FloatArray:
    """The years of a column of dates, or of texts that hold four digits."""
    if column.dtype.kind != "M":
        matches = (re.search(r"\d{4}", value or "") for value in column.tolist())
        return np.array([float(match[0]) if match else np.nan for match in matches])
    years = column.astype("datetime64[Y]").astype(np.float64) + 1970
    return np.where(np.isnat(column), np.nan, years)
