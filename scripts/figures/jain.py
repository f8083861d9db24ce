"""Jain & Thakurta's Figure 1, and their theorems beside what is measured.

"(Near) Dimension Independent Risk Bounds for Differentially Private Learning", ICML 2014. Their Figure 1 (a), (b) has
accuracies over epsilon on the URL set and Cod-RNA, (c) over the number of columns. Lambda is .001 of (1/n) sum loss +
(lambda/2) |w|^2 here, that is .001 n on the sum scale, which their (1/n) sum loss + (Lambda/2n) |w|^2 has: .001 there
would ask for noise of deviation 2,000. (a) has 5,700 rows of the set, (c) columns of zeros beside Cod-RNA's own.

In (c), noise of density exp(-beta |b|) has the length p / beta, in a direction that the nine columns which are not zero
share with all others: it moves them by sqrt(9 p) / beta. Its beta on the output is equation (3)'s, half of Chaudhuri's.
What p does to all rows it does far sooner to 400 of them, and there are two panels. The line of objective perturbation
by such noise falls by what hides a solver's error too, which no paper counts and which grows with p.

Beside the paper's methods are those of the least noise that is proven (tight), and in (a), (b) the hinge itself, which
takes output perturbation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from scripts.figures.curves import Curve, write
from scripts.figures.frame import Figure, Paper, Ruling, Sweep, Verdict, power
from scripts.figures.jain_data import FOLDER
from scripts.figures.jain_plots import draw
from scripts.figures.jain_runs import NONE, Setting, accuracies, excess, orthant
from scripts.figures.point import Point

PAPER = Paper(
    "jain",
    "Jain & Thakurta, ICML 2014: risk bounds of private learning that hardly know the dimension",
    "“(Near) Dimension Independent Risk Bounds for Differentially Private Learning”, PMLR 32.",
    "[11, i], [13, i] or [15, i] for run i; i for leaders",
)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
RUNS, QUICK_RUNS = 20, 2
_FEW = 10
"""Runs of the figure whose rows have millions of columns."""
COLUMNS = (10, 100, 3_000, 10_000, 100_000)  # up to `DENSE_COLUMNS` rows are solved as dense ones: 1,000 take a minute
ROWS = {"all 41,674 rows": 0, "400 of them": 400}
FLAT, SUFFERS, LARGE = 0.01, 0.05, 3_000
MECHANISMS = ("output", "objective")
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
    points = {
        (panel, columns, run): Point.of(
            accuracies, "cod-rna", about_seconds=0.1 if rows else 3.0,
            setting=asdict(Setting(columns=columns, rows=rows)), epsilons=[5.0], run=run,
        )
        for panel, rows in ROWS.items()
        for columns in COLUMNS
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


def judge_epsilons(figure: str, curves: Sequence[Curve]) -> Iterator[Verdict]:
    """Whether Gaussian noise does no worse than the other, at each epsilon, nor tight noise than the paper's."""
    gains: dict[str, list[float]] = {}
    near: dict[str, float] = {}
    for panel in dict.fromkeys(curve.panel for curve in curves):
        by = {curve.name: curve for curve in curves if curve.panel == panel}
        paper = {name: by[f"{name}, Gaussian (paper)"] for name in MECHANISMS if f"{name}, L2-Laplace" in by}
        if figure == "a":
            all_gains = [_gains(curve, by[f"{name}, L2-Laplace"]) for name, curve in paper.items()]
            evidence = "; ".join(map(_spread, paper, all_gains))
            ruling = Ruling.of(min(map(min, all_gains)) > -FLAT)
            yield Verdict("jain.gaussian-on-url", panel, ruling, evidence)
        for name, curve in paper.items():
            gains.setdefault(name, []).extend(_gains(by[f"{name}, Gaussian (tight)"], curve))
        best = max(by[name].mean(EPSILONS[-1]) for name in by if name != NONE)
        near[panel] = best - by[NONE].mean(EPSILONS[-1])
    evidence = ", ".join(f"{panel}: {gain:+.3f}" for panel, gain in near.items())
    yield Verdict("jain.near-at-ten", f"Figure 1 ({figure})", Ruling.of(min(near.values()) > -FLAT), evidence)
    yield _tight(f"Figure 1 ({figure})", gains)


def _gains(better: Curve, worse: Curve) -> list[float]:
    """How much more accurate one is than another, at each x that both have."""
    return [better.mean(x) - worse.mean(x) for x in sorted(better.runs.keys() & worse.runs.keys())]


def _spread(name: str, gains: Sequence[float]) -> str:
    return f"{name}: gains from {min(gains):+.3f} to {max(gains):+.3f}"


def _tight(case: str, gains: Mapping[str, list[float]]) -> Verdict:
    """Whether the least noise that is proven does no worse than the paper's."""
    evidence = "; ".join(map(_spread, gains, gains.values()))
    return Verdict("jain.tight", case, Ruling.of(min(map(min, gains.values())) > -FLAT), evidence)


def judge_columns(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """Gaussian noise does not see columns of zeros; the other on the output does, along the whole line."""
    gains: dict[str, list[float]] = {}
    for panel in dict.fromkeys(curve.panel for curve in curves):
        by = {curve.name: curve for curve in curves if curve.panel == panel}
        whole = panel == next(iter(ROWS))
        paper = {name: by[f"{name}, Gaussian (paper)"] for name in MECHANISMS}
        means = {name: [curve.mean(p) for p in COLUMNS] for name, curve in paper.items()}
        evidence = "; ".join(f"{name}: {min(of):.3f} to {max(of):.3f}" for name, of in means.items())
        flat = all(max(of) - min(of) < FLAT for of in means.values())
        yield Verdict("jain.flat", panel, Ruling.of(flat), evidence, "" if whole else "400 rows")
        if whole:
            yield _suffers(panel, by["output, L2-Laplace"], means["output"])
        for name, curve in paper.items():
            gains.setdefault(name, []).extend(_gains(by[f"{name}, Gaussian (tight)"], curve))
    yield _tight("Figure 1 (c)", gains)


def _suffers(case: str, line: Curve, others: Sequence[float]) -> Verdict:
    """Whether a line falls all along, and lies far below another's means from many columns on."""
    falls = all(line.mean(after) <= line.mean(before) + FLAT for before, after in pairwise(COLUMNS))
    low = all(other - line.mean(p) > SUFFERS for p, other in zip(COLUMNS, others, strict=True) if p >= LARGE)
    evidence = "; ".join(f"p = {p:,}: {line.mean(p):.3f}" for p in COLUMNS)
    return Verdict("jain.suffers", case, Ruling.of(falls and low), evidence)


# ── excess risk ──────────────────────────────────────────────────────────────

_EXCESS = Setting(regularization=0.1)
"""So large a lambda that noise of density exp(-beta |b|) still does harm by its square in 100,000 columns."""
_SLOPE, _ROOT = 0.05, 0.5
_ROUNDED = 1e-9


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
    """Return the exponent by which the mean goes as x."""
    xs = sorted(curve.runs)
    return power(xs, map(curve.mean, xs))


def judge_excess(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """Whether excess risk is the same along the whole line, or grows with the number of columns; and is bounded."""
    by = {curve.name: curve for curve in curves}
    for theorem, mechanism in enumerate(MECHANISMS, 1):
        means = [by[f"{mechanism}, Gaussian (paper)"].mean(p) for p in COLUMNS]
        evidence = f"{min(means):.3g} to {max(means):.3g}, p = {COLUMNS[0]} to {COLUMNS[-1]:,}"
        holds = max(means) <= (1 + _SLOPE) * min(means)
        yield Verdict("jain.no-dimension", f"Theorem {theorem}, {mechanism}", Ruling.of(holds), evidence)
    for mechanism in MECHANISMS:
        power = slope(by[f"{mechanism}, L2-Laplace"])
        ours = "carries also what hides a solver's error, which grows with p" if mechanism == "objective" else ""
        yield Verdict("jain.grows", mechanism, Ruling.of(power >= _ROOT), f"p^{power:.2f}", ours)
    yield below_bound("output and objective", curves)


def below_bound(case: str, curves: Sequence[Curve]) -> Verdict:
    """Whether means are below the bounds of their lines, and how near they come."""
    shares = [curve.mean(x) / bound for curve in curves for x, bound in (curve.bound or {}).items()]
    return Verdict("jain.below-bound", case, Ruling.of(max(shares) <= 1 + _ROUNDED), f"at most {max(shares):.6f} of it")


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
    holds = abs(free) <= _SLOPE and abs(limited - _ROOT) <= _SLOPE
    evidence = f"free: p^{free:.2f}; projected onto the positive orthant: p^{limited:.2f}"
    yield Verdict("jain.no-constraints", "noise on the score of a row of equal numbers", Ruling.of(holds), evidence)


Judge = Callable[[Sequence[Curve]], Iterable[Verdict]]


def _figure(  # noqa: PLR0913, PLR0917 -- what differs from figure to figure
    name: str, title: str, sweep: Callable[[int], Sweep], read: Callable[[Results], list[Curve]], x: str, y: str,
    judge: Judge, runs: int = RUNS,
) -> Figure[list[Curve]]:  # fmt: skip
    return Figure(
        PAPER, name, title, sweep(runs), sweep(QUICK_RUNS), read, partial(write, x), partial(draw, x, y), judge
    )


_ACCURACY, _COLUMN = "accuracy on test rows", "columns p"
_URL_TITLE = """\
URL set, 5,700 rows, p = 3,231,961, δ = .001, λ = .001; L2-Laplace noise in the objective cannot be set at ε = 1"""
FIGURES = (
    _figure("jain_fig1a", _URL_TITLE, partial(over_epsilon, "url", 6.0), read_epsilons,
            "ε", _ACCURACY, partial(judge_epsilons, "a"), _FEW),
    _figure("jain_fig1b", "Cod-RNA, p = 9, δ = .001, λ = .001", partial(over_epsilon, "cod-rna", 2.0), read_epsilons,
            "ε", _ACCURACY, partial(judge_epsilons, "b")),
    _figure("jain_fig1c", "Cod-RNA and columns of zeros, ε = 5, δ = .001, λ = .001", over_columns, read_columns,
            _COLUMN, _ACCURACY, judge_columns),
    _figure("jain_excess", "Excess risk on Cod-RNA and columns of zeros, ε = 10, λ = .1", of_excess, read_excess,
            _COLUMN, "excess risk; dotted: its bound", judge_excess),
    _figure("jain_orthant", "Noise on the score of a row of equal numbers", of_orthant, read_orthant, _COLUMN,
            "deviation of the score", judge_orthant),
)  # fmt: skip
