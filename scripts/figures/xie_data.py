"""Rows of Xie's experiments: digits and, where the user has them, forests.

*mnist*: the threes and sevens of MNIST's training rows, 12,396. *covertype*: spruce and lodgepole pine, 495,141 rows in
``covertype/covtype.parquet`` (or ``.csv``), as ``scripts/fetch_data.py`` writes it, with the columns of scikit-learn's
``fetch_covtype``.

As in the thesis, rows are projected onto the principal components of the whole matrix, test rows too, that hold 90 % of
its variance: no figure's epsilon covers that. The mean is taken off and rows are divided by the largest norm, so that
they lie in the unit ball, as the mechanisms need: how the thesis does that is not printed, and this is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from parley.common.arrays import BoolArray, FloatArray
from parley.common.data.shard import Shard
from parley.common.files.tables import read_columns
from scripts.utility import examples

VARIANCE = 0.9
_COVER_TYPE = "Cover_Type"
_LARGEST = {
    "Elevation": 3858, "Aspect": 360, "Slope": 66, "Horizontal_Distance_To_Hydrology": 1397,
    "Vertical_Distance_To_Hydrology": 601, "Horizontal_Distance_To_Roadways": 7117, "Hillshade_9am": 254,
    "Hillshade_Noon": 254, "Hillshade_3pm": 254, "Horizontal_Distance_To_Fire_Points": 7173,
}  # fmt: skip
"""The largest values of the public set; its other columns are 0 or 1."""
Table = tuple[FloatArray, BoolArray]
"""Rows (n, m) in reals, and which are of the second class (n,)."""


@cache
def rows_of(data: str) -> Shard:
    """All rows, projected, by the name of the data; raises AbsentError where they are not here."""
    X, second = READ[data]()
    return Shard(projected(X), np.where(second, 1.0, -1.0))


def projected(X: FloatArray, part: float = VARIANCE) -> FloatArray:
    """Rows less their mean on the components that hold this part of their variance, over the largest norm there."""
    centred = X - X.mean(axis=0)
    spread, directions = np.linalg.eigh(np.cov(centred, rowvar=False))
    explained = np.cumsum(spread[::-1]) / spread.sum()
    inside = centred @ directions[:, ::-1][:, : int(np.searchsorted(explained, part)) + 1]
    return np.asarray(inside / np.linalg.norm(inside, axis=1).max())


def _mnist() -> Table:
    """Threes and sevens, sevens second; pixels from 0 to 1."""
    columns = read_columns(examples.data_path("mnist", "train.parquet"))
    chosen = np.isin(columns["label"], [3, 7])
    images = np.frombuffer(b"".join(columns["image"][chosen].tolist()), dtype=np.uint8).reshape(-1, 784)
    return images / 255.0, np.asarray(columns["label"][chosen] == 7)  # noqa: PLR2004


def _covertype() -> Table:
    folder = examples.data_path("covertype")
    paths = [folder / f"covtype.{kind}" for kind in ("parquet", "csv")]
    columns = read_columns(next(filter(Path.exists, paths), paths[0]))
    chosen = np.isin(columns[_COVER_TYPE], [1, 2])
    names = [name for name in sorted(columns) if name != _COVER_TYPE]
    X = np.stack([columns[name][chosen].astype(np.float64) / _LARGEST.get(name, 1) for name in names], axis=1)
    return X, np.asarray(columns[_COVER_TYPE][chosen] == 2)  # noqa: PLR2004


READ: Mapping[str, Callable[[], Table]] = {"mnist": _mnist, "covertype": _covertype}
