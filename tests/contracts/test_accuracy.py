"""How well the algorithms learn from the paper's simulated data: what Rajkumar & Agarwal's figures claim.

N = 1,000 examples on the unit sphere of d = 10, separated by a random hyperplane; epsilon = .1, delta = .05, under a
secure sum; N test examples of the same law. Every mean is over the same data sets.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.learning.losses import Logistic
from parley.common.learning.metrics import accuracy
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from parley.common.runs.pricing import guarantees

N, D = 1000, 10
PAPER = {"regularization": 0.1}


def sizes(parties: int, skew: float) -> IntArray:
    """Shard sizes in proportion to rank^skew, adding up to N."""
    shares = np.cumsum(np.arange(1, parties + 1) ** skew)
    ends: IntArray = np.rint(shares / shares[-1] * N).astype(np.int64)
    return np.diff(ends, prepend=0)


def dealt(seed: int, parties: int, skew: float) -> tuple[Shard, Shard]:
    """A training stack and a test shard."""
    rng = np.random.default_rng([seed, 1])
    X, normal = rng.normal(size=(2 * N, D)), rng.normal(size=D)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X @ normal > 0, 1.0, -1.0)
    cuts = np.cumsum(sizes(parties, skew))
    parts = zip(np.split(X, cuts), np.split(y, cuts), strict=True)
    *train, test = (Shard(*part) for part in parts)
    return Shard.stack(train), test


def facts(parties: int, skew: float) -> FederationFacts:
    return FederationFacts.uniform(
        sizes(parties, skew), epsilon=0.1, delta=0.05, n_features=D, loss=Logistic(), secure_sum=True
    )


@cache
def accuracies(name: str, parties: int = 5, skew: float = 0.0, seeds: int = 100) -> FloatArray:
    """The accuracy on each data set; the paper's own algorithms at lambda = .1."""
    algorithm = build_algorithm(name, {} if name == "dp_gd" else PAPER)
    of = facts(parties, skew)
    runs = []
    for seed in range(seeds):
        train, test = dealt(seed, parties, skew)
        runs.append(accuracy(simulate(algorithm, train, of, SeededNoise([seed, 2])), test))
    mean = float(np.mean(runs))
    error = float(np.std(runs) / np.sqrt(seeds))
    print(f"{name}, K = {parties}, skew {skew:g}: accuracy {mean:.3f} +- {error:.3f} over {seeds} data sets")
    return np.array(runs)


def mean(name: str, parties: int = 5, skew: float = 0.0) -> float:
    return float(accuracies(name, parties, skew).mean())


@pytest.mark.slow
def test_the_default_learns_with_its_whole_transcript_covered() -> None:
    promise, *_ = guarantees(build_algorithm("dp_gd"), facts(5, 0.0))
    assert promise.view == "transcript"
    assert promise.epsilon <= 0.1
    assert promise.delta == 0.05
    assert mean("dp_gd") >= 0.90
    assert mean("dp_gd") > mean("psgd") + 0.2  # while the paper's covers the model alone


@pytest.mark.slow
def test_psgd_comes_close_to_a_trusted_curator_however_many_parties_there_are() -> None:
    for parties in (5, 10, 15):
        assert abs(mean("psgd", parties) - mean("gop")) < 0.05  # a curator sees no parties
        assert abs(mean("psgd", parties) - mean("psgd", 5)) < 0.05
    assert abs(mean("psgd", 5, skew=2.0) - mean("psgd", 5)) < 0.05


@pytest.mark.slow
def test_the_average_of_local_models_falls_with_skew_and_with_the_number_of_parties() -> None:
    def means(*federations: tuple[int, float]) -> list[float]:
        return [float(accuracies("local_average", *federation, seeds=250).mean()) for federation in federations]

    for falling in (means((5, 0.0), (5, 0.5), (5, 2.0)), means((5, 0.5), (10, 0.5), (15, 0.5))):
        assert falling[0] > falling[1] > falling[2]
        assert falling[0] > falling[2] + 0.02


@pytest.mark.slow
def test_no_privacy_and_no_sharing_are_the_ceiling_and_the_floor_they_should_be() -> None:
    assert mean("pooled") > mean("local") > 0.9
    assert mean("pooled") > mean("dp_gd")
    assert mean("local", 15) < mean("local", 5)
