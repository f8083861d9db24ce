"""Jain & Thakurta's Figure 1 (d), and the excess risk of samples from the simplex over the dimension and the examples.

(d) has accuracies over the number of columns at epsilon 10, delta .001. What R the paper takes it does not say, and
with R = 1 no lambda does well on these rows: two pairs of R and lambda are shown, each beside the minimiser that is
sampled. Beside them are objective perturbation by either noise, on rows divided by their norm, as in (c).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from scripts.figures.curves import Curve, write
from scripts.figures.frame import Figure, Sweep, Verdict
from scripts.figures.jain import COLUMNS, PAPER, QUICK_RUNS, RUNS, slope
from scripts.figures.jain_plots import draw
from scripts.figures.jain_runs import NONE, Setting, accuracies
from scripts.figures.jain_sampling import EPSILON, sampled, sampled_excess
from scripts.figures.point import Point

PAIRS = {"R = 4, λ = 3,000": (4.0, 3_000.0), "R = 10, λ = 10,000": (10.0, 10_000.0), "R = 10, λ = 1,000": (10.0, 1e3)}
BESIDE = ("objective, L2-Laplace", "objective, Gaussian (paper)")
SIZES = (1_000, 3_000, 10_000, 30_000, 41_674)
SCALE = 4.0
SIMILAR = 0.03
_MORE = 100
"""Columns, most of them zeros: the first nine are Cod-RNA's own."""
Results = Mapping[Any, Any]


def over_columns(runs: int) -> Sweep:
    """A point for each pair, number of columns and run; and for the methods beside them."""
    points = {
        (panel, columns, run): Point.of(
            sampled, "cod-rna", about_seconds=columns / 5e4, columns=columns, scale=scale, strength=strength, run=run
        )
        for panel, (scale, strength) in PAIRS.items()
        for columns in COLUMNS
        for run in range(runs)
    }
    points |= {
        ("", columns, run): Point.of(
            accuracies, "cod-rna", about_seconds=columns / 1e5, setting=asdict(Setting(columns=columns)),
            epsilons=[EPSILON], run=run,
        )
        for columns in COLUMNS
        for run in range(runs)
    }  # fmt: skip
    return Sweep(points, str(runs))


def read_columns(results: Results) -> list[Curve]:
    """A panel a pair; what is beside them is in each."""
    curves = []
    for panel in PAIRS:
        mine, others = _of(results, panel), _of(results, "")
        curves += [_curve(panel, _NAMES[name], {key: result[name] for key, result in mine}) for name in _NAMES]
        curves += [_curve(panel, name, {key: result[name][0] for key, result in others}) for name in BESIDE]
    return curves


_NAMES = {NONE: NONE, "tight": "samples (tight)", "paper": "samples (paper)"}


def _of(results: Results, panel: str) -> list[tuple[int, Any]]:
    return [((columns, run), result) for (name, columns, run), result in results.items() if name == panel]  # type: ignore[misc]


def _curve(panel: str, name: str, results: Mapping[Any, float | None]) -> Curve:
    runs: dict[float, list[float]] = {}
    for (columns, _), value in results.items():
        if value is not None:
            runs.setdefault(columns, []).append(value)
    return Curve(panel, name, {columns: np.array(risks) for columns, risks in runs.items()})


def judge_columns(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """For which R and lambda samples are similar to what is sampled; by whose number of draws."""
    for panel in PAIRS:
        by = {curve.name: curve for curve in curves if curve.panel == panel}
        for name in ("samples (tight)", "samples (paper)"):
            claim = f"{panel}: {name} are within .03 of the minimiser that is sampled, at any p"
            if by[name].runs:
                ends = min(by[name].runs), max(by[name].runs)
                evidence = "; ".join(f"p = {p:g}: {by[name].mean(p):.3f} of {by[NONE].mean(p):.3f}" for p in ends)
                worst = max(by[NONE].mean(p) - by[name].mean(p) for p in by[name].runs)
            else:
                evidence, worst = "not one draw is allowed", math.inf
            yield Verdict(claim, worst < SIMILAR, evidence, "similar to non-private")


def of_excess(by: str, runs: int) -> Sweep:
    """A point for each number of columns, or of examples."""
    settings = {p: (p, SIZES[-1]) for p in COLUMNS} if by == "p" else {n: (10, n) for n in SIZES}
    points = {
        x: Point.of(
            sampled_excess, "cod-rna", about_seconds=columns / 2e4, columns=columns, n=n, scale=SCALE, runs=5 * runs
        )
        for x, (columns, n) in settings.items()
    }
    return Sweep(points, str(5 * runs))


def read_excess(results: Results) -> list[Curve]:
    """Read the results as one curve with its bound."""
    runs = {x: np.array(result["excess"]) for x, result in results.items()}
    return [Curve("", "samples (tight)", runs, {x: result["bound"] for x, result in results.items()})]


def judge_over_p(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """By the logarithm of p: no faster; and as it, from where most columns are zeros on."""
    (curve,) = curves
    grown, allowed = curve.mean(COLUMNS[-1]) / curve.mean(COLUMNS[0]), math.log(2e5) / math.log(20)
    evidence = f"{grown:.2f} times as much at p = 100,000 as at 10, log 2p {allowed:.2f} times"
    yield Verdict("excess risk grows no faster than log p", grown <= allowed, evidence, "(log p)^(1/3)")
    more = [p for p in COLUMNS if p >= _MORE]
    exponent = float(np.polyfit(np.log(np.log([2 * p for p in more])), np.log([curve.mean(p) for p in more]), 1)[0])
    claim = f"from p = {_MORE} on it grows as log p: exponent of log 2p 1 ± .2"
    yield Verdict(claim, abs(exponent - 1) <= 0.2, f"exponent {exponent:.2f}")  # noqa: PLR2004 -- as the claim
    yield from _below(curve)


def judge_over_n(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """Judge whether the excess risk falls as n to the power of -1/3, or faster."""
    (curve,) = curves
    exponent = slope(curve)
    yield Verdict("excess risk falls as n^(-1/3) or faster", exponent <= -1 / 3, f"slope {exponent:.3f}", "n^(-1/3)")
    yield from _below(curve)


def _below(curve: Curve) -> Iterator[Verdict]:
    shares = [curve.mean(x) / curve.bound[x] for x in curve.runs] if curve.bound else []
    yield Verdict("all excess risks are below the bound", max(shares) < 1, f"at most {max(shares):.2g} of it")


def _figure(name: str, title: str, by: str, x: str) -> Figure[list[Curve]]:
    y = "excess risk; dotted: its bound"
    judge = judge_over_p if by == "p" else judge_over_n
    return Figure(
        PAPER, name, title, of_excess(by, RUNS), of_excess(by, QUICK_RUNS), read_excess, partial(write, x),
        partial(draw, x, y), judge,
    )  # fmt: skip


FIGURES = (
    Figure(
        PAPER, "jain_fig1d", "Samples from the simplex: Cod-RNA and columns of zeros, ε = 10, δ = .001",
        over_columns(RUNS), over_columns(QUICK_RUNS), read_columns, partial(write, "columns p"),
        partial(draw, "columns p", "accuracy on test rows"), judge_columns,
    ),
    _figure("jain_simplex_p", "Samples from the simplex, R = 4, n = 41,674, ε = 10", "p", "columns p"),
    _figure("jain_simplex_n", "Samples from the simplex, R = 4, p = 10, ε = 10", "n", "examples n"),
)  # fmt: skip
