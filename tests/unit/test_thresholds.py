"""The threshold of a model of two classes: its rules, the figures there, and all that predicts by it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from parley.common.arrays import BoolArray, FloatArray
from parley.common.data.columns import AnyLabel, Feature, Label, RealLabel
from parley.common.data.study import HingeLoss, SoftmaxLoss, Study
from parley.common.errors import InvalidInputError
from parley.common.learning.threshold import (
    OPTIMISM,
    ThresholdRule,
    at_threshold,
    chosen_threshold,
    threshold_in_words,
)
from parley.common.runs.model_document import read_document
from parley.common.runs.predictions import predict
from parley.learner.cli.main import learner_app
from parley.learner.models.card import model_card
from tests.support.models import document_of

RARE = Label(name="ill", values=("no", "yes"), shares=(0.9, 0.1))
REAL = RealLabel(name="rate", lower=0, upper=1)
EDGES = tuple(np.arange(-4.0, 1.5, 0.5).tolist())


def study_of(label: AnyLabel = RARE, **more: object) -> Study:
    return Study.model_validate(
        {"name": "s", "features": (Feature(name="x", lower=0, upper=1),), "label": label} | more
    )


def figure(top: float, bottom: float) -> dict[str, Any]:
    estimate = top / bottom if bottom else None
    return {
        "estimate": estimate,
        "low": estimate or 0.0,
        "high": 1.0 if estimate is None else estimate,
        "sampling": None,
    }


def evaluation_of(scores: FloatArray, ill: BoolArray, edges: Sequence[float] = EDGES) -> dict[str, Any]:
    """An evaluation without noise: its figures at each of these thresholds, and at 0."""

    def point(score: float) -> dict[str, Any]:
        yes = scores > score
        tn, fp, fn, tp = (float(part.sum()) for part in (~yes & ~ill, yes & ~ill, ~yes & ill, yes & ill))
        return {
            "score": score,
            "accuracy": figure(tn + tp, len(scores)),
            "balanced_accuracy": figure(tp * (tn + fp) + tn * (tp + fn), 2 * (tp + fn) * (tn + fp)),
            "precision": figure(tp, tp + fp),
            "recall": figure(tp, tp + fn),
            "specificity": figure(tn, tn + fp),
            "f1": figure(2 * tp, 2 * tp + fp + fn),
            "confusion": [[tn, fp], [fn, tp]],
        }

    at_zero = point(0.0)
    by_class = {name: {"no": at_zero["specificity"], "yes": at_zero[name]} for name in ("precision", "recall", "f1")}
    shared = {name: at_zero[name] for name in ("accuracy", "balanced_accuracy", "specificity", "confusion")}
    return shared | by_class | {"majority": figure(9, 10), "points": [point(score) for score in edges]}


RNG = np.random.default_rng(5)
ILL = RNG.random(4000) < 0.1
SCORES = RNG.normal(np.where(ILL, -1.2, -3.2), 1.0)
EVALUATION = evaluation_of(SCORES, ILL)


def best(figure: str) -> float:
    return float(max(EVALUATION["points"], key=lambda point: point[figure]["estimate"] or 0)["score"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("f2", "threshold 'f2' is no rule; there are balanced, f1, recall=.9, cost=1:20"),
        ("", "threshold '' is no rule"),
        ("none", "is no rule"),
        ("balanced=1", "balanced takes no number"),
        ("prevalence=", "prevalence takes no number"),
        *[(f"recall{value}", "a recall is above 0 and at most 1") for value in ("=2", "=0", "=", "", "=nan", "=.9:.8")],
        *[
            (f"cost{value}", "two numbers above 0, as in cost=1:20")
            for value in ("=1", "=0:0", "=0:1", "=1:inf", "=a:b")
        ],
        *[(f"probability{value}", "a probability is between 0 and 1") for value in ("=0", "=1", "=1e-400", "=x")],
    ],
)
def test_a_text_that_is_no_rule_is_refused_with_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        ThresholdRule.read(text)


def test_a_refusal_repeats_no_character_that_moves_a_cursor() -> None:
    with pytest.raises(InvalidInputError, match=r"threshold '\?\[2J1*' is no rule"):
        ThresholdRule.read("\x1b[2J" + "1" * 90)


@pytest.mark.parametrize(
    "text",
    [
        "balanced",
        "f1",
        "recall=0.9",
        "cost=1:20",
        "probability=0.110000000001",
        "probability=0.9999999999999999",
        "prevalence",
    ],
)
def test_a_rule_is_written_as_it_is_read(text: str) -> None:
    assert str(ThresholdRule.read(text)) == text


@pytest.mark.parametrize(
    ("study", "rule", "why"),
    [
        (study_of(REAL), "balanced", "a threshold is for two classes, and 'rate' is a number"),
        (
            study_of(Label(name="k", values=("a", "b", "c"))),
            "probability=.1",
            "a model of 'k' has a score for each of 3",
        ),
        (study_of(loss=SoftmaxLoss()), "f1", "a model of 'ill' has a score for each of 2"),
        (study_of(loss=HingeLoss()), "probability=.1", "the loss 'hinge' has no probabilities: take a rule"),
        (study_of(Label(name="ill", values=("no", "yes"))), "prevalence", "does not state the classes' shares"),
    ],
)
def test_a_rule_that_does_not_fit_the_study_is_refused(study: Study, rule: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        ThresholdRule.read(rule).check(study)
    assert why in str(chosen_threshold(rule, study, EVALUATION).unmet)


def test_rules_choose_the_best_threshold_of_an_evaluation() -> None:
    scores = {rule: chosen_threshold(rule, study_of(), EVALUATION).score for rule in ("balanced", "f1", "recall=.9")}
    assert scores == {"balanced": best("balanced_accuracy"), "f1": best("f1"), "recall=.9": -3.0}
    assert best("balanced_accuracy") < best("f1") < 0
    recalls = {point["score"]: point["recall"]["estimate"] for point in EVALUATION["points"]}
    assert recalls[-3.0] >= 0.9 > recalls[-2.5]
    assert chosen_threshold("recall=.97", study_of(), EVALUATION).score == -3.5
    costs = [chosen_threshold(f"cost=1:{missed}", study_of(), EVALUATION).score for missed in (0.1, 1, 5, 1000)]
    assert chosen_threshold("cost=2e307:1e308", study_of(), EVALUATION).score == costs[2], "their ratio counts"
    assert costs == sorted(costs, reverse=True)
    assert (costs[0], costs[-1]) == (0.5, -4.0)
    threshold = chosen_threshold("recall=.9", study_of(), EVALUATION)
    assert threshold.model_dump() == {"rule": "recall=0.9", "score": -3.0, "estimated": True}


def test_of_equal_thresholds_the_one_nearest_to_0_is_chosen() -> None:
    alike = evaluation_of(np.array([-9.0, 9.0]), np.array([False, True]))
    assert {chosen_threshold(rule, study_of(), alike).score for rule in ("balanced", "f1", "cost=1:2")} == {0.0}
    assert chosen_threshold("recall=1", study_of(), alike).score == 1.0


def test_public_rules_need_no_evaluation() -> None:
    for rule in ("probability=.1", "prevalence"):
        threshold = chosen_threshold(rule, study_of(), None)
        assert (threshold.estimated, threshold.unmet) == (False, None)
        assert threshold.score == pytest.approx(math.log(1 / 9))
    assert chosen_threshold("probability=.5", study_of(), None).score == 0.0


def test_probabilities_are_of_the_population_without_class_weights() -> None:
    weights = {"no": 0.25, "yes": 1.0}
    threshold = chosen_threshold("probability=.1", study_of(), None, weights)
    assert threshold.score == pytest.approx(math.log(1 / 9) + math.log(4))
    told = document("probability=.1") | {"class_weights": weights, "threshold": threshold.model_dump()}
    assert "(a probability of 0.1)" in threshold_in_words(told)[0]
    assert chosen_threshold("f1", study_of(), EVALUATION, weights).score == best("f1")
    for odd in ({}, {"no": 0.0}, {"yes": 1.0, "other": 0.5}):
        assert chosen_threshold("probability=.5", study_of(), None, odd).score == 0.0


def test_without_an_evaluation_that_tells_enough_0_is_the_threshold_and_the_reason_is_stated() -> None:
    unknown = evaluation_of(SCORES, np.zeros_like(ILL))
    for rule, evaluation, why in (
        ("balanced", None, "the model has no evaluation yet to choose by"),
        ("f1", {"recall": None}, "figures at no threshold: an earlier Parley made it"),
        ("f1", {"points": []}, "noise hides one of the two classes, so that it has figures at no threshold: a larger"),
        ("recall=1", EVALUATION, "the largest recall that was estimated is 0.9"),
        ("balanced", unknown, "leaves no estimate of balanced accuracy at any threshold"),
        ("recall=.5", unknown, "leaves no estimate of recall at any threshold"),
        ("recall=1", {"points": [{"score": 0.0, "recall": {"estimate": 0.99999}}]}, "was estimated is 0.999, not 1"),
    ):
        threshold = chosen_threshold(rule, study_of(), evaluation)
        assert threshold.score == 0.0
        assert why in str(threshold.unmet)


def document(rule: str | None, evaluation: dict[str, Any] | None = None) -> dict[str, Any]:
    threshold = rule and chosen_threshold(rule, study_of(), evaluation).model_dump(mode="json")
    return document_of(study_of(), weights=[3.0, -3.5], evaluation=evaluation, threshold=threshold)


def test_figures_are_those_at_the_threshold() -> None:
    assert at_threshold(document(None)) is None
    for without in (document(None, EVALUATION), document("probability=.5", EVALUATION)):
        assert at_threshold(without) == EVALUATION
    (point,) = [point for point in EVALUATION["points"] if point["score"] == -3.0]
    for rule in ("recall=.9", "probability=.05"):
        shown = at_threshold(document(rule, EVALUATION))
        assert shown is not None
        assert shown["recall"] == {"no": point["specificity"], "yes": point["recall"]}
        assert (shown["precision"], shown["f1"]) == ({"yes": point["precision"]}, {"yes": point["f1"]})
        assert (shown["confusion"], shown["accuracy"]) == (point["confusion"], point["accuracy"])
        assert (shown["majority"], shown["points"]) == (EVALUATION["majority"], EVALUATION["points"])
    older = {name: value for name, value in EVALUATION.items() if name != "points"}
    assert at_threshold(document("probability=.05", older)) == older


def test_figures_at_0_are_those_that_were_counted_also_of_a_threshold_nearest_to_it() -> None:
    points = [point | {"accuracy": figure(1, 3)} if point["score"] == 0 else point for point in EVALUATION["points"]]
    evaluation = EVALUATION | {"points": points}
    for rule in (None, "probability=.5", "probability=.51"):
        assert at_threshold(document(rule, evaluation)) == evaluation, rule


def test_a_threshold_is_told_in_words() -> None:
    assert threshold_in_words(document(None)) == []
    assert threshold_in_words(document("recall=.9", EVALUATION)) == [
        "'yes' is predicted where the score exceeds -3 (a probability of 0.0474), by the rule recall=0.9",
        OPTIMISM,
    ]
    assert threshold_in_words(document("probability=.05", EVALUATION))[1:] == [
        "The figures are those at -3 (a probability of 0.0474), the nearest that was evaluated"
    ]
    assert "those at a score of 0" in threshold_in_words(document("probability=.05", {"rows": 1}))[1]
    assert threshold_in_words(document("f1")) == [
        "The rule f1 has chosen no threshold: the model has no evaluation yet to choose by",
        "'yes' is predicted where the score exceeds 0 (a probability of 0.5)",
    ]


def test_labels_follow_the_threshold_and_probabilities_do_not() -> None:
    records = [{"x": value} for value in (0.0, 0.5, 0.8, 1.0)]
    at_zero, rare = predict(document(None), records), predict(document("probability=.1"), records)
    assert [row["label"] for row in at_zero] == ["no"] * 4
    assert [row["label"] for row in rare] == ["yes" if row["probability"] > 0.1 else "no" for row in rare]
    assert len({row["label"] for row in rare}) == 2
    assert [row | {"label": ""} for row in rare] == [row | {"label": ""} for row in at_zero]
    exactly = document(None) | {"threshold": {"rule": "f1", "score": rare[2]["score"], "estimated": True}}
    assert predict(exactly, records)[2]["label"] == "no", "a score has to exceed the threshold"


def test_a_threshold_changes_no_signed_digest_and_is_refused_where_it_means_nothing() -> None:
    assert read_document(document(None)).digests == read_document(document("probability=.1")).digests
    threshold = {"rule": "f1", "score": 1.0, "estimated": True}
    for other in (document_of(study_of(REAL)), document_of(study_of(loss=SoftmaxLoss()))):
        with pytest.raises(InvalidInputError, match="only a model of one score of two classes has a threshold"):
            read_document(other | {"threshold": threshold})
    for wrong in (math.nan, math.inf, None, "1"):
        with pytest.raises(InvalidInputError, match="threshold"):
            read_document(document(None) | {"threshold": threshold | {"score": wrong}})


def test_the_card_and_the_command_say_where_the_model_says_yes(tmp_path: Path) -> None:
    words = "is predicted where the score exceeds -2.197 (a probability of 0.1), by the rule probability=0.1"
    assert words in model_card(document("probability=.1"), None).replace("\\", "")
    (tmp_path / "model.json").write_text(json.dumps(document("probability=.1")))
    (tmp_path / "rows.csv").write_text("x\n0\n1\n")
    done = CliRunner().invoke(learner_app, ["predict", str(tmp_path / "model.json"), str(tmp_path / "rows.csv")])
    assert done.stdout == "row,prediction\n1,no\n2,yes\n"
    assert words in done.stderr
