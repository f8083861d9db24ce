"""What `scripts.figures.rajkumar_theorem51` measures: minimisers of tilted risks, beside the best of the same risk."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Logistic
from parley.common.learning.metrics import fitness
from parley.common.learning.model import Model
from parley.learner.experiments.datasets import Dataset, load_dataset, simulated

_LOSS = Logistic()
_FOLDS = 5
_NEW_ROWS = 50_000


def excesses(  # noqa: PLR0913, PLR0917 -- a setting of the theorem, and how often it is tried
    data: str, n_examples: int, regularization: float, sigma: float, sets: int, draws: int, seed: int
) -> list[float]:
    """Return by how much J(w) exceeds J(w*), for ``draws`` of eta on each of so many data sets.

    ``data`` is "ball", for points in the ball, or "wdbc", without one fold of five.
    """
    source = simulated(n_examples, interior=True) if data == "ball" else load_dataset(data)
    return [
        float(excess)
        for number in range(sets)
        for excess in _excesses(_rows(source, number, seed), regularization, sigma, draws, [seed, number, 1])
    ]


def _rows(source: Dataset, number: int, seed: int) -> Shard:
    rng = np.random.default_rng([seed, number // _FOLDS if source.fold else number])
    return (source.fold(rng, number % _FOLDS, _FOLDS) if source.fold else source.draw(rng))[0]


def _excesses(shard: Shard, regularization: float, sigma: float, draws: int, seed: list[int]) -> Iterator[float]:
    strength, d = len(shard.y) * regularization, shard.n_features

    def risk(eta: FloatArray | float) -> float:
        return fitness(_LOSS, Model(minimise(_LOSS, shard, strength, eta)), shard, regularization)

    best = risk(0.0)
    for eta in np.random.default_rng(seed).normal(0, sigma, (draws, d)):
        yield risk(eta) - best


def comparisons(  # noqa: PLR0913, PLR0917 -- as above
    n_examples: int, d: int, norm: float, regularization: float, sigma: float, sets: int, draws: int, seed: int
) -> list[float]:
    """Return by how much the mean loss of w on the population exceeds that of w_0, of length ``norm``.

    Points are uniform in the ball, and w_0 tells their labels. The population is 50,000 new points.
    """
    differences = []
    for number in range(sets):
        rng = np.random.default_rng([seed, number])
        reference = rng.standard_normal(d)
        reference *= norm / np.linalg.norm(reference)
        shard, new = (_labelled(rng, n, reference) for n in (n_examples, _NEW_ROWS))
        of_reference = fitness(_LOSS, Model(reference), new, 0.0)
        for eta in np.random.default_rng([seed, number, 1]).normal(0, sigma, (draws, d)):
            weights = minimise(_LOSS, shard, n_examples * regularization, eta)
            differences.append(fitness(_LOSS, Model(weights), new, 0.0) - of_reference)
    return differences


def _labelled(rng: np.random.Generator, n: int, weights: FloatArray) -> Shard:
    """Return points uniform in the ball, labelled by the side of the hyperplane of these weights."""
    X = rng.standard_normal((n, len(weights)))
    X *= (rng.random(n) ** (1 / len(weights)) / np.linalg.norm(X, axis=1))[:, None]
    return Shard(X, np.where(X @ weights > 0, 1.0, -1.0))
