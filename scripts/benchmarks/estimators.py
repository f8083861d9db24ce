"""How well `PrivateClassifier` does on data in one place, beside scikit-learn's logistic regression without privacy.

    PARLEY_DATA=... python -m scripts.benchmarks.estimators [NAME ...] [--draws 10]

One JSON line a data set, epsilon and delta, which is 0 or 1/n^2: ``value`` is the mean accuracy on held-out rows over
draws of noise and, but for Adult, of the quarter that is held out; ``sd`` the deviation of one draw; ``seconds`` what a
fit takes. ``logistic_regression`` is what scikit-learn's makes of the same rows in the same bounds, in the first three
draws, and ``logistic_regression_s`` what that takes. All parameters but budget, bounds and classes are defaults. Of
these, ``row_norm`` and what ``mechanism`` = auto is for a delta above 0 were chosen by held-out accuracy on breast
cancer and digits, and from when on it is ``centroids`` on digits among others, on splits that share rows with these.
The bounds are those of the package's studies and hold every value of the public sets. No epsilon counts either.
Where ``$PARLEY_DATA`` has no Adult, the line says so.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from parley.common.arrays import FloatArray
from parley.common.data.columns import Category, Columns, Feature, Label
from parley.common.data.study import Study
from parley.common.encoding.texts import spelling
from parley.common.files.studies import read_study
from parley.common.files.tables import read_columns
from parley.learner.estimators import PrivateClassifier
from parley.learner.experiments.datasets import BIOPSIES, DIGITS, TEST_FRACTION, digits_columns, wdbc_columns
from scripts.utility.examples import AbsentError, data_path

EPSILONS = (0.1, 1.0)
_ADULT = Path(__file__).parents[2] / "tests" / "data" / "adult" / "study.json"
Rows = tuple[FloatArray, np.ndarray[tuple[int], np.dtype[np.str_]]]


@dataclass(frozen=True, slots=True, eq=False)
class Set:
    """A data set: its study, and how a draw parts it into training and test rows (n, m) with their labels (n,)."""

    study: Study
    split: Callable[[int], tuple[Rows, Rows]]

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the label's classes."""
        assert isinstance(self.study.label, Label)  # noqa: S101 -- so are those of all these
        return self.study.label.values

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """The bounds of each column; 0 is the middle of those of a category's columns of 0 and 1, and so stays 0."""
        pairs = [
            pair
            for feature in self.study.features
            for pair in (
                [(feature.lower, feature.upper)] if isinstance(feature, Feature) else [(-1.0, 1.0)] * feature.n_columns
            )
        ]
        lower, upper = np.array(pairs).T
        return lower, upper


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="Measure the estimators' accuracy and time.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SETS)} (default: all)")
    parser.add_argument("--draws", type=int, default=10, help="draws of noise (default: %(default)s)")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in SETS]:
        parser.error(f"there is no data set {', '.join(unknown)}; there are {', '.join(SETS)}")
    for name in options.names or SETS:
        try:
            for line in lines(SETS[name](), options.draws):
                print(json.dumps({"benchmark": "estimators", "set": name} | line), flush=True)
        except AbsentError as error:
            print(json.dumps({"benchmark": "estimators", "set": name, "absent": str(error)}), flush=True)


def lines(data: Set, draws: int) -> Iterator[dict[str, Any]]:
    """Yield a line of figures for each budget."""
    (X, _), _ = data.split(0)
    lower, upper = data.bounds
    scale = FunctionTransformer(lambda rows: 2 * (rows - lower) / (upper - lower) - 1)
    theirs, their_seconds = measured(make_pipeline(scale, LogisticRegression(max_iter=2000)), data, min(draws, 3))
    for epsilon, delta in product(EPSILONS, (0.0, 1 / len(X) ** 2)):
        private = PrivateClassifier(bounds=data.bounds, classes=data.classes, epsilon=epsilon, delta=delta)
        values, seconds = measured(private, data, draws)
        yield {
            "epsilon": epsilon, "delta": float(f"{delta:.2g}"), "value": round(fmean(values), 3),
            "sd": round(pstdev(values), 3), "logistic_regression": round(fmean(theirs), 3), "n": len(X),
            "d": X.shape[1], "seconds": round(seconds, 2), "logistic_regression_s": round(their_seconds, 2),
        }  # fmt: skip


def measured(estimator: BaseEstimator, data: Set, draws: int) -> tuple[list[float], float]:
    """The accuracy of each draw's model, and the seconds of a fit."""
    values, seconds = [], 0.0
    for draw in range(draws):
        (X, y), (test, truth) = data.split(draw)
        model = clone(estimator)
        if "random_state" in model.get_params():
            model.set_params(random_state=draw)
        start = time.perf_counter()
        model.fit(X, y)
        seconds += time.perf_counter() - start
        values.append(float(model.score(test, truth)))
    return values, seconds / draws


def redrawn_set(study: Study, columns: Columns) -> Set:
    """A set whose draws each hold out another quarter."""
    X, y = rows_of_columns(study, columns)

    def split(draw: int) -> tuple[Rows, Rows]:
        train, test, labels, truth = train_test_split(X, y, test_size=TEST_FRACTION, random_state=draw)
        return (train, labels), (test, truth)

    return Set(study, split)


def adult() -> Set:
    """UCI's split of Adult; raises AbsentError."""
    study = read_study(_ADULT)
    parts = [
        rows_of_columns(study, read_columns(data_path("adult", f"adult-{part}.parquet"))) for part in ("train", "test")
    ]
    return Set(study, lambda _: (parts[0], parts[1]))


def rows_of_columns(study: Study, columns: Columns) -> Rows:
    """A study's columns as rows (n, m) in their own units, a category one column of 0 or 1 a value; labels as texts."""
    blocks = []
    for feature in study.features:
        if isinstance(feature, Category):
            spelt = np.array([spelling(value) for value in columns[feature.name]])
            blocks.append(spelt[:, None] == np.array(feature.column_values))
        else:
            blocks.append(columns[feature.name][:, None])
    labels = np.array([spelling(value) for value in columns[study.label.name]])
    return np.hstack(blocks).astype(np.float64), labels


SETS: dict[str, Callable[[], Set]] = {
    "biopsies": lambda: redrawn_set(BIOPSIES, wdbc_columns()),
    "digits": lambda: redrawn_set(DIGITS, digits_columns()),
    "adult": adult,
}

if __name__ == "__main__":
    main()
