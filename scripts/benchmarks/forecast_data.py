"""Real data as rows of a study's design, for `scripts.benchmarks.forecast_quality`: a name, a loss, rows and labels.

Those of scikit-learn ship with it; the others are looked for in the folder that $PARLEY_DATA names, and left out, which
is said, where they are not there. Of large sets the first so many rows of a fixed shuffle are taken.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.columns import Feature, Label, RealLabel, constant_of_numbers, largest_norm
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.encoding.classes import encode_classes
from parley.common.learning.losses import Logistic, Loss, Softmax, Squared
from parley.learner.experiments.datasets import simulated

MOST_ROWS = 40_000
MOST_LEVELS = 100
Columns = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """A data set: its rows are the population, and owners hold a part of them."""

    name: str
    loss: Loss
    population: Shard
    calibrated: bool
    """Whether the forecast's family of worlds was chosen by looking at it from the first."""
    in_table: bool = False
    """Whether it is a case of ``scripts/benchmarks/utility.py``."""

    @property
    def label(self) -> dict[str, Any]:
        """Facts on the label that could be common knowledge, as a study states them: by all rows, in two digits."""
        y = self.population.y
        if isinstance(self.loss, Squared):
            return {"mean": _two_digits(y.mean()), "deviation": _two_digits(y.std())}
        shares = np.unique(y, return_counts=True)[1] / len(y)
        return {"shares": [_two_digits(share) for share in shares]}


def study_of(loss: Loss, d: int, label: Mapping[str, Any]) -> Study:
    """A study of rows of d columns, the last its intercept, that tells so much of its label."""
    features = tuple(Feature(name=f"x{i}", lower=-1, upper=1) for i in range(d - 1))
    if isinstance(loss, Squared):
        return Study(name="rows", features=features, label=RealLabel(name="y", lower=-1, upper=1, **label))
    classes = tuple(map(str, range(max(2, loss.outputs))))
    return Study(name="rows", features=features, label=Label(name="y", values=classes, **label))


def _two_digits(figure: float) -> float:
    return float(f"{figure:.2g}")


def data_sets() -> Iterator[Data]:
    """The data sets that are available, one after another."""
    folder = Path(os.environ.get("PARLEY_DATA", "/nowhere"))
    for name, (load, calibrated) in _SETS.items():
        try:
            loss, X, y = load(folder)
        except FileNotFoundError as absent:
            print(f"{name} is left out: {absent.filename} is not here ($PARLEY_DATA)", file=sys.stderr)
            continue
        rows = np.random.default_rng(len(name)).permutation(len(y))[:MOST_ROWS]
        yield Data(name, loss, Shard(X[rows], y[rows]), calibrated, name in _TABLE)


def _rows(numbers: FloatArray, codes: list[IntArray], *, by_own_norm: bool = True) -> FloatArray:
    """Numbers into [-1, 1] by their outer percentiles, in the place of public bounds; codes as 0/1; an intercept."""
    low, high = np.percentile(numbers, [1, 99], axis=0)
    z = np.clip(2 * (numbers - low) / np.where(high > low, high - low, 1) - 1, -1, 1)
    hot = [np.eye(int(code.max()) + 1)[code] for code in codes]
    m = z.shape[1] + len(codes)
    constant = 1.0 if by_own_norm else constant_of_numbers(m)
    X = np.concatenate([z, *hot, np.full((len(z), 1), constant)], axis=1)
    return np.asarray(X / (np.linalg.norm(X, axis=1, keepdims=True) if by_own_norm else largest_norm(m, constant)))


def _signs(positive: npt.NDArray[np.bool_]) -> FloatArray:
    return np.where(positive, 1.0, -1.0)


def _read(path: Path) -> Columns:
    """The columns of a file, NaN and "" for what is missing."""
    import pyarrow.parquet as pq  # noqa: PLC0415 -- only where there are files

    if not path.exists():
        raise FileNotFoundError(2, "absent", str(path))
    table = pq.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names if table[name].type.id != 25}  # noqa: PLR2004


def _split(columns: Columns, without: set[str]) -> tuple[FloatArray, list[IntArray]]:
    """The numeric columns, (n, m), and the codes of the others, but for texts of more levels than that."""
    selected = {name: values for name, values in columns.items() if name not in without}
    numbers = [np.nan_to_num(v.astype(np.float64)) for v in selected.values() if v.dtype.kind in "iufb"]
    texts = [np.unique(v.astype(str), return_inverse=True)[1] for v in selected.values() if v.dtype.kind not in "iufb"]
    return np.stack(numbers, axis=1), [codes for codes in texts if codes.max() < MOST_LEVELS]


_Loaded = tuple[Loss, FloatArray, FloatArray]


def _simulated(_folder: Path) -> _Loaded:
    train, test = simulated().draw(np.random.default_rng(0))
    return Logistic(), np.concatenate([train.X, test.X]), np.concatenate([train.y, test.y])


def _wdbc(_folder: Path) -> _Loaded:
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415

    X, y = load_breast_cancer(return_X_y=True)
    return Logistic(), _rows(X, []), _signs(y == 0)


def _digits(_folder: Path) -> _Loaded:
    from sklearn.datasets import load_digits  # noqa: PLC0415

    X, y = load_digits(return_X_y=True)
    return Softmax(10), _rows(X, []), encode_classes(y, 10)


def _odd(folder: Path) -> _Loaded:
    _, X, y = _digits(folder)
    return Logistic(), X, _signs(np.rint((y + 1) * 4.5) % 2 == 1)


def _wine(_folder: Path) -> _Loaded:
    from sklearn.datasets import load_wine  # noqa: PLC0415

    X, y = load_wine(return_X_y=True)
    return Softmax(3), _rows(X, []), encode_classes(y, 3)


def _diabetes(_folder: Path) -> _Loaded:
    from sklearn.datasets import load_diabetes  # noqa: PLC0415

    X, y = load_diabetes(return_X_y=True)
    return Squared(), _rows(X, [], by_own_norm=False), np.asarray(np.clip((y - 25) / 161 - 1, -1, 1))


def _adult(folder: Path) -> _Loaded:
    columns = _read(folder / "adult" / "adult-train.parquet")
    numbers, codes = _split(columns, {"income", "fnlwgt", "education"})
    return Logistic(), _rows(numbers, codes), _signs(np.char.find(columns["income"].astype(str), ">") >= 0)


def _cod_rna(folder: Path) -> _Loaded:
    columns = _read(folder / "cod-rna" / "cod-rna-train.parquet")
    return Logistic(), _rows(*_split(columns, {"label"})), _signs(columns["label"].astype(float) > 0)


def _kdd99(folder: Path) -> _Loaded:
    columns = _read(folder / "kdd99" / "train-10pct.parquet")
    numbers, codes = _split(columns, {"label"})
    return Logistic(), _rows(np.log1p(numbers), codes), _signs(columns["label"].astype(str) != "normal")


def _frauds(folder: Path) -> _Loaded:
    columns = _read(folder / "creditcard-subset" / "creditcard-subset.parquet")
    label = "Class"
    return Logistic(), _rows(*_split(columns, {label, "Time"})), _signs(columns[label].astype(float) > 0)


def _har(folder: Path) -> _Loaded:
    columns = _read(folder / "har-smartphones" / "har-train.parquet")
    numbers, _ = _split(columns, {"subject", "activity", "jerk_edge_known"})
    return Softmax(6), _rows(numbers, []), encode_classes(columns["activity"].astype(np.int64) - 1, 6)


def _mnist(folder: Path, digits: tuple[int, ...] = tuple(range(10))) -> _Loaded:
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = folder / "mnist" / "test.parquet"
    if not path.exists():
        raise FileNotFoundError(2, "absent", str(path))
    table = pq.read_table(path).slice(0, 4000 if len(digits) > 2 else None)  # noqa: PLR2004 -- ten classes take long
    labels = table["label"].to_numpy().astype(np.int64)
    pixels = np.stack([np.frombuffer(image, np.uint8) for image in table["image"].to_pylist()]) / 255
    X = np.concatenate([pixels - 0.13, np.ones((len(pixels), 1))], axis=1)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    if len(digits) == 2:  # noqa: PLR2004
        rows = np.isin(labels, digits)
        return Logistic(), X[rows], _signs(labels[rows] == digits[0])
    return Softmax(10), X, encode_classes(labels, 10)


def _mnist_two(folder: Path) -> _Loaded:
    return _mnist(folder, (3, 7))


def _loans(folder: Path) -> _Loaded:
    columns = _read(folder / "lending-club" / "loans-2007-2011.parquet")
    later = {name for name in columns if name.startswith("total_")} | {"recoveries", "loan_status"}
    numbers, codes = _split(columns, later | {"int_rate", "grade", "sub_grade", "installment"})
    rate = columns["int_rate"].astype(np.float64)
    return Squared(), _rows(numbers, codes, by_own_norm=False), np.clip((rate - 0.05) / 0.1 - 1, -1, 1)


def _iris(_folder: Path) -> _Loaded:
    from sklearn.datasets import load_iris  # noqa: PLC0415

    X, y = load_iris(return_X_y=True)
    return Softmax(3), _rows(X, []), encode_classes(y, 3)


def _bad_loans(folder: Path) -> _Loaded:
    columns = _read(folder / "lending-club" / "loans-2007-2015-categorical.parquet")
    bad = columns["bad_loan"].astype(str)
    worse = np.isin(bad, ["1", "1.0", "True", "Yes", "Bad", "Bad Loan", "bad"])
    return Logistic(), _rows(*_split(columns, {"bad_loan"})), _signs(worse)


_TABLE = {"simulated", "wdbc", "digits", "adult", "cod_rna", "loans", "card_frauds", "har", "kdd99", "mnist"}
_SETS: Mapping[str, tuple[Callable[[Path], _Loaded], bool]] = {
    "simulated": (_simulated, False),
    "wdbc": (_wdbc, True),
    "digits": (_digits, True),
    "adult": (_adult, True),
    "cod_rna": (_cod_rna, True),
    "diabetes": (_diabetes, True),
    "har": (_har, True),
    "kdd99": (_kdd99, False),
    "mnist": (_mnist, False),
    "mnist_3_7": (_mnist_two, False),
    "odd_digits": (_odd, False),
    "card_frauds": (_frauds, False),
    "loans": (_loans, False),
    "wine": (_wine, False),
    "iris": (_iris, False),
    "bad_loans": (_bad_loans, False),
}
"""Each loader, and whether the family of worlds was chosen by its set; `plausible_worlds` says more."""
