"""Xie's figures on made-up rows: what is drawn is built, points are frozen, rows are mapped, and claims can fail."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import FrozenInstanceError, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from scripts.figures import xie, xie_data, xie_grids
from scripts.figures.curves import Curve
from scripts.figures.frame import Verdict
from scripts.figures.sources import imported
from scripts.figures.xie_data import Rows, Table, components, folder_of, mapped, rows_of
from scripts.figures.xie_grids import DIGITS, FORESTS, KDD, Grid
from scripts.figures.xie_runs import Dealt, Setting, distances_of, errors_of

FIGURES = {figure.name: figure for figure in xie.FIGURES}
GRIDS = [grid for grid in vars(xie_grids).values() if isinstance(grid, Grid)]
TINY = Setting(sites=3, rows=30, aggregator=20, epsilon=5.0)
METHODS = ("global", "local", "average", "once", "public", "full")


def table(n: int, seed: int) -> Table:
    """Rows about two corners."""
    rng = np.random.default_rng(seed)
    second = rng.random(n) < 0.5
    return np.where(second[:, None], 1.0, -1.0) * [1, 0.5, 0, 0] + rng.normal(0, 0.2, (n, 4)), second


@pytest.fixture
def rows() -> Rows:
    return mapped(table(200, 1), table(50, 2), n_public=40)


@pytest.mark.parametrize("noise", ["paper", "tight"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_measures_runs_that_can_be_repeated(rows: Rows, method: str, noise: str) -> None:
    setting = replace(TINY, method=method, noise=noise)
    found = list(errors_of(setting, rows, range(3)))
    assert all(0 <= error <= 1 for error in found)
    assert list(errors_of(setting, rows, range(1, 3))) == found[1:]


def test_without_noise_all_methods_tell_the_corners_apart(rows: Rows) -> None:
    for method in set(METHODS) - {"once"}:
        (error,) = errors_of(replace(TINY, method=method, mechanism="none", second="none"), rows, range(1))
        assert error < 0.1, method


def test_rows_are_dealt_once_and_the_aggregator_keeps_its_own(rows: Rows) -> None:
    few, many = (Dealt(replace(TINY, sites=sites), rows, 3).parts for sites in (2, 4))
    assert [len(part.y) for part in many] == [30] * 4 + [20]
    assert (few[-1].X == many[-1].X).all()
    assert (few[0].X == many[0].X).all()
    assert len(np.unique(np.concatenate([part.X for part in many]), axis=0)) == 140
    with pytest.raises(ValueError, match="160 rows, not 200"):
        _ = Dealt(replace(TINY, sites=6), rows, 0).parts


def test_one_site_may_have_its_own_rows_and_budget(rows: Rows) -> None:
    setting = replace(TINY, own=(7, 0.5))
    assert (setting.sizes, setting.epsilons) == ([30, 30, 7], [5.0, 5.0, 0.5])
    assert len(list(errors_of(replace(setting, method="full"), rows, range(1)))) == 1


@pytest.mark.parametrize(
    ("method", "mechanism"), [("global", "output"), ("global", "objective"), ("average", "output")]
)
def test_distances_lie_within_their_bounds(rows: Rows, method: str, mechanism: str) -> None:
    squares, bound = distances_of(replace(TINY, method=method, mechanism=mechanism, regularization=0.1), rows, 5)
    assert 0 < np.mean(squares) < 3 * bound  # a Gamma law's mean of five: surely below three times the expectation
    weaker, _ = distances_of(
        replace(TINY, method=method, mechanism=mechanism, regularization=0.1, epsilon=0.1), rows, 5
    )
    assert np.mean(weaker) > np.mean(squares)


def test_public_rows_alone_make_the_components() -> None:
    train, test = table(200, 1), table(50, 2)
    public = np.random.default_rng(0).permutation(200)[:40]
    others = np.setdiff1d(np.arange(200), public)
    scaled = train[0].copy()
    scaled[others] *= [1, 1, 0.2, 5]
    same, other = (mapped((X, train[1]), test, n_public=40) for X in (train[0], scaled))
    assert (same.public.X == other.public.X).all()
    assert (same.test.X == other.test.X).all()
    every = mapped((scaled, train[1]), test, n_public=40, every=True)
    assert every.test.X.shape != same.test.X.shape or (every.test.X != same.test.X).any()
    assert {len(rows.private.y) for rows in (same, other, every)} == {160}


def test_components_hold_nine_tenths_of_the_variance_in_the_unit_ball() -> None:
    X = np.random.default_rng(1).normal(size=(500, 3)) * [3, 2, 0.1] + 7
    inside = components(X)(X)
    assert inside.shape == (500, 2)
    assert np.linalg.norm(inside, axis=1).max() == pytest.approx(1)
    assert np.abs(inside.mean(axis=0)).max() < 1e-9


def test_rows_of_norm_one_disclose_no_other_row() -> None:
    train, test = table(200, 1), table(50, 2)
    rows = mapped(train, test, n_public=40, unit=True)
    assert np.linalg.norm(rows.test.X, axis=1) == pytest.approx(1, abs=1e-6)
    moved = mapped(train, (np.concatenate([test[0][:1], 9 * test[0][1:]]), test[1]), n_public=40, unit=True)
    assert (moved.test.X == rows.test.X)[0].all()
    assert moved.test.X[1:] == pytest.approx(rows.test.X[1:], abs=1e-6)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_forests_are_read_from_where_the_user_has_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: str
) -> None:
    (tmp_path / "covertype").mkdir()
    rng = np.random.default_rng(1)
    forests = {
        "Elevation": rng.normal(3000, 200, 60),
        "Slope": rng.integers(0, 40, 60),
        "Cover_Type": np.arange(60) % 4 + 1,
    }
    path = tmp_path / "covertype" / f"covtype.{ending}"
    (arrow_csv.write_csv if ending == "csv" else parquet.write_table)(pa.table(forests), path)
    monkeypatch.setenv("PARLEY_DATA", str(tmp_path))
    for name, value in (("_TRAIN", 20), ("_TEST", 10)):
        monkeypatch.setattr(xie_data, name, value)
    (X, second), (tested, _) = xie_data.READ["covertype"]()
    assert (X.shape, tested.shape) == ((20, 2), (10, 2))
    assert 0 < X[:, 0].min() < X.max() < 1.2
    assert 0 < second.sum() < 20


def test_points_are_frozen_and_can_be_told_apart() -> None:
    points = [point for figure in FIGURES.values() for point in figure.full.points.values()]
    assert len(set(points)) > 500
    with pytest.raises(FrozenInstanceError):
        points[0].function = "another"  # type: ignore[misc]
    assert {folder for point in points for folder in point.data} == {"mnist", "kdd99", "covertype"}


def test_what_measures_does_not_draw() -> None:
    assert not {path.stem for path in imported("scripts.figures.xie_runs")} & {"frame", "xie_plots", "xie_grids"}


def test_quick_figures_are_of_fewer_runs() -> None:
    for figure in FIGURES.values():
        assert figure.quick.points.keys() == figure.full.points.keys()
        assert int(figure.quick.runs) < int(figure.full.runs)
    assert {FIGURES[name].full.runs for name in ("xie_fig5_6", "xie_fig5_8")} == {"360", "200"}


def test_no_setting_asks_for_more_rows_than_there_are() -> None:
    for figure_grid in GRIDS:
        for _, setting in figure_grid.settings():
            assert sum(setting.sizes) + setting.aggregator <= 12_000 - xie_data.PUBLIC


def test_each_panel_has_its_data() -> None:
    assert {folder_of(setting.data) for _, setting in xie_grids.numbers.settings()} == {"mnist", "kdd99"}
    with pytest.raises(KeyError):
        rows_of("no such data")


def made_up(names: Iterable[str], *panels: str) -> list[Curve]:
    """Curves that fall as they should: the later a line is named, the larger its error."""
    rng = np.random.default_rng(1)
    return [
        Curve(panel, name, {x: level + 0.01 / x + rng.normal(0, 1e-4, 9) for x in (0.1, 1.0)})
        for panel in panels
        for level, name in zip(np.linspace(0.02, 0.5, 20), names, strict=False)
    ]


def numbers() -> list[Curve]:
    """Curves as the thesis has them."""
    lines = {"non-private": (0.03, 0.03), "objective": (0.14, 0.04), "output": (0.31, 0.05), "average": (0.37, 0.05),
             "feature, public": (0.13, 0.04), "feature, full": (0.27, 0.05)}  # fmt: skip
    jitter = np.random.default_rng(1).normal(0, 1e-3, 9)
    return [
        Curve(panel, name, {0.1: strict + jitter * i, 1.0: loose + jitter * i / 10})
        for panel in (*DIGITS, KDD)
        for i, (name, (strict, loose)) in enumerate(lines.items(), 1)
    ]


def verdicts(figure: str, curves: list[Curve]) -> list[Verdict]:
    return list(FIGURES[figure].judge(curves))


def test_the_thesis_confirms_its_own_numbers() -> None:
    assert all(verdict.holds for verdict in verdicts("xie_numbers", numbers()))
    assert len(verdicts("xie_numbers", numbers())) == 4 * 11 + 2


@pytest.mark.parametrize("line", ["non-private", "objective", "average", "feature, public", "feature, full"])
def test_a_number_that_is_missed_does_not_hold(line: str) -> None:
    curves = [
        replace(curve, runs={x: runs + 0.3 for x, runs in curve.runs.items()}) if curve.name == line else curve
        for curve in numbers()
    ]
    failed = [verdict for verdict in verdicts("xie_numbers", curves) if not verdict.holds]
    assert any(line in verdict.claim or "no noise" in verdict.claim for verdict in failed)


def test_an_order_within_the_runs_error_does_not_hold() -> None:
    noisy = np.random.default_rng(1).normal(0, 0.1, 9)
    better, worse = (Curve("p", name, {1.0: np.full(9, 0.3) + part}) for name, part in (("a", 0.0), ("b", noisy)))
    assert not xie.in_order("", 1.0, (better, worse)).holds
    assert xie.in_order("", 1.0, (better, replace(worse, runs={1.0: 0.4 + noisy / 100}))).holds


ORDERS: dict[str, tuple[str, ...]] = {
    "xie_fig3_1": ("objective", "output"),
    "xie_fig3_6": ("generalized", "thesis's Hessian bound"),
    "xie_fig5_31_epsilon": ("global", "feature, public", "average", "local"),
}


@pytest.mark.parametrize("figure", ORDERS)
def test_orders_and_falls_hold_one_way_alone(figure: str) -> None:
    assert all(verdict.holds for verdict in verdicts(figure, made_up(ORDERS[figure], "p")))
    turned = [
        replace(curve, runs=dict(zip(curve.runs, list(curve.runs.values())[::-1], strict=True)))
        for curve in made_up(ORDERS[figure][::-1], "p")
    ]
    assert not any(verdict.holds for verdict in verdicts(figure, turned))


def test_a_lambda_at_the_end_is_no_optimum() -> None:
    runs = {lam: np.array([error, error + 0.01, error]) for lam, error in ((1e-9, 0.5), (1e-2, 0.1), (100.0, 0.4))}
    assert [one.holds for one in verdicts("xie_fig3_5", [Curve("p", "objective", runs)])] == [True]
    runs[1e-9] = runs[1e-2] - 0.05
    assert [one.holds for one in verdicts("xie_fig3_5", [Curve("p", "objective", runs)])] == [False]


def test_harm_spread_and_bounds_can_fail() -> None:
    harmed = [Curve("p", name, {0.01: np.array([0.1, 0.11]) * by, 1.0: np.array([0.03, 0.03])})
              for name, by in (("average", 4), ("feature, public", 1), ("feature, full", 1))]  # fmt: skip
    assert all(verdict.holds for verdict in verdicts("xie_fig5_2", harmed))
    assert not any(
        verdict.holds for verdict in verdicts("xie_fig5_2", [replace(harmed[0], runs=harmed[1].runs), *harmed[1:]])
    )
    spread = [
        Curve("p", name, {0.1: np.array([0.1, 0.11, 0.12]) * by})
        for name, by in (("feature, public", 1), ("average", 4))
    ]
    assert all(verdict.holds for verdict in verdicts("xie_fig5_6", spread))
    assert not any(
        verdict.holds
        for verdict in verdicts(
            "xie_fig5_6", [replace(c, name=n) for c, n in zip(spread, ("average", "feature, public"), strict=True)]
        )
    )
    within = Curve("output", "output", {1.0: np.array([1.0, 1.1])}, {1.0: 2.0})
    assert [one.holds for one in verdicts("xie_theorems", [within, replace(within, bound={1.0: 0.5})])] == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    "grid", [xie_grids.numbers, xie_grids.histograms, xie_grids.bounds], ids=["lines", "bars", "bounds"]
)
def test_a_sweep_is_read_into_a_table_and_a_picture(grid: Grid, tmp_path: Path) -> None:
    figure = next(one for one in FIGURES.values() if one.quick.points == grid.sweep(grid.few).points)
    bounded = grid is xie_grids.bounds
    results = {label: ([0.1, 0.2], 0.3) if bounded else [0.1, 0.2] for label in figure.quick.points}
    figure.redraw(results, tmp_path)
    with (tmp_path / f"{figure.name}.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(set(islice(zip(*list(zip(*figure.quick.points, strict=True))[:3], strict=True), None)))
    assert {line["runs"] for line in lines} == {str(2 * grid.chunks)}
    assert {line["bound"] for line in lines} == {"0.3" if bounded else ""}
    assert len(np.unique(plt.imread(tmp_path / f"{figure.name}.png")[..., :3].reshape(-1, 3), axis=0)) > 10


def test_covertype_is_a_figure_of_its_own() -> None:
    assert {panel for panel, *_ in FIGURES["xie_covertype"].full.points} == {FORESTS}
