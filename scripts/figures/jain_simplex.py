"""Jain & Thakurta's Figure 1 (d), and the excess risk of samples from the simplex over the dimension and the examples.

(d) has accuracies over the number of columns at epsilon 10, delta .001. What R and lambda the paper takes it does not
say: three pairs are drawn, each beside the minimiser that is sampled, which with R = 1 does badly on these rows. Beside
them are objective perturbation by either noise, on rows divided by their norm, as in (c).

`jain_theorem_4` has the number of draws m that the lambda of Theorem 4 allows, over n, and audits what Theorem 3 and
equation (4) promise, by enumeration. As that lambda allows no draw at any n that is at hand, excess risk is measured at
the lambda of our own least bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from scripts.figures.curves import Curve, write
from scripts.figures.frame import Figure, Ruling, Sweep, Verdict, power
from scripts.figures.jain import COLUMNS, PAPER, QUICK_RUNS, RUNS, below_bound, slope
from scripts.figures.jain_plots import draw, draw_audits
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
    """Whether samples are as good as what is sampled: as many as Theorem 3 has, and as many as are proven private.

    R and lambda are not printed. So where some of our pairs are similar and some are not, the text leaves it open.
    """
    losses = {panel: _lost("samples (paper)", panel, curves) for panel in PAIRS}
    similar = [_is_similar(lost) for lost in losses.values()]
    disagree = any(similar) and not all(similar)
    yield Verdict(
        "jain.similar", "Figure 1 (d), as many draws as Theorem 3 has",
        Ruling.OPEN if disagree else Ruling.of(all(similar)),
        "; ".join(f"{panel}: {_less(lost)}" for panel, lost in losses.items()), ours="R and λ",
        why=_NOT_PRINTED if disagree else "",
    )  # fmt: skip
    for panel in PAIRS:
        lost = _lost("samples (tight)", panel, curves)
        yield Verdict("jain.similar-tight", panel, Ruling.of(_is_similar(lost)), _less(lost))


_NOT_PRINTED = "The text gives neither R nor λ: with some pairs of ours samples are similar, with others they are not."


def _lost(name: str, panel: str, curves: Sequence[Curve]) -> list[float]:
    """How much less accurate samples are than the minimiser, at each number of columns where there is a draw."""
    by = {curve.name: curve for curve in curves if curve.panel == panel}
    return [by[NONE].mean(p) - by[name].mean(p) for p in by[name].runs]


def _is_similar(lost: Sequence[float]) -> bool:
    return len(lost) == len(COLUMNS) and max(lost) < SIMILAR


def _less(lost: Sequence[float]) -> str:
    return f"less by {min(lost):.3f} to {max(lost):.3f}" if lost else "not one draw"


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
    """Whether excess risk, and the bound on it, grow as the logarithm of p at most, along the whole line."""
    (curve,) = curves
    assert curve.bound is not None  # noqa: S101 -- `read_excess` gives it
    logs = [math.log(2 * p) for p in COLUMNS]
    lines = {"the proven bound": [curve.bound[p] for p in COLUMNS],
             "the mean excess risk": [curve.mean(p) for p in COLUMNS]}  # fmt: skip
    for case, values in lines.items():
        exponent = power(logs, values)
        evidence = f"exponent of log 2p {exponent:.2f}; {values[0]:.3f} at p = 10, {values[-1]:.3f} at p = 100,000"
        yield Verdict("jain.log-of-columns", case, Ruling.of(exponent <= 1 + _BAND), evidence)
    yield below_bound("samples from the simplex, over p", curves)


def judge_over_n(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """Judge whether the excess risk falls as n to the power of -1/3, or faster."""
    exponent = slope(curves[0])
    case = f"excess risk, n = {SIZES[0]:,} to {SIZES[-1]:,}"
    ours = "λ of our least bound in place of the theorem's"
    yield Verdict("jain.third-root-of-n", case, Ruling.of(exponent <= -_THIRD), f"n^({exponent:.2f})", ours)
    yield below_bound("samples from the simplex, over n", curves)


def entropy_term(columns: int, n: int) -> float:
    """What entropy costs at the lambda of Theorem 4, at most: lambda log p / n, at epsilon 10.

    >>> round(entropy_term(10, 41_674), 4)
    0.0233
    """
    log = math.log(columns)
    return math.cbrt(n**2 / (EPSILON * log)) * log / n


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
    """Whether Theorem 4 has a draw and the orders that it states; and whether what the theorems promise is private."""
    *own, small, audited = curves
    draws = {curve.name.partition(", ε")[0]: curve.mean(OWN_SIZE) for curve in own}
    evidence = "; ".join(f"{columns}: m = {m:.2g}" for columns, m in draws.items())
    case = "n = 41,674, ε = 10, δ = 1e-3, the paper's own"
    yield Verdict("jain.own-draws", case, _drawable(min(draws.values())), evidence)
    at_hand, enough = small.mean(OWN_SIZE), [n for n in EXAMPLES if small.mean(n) >= 1]
    reached = f"m reaches 1 at n = {enough[0]:,}, where it is {small.mean(enough[0]):.2g}" if enough else "never 1"
    yield Verdict("jain.own-draws", f"n = 41,674, {small.name}", _drawable(at_hand),
                  f"m = {at_hand:.2g}; of n up to {EXAMPLES[-1]:,}, {reached}")  # fmt: skip
    if min(draws.values()) < 1:
        for claim in ("jain.third-root", "jain.third-root-of-n"):
            case, nothing = "excess risk at the theorem's own λ", f"nothing to measure: {evidence}"
            yield Verdict(claim, case, Ruling.VACUOUS, nothing)
    order = power([math.log(p) for p in COLUMNS], [entropy_term(p, OWN_SIZE) for p in COLUMNS])
    yield Verdict("jain.third-root", "the printed λ gives the printed order", Ruling.of(order <= _THIRD + _BAND),
                  f"worked out, no risk was measured: λ log p / n goes as (log p)^({order:.2f})",
                  why=_OF_ENTROPY)  # fmt: skip
    for place, (claim, case) in enumerate(CASES, 1):
        ratio = audited.mean(place)
        times = f"{ratio:.3g}" if ratio else f"below {_VANISHING:g}"
        yield Verdict(claim, case, Ruling.of(ratio <= 1), f"δ is {times} times what is promised")


_OF_ENTROPY = """\
The printed λ does not give the printed order: the entropy term λ log p / n there is (log p)^(2/3) / (ε n)^(1/3). No \
risk was measured."""
_VANISHING = 1e-300
"""A delta whose terms all vanish among floating-point numbers is smaller, also over what is promised."""


def _drawable(draws: float) -> Ruling:
    """Whether there is a draw."""
    return Ruling.HOLDS if draws >= 1 else Ruling.VACUOUS


AUDITED = ("Theorem 3, L R = 1", "Theorem 3, L R = 100", "(4), δ = 1e-5", "(4), δ = 1e-9")
"""The audits' names in the picture, in the order of `CASES`."""
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
        partial(draw_audits, AUDITED), judge_theorems,
    ),
    _figure("jain_simplex_n", "Samples from the simplex, R = 4, p = 10, ε = 10", "n", "examples n"),
)  # fmt: skip
