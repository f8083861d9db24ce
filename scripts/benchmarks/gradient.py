"""How long the exact sum of a party's clipped gradients takes, beside two bare passes over its examples.

    python -m scripts.benchmarks.gradient [--rows 1000000] [--features 50]

One JSON line a case: ``ms`` (the median), beside ``floor_ms``, the two products X w and s X that a gradient cannot do
without, measured in the same run with one BLAS thread, and the ratio of the two. The goal is a ratio of 1.4 for the
logistic loss; the exit status is 1 when it is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from parley.common.data.shard import Shard
from parley.common.encoding.classes import encode_classes
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Logistic, Loss, Softmax

GOAL = 1.4
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
    sys.exit(logistic > GOAL)


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


def seconds(task: Callable[[], object]) -> float:
    """Return the seconds that a task takes."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
