"""The figures' frame on made-up results, the claims of Rajkumar & Agarwal on real ones, and that claims can fail."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt

from learner.experiments.simulation import Metric, SimulationResult, SimulationSettings
from scripts.figures import frame, rajkumar
from scripts.figures.frame import Figure, Line, Point, Table, Verdict, errors, fall, main, standard_error, sweep
from scripts.figures.rajkumar import EPSILONS, PARTIES, SKEWS, grid, judge, judge_at

FIGURES = sorted(path.stem for path in Path(frame.__file__).parent.glob("*_fig*.py"))


def tiny(*, holds: bool, repeat: int = 3) -> Figure:
    """Two lines of two points each, in two panels."""
    points = tuple(
        Point(row, "all", line, x, SimulationSettings("simulated", algorithm=line, skew=x, repeat=repeat))
        for row in ("upper", "lower")
        for line in ("dp_gd", "pooled")
        for x in (0.0, 1.0)
    )
    lines = {"dp_gd": Line("private", "#0072B2", "o"), "pooled": Line("not private", "#000000", "s", "--")}
    return Figure("tiny", "Tiny", "skew", lines, points, lambda _: [Verdict("it is so", holds, "1 of 1")])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("drawn") / "new"
    assert main(tiny(holds=True), ["--out", str(out)]) == 0
    return out


@pytest.mark.slow
def test_the_table_says_what_was_simulated_and_promised(drawn: Path) -> None:
    with (drawn / "tiny.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    private, public = rows[0], rows[2]
    assert (private["algorithm"], private["epsilon"], private["repeat"]) == ("dp_gd", "1.0", "3")
    assert float(private["transcript_epsilon"]) == pytest.approx(1.0)
    assert public["transcript_epsilon"] == "", "nothing is promised"
    assert 0.5 < float(private["accuracy_mean"]) < float(public["accuracy_mean"]) <= 1
    assert float(private["accuracy_standard_error"]) == pytest.approx(float(private["accuracy_sd"]) / 3**0.5, abs=1e-4)


@pytest.mark.slow
def test_the_plot_is_a_picture(drawn: Path) -> None:
    picture = plt.imread(drawn / "tiny.png")
    assert min(picture.shape[:2]) > 400
    assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 10, "not blank"


@pytest.mark.slow
def test_a_claim_that_does_not_hold_fails_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tiny(holds=False), ["--out", str(tmp_path)]) == 1
    assert "it is so: DOES NOT HOLD (1 of 1)" in capsys.readouterr().out


@pytest.mark.slow
def test_a_quick_run_judges_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tiny(holds=False, repeat=10**6), ["--quick", "--out", str(tmp_path)]) == 0
    assert "too few repetitions" in capsys.readouterr().out
    with (tmp_path / "tiny.csv").open() as file:
        assert {row["repeat"] for row in csv.DictReader(file)} == {str(frame.QUICK_REPEAT)}


def test_errors_are_those_of_the_mean() -> None:
    values = np.array([1.0, 2.0, 3.0, 6.0])
    assert standard_error(values) == pytest.approx(values.std(ddof=1) / 2)
    assert errors(values) == pytest.approx(3 / standard_error(values))
    assert fall(made_up(0.9), made_up(0.7)).mean() == pytest.approx(0.2)


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_has_a_name_a_docstring_and_points(name: str) -> None:
    module = import_module(f"scripts.figures.{name}")
    assert module.FIGURE.name == name
    assert module.__doc__
    assert {point.line for point in module.FIGURE.points} == set(module.FIGURE.lines)
    colours = [line.colour for line in module.FIGURE.lines.values()]
    assert len(set(colours)) == len(colours)


@pytest.mark.parametrize("data", ["simulated", "wdbc"])
def test_rajkumars_sweep_is_whole(data: str) -> None:
    seen = {
        (point.line, point.settings.parties, point.settings.skew, point.settings.epsilon)
        for point in grid("name", data, "title").points
    }
    assert len(seen) == 6 * len(PARTIES) * len(SKEWS) * len(EPSILONS) == 144
    assert all(point.settings.delta == 0.05 and point.settings.data == data for point in grid("", data, "").points)


@pytest.mark.slow
def test_rajkumars_claims_hold_on_simulated_data() -> None:
    points = [
        replace(point, settings=replace(point.settings, repeat=20))
        for point in grid("rajkumar_fig1", "simulated", "").points
        if point.settings.epsilon == 0.1 and point.line in {"local_average", "psgd", "gop", "dp_gd"}
    ]
    for verdict in judge_at(sweep(points), 0.1):
        print(f"simulated, 20 repetitions: {verdict.claim}: {verdict.evidence}")
        assert verdict.holds, verdict


def made_up(accuracy: float) -> SimulationResult:
    """A result of this mean accuracy, with a little scatter."""
    scatter = np.random.default_rng(5).normal(0, 0.01, 50)
    metric = Metric(tuple((accuracy + scatter - scatter.mean()).tolist()))
    return SimulationResult(SimulationSettings(), "binary", {"accuracy": metric}, 1, 1, ())


def table(accuracy: Callable[[str, int, float], float]) -> Table:
    """A table of made-up accuracies by line, parties and skew."""
    points = grid("name", "simulated", "title").points
    rng = np.random.default_rng(6)

    def result(point: Point) -> SimulationResult:
        made = made_up(accuracy(point.line, point.settings.parties, point.settings.skew))
        jitter = Metric(tuple((np.array(made.accuracy.values) + rng.normal(0, 0.01, 50)).tolist()))
        return replace(made, settings=point.settings, metrics={"accuracy": jitter})

    return Table(points, tuple(map(result, points)))


def as_the_paper_says(line: str, parties: int, skew: float) -> float:
    if line == "local_average":
        return 0.7 - 0.01 * parties * skew
    return {"psgd": 0.7, "gop": 0.71, "dp_gd": 0.9}.get(line, 0.95)


def test_the_papers_claims_can_be_borne_out() -> None:
    assert all(verdict.holds for verdict in judge(table(as_the_paper_says)))


@pytest.mark.parametrize(
    ("otherwise", "failing"),
    [
        (lambda line, k, s: 0.7 if line == "local_average" else as_the_paper_says(line, k, s), "LA falls with skew"),
        (lambda line, k, s: as_the_paper_says(line, 5, s), "as K grows"),
        (lambda line, k, s: 0.7 - 0.1 * s if line == "psgd" else as_the_paper_says(line, k, s), "PSGD is flat"),
        (lambda line, k, s: 0.78 if line == "gop" else as_the_paper_says(line, k, s), "as well as GOP"),
        (lambda line, k, s: 0.7 if line == "dp_gd" else as_the_paper_says(line, k, s), "dp_gd beats PSGD"),
    ],
    ids=["flat LA", "K does no harm", "PSGD suffers", "GOP is better", "nothing gained"],
)
def test_each_claim_can_fail(otherwise: Callable[[str, int, float], float], failing: str) -> None:
    failed = [verdict.claim for verdict in judge(table(otherwise)) if not verdict.holds]
    assert any(failing in claim for claim in failed), failed


def test_the_papers_three_methods_share_one_regularisation() -> None:
    shared = {
        name: parameters for name, (_, parameters) in rajkumar._ALGORITHMS.items() if "regularization" in parameters
    }
    assert set(shared) == {"gop", "psgd", "local_average"}
    assert len({parameters["regularization"] for parameters in shared.values()}) == 1
