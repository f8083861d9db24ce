"""Figures of Xie's thesis on privacy in distributed learning: one site's models, and those of many sites joined.

Error rates on test rows. The thesis's text has none: its plots are pictures. So what is judged is what the text and
Table 6.1 state, at the settings that they have, by the criteria of `scripts.figures.xie_tests`, which are ours.

The feature method's aggregator is private only with second-level features of length 1. They are a line and a claim of
their own; the thesis is judged by what it prints (`scripts.figures.xie_runs`). Covertype's figures wait for
that data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scripts.figures import xie_grids as grids
from scripts.figures.curves import Curve, write
from scripts.figures.frame import Figure, Paper, Ruling, Sweep, Verdict, standard_error
from scripts.figures.point import Point
from scripts.figures.xie_grids import OBJECTIVE, OUTPUT, Grid
from scripts.figures.xie_plots import ERROR, draw_histograms, draw_lines
from scripts.figures.xie_runs import AVERAGE, F_FULL, F_LOC, GLOBAL, LOCAL, UNIT_VIEWS
from scripts.figures.xie_tests import (
    Condition,
    Finding,
    Lines,
    about_same,
    above,
    between,
    change,
    falls,
    falls_less,
    falls_little,
    no_worse,
    panels,
    size,
    stable,
    sure,
    together,
    told_apart,
)
from scripts.figures.xie_theorems import NAMES, Constants, bounds, printed_hessian_bound

PAPER = Paper(
    "xie",
    "Xie's thesis: local, global and distributed private models",
    "A thesis on privacy in distributed learning, whose title page is not at hand.",
    "[1, i] for run i",
)
Judge = Callable[[Sequence[Curve]], Iterable[Verdict]]
_LARGE_N = 26
_FEW_SITES = 10
_QUARTER = 0.25
"""The largest epsilon of the thesis's figures in which sites alone add noise."""


def ruled(claim: str, case: str, finding: Finding, ours: str = "", why: str = "") -> Verdict:
    """The verdict of a finding; ``why`` is of this case alone."""
    return Verdict(f"xie.{claim}", case, finding.ruling, finding.words, ours, why=why)


class Statement(NamedTuple):
    """A case of a claim, when it holds of a panel's curves, and what in it is ours."""

    claim: str
    case: str
    condition: Condition
    ours: str = ""
    why: str = ""
    cause: str = ""

    def judged(self, lines: Lines) -> Verdict:
        """The verdict of curves."""
        verdict = ruled(self.claim, self.case, self.condition(lines), self.ours, self.why)
        return replace(verdict, cause=self.cause)


# ── one site ─────────────────────────────────────────────────────────────────


def judge_epsilon(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """One site's errors fall with epsilon."""
    for panel, lines in panels(curves).items():
        noisy = [curve for name, curve in lines.items() if name != grids.NON_PRIVATE]
        yield ruled("epsilon-helps-one-site", panel, together(*map(falls, noisy)))


def judge_rows(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """One site's errors fall with its rows."""
    for panel, lines in panels(curves).items():
        yield ruled("rows-help-one-site", panel, together(falls(lines[OUTPUT]), falls(lines[OBJECTIVE])))


def judge_lambda(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """The statement at Figure 3.5, in its three parts."""
    (curve,) = curves
    yield ruled("steady-from-007", "the error comes down until Λ = .007", falls(between(curve, most=0.007)))
    yield ruled("steady-from-007", "it is steady from .007 on", stable(between(curve, 0.007)))
    best = min(curve.runs, key=curve.mean)
    others = [runs for x, runs in curve.runs.items() if x != 0.01]  # noqa: PLR2004
    lowest = not any(sure(curve.runs[0.01] - runs, len(others)) for runs in others)
    words = f"{_mean(curve, 0.01)} at .01, {_mean(curve, best)} at {best:g}"
    yield ruled("steady-from-007", "it is lowest at .01", Finding(lowest, words))


def judge_half_width(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """A smoother loss has a lower error."""
    for panel, lines in panels(curves).items():
        for name in (OUTPUT, OBJECTIVE):
            yield ruled("smoother-is-better", f"{panel}, {name}", falls(lines[name]))


# ── Table 6.1 ────────────────────────────────────────────────────────────────


def _falls_to_f(f: str) -> Condition:
    return lambda lines: together(above(lines[AVERAGE], lines[f]), falls(lines[f]))


def _falls_above_stable(f: str) -> Condition:
    return lambda lines: together(falls(lines[AVERAGE]), above(lines[AVERAGE], lines[f]), stable(lines[f]))


def _both_fall(f: str) -> Condition:
    return lambda lines: together(above(lines[AVERAGE], lines[f]), falls(lines[AVERAGE]), falls(lines[f]))


def _same_and_fall(lines: Lines) -> Finding:
    return together(about_same(lines[AVERAGE], lines[F_LOC]), falls(lines[AVERAGE]), falls(lines[F_LOC]))


def _crosses(lines: Lines) -> Finding:
    """First both fall and are the same; for many sites A falls below F, which is stable."""
    few, many = ({name: part(curve) for name, curve in lines.items()} for part in (
        partial(between, most=_FEW_SITES), partial(between, least=_LARGE_N)))  # fmt: skip
    first = _same_and_fall(few)
    then = together(above(many[F_LOC], many[AVERAGE]), falls(many[AVERAGE]), stable(many[F_LOC]))
    words = f"N to {_FEW_SITES}: {first.words}; N from {_LARGE_N}: {then.words}"
    return replace(together(first, then), words=words)


def _to_a_quarter(condition: Condition) -> Condition:
    return lambda lines: condition({name: between(curve, most=_QUARTER) for name, curve in lines.items()})


CELLS: dict[str, dict[str, Condition]] = {
    "xie_fig5_6": {"free-epsilon": lambda lines: told_apart(lines[AVERAGE], lines[F_LOC])},
    "xie_fig5_10": {"free-m": _same_and_fall},
    "xie_fig5_12": {"free-m0": _falls_to_f(F_LOC)},
    "xie_fig5_14": {"free-n": _crosses},
    "xie_fig5_16": {
        "public-epsilon": _to_a_quarter(_falls_above_stable(F_LOC)),
        "full-epsilon": _falls_above_stable(F_FULL),
    },
    "xie_fig5_18": {"public-m": _falls_above_stable(F_LOC), "full-m": _falls_above_stable(F_FULL)},
    "xie_fig5_20": {"public-m0": _falls_to_f(F_LOC), "full-m0": _falls_to_f(F_FULL)},
    "xie_fig5_22": {
        "public-n": _both_fall(F_LOC),
        "full-n": lambda lines: above(lines[AVERAGE], lines[F_FULL]),
    },
}
"""What each cell of Table 6.1 says, by the figure that has its curves."""


def _judged(figure: str, curves: Sequence[Curve]) -> Iterable[Verdict]:
    (lines,) = panels(curves).values()
    for cell, condition in CELLS[figure].items():
        yield ruled(f"table-{cell}", "MNIST 3 or 7", condition(lines))


def judge_free(figure: str, over: str) -> Judge:
    """A cell of the first row, and the statement that F is at least as good as A, which stands at the histograms."""
    ours = "" if figure == "xie_fig5_6" else "the thesis says it at Figures 5.6 to 5.9"

    def judge(curves: Sequence[Curve]) -> Iterable[Verdict]:
        yield from _judged(figure, curves)
        (lines,) = panels(curves).values()
        yield ruled("free-feature-no-worse", over, no_worse(lines[F_LOC], lines[AVERAGE]), ours)
        if figure == "xie_fig5_14":
            yield ruled("free-feature-rises", over, _falls_then_rises(lines[F_LOC]))

    return judge


def _falls_then_rises(curve: Curve) -> Finding:
    """Whether the error falls to some N inside, and surely rises from there to the largest."""
    best, last = min(curve.runs, key=curve.mean), max(curve.runs)
    first = min(curve.runs)
    turns = all(sure(curve.runs[end] - curve.runs[best], 2 * len(curve.runs)) for end in (first, last))
    words = (
        f"{curve.mean(first):.4f} at {first:g}, least {curve.mean(best):.4f} at {best:g}, {curve.mean(last):.4f} at "
    )
    return Finding(turns, f"{words}{last:g}")


def judge_private(figure: str, over: str, *statements: Statement) -> Judge:
    """The cells of the second and third rows, the order of both second levels, and further statements."""
    ours = "" if over in {"ε", "m"} else "the thesis says it before its figures over m0 and N"

    def judge(curves: Sequence[Curve]) -> Iterable[Verdict]:
        yield from _judged(figure, curves)
        (lines,) = panels(curves).values()
        yield ruled("full-between", f"over {over}", _in_order(F_FULL)(lines), ours)
        yield ruled("unit-views", f"over {over}", _in_order(UNIT_VIEWS)(lines), why=_UNIT_WHY.get(over, ""))
        yield from (statement.judged(lines) for statement in statements)

    return judge


_UNIT_WHY = {
    "ε": "Below ε = .375 it errs less than A, from there on about as much or a little more.",
    "m0": "With fewer than 474 rows at the aggregator it errs more than A, from 474 on less.",
    "N": "From about ten sites on it errs about as much as A, or more.",
}


def _in_order(full: str) -> Condition:
    return lambda lines: together(above(lines[full], lines[F_LOC]), above(lines[AVERAGE], lines[full]))


def _both_fall_locally(lines: Lines) -> Finding:
    return together(falls(lines[AVERAGE]), falls(lines[F_LOC]))


def _less_affected(lines: Lines) -> Finding:
    return above(lines[AVERAGE], lines[F_LOC])


def _worst(full: str) -> Condition:
    return lambda lines: together(above(lines[full], lines[AVERAGE]), above(lines[full], lines[F_LOC]))


_BEYOND = "ε beyond .25, where the thesis draws these lines for Figure 5.24"
_NOISE = "noise-hurts-feature-less"
_OVER_EPSILON = (
    Statement(_NOISE, "both get better, ε to .25", _to_a_quarter(_both_fall_locally)),
    Statement(_NOISE, "F is less affected, ε to .25", _to_a_quarter(_less_affected)),
    Statement(_NOISE, "both get better, ε to .75", _both_fall_locally, _BEYOND),
    Statement(_NOISE, "F is less affected, ε to .75", _less_affected, _BEYOND),
)
_OVER_SITES = (
    Statement(
        "average-hardly-falls", "A's error decreases", lambda lines: falls(lines[AVERAGE]),
        why="A falls by .078 ± .030 from 2 to 50 sites: not surely, by 50 runs.",
    ),
    Statement(
        "average-hardly-falls", "A's error decreases by little", lambda lines: falls_little(lines[AVERAGE]),
        "little: less than .05",
        "A falls by .078 ± .030: by 50 runs not surely by more than our .05, and less than a third of what F falls by.",
    ),
    Statement("average-hardly-falls", "F's error falls", lambda lines: falls(lines[F_LOC])),
)  # fmt: skip
_OVER_AGGREGATOR = (
    Statement("full-worst-in-m0", "F_Full as printed", _worst(F_FULL)),
    Statement(
        "full-worst-in-m0", "F_Full of second-level features of length 1", _worst(UNIT_VIEWS),
        "second-level features of length 1, with which alone the aggregator's rows are private",
        "It errs more than A below 474 rows at the aggregator and less from there on, at none beyond chance.", "parley",
    ),
)  # fmt: skip


def judge_own_epsilon(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """One site's larger epsilon helps the average more than the feature method."""
    for panel, lines in panels(curves).items():
        yield ruled("own-epsilon", panel, falls_less(lines[F_LOC], lines[AVERAGE]))


def judge_own_rows(_: Sequence[Curve]) -> Iterable[Verdict]:
    """Nothing: the thesis's text says nothing of these figures."""
    return ()


def judge_everybody(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """From epsilon = .1 to 1: by how many percentage points local and global errors change, and who is better."""
    (lines,) = panels(curves).values()
    for name, published in ((LOCAL, 36.0), (GLOBAL, 2.0)):
        points = 100 * change(lines[name])
        holds = abs(points.mean() - published) <= published / 4
        words = f"{points.mean():.1f} ± {standard_error(points):.1f} percentage points"
        yield ruled(
            "local-changes-most", f"the {name} error changes by {published:g} percentage points", Finding(holds, words)
        )
    first, last = (at(lines[GLOBAL].runs) for at in (min, max))
    for name in (AVERAGE, F_FULL):
        worse = sure(lines[name].runs[first] - lines[GLOBAL].runs[first])
        better = sure(lines[GLOBAL].runs[last] - lines[name].runs[last])
        words = "; ".join(f"ε = {x:g}: {name} {_mean(lines[name], x)}, global {_mean(lines[GLOBAL], x)}"
                          for x in (first, last))  # fmt: skip
        yield ruled(
            "local-changes-most", f"{name}: worse than global at .1, better at 1", Finding(worse and better, words),
            why="With all rows in one place the global model errs less at ε = 1 than those that are joined.",
        )  # fmt: skip


# ── theorems ─────────────────────────────────────────────────────────────────


def judge_theorems(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """The bounds of the example, and what (3.8) is."""
    (lines,) = panels(curves).values()
    case = Constants()
    for name in NAMES:
        curve = lines[name]
        words = (
            f"{curve.mean(case.rows):.3g} at m = m0 = 789, {curve.mean(max(curve.runs)):.3g} at {max(curve.runs):,.0f}"
        )
        least = min(curve.mean(x) for x in curve.runs)
        ruling = Ruling.VACUOUS if least > 4 * case.length**2 else Ruling.HOLDS
        yield Verdict(f"xie.theorem-{name[:4].replace('.', '-')}", "the example, λ1 = .1", ruling,
                      f"{words}, where ‖f*‖² = {case.length**2:g}")  # fmt: skip
    words = (
        f"infinite at λ1 = 0; of a loss with λ1 = .1, in our example, {case.span:g} where ‖f*‖² = {case.length**2:g}"
    )
    yield Verdict("xie.theorem-4-11", "logistic and Huber loss", Ruling.VACUOUS, words)
    printed, right = printed_hessian_bound(), 1.0
    words = f"{printed:.2f}, and no eigenvalue is above c = 1/(2h) = {right:g}"
    yield ruled("hessian-bound", "d = 80, h = .5", Finding(printed >= right, words), "d = 80, from our PCA")


def _mean(curve: Curve, x: float) -> str:
    return f"{curve.mean(x):.3f} ± {size(standard_error(curve.runs[x]), 3)}"


def _read_bounds(results: Mapping[Any, Any]) -> list[Curve]:
    return [
        Curve("", name, {x: np.array(lines[name]) for x, lines in results.items()})
        for name in next(iter(results.values()))
    ]


def _figure(
    name: str, title: str, grid: Grid, judge: Judge, draw: Callable[[str, Sequence[Curve], Path], None] | None = None
) -> Figure[list[Curve]]:
    """A figure of error rates over what varies, unless it is drawn otherwise."""
    return Figure(
        PAPER, name, title, grid.sweep(), grid.sweep(quick=True), grid.read,
        partial(write, grid.label), draw or partial(draw_lines, grid.label, ERROR), judge,
    )  # fmt: skip


def _theorems() -> Figure[list[Curve]]:
    points = {x: Point.of(bounds, about_seconds=0.01, rows=int(x)) for x in (789, 8_000, 80_000, 800_000)}
    return Figure(
        PAPER, "xie_theorems", "Theorems 4.12, 4.14 and 4.16 in an example", Sweep(points, "1"),
        Sweep(points, "1"), _read_bounds,
        partial(write, "m = m0"), partial(draw_lines, "m = m0", "squared distance to the best model"), judge_theorems,
    )  # fmt: skip


_OF_ONE = "one site of 8,678 rows"
FIGURES = (
    _figure("xie_fig3_1", f"Figures 3.1, 3.2 and 3.6: {_OF_ONE} over ε", grids.over_epsilon, judge_epsilon),
    _figure("xie_fig3_4", "Figure 3.4: one site over its rows, ε = .1", grids.over_rows, judge_rows),
    _figure("xie_fig3_5", f"Figure 3.5: {_OF_ONE} over Λ, ε = .1", grids.over_lambda, judge_lambda),
    _figure("xie_half_width", f"Chapter 3: {_OF_ONE} over h", grids.over_half_width, judge_half_width),
    _figure("xie_fig5_2", "Figures 5.2 and 5.3: one site's ε'", grids.own_epsilon, judge_own_epsilon),
    _figure("xie_fig5_4", "Figures 5.4 and 5.5: one site's rows m'", grids.own_rows, judge_own_rows),
    _figure("xie_fig5_6", "Figures 5.6 and 5.7: 360 runs without noise", grids.histograms,
            judge_free("xie_fig5_6", "N = 10, m = m0 = 789"), draw_histograms),
    _figure("xie_fig5_10", "Figure 5.10: no noise, over m", grids.free_rows, judge_free("xie_fig5_10", "over m")),
    _figure("xie_fig5_12", "Figure 5.12: no noise, over m0", grids.free_aggregator,
            judge_free("xie_fig5_12", "over m0")),
    _figure("xie_fig5_14", "Figure 5.14: no noise, over N", grids.free_sites, judge_free("xie_fig5_14", "over N")),
    _figure("xie_fig5_16", "Figures 5.16 and 5.24: sites private, and all, over ε", grids.epsilons,
            judge_private("xie_fig5_16", "ε", *_OVER_EPSILON)),
    _figure("xie_fig5_18", "Figures 5.18 and 5.26: sites private, and all, over m", grids.rows,
            judge_private("xie_fig5_18", "m", Statement("rows-lower-error", "over m", _both_fall_locally))),
    _figure("xie_fig5_20", "Figures 5.20 and 5.28: sites private, and all, over m0", grids.aggregator,
            judge_private("xie_fig5_20", "m0", *_OVER_AGGREGATOR)),
    _figure("xie_fig5_22", "Figures 5.22 and 5.30: sites private, and all, over N", grids.sites,
            judge_private("xie_fig5_22", "N", *_OVER_SITES)),
    _figure("xie_fig5_31", "Figures 5.31 to 5.41: local, global and joined models", grids.everybody, judge_everybody),
    _theorems(),
    _figure("xie_covertype", "Figure 5.17: Covertype, sites private, over ε", grids.forests,
            lambda curves: (ruled("covertype", "over ε", _falls_above_stable(F_LOC)(lines))
                            for lines in panels(curves).values())),
)  # fmt: skip
