"""Labels in doubt: the risk of the paper's Sections 3.2 and 4, minimised by SciPy from its definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from parley.common.algorithms import build_algorithm
from parley.common.algorithms.ensemble import Ensemble
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import encode_classes
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import Doubtful, fit_label_sum, fit_votes, is_linear, label_sum, minimise
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Reply

D, N = 3, 15
LOSSES = [Logistic(), Huber(0.5), Huber(0.1), Softmax(2), Softmax(5)]
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=repr)
LINEAR = pytest.mark.parametrize("loss", [Logistic(), Softmax(2), Softmax(5)], ids=repr)


def classes_of(loss: Loss) -> int:
    return max(2, loss.outputs)


def rows(seed: int) -> FloatArray:
    return Shard(np.random.default_rng(seed).uniform(-0.6, 0.6, (N, D)), np.ones(N)).X


def votes(seed: int, k: int) -> FloatArray:
    """Parts of 2^12 votes, so that labels on the grid say them as they are."""
    counts = np.random.default_rng(seed).multinomial(2**12, np.full(k, 1 / k), N)
    return np.asarray(counts / 2**12)


def risk(loss: Loss, X: FloatArray, parts: FloatArray, regularization: float, weights: FloatArray) -> float:
    """J by its definition: each row under each class, weighted by its part."""
    k, total = parts.shape[1], 0.0
    scores = X @ weights.reshape(-1, D).T if loss.outputs > 1 else X @ weights
    for c in range(k):
        label = encode_classes(np.full(len(X), c), k)
        total += float((parts[:, c] * loss.value(scores, label)).mean())
    return total + regularization / 2 * float((weights**2).sum())


@EVERY_LOSS
@pytest.mark.parametrize("regularization", [0.003, 0.3])
def test_the_minimiser_is_that_of_the_papers_risk(loss: Loss, regularization: float) -> None:
    X, parts = rows(1), votes(2, classes_of(loss))
    found = fit_votes(loss, X, parts, regularization)

    def value(weights: FloatArray) -> float:
        return risk(loss, X, parts, regularization, weights)

    theirs = minimize(value, np.zeros(found.size), tol=1e-9)
    ours = risk(loss, X, parts, regularization, found.ravel())
    assert ours <= theirs.fun + 1e-9
    assert np.linalg.norm(found.ravel() - theirs.x) <= 2 * np.sqrt(2 * max(theirs.fun - ours, 1e-9) / regularization)


@EVERY_LOSS
def test_labels_beyond_doubt_are_labels(loss: Loss) -> None:
    k = classes_of(loss)
    X, winners = rows(3), np.random.default_rng(4).integers(k, size=N)
    soft = fit_votes(loss, X, np.eye(k)[winners], 0.01)
    hard = minimise(loss, Shard(X, encode_classes(winners, k)), 0.01 * N)
    assert soft.shape == hard.shape
    assert np.abs(soft - hard).max() < 1e-6


def test_softmax_of_two_classes_is_the_logistic_loss_at_half_of_lambda() -> None:
    """Two rows of weights, +u/2 and -u/2, have half the square of u."""
    X, parts = rows(5), votes(6, 2)
    two = fit_votes(Softmax(2), X, parts, 0.02)
    assert np.allclose(two[0], -two[1], atol=1e-7)
    assert np.allclose(two[1] - two[0], fit_votes(Logistic(), X, parts, 0.01), atol=1e-6)


@LINEAR
def test_votes_enter_by_one_sum(loss: Loss) -> None:
    k = classes_of(loss)
    X, parts = rows(7), votes(8, k)
    total = label_sum(loss, X, parts)
    assert total.shape == ((D,) if loss.outputs == 1 else (k, D))
    assert np.array_equal(fit_label_sum(loss, X, total, 0.05), fit_votes(loss, X, parts, 0.05))
    before = total.copy()
    fit_label_sum(loss, X, total, 0.05)
    assert np.array_equal(total, before), "a sum that is handed in stays as it was"


@pytest.mark.parametrize("loss", [Huber(), Squared(), Hinge()], ids=repr)
def test_of_other_losses_there_is_no_such_sum(loss: Loss) -> None:
    assert not is_linear(loss)
    with pytest.raises(InvalidInputError, match="release the counts of votes instead"):
        fit_label_sum(loss, rows(9), np.zeros(D), 0.1)


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=repr)
def test_a_label_in_doubt_is_both_by_their_parts(loss: Loss) -> None:
    doubtful, rng = Doubtful(loss), np.random.default_rng(10)
    score, y, step = rng.normal(size=50), rng.uniform(-1, 1, 50), 1e-6
    one = np.ones(50)
    assert np.array_equal(doubtful.value(score, one), loss.value(score, one))
    assert np.array_equal(doubtful.slope(score, -one), loss.slope(score, -one))
    slope = (doubtful.value(score + step, y) - doubtful.value(score - step, y)) / (2 * step)
    assert np.allclose(doubtful.slope(score, y), slope, atol=1e-6)
    bend = (doubtful.slope(score + step, y) - doubtful.slope(score - step, y)) / (2 * step)
    assert np.allclose(doubtful.curvature(score, y), bend, atol=1e-4)
    assert np.allclose(doubtful.curvature_times(score, y, score), score * doubtful.curvature(score, y))
    assert (doubtful.lipschitz, doubtful.smoothness) == (loss.lipschitz, loss.smoothness)


def ensemble(name: str, loss: Loss, m: int, **parameters: object) -> tuple[Ensemble, FederationFacts, FloatArray]:
    """An algorithm of lambda 0.01, the facts of m parties and the rows that they are asked about."""
    built, X = build_algorithm(name, {"regularization": 0.01, **parameters}), rows(11)
    assert isinstance(built, Ensemble)
    facts = FederationFacts.uniform(
        np.full(m, 5), epsilon=1.0, delta=1e-5, n_features=D, loss=loss, public=X, public_shape=X.shape
    )
    return built, facts, built.rows_asked(X)


@EVERY_LOSS
def test_of_two_classes_in_a_tie_the_second_wins_and_else_the_first_of_most_votes(loss: Loss) -> None:
    k, m = classes_of(loss), 6
    vote, facts, X = ensemble("ensemble_vote", loss, m, calibration="paper")
    tie = np.full(N, 3.0) if k == 2 else np.tile([0.0, 2.0, 1.0, 2.0, 1.0], N)
    winner = np.full(N, 1)
    found = vote.learn(X, Reply(tie, tuple(range(m))), facts)
    assert np.abs(found - fit_votes(loss, X, np.eye(k)[winner], 0.01)).max() < 1e-9
    less = np.full(N, 3.0 - 1e-9) if k == 2 else np.tile([2.0, 2.0, 0.0, 1.0, 1.0], N)
    found = vote.learn(X, Reply(less, tuple(range(m))), facts)
    assert np.abs(found - fit_votes(loss, X, np.eye(k)[np.zeros(N, int)], 0.01)).max() < 1e-9


@EVERY_LOSS
def test_parts_are_of_those_who_voted(loss: Loss) -> None:
    k, m = classes_of(loss), 4
    soft, facts, X = ensemble("ensemble_soft", loss, m, calibration="paper")
    counts = np.random.default_rng(12).multinomial(m - 1, np.full(k, 1 / k), N)
    told = counts[:, 1] if k == 2 else counts.ravel()
    found = soft.learn(X, Reply(told.astype(float), (0, 2, 3)), facts)
    assert np.abs(found - fit_votes(loss, X, counts / (m - 1), 0.01)).max() < 1e-4, "but for Huber's grid of labels"


@EVERY_LOSS
@pytest.mark.parametrize("name", ["ensemble_vote", "ensemble_soft"])
@pytest.mark.parametrize("wide", [1.0, 1e2, 1e5])
def test_noise_never_breaks_a_fit(name: str, loss: Loss, wide: float) -> None:
    """Parts below 0 and above 1, by a little or by far, lead to some finite model."""
    k, rng = classes_of(loss), np.random.default_rng(13)
    algorithm, facts, X = ensemble(name, loss, 3)
    noisy = rng.normal(scale=wide, size=N if k == 2 else N * k)
    found = algorithm.learn(X, Reply(noisy, (0, 1, 2)), facts)
    assert found.shape == facts.shape
    assert np.isfinite(found).all()


@LINEAR
@pytest.mark.parametrize("wide", [0.0, 1.0, 1e5])
def test_a_statistic_leads_where_its_counts_do(loss: Loss, wide: float) -> None:
    """Without noise the same model; with noise some finite one."""
    k, m, rng = classes_of(loss), 7, np.random.default_rng(14)
    soft, facts, X = ensemble("ensemble_soft", loss, m, calibration="tight" if wide else "paper")
    summed, _, _ = ensemble("ensemble_soft", loss, m, release="statistic")
    ballots = rng.integers(k, size=(m, N))
    everyone = facts.everyone
    told = [
        algorithm.tally(ballots, X, everyone).sum(axis=0) / 2.0**32 + wide * rng.normal(size=algorithm.lanes(facts))
        for algorithm in (soft, summed)
    ]
    by_counts, by_sum = (
        algorithm.learn(X, Reply(reply, tuple(range(m))), facts)
        for algorithm, reply in zip((soft, summed), told, strict=True)
    )
    assert np.isfinite(by_sum).all()
    if not wide:
        assert np.abs(by_counts - by_sum).max() < 1e-6
