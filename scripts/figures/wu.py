"""Figures 2-11 of Wu, Farokhi, Smith & Kaafar 2020, redrawn.

"The Value of Collaboration in Convex Machine Learning with Differential Privacy", IEEE S&P 2020. Interest rates of
loans by regression (Figures 2-6, Algorithm 1 with the mended steps) and card frauds by a support vector machine
(Figures 7-11, Algorithm 2): the relative fitness psi along the rounds, over the number of examples and the budget, and
in four collaborations. Owners are three of equal size where nothing else is said; the proportions are ours.

Figures 2-6 are drawn three times: from all numeric columns with lambda = .1, by Algorithm 1 and by Algorithm 2; and, as
published, from ten principal components (of rows that no owner has) of numbers and of categories coded as integers,
without regularisation (g_1 = 0), by Algorithm 1. There nothing but gradients pulls weights back from where noise drove
them, and of those most are clipped (at n = 2,100 and epsilon = .3, 87 %), so psi falls faster than as the square.
`scripts.figures.wu_joining` has Figures 6 and 11 as surfaces, `scripts.figures.wu_theorems` what the theorems print.

The paper's sizes are beyond the rows at hand, 42,000 of 890,000 loans and 8,900 transactions with all the frauds. That
the fitness is within 90 % of that without privacy, f* / f >= .9, is judged at the largest n here, and at the paper's by
psi's law: what noise adds falls as n^-2, and the floor stays.

Slopes are fitted where noise does not fill the box that Algorithm 2 projects onto, and where psi is above 5 times its
floor (the points left out are drawn hollow): a restriction made after seeing them all. There each step between
neighbours is tested too.

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
from scripts.figures.frame import Figure, Paper, Ruling, Sweep, Verdict
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
REPEAT, QUICK_REPEAT = 50, 4
SECONDS = 0.04
"""About how long a run takes."""
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
SIZES = {
    LOANS.folder: (900, 2_100, 4_500, 9_900, 21_000),
    FRAUDS.folder: (600, 1_200, 2_400, 4_800, 8_700),
}
TOLERANCE = 0.2
STEP_TOLERANCE = 0.5
"""A step between neighbours is a slope of two means: it varies more than a line's."""
WITHIN = 0.9
NO_WORSE = 1.1
"""What differs by a tenth passes as equal: the error of a mean over the runs."""
HUNDREDFOLD = (50.0, 200.0)
RECORDS = {FRAUDS.folder: (1.0, 90_000), LOANS.folder: (10.0, 350_000)}
"""The budget and the number of records of all owners at which the paper has 90 %."""
SUBJECTS = {
    LOANS.name: "loans, Algorithm 1",
    LOANS_SUBGRADIENT.name: "loans, Algorithm 2",
    LOANS_PUBLISHED.name: "loans, ten components, g₁ = 0",
    FRAUDS.name: "card frauds",
}
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
        seconds = SECONDS * repeat
        return Point.of(
            function, setting.folder, about_seconds=seconds, setting=setting.name, repeat=repeat, **asdict(owners)
        )

    every = {(name, x): owners for name, line in plan.items() for x, owners in line.items()}
    floors = {one.sizes: point(psi_of_models, one.exact, max(1, repeat // 16)) for one in every.values()}
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


def judge_rounds(setting: Setting) -> Judge:
    """Return a judge of what a larger budget brings at the end of the horizon."""

    def judge(series: Sequence[Series]) -> Iterable[Verdict]:
        last = [float(one.median[-1]) for one in series]
        evidence = f"median ψ {_few(last)} at {', '.join(one.name for one in series)}"
        if setting.folder == LOANS.folder:
            fold, (least, most) = last[-2] / last[-1], HUNDREDFOLD
            holds = least <= fold <= most
            yield Verdict("wu.hundredfold", SUBJECTS[setting.name], Ruling.of(holds), f"{fold:.3g}-fold: {evidence}")
        else:
            falls = last == sorted(last, reverse=True)
            yield Verdict("wu.larger-budget", SUBJECTS[setting.name], Ruling.of(falls), evidence)

    return judge


def judge_surface(setting: Setting) -> Judge:
    """Return a judge of whether both axes help, all along, and of the fitness beside that without privacy."""

    def judge(series: Sequence[Series]) -> Iterable[Verdict]:
        grid = np.array([one.mean for one in series])
        rises = np.concatenate([(grid[1:] / grid[:-1]).ravel(), (grid[:, 1:] / grid[:, :-1]).ravel()])
        evidence = f"mean ψ from {grid.max():.3g} down to {grid.min():.3g}; {(rises > NO_WORSE).sum()} of {rises.size} "
        falls, case = Ruling.of(bool((rises <= NO_WORSE).all())), SUBJECTS[setting.name]
        yield Verdict("wu.falls", case, falls, f"{evidence}steps rise, the largest {rises.max():.2f} times")
        yield _within(setting, series[-1])

    return judge


def _within(setting: Setting, largest: Series) -> Verdict:
    """How near the fitness is to that without privacy, at the largest n here and at the paper's."""
    (epsilon, records), n = RECORDS[setting.folder], int(largest.name)
    column = EPSILONS.index(epsilon)
    psi, floor = float(largest.mean[column]), float(largest.floor[column])
    extended = floor + (psi - floor) * (n / records) ** 2
    here, there = 1 / (1 + psi), 1 / (1 + extended)
    evidence = f"{here:.1%} at n = {n:,} and ε = {epsilon:g}; {there:.1%} at n = {records:,} by n⁻²"
    ruling = Ruling.HOLDS if here >= WITHIN else Ruling.ELSEWHERE if there >= WITHIN else Ruling.FAILS
    return Verdict("wu.within-90", SUBJECTS[setting.name], ruling, evidence, f"n = {n:,}")


def judge_slopes(x: str) -> Callable[[Setting], Judge]:
    """Return what makes a judge of whether psi falls as x^-2 along each line."""

    def judge_of(setting: Setting) -> Judge:
        def judge(series: Sequence[Series]) -> Iterable[Verdict]:
            slopes = [(one.fit() or (np.nan, np.nan))[0] for one in series]
            steps = np.concatenate([one.steps() for one in series])
            low, high = (steps.min(), steps.max()) if steps.size else (np.nan, np.nan)
            falls = np.abs(np.array(slopes) + 2).max() <= TOLERANCE and max(-2 - low, high + 2) <= STEP_TOLERANCE
            at, points = ", ".join(one.name for one in series), ", ".join(f"{one.noisy.sum()}" for one in series)
            evidence = f"slopes {', '.join(f'{slope:.2f}' for slope in slopes)} at {at} over {points} points"
            evidence = f"{evidence}; steps between neighbours {low:.2f} to {high:.2f}"
            yield Verdict("wu.inverse-squares", f"{SUBJECTS[setting.name]}: over {x}", Ruling.of(bool(falls)), evidence)

        return judge

    return judge_of


def judge_collaborations(setting: Setting) -> Judge:
    """Return a judge of what an equal and a conservative owner bring, and of whether the forecast knows."""

    def judge(series: Sequence[Series]) -> Iterable[Verdict]:
        two, equal, small, large = (float(one.mean[0]) for one in series)
        case, means = SUBJECTS[setting.name], f"mean ψ {two:.3g} of two, {equal:.3g} with an equal third"
        evidence = f"{means}; {small:.3g} with a small conservative one, {large:.3g} with a large one"
        yield Verdict("wu.conservative-harms", case, Ruling.of(min(small, large) > NO_WORSE * two), evidence)
        chosen = {
            name: predicted(setting, owners)
            for name, line in collaborations(setting).items()
            for owners in line.values()
        }
        left_out = all("owner-3" not in chosen[one.name].coalition for one in series[2:])
        welcome = "owner-3" in chosen[series[1].name].coalition and equal <= NO_WORSE * two
        estimates = [answer.excess.estimate for answer in chosen.values()]
        evidence = f"estimated excess {_few(estimates)}, in the same order; {means}"
        yield Verdict("wu.forecast-invites", case, Ruling.of(left_out and welcome), evidence)

    return judge


def _few(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _five(setting: Setting, subject: str, first: int, suffix: str = "") -> list[Figure[list[Series]]]:
    """The five figures of one setting, numbered from the first."""
    rows: tuple[tuple[str, str, Kind, Callable[[Setting], Plan], Callable[[Setting], Judge]], ...] = (
        ("along the rounds", "round", "bands", along_the_rounds, judge_rounds),
        ("over n and ε", "ε", "surface", surface, judge_surface),
        ("over the budget", "ε", "slopes", over_budgets, judge_slopes("ε")),
        ("over the number of examples", "n", "slopes", over_sizes, judge_slopes("n")),
        ("in four collaborations", "", "boxes", collaborations, judge_collaborations),
    )
    figures = []
    for number, (where, x, kind, planned, judge) in enumerate(rows, first):
        plan = planned(setting)
        by_round = kind == "bands"
        measured = partial(sweep, psi_of_rounds if by_round else psi_of_models, setting, plan)
        title, read = f"{subject}: relative fitness ψ {where}", rounds(plan) if by_round else lines(setting, plan)
        figures.append(
            Figure(PAPER, f"wu_fig{number:02}{suffix}", title, measured(REPEAT), measured(QUICK_REPEAT), read, write,
                   partial(DRAW[kind], x), judge(setting))
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
