"""What is beneath noisy numbers: beside the formulas with whole covariances, and where there is little to go by."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parley.common.arrays import FloatArray
from parley.common.privacy.shrinkage import shrunk, smoothed

N, D = 12, 3
DEVIATION = 0.4


def some_rows(n: int = N, d: int = D, seed: int = 1) -> FloatArray:
    scale = np.array([1.0, 0.5, 0.2, *np.full(d, 0.1)])[:d]
    return np.asarray(np.random.default_rng(seed).normal(size=(n, d)) * scale)


def some_shares(rows: FloatArray, k: int, noise: float, seed: int = 2) -> tuple[FloatArray, FloatArray]:
    """Shares that are a softmax of the rows, and the same with noise; each row adds up to 1."""
    rng = np.random.default_rng(seed)
    scores = 3 * rows @ rng.normal(size=(rows.shape[1], k))
    exact = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    noisy = exact + noise * rng.normal(size=exact.shape)
    return exact, noisy + (1 - noisy.sum(axis=1, keepdims=True)) / k


def by_covariances(shares: FloatArray, rows: FloatArray, deviation: float) -> FloatArray:
    """The same from Gaussian densities of n - 1 contrasts with covariance v (ratio X X' + I), the v of each best."""
    n, k = shares.shape
    contrasts = np.linalg.qr(np.eye(n) - 1 / n)[0][:, : n - 1]
    gram = (contrasts.T @ rows) @ (contrasts.T @ rows).T
    told = contrasts.T @ shares
    largest = float(np.linalg.eigvalsh(gram).max())
    least = (math.inf, np.zeros((n - 1, n - 1)), 0.0)
    for ratio in np.geomspace(1e-8, 1e5, 131) / largest:
        covariance = ratio * gram + np.eye(n - 1)
        squares = float(np.trace(told.T @ np.linalg.solve(covariance, told)))
        variance = max(deviation**2, squares / (k * (n - 1)))
        unlikely = k * np.linalg.slogdet(variance * covariance)[1] + squares / variance
        least = min(least, (float(unlikely), ratio * gram, variance), key=lambda one: one[0])
    _, prior, variance = least
    function = 3 * prior @ np.linalg.solve(3 * prior + np.eye(n - 1), told)
    means = shrunk(shares.mean(axis=0), deviation * math.sqrt(k / (k - 1) / n))
    explained = means + contrasts @ function
    found = np.maximum(0.0, explained + (1 - deviation**2 / variance) * (shares - explained))
    return np.asarray(found / found.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("noise", [0.01, DEVIATION, 5.0])
def test_shares_are_what_densities_make_likely(k: int, d: int, noise: float) -> None:
    rows = some_rows(d=d)
    _, noisy = some_shares(rows, k, noise)
    for deviation in (noise, noise / 3):
        assert smoothed(noisy, rows, deviation) == pytest.approx(by_covariances(noisy, rows, deviation), abs=1e-8)


@pytest.mark.parametrize("k", [2, 5])
def test_without_noise_nothing_changes(k: int) -> None:
    rows = some_rows()
    exact, _ = some_shares(rows, k, 0.0)
    assert smoothed(exact, rows, 0.0) is exact
    assert smoothed(exact, rows, 1e-9) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("k", [2, 5])
def test_noise_goes_where_rows_explain_shares_and_stays_where_they_do_not(k: int) -> None:
    rows = some_rows(2000)
    exact, noisy = some_shares(rows, k, DEVIATION)
    found = smoothed(noisy, rows, DEVIATION * math.sqrt(1 - 1 / k))
    assert ((found - exact) ** 2).mean() < 0.2 * ((noisy - exact) ** 2).mean()
    wrong, before = ((one.argmax(axis=1) != exact.argmax(axis=1)).mean() for one in (found, noisy))
    assert wrong < 0.5 * before

    rng = np.random.default_rng(3)
    labels = np.eye(k)[rng.integers(k, size=2000)]
    noisy = labels + 0.1 * rng.normal(size=labels.shape)
    noisy += (1 - noisy.sum(axis=1, keepdims=True)) / k
    assert (smoothed(noisy, rows, 0.1).argmax(axis=1) == labels.argmax(axis=1)).all(), "of no function of the rows"


@pytest.mark.parametrize("noise", [1.0, 1e3, 1e9])
def test_where_noise_drowns_all_that_differs_all_rows_have_the_commonest_class(noise: float) -> None:
    rng = np.random.default_rng(4)
    noisy = np.array([0.2, 0.5, 0.3]) + noise * rng.normal(size=(500, 3))
    noisy += (1 - noisy.sum(axis=1, keepdims=True)) / 3
    found = smoothed(noisy, rng.normal(size=(500, 2)), 3 * noise)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert found.sum(axis=1) == pytest.approx(np.ones(500))
    assert np.ptp(found, axis=0).max() < 0.05 * noise


@pytest.mark.parametrize("rows", [np.zeros((1, 2)), np.ones((4, 2)), np.zeros((4, 2)), np.full((4, 2), 0.1)])
def test_rows_that_do_not_differ_tell_nothing(rows: FloatArray) -> None:
    shares = np.tile([-0.5, 1.5], (len(rows), 1))
    assert smoothed(shares, rows, 1.0).tolist() == [[0.0, 1.0]] * len(rows)


def test_shares_are_left_as_they_were() -> None:
    rows = some_rows()
    _, noisy = some_shares(rows, 3, DEVIATION)
    before, X = noisy.copy(), rows.copy()
    smoothed(noisy, rows, DEVIATION)
    assert (noisy == before).all()
    assert (rows == X).all()


def test_counts_are_drawn_to_their_mean_by_as_much_as_noise_explains() -> None:
    assert shrunk(np.array([4.0, 5.0, 6.0]), 2.0) == pytest.approx([5.0, 5.0, 5.0])
    assert shrunk(np.array([5.0, 5.0, 5.0]), 0.0) == pytest.approx([5.0, 5.0, 5.0])
    assert shrunk(np.array([-100.0, 0.0, 100.0]), 10.0) == pytest.approx([-99.0, 0.0, 99.0])


def test_without_spread_there_is_nothing_to_draw_together() -> None:
    assert shrunk(np.array([5.0, 5.0]), 3.0).tolist() == [5.0, 5.0]
    spread = float(np.var([1.0, 4.0, 7.0], ddof=1))
    halved = shrunk(np.array([1.0, 4.0, 7.0]), math.sqrt(spread / 2))
    assert halved == pytest.approx([2.5, 4.0, 5.5]), "noise that explains half of the spread takes half of it away"
