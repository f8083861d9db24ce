"""Simulation in one process: its random streams, its two ways to add noise, and the accuracies that the project claims.

All runs are seeded, so nothing here can fail by chance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import numpy as np
import pytest
from typer.testing import CliRunner

import parley.learner.experiments.baselines as baseline_module
import parley.learner.experiments.simulation as module
from parley.common.algorithms import REGISTRY
from parley.common.data.columns import Category, Feature, Label, RealLabel, SparseFeatures
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import Person, Study
from parley.common.errors import InvalidInputError
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.algorithm import Choice
from parley.learner.cli.display import measured
from parley.learner.cli.main import learner_app
from parley.learner.experiments.baselines import Baselines
from parley.learner.experiments.datasets import WDBC, Dataset, examples, load_dataset, simulated, wdbc_columns
from parley.learner.experiments.simulation import (
    Metric,
    SimulationResult,
    SimulationSettings,
    deal_repetition,
    run_simulation,
)

DIGITS_DESCENT = {"n_rounds": 50, "step": 4.0, "regularization": 1e-4}
SPREAD = 5.0
"""The standard deviation of what no feature explains of a dose, in milligrams."""
SIMULATED = SimulationSettings("simulated", epsilon=0.1, delta=0.05, repeat=30, seed=7)


@pytest.fixture(scope="module")
def doses(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A table of 2,000 patients' doses, and its study: 3 mg a year above 50, less 40 mg for one of two sexes."""
    folder = tmp_path_factory.mktemp("doses")
    rng = np.random.default_rng(3)
    age, sex = rng.uniform(20, 80, 2000).round(1), rng.integers(0, 2, 2000)
    dose = 200 + 3 * (age - 50) - 40 * sex + rng.normal(0, SPREAD, 2000)
    table, study = folder / "doses.csv", folder / "study.json"
    rows = zip(age.tolist(), np.array(["m", "f"])[sex].tolist(), dose.round(2).tolist(), strict=True)
    table.write_text("\n".join(["age,sex,dose", *(",".join(map(str, row)) for row in rows)]))
    features = (Feature(name="age", lower=20, upper=80), Category(name="sex", values=("m", "f")))
    study.write_text(
        Study(name="doses", features=features, label=RealLabel(name="dose", lower=0, upper=400)).model_dump_json()
    )
    return table, study


def test_dp_gd_on_simulated_data_at_a_tenth() -> None:
    result = run_simulation(SIMULATED)
    print(f"simulated, N = 1000, d = 10, epsilon .1, delta .05, reveal sum: dp_gd {measured(result.metrics)}")
    assert result.accuracy.mean >= 0.90
    promise, *_ = result.guarantees
    assert promise.view == "transcript"
    assert promise.epsilon <= 0.1


@pytest.mark.slow
def test_breast_cancer_at_one_and_what_bounds_and_norms_do() -> None:
    settings = SimulationSettings("wdbc", epsilon=1.0, delta=1e-5, repeat=40, seed=7)
    tight = run_simulation(settings)
    columns = wdbc_columns()
    features = tuple(
        Feature(name=name, lower=float(np.min(columns[name])), upper=float(np.max(columns[name])))
        for name in WDBC.feature_names
    )
    wide = _mean_accuracy(settings, Study(name="wide", features=features, label=WDBC.label))
    largest = _mean_accuracy(settings, Study(name="wide", features=features, label=WDBC.label, row_norm="largest"))
    print(f"wdbc, epsilon 1, delta 1e-5, reveal sum: dp_gd {tight.accuracy.mean:.3f}")
    print(f"the same with bounds that hold every value: {wide:.3f}; not divided by their own norms: {largest:.3f}")
    assert tight.accuracy.mean >= 0.94
    assert tight.accuracy.mean - 0.02 > wide >= 0.88
    assert largest < wide - 0.02


def _mean_accuracy(settings: SimulationSettings, study: Study) -> float:
    """`run_simulation` with another study of the same data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "load_dataset", lambda *_: examples(study, shard_of(study, wdbc_columns(), clip=True)))
        return run_simulation(settings).accuracy.mean


def test_what_a_study_says_about_its_label_scales_a_regression(tmp_path: Path) -> None:
    """Of costs that lie far from the middle of wide bounds, at a small budget."""
    rng = np.random.default_rng(5)
    age = rng.uniform(0, 100, 2000)
    rows = "\n".join(f"{a:.3f},{c:.3f}" for a, c in zip(age, 20 + age / 10 + rng.normal(0, 1, 2000), strict=True))
    (tmp_path / "costs.csv").write_text(f"age,cost\n{rows}\n")

    def reached(**told: float) -> float:
        label = RealLabel(name="cost", lower=0, upper=1000, **told)
        study = Study(name="costs", features=(Feature(name="age", lower=0, upper=100),), label=label)
        (tmp_path / "study.json").write_text(study.model_dump_json())
        settings = SimulationSettings(
            data=str(tmp_path / "costs.csv"), study=tmp_path / "study.json", epsilon=0.3, repeat=3
        )
        return run_simulation(settings).metrics["r_squared"].mean

    assert reached(mean=25, deviation=3) > 0.5
    assert reached() < -1


@pytest.mark.long
def test_each_answers_noise_costs_accuracy_and_promises_the_same() -> None:
    settings = replace(SIMULATED, epsilon=1.0, delta=1e-5)
    total, each = (run_simulation(replace(settings, reveal=reveal)) for reveal in ("sum", "each"))
    print(
        f"simulated, epsilon 1, delta 1e-5: reveal sum {total.accuracy.mean:.3f}, reveal each {each.accuracy.mean:.3f}"
    )
    assert total.accuracy.mean > each.accuracy.mean + 0.02
    (plain,) = each.guarantees
    shared, co_owner = total.guarantees
    assert shared.epsilon == pytest.approx(plain.epsilon)
    assert shared.trust == 0
    assert (co_owner.epsilon > shared.epsilon, co_owner.trust) == (True, 1)
    assert set(plain.assumptions) < set(shared.assumptions), "no secure sum to assume anything of"


def test_the_paper_reports_two_guarantees() -> None:
    result = run_simulation(SimulationSettings("wdbc", algorithm="psgd", repeat=2))
    claimed, honest, *_ = result.guarantees
    assert (claimed.view, claimed.epsilon) == ("model", 1.0)
    assert honest.view == "transcript"
    assert honest.epsilon > 5
    print(f"wdbc, psgd: epsilon {claimed.epsilon:g} claimed of the model, {honest.epsilon:.2f} of the transcript")


@pytest.mark.parametrize("name", ["gop", "pooled"])
def test_a_curators_baseline_is_dealt_to_nobody(name: str) -> None:
    settings = replace(SIMULATED, algorithm=name, repeat=3)
    alone, dealt = (run_simulation(replace(settings, parties=k, skew=s)) for k, s in ((1, 0.0), (15, 1.0)))
    assert alone.metrics == dealt.metrics
    assert alone.guarantees == dealt.guarantees


def test_examples_are_dealt_by_shares_or_at_random() -> None:
    dataset = load_dataset("simulated")

    def sizes(shares: tuple[float, ...] | Literal["random"], repetition: int) -> list[int]:
        _, _, facts = deal_repetition(replace(SIMULATED, parties=3, shares=shares), dataset, repetition)
        own: list[int] = facts.n_examples.tolist()
        return own

    assert sizes((0.01, 0.49, 0.5), 0) == sizes((1, 49, 50), 1) == [10, 490, 500]
    assert sizes("random", 0) == sizes("random", 0) != sizes("random", 1)
    assert sum(sizes("random", 0)) == 1000


def test_repetitions_go_through_the_folds_of_one_order_and_then_of_another() -> None:
    dataset, settings = load_dataset("wdbc"), SimulationSettings("wdbc", folds=5)
    tests = [deal_repetition(settings, dataset, repetition)[1] for repetition in range(10)]
    for once in (tests[:5], tests[5:]):
        assert sum(len(test.y) for test in once) == 569
    first, again = (sorted(tests[place].X.tolist()) for place in (0, 5))
    assert first != again


def test_a_seed_fixes_everything_and_a_repetition_stands_alone() -> None:
    settings = replace(SIMULATED, repeat=3)
    first = run_simulation(settings)
    assert run_simulation(settings) == first
    assert run_simulation(replace(settings, repeat=5)).accuracy.values[:3] == first.accuracy.values
    assert run_simulation(replace(settings, seed=8)).metrics != first.metrics


def test_data_and_noise_come_from_two_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    for_data, for_noise = Mock(wraps=np.random.default_rng), Mock(wraps=SeededNoise)
    with monkeypatch.context() as patch:
        patch.setattr(np.random, "default_rng", for_data)
        patch.setattr(module, "SeededNoise", for_noise)
        run_simulation(replace(SIMULATED, repeat=4))
    seeds = [call.args[0] for call in (*for_data.call_args_list, *for_noise.call_args_list)]
    assert len({tuple(seed) for seed in seeds}) == len(seeds) == 8
    data, noise = (np.random.default_rng(seed).standard_normal(1000) for seed in (seeds[0], seeds[4]))
    assert not np.isin(data, noise).any()


def test_algorithms_see_the_same_data() -> None:
    dataset = simulated(100, 3)
    (mine, test, facts), (theirs, _, _) = (
        deal_repetition(replace(SIMULATED, algorithm=name), dataset, 2) for name in ("dp_gd", "psgd")
    )
    assert (mine.X == theirs.X).all()
    assert facts.n_examples.tolist() == [20] * 5
    assert test.X.shape == (100, 3)


def test_progress_counts_every_repetition() -> None:
    seen: list[tuple[int, int]] = []
    run_simulation(replace(SIMULATED, repeat=3), lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_the_result_is_json() -> None:
    result = run_simulation(replace(SIMULATED, algorithm="pooled", repeat=2))
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["accuracy"]["values"] == list(result.accuracy.values)
    assert document["accuracy"]["mean"] == pytest.approx(sum(document["accuracy"]["values"]) / 2)
    assert document["guarantees"][0]["epsilon"] is None, "no guarantee is null, not Infinity"
    assert (document["n_train"], document["n_test"]) == (1000, 1000)
    assert run_simulation(replace(SIMULATED, repeat=1)).accuracy.sd == 0.0


@pytest.mark.slow
def test_digits_are_told_apart_by_softmax_at_one() -> None:
    settings = SimulationSettings("digits", parameters=DIGITS_DESCENT, delta=1e-6, repeat=3, seed=7)
    result = run_simulation(settings)
    best = run_simulation(replace(settings, algorithm="pooled", parameters={}, repeat=1))
    figures = f"dp_gd {result.accuracy.mean:.3f}, not private {best.accuracy.mean:.3f}"
    print(f"digits, epsilon 1, delta 1e-6, softmax: {figures}")
    assert result.kind == "multiclass"
    assert 0.6 < result.accuracy.mean < best.accuracy.mean
    assert result.guarantees[0].epsilon <= 1


def test_a_real_label_is_measured_in_its_units(doses: tuple[Path, Path]) -> None:
    table, study = doses
    settings = SimulationSettings(str(table), study, "pooled", repeat=4, parties=2)
    exact = run_simulation(settings)
    noisy = run_simulation(replace(settings, algorithm="dp_gd", parameters={"step": 0.5, "n_rounds": 20}))
    print(*(f"{each.settings.algorithm}: {measured(each.metrics)}" for each in (exact, noisy)), sep="\n")
    document = json.loads(json.dumps(noisy.to_json(), allow_nan=False))
    assert (document["kind"], len(document["rmse"]["values"]), len(document["r_squared"]["values"])) == (
        "regression", 4, 4,
    )  # fmt: skip
    assert exact.metrics["rmse"].mean == pytest.approx(SPREAD, rel=0.2), "in milligrams, not in half bounds"
    assert exact.metrics["r_squared"].mean > noisy.metrics["r_squared"].mean > 0.5
    each = run_simulation(replace(settings, algorithm="local"))
    assert each.metrics["rmse"].mean == pytest.approx(SPREAD, rel=0.2), "the mean of the parties' own models"


@pytest.mark.parametrize(
    ("algorithm", "kind", "why"),
    [
        ("psgd", "multiclass", "the algorithm's proof is for a loss of one score, and 'softmax' has one a class"),
        ("gop", "multiclass", "the algorithm's proof is for a loss of one score, and 'softmax' has one a class"),
        ("gop", "regression", "'squared' one record moves it without bound"),
        ("local_average", "regression", "'squared' one record moves it without bound"),
    ],
)
def test_what_an_algorithm_cannot_do_is_refused_before_any_work(
    algorithm: str, kind: str, why: str, doses: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, study = doses
    monkeypatch.setattr(Shard, "parties", lambda *_: pytest.fail("shards are prepared"))
    settings = (
        SimulationSettings("digits", algorithm=algorithm)
        if kind == "multiclass"
        else SimulationSettings(str(table), study, algorithm)
    )
    with pytest.raises(InvalidInputError, match=why):
        run_simulation(settings, lambda *_: pytest.fail("a repetition is done"))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dp_gd", "wu_strongly_convex", "wu_subgradient", "pooled", "local"])
def test_every_other_algorithm_learns_classes_and_real_labels(algorithm: str, doses: tuple[Path, Path]) -> None:
    table, study = doses
    chosen = {"step": 0.5} if algorithm == "dp_gd" else {}  # its default is too long for a curvature of 1
    real = run_simulation(SimulationSettings(str(table), study, algorithm, chosen, repeat=1, epsilon=100))
    digits = run_simulation(SimulationSettings("digits", algorithm=algorithm, repeat=1, epsilon=100))
    print(f"{algorithm}: doses {measured(real.metrics)}; digits {measured(digits.metrics)}")
    assert real.metrics["r_squared"].mean > -1
    assert digits.accuracy.mean > 0.2


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"repeat": 0},
        {"seed": -1},
        {"parties": 0},
        {"parties": 2000},
        {"skew": -1.0},
        {"reveal": "all"},
        {"shares": (0.5, 0.5)},
        {"shares": (1.0, 1.0, 1.0, 1.0, 0.0)},
        {"shares": (1.0, 1.0, 1.0, 1.0, 1e-9)},
        {"shares": "random", "skew": 1.0},
        {"folds": 1},
        {"folds": 5},
        {"algorithm": "magic"},
        {"parameters": {"n_rounds": 0}},
        {"parameters": {"unknown": 1}},
        {"data": "unknown"},
    ],
    ids=str,
)
def test_settings_that_cannot_be_right_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        run_simulation(replace(SIMULATED, **wrong))
    named = next(iter(wrong.get("parameters", wrong)))
    assert named.split("_")[-1] in str(caught.value) or named == "data"


@pytest.mark.parametrize("labelled", [False, True])
def test_public_rows_are_taken_from_the_examples_before_owners_get_theirs(labelled: bool) -> None:  # noqa: FBT001
    train = Shard(np.arange(40.0).reshape(20, 2) / 40, np.tile([-1.0, 1.0], 10))
    public, others = module._set_aside(SimulationSettings(public_rows=3), train, labelled=labelled)
    assert public.tolist() == (np.column_stack([train.X, train.y]) if labelled else train.X)[:3].tolist()
    assert others.X.tolist() == train.X[3:].tolist()
    fifth, _ = module._set_aside(SimulationSettings(), train, labelled=False)
    assert len(fifth) == 4
    with pytest.raises(InvalidInputError, match="public_rows = 20 leaves the parties none of the 20 training examples"):
        module._set_aside(SimulationSettings(public_rows=20), train, labelled=labelled)


# ── results, warnings and refusals to the letter ─────────────────────────────


def test_a_result_says_all_of_its_settings_and_figures(doses: tuple[Path, Path]) -> None:
    table, study = doses
    settings = SimulationSettings(str(table), study, "pooled", repeat=2, parties=3, skew=1.0, reveal="each", seed=4)
    result = run_simulation(settings)
    document = json.loads(json.dumps(result.to_json()))
    (promise,) = result.guarantees
    metrics = {
        name: {"mean": metric.mean, "sd": metric.sd, "values": list(metric.values)}
        for name, metric in result.metrics.items()
    }
    assert metrics.keys() == {"rmse", "r_squared"}
    assert (
        document
        == {
            "data": str(table),
            "study": str(study),
            "algorithm": "pooled",
            "parameters": {},
            "parties": 3,
            "skew": 1.0,
            "reveal": "each",
            "epsilon": 1.0,
            "delta": 1e-5,
            "repeat": 2,
            "seed": 4,
            "public_rows": None,
            "shares": None,
            "folds": None,
            "tables": [],
            "csv": None,
            "colluders": 0,
            "kind": "regression",
            "n_train": 1500,
            "n_test": 500,
            "n_rows": 2000,
            "n_dropped": 0,
            "constant": result.constant,
            "warnings": [],
            "chosen": {name: {"value": each.value, "why": each.why} for name, each in result.choices.items()},
            "baselines": None,
            "guarantees": [promise.to_json() | {"assumptions": list(promise.assumptions)}],
        }
        | metrics
    )
    assert run_simulation(SimulationSettings("simulated", repeat=1)).to_json()["study"] is None


def test_a_metric_is_a_mean_and_a_deviation_of_one_repetition() -> None:
    metric = Metric((1.0, 2.0, 6.0))
    assert metric.to_json() == {"mean": 3.0, "sd": pytest.approx(math.sqrt(7)), "values": [1.0, 2.0, 6.0]}
    assert Metric((3.0,)).sd == 0.0
    assert module._by_name([{"a": 1.0, "b": 2.0}, {"a": 3.0}]) == {"a": Metric((1.0, 3.0)), "b": Metric((2.0,))}
    assert (module.score_of("regression"), module.score_of("binary"), module.score_of("multiclass")) == (
        "r_squared", "accuracy", "accuracy",
    )  # fmt: skip


def test_an_open_algorithm_is_chosen_from_the_facts_of_the_first_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, settings = load_dataset("wdbc"), SimulationSettings(algorithm="auto", parties=3, epsilon=2.5)
    asked: list[Any] = []

    def first(names: object, proposed: Any) -> tuple[str, str]:  # noqa: ANN401 -- a function
        asked.extend([names, proposed("psgd")])
        return "psgd", "it is likely"

    monkeypatch.setattr(module, "most_promising", first)
    chosen, choices = module._with_algorithm(settings, dataset)
    assert chosen == replace(settings, algorithm="psgd")
    assert choices == {"algorithm": Choice("psgd", "it is likely")}
    names, (algorithm, facts, questions) = asked
    assert names is REGISTRY
    assert type(algorithm).__name__ == "Psgd"
    assert (facts.parties, facts.epsilon.tolist(), facts.study) == (("party-1", "party-2", "party-3"), [2.5] * 3, WDBC)
    assert questions == algorithm.questions(facts)
    assert (facts.public, facts.n_total) == (None, 427), "an open algorithm asks about no public rows"
    assert module._with_algorithm(SIMULATED, dataset) == (SIMULATED, {})
    result = run_simulation(replace(settings, repeat=1))
    assert (result.settings.algorithm, result.choices["algorithm"].why) == ("psgd", "it is likely")
    assert result.choices.keys() > {"algorithm"}


def test_a_repetitions_facts_are_those_of_its_data() -> None:
    entries = SparseFeatures(name="entries", columns=6, entries=2)
    study = Study(name="s", features=(entries,), label=Label(name="ill", values=("no", "yes")))
    dataset = replace(load_dataset("wdbc"), study=study)
    settings = SimulationSettings(parties=4, epsilon=0.7, delta=1e-6, reveal="each", skew=1.0)
    train, test, facts = deal_repetition(settings, dataset, 0)
    assert facts.row_entries == study.row_entries
    assert facts.row_entries is not None
    assert (facts.study, facts.norm, facts.n_features) == (study, train.norm, 31)
    assert (facts.epsilon.tolist(), facts.delta.tolist(), facts.secure_sum) == ([0.7] * 4, [1e-6] * 4, False)
    assert facts.n_examples.tolist() == [43, 85, 128, 171] == train.n_examples.tolist()
    assert (len(test.y), facts.public, facts.public_shape) == (142, None, None)
    assert deal_repetition(replace(settings, reveal="sum"), simulated(20, 3), 0)[2].secure_sum
    assert deal_repetition(replace(settings, reveal="sum"), simulated(20, 3), 0)[2].study is None


@pytest.mark.parametrize(("algorithm", "width"), [("ensemble_vote", 31), ("feature", 32)])
def test_public_rows_are_those_that_the_algorithm_needs(algorithm: str, width: int) -> None:
    settings = SimulationSettings(algorithm=algorithm, parties=3, public_rows=17)
    train, _, facts = deal_repetition(settings, load_dataset("wdbc"), 0)
    assert facts.public_shape == (17, width)
    assert facts.public is not None
    assert facts.public.shape == (17, width)
    assert train.n_examples.sum() == 427 - 17


def test_a_fifth_but_at_most_two_thousand_examples_are_public(monkeypatch: pytest.MonkeyPatch) -> None:
    train = Shard(np.zeros((29, 1)), np.ones(29))
    assert len(module._set_aside(SimulationSettings(), train, labelled=False)[0]) == 5
    monkeypatch.setattr(module, "_MOST_PUBLIC", 4)
    assert len(module._set_aside(SimulationSettings(), train, labelled=False)[0]) == 4
    assert len(module._set_aside(SimulationSettings(public_rows=28), train, labelled=False)[0]) == 28


def biopsies_of_persons() -> Dataset:
    """The breast cancer set as if it were of persons of 1, 2 and 3 biopsies."""
    rows = shard_of(WDBC, wdbc_columns(), clip=True)
    begins = np.isin(np.arange(len(rows.y)) % 6, (0, 1, 3))
    study = WDBC.model_copy(update={"person": Person(column="patient", most_rows=3)})
    return examples(study, Shard(rows.X, rows.y, begins=begins))


def test_persons_are_what_is_dealt_and_hidden_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, settings = biopsies_of_persons(), SimulationSettings(repeat=2, parties=3)
    train, test, facts = deal_repetition(settings, dataset, 0)
    assert (facts.unit, facts.most_rows) == ("person", 3)
    assert train.n_examples.tolist() == facts.n_examples.tolist() == [71, 72, 71]
    assert int(test.n_examples) == 71
    assert int(train.n_rows.sum() + test.n_rows) == 569
    monkeypatch.setattr(module, "load_dataset", lambda *_: dataset)
    result = run_simulation(settings)
    assert (result.n_train, result.n_test, result.n_rows, result.unit) == (214, 71, 569, "person")
    assert result.to_json()["unit"] == "person"
    assert {promise.adjacency for promise in result.guarantees} == {"person"}
    assert result.accuracy.mean > 0.8


def test_what_is_odd_about_the_persons_of_a_file_is_said(tmp_path: Path) -> None:
    path, features = tmp_path / "stays.csv", (Feature(name="age", lower=0, upper=99),)
    agreed = Study(name="stays", features=features, label=Label(name="ill", values=("no", "yes")))

    def said(identifiers: Sequence[str], **person: Any) -> str:  # noqa: ANN401 -- of a `Person`
        study = agreed.model_copy(update={"person": Person(column="id", **person)})
        (tmp_path / "study.json").write_text(study.model_dump_json())
        rows = (f"{who},{n % 70},{('no', 'yes')[n % 2]}\n" for n, who in enumerate(identifiers))
        path.write_text("id,age,ill\n" + "".join(rows))
        return " ".join(load_dataset(str(path), tmp_path / "study.json").notes)

    by_twos = [f"P{n // 2}" for n in range(60)]
    assert said(by_twos) == ""
    assert "each row has another 'id': is this a row's number?" in said([f"E{n}" for n in range(60)])
    assert "30 rows of persons with more than 1 are left out" in said(by_twos, most_rows=1)
    assert "1 row without 'id' counts as a person by itself" in said(["", *by_twos[1:]], missing="alone")


def test_public_rows_of_persons_are_all_rows_of_some() -> None:
    settings = SimulationSettings(algorithm="ensemble_vote", public_rows=30, parties=5)
    train, _, facts = deal_repetition(settings, biopsies_of_persons(), 0)
    assert facts.n_total == int(train.n_examples.sum()) == 214 - 30
    assert facts.public is not None
    assert 30 < len(facts.public) <= 90


def test_warnings_are_told_in_full() -> None:
    missing = {f"c{i}": 2000 - i for i in range(7)}
    dataset = replace(simulated(10, 2), n_rows=3000, n_dropped=1501, missing=missing)
    dropped = (
        "1,501 of 3,000 rows (50.03%) miss a value and are empty ones: nothing is learnt from them or measured on "
        "them; most often missing: c0 in 2,000, c1 in 1,999, c2 in 1,998, c3 in 1,997, c4 in 1,996"
    )
    commonest = "no better than predicting the commonest class for all, 0.6000: look at the AUC, which is 0.5 of that"
    pooled = (
        "all data pooled, without privacy, come to 0.6100, hardly more than a constant: the columns do not predict the "
        "label, or the study's bounds are far wider than its values, so that rows hardly differ; no epsilon changes "
        "that"
    )
    assert list(module.warnings(dataset, 0.6, 0.6, 0.61)) == [dropped, commonest, pooled]
    assert list(module.warnings(dataset, 0.6, 0.6)) == [dropped, commonest]
    assert list(module.warnings(replace(dataset, n_dropped=1500), 0.75, 0.6, 0.7)) == []
    assert module.no_better_than_a_constant("binary", 0.525, 0.5) is None
    hardly = "hardly better than predicting the commonest class for all, 0.5000"
    assert module.no_better_than_a_constant("multiclass", 0.5249, 0.5) == hardly


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"repeat": 0}, "repeat must be positive and seed not negative, not 0, 0"),
        ({"seed": -1}, "repeat must be positive and seed not negative, not 20, -1"),
        ({"reveal": "all"}, "reveal must be 'sum' or 'each', not 'all'"),
        ({"public_rows": 0}, "public_rows must be positive, not 0"),
        ({"folds": 1}, "folds must be at least 2, not 1"),
        ({"shares": "random", "skew": 1.0}, "shares replace a skew: give one of the two"),
        ({"shares": (1.0,) * 4}, "shares must be 5 positive numbers, not (1.0, 1.0, 1.0, 1.0)"),
        (
            {"shares": (1.0, 1.0, 1.0, 1.0, math.inf)},
            "shares must be 5 positive numbers, not (1.0, 1.0, 1.0, 1.0, inf)",
        ),
    ],
)
def test_what_is_wrong_with_settings_is_said_in_full(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        SimulationSettings(**wrong)
    assert refused.value.detail == message


def test_the_smallest_settings_that_can_be_are_taken() -> None:
    SimulationSettings(repeat=1, seed=0, public_rows=1, folds=2, shares=(1e-9,) * 5)
    SimulationSettings(shares="random")


@pytest.mark.parametrize(
    ("algorithm", "parameters", "message"),
    [
        ("auto", {"step": 1.0}, "parameters are those of an algorithm: name one, or leave them open too"),
        ("describe", {}, "describe trains no model, so there is none to measure; there are auto, "),
        ("magic", {}, "unknown algorithm 'magic'; there are auto, "),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_data_are_read(
    algorithm: str, parameters: dict[str, Any], message: str
) -> None:
    settings = SimulationSettings("absent.csv", algorithm=algorithm, parameters=parameters)
    with pytest.raises(InvalidInputError) as refused:
        run_simulation(settings)
    assert refused.value.detail.startswith(message)


def test_data_that_are_new_each_time_have_no_folds() -> None:
    with pytest.raises(InvalidInputError) as refused:
        run_simulation(replace(SIMULATED, folds=2))
    assert refused.value.detail == "data 'simulated' are drawn again each time, so they have no folds"


@pytest.mark.long
@pytest.mark.parametrize("parameters", [{}, {"n_rounds": 2}])
def test_a_run_is_compared_on_its_first_five_splits(
    parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SimulationSettings("wdbc", algorithm="dp_gd", parameters=parameters, repeat=7, parties=2)
    found, asked = Baselines(5, {"pooled": 0.61}, "dp_gd", 2.0, {"best": 0.9}), list[Any]()

    def measured_beside(*terms: object) -> Baselines:
        asked.append(terms)
        return found

    monkeypatch.setattr(module, "baselines", measured_beside)
    monkeypatch.setattr(module, "constant", lambda *_: 0.6)
    result = run_simulation(settings, with_baselines=True)
    ((splits, kind, adjacency),) = asked
    assert (len(splits), kind, adjacency) == (5, "binary", "replace_one")
    for repetition, (train, test, facts) in enumerate(splits):
        expected = deal_repetition(settings, load_dataset("wdbc"), repetition)
        assert (train.X.tolist(), test.X.tolist()) == (expected[0].X.tolist(), expected[1].X.tolist())
        assert facts.n_examples.tolist() == expected[2].n_examples.tolist()
    means = {name: metric.mean for name, metric in result.metrics.items()}
    assert result.baselines == found.beside_run("dp_gd", means, contends=True, is_open=not parameters)
    assert result.baselines is not None
    assert result.baselines.best_is_run == (not parameters)
    assert any(warning.startswith("all data pooled, without privacy, come to 0.6100") for warning in result.warnings)
    assert result.constant == pytest.approx(0.6)
    assert run_simulation(replace(settings, repeat=1)).baselines is None


def test_the_constant_of_a_simulation_is_that_of_its_kind(doses: tuple[Path, Path]) -> None:
    table, study = doses
    settings = SimulationSettings(str(table), study, "pooled", repeat=2)
    dataset = load_dataset(str(table), study)
    dealt = [deal_repetition(settings, dataset, repetition)[:2] for repetition in range(2)]
    expected = [baseline_module.constant(train, test, "regression") for train, test in dealt]
    assert run_simulation(settings).constant == pytest.approx(sum(expected) / 2)


# ── the command ──────────────────────────────────────────────────────────────


def test_the_command_prints_a_result_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    promise = Guarantee(1.0, 1e-5, "transcript", "tight", assumptions=("noise is random",))
    asked: list[Any] = []

    def run(settings: SimulationSettings, progress: Any, **terms: Any) -> SimulationResult:  # noqa: ANN401
        asked.append((settings, terms))
        progress(1, 2)
        return SimulationResult(
            settings,
            "binary",
            {"accuracy": Metric((0.5, 0.75))},
            900,
            300,
            (promise,),
            {"algorithm": Choice("dp_gd", "it does best"), "step": Choice(0.5, "by its theorem")},
            Baselines(2, {"majority": 0.6}, "psgd", 0.7),
            0.6,
            2000,
            1500,
            ("few rows", "and old ones"),
        )

    monkeypatch.setattr(module, "run_simulation", run)
    done = CliRunner().invoke(learner_app, ["simulate", "--repeat", "2", "--epsilon", "30"])
    lines = [
        "dp_gd: accuracy 0.6250, sd 0.1768, over 2 repetitions",
        "  beside it, over 2 repetitions: the majority 0.6000, best at this budget, psgd 0.7000",
        "  each owner adds all of its noise, as in a run by default; --reveal sum is as by --secure-sum paillier",
        "  1,500 of the table's 2,000 rows miss a value and are empty ones",
        "  algorithm = dp_gd: it does best",
        "  epsilon 1, delta 1e-05 for one record replaced, against anyone who sees the transcript (tight calibration)",
        "  that holds if:",
        "    - Noise is random.",
    ]
    assert done.stdout.splitlines() == lines
    assert done.stderr.splitlines() == [
        "warning: an epsilon of 30 promises next to nothing: 1 is a strong promise, 10 a weak one",
        "warning: few rows",
        "warning: and old ones",
    ]
    assert asked == [(SimulationSettings(repeat=2, epsilon=30.0, reveal="each"), {"with_baselines": True})]
    words = (
        "simulate --data t.csv --study s.json --table a=b --csv missing=? --algorithm psgd -p n_rounds=5 --parties 3 "
        "--skew 0.5 --reveal sum --epsilon 2 --delta 1e-6 --repeat 4 --seed 9 --public-rows 7 --no-baselines --explain"
    )
    done = CliRunner().invoke(learner_app, words.split())
    assert done.stdout.splitlines()[4:6] == [*lines[4:5], "  step = 0.5: by its theorem"]
    settings = SimulationSettings(
        "t.csv", Path("s.json"), "psgd", {"n_rounds": 5}, 3, 0.5, "sum", 2.0, 1e-6, 4, 9, 7, tables=("a=b",),
        csv="missing=?", colluders=1,
    )  # fmt: skip
    assert asked[1] == (settings, {"with_baselines": False})
    done = CliRunner().invoke(learner_app, ["simulate", "--format", "json"])
    assert json.loads(done.stdout)["warnings"] == ["few rows", "and old ones"]
