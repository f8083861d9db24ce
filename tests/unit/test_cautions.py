"""What a simulation says of rows that a study drops, of classes that are rare, and of the best at a budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study, StudyKind
from parley.learner.cli.display import beside
from parley.learner.cli.main import learner_app
from parley.learner.experiments.baselines import Baselines
from parley.learner.experiments.simulation import SimulationSettings, no_better_than_a_constant, run_simulation

N = 1000


def simulated(folder: Path, *words: str, missing: float, positive: float) -> Result:
    """The command on a table in which shares of rows miss a number, and are positive; another number tells which."""
    rng = np.random.default_rng(1)
    rows = [
        (round(50 + 25 * ill + spread, 1), "" if lost else 3, ("no", "yes")[ill])
        for ill, spread, lost in zip(
            (rng.random(N) < positive).astype(int).tolist(),
            rng.uniform(-25, 25, N).tolist(),
            (np.arange(N) < missing * N).tolist(),
            strict=True,
        )
    ]
    features = (Feature(name="marker", lower=0, upper=100), Feature(name="late", lower=0, upper=9))
    study = Study(name="ills", missing="drop", features=features, label=Label(name="ill", values=("no", "yes")))
    (folder / "t.csv").write_text("\n".join(["marker,late,ill", *(",".join(map(str, row)) for row in rows)]))
    (folder / "t.json").write_text(study.model_dump_json())
    source = ("--data", str(folder / "t.csv"), "--study", str(folder / "t.json"))
    return CliRunner().invoke(learner_app, ["simulate", *source, "--repeat", "2", "--no-baselines", *words])


def told(result: Result) -> Any:  # noqa: ANN401 -- a document
    """The JSON that a command printed."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_most_rows_dropped_is_a_warning_with_counts(tmp_path: Path) -> None:
    shown = simulated(tmp_path, missing=0.9, positive=0.5)
    assert "  900 of the table's 1,000 rows miss a value and are empty ones" in shown.stdout.splitlines()
    assert "warning: 900 of 1,000 rows (90.00%) miss a value and are empty ones" in shown.stderr
    assert "most often missing: late in 900" in shown.stderr
    found = told(simulated(tmp_path, "--format", "json", missing=0.9, positive=0.5))
    assert (found["n_rows"], found["n_dropped"]) == (1000, 900)
    assert "900 of 1,000 rows" in found["warnings"][0]


def test_few_rows_dropped_are_a_line(tmp_path: Path) -> None:
    shown = simulated(tmp_path, missing=0.1, positive=0.5)
    assert "100 of the table's 1,000 rows miss a value" in shown.stdout
    assert "miss a value" not in shown.stderr
    assert "miss a value" not in simulated(tmp_path, missing=0, positive=0.5).output


def test_of_rare_positives_the_auc_tells_and_the_majority_is_named(tmp_path: Path) -> None:
    words = ("--epsilon", "0.05", "--reveal", "sum")
    shown = simulated(tmp_path, *words, missing=0, positive=0.09)
    assert "better than predicting the commonest class for all, 0.9" in shown.stderr
    assert "look at the AUC" in shown.stderr
    found = told(simulated(tmp_path, *words, "--format", "json", missing=0, positive=0.09))
    assert f"; AUC {found['auc']['mean']:#.4g}, sd " in shown.stdout
    assert found["accuracy"]["mean"] <= found["constant"] + 0.005
    assert len(found["warnings"]) == 1
    fair = told(simulated(tmp_path, "--epsilon", "50", "--format", "json", missing=0, positive=0.5))
    assert fair["warnings"] == []
    assert fair["auc"]["mean"] > 0.85


def test_an_auc_is_of_repetitions_that_test_on_both_classes(tmp_path: Path) -> None:
    found = told(simulated(tmp_path, "--format", "json", missing=0, positive=0))
    assert "auc" not in found
    assert len(found["accuracy"]["values"]) == 2
    assert "auc" not in run_simulation(SimulationSettings("digits", repeat=1)).to_json()


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("binary", 0.90, "no better than predicting the commonest class for all, 0.9100: look at the AUC"),
        ("binary", 0.91, "no better than predicting the commonest class for all, 0.9100: look at the AUC"),
        ("multiclass", 0.914, "hardly better than predicting the commonest class for all, 0.9100"),
        ("regression", 0.5, "no better than predicting the mean for all, 0.9100"),
        ("binary", 0.92, None),
    ],
)
def test_no_better_than_a_constant_is_said_in_words(kind: StudyKind, value: float, words: str | None) -> None:
    said = no_better_than_a_constant(kind, value, 0.91)
    assert said is None if words is None else said is not None and said.startswith(words)
    assert ("AUC" in (said or "")) == (kind == "binary" and words is not None)


@pytest.mark.slow
@pytest.mark.parametrize(("upper", "times"), [(100, 0), (100_000, 1)])
def test_bounds_far_too_wide_are_pointed_at_where_all_data_pooled_learn_nothing(
    tmp_path: Path, upper: int, times: int
) -> None:
    rng = np.random.default_rng(1)
    lines = [f"{value:.1f},{('no', 'yes')[int(value + rng.normal() > 50)]}" for value in rng.uniform(30, 70, 400)]
    study = Study(
        name="ills",
        features=(Feature(name="marker", lower=0, upper=upper),),
        label=Label(name="ill", values=("no", "yes")),
        row_norm="largest",
    )
    (tmp_path / "t.csv").write_text("\n".join(["marker,ill", *lines]))
    (tmp_path / "t.json").write_text(study.model_dump_json())
    words = ["simulate", "--data", str(tmp_path / "t.csv"), "--study", str(tmp_path / "t.json"), "--parties", "2"]
    result = CliRunner().invoke(learner_app, [*words, "--algorithm", "dp_gd", "--epsilon", "100"])
    assert result.exit_code == 0
    assert " ".join(result.output.split()).count("or the study's bounds are far wider") == times


FIGURES = {"majority": 0.6, "pooled": 0.9, "alone": 0.7, "alone_worst": 0.5}
TRIED = Baselines(5, FIGURES, "dp_gd", 0.7976, {"best": 0.85})


@pytest.mark.parametrize(
    ("name", "own", "is_open", "is_run"),
    [
        ("dp_gd", 0.8010, True, True),
        ("dp_gd", 0.7950, True, True),
        ("dp_gd", 0.7950, False, False),
        ("psgd", 0.8010, False, True),
        ("psgd", 0.7950, True, False),
    ],
)
def test_the_best_at_a_budget_is_never_below_the_run(name: str, own: float, *, is_open: bool, is_run: bool) -> None:
    found = TRIED.beside_run(name, {"accuracy": own, "auc": 0.88}, contends=True, is_open=is_open)
    assert (found.best_is_run, found.best) == (is_run, name if is_run else "dp_gd")
    expected = f"this run {own:.4f} (AUC 0.8800)" if is_run else "dp_gd 0.7976 (AUC 0.8500)"
    assert beside(found, "binary").endswith(f"best at this budget, {expected}")
    assert found.best_value >= own or not is_open or name != "dp_gd"


def test_a_run_that_trusts_a_curator_is_set_apart_from_the_best() -> None:
    found = TRIED.beside_run("gop", {"accuracy": 0.89}, contends=False, is_open=True)
    assert (found.best, found.best_is_run) == ("dp_gd", False)
    assert "best at this budget of what is private without a curator, dp_gd 0.7976" in beside(found, "binary")


@pytest.mark.slow
def test_a_simulated_run_is_beside_itself_as_the_best() -> None:
    simulation = run_simulation(SimulationSettings("wdbc", repeat=2, seed=5), with_baselines=True)
    assert simulation.baselines is not None
    assert simulation.baselines.best_value >= simulation.accuracy.mean
    assert simulation.baselines.auc["pooled"] > 0.98
    assert set(simulation.baselines.auc) == {"pooled", "alone", "best"}
