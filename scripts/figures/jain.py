"""Jain & Thakurta's Figure 1, and their theorems beside what is measured.

"(Near) Dimension Independent Risk Bounds for Differentially Private Learning", ICML 2014. Their Figure 1 (a), (b) has
accuracies over epsilon on the URL set and Cod-RNA, (c) over the number of columns. Lambda is .001 of (1/n) sum loss +
(lambda/2) |w|^2 here, that is .001 n on the sum scale, which their (1/n) sum loss + (Lambda/2n) |w|^2 has: .001 there
would ask for noise of deviation 2,000. (a) has 5,700 rows of the set, (c) columns of zeros beside Cod-RNA's own.

In (c), noise of density exp(-beta |b|) has the length p / beta, in a direction that the nine columns which are not zero
share with all others: it moves them by sqrt(9 p) / beta. Inside the objective of n rows that is sqrt(9 p) 2 / (n
epsilon), to be set against a gradient: so what p does to n rows, p / 10^4 does to n / 100, and there are two panels.
What lies on an objective's answer, to hide a solver's error, grows with p too, and harms first where rows are many: the
line without it is what the tilt does.

Beside the paper's methods are those of the least noise that is proven (tight), output perturbation with noise of
density exp(-beta |b|), and the hinge itself, which takes output perturbation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from scripts.figures.curves import Curve, write
from scripts.figures.frame import Figure, Paper, Sweep, Verdict
from scripts.figures.jain_data import FOLDER
from scripts.figures.jain_plots import draw
from scripts.figures.jain_runs import EVERY, NONE, SOLVED_EXACTLY, Setting, accuracies, excess, orthant
from scripts.figures.point import Point

PAPER = Paper("jain", "Jain & Thakurta, ICML 2014: risk bounds of private learning that hardly know the dimension")
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
RUNS, QUICK_RUNS = 20, 3
COLUMNS = (10, 100, 3_000, 10_000, 100_000)  # up to `DENSE_COLUMNS` rows are solved as dense ones: 1,000 take a minute
MORE_COLUMNS = (10**6, 10**7, 10**8)  # not stored: noise on them, which changes no score, is not drawn
ROWS = {"all 41,674 rows": 0, "400 of them": 400}
FLAT, CHANCE = 0.01, 0.05
_OWN = 9
"""Columns of Cod-RNA, with its intercept."""
GAUSSIAN = [f"{mechanism}, Gaussian ({whose})" for mechanism in ("output", "objective") for whose in ("paper", "tight")]
LAPLACE = ["objective, L2-Laplace", "output, L2-Laplace"]
_LOSSES = {"Huber": "huber", "hinge": "hinge"}
Results = Mapping[Any, Any]


# ── accuracies ───────────────────────────────────────────────────────────────


def over_epsilon(data: str, seconds: float, runs: int, epsilons: Sequence[float] = EPSILONS) -> Sweep:
    """Return a point for each loss and run."""
    points = {
        (panel, run): Point.of(
            accuracies, FOLDER[data], about_seconds=seconds, setting=asdict(Setting(data, loss)), epsilons=epsilons,
            run=run,
        )
        for panel, loss in _LOSSES.items()
        for run in range(runs)
    }  # fmt: skip
    return Sweep(points, str(runs))


def over_columns(runs: int) -> Sweep:
    """A point for each number of rows, of columns, and run, at epsilon 5."""
    widths = {columns: Setting(columns=columns) for columns in COLUMNS}
    widths |= {columns: Setting(unstored=columns - _OWN) for columns in MORE_COLUMNS}
    points = {
        (panel, columns, run): Point.of(
            accuracies, "cod-rna", about_seconds=setting.columns / 5e3, setting=asdict(setting) | {"rows": rows},
            epsilons=[5.0], run=run, methods=list(EVERY),
        )
        for panel, rows in ROWS.items()
        for columns, setting in widths.items()
        for run in range(runs)
    }  # fmt: skip
    return Sweep(points, str(runs))


def read_epsilons(results: Results) -> list[Curve]:
    """Read the results as curves: a panel for each loss, a line for each method."""
    curves = []
    for panel in dict.fromkeys(panel for panel, _ in results):
        mine = [result for (name, _), result in results.items() if name == panel]
        for method in mine[0]:
            runs = zip(*(result[method] for result in mine), strict=True)
            complete = {
                epsilon: np.array(accuracies)
                for epsilon, accuracies in zip(EPSILONS, runs, strict=False)
                if None not in accuracies
            }
            curves.append(Curve(panel, method, complete))
    return curves


def read_columns(results: Results) -> list[Curve]:
    """A panel for each number of rows, a line a method."""
    places = list(dict.fromkeys((panel, columns) for panel, columns, _ in results))
    return [
        Curve(panel, method, {
            columns: np.array([result[method][0] for (*at, _), result in results.items() if at == [panel, columns]])
            for of, columns in places if of == panel
        })
        for panel in dict.fromkeys(panel for panel, _ in places)
        for method in next(iter(results.values()))
    ]  # fmt: skip


def judge_epsilons(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """Whose noise costs less, and where private models are as good as those without noise."""
    for panel in dict.fromkeys(curve.panel for curve in curves):
        by = {curve.name: curve for curve in curves if curve.panel == panel}
        pairs = [
            (f"{mechanism}, Gaussian (tight)", f"{mechanism}, Gaussian (paper)")
            for mechanism in ("output", "objective")
        ]
        pairs += [
            (f"{mechanism}, Gaussian (paper)", f"{mechanism}, L2-Laplace") for mechanism in ("output", "objective")
        ]
        for better, worse in pairs:
            if better in by:
                shared = sorted(by[better].runs.keys() & by[worse].runs.keys())
                gains = [by[better].mean(epsilon) - by[worse].mean(epsilon) for epsilon in shared]
                evidence = f"gains from {min(gains):+.3f} to {max(gains):+.3f}, ε = {shared[0]:g} to {shared[-1]:g}"
                claim = f"{panel}: {better} is no worse than {worse}, at any ε"
                yield Verdict(claim, min(gains) > -FLAT, evidence)
        best = max(by[name].mean(EPSILONS[-1]) for name in by if name != NONE)
        none = by[NONE].mean(EPSILONS[-1])
        evidence = f"{best:.3f}, {none:.3f}"
        yield Verdict(f"{panel}: at ε = 10 the best is within .01 of no noise", best > none - FLAT, evidence)
        for name in (name for name in by if len(by[name].runs) < len(EPSILONS)):
            missing = ", ".join(f"{epsilon:g}" for epsilon in EPSILONS if epsilon not in by[name].runs)
            yield Verdict(f"{panel}: {name} can be set at every ε", holds=False, evidence=f"not at ε = {missing}")


def judge_columns(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """Gaussian noise does not see columns of zeros; the other does."""
    for panel in dict.fromkeys(curve.panel for curve in curves):
        by = {curve.name: curve for curve in curves if curve.panel == panel}
        for name in GAUSSIAN:
            means = [by[name].mean(columns) for columns in by[name].runs]
            flat, evidence = max(means) - min(means) < FLAT, f"{min(means):.3f} to {max(means):.3f}"
            yield Verdict(
                f"{panel}: {name} is flat within .01, up to p = {max(by[name].runs):,}", flat, evidence, "flat"
            )
        for name in (*LAPLACE, SOLVED_EXACTLY):
            first = by[name].mean(COLUMNS[0])
            for columns in (COLUMNS[-1], MORE_COLUMNS[1]):
                last = by[name].mean(columns)
                claim, evidence = f"{panel}: {name} falls to chance by p = {columns:,}", f"{first:.3f} → {last:.3f}"
                yield Verdict(claim, abs(last - 0.5) < CHANCE, evidence, "falls with the dimension")
        for mechanism in ("output", "objective"):
            paper, tight = (by[f"{mechanism}, Gaussian ({whose})"] for whose in ("paper", "tight"))
            worst = min(tight.mean(columns) - paper.mean(columns) for columns in tight.runs)
            claim = f"{panel}: {mechanism}: tight is no worse than the paper's noise"
            yield Verdict(claim, worst > -FLAT / 2, f"{worst:+.4f} at worst")


# ── excess risk ──────────────────────────────────────────────────────────────

_EXCESS = Setting(regularization=0.1)
"""So large a lambda that noise of density exp(-beta |b|) still does harm by its square in 100,000 columns."""
_SLOPE = 0.05


def of_excess(runs: int) -> Sweep:
    """A point for each number of columns, at epsilon 10."""
    points = {
        columns: Point.of(
            excess, "cod-rna", about_seconds=columns / 1e3, setting=asdict(_EXCESS) | {"columns": columns},
            epsilon=10.0, runs=runs,
        )
        for columns in COLUMNS
    }  # fmt: skip
    return Sweep(points, str(runs))


def read_excess(results: Results) -> list[Curve]:
    """Read the results as curves: a line for each method, with its bound."""
    return [
        Curve("", name, {columns: np.array(result[name]["excess"]) for columns, result in results.items()},
              {columns: result[name]["bound"] for columns, result in results.items()})
        for name in results[COLUMNS[0]]
    ]  # fmt: skip


def slope(curve: Curve) -> float:
    """Return the slope of the logarithm of the mean over that of x, by least squares."""
    xs = sorted(curve.runs)
    return float(np.polyfit(np.log(xs), np.log([curve.mean(x) for x in xs]), 1)[0])


def judge_excess(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """The slope over the number of columns, and whether the bounds hold."""
    for curve in curves:
        fitted = slope(curve)
        if curve.name in GAUSSIAN:
            claim, holds = "does not grow with the columns: slope 0 ± .05", abs(fitted) <= _SLOPE
        else:
            claim, holds = "grows with the columns: slope at least .9", fitted >= 0.9  # noqa: PLR2004 -- as the claim
        yield Verdict(f"{curve.name}: excess risk {claim}", holds, f"slope {fitted:.3f}")
    shares = [curve.mean(x) / curve.bound[x] for curve in curves if curve.bound for x in curve.runs]
    yield Verdict(
        "all excess risks are below the theorems' bounds", max(shares) < 1, f"at most {max(shares):.2g} of it"
    )


# ── what the paper excludes ──────────────────────────────────────────────────


def of_orthant(runs: int) -> Sweep:
    """A point for each number of columns and run."""
    points = {
        (columns, run): Point.of(orthant, about_seconds=columns / 1e5, columns=columns, deviation=0.01, run=run)
        for columns in COLUMNS
        for run in range(runs)
    }
    return Sweep(points, str(runs))


def read_orthant(results: Results) -> list[Curve]:
    """Read the results as curves: a line with the constraint and one without."""
    return [
        Curve("", name, {
            columns: np.array([result[name] for (at, _), result in results.items() if at == columns])
            for columns in COLUMNS
        })
        for name in ("free", "in the orthant")
    ]  # fmt: skip


def judge_orthant(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """Free of constraints noise moves a score by the same in any dimension; in the orthant by the root of it."""
    free, limited = (slope(curve) for curve in curves)
    yield Verdict(
        "free noise moves a score by as much in any dimension: slope 0 ± .05", abs(free) <= _SLOPE, f"{free:.3f}"
    )
    yield Verdict(
        "projected onto the positive orthant, it moves it by √p: slope .5 ± .05", abs(limited - 0.5) <= _SLOPE,
        f"{limited:.3f}", "constraint sets are excluded",
    )  # fmt: skip


Judge = Callable[[Sequence[Curve]], Iterable[Verdict]]


def _figure(  # noqa: PLR0913, PLR0917 -- what differs from figure to figure
    name: str, title: str, sweep: Callable[[int], Sweep], read: Callable[[Results], list[Curve]], x: str, y: str,
    judge: Judge,
) -> Figure[list[Curve]]:  # fmt: skip
    return Figure(
        PAPER, name, title, sweep(RUNS), sweep(QUICK_RUNS), read, partial(write, x), partial(draw, x, y), judge
    )


_ACCURACY, _COLUMN = "accuracy on test rows", "columns p"
FIGURES = (
    _figure("jain_fig1a", "URL set, 5,700 rows, p = 3,231,961, δ = .001, λ = .001", partial(over_epsilon, "url", 60.0),
            read_epsilons, "ε", _ACCURACY, judge_epsilons),
    _figure("jain_fig1b", "Cod-RNA, p = 9, δ = .001, λ = .001", partial(over_epsilon, "cod-rna", 1.0), read_epsilons,
            "ε", _ACCURACY, judge_epsilons),
    _figure("jain_fig1c", "Cod-RNA and columns of zeros, ε = 5, δ = .001, λ = .001", over_columns, read_columns,
            _COLUMN, _ACCURACY, judge_columns),
    _figure("jain_excess", "Excess risk on Cod-RNA and columns of zeros, ε = 10, λ = .1", of_excess, read_excess,
            _COLUMN, "excess risk; dotted: its bound", judge_excess),
    _figure("jain_orthant", "Noise on the score of a row of equal numbers", of_orthant, read_orthant, _COLUMN,
            "deviation of the score", judge_orthant),
)  # fmt: skip
