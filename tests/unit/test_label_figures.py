"""Forecasts in the label's own terms: R² and RMSE, accuracy, AUC and recall."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from parley.common.algorithms import settle
from parley.common.data.columns import Feature, Label, RealLabel
from parley.common.data.study import Study
from parley.common.forecast.forecast import Forecast, forecast
from parley.common.forecast.label_figures import LabelFigure, _separations
from parley.common.learning.losses import build_loss
from parley.common.protocol.facts import FederationFacts


def told(label: Label | RealLabel, n: int = 2000, epsilon: float = 1.0, **terms: Any) -> Forecast:  # noqa: ANN401
    study = Study(name="s", features=tuple(Feature(name=f"x{i}", lower=-1, upper=1) for i in range(9)), label=label)
    facts = FederationFacts.uniform(
        np.full(3, n), epsilon=epsilon, delta=1e-5, n_features=10, loss=build_loss(study), study=study, **terms
    )
    answer = forecast(settle("dp_gd", {}, facts)[0], facts)
    assert isinstance(answer, Forecast)
    return answer


def by_name(answer: Forecast) -> dict[str, LabelFigure]:
    return {figure.name: figure for figure in answer.figures}


BIRTHS = RealLabel(name="weight", lower=0, upper=6000, unit="grams", mean=3300.0, deviation=550.0)
RARE = Label(name="ill", values=("yes", "no"), shares=(0.1, 0.9))


def test_a_regression_is_told_in_its_units_beside_the_mean() -> None:
    answer = told(BIRTHS)
    figures = by_name(answer)
    assert list(figures) == ["r_squared", "rmse"]
    assert figures["r_squared"].constant == 0
    assert figures["rmse"].constant == pytest.approx(550)
    assert (figures["rmse"].title, figures["rmse"].unit, figures["r_squared"].unit) == ("RMSE", "grams", "")
    share, root = figures["r_squared"].interval, figures["rmse"].interval
    for low, high in ((share.low, root.high), (share.estimate, root.estimate), (share.high, root.low)):
        assert high == pytest.approx(550 * math.sqrt(1 - low), rel=2e-3), "both are of the same mean loss"
    assert share.low < share.estimate < share.high < 1
    assert figures["r_squared"].alone.estimate > 0
    assert answer.unstated is None


def test_two_classes_are_told_by_all_that_a_reader_of_rare_ones_asks_for() -> None:
    figures = by_name(told(RARE))
    assert list(figures) == ["accuracy", "auc", "recall", "balanced_recall"]
    assert [figure.constant for figure in figures.values()] == [0.9, 0.5, 0.0, 0.5]
    assert figures["recall"].title == "recall of 'yes' at a probability of .5"
    for figure in figures.values():
        assert 0 <= figure.interval.low < figure.interval.estimate < figure.interval.high <= 1


def test_more_classes_are_told_by_accuracy() -> None:
    (figure,) = told(Label(name="y", values=("a", "b", "c"), shares=(0.2, 0.3, 0.5))).figures
    assert (figure.name, figure.constant) == ("accuracy", 0.5)
    assert figure.interval.low < figure.interval.estimate < figure.interval.high


@pytest.mark.parametrize("label", [BIRTHS, RARE])
def test_more_noise_tells_less(label: Label | RealLabel) -> None:
    name = "auc" if label is RARE else "r_squared"
    less, more = (by_name(told(label, epsilon=epsilon))[name] for epsilon in (0.03, 3))
    assert less.interval.estimate < more.interval.estimate
    assert less.interval.low < more.interval.low


def test_noise_alone_predicts_nothing_and_may_point_the_wrong_way() -> None:
    interval = by_name(told(RARE, n=20, epsilon=0.01))["auc"].interval
    assert interval.low < 0.5 < interval.high
    assert interval.estimate == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (BIRTHS.model_copy(update={"mean": None, "deviation": None}), "R² and RMSE are not forecast: .* --mean, --dev"),
        (RARE.model_copy(update={"shares": None}), "accuracy and AUC are not forecast: .* shares of its classes"),
    ],
)
def test_what_a_study_does_not_state_is_named(label: Label | RealLabel, words: str) -> None:
    answer = told(label)
    assert answer.figures == ()
    assert answer.unstated is not None
    assert re.match(words, answer.unstated)


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_the_best_scores_of_a_separation_have_the_loss_and_accuracy_of_their_law(share: float) -> None:
    table, rng = _separations((share, 1 - share)), np.random.default_rng(1)
    at = int(np.searchsorted(table.grid, 4.0))
    d2, positive = float(table.grid[at]), rng.random(200_000) < share
    scores = np.where(positive, 1, -1) * d2 / 2 + math.sqrt(d2) * rng.standard_normal(positive.size)
    scores += math.log(share / (1 - share))
    losses = np.logaddexp(0, np.where(positive, -scores, scores))
    assert table.loss[at] == pytest.approx(losses.mean(), abs=0.005)
    assert table.accuracy[at] == pytest.approx(((scores > 0) == positive).mean(), abs=0.005)
    assert float(table.separation(table.loss[[at]])[0]) == pytest.approx(d2, rel=1e-6)


def test_three_alike_classes_are_told_apart_as_often_as_the_largest_of_three_normals_is_right() -> None:
    table = _separations((1 / 3, 1 / 3, 1 / 3))
    at = int(np.searchsorted(table.grid, 4.0))
    z, d = np.linspace(-8, 8, 4001), math.sqrt(table.grid[at] / 2)
    due = float(np.trapezoid(norm.pdf(z - d) * norm.cdf(z) ** 2, z))
    assert table.accuracy[at] == pytest.approx(due, abs=0.03)
    assert table.loss[0] == pytest.approx(math.log(3))
