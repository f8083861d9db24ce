"""How long the exact sum of a party's clipped gradients takes, beside two bare passes over its examples.

    python -m scripts.benchmarks.gradient [--rows 1000000] [--features 50]

One JSON line a case: ``ms`` (the median), beside ``floor_ms``, the two products X w and s X that a gradient cannot do
without, measured in the same run with one BLAS thread, and the ratio of the two. The goal is a ratio of 1.4 for the
logistic loss; of rows of persons, 1.25 times as long as of as many records. The exit status is 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from parley.common.arrays import BoolArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import encode_classes
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Logistic, Loss, Softmax

GOAL = 1.4
GOAL_OF_PERSONS = 1.25
FEATURES_OF_PERSONS, SINGLE = 139, 0.77
"""The columns of visits in diabetes-readmission, and the share of patients who have one; on average they have 1.42."""
REPEAT = 15
CLASSES = 10


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="Time a party's gradient sum.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=50, help="default: %(default)s")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    X = rng.standard_normal((options.rows, options.features)) / np.sqrt(options.features)
    with threadpool_limits(1, user_api="blas"):
        logistic = measured(Logistic(), Shard(X, rng.choice([-1.0, 1.0], options.rows)), rng)
        classes = encode_classes(rng.integers(0, CLASSES, options.rows), CLASSES)
        measured(Softmax(CLASSES), Shard(X, classes), rng)
        persons = beside_records(options.rows // 4, rng)
    sys.exit(logistic > GOAL or persons > GOAL_OF_PERSONS)


def measured(loss: Loss, shard: Shard, rng: np.random.Generator) -> float:
    """Print one case, and return the ratio to its floor."""
    shape = (loss.outputs, shard.n_features)[loss.outputs == 1 :]
    weights, slopes = rng.standard_normal(shape), rng.standard_normal((*shape[:-1], len(shard.y)))
    floors, times = [], []
    for _ in range(REPEAT):  # in turn, so that a neighbour's load falls on both
        floors.append(seconds(lambda: (shard.X @ weights.T, slopes @ shard.X)))
        times.append(seconds(lambda: gradient_sum(loss, shard, weights)))
    ratio = float(np.median(times) / np.median(floors))
    figures = {
        "benchmark": "gradient", "loss": type(loss).__name__, "rows": len(shard.y), "features": shard.n_features,
        "outputs": loss.outputs, "ms": round(float(np.median(times)) * 1000, 2),
        "floor_ms": round(float(np.median(floors)) * 1000, 2), "ratio_to_floor": round(ratio, 2),
    }  # fmt: skip
    print(json.dumps(figures))
    return ratio


def beside_records(n_rows: int, rng: np.random.Generator) -> float:
    """Print how long rows take as persons', and return the ratio to records'."""
    X = rng.standard_normal((n_rows, FEATURES_OF_PERSONS)) / np.sqrt(FEATURES_OF_PERSONS)
    y, weights = rng.choice([-1.0, 1.0], n_rows), rng.standard_normal(FEATURES_OF_PERSONS)
    records, persons = Shard(X, y), Shard(X, y, begins=first_rows(n_rows, rng))
    records_times, times = [], []
    for _ in range(REPEAT):
        records_times.append(seconds(lambda: gradient_sum(Logistic(), records, weights, 0.5)))
        times.append(seconds(lambda: gradient_sum(Logistic(), persons, weights, 0.5)))
    ratio = float(np.median(times) / np.median(records_times))
    figures = {
        "benchmark": "gradient of persons", "rows": n_rows, "persons": int(persons.n_examples),
        "features": FEATURES_OF_PERSONS, "ms": round(float(np.median(times)) * 1000, 2),
        "records_ms": round(float(np.median(records_times)) * 1000, 2), "ratio_to_records": round(ratio, 2),
    }  # fmt: skip
    print(json.dumps(figures))
    return ratio


def first_rows(n_rows: int, rng: np.random.Generator) -> BoolArray:
    """Say which of some rows (n,) are a person's first: each has as many as a patient of diabetes-readmission."""
    first = np.cumsum(np.where(rng.random(n_rows) < SINGLE, 1, 1 + rng.geometric(0.55, n_rows)))
    return np.isin(np.arange(n_rows), np.append(0, first))


def seconds(task: Callable[[], object]) -> float:
    """Return the seconds of a processor that a task takes."""
    start = time.thread_time()
    task()
    return time.thread_time() - start


if __name__ == "__main__":
    main()
