"""Sites', public and test rows of Xie's experiments: digits, intrusions and, where the user has them, forests.

*mnist*: threes and sevens of MNIST; the test is the publisher's. *kdd99*: 12,000 connections of the 10 % file, and
3,000 others to test on, drawn once. *covertype*: spruce and lodgepole pine in ``covertype/covtype.parquet`` (or
``.csv``), as ``scripts/fetch_data.py`` writes it, with the columns of scikit-learn's ``fetch_covtype``; as many rows,
drawn once.

1,600 training rows, drawn once, are set aside as public, with their labels. Rows are projected onto the public rows'
principal components that hold 90 % of their variance, without an intercept, and divided by the largest norm of a
public row so projected; what is longer still is projected into the unit ball. In ``..., rows of norm 1`` each row is
projected as it is, without taking the mean off, and divided by its own norm: that depends on no other row. In
``..., PCA of all rows`` components and norm are those of all rows, test rows too, as in the thesis: that is not
private, and no figure's epsilon covers it. What the thesis does not say (how many rows are public; mean and norm;
KDD99's rows) is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from parley.common.arrays import BoolArray, FloatArray
from parley.common.data.columns import Columns
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.files.tables import read_columns
from scripts.utility import examples

UNIT_ROWS, ALL_ROWS = ", rows of norm 1", ", PCA of all rows"
"""End the name of data: of rows of norm 1, and, last, of those whose projection is not private."""
PUBLIC = 1_600
VARIANCE = 0.9
_TRAIN, _TEST = 12_000, 3_000
_COVER_TYPE = "Cover_Type"
_LARGEST = {
    "Elevation": 3858, "Aspect": 360, "Slope": 66, "Horizontal_Distance_To_Hydrology": 1397,
    "Vertical_Distance_To_Hydrology": 601, "Horizontal_Distance_To_Roadways": 7117, "Hillshade_9am": 254,
    "Hillshade_Noon": 254, "Hillshade_3pm": 254, "Horizontal_Distance_To_Fire_Points": 7173,
}  # fmt: skip
"""The largest values of the public set, which no epsilon counts; its other columns are 0 or 1."""
Table = tuple[FloatArray, BoolArray]
"""Rows (n, m) in reals, and which are of the second class (n,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows on the components: those that sites may hold, public ones, and those to test on."""

    private: Shard
    public: Shard
    test: Shard


@cache
def rows_of(data: str) -> Rows:
    """Rows by the name of the data; raises AbsentError where they are not here."""
    return mapped(*READ[folder_of(data)](), unit=UNIT_ROWS in data, every=data.endswith(ALL_ROWS))


def folder_of(data: str) -> str:
    """The folder of ``$PARLEY_DATA`` that it is read from."""
    return data.removesuffix(ALL_ROWS).removesuffix(UNIT_ROWS)


def mapped(train: Table, test: Table, n_public: int = PUBLIC, *, unit: bool = False, every: bool = False) -> Rows:
    """Tables on the components of public rows, or of ``every`` row; on the sphere if ``unit``."""
    order = np.random.default_rng(0).permutation(len(train[1]))
    public, private = ((train[0][part], train[1][part]) for part in np.split(order, [n_public]))
    fit = components(np.concatenate([train[0], test[0]]) if every else public[0], unit=unit)
    return Rows(*(Shard(fit(X), np.where(second, 1.0, -1.0)) for X, second in (private, public, test)))


def components(X: FloatArray, part: float = VARIANCE, *, unit: bool = False) -> Callable[[FloatArray], FloatArray]:
    """The projection of rows onto the principal components that hold this part of the variance of X.

    Rows less the mean of X are divided by the largest norm there; if ``unit``, rows as they are by their own.
    """
    mean = X.mean(axis=0)
    spread, directions = np.linalg.eigh(np.cov(X, rowvar=False))
    explained = np.cumsum(spread[::-1]) / spread.sum()
    principal = directions[:, ::-1][:, : int(np.searchsorted(explained, part)) + 1]
    if unit:
        return lambda rows: _on_sphere(rows @ principal)
    radius = np.linalg.norm((X - mean) @ principal, axis=1).max()
    return lambda rows: np.asarray((rows - mean) @ principal / radius)


def _on_sphere(X: FloatArray) -> FloatArray:
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def _mnist() -> tuple[Table, Table]:
    train, test = (_digits(read_columns(examples.data_path("mnist", f"{part}.parquet"))) for part in ("train", "test"))
    return train, test


def _digits(columns: Columns) -> Table:
    """Threes and sevens, sevens second; pixels from 0 to 1."""
    chosen = np.isin(columns["label"], [3, 7])
    images = np.frombuffer(b"".join(columns["image"][chosen].tolist()), dtype=np.uint8).reshape(-1, 784)
    return images / 255.0, np.asarray(columns["label"][chosen] == 7)  # noqa: PLR2004


def _kdd99() -> tuple[Table, Table]:
    columns = read_columns(examples.data_path("kdd99", "train-10pct.parquet"))
    some = _drawn(columns, np.ones(len(columns["label"]), dtype=np.bool_))
    rows = shard_of(examples.KDD99, examples.connections(some), clip=True)
    return _parted(rows.X, rows.y > 0)


def _covertype() -> tuple[Table, Table]:
    folder = examples.data_path("covertype")
    paths = [folder / f"covtype.{kind}" for kind in ("parquet", "csv")]
    columns = read_columns(next(filter(Path.exists, paths), paths[0]))
    some = _drawn(columns, np.isin(columns[_COVER_TYPE], [1, 2]))
    names = [name for name in sorted(some) if name != _COVER_TYPE]
    X = np.stack([some[name].astype(np.float64) / _LARGEST.get(name, 1) for name in names], axis=1)
    return _parted(X, some[_COVER_TYPE] == 2)  # noqa: PLR2004


READ: Mapping[str, Callable[[], tuple[Table, Table]]] = {"mnist": _mnist, "kdd99": _kdd99, "covertype": _covertype}


def _drawn(columns: Columns, allowed: BoolArray) -> Columns:
    """So many of the rows that are allowed, in random order."""
    chosen = np.random.default_rng(1).permutation(np.flatnonzero(allowed))[: _TRAIN + _TEST]
    return {name: column[chosen] for name, column in columns.items()}


def _parted(X: FloatArray, second: BoolArray) -> tuple[Table, Table]:
    """Training rows, and the rest."""
    return (X[:_TRAIN], second[:_TRAIN]), (X[_TRAIN:], second[_TRAIN:])
