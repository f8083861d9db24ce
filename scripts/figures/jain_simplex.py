"""Jain & Thakurta's Figure 1 (d), and the excess risk of samples from the simplex over the dimension and the examples.

(d) has accuracies over the number of columns at epsilon 10, delta .001. What R and lambda the paper takes it does not
say: three pairs are drawn, each beside the minimiser that is sampled, which with R = 1 does badly on these rows. Beside
them are objective perturbation by either noise, on rows divided by their norm, as in (c).

`jain_theorem_4` has the number of draws m that the lambda of Theorem 4 allows, over n, and audits what Theorem 3 and
equation (4) promise, by enumeration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from scripts.figures.curves import Curve, write
from scripts.figures.frame import Figure, Ruling, Sweep, Verdict
from scripts.figures.jain import COLUMNS, PAPER, QUICK_RUNS, RUNS, below_bound, slope
from scripts.figures.jain_plots import draw
from scripts.figures.jain_runs import NONE, Setting, accuracies
from scripts.figures.jain_sampling import EPSILON, audits, prescribed, sampled, sampled_excess
from scripts.figures.point import Point

PAIRS = {"R = 1, λ = 1,000": (1.0, 1_000.0), "R = 4, λ = 3,000": (4.0, 3_000.0), "R = 10, λ = 10,000": (10.0, 1e4)}
BESIDE = ("objective, L2-Laplace", "objective, Gaussian (paper)")
SIZES = (1_000, 3_000, 10_000, 30_000, 41_674)
SCALE = 4.0
SIMILAR = 0.03
_THIRD, _BAND = 1 / 3, 0.1
OWN_SIZE = 41_674
"""The rows of Cod-RNA that the paper trains on."""
ASKED: Mapping[str, tuple[int, float, float]] = {
    "p = 10, ε = 10, δ = 1e-3": (10, 10.0, 1e-3),
    "p = 1,000, ε = 10, δ = 1e-3": (1_000, 10.0, 1e-3),
    "p = 100,000, ε = 10, δ = 1e-3": (100_000, 10.0, 1e-3),
    "p = 10, ε = 1, δ = 1e-6": (10, 1.0, 1e-6),
}
EXAMPLES = (OWN_SIZE, 10**6, 10**7, 10**8, 10**9, 10**10)
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
    """Whether samples, as many as are proven, are as good as what is sampled; and how good the paper's number is."""
    for panel in PAIRS:
        by = {curve.name: curve for curve in curves if curve.panel == panel}
        for whose, ours in (("paper", f"{panel}; m of Theorem 3"), ("tight", f"{panel}; m by the tight proof")):
            line = by[f"samples ({whose})"].runs
            losses = {p: by[NONE].mean(p) - float(line[p].mean()) for p in line}
            evidence = f"less by {min(losses.values()):.3f} to {max(losses.values()):.3f}" if losses else "not one draw"
            similar = len(losses) == len(COLUMNS) and max(losses.values()) < SIMILAR
            yield Verdict("jain.similar", f"Figure 1 (d), {panel}, {whose} m", Ruling.of(similar), evidence, ours)


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
    """By the logarithm of p, along the whole line, to the power that the theorem has and to the first."""
    (curve,) = curves
    logs = [math.log(2 * p) for p in COLUMNS]
    exponent = float(np.polyfit(np.log(logs), np.log([curve.mean(p) for p in COLUMNS]), 1)[0])
    evidence = f"exponent of log 2p {exponent:.2f}"
    yield Verdict("jain.third-root", "p = 10 to 100,000", Ruling.of(exponent <= _THIRD + _BAND), evidence)
    yield below_bound("samples from the simplex, over p", curves)


def judge_over_n(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """Judge whether the excess risk falls as n to the power of -1/3, or faster."""
    exponent = slope(curves[0])
    case = f"n = {SIZES[0]:,} to {SIZES[-1]:,}"
    yield Verdict("jain.third-root-of-n", case, Ruling.of(exponent <= -_THIRD), f"n^({exponent:.2f})")
    yield below_bound("samples from the simplex, over n", curves)


def of_theorems() -> Sweep:
    """A point for each line, and one for the audits."""
    points: dict[str, Point] = {
        name: Point.of(prescribed, sizes=EXAMPLES, columns=columns, epsilon=epsilon, delta=delta)
        for name, (columns, epsilon, delta) in ASKED.items()
    }
    return Sweep(points | {AUDITS: Point.of(audits)}, "1")


AUDITS = "delta over what is promised"


def read_theorems(results: Results) -> list[Curve]:
    """Read the results as a line each of the numbers of draws, and audits as one whose x are their places."""
    lines = [
        Curve("", name, {n: np.array([m]) for n, m in zip(EXAMPLES, results[name], strict=True)}) for name in ASKED
    ]
    return [*lines, Curve(AUDITS, AUDITS, {i: np.array([ratio]) for i, ratio in enumerate(results[AUDITS], 1)})]


def judge_theorems(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """Whether Theorem 4 has a draw; and whether what the theorems promise is private."""
    *lines, audited = curves
    own = [curve for curve in lines if curve.mean(OWN_SIZE) < 1 and "ε = 10" in curve.name]
    evidence = "; ".join(f"{curve.name.partition(', ε')[0]}: m = {curve.mean(OWN_SIZE):.2g}" for curve in own)
    vacuous = Ruling.VACUOUS if len(own) == len(lines) - 1 else Ruling.HOLDS
    yield Verdict("jain.own-draws", "n = 41,674, ε = 10, δ = 1e-3, the paper's own", vacuous, evidence or "m ≥ 1")
    enough = [n for n in EXAMPLES if lines[-1].mean(n) >= 1]
    evidence = ", ".join(f"n = {n:.0e}: m = {lines[-1].mean(n):.2g}" for n in EXAMPLES[-3:])
    yield Verdict(
        "jain.own-draws", lines[-1].name, Ruling.ELSEWHERE if enough else Ruling.VACUOUS, evidence,
        ours=f"from n = {enough[0]:.0e} on" if enough else "",
    )  # fmt: skip
    for place, (claim, case) in enumerate(CASES, 1):
        ratio = audited.mean(place)
        yield Verdict(claim, case, Ruling.of(ratio <= 1), f"δ is {ratio:.3g} times what is promised")


CASES = (
    ("jain.theorem-3", "L R = 1, any two laws within the range of a draw"),
    ("jain.theorem-3", "L R = 100, two data sets of 10 rows, exact"),
    ("jain.tilt", "δ = 1e-5, ε = 1"),
    ("jain.tilt", "δ = 1e-9, ε = 1"),
)


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
    Figure(
        PAPER, "jain_theorem_4", "Theorem 4's number of draws, R = 1, curvature 2; Theorem 3 and equation (4), audited",
        of_theorems(), of_theorems(), read_theorems, partial(write, "n"),
        partial(draw, "examples n; places of audits", "draws m; delta, over what is promised"), judge_theorems,
    ),
    _figure("jain_simplex_n", "Samples from the simplex, R = 4, p = 10, ε = 10", "n", "examples n"),
)  # fmt: skip
