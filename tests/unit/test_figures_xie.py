"""Xie's figures on made-up rows: rows are dealt and projected, points are frozen, and what the thesis says can fail."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from scripts.figures import xie, xie_data, xie_grids, xie_tests
from scripts.figures.claims.table import claims, items
from scripts.figures.curves import Curve
from scripts.figures.frame import Ruling, Verdict
from scripts.figures.sources import imported
from scripts.figures.xie_data import projected, rows_of
from scripts.figures.xie_grids import NON_PRIVATE, OBJECTIVE, OUTPUT
from scripts.figures.xie_runs import (
    AVERAGE,
    F_FULL,
    F_LOC,
    GLOBAL,
    LOCAL,
    UNIT_VIEWS,
    Dealt,
    Setting,
    alone_of,
    joined_of,
)
from scripts.figures.xie_theorems import NAMES, Constants, bounds, printed_hessian_bound

FIGURES = {figure.name: figure for figure in xie.FIGURES}
ALL_LINES = (GLOBAL, LOCAL, AVERAGE, F_LOC, F_FULL, UNIT_VIEWS)
TINY = Setting(sites=3, rows=30, aggregator=20, epsilon=5.0)
XS = (1.0, 10.0, 26.0, 50.0)


@pytest.fixture
def rows() -> Shard:
    """Rows about two corners."""
    rng = np.random.default_rng(1)
    second = rng.random(250) < 0.5
    X = np.where(second[:, None], 1.0, -1.0) * [1, 0.5, 0, 0] + rng.normal(0, 0.2, (250, 4))
    return Shard(projected(X, 0.999), np.where(second, 1.0, -1.0))


# ── what is measured ─────────────────────────────────────────────────────────


def test_runs_can_be_repeated_and_without_noise_tell_the_corners_apart(rows: Shard) -> None:
    noisy = joined_of(TINY, rows, range(3), ALL_LINES)
    assert set(noisy) == set(ALL_LINES)
    again = joined_of(TINY, rows, range(1, 3), (AVERAGE, F_FULL))
    assert again == {line: noisy[line][1:] for line in (AVERAGE, F_FULL)}
    free = joined_of(replace(TINY, epsilon=None), rows, range(2), ALL_LINES)
    assert max(error for errors in free.values() for error in errors) < 0.05


def test_rows_are_dealt_once_and_tested_on_none_of_them(rows: Shard) -> None:
    few, many = (Dealt.of(replace(TINY, sites=sites), rows, 3) for sites in (2, 4))
    assert [len(part.y) for part in many.parts] == [30] * 4
    assert (few.aggregator.X == many.aggregator.X).all()
    assert (few.test.X == many.test.X).all(), "30 % of the rows, however many sites there are"
    every = np.concatenate([part.X for part in (*many.parts, many.aggregator, many.test)])
    assert len(np.unique(every, axis=0)) == 140 + 75
    with pytest.raises(ValueError, match="250 rows, not more than 260"):
        Dealt.of(replace(TINY, sites=8), rows, 0)
    fixed = [Dealt.of(replace(TINY, dealt_again=False), rows, number).test.X for number in (0, 5)]
    assert (fixed[0] == fixed[1]).all()


def test_one_site_may_have_its_own_rows_and_budget(rows: Shard) -> None:
    setting = replace(TINY, own_rows=7, own_epsilon=0.5)
    assert (setting.sizes, setting.epsilons) == ([30, 30, 7], [5.0, 5.0, 0.5])
    among_free = replace(TINY, epsilon=None, own_epsilon=0.0001)
    noisy, free = (Dealt.of(one, rows, 0).models for one in (among_free, replace(TINY, epsilon=None)))
    assert (noisy[:2] == free[:2]).all()
    assert np.linalg.norm(noisy[2] - free[2]) > np.linalg.norm(free[2])


def test_printed_views_are_longer_than_one_and_unit_views_are_not_more_private_for_nothing(rows: Shard) -> None:
    """With long views the same noise weighs less: the printed second level errs less than the private one."""
    setting = replace(TINY, epsilon=0.3, rows=40)
    errors = joined_of(setting, rows, range(15), (F_LOC, F_FULL, UNIT_VIEWS))
    assert np.linalg.norm(rows.X @ Dealt.of(setting, rows, 0).models.T, axis=1).max() > 1
    assert np.mean(errors[F_FULL]) <= np.mean(errors[UNIT_VIEWS])


def test_one_sites_mechanisms_err_less_with_more_epsilon(rows: Shard) -> None:
    lines = {NON_PRIVATE: (), OUTPUT: ("output", "paper"), "(3.8)": ("generalized", "thesis")}
    strict, loose = (
        alone_of(replace(TINY, sites=1, rows=150, epsilon=epsilon), rows, range(8), lines) for epsilon in (0.05, 50.0)
    )
    assert strict[NON_PRIVATE] == loose[NON_PRIVATE]
    for line in (OUTPUT, "(3.8)"):
        assert np.mean(loose[line]) < np.mean(strict[line])


def test_components_hold_nine_tenths_of_the_variance_in_the_unit_ball() -> None:
    X = np.random.default_rng(1).normal(size=(500, 3)) * [3, 2, 0.1] + 7
    inside = projected(X)
    assert inside.shape == (500, 2)
    assert np.linalg.norm(inside, axis=1).max() == pytest.approx(1)
    assert np.abs(inside.mean(axis=0)).max() < 1e-9


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
    X, second = xie_data.READ["covertype"]()
    assert X.shape == (30, 2)
    assert 0 < X[:, 0].min() < X.max() < 1.2
    assert second.sum() == 15
    with pytest.raises(KeyError):
        rows_of("no such data")


# ── what is run ──────────────────────────────────────────────────────────────


def test_points_are_frozen_and_quick_ones_are_of_fewer_runs() -> None:
    for figure in FIGURES.values():
        assert figure.quick.points.keys() == figure.full.points.keys()
        assert figure.quick is not figure.full, "only a quick run cannot tell"
        assert int(figure.quick.runs) * 5 <= int(figure.full.runs) or figure.name == "xie_theorems"
    points = [point for figure in FIGURES.values() for point in figure.full.points.values()]
    assert {folder for point in points for folder in point.data} == {"mnist", "covertype"}
    with pytest.raises(FrozenInstanceError):
        points[0].function = "another"  # type: ignore[misc]


def test_the_grids_are_the_thesiss() -> None:
    ends = {name: (len(grid.xs), grid.xs[0], grid.xs[-1]) for name, grid in vars(xie_grids).items()
            if isinstance(grid, xie_grids.Grid)}  # fmt: skip
    assert ends["over_epsilon"] == (15, 0.025, 0.375)
    assert ends["over_rows"] == (5, 1735, 8675)
    assert ends["over_lambda"] == (16 + 3, 1e-13, 100)
    assert ends["own_epsilon"] == (20, 0.025, 0.5)
    assert ends["own_rows"] == (11, 413, 4543)
    assert ends["epsilons"] == (30, 0.025, 0.75)
    assert ends["rows"] == (20, 39, 780)
    assert ends["aggregator"] == (10, 79, 790)
    assert ends["sites"] == (49, 2, 50)
    assert FIGURES["xie_fig5_6"].full.runs == "360"


def test_what_measures_does_not_draw() -> None:
    for module in ("xie_runs", "xie_theorems"):
        names = {path.stem for path in imported(f"scripts.figures.{module}")}
        assert not names & {"frame", "xie_plots", "xie_grids", "xie_tests"}


# ── the criteria ─────────────────────────────────────────────────────────────


def curve(name: str, *means: float, panel: str = "", xs: tuple[float, ...] = XS, spread: float = 1e-3) -> Curve:
    """A curve of these means, of 20 runs each."""
    rng = np.random.default_rng(sum(map(ord, name)))
    return Curve(panel, name, {x: mean + rng.normal(0, spread, 20) for x, mean in zip(xs, means, strict=True)})


def test_a_fall_is_along_the_whole_curve() -> None:
    assert xie_tests.falls(curve("A", 0.4, 0.3, 0.2, 0.1)).holds
    assert not xie_tests.falls(curve("A", 0.1, 0.1, 0.1, 0.1)).holds
    cliff = xie_tests.falls(curve("A", 0.4, 0.2, 0.3, 0.1))
    assert not cliff.holds
    assert "rises from 0.2" in cliff.words
    assert xie_tests.rises(curve("A", 0.3, 0.3, 0.3, 0.3, spread=0.05)) is None


def test_of_flat_curves_few_are_said_to_rise() -> None:
    """A chance of 1 % over all pairs of a curve, however long it is."""
    rng = np.random.default_rng(5)
    xs = tuple(float(x) for x in range(20))
    flat = [Curve("", "A", {x: rng.normal(0, 1, 20) for x in xs}) for _ in range(100)]
    assert sum(xie_tests.rises(one) is not None for one in flat) <= 4


def test_of_equal_curves_few_are_said_to_be_worse_at_some_point() -> None:
    """A chance of 1 % over all points of a curve, however many there are."""
    rng = np.random.default_rng(6)
    xs = tuple(float(x) for x in range(49))
    equal = [[Curve("", "A", {x: rng.normal(0, 1, 50) for x in xs}) for _ in range(2)] for _ in range(100)]
    assert sum(not xie_tests.no_worse(*pair).holds for pair in equal) <= 4
    assert not any(xie_tests.above(*pair).holds for pair in equal)


def test_a_curve_above_is_above_at_each_point() -> None:
    low = curve("F", 0.1, 0.1, 0.1, 0.1, spread=0.05)
    touching = Curve("", "A", {x: runs + (0.3 if x < 50 else -0.001) for x, runs in low.runs.items()})
    finding = xie_tests.above(touching, low)
    assert not finding.holds
    assert finding.ruling is Ruling.FAILS, "reversed surely at 50"
    assert "at 3 of 4 points, beyond chance at 3; first reversed at x = 50, beyond chance at 1" in finding.words
    assert xie_tests.no_worse(low, Curve("", "A", {x: runs + 0.001 for x, runs in low.runs.items()})).holds


def test_what_is_sure_of_one_comparison_need_not_be_among_many() -> None:
    differences = np.array([1.0, -1.0] * 10) + 0.75
    assert xie_tests.sure(differences)
    assert not xie_tests.sure(differences, 10)
    assert not xie_tests.sure(np.array([0.5, 1.0])), "two runs tell nothing"
    assert xie_tests.falls_little(curve("A", 0.54, 0.5, 0.5, 0.5)).holds
    assert not xie_tests.falls_little(curve("A", 0.56, 0.5, 0.5, 0.5)).holds


def wide(mean: float) -> FloatArray:
    """Ten runs of a mean whose standard error is .01."""
    return mean + np.array([0.03, -0.03] * 5)


def test_a_difference_that_runs_do_not_show_is_not_refuted_and_one_the_other_way_is_not_untold() -> None:
    flat, below = wide(0.5), Curve("", "F", {1.0: wide(0.5) * 0, 50.0: wide(0.5) * 0})
    falls = [xie_tests.falls(Curve("", "A", {1.0: flat, 50.0: np.full(10, last)})) for last in (0.4, 0.48, 0.52)]
    assert [one.ruling for one in falls] == [Ruling.HOLDS, Ruling.UNTOLD, Ruling.FAILS]
    little = [
        xie_tests.falls_little(Curve("", "A", {1.0: flat, 50.0: np.full(10, last)})) for last in (0.46, 0.44, 0.4)
    ]
    assert [one.ruling for one in little] == [Ruling.HOLDS, Ruling.UNTOLD, Ruling.FAILS]
    for means, ruling in (
        ((0.1, 0.1), Ruling.HOLDS), ((0.01, 0.01), Ruling.UNTOLD), ((0.1, -0.1), Ruling.FAILS),
        ((0.02, -0.01), Ruling.FAILS), ((-0.01, -0.01), Ruling.FAILS),
    ):  # fmt: skip
        worse = Curve("", "A", {x: wide(mean) for x, mean in zip((1.0, 50.0), means, strict=True)})
        assert xie_tests.above(worse, below).ruling is ruling
    for mean, ruling in ((0.1, Ruling.HOLDS), (0.01, Ruling.UNTOLD), (-0.01, Ruling.FAILS)):
        one = Curve("", "A", {1.0: wide(mean)})
        assert xie_tests.told_apart(one, xie_tests.between(below, most=1)).ruling is ruling
    assert xie_tests.together(falls[0], falls[1]).ruling is Ruling.UNTOLD
    assert xie_tests.together(falls[1], falls[2]).ruling is Ruling.FAILS, "untold only if all else holds"


def test_what_digits_do_not_show_is_said_in_words() -> None:
    assert [xie_tests.size(value) for value in (0.00007, 0.0001, 0.25168)] == ["under 0.0001", "0.0001", "0.2517"]
    still, other = curve("F", 0.1, 0.1, 0.1, 0.1, spread=0.0), curve("A", 0.1, 0.1, 0.1, 0.4, spread=0.0)
    assert xie_tests.falls_less(other, still).words == "A rises by 0.300, F does not move"
    assert xie_tests.no_worse(still, still).words.endswith("at 0 of 4 points; mean difference under 0.0001")


def test_stable_above_and_same_can_fail() -> None:
    high, low = curve("A", 0.3, 0.3, 0.3, 0.3), curve("F", 0.1, 0.1, 0.1, 0.1)
    crossing = curve("F", 0.1, 0.1, 0.4, 0.1)
    assert xie_tests.stable(high).holds
    assert not xie_tests.stable(crossing).holds
    assert xie_tests.above(high, low).holds
    assert not xie_tests.above(high, crossing).holds
    assert xie_tests.no_worse(low, high).holds
    assert not xie_tests.no_worse(crossing, high).holds
    assert xie_tests.about_same(high, curve("G", 0.3, 0.303, 0.3, 0.3)).holds
    assert not xie_tests.about_same(high, curve("G", 0.3, 0.306, 0.3, 0.3)).holds
    assert xie_tests.falls_less(low, curve("A", 0.3, 0.2, 0.2, 0.1)).holds
    assert not xie_tests.falls_less(curve("A", 0.3, 0.2, 0.2, 0.1), low).holds


# ── the verdicts ─────────────────────────────────────────────────────────────


def verdicts(figure: str, *curves: Curve) -> dict[str, list[Ruling]]:
    """The rulings of a figure's verdicts, by claim."""
    found: dict[str, list[Ruling]] = {}
    for verdict in FIGURES[figure].judge(list(curves)):
        assert isinstance(verdict, Verdict)
        found.setdefault(verdict.claim.removeprefix("xie."), []).append(verdict.ruling)
    return found


FALLING, STABLE, HIGH = (0.3, 0.25, 0.22, 0.2), (0.1, 0.1, 0.1, 0.1), (0.6, 0.6, 0.6, 0.6)
PRIVATE: Mapping[str, tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]] = {
    "xie_fig5_18": (FALLING, STABLE, (0.15, 0.15, 0.15, 0.15)),
    "xie_fig5_20": (HIGH, FALLING, (0.4, 0.35, 0.3, 0.25)),
    "xie_fig5_22": ((0.6, 0.59, 0.59, 0.58), FALLING, (0.4, 0.35, 0.3, 0.25)),
}
"""A, F_Loc and F_Full as Table 6.1 has them."""


@pytest.mark.parametrize("figure", PRIVATE)
def test_cells_hold_of_curves_that_are_as_the_table_has_them_and_of_no_others(figure: str) -> None:
    average, local, full = PRIVATE[figure]
    lines = [curve(name, *means) for name, means in ((AVERAGE, average), (F_LOC, local), (F_FULL, full))]
    unit = curve(UNIT_VIEWS, *(0.9, 0.9, 0.9, 0.9))
    right = verdicts(figure, *lines, unit)
    cells = [claim for claim in right if claim.startswith("table-")]
    assert len(cells) == 2
    assert all(right[cell] == [Ruling.HOLDS] for cell in cells)
    assert (right["full-between"], right["unit-views"]) == ([Ruling.HOLDS], [Ruling.FAILS])
    turned = [curve(name, *means) for name, means in ((AVERAGE, STABLE), (F_LOC, HIGH), (F_FULL, HIGH))]
    wrong = verdicts(figure, *turned, unit)
    assert all(wrong[cell] == [Ruling.FAILS] for cell in cells)


def test_the_cliff_at_a_quarter_fails_the_cells_over_epsilon() -> None:
    xs = (0.025, 0.1, 0.25, 0.75)
    lines = [curve(F_LOC, *STABLE, xs=xs), curve(F_FULL, *STABLE, xs=xs), curve(UNIT_VIEWS, *HIGH, xs=xs)]
    smooth, cliff = (curve(AVERAGE, *means, xs=xs) for means in ((0.5, 0.4, 0.3, 0.2), (0.5, 0.4, 0.5, 0.2)))
    for average, ruling in ((smooth, Ruling.HOLDS), (cliff, Ruling.FAILS)):
        found = verdicts("xie_fig5_16", average, *lines)
        assert found["table-public-epsilon"] == found["table-full-epsilon"] == [ruling]
        assert found["noise-hurts-feature-less"] == [Ruling.FAILS, Ruling.HOLDS] * 2, "F_Loc does not fall"
    both = verdicts("xie_fig5_16", smooth, curve(F_LOC, 0.12, 0.11, 0.10, 0.05, xs=xs), *lines[1:])
    assert both["noise-hurts-feature-less"] == [Ruling.HOLDS] * 4
    turned = verdicts("xie_fig5_16", curve(AVERAGE, *STABLE, xs=xs), curve(F_LOC, *HIGH, xs=xs), *lines[1:])
    assert turned["noise-hurts-feature-less"] == [Ruling.FAILS] * 4


def test_over_sites_the_average_may_fall_by_too_much_or_not_at_all() -> None:
    others = [curve(F_FULL, *FALLING), curve(UNIT_VIEWS, *HIGH)]
    for means, expected in (
        ((0.60, 0.59, 0.58, 0.57), [Ruling.HOLDS] * 3),
        ((0.6, 0.6, 0.6, 0.6), [Ruling.FAILS, Ruling.HOLDS, Ruling.HOLDS]),
        ((0.6, 0.55, 0.5, 0.45), [Ruling.HOLDS, Ruling.FAILS, Ruling.HOLDS]),
    ):
        found = verdicts("xie_fig5_22", curve(AVERAGE, *means), curve(F_LOC, *FALLING), *others)
        assert found["average-hardly-falls"] == expected
    still = verdicts("xie_fig5_22", curve(AVERAGE, *HIGH), curve(F_LOC, *STABLE), *others)
    assert still["average-hardly-falls"][-1] is Ruling.FAILS


@pytest.mark.parametrize(
    ("figure", "claim", "ours"),
    [
        ("xie_fig5_16", "full-between", [False]),
        ("xie_fig5_18", "full-between", [False]),
        ("xie_fig5_20", "full-between", [True]),
        ("xie_fig5_22", "full-between", [True]),
        ("xie_fig5_20", "full-worst-in-m0", [False, True]),
        ("xie_fig5_16", "noise-hurts-feature-less", [False, False, True, True]),
        ("xie_fig5_6", "free-feature-no-worse", [False]),
        ("xie_fig5_10", "free-feature-no-worse", [True]),
        ("xie_fig5_12", "free-feature-no-worse", [True]),
        ("xie_fig5_14", "free-feature-no-worse", [True]),
    ],
)
def test_what_stands_elsewhere_in_the_thesis_is_called_ours(figure: str, claim: str, ours: list[bool]) -> None:
    xs = (0.1, 0.2, 26.0, 50.0)
    lines = [curve(name, *HIGH, xs=xs) for name in (AVERAGE, F_LOC, F_FULL, UNIT_VIEWS)]
    assert [bool(one.ours) for one in FIGURES[figure].judge(lines) if one.claim == f"xie.{claim}"] == ours


def test_cells_without_noise_hold_one_way_alone() -> None:
    falls, later = curve(AVERAGE, 0.030, 0.028, 0.027, 0.020, spread=1e-4), (0.031, 0.0285, 0.0285, 0.0284)
    many = verdicts("xie_fig5_14", falls, curve(F_LOC, *later, spread=1e-4))
    assert many["table-free-n"] == [Ruling.HOLDS]
    assert many["free-feature-no-worse"] == [Ruling.FAILS]
    rising = verdicts("xie_fig5_14", falls, curve(F_LOC, 0.031, 0.028, 0.029, 0.030, spread=1e-4))
    assert rising["free-feature-rises"] == [Ruling.HOLDS]
    same = verdicts("xie_fig5_10", falls, curve(F_LOC, 0.030, 0.028, 0.027, 0.022, spread=1e-4))
    assert same == {"table-free-m": [Ruling.HOLDS], "free-feature-no-worse": [Ruling.FAILS]}
    apart = verdicts("xie_fig5_12", curve(AVERAGE, *HIGH), curve(F_LOC, *FALLING))
    assert apart == {"table-free-m0": [Ruling.HOLDS], "free-feature-no-worse": [Ruling.HOLDS]}
    (x, *_) = XS
    bars = [curve(name, mean, xs=(x,)) for name, mean in ((AVERAGE, 0.03), (F_LOC, 0.02))]
    assert verdicts("xie_fig5_6", *bars)["table-free-epsilon"] == [Ruling.HOLDS]
    assert verdicts("xie_fig5_6", *(replace(one, name=name) for one, name in zip(bars, (F_LOC, AVERAGE), strict=True)))[
        "table-free-epsilon"
    ] == [Ruling.FAILS]


def test_statements_of_one_site_can_fail() -> None:
    xs = (0.001, 0.007, 0.01, 1.0)
    says = verdicts("xie_fig3_5", curve(OBJECTIVE, 0.3, 0.15, 0.14, 0.145, xs=xs))["steady-from-007"]
    assert says == [Ruling.HOLDS] * 3
    measured = verdicts("xie_fig3_5", curve(OBJECTIVE, 0.27, 0.159, 0.140, 0.061, xs=xs))["steady-from-007"]
    assert measured == [Ruling.HOLDS, Ruling.FAILS, Ruling.FAILS]
    flat = [curve(name, *STABLE, panel="p") for name in (NON_PRIVATE, OUTPUT, OBJECTIVE)]
    steep = [curve(name, *FALLING, panel="p") for name in (OUTPUT, OBJECTIVE)]
    for figure in ("xie_fig3_1", "xie_fig3_4", "xie_half_width"):
        assert Ruling.HOLDS not in {ruling for rulings in verdicts(figure, *flat).values() for ruling in rulings}
        rising = [curve(name, *reversed(FALLING), panel="p") for name in (OUTPUT, OBJECTIVE)]
        assert {Ruling.FAILS} == {ruling for rulings in verdicts(figure, *rising).values() for ruling in rulings}
        assert {Ruling.HOLDS} == {ruling for rulings in verdicts(figure, *steep).values() for ruling in rulings}
    own = [curve(AVERAGE, *FALLING), curve(F_LOC, *STABLE)]
    assert verdicts("xie_fig5_2", *own) == {"own-epsilon": [Ruling.HOLDS]}
    assert verdicts("xie_fig5_2", curve(AVERAGE, *reversed(FALLING)), own[1]) == {"own-epsilon": [Ruling.FAILS]}
    assert not verdicts("xie_fig5_4", *own)


def test_the_statement_on_local_and_global_models_can_hold_and_fail() -> None:
    xs = (0.1, 1.0)
    says = {LOCAL: (0.46, 0.10), GLOBAL: (0.05, 0.03), AVERAGE: (0.39, 0.02), F_FULL: (0.15, 0.02)}
    lines = [curve(name, *means, xs=xs) for name, means in says.items()]
    assert verdicts("xie_fig5_31", *lines) == {"local-changes-most": [Ruling.HOLDS] * 4}
    measured = says | {GLOBAL: (0.153, 0.027), AVERAGE: (0.39, 0.048), F_FULL: (0.145, 0.041)}
    lines = [curve(name, *means, xs=xs) for name, means in measured.items()]
    assert verdicts("xie_fig5_31", *lines)["local-changes-most"] == [Ruling.HOLDS, *[Ruling.FAILS] * 3]


# ── theorems ─────────────────────────────────────────────────────────────────


def test_the_theorems_example_comes_out() -> None:
    case = Constants()
    assert case.convexity == pytest.approx(0.11)
    assert case.first(private=False) == pytest.approx(27_915, abs=0.5)
    assert case.second(private=False) == pytest.approx(1_325.7, abs=0.05)
    assert case.bound(sites_private=False, aggregator_private=False) == pytest.approx(1.48e8, rel=1e-3)
    assert case.span == 10
    assert printed_hessian_bound() == pytest.approx(81.486, abs=5e-4)


def test_the_theorems_are_vacuous_for_any_number_of_rows_and_would_not_be_without_their_constant_terms() -> None:
    curves = FIGURES["xie_theorems"].read({x: bounds(x) for x in (789, 800_000)})
    found = verdicts("xie_theorems", *curves)
    assert [found[f"theorem-{name}"] for name in ("4-12", "4-14", "4-16")] == [[Ruling.VACUOUS]] * 3
    assert found["hessian-bound"] == [Ruling.HOLDS]
    small = [replace(one, runs={x: runs / 1e12 for x, runs in one.runs.items()}) for one in curves]
    assert verdicts("xie_theorems", *small)["theorem-4-12"] == [Ruling.HOLDS]
    assert [curve.name for curve in curves][:3] == list(NAMES)


# ── the report ───────────────────────────────────────────────────────────────


def test_the_table_has_a_verdict_a_cell() -> None:
    cells = {f"xie.table-{cell}" for conditions in xie.CELLS.values() for cell in conditions}
    assert len(cells) == 12
    assert cells == {key for key in claims() if key.startswith("xie.table-")}
    assert len([item for item in items() if item.paper == "xie"]) == 50


@pytest.mark.slow
@pytest.mark.parametrize("figure", ["xie_fig3_1", "xie_fig5_6", "xie_fig5_16", "xie_theorems"])
def test_a_sweep_is_read_into_a_table_and_a_picture(
    figure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, lines = FIGURES[figure], (OUTPUT, OBJECTIVE) if "3_1" in figure else (AVERAGE, F_LOC, F_FULL, UNIT_VIEWS)
    results = {
        label: bounds(label) if figure == "xie_theorems" else {line: [0.1, 0.2, 0.3] for line in lines}
        for label in drawn.quick.points
    }
    judge: Callable[[object], list[Verdict]] = lambda _: []  # noqa: E731
    replace(drawn, judge=judge).redraw(results, tmp_path)
    with (tmp_path / f"{figure}.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(results) * (4 if lines[0] == AVERAGE else 2)
    assert len(np.unique(plt.imread(tmp_path / f"{figure}.png")[..., :3].reshape(-1, 3), axis=0)) > 10
