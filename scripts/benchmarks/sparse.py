"""The cost of a release of 3.2 million columns: seconds, memory, and how much of them is dense noise.

    PARLEY_DATA=... python -m scripts.benchmarks.sparse

The subset of the URL reputation data (Ma, Saul, Savage & Voelker 2009) of $PARLEY_DATA: 3,990 of its rows to learn
from, 1,710 to test on, each divided by its norm. Each release is a process of its own, with noise from the operating
system, at lambda = .001, epsilon = 1, delta = 1e-3 (0 with l2_laplace), a row having 256 entries at most. One JSON
line: a release has ``seconds``, the ``noise_share`` of it that as many draws of noise alone take, ``peak_mb`` of
resident memory (``loaded_mb`` of it before the release), ``accuracy`` and the ``norm`` of its weights; ``none`` is the
minimiser. Last come the seconds of a fit of as many rows as Cod-RNA's training set has, in 100,008 columns, where 8
occur. The goals are 1,000 MB and 10 seconds; the exit status is 1 when one is missed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from multiprocessing import get_context

import numpy as np
from scipy.sparse import csr_array

from parley.common.algorithms.release import MECHANISMS, Mechanism
from parley.common.arrays import FloatArray
from parley.common.data.sparse import SparseShard
from parley.common.encoding.fixed_point import to_reals
from parley.common.learning.erm import TOLERANCE, minimise
from parley.common.learning.losses import Huber, Logistic, Loss
from parley.common.privacy.mechanisms.site import Law, SiteTerms
from parley.common.privacy.noise import SystemNoise
from scripts.loopback import resident_mb
from scripts.utility.examples import AbsentError, data_path

COLUMNS, TRAINING, ENTRIES = 3_231_961, 3_990, 256
REGULARIZATION, EPSILON, DELTA = 1e-3, 1.0, 1e-3
CASES: tuple[tuple[Mechanism, Law], ...] = (
    ("none", "gaussian"), ("output", "gaussian"), ("objective", "gaussian"), ("output", "l2_laplace"),
)  # fmt: skip
MOST_MB, MOST_SECONDS = 1000, 10
BLOATED = 41_674, 100_008, 8


def main() -> None:
    """Measure, and print the figures."""
    try:
        data_path("url-subset", "url-subset.parquet")
    except AbsentError as absent:
        sys.exit(str(absent))
    figures = {}
    for mechanism, law in CASES:
        with get_context("spawn").Pool(1) as pool:
            figures[f"{mechanism}_{law}"] = pool.apply(release, (mechanism, law))
    fits = {name: bloated(loss, tilt) for name, loss, tilt in (("huber", Huber(), 0.0), ("tilted", Logistic(), 6.0))}
    print(json.dumps({"benchmark": "sparse", "rows": TRAINING, "columns": COLUMNS} | figures | {"bloated": fits}))
    slowest = max(*fits.values(), *(line["seconds"] for line in figures.values()))
    sys.exit(slowest > MOST_SECONDS or max(line["peak_mb"] for line in figures.values()) > MOST_MB)


def release(mechanism: Mechanism, law: Law) -> dict[str, float]:
    """Make one release, and return its figures."""
    train, test = url()
    loaded, delta = resident_mb(os.getpid(), "VmHWM"), DELTA if law == "gaussian" else 0.0
    terms = SiteTerms(Huber(), TRAINING, COLUMNS, REGULARIZATION, EPSILON, delta, law, row_entries=ENTRIES)
    site = MECHANISMS[mechanism](terms)
    site.check_noise()
    start = time.perf_counter()
    released = type(site).answer([site], type(site).prepare([site], train), SystemNoise())
    took, start = time.perf_counter() - start, time.perf_counter()
    peak = resident_mb(os.getpid(), "VmHWM")
    if law == "gaussian":
        SystemNoise().discrete_gaussian(2.0**30, (COLUMNS,))
    else:
        SystemNoise().l2_laplace(1.0, (COLUMNS,))
    noise = 0.0 if mechanism == "none" else time.perf_counter() - start
    weights = to_reals(released)
    right = (test.scores(weights[None])[:, 0] > 0) == (test.y > 0)
    return {
        "seconds": round(took, 2), "noise_share": round(min(noise / took, 1.0), 2), "peak_mb": round(peak),
        "loaded_mb": round(loaded), "accuracy": round(float(right.mean()), 4),
        "norm": round(float(np.linalg.norm(weights)), 1),
    }  # fmt: skip


def url() -> tuple[SparseShard, SparseShard]:
    """The rows to learn from and those to test on."""
    from pyarrow import parquet  # noqa: PLC0415 -- only here

    table = parquet.read_table(data_path("url-subset", "url-subset.parquet"), columns=["label", "index", "value"])
    index, value = (table[name].combine_chunks() for name in ("index", "value"))
    entries = (value.values.to_numpy().astype(np.float64), index.values.to_numpy() - 1, index.offsets.to_numpy())
    rows = csr_array(entries, shape=(table.num_rows, COLUMNS))
    norms: FloatArray = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)))
    rows.data /= np.repeat(np.maximum(norms, 1e-9), np.diff(rows.indptr))
    y = np.where(table["label"].to_numpy() > 0, 1.0, -1.0)
    order = np.random.default_rng(1).permutation(len(y))
    parts = order[:TRAINING], order[TRAINING:]
    train, test = (SparseShard(rows[part], y[part]) for part in parts)
    return train, test


def bloated(loss: Loss, tilt: float) -> float:
    """Seconds of a fit of dense rows in mostly zero columns; ``tilt`` is the deviation of the tilt in every column."""
    n, d, occurring = BLOATED
    rng = np.random.default_rng(2)
    entries = (rng.uniform(-0.35, 0.35, n * occurring), np.tile(np.arange(occurring), n), np.arange(n + 1) * occurring)
    rows = SparseShard(csr_array(entries, shape=(n, d)), rng.choice([-1.0, 1.0], n))
    slant = tilt * rng.normal(size=d)
    start = time.perf_counter()
    minimise(loss, rows, REGULARIZATION * n, slant, tolerance=TOLERANCE)
    return round(time.perf_counter() - start, 2)


if __name__ == "__main__":
    main()
