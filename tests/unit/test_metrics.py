"""Metrics against scikit-learn's, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, r2_score, recall_score, roc_auc_score, root_mean_squared_error

from parley.common.data.shard import Shard
from parley.common.data.sparse import SparseShard
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic, Squared
from parley.common.learning.metrics import (
    accuracy,
    auc,
    fitness,
    majority_share,
    r_squared,
    recall,
    relative_fitness,
    rmse,
)
from parley.common.learning.model import Model


def drawn(seed: int, n: int, positives: int) -> tuple[Model, Shard]:
    """A model and examples of two columns, coarse so that scores tie, ``positives`` of them positive."""
    rng = np.random.default_rng(seed)
    X = (2 * rng.integers(-2, 2, (n, 2)) + 1) / 8  # no row is zero: that would be none
    return Model(rng.integers(-2, 3, 2).astype(np.float64)), Shard(X, np.where(np.arange(n) < positives, 1.0, -1.0))


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.data())
@settings(max_examples=100, deadline=None)
def test_rates_of_unbalanced_classes(seed: int, n: int, data: st.DataObject) -> None:
    model, shard = drawn(seed, n, data.draw(st.integers(1, n - 1)))
    scores = shard.X @ model.weights
    assert auc(model, shard) == pytest.approx(roc_auc_score(shard.y > 0, scores))
    assert recall(model, shard) == pytest.approx(recall_score(shard.y > 0, scores > 0))
    assert accuracy(model, shard) == pytest.approx(accuracy_score(shard.y > 0, scores > 0))


def test_errors_of_a_regression() -> None:
    rng = np.random.default_rng(1)
    shard, model = Shard(rng.uniform(-0.5, 0.5, (40, 3)), rng.uniform(-1, 1, 40)), Model(rng.standard_normal(3))
    scores = shard.X @ model.weights
    assert rmse(model, shard) == pytest.approx(root_mean_squared_error(shard.y, scores))
    assert r_squared(model, shard) == pytest.approx(r2_score(shard.y, scores))


def test_each_person_counts_the_same() -> None:
    rng = np.random.default_rng(3)
    model, rows = drawn(3, 60, 25)
    shard = Shard(rows.X, rng.permutation(rows.y), begins=np.arange(60) % 4 < 2)  # three rows, then one
    weights, scores = np.tile([1.0, 1 / 3, 1 / 3, 1 / 3], 15), shard.X @ model.weights
    positive = shard.y > 0

    def close(figure: float) -> object:
        return pytest.approx(figure, abs=1e-4)

    assert accuracy(model, shard) == close(accuracy_score(positive, scores > 0, sample_weight=weights))
    assert auc(model, shard) == close(roc_auc_score(positive, scores, sample_weight=weights))
    assert recall(model, shard) == close(recall_score(positive, scores > 0, sample_weight=weights))
    assert rmse(model, shard) == close(root_mean_squared_error(shard.y, scores, sample_weight=weights))
    assert r_squared(model, shard) == close(r2_score(shard.y, scores, sample_weight=weights))
    share = weights[positive].sum() / 30
    assert majority_share(shard) == close(max(share, 1 - share))
    loss = Logistic()
    mean = (loss.value(scores, shard.y) * weights).sum() / 30
    assert fitness(loss, model, shard, 0.1) == close(mean + 0.05 * (model.weights**2).sum())


def test_padding_does_not_count() -> None:
    (model, one), (_, other) = drawn(1, 30, 10), drawn(2, 7, 3)
    alone, padded = one, Shard.stack([one, other])
    longer = Shard(padded.X[1], padded.y[1], padded.mask[1])
    for metric in (accuracy, auc, recall, rmse, r_squared):
        assert metric(model, longer) == pytest.approx(metric(model, other))
    assert fitness(Logistic(), model, longer, 0.1) == pytest.approx(fitness(Logistic(), model, other, 0.1))
    assert alone.X.shape[0] == 30


@pytest.mark.parametrize("kind", [Shard, SparseShard.of], ids=["dense", "sparse"])
def test_rows_that_a_study_dropped_do_not_count(kind: Callable[..., Shard]) -> None:
    model, one = drawn(1, 30, 10)
    present = one.take(np.flatnonzero(one.present))
    X, y = np.concatenate([present.X, np.zeros((70, 2))]), np.concatenate([present.y, np.ones(70)])
    mostly_dropped = kind(X, y) if kind is Shard else kind(Shard(X, y))
    for metric in (accuracy, auc, recall, rmse, r_squared):
        assert metric(model, mostly_dropped) == pytest.approx(metric(model, present)), metric
    assert majority_share(mostly_dropped) == majority_share(present)
    assert fitness(Logistic(), model, mostly_dropped, 0.0) != fitness(Logistic(), model, present, 0.0), "as trained on"
    three = Model(np.eye(3, 2))
    classes, dropped = Shard(np.eye(2), np.array([-1.0, 0.0])), Shard(np.zeros((4, 2)), np.ones(4))
    assert accuracy(three, classes) == 1
    both = Shard(np.concatenate([classes.X, dropped.X]), np.concatenate([classes.y, dropped.y]))
    assert accuracy(three, both) == 1


def test_without_any_example_nothing_is_measured() -> None:
    model, _ = drawn(1, 2, 1)
    dropped, padding = Shard(np.zeros((4, 2)), np.ones(4)), Shard(np.ones((1, 2)), np.ones(1), np.zeros(1, np.bool_))
    for shard in (dropped, padding, Shard(np.zeros((0, 2)), np.zeros(0))):
        for metric in (accuracy, auc, recall, rmse, r_squared):
            with pytest.raises(InvalidInputError, match="no example to measure on"):
                metric(model, shard)
        with pytest.raises(InvalidInputError, match="no example to measure on"):
            majority_share(shard)


def test_members_have_the_mean_of_their_aucs() -> None:
    model, shard = drawn(5, 40, 20)
    members = Model(np.stack([model.weights, -model.weights]), "members")
    assert auc(members, shard) == pytest.approx(0.5)


def test_relative_fitness_is_0_at_the_best_and_needs_one_above_0() -> None:
    model, shard = drawn(3, 20, 10)
    assert relative_fitness(Logistic(), model, model, shard, 0.1) == 0
    worse = Model(model.weights + 10)
    assert relative_fitness(Logistic(), worse, model, shard, 0.1) > 0
    perfect, zeros = Model(np.zeros(2)), Shard(np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(InvalidInputError, match="best fitness"):
        relative_fitness(Squared(), perfect, perfect, zeros, 0.1)


def test_examples_of_one_class_are_refused_where_it_matters() -> None:
    model, negative = drawn(4, 12, 0)
    assert 0 <= accuracy(model, negative) <= 1
    for metric in (auc, recall):
        with pytest.raises(InvalidInputError, match="one class"):
            metric(model, negative)
    with pytest.raises(InvalidInputError, match="one class"):
        auc(model, drawn(4, 12, 12)[1])
    with pytest.raises(InvalidInputError, match="labels that differ"):
        r_squared(model, negative)
