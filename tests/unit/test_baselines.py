"""What a simulation is measured by: the majority, all data pooled, each owner alone, the best at the same budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parley.common.algorithms import REGISTRY, AlgorithmRegistry, settle
from parley.common.data.shard import Shard
from parley.common.data.study import StudyKind
from parley.common.learning.losses import Hinge, Logistic, Loss, Squared
from parley.common.privacy.events import NonPrivateEvent
from parley.common.protocol.facts import FederationFacts
from parley.learner.cli.display import beside
from parley.learner.experiments import baselines as module
from parley.learner.experiments.baselines import BASELINES, Baseline, Baselines, Score, Split, baselines, constant
from parley.learner.experiments.datasets import deal
from parley.learner.experiments.simulation import SimulationSettings, run_simulation


def split(loss: Loss, y: np.ndarray[tuple[int], np.dtype[np.float64]], k: int = 2, epsilon: float = 5.0) -> Split:
    """Rows whose first number is the label, but for half of the second party's."""
    n = len(y)
    X = np.stack([0.3 * y, np.full(n, 0.9)], axis=1)
    train, test = Shard(X, y), Shard(X, y)
    sizes = (n // k,) * k
    facts = FederationFacts.uniform(np.array(sizes), epsilon=epsilon, delta=1e-5, n_features=2, loss=loss)
    return deal(train, sizes), test, facts


FEW = ("dp_gd", "pooled", "local")
LABELS = np.where(np.arange(400) % 4 == 0, 1.0, -1.0)


@pytest.mark.slow
def test_the_majority_is_the_training_examples_commonest_class() -> None:
    told = baselines([split(Logistic(), LABELS)], "binary")
    assert told.figures["majority"] == 0.75
    assert told.figures["pooled"] == told.figures["alone"] == told.figures["alone_worst"] == 1.0
    assert told.repeat == 1
    train, _, facts = split(Logistic(), LABELS)
    other = Shard(np.full((10, 2), 0.5), np.ones(10))
    assert baselines([(train, other, facts)], "binary").figures["majority"] == 0


@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_a_constant_is_measured_on_rows_that_were_not_dropped(kind: StudyKind) -> None:
    train, test, _ = split(Logistic(), LABELS)
    X, y = np.concatenate([test.X, np.zeros((1600, 2))]), np.concatenate([LABELS, np.ones(1600)])
    mostly_dropped = Shard(X, y)
    assert constant(mostly_dropped, mostly_dropped, kind) == constant(train, test, kind)


@pytest.mark.slow
def test_a_real_label_is_measured_by_r_squared_against_the_mean() -> None:
    told = baselines([split(Squared(), np.linspace(-1, 1, 400))], "regression")
    assert told.figures["majority"] == pytest.approx(0, abs=1e-6)
    assert told.figures["pooled"] == pytest.approx(1, abs=0.01)
    assert told.best_value > 0.5


@pytest.mark.slow
def test_an_owner_alone_may_do_badly_and_the_worst_is_told() -> None:
    y = np.concatenate([np.ones(200), LABELS[:200]])
    told = baselines([split(Logistic(), y)], "binary")
    worst, mean = told.figures["alone_worst"], told.figures["alone"]
    assert worst is not None
    assert mean is not None
    assert worst < mean < 1.0 == told.figures["pooled"]


def test_stacks_of_all_parties_models_are_not_tried_for_many_parties(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test, facts = split(Logistic(), LABELS, k=40)
    few = [(train, test, replace(facts, secure_sum=True))]
    told = module._tried("multilevel_feature", few, "binary"), module._tried("dp_gd", few, "binary")
    assert all(told)
    monkeypatch.setattr(module, "_MOST_CARRIED", 40 * 40 * 2 - 1)  # a model for each of 40, from each of 40
    assert not module._tried("multilevel_feature", few, "binary")
    assert module._tried("dp_gd", few, "binary") == told[1]


@pytest.mark.slow
def test_the_best_is_private_and_needs_no_curator() -> None:
    train, test, facts = split(Logistic(), LABELS, epsilon=100.0)
    told = baselines([(train, test, facts)], "binary")
    algorithm, _ = settle(told.best, {}, facts)
    assert not algorithm.curator
    assert not isinstance(algorithm.event(1, facts.of(0)), NonPrivateEvent)
    assert told.best_value >= 0.75
    assert {"pooled", "local", "gop"} <= set(REGISTRY)


@pytest.mark.slow
def test_what_hides_whole_parties_is_measured_by_what_does_too() -> None:
    train, test, facts = split(Logistic(), LABELS, k=20)
    told = baselines([(train, test, facts)], "binary", "whole_party")
    assert told.best == "parameter_average", "the ensembles need public rows"
    assert told.best_value < baselines([(train, test, facts)], "binary").best_value == 1.0
    assert told.figures["pooled"] == 1.0


@pytest.mark.slow
def test_where_nothing_that_hides_whole_parties_can_be_trained_the_best_of_all_is_told() -> None:
    assert baselines([split(Hinge(), LABELS)], "binary", "whole_party").best_value > 0.5


@pytest.mark.slow
def test_an_ensembles_run_is_the_best_unless_another_that_hides_whole_parties_is() -> None:
    settings = SimulationSettings("digits", algorithm="ensemble_vote", parties=100, epsilon=5.0, repeat=1)
    told = run_simulation(settings, with_baselines=True).baselines
    assert told is not None
    assert told.best in {"ensemble_vote", "ensemble_soft", "parameter_average"}


@pytest.mark.slow
def test_what_cannot_be_trained_on_the_loss_is_left_out() -> None:
    told = baselines([split(Hinge(), LABELS)], "binary")
    assert {name for name, value in told.figures.items() if value is None} == {"pooled", "alone", "alone_worst"}
    line = beside(told, "binary")
    assert line.startswith("beside it, over 1 repetition: the majority 0.7500, best at this budget, ")


def test_a_baseline_from_elsewhere_is_shown_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BASELINES, "_entries", dict(BASELINES._entries))
    monkeypatch.setattr(module, "REGISTRY", AlgorithmRegistry(**{n: REGISTRY._entries[n] for n in FEW}))  # type: ignore[arg-type]
    BASELINES.add("chance", Baseline("a coin", lambda trials: Score(0.5, 0.5) if trials.kind == "binary" else None))
    measured = baselines([split(Logistic(), LABELS)], "binary")
    assert measured.to_json().keys() - Baselines(1, {}, "dp_gd", 0.0).to_json().keys() == {*BASELINES}
    assert ", a coin 0.5000 (AUC 0.5000), best at this budget, " in beside(measured, "binary")


@pytest.mark.slow
def test_they_are_told_with_a_simulation_from_its_first_splits() -> None:
    settings = SimulationSettings("simulated", repeat=7, seed=3)
    result = run_simulation(settings, with_baselines=True)
    assert isinstance(result.baselines, Baselines)
    assert result.baselines.repeat == 5
    document = json.loads(json.dumps(result.to_json()))
    assert document["baselines"] == result.baselines.to_json()
    assert document["chosen"]["step"] == {"value": result.choices["step"].value, "why": result.choices["step"].why}
    assert run_simulation(settings).to_json()["baselines"] is None
    assert "the mean 0.1000" in beside(Baselines(1, {"majority": 0.1}, "dp_gd", 0.8), "regression")


@pytest.mark.slow
def test_a_table_of_ones_own_is_compared_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [(x, "yes" if x + rng.normal(0, 10) > 50 else "no") for x in rng.uniform(0, 100, 300).round(2).tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *(f"{x},{y}" for x, y in rows)]))
    study = {"format": "parley-study-2", "name": "t", "features": [{"name": "x", "lower": 0, "upper": 100}]}
    (tmp_path / "t.json").write_text(json.dumps(study | {"label": {"name": "y", "values": ["no", "yes"]}}))
    result = run_simulation(
        SimulationSettings(str(tmp_path / "t.csv"), tmp_path / "t.json", repeat=2, parties=3), with_baselines=True
    )
    assert result.baselines is not None
    assert result.accuracy.mean > (result.baselines.figures["majority"] or 1)


# ── with few algorithms, so that each test is quick ──────────────────────────


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The algorithms that a run is compared with are few, and one of them hides whole parties."""
    names = (*FEW, "describe", "parameter_average")
    registry = AlgorithmRegistry(**{name: REGISTRY._entries[name] for name in names})  # type: ignore[arg-type]
    monkeypatch.setattr(module, "REGISTRY", registry)


def two_splits() -> list[Split]:
    """One split whose first owner has only one class, and one whose test examples have."""
    y = np.concatenate([np.ones(200), LABELS[:200]])
    train, _, facts = split(Logistic(), LABELS)
    return [split(Logistic(), y), (train, Shard(np.full((10, 2), [-0.3, 0.9]), -np.ones(10)), facts)]


@pytest.mark.usefixtures("few")
def test_each_figure_is_a_mean_over_splits_and_owners() -> None:
    found = baselines(two_splits(), "binary")
    (first, _), (second, _) = (module._tried("local", [each], "binary")[0] for each in two_splits())
    of_splits = module._tried("local", two_splits(), "binary")
    assert [len(owners) for owners in of_splits] == [2, 2]
    assert first.value < second.value == 1.0
    values = [[score.value for score in owners] for owners in of_splits]
    assert found.repeat == 2
    assert list(found.figures) == ["majority", "pooled", "alone", "alone_worst"]
    assert found.figures["majority"] == (0.625 + 1.0) / 2
    assert found.figures["pooled"] == 1.0
    assert found.figures["alone"] == (sum(values[0]) / 2 + sum(values[1]) / 2) / 2
    assert found.figures["alone_worst"] == (min(values[0]) + min(values[1])) / 2
    assert found.best == "dp_gd"
    assert found.best_value == module._tried("dp_gd", two_splits(), "binary")[0][0].value / 2 + 0.5
    assert found.auc.keys() == {"pooled", "alone", "best"}
    assert found.auc["pooled"] == 1.0
    assert (found.contends, found.best_is_run) == (True, False)


@pytest.mark.usefixtures("few")
def test_what_hides_whole_parties_is_compared_with_what_does_too_or_with_all() -> None:
    one = [split(Logistic(), LABELS, k=4)]
    assert baselines(one, "binary", "whole_party").best == "parameter_average"
    assert baselines(one, "binary").best == "dp_gd"


@pytest.mark.usefixtures("few")
def test_a_real_label_has_r_squared_and_no_auc() -> None:
    found = baselines([split(Squared(), np.linspace(-1, 1, 40))], "regression")
    assert found.figures["majority"] == pytest.approx(0.0)
    assert found.figures["pooled"] == pytest.approx(1.0, abs=0.05)
    assert found.auc == {}
    assert next(found.rows("regression"))[0] == "the mean"


def test_a_constant_is_the_commonest_class_or_the_mean_of_training_examples() -> None:
    X = np.full((4, 1), 0.5)
    train, test = Shard(X, np.array([1.0, 1.0, -1.0, 1.0])), Shard(X, np.array([1.0, -1.0, -1.0, -1.0]))
    assert constant(train, test, "binary") == 0.25
    assert constant(train, test, "regression") == pytest.approx(1 - 1.75 / 0.75)
    assert constant(test, test, "regression") == pytest.approx(0.0)
    low = Shard(X, np.array([0.0, 0.0, 0.2, 0.2]))
    high = Shard(X, np.array([0.1, 0.3, 0.3, 0.5]))
    assert constant(low, high, "regression") == pytest.approx(1 - 0.06 / 0.02, rel=1e-3)


def test_each_person_counts_once_in_a_constant() -> None:
    """Six rows of one person, who is positive, against one of each of two others."""
    y = np.array([1.0] * 6 + [-1.0, -1.0])
    persons = Shard(np.full((8, 1), 0.5), y, begins=np.array([True, *[False] * 5, True, True]))
    rows = Shard(persons.X, y)
    assert constant(rows, rows, "binary") == 0.75
    assert constant(persons, persons, "binary") == pytest.approx(2 / 3, abs=1e-4)
    assert constant(persons, rows, "regression") == pytest.approx(1 - ((5 / 6) ** 2 + 3 / 4) / (3 / 4), abs=1e-3)


def test_a_mean_score_leaves_out_splits_without_an_auc() -> None:
    scores = [[Score(0.5, None), Score(1.0, 0.6)], [Score(0.0, None)], [Score(0.25, 0.8), Score(0.25, 0.9)]]
    assert module._mean_score(scores) == pytest.approx((1.0 / 3, (0.6 + 0.85) / 2))
    assert module._mean_score(scores[1:2]) == Score(0.0, None)
    assert module._mean_score([]) is None


def test_figures_are_a_document_beside_the_best() -> None:
    figures = {"majority": 0.6, "pooled": None}
    found = Baselines(3, figures, "psgd", 0.8, {"best": 0.9})
    assert found.to_json() == {
        "repeat": 3, "majority": 0.6, "pooled": None, "best": "psgd", "best_value": 0.8, "auc": {"best": 0.9},
        "contends": True, "best_is_run": False,
    }  # fmt: skip
    assert list(found.rows("binary")) == [("the majority", 0.6, None), ("best at this budget, psgd", 0.8, 0.9)]


def test_a_run_that_does_as_well_is_the_best() -> None:
    found = Baselines(3, {}, "psgd", 0.8, {"pooled": 0.7, "best": 0.9})
    same = found.beside_run("dp_gd", {"accuracy": 0.8}, contends=True, is_open=False)
    assert (same.best, same.best_value, same.best_is_run, same.auc) == ("dp_gd", 0.8, True, found.auc)
    real = found.beside_run("dp_gd", {"r_squared": 0.85, "rmse": 3.0, "auc": 0.5}, contends=True, is_open=False)
    assert (real.best_value, real.auc) == (0.85, {"pooled": 0.7, "best": 0.5})
    assert found.beside_run("dp_gd", {}, contends=True, is_open=True) == found


def test_algorithms_that_carry_more_than_the_most_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, facts = split(Logistic(), LABELS, k=4)
    algorithm, _ = settle("dp_gd", {}, facts)
    questions = algorithm.questions(facts)
    carried = sum(int(np.prod(question.message)) + question.answer for question in questions)
    for most, is_long in ((carried, False), (carried - 1, True)):
        monkeypatch.setattr(module, "_MOST_CARRIED", most)
        assert module._takes_long(algorithm, facts) == is_long
    train, test, _ = split(Logistic(), LABELS, k=4)
    assert module._tried("dp_gd", [(train, test, facts)], "binary") == []
    assert module._tried("psgd", [split(Squared(), LABELS)], "regression") == []


def test_each_split_has_noise_of_its_own() -> None:
    one = split(Logistic(), np.tile([1.0, -1.0, -1.0, -1.0], 5), epsilon=0.3)
    (first,), (second,) = module._tried("dp_gd", [one, one], "binary")
    assert first != second
    assert module._tried("dp_gd", [one], "binary") == [[first]]


@pytest.mark.parametrize(
    ("answer", "most", "is_long"),
    [(20, 39, True), (20, 40, False), (1999, 4000, False), (2000, 200_000, False), (2000, 199_999, True)],
)
def test_only_answers_as_long_as_all_parties_models_make_stacks(
    answer: int, most: int, monkeypatch: pytest.MonkeyPatch, *, is_long: bool
) -> None:
    question = SimpleNamespace(message=(4, 5), answer=answer)
    algorithm: Any = SimpleNamespace(questions=lambda _: [question] if answer != 2000 else [question, question])
    facts: Any = SimpleNamespace(parties=range(100), n_weights=20)
    monkeypatch.setattr(module, "_MOST_CARRIED", most)
    assert module._takes_long(algorithm, facts) == is_long
    nothing: Any = SimpleNamespace(questions=lambda _: [])
    assert not module._takes_long(nothing, facts)


@pytest.mark.usefixtures("few")
def test_what_hides_whole_parties_may_be_the_best_for_records_too(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"pooled": 1.0, "local": 0.8, "dp_gd": 0.6, "parameter_average": 0.7}
    monkeypatch.setattr(module, "_tried", lambda name, *_: [[Score(scores[name], None)]])
    found = baselines([split(Logistic(), LABELS)], "binary")
    assert (found.best, found.best_value, found.auc) == ("parameter_average", 0.7, {})
    assert found.figures == {"majority": 0.75, "pooled": 1.0, "alone": 0.8, "alone_worst": 0.8}
    (*_, best) = replace(found, best_is_run=True, contends=False).rows("binary")
    assert best == ("best at this budget of what is private without a curator, this run", 0.7, None)
