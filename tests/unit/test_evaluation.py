"""Evaluations: the truth without noise, intervals that hold it at their rate, and no estimate where noise hides all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import to_reals
from parley.common.learning.evaluation import (
    COVERAGE,
    ClassCells,
    Errors,
    FigureEstimate,
    NoisyCounts,
    NoisyErrors,
    NoisyNumber,
    ScoreCells,
    ratio,
    tally,
)
from parley.common.learning.metrics import accuracy, auc, r_squared, recall, rmse
from parley.common.learning.model import Model
from parley.common.learning.noise_law import SummedLaplace
from parley.common.learning.ranking import RankedCounts
from parley.common.runs.evaluation import statistics_of

DRAWS = 40
WEIGHTS = np.array([[4.0, 0.3, 0.0]])
EDGES = np.linspace(-4, 4, 17)
TOO_FEW = float(stats.binom(DRAWS, COVERAGE).ppf(1e-6))
"""Fewer intervals than this hold the truth once in 10^6 tests, if they hold it at their rate."""
SILENT = SummedLaplace.of([1e-3])
"""Of noise that is as good as none."""
UNKNOWN = FigureEstimate(estimate=None, low=0.0, high=1.0)


def made(n: int, share: float, seed: int = 1) -> Shard:
    """Examples of two classes; so large a share is positive."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) < max(1, round(share * n)), 1.0, -1.0)
    return Shard(rng.normal(0, 0.4, (n, 3)) + y[:, None] * [0.4, 0, 0], y)


def real(n: int, seed: int = 1) -> Shard:
    rng = np.random.default_rng(seed)
    X = rng.normal(0, 0.5, (n, 3))
    return Shard(X, np.clip(X[:, 0] * 0.5 + rng.normal(0, 0.2, n), -1, 1))


def classes_of(n: int, seed: int = 1) -> Shard:
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, n, p=[0.7, 0.25, 0.05])
    return Shard(rng.normal(0, 0.3, (n, 3)) + 0.4 * np.eye(3)[labels], encode_classes(labels, 3))


def counts_of(shard: Shard) -> FloatArray:
    """The counts of two classes between EDGES."""
    return to_reals(tally(ScoreCells(EDGES), shard, WEIGHTS))


def two_classes(values: FloatArray, law: SummedLaplace, threshold: float = 0.0) -> NoisyCounts:
    return NoisyCounts(values, law, ("no", "yes"), EDGES - threshold)


def ranked(values: FloatArray, law: SummedLaplace) -> RankedCounts:
    negative, positive = values.reshape(2, -1)
    return RankedCounts(EDGES, negative, positive, law)


def holds(figure: FigureEstimate, truth: float) -> bool:
    """Whether an interval holds the truth; and its own estimate, if there is one."""
    low = -math.inf if figure.low is None else figure.low
    assert figure.estimate is None or low <= figure.estimate <= figure.high
    return low - 1e-9 <= truth <= figure.high + 1e-9


def check(name: str, figures: list[FigureEstimate], truth: float) -> None:
    held = sum(holds(figure, truth) for figure in figures)
    print(f"{name}: the truth, {truth:.4f}, in {held} of {len(figures)} intervals")
    assert held >= TOO_FEW


@pytest.mark.parametrize(
    "law", [SummedLaplace.of([4.0]), SummedLaplace.of([4.0], 1.5), SummedLaplace.of([20.0, 5.0])], ids=str
)
def test_intervals_of_shares_hold_the_truth_at_their_rate(law: SummedLaplace) -> None:
    rng, shard, model = np.random.default_rng(7), made(2000, 0.3), Model(WEIGHTS[0])
    exact = counts_of(shard)
    noise = law.draws(exact.size)[rng.choice(2000, DRAWS, replace=False)]
    noisy = [two_classes(exact + row * rng.choice([-1, 1], row.size), law) for row in noise]
    check("accuracy", [each.accuracy() for each in noisy], accuracy(model, shard))
    check("recall", [each.recall(1) for each in noisy], recall(model, shard))
    tables = noisy[0].cells @ exact
    check("precision", [each.precision(1) for each in noisy], tables[1, 1] / tables[:, 1].sum())
    check("F1", [each.f1(1) for each in noisy], 2 * tables[1, 1] / (tables[1].sum() + tables[:, 1].sum()))
    recalls = tables.diagonal() / tables.sum(axis=1)
    check("balanced accuracy", [each.balanced_accuracy() for each in noisy], recalls.mean())


@pytest.mark.parametrize("share", [0.3, 0.03])
def test_intervals_of_the_area_hold_the_truth_at_their_rate(share: float) -> None:
    rng, shard, law = np.random.default_rng(8), made(3000, share), SummedLaplace.of([2.0])
    exact = counts_of(shard)
    found = [ranked(exact + rng.laplace(0, 2.0, exact.size), law).area_under_curve() for _ in range(12)]
    truth = auc(Model(WEIGHTS[0]), shard)
    held = sum(ends is None or ends[1] <= truth <= ends[2] for ends in found)
    assert held >= stats.binom(len(found), COVERAGE).ppf(1e-6)
    assert any(ends is not None and ends[2] - ends[1] < 0.15 for ends in found)


@pytest.mark.parametrize("n_positive", [0, 60])
def test_intervals_hold_the_truth_where_many_rows_have_one_score(n_positive: int) -> None:
    """As those of a study of few categories: here of one, of two values."""
    rng, law, edges = np.random.default_rng(10), SummedLaplace.of([2.0]), np.linspace(-2.4, 2.4, 9)
    positive, n = np.array([0.3, 0.7]) * n_positive, np.array([600.0, 400.0])
    scores = np.array([-0.7, 1.1])
    exact = np.zeros((2, len(edges) + 1))
    exact[:, np.searchsorted(edges, scores)] = n - positive, positive
    p, total = 1 / (1 + np.exp(-scores)), max(positive.sum(), 1)
    truths = {
        "brier": float(((n - positive) @ p**2 + positive @ (1 - p) ** 2) / n.sum()),
        "auc": float(positive[1] * (n - positive) @ [1, 0.5] + positive[0] * (n - positive) @ [0, 0.5])
        / max(total * (n - positive).sum(), 1),
        "average_precision": float(positive @ [total / n.sum(), positive[1] / n[1]] / total),
    }
    read = [
        statistics_of(NoisyCounts((exact + rng.laplace(0, 2.0, exact.shape)).ravel(), law, ("no", "yes"), edges))
        for _ in range(8)
    ]
    for name, truth in truths.items() if n_positive else [("brier", truths["brier"])]:
        figures = [getattr(each, name) for each in read]
        print(name, truth, [(figure.low, figure.high) for figure in figures])
        assert sum(holds(figure, truth) for figure in figures) >= stats.binom(len(figures), COVERAGE).ppf(1e-4)
    held = [
        holds(point.recall, float(positive[scores > point.score].sum() / total))
        for each in read
        for point in each.points
        if n_positive
    ]
    assert sum(held) >= 0.9 * len(held)


@pytest.mark.parametrize("largest", [2.0, 1.0])
def test_intervals_of_a_real_label_hold_the_truth_at_their_rate(largest: float) -> None:
    rng, shard, weights = np.random.default_rng(9), real(2000), np.array([[0.5, 0.0, 0.0]])
    exact, law = to_reals(tally(Errors(largest), shard, weights)), SummedLaplace.of([3.0])
    noisy = [NoisyErrors(exact + rng.laplace(0, 3.0, 5), law, largest, 10.0) for _ in range(DRAWS)]
    model, error = Model(weights[0]), np.abs(shard.scores(weights)[:, 0] - shard.y)
    assert error.max() <= 1
    check("RMSE", [each.root_mean_squared_error() for each in noisy], 10 * rmse(model, shard))
    check("MAE", [each.mean_absolute_error() for each in noisy], 10 * float(error.mean()))
    check("R squared", [each.r_squared() for each in noisy], r_squared(model, shard))


def test_without_noise_an_evaluation_of_two_classes_is_the_truth() -> None:
    shard, model = made(4000, 0.3), Model(WEIGHTS[0])
    exact = counts_of(shard)
    found = statistics_of(two_classes(exact, SILENT))
    for figure, truth in (
        (found.accuracy, accuracy(model, shard)),
        (found.recall["yes"], recall(model, shard)),
        (found.majority, 0.7),
    ):
        assert (figure.low, figure.estimate, figure.high) == pytest.approx((truth,) * 3, abs=1e-3)
    assert found.recall["no"] == found.specificity
    assert found.auc.estimate == pytest.approx(auc(model, shard), abs=0.01)
    scores = shard.scores(WEIGHTS)[:, 0]
    brier = float(((1 / (1 + np.exp(-scores)) - (shard.y > 0)) ** 2).mean())
    assert found.brier.estimate == pytest.approx(brier, abs=0.01)
    order = shard.y[np.argsort(-scores)] > 0
    precision = float((order.cumsum() / np.arange(1, len(order) + 1))[order].mean())
    assert found.average_precision.estimate == pytest.approx(precision, abs=0.02)
    counts = exact.reshape(2, -1)
    assert found.confusion == ((counts[0, :9].sum(), counts[0, 9:].sum()), (counts[1, :9].sum(), counts[1, 9:].sum()))
    assert [each.examples for each in found.calibration] == counts.sum(axis=0).tolist()
    assert [each.positives for each in found.calibration] == counts[1].tolist()
    assert (found.calibration[0].low, found.calibration[-1].high) == (0.0, 1.0)
    scores_of = [point.score for point in found.points]
    assert scores_of == sorted(scores_of)
    for edge in EDGES[4:13].tolist():
        at = min(found.points, key=lambda point: abs(point.score - edge))
        there = statistics_of(two_classes(exact, SILENT, threshold=edge))
        assert at.score == pytest.approx(edge)
        assert at.accuracy.estimate == pytest.approx(there.accuracy.estimate, abs=0.02)
        assert at.recall.estimate == pytest.approx(there.recall["yes"].estimate, abs=0.03)
        assert np.sum(at.confusion) == pytest.approx(4000, rel=0.01)
    assert {found.rmse, found.mae, found.r_squared} == {None}


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_the_threshold_of_0_is_exactly_among_those_that_are_evaluated(share: float) -> None:
    """There the page shows the counted figures, as the terminal does."""
    found = statistics_of(two_classes(counts_of(made(4000, share)), SILENT))
    assert [point.score for point in found.points].count(0.0) == 1


def test_without_noise_an_evaluation_of_more_classes_is_the_truth_and_names_each() -> None:
    shard, weights = classes_of(4000), 4 * np.eye(3)
    sums = to_reals(tally(ClassCells(3), shard, weights))
    found = statistics_of(NoisyCounts(sums, SILENT, ("a", "b", "c")))
    assert found.accuracy.estimate == pytest.approx(accuracy(Model(weights), shard))
    table = sums[:9].reshape(3, 3)
    for index, name in enumerate("abc"):
        assert found.recall[name].estimate == pytest.approx(table[index, index] / table[index].sum())
        assert found.precision[name].estimate == pytest.approx(table[index, index] / table[:, index].sum())
        assert 0.5 < found.auc[name].estimate < 1
        assert sum(each.examples for each in found.calibration[name]) == pytest.approx(4000)
    assert found.confusion == tuple(map(tuple, table.tolist()))
    assert {found.points, found.specificity, found.rmse} == {None}


def test_without_noise_an_evaluation_of_a_real_label_is_the_truth() -> None:
    shard, weights = real(1000), np.array([[0.5, 0.0, 0.0]])
    sums = to_reals(tally(Errors(2.0), shard, weights))
    found = statistics_of(NoisyErrors(sums, SILENT, 2.0, 10.0))
    error = np.abs(shard.scores(weights)[:, 0] - shard.y)
    assert found.rmse.estimate == pytest.approx(10 * rmse(Model(weights[0]), shard), abs=1e-4)
    assert found.mae.estimate == pytest.approx(10 * error.mean(), abs=1e-4)
    assert found.r_squared.estimate == pytest.approx(r_squared(Model(weights[0]), shard), abs=1e-3)
    assert {found.accuracy, found.auc, found.confusion} == {None}


def test_noise_that_hides_all_leaves_no_estimate_and_the_whole_range() -> None:
    found = statistics_of(two_classes(np.zeros(36), SummedLaplace.of([10.0])))
    assert found.accuracy == found.auc == found.majority == found.brier == found.balanced_accuracy == UNKNOWN
    assert found.recall == {"no": UNKNOWN, "yes": UNKNOWN}
    assert found.confusion == ((0.0, 0.0), (0.0, 0.0))
    errors = statistics_of(NoisyErrors(np.zeros(5), SummedLaplace.of([10.0]), 2.0, 3.0))
    assert errors.rmse == errors.mae == FigureEstimate(estimate=None, low=0.0, high=6.0)
    assert errors.r_squared == FigureEstimate(estimate=None, low=None, high=1.0)


def test_a_class_that_noise_hides_has_no_area() -> None:
    exact = counts_of(made(3000, 0.001))
    counts = ranked(exact, SummedLaplace.of([5.0]))
    assert (counts.area_under_curve(), counts.average_precision()) == (None, None)
    assert statistics_of(two_classes(exact, SummedLaplace.of([5.0]))).accuracy.estimate is not None


def test_an_area_is_the_same_whichever_class_is_called_positive() -> None:
    negative, positive = counts_of(made(3000, 0.8)).reshape(2, -1)
    law = SummedLaplace.of([2.0])
    one = RankedCounts(EDGES, negative, positive, law).area_under_curve()
    other = RankedCounts(-EDGES[::-1], positive[::-1], negative[::-1], law).area_under_curve()
    assert one == pytest.approx(other)


def test_a_threshold_at_an_edge_that_is_there_already_leaves_every_figure_a_number() -> None:
    counts = np.array([[40.0, 20.0, 0.0, 10.0], [2.0, 10.0, 0.0, 20.0]])
    for edges in ([-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1e-17, 1.0]):
        noisy = NoisyCounts(counts.ravel(), SILENT, ("no", "yes"), np.array(edges))
        found = statistics_of(noisy)
        numbers = [found.auc, found.average_precision, found.brier]
        assert all(0 <= figure.low <= figure.estimate <= figure.high <= 1 for figure in numbers), edges
        scores = [point.score for point in found.points]
        assert scores == sorted(scores)
        assert set(edges) <= set(scores)


def test_a_ratio_without_noise_is_one_number_and_stays_within_its_bounds() -> None:
    still = np.zeros(2000)
    sure = ratio(NoisyNumber(30.0, still), NoisyNumber(40.0, still), n=40)
    assert (sure.low, sure.estimate, sure.high) == pytest.approx((0.75,) * 3, abs=1e-5)
    assert sure.sampling == pytest.approx(math.sqrt(0.75 * 0.25 / 40))
    noise = SummedLaplace.of([1.0]).draws(2)
    clipped = ratio(NoisyNumber(103.0, noise[:, 0]), NoisyNumber(100.0, noise[:, 1]))
    assert (clipped.estimate, clipped.high) == (1.0, 1.0)
