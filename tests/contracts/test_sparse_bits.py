"""Dense and sparse rows give the same bits: releases with the noise fixed, minimisers, and exact sums of gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.algorithms.release import MECHANISMS, Mechanism
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.data.sparse import DENSE_COLUMNS, SparseShard
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import minimise
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Softmax
from parley.common.learning.solvers import Risk
from parley.common.privacy.mechanisms.site import Law, SiteCalibration, SiteTerms
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.evaluation import weights_of

WIDE = DENSE_COLUMNS + 452
ENTRIES = 9
LARGE = [pytest.param(n, d, marks=pytest.mark.slow) for n, d in ((700, 300), (WIDE + 60, WIDE))]
SHAPES = pytest.mark.parametrize(("n", "d"), [(40, 12), (9, 60), (130, 70), (30, WIDE), *LARGE])
"""More rows than columns and fewer, of one block and of several; and of more columns than blocks are dense for."""
RELEASES: list[tuple[Mechanism, Law, SiteCalibration, Loss]] = [
    ("output", "gaussian", "tight", Logistic()),
    ("output", "gaussian", "jain_thakurta", Huber(0.5)),
    ("output", "gaussian", "tight", Hinge()),
    ("output", "l2_laplace", "tight", Softmax(3)),
    ("objective", "gaussian", "tight", Huber(0.5)),
    ("objective", "l2_laplace", "paper", Logistic()),
    ("generalized", "gaussian", "paper", Logistic()),
    ("centroids", "l2_laplace", "tight", Softmax(6)),
    ("none", "gaussian", "tight", Softmax(4)),
]


def dense(seed: int, n: int, d: int, loss: Loss | None = None, entries: int = ENTRIES) -> Shard:
    """Rows of few entries, which a quarter of the columns have none of; labels of the loss's classes."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, d))
    for row in X:
        columns = rng.choice(3 * d // 4, min(entries, d // 2), replace=False)
        row[columns] = rng.normal(size=len(columns))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    k = loss.outputs if loss and loss.outputs > 1 else 2
    return Shard(X, rng.integers(0, k, n) * 2.0 / (k - 1) - 1)


def released(mechanism: Mechanism, terms: Sequence[SiteTerms], shard: Shard) -> IntArray:
    """What sites of one kind release together, with seeded noise."""
    sites = [MECHANISMS[mechanism](term) for term in terms]
    return type(sites[0]).answer(sites, type(sites[0]).prepare(sites, shard), SeededNoise(5))


@SHAPES
@pytest.mark.parametrize(("mechanism", "law", "calibration", "loss"), RELEASES)
def test_a_release_of_dense_rows_is_that_of_sparse_ones(  # noqa: PLR0913, PLR0917 -- the cases
    mechanism: Mechanism, law: Law, calibration: SiteCalibration, loss: Loss, n: int, d: int
) -> None:
    delta = 1e-5 if law == "gaussian" else 0.0
    shard = dense(n + d, n, d, loss)
    terms = SiteTerms(loss, n, d, 0.05, 2.0, delta, law, calibration, ENTRIES)
    one, two = (released(mechanism, [terms], rows) for rows in (shard, SparseShard.of(shard)))
    assert np.array_equal(one, two)
    assert one.any()


@pytest.mark.parametrize("d", [5, 60, WIDE])
@pytest.mark.parametrize(("mechanism", "law", "calibration", "loss"), RELEASES)
def test_so_is_that_of_a_stack(
    mechanism: Mechanism, law: Law, calibration: SiteCalibration, loss: Loss, d: int
) -> None:
    sizes, delta = (3, 40, 17, 1), 1e-5 if law == "gaussian" else 0.0
    shards = [dense(seed, n, d, loss) for seed, n in enumerate(sizes)]
    terms = [SiteTerms(loss, n, d, 0.2, 2.0, delta, law, calibration, ENTRIES) for n in sizes]
    one, two = (
        released(mechanism, terms, stack)
        for stack in (Shard.stack(shards), SparseShard.stack([SparseShard.of(shard) for shard in shards]))
    )
    assert np.array_equal(one, two)


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.1), Softmax(3)], ids=repr)
@pytest.mark.parametrize("n", [4, pytest.param(300, marks=pytest.mark.slow)])
def test_of_many_columns_a_party_of_a_stack_is_solved_as_alone(loss: Loss, n: int) -> None:
    shards = [dense(seed, size, WIDE, loss) for seed, size in enumerate((n, n // 2, n))]
    tilt = np.random.default_rng(1).normal(size=(3, WIDE) if loss.outputs == 1 else (3, loss.outputs, WIDE))
    strength = np.array([0.3, 2.0, 1e-3])
    together = minimise(loss, Shard.stack(shards), strength, tilt)
    alone = [minimise(loss, *one) for one in zip(shards, strength.tolist(), tilt, strict=True)]
    assert np.array_equal(together, np.stack(alone))


@pytest.mark.parametrize("d", [7, 500, WIDE])
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), Softmax(3)], ids=repr)
@pytest.mark.parametrize("clip_l1", [math.inf, 0.4])
@pytest.mark.long
def test_sums_of_gradients_are_the_same_integers(loss: Loss, d: int, clip_l1: float) -> None:
    shards = [dense(seed, n, d, loss) for seed, n in enumerate((600, 20))]
    weights = np.random.default_rng(2).normal(size=(d,) if loss.outputs == 1 else (loss.outputs, d))
    for one, two in (
        (shards[0], SparseShard.of(shards[0])),
        (Shard.stack(shards), SparseShard.stack([SparseShard.of(shard) for shard in shards])),
    ):
        first, second = (gradient_sum(loss, rows, weights, 0.8, clip_l1) for rows in (one, two))
        assert np.array_equal(first, second)


@pytest.mark.parametrize("d", [30, WIDE])
@pytest.mark.parametrize("name", ["release", "average", "local_average", "gop", "dp_gd", "pooled", "local"])
def test_algorithms_answer_alike(name: str, d: int) -> None:
    sizes = np.array([25, 6, 40])
    facts = FederationFacts.uniform(sizes, epsilon=2.0, delta=1e-5, n_features=d, loss=Logistic())
    algorithm = build_algorithm(name)
    shards = [dense(seed, n, d) for seed, n in enumerate(sizes.tolist())]
    query = next(algorithm.program(facts))
    stacks = [Shard.stack(shards), SparseShard.stack([SparseShard.of(shard) for shard in shards])]
    everyone = facts.everyone
    if algorithm.curator:
        everyone, stacks = facts.curated().of(0), [stack.pooled() for stack in stacks]
    one, two = (algorithm.local(query, algorithm.prepare(rows, everyone), everyone, SeededNoise(3)) for rows in stacks)
    assert np.array_equal(one, two)
    assert one.any()


def test_sites_that_do_otherwise_answer_alike() -> None:
    sizes = np.array([25, 6, 40])
    facts = FederationFacts.uniform(sizes, epsilon=2.0, delta=1e-5, n_features=WIDE, loss=Logistic())
    sites = [{"party": "party-2", "mechanism": "output", "law": "l2_laplace"}]
    algorithm = build_algorithm("release", {"sites": sites, "regularization": 0.5})
    shards = [dense(seed, n, WIDE) for seed, n in enumerate(sizes.tolist())]
    query = next(algorithm.program(facts))
    one, two = (
        algorithm.local(query, algorithm.prepare(rows, facts.everyone), facts.everyone, SeededNoise(3))
        for rows in (Shard.stack(shards), SparseShard.stack([SparseShard.of(shard) for shard in shards]))
    )
    assert np.array_equal(one, two)


@SHAPES
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.05), Softmax(3)], ids=repr)
@pytest.mark.parametrize("tilted", [False, True])
@pytest.mark.long
def test_minimisers_are_the_same_to_the_last_bit(loss: Loss, n: int, d: int, *, tilted: bool) -> None:
    shard = dense(n, n, d, loss)
    tilt = tilted * np.random.default_rng(1).normal(size=(d,) if loss.outputs == 1 else (loss.outputs, d))
    for strength in (0.05, 1.0):
        one, two = (minimise(loss, rows, strength, tilt) for rows in (shard, SparseShard.of(shard)))
        assert np.array_equal(one, two)
        gradient = Risk(loss, shard, np.array(strength), tilt).gradient(one)
        assert np.linalg.norm(gradient) <= 2e-9


@pytest.mark.parametrize("n", [40, pytest.param(WIDE, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=repr)
def test_so_are_those_of_many_columns_that_are_well_filled(loss: Loss, n: int) -> None:
    shard = dense(n, n, WIDE, loss, entries=WIDE // 3)
    tilt = np.random.default_rng(1).normal(size=(WIDE,) if loss.outputs == 1 else (loss.outputs, WIDE))
    one, two = (minimise(loss, rows, 0.3, tilt) for rows in (shard, SparseShard.of(shard)))
    assert np.array_equal(one, two)
    assert np.linalg.norm(Risk(loss, shard, np.array(0.3), tilt).gradient(one)) <= 2e-9


def test_rows_of_the_max_norm_keep_it_in_the_columns_that_occur() -> None:
    """They are not drawn into the unit ball."""
    rows = np.zeros((50, WIDE))
    rows[:, :100] = np.where(np.random.default_rng(1).random((50, 100)) < 0.5, -1.0, 1.0)
    shard = Shard(rows, np.sign(rows[:, 0]), norm="max")
    minimum = minimise(Logistic(), shard, 1.0)
    assert np.linalg.norm(Risk(Logistic(), shard, np.array(1.0)).gradient(minimum)) <= 2e-9
    assert np.array_equal(minimum, minimise(Logistic(), SparseShard.of(shard), 1.0))


@pytest.mark.parametrize("name", ["release", "gop"])
def test_the_bound_of_a_rows_entries_makes_millions_of_columns_solvable(name: str) -> None:
    facts = [
        FederationFacts.uniform(
            np.array([4000]), epsilon=1.0, delta=1e-3, n_features=3_231_961, loss=Huber(0.5), row_entries=entries
        ).of(0)
        for entries in (None, 256)
    ]
    algorithm = build_algorithm(name, {"regularization": 1e-3, "calibration": "tight"})
    with pytest.raises(InvalidInputError, match="no solver surely finds the minimiser"):
        algorithm.check_noise(facts[0])
    algorithm.check_noise(facts[1])


def test_weights_as_long_as_the_noise_of_millions_of_columns_are_refused_before_a_party_is_asked() -> None:
    document = {"kind": "linear", "weights": [2.0**16, 0.0]}
    assert weights_of(document).shape == (1, 2)
    with pytest.raises(InvalidInputError, match=r"have norm 9.27e\+04, and parties take at most 65536"):
        weights_of(document | {"weights": [2.0**16, 2.0**16]})
    with pytest.raises(InvalidInputError, match="have norm inf"):
        weights_of(document | {"weights": [1e308, 1e308]})
