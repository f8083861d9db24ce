"""What a simulation is measured by: the majority, all data pooled, each owner alone, the best at the same budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

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
