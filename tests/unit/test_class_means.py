"""Classifiers from noisy sums of classes: what they become without noise, with much, and how common classes are."""

from __future__ import annotations

import numpy as np
import pytest

from parley.common.arrays import FloatArray, IntArray
from parley.common.privacy.mechanisms.class_means import class_scores, shares_of

K, D, N = 4, 12, 4000
LENGTH = np.array(20.0)


def examples(shares: list[float], seed: int = 0, n: int = N) -> tuple[FloatArray, IntArray]:
    """Rows about the means of K classes, with an intercept, of norm 1, and which class each is of."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(K, size=n, p=shares)
    X = 0.4 * np.random.default_rng(9).normal(size=(K, D - 1))[classes] + 0.5 * rng.normal(size=(n, D - 1))
    X = np.column_stack([X, np.full(n, 2.0)])
    return X / np.linalg.norm(X, axis=1, keepdims=True), classes


def sums_of(X: FloatArray, classes: IntArray) -> FloatArray:
    return np.stack([X[classes == one].sum(axis=0) for one in range(K)])


def right(weights: FloatArray, X: FloatArray, classes: IntArray) -> float:
    return float((np.argmax(X @ weights.T, axis=1) == classes).mean())


def scores(sums: FloatArray, spread: float, n: int = N) -> FloatArray:
    return class_scores(sums, np.array(spread), np.array(float(n)), LENGTH)


def written_out(sums: FloatArray, spread: float, n: int) -> FloatArray:
    """The weights of one site, class by class; the direction is taken for known."""
    k, d = sums.shape
    total = sums.sum(axis=0)
    length = float(np.linalg.norm(total)) / n
    common = total / np.linalg.norm(total)
    along = np.array([float(each @ common) for each in sums])
    mean, differ = along.mean(), along.var(ddof=1)
    drawn = [mean + (each - mean) * max(0.0, 1 - spread**2 / differ) for each in along]
    least = max(spread / (k * mean), 1e-6)
    shares = np.array([max(each / (k * mean), least) for each in drawn])
    shares /= shares.sum()
    apart = [each - (each @ common) * common for each in sums]
    told = sum(float(each @ each) for each in apart) - k * (d - 1) * spread**2
    variance = told / (d - 1) / float(((shares * n) ** 2).sum())
    variance = min(max(variance, 0.05 / (d - 1)), 0.25 / (d - 1))
    believed = [(p * n) ** 2 * variance / ((p * n) ** 2 * variance + spread**2) for p in shares]
    means = [b * each / (p * n) for b, each, p in zip(believed, apart, shares, strict=True)]
    about = (
        1 - max(length**2 - k * d * spread**2 / n**2, 0) - sum(p * m @ m for p, m in zip(shares, means, strict=True))
    )
    unknown = sum(p * variance * (1 - b) for p, b in zip(shares, believed, strict=True))
    kappa = 1 / (1 / min(0.5 * (d - 1) / max(about, 0.05), 100.0) + unknown)
    return np.array([
        kappa * m + (np.log(p) - kappa * (m @ m) / 2) / length * common for m, p in zip(means, shares, strict=True)
    ])  # fmt: skip


@pytest.mark.parametrize("shares", [[0.25] * 4, [0.6, 0.3, 0.08, 0.02]])
@pytest.mark.parametrize(("spread", "n", "part"), [
    (1e-6, N, 1.0), (3.0, N, 1.0), (40.0, N, 1.0), (3.0, 100, 1.0), (0.5, 300, 0.2), (1.0, N, 0.01), (1e-3, N, 3.0),
])  # fmt: skip
def test_weights_are_those_of_the_formula(shares: list[float], spread: float, n: int, part: float) -> None:
    """Of rows whose classes differ by such a part; of some the means' variance is at its ends, and kappa at its own."""
    X, classes = examples(shares, n=n)
    X[:, :-1] *= part
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    sums = sums_of(X, classes) + spread * np.random.default_rng(4).normal(size=(K, D))
    assert scores(sums, spread, n) == pytest.approx(written_out(sums, spread, n), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("across", "spread"), [(1, 0.5), (5, 0.5), (5, 30.0)])
def test_means_are_believed_to_be_no_further_apart_than_they_may(across: int, spread: float) -> None:
    """Classes of some 500 rows that lie .52 across the common direction, where .5 is the most."""
    sums = np.zeros((4, across + 1))
    sums[:, 0] = 0.85 * 500 * np.array([1.02, 1.02, 0.98, 0.98])
    sums[np.arange(4), 1 + np.array([0, 0, 2, 2]) % across] = 0.52 * 500 * np.array([1, -1, 1, -1])
    assert scores(sums, spread, 2000) == pytest.approx(written_out(sums, spread, 2000), rel=1e-9, abs=1e-9)
    stack = np.stack([sums, sums[::-1]])
    both = class_scores(stack, np.full(2, spread), np.full(2, 2000.0), np.full(2, 20.0))
    assert both == pytest.approx(np.stack([written_out(each, spread, 2000) for each in stack]), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("longer", "known"), [(1.01, True), (0.99, False)])
def test_a_direction_is_known_where_the_total_is_longer_than_its_noise(longer: float, *, known: bool) -> None:
    """By the root of two, of all classes' noise; and where rows are so much longer along it than across."""
    spread, n = 10.0, 50
    total = longer * spread * np.sqrt(2 * K * D)
    sums = np.zeros((K, D))
    sums[:, 0] = total / K
    sums[:, 1] = [1.0, 2.0, -1.0, -2.0]
    cosines = np.linalg.norm(sums, axis=1) * 20 / np.sqrt((sums**2).sum(axis=1) + D * spread**2)
    lengths = np.linalg.norm(scores(sums, spread, n), axis=1)
    assert (lengths == pytest.approx(cosines)) != known
    across = D - 1
    reach = np.sqrt(2 / (across + 2)) * longer  # squared times across is twice one less it
    sums[:, 0] = reach * n / K
    lengths = np.linalg.norm(scores(sums, 1e-9, n), axis=1)
    assert (lengths == pytest.approx(np.full(K, 20.0))) != known


@pytest.mark.parametrize("shares", [[0.25] * 4, [0.85, 0.09, 0.04, 0.02]])
def test_classes_are_told_as_common_as_they_are(shares: list[float]) -> None:
    X, classes = examples(shares)
    test, expected = examples(shares, seed=1)
    weights = scores(sums_of(X, classes), 0.0)
    assert right(weights, test, expected) > max(shares) + 0.02
    assert np.bincount(np.argmax(test @ weights.T, axis=1), minlength=K) / N == pytest.approx(shares, abs=0.05)


def test_much_noise_leaves_the_commonest_class() -> None:
    X, classes = examples([0.7, 0.1, 0.1, 0.1])
    noise = np.random.default_rng(3).normal(size=(K, D))
    weights = scores(sums_of(X, classes) + 150.0 * noise, 150.0)
    assert (np.argmax(X @ weights.T, axis=1) == 0).mean() > 0.95


def test_where_the_total_is_noise_scores_are_cosines() -> None:
    noise = 100 * np.random.default_rng(3).normal(size=(K, D))
    noise -= noise.mean(axis=0)
    lengths = np.linalg.norm(scores(noise, 100.0), axis=1)
    sums = np.linalg.norm(noise, axis=1)
    assert lengths == pytest.approx(20 * sums / np.sqrt(sums**2 + D * 100**2))


def test_rows_without_an_intercept_about_0_have_no_direction_in_common() -> None:
    """Their total is of the length that chance makes it, however well it is known: no class is told by it."""
    X, classes = examples([0.25] * 4)
    X = X[:, :-1] - X[:, :-1].mean(axis=0) + 0.01
    sums = sums_of(X, classes)
    weights = scores(sums, 1e-6)
    assert np.linalg.norm(weights, axis=1) == pytest.approx(np.full(K, 20.0))
    assert right(weights, X, classes) > 0.8


def test_each_of_a_stack_is_as_by_itself() -> None:
    X, classes = examples([0.25] * 4)
    sums = sums_of(X, classes)
    stack = np.stack([sums, 0 * sums, sums[::-1], sums - sums.mean(axis=0)])
    spread, n = np.array([1.0, 5.0, 30.0, 2.0]), np.array([4000.0, 10.0, 3000.0, 4000.0])
    together = class_scores(stack, spread, n, np.full(4, 20.0))
    alone = [class_scores(*each, LENGTH) for each in zip(stack, spread, n, strict=True)]
    assert np.isfinite(together).all()
    assert together == pytest.approx(np.array(alone), abs=1e-9)


@pytest.mark.parametrize("d", [1, 2])
def test_of_few_columns_all_is_a_number(d: int) -> None:
    for sums in (np.ones((3, d)), np.zeros((3, d)), np.array([[1e6] * d, [0.0] * d, [0.0] * d])):
        for spread in (0.1, 1e6):
            assert np.isfinite(class_scores(sums, np.array(spread), np.array(1.0), LENGTH)).all()


def test_shares_are_drawn_together_by_the_noise_and_none_is_hidden_beneath_it() -> None:
    counts = np.array([[60.0, 30.0, 10.0, 0.0], [60.0, 30.0, 10.0, -0.5], [25.0, 25.0, 25.0, 25.0]])
    exact, noisy, alike = shares_of(counts, np.array([0.0, 3.0, 3.0]))
    assert exact == pytest.approx([0.6, 0.3, 0.1, 0.0], abs=1e-5)
    assert exact.min() > 0
    assert noisy.min() >= 0.03 / 1.1
    assert noisy[0] < exact[0]
    assert alike == pytest.approx([0.25] * 4)
    assert shares_of(counts, np.array([0.0, 3.0, 3.0])).sum(axis=-1) == pytest.approx(np.ones(3))
