"""The benchmark of utility: what its lines say, what its cases are made of, and what it does without data."""

from __future__ import annotations

import json
import math
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from parley.common.algorithms import build_algorithm
from parley.common.data.columns import Category
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.learning.losses import Softmax, Squared
from scripts.benchmarks import utility
from scripts.utility import baselines, examples, grid
from scripts.utility.cases import CASES, Case, Fitness, Goal
from scripts.utility.examples import AbsentError, Examples
from scripts.utility.trial import Trial

WDBC = Case(examples.wdbc, {1.0: Goal(0.7, 0.9)}, delta=1e-5)
TOLD = {
    "case", "epsilon", "value", "sd", "least", "majority", "pooled", "published", "best_of_grid", "diffprivlib",
}  # fmt: skip


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str, **cases: Case
) -> tuple[int, list[dict[str, Any]]]:
    """The exit status, and the lines."""
    monkeypatch.setattr(utility, "CASES", cases)
    monkeypatch.setattr(sys, "argv", ["utility.py", *arguments])
    with pytest.raises(SystemExit) as raised:
        utility.main()
    return int(raised.value.code or 0), [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def regression(n: int = 400) -> Examples:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 3)) / 4
    return Examples(Squared(), examples.quarter(Shard(X, np.clip(X @ [0.4, -0.3, 0.2], -1, 1))))


def three_classes(n: int = 300) -> Examples:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 2)) / 3
    y = np.where(X[:, 0] > 0.1, 1.0, np.where(X[:, 1] > 0, 0.0, -1.0))
    rows = Shard(X, y)
    return Examples(Softmax(3), lambda _draw: (rows, rows), is_redrawn=False, beside={"corrected": rows})


@pytest.mark.slow
def test_a_line_says_what_was_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(grid, "ROUNDS", (0.5,))
    monkeypatch.setattr(grid, "WAYS", (0.5, 1.0, 2.0))
    status, (line,) = run(monkeypatch, capsys, "--draws", "3", wdbc=WDBC)
    assert line.keys() > TOLD
    assert (status, line["met"], line["case"], line["epsilon"]) == (0, True, "wdbc", 1.0)
    assert (line["least"], line["published"], line["draws"], line["owners"]) == (0.7, 0.9, 3, 5)
    assert (line["n"], line["d"], line["delta"]) == (427, 31, 1e-5)
    assert line["majority"] < line["value"] < line["pooled"]
    assert line["best_of_grid"] == pytest.approx(line["value"] + line["regret"], abs=2e-4)
    assert line["regret"] >= 0
    assert line["parameters"]["n_rounds"] > 1


@pytest.mark.parametrize(("least", "status"), [(0.5, 0), (0.999, 1)])
def test_a_goal_that_is_missed_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], least: float, status: int
) -> None:
    case = Case(examples.wdbc, {1.0: Goal(least)}, delta=1e-5)
    found, (line,) = run(monkeypatch, capsys, "--draws", "2", "--no-grid", wdbc=case)
    assert (found, line["met"]) == (status, not status)
    assert line["best_of_grid"] is None


def test_an_absent_set_is_told_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PARLEY_DATA", raising=False)
    cases = {"adult": CASES["adult"], "wdbc": WDBC}
    status, (absent, line) = run(monkeypatch, capsys, "--draws", "1", "--no-grid", **cases)
    assert (status, absent["absent"]) == (1, "PARLEY_DATA has no adult/adult-train.parquet")
    assert absent["case"] == "adult"
    assert line["met"]


def test_every_case_of_a_file_says_so_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARLEY_DATA", raising=False)
    absent = []
    for name, case in CASES.items():
        try:
            case.load()
        except AbsentError:
            absent.append(name)
    assert CASES.keys() - absent == {"simulated", "wdbc", "digits"}


@pytest.mark.parametrize(("arguments", "said"), [(("mars",), "no case mars"), (("--draws", "0"), "must be positive")])
def test_bad_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["utility.py", *arguments])
    with pytest.raises(SystemExit, match="2"):
        utility.main()
    assert said in capsys.readouterr().err


def test_the_relative_fitness_of_the_owners_own_examples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        each: Case(examples.wdbc, {10.0: Goal()}, delta=1e-5, owners=3, value="auc", fitness=Fitness(0.01, most))
        for each, most in (("loose", 1e6), ("tight", 1e-9))
    }
    status, (loose, tight) = run(monkeypatch, capsys, "--draws", "2", "--no-grid", **cases)
    assert (status, loose["met"], tight["met"]) == (1, True, False)
    assert loose["psi"] == tight["psi"] > 0
    assert loose["majority"] == 0.5 < loose["value"] <= 1
    assert loose["accuracy"] != loose["value"]


def test_the_sum_is_secure_and_one_owner_may_collude() -> None:
    facts = Trial(WDBC, examples.wdbc(), 1.0).facts
    assert (facts.secure_sum, facts.colluders, facts.share) == (True, 1, 0.25)
    assert facts.n_examples.tolist() == [85, 86, 85, 86, 85]
    squared = Trial(Case(regression, {}), regression(), 1.0).facts
    assert squared.delta[0] == pytest.approx(1 / 300**2)


def test_draws_differ_in_their_split_or_in_their_noise_alone() -> None:
    trial = Trial(WDBC, examples.wdbc(), 1.0)
    (first, test), (second, _) = (trial.examples.split(draw) for draw in (0, 1))
    assert len(first.y) + len(test.y) == 569
    assert (first.X != second.X).any()
    fixed = Trial(Case(three_classes, {}), three_classes(), 1.0)
    one, other, again = fixed.models(build_algorithm("dp_gd"), (0, 1, 0))
    assert (one.weights == again.weights).all()
    assert (one.weights != other.weights).any()


def test_the_best_without_a_feature() -> None:
    assert Trial(Case(three_classes, {}), three_classes(), 1.0).majority((0,)) == pytest.approx(0.4, abs=0.1)
    assert Trial(Case(regression, {}, value="r_squared"), regression(), 1.0).majority((0,)) == pytest.approx(0, abs=0.1)
    assert Trial(Case(examples.wdbc, {}, value="auc"), examples.wdbc(), 1.0).majority((0,)) == 0.5


def test_other_tests_are_printed_beside() -> None:
    trial = Trial(Case(three_classes, {}), three_classes(), 10.0)
    line = utility.measured(trial, Goal(), range(2), search=False)
    assert line["corrected"] == line["value"]


def test_the_grid_passes_over_what_is_refused_and_keeps_the_choice() -> None:
    trial = Trial(WDBC, examples.wdbc(), 1.0)
    chosen = trial.chosen()
    tried = list(grid.candidates(chosen))
    assert tried[0] == chosen
    assert len(tried) > 10
    worth = {True: 0.7, False: -math.inf}
    values = {case: worth[case == chosen] for case in tried}
    stand_in: Any = SimpleNamespace(
        size=1e9, is_large=False, values=lambda algorithm, _draws: _refused(values[algorithm])
    )
    assert grid.best(stand_in, chosen, (0,), 0.7) == (chosen, 0.7)
    values[tried[5]] = 0.8
    assert grid.best(stand_in, chosen, (0,), 0.7) == (tried[5], 0.8)
    assert grid.best(stand_in, chosen, (0,), 0.9) == (chosen, 0.9), "a lucky search is no regret"


def test_where_a_model_takes_minutes_little_is_tried() -> None:
    chosen, tried = Trial(WDBC, examples.wdbc(), 1.0).chosen(), dict[object, float]()
    stand_in: Any = SimpleNamespace(
        size=1e9, is_large=True, values=lambda algorithm, _: [tried.setdefault(algorithm, 0.5)]
    )
    grid.best(stand_in, chosen, (0,), 0.5)
    assert len(tried) == 9
    assert chosen in tried


def _refused(value: float) -> list[float]:
    if not math.isfinite(value):
        build_algorithm("dp_gd", {"n_rounds": 0})
    return [value]


def test_without_diffprivlib_there_are_no_figures_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diffprivlib", None)
    assert baselines.diffprivlib(Trial(WDBC, examples.wdbc(), 1.0), (0,)) is None


class _Library(ModuleType):
    """A stand-in: it notes what it was told, and fits without privacy."""

    def __init__(self) -> None:
        super().__init__("diffprivlib")
        self.models, self.told = self, []  # type: ignore[var-annotated]

    def LogisticRegression(self, **terms: Any) -> Any:  # noqa: ANN401, N802
        self.told.append(terms)
        return LogisticRegression(C=100, fit_intercept=False)

    def LinearRegression(self, **terms: Any) -> Any:  # noqa: ANN401, N802
        self.told.append(terms)
        return LinearRegression(fit_intercept=False)


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (Case(examples.wdbc, {}), {"data_norm": 1.0}),
        (Case(three_classes, {}), {"data_norm": 1.0}),
        (Case(regression, {}, value="r_squared"), {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}),
    ],
)
def test_diffprivlib_is_told_what_rows_keep(monkeypatch: pytest.MonkeyPatch, case: Case, told: dict[str, Any]) -> None:
    library = _Library()
    monkeypatch.setitem(sys.modules, "diffprivlib", library)
    values = baselines.diffprivlib(Trial(case, case.load(), 0.5), (0, 1))
    assert values is not None
    assert min(values) > 0.85
    terms: dict[str, Any] = {"epsilon": 0.5, "fit_intercept": False} | told
    assert library.told == [terms | {"random_state": seed} for seed in (0, 1)]


def test_connections_are_told_apart_by_logarithms_of_counts() -> None:
    (service,) = (
        feature for feature in examples.KDD99.features if feature.name == "service" and isinstance(feature, Category)
    )
    raw: dict[str, Any] = {name: np.array([0, 3]) for name in examples.KDD99.feature_names}
    raw |= {"protocol_type": np.array(["tcp", "udp"], object), "service": np.array(["http", "icmp"], object)}
    raw |= {"flag": np.array(["SF", "S0"], object), "label": np.array(["normal", "smurf"], object)}
    found = examples.connections(raw)
    assert found["src_bytes"] == pytest.approx([0, math.log(4)])
    assert found["serror_rate"].tolist() == [0, 3]
    assert (len(examples.KDD99.feature_names), len(service.values)) == (41, 67)
    assert shard_of(examples.KDD99, found, clip=True).y.tolist() == [-1, 1]


def test_pixels_are_of_their_own_scale() -> None:
    image = np.array([0, 255] + [0] * 782, np.uint8).tobytes()
    columns = examples.pixels({"label": np.array([7]), "image": np.array([image], object)})
    row = shard_of(examples.MNIST, columns).X[0]
    assert row[0] / row[1] == pytest.approx(-0.13 / 0.87, rel=1e-2)
