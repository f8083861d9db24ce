"""A class that is rare: the intercept goes to its log-odds, and no further."""

from __future__ import annotations

import numpy as np
import pytest

from parley.common.algorithms import settle
from parley.common.data.shard import Shard
from parley.common.learning.losses import Logistic, Loss, Softmax
from parley.common.learning.metrics import fitness
from parley.common.learning.model import Model
from parley.common.privacy.noise import Noise, NoNoise, SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate

OWNERS, ROWS = 5, 4000


def rare(rows: int, share: float, seed: int) -> Shard:
    """Rows of four columns and an intercept, and a label that is +1 for so many of those who score most."""
    draws = np.random.default_rng(seed)
    columns = np.clip(draws.normal(size=(rows, 4)) / 3, -1, 1)
    score = columns @ [2.0, -1.0, 0.5, 0.0] + draws.normal(size=rows) / 4
    whole = np.column_stack([columns, np.ones(rows)])
    return Shard(whole / np.linalg.norm(whole, axis=1, keepdims=True), np.sign(score - np.quantile(score, 1 - share)))


def owned(shard: Shard) -> Shard:
    """The same rows, divided among the owners."""
    halves = np.split(np.arange(len(shard.y)), OWNERS)
    return Shard.stack([Shard(shard.X[rows], shard.y[rows]) for rows in halves])


def trained(shard: Shard, loss: Loss, epsilon: float, noise: Noise) -> Model:
    """By what dp_gd chooses."""
    facts = FederationFacts.uniform(
        np.full(OWNERS, ROWS), epsilon=epsilon, delta=1e-6, n_features=shard.X.shape[1], loss=loss
    )
    algorithm, _ = settle("dp_gd", {}, facts)
    return simulate(algorithm, owned(shard), facts, noise)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize("share", [0.001, 0.01])
def test_probabilities_are_better_than_those_of_no_features(share: float, epsilon: float) -> None:
    shard, held = rare(OWNERS * ROWS, share, 1), rare(20_000, share, 2)
    models = [trained(shard, Logistic(), epsilon, SeededNoise([seed])) for seed in range(3)]
    constant = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert np.mean([fitness(Logistic(), model, held, 0) for model in models]) < constant


@pytest.mark.parametrize(
    "loss", [Logistic(), pytest.param(Softmax(3), marks=pytest.mark.slow)], ids=["logistic", "softmax"]
)
def test_an_intercept_alone_stops_at_the_log_odds(loss: Loss) -> None:
    labels = np.tile(np.where(np.arange(ROWS) < ROWS / 1000, 1.0, -1.0), OWNERS)
    weights = trained(Shard(np.ones((OWNERS * ROWS, 1)), labels), loss, 10.0, NoNoise()).weights
    odds = weights[0] if loss.outputs == 1 else weights[-1, 0] - weights[0, 0]
    assert odds == pytest.approx(np.log(0.001 / 0.999), abs=1)
