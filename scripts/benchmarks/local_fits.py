"""How long it takes to fit thousands of parties with few rows, beside scikit-learn and Newton's method without spans.

Hamm, Cao & Belkin 2016: 1,000 parties with 6 rows of HAR in 50 principal components, six classes; 20,000 with 22
connections of KDD99, two classes. No two parties have a row in common. Components, their mean and the radius that rows
are divided by are those of other, auxiliary rows. The files are looked for in the folder that $PARLEY_DATA names; a
case without is left out, which is said.

One JSON line a case: ``seconds`` is for all parties in one call; times are medians of five. The speedups are what one
fit takes by scikit-learn (lbfgs, the same objective and tolerance, a party at a time) and by the solver that ignores
the span of the rows (in one stack), both measured on the first ``sample`` parties alone, over what one takes here. The
accuracies on test rows are the means of the sample's models; scikit-learn leaves classes out that a party lacks. All
have one thread: so small matrices gain nothing by more. The goals are 20 times, and accuracies at most .005 apart; the
exit status is 1 when one is missed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from unittest import mock

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from parley.common.arrays import FloatArray
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.files.tables import read_columns
from parley.common.learning import erm
from parley.common.learning.erm import TOLERANCE
from parley.common.learning.losses import Logistic, Loss, Softmax
from parley.common.learning.metrics import accuracy
from parley.common.learning.model import Model
from scripts.utility import examples
from scripts.utility.examples import AbsentError

_T = TypeVar("_T")
LAMBDA = 1e-4
COMPONENTS = 50
AUXILIARY = 1000
SAMPLE = 200
TESTS = 5000
REPEAT = 5
GOAL, APART = 20.0, 0.005


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Parties' rows, stacked, and rows to test on."""

    loss: Loss
    parties: Shard
    test: Shard

    @property
    def n_classes(self) -> int:
        """The number of classes of the labels."""
        return max(self.loss.outputs, 2)


def main() -> None:
    """Measure, and print the figures."""
    missed = False
    for name, load in (("har", har), ("kdd99", kdd99)):
        try:
            case = load()
        except AbsentError as absent:
            print(f"{name} is left out: {absent}", file=sys.stderr)
            continue
        with threadpool_limits(1):
            figures = measured(case)
        print(json.dumps({"benchmark": "local_fits", "case": name} | figures))
        speedups = (figures["speedup_over_sklearn"], figures["speedup_over_newton"])
        missed = missed or min(speedups) < GOAL or abs(figures["difference"]) > APART
    sys.exit(missed)


def measured(case: Case) -> dict[str, float]:
    """Measure a case, and return its figures."""
    k, rows = case.parties.y.shape
    _, sample = next(case.parties.parties(SAMPLE))
    seconds = []
    for _ in range(REPEAT):  # in turn, so that other work on the machine is shared alike
        took, fitted = timed(lambda: minimise(case, case.parties))
        by_sklearn, theirs = timed(lambda: sklearn_fits(case, sample))
        with mock.patch.object(erm, "are_few", lambda _loss, shard: np.zeros(shard.y.shape[:-1], dtype=np.bool_)):
            by_newton, _ = timed(lambda: minimise(case, sample))
        seconds.append((took, by_sklearn, by_newton))
    took, by_sklearn, by_newton = np.median(seconds, axis=0).tolist()
    seconds_each, of_sample = took / k, len(sample.y)
    ours = accuracy(Model(fitted[:SAMPLE], "members"), case.test)
    labels = decode_classes(case.test.y, case.n_classes)
    by_others = float(np.mean([fit.score(case.test.X, labels) for fit in theirs]))
    return {
        "parties": k, "rows": rows, "features": sample.n_features, "classes": case.n_classes,
        "seconds": round(took, 2), "ms_each": round(1000 * seconds_each, 3), "sample": of_sample,
        "speedup_over_sklearn": round(by_sklearn / of_sample / seconds_each, 1),
        "speedup_over_newton": round(by_newton / of_sample / seconds_each, 1),
        "accuracy": round(ours, 4), "accuracy_sklearn": round(by_others, 4), "difference": round(ours - by_others, 4),
    }  # fmt: skip


def minimise(case: Case, shard: Shard) -> FloatArray:
    """Each party's minimiser, in one call."""
    return erm.minimise(case.loss, shard, np.asarray(LAMBDA * shard.n_examples, dtype=np.float64), tolerance=TOLERANCE)


def sklearn_fits(case: Case, sample: Shard) -> list[LogisticRegression | DummyClassifier]:
    """Fit by scikit-learn, one party after another; a party with a single class has nothing to fit."""
    fits = []
    for X, y in zip(sample.X, sample.y, strict=True):
        classes = decode_classes(y, case.n_classes)
        some = LogisticRegression(C=1 / (LAMBDA * len(y)), fit_intercept=False, tol=TOLERANCE, max_iter=10_000)
        fits.append((some if len(np.unique(classes)) > 1 else DummyClassifier()).fit(X, classes))
    return fits


def har() -> Case:
    """Return 1,000 parties with 6 rows of HAR."""
    parts = examples.har().split(0)
    order = np.random.default_rng(1).permutation(len(parts[0].y))
    auxiliary, owned = parts[0].X[order[:AUXILIARY]], order[AUXILIARY:][: 1000 * 6]
    mean = auxiliary.mean(axis=0)
    axes = np.linalg.svd(auxiliary - mean, full_matrices=False)[2][:COMPONENTS].T
    radius = np.linalg.norm((auxiliary - mean) @ axes, axis=1).max()
    X, test = ((part.X - mean) @ axes / radius for part in parts)
    shares = owned.reshape(1000, 6)
    return Case(Softmax(6), Shard(X[shares], parts[0].y[shares]), Shard(test, parts[1].y))


def kdd99() -> Case:
    """20,000 parties; of the other connections as many as `TESTS` are for the test."""
    table = read_columns(examples.data_path("kdd99", "train-10pct.parquet"))
    rows = shard_of(examples.KDD99, examples.connections(table), clip=True)
    order = np.random.default_rng(1).permutation(len(rows.y))
    shares, test = order[: 20_000 * 22].reshape(20_000, 22), order[20_000 * 22 :][:TESTS]
    return Case(Logistic(), Shard(rows.X[shares], rows.y[shares]), Shard(rows.X[test], rows.y[test]))


def timed(task: Callable[[], _T]) -> tuple[float, _T]:
    """Run a task; return its seconds and its result."""
    start = time.perf_counter()
    result = task()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main()
