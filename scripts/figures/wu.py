"""Figures 2-11 of Wu, Farokhi, Smith & Kaafar 2020, redrawn.

"The Value of Collaboration in Convex Machine Learning with Differential Privacy", IEEE S&P 2020. Interest rates of
loans by regression (Figures 2-6, Algorithm 1 with the mended steps) and card frauds by a support vector machine
(Figures 7-11, Algorithm 2): the relative fitness psi along the rounds, over the number of examples and the budget, and
in four collaborations. Owners are three of equal size where nothing else is said; the proportions are ours.

Figures 2-6 are drawn three times: from all numeric columns with lambda = .1, by Algorithm 1 and by Algorithm 2; and, as
published, from ten principal components (of rows that no owner has) of numbers and of categories coded as integers,
without regularisation (g_1 = 0), by Algorithm 1. There nothing but gradients pulls weights back from where noise drove
them, and most of those are clipped, so psi falls faster than as the square.
`scripts.figures.wu_joining` has Figures 6 and 11 as surfaces, `scripts.figures.wu_theorems` what the theorems print.

The paper's sizes are beyond the rows at hand, 42,000 of 890,000 loans and 8,900 transactions with all the frauds. That
the fitness is within 90 % of that without privacy, f* / f >= .9, is judged at the largest n here, and at the paper's by
psi's law: what noise adds falls as n^-2, and the floor stays. That is done only where noise dominates at the largest n
and where psi follows the law over n at that budget.

Slopes are fitted where noise does not fill the set that Algorithm 2 projects onto, |theta_j| <= 10, and where psi is
above 5 times its floor (the points left out are drawn hollow): a restriction made after seeing them all. There each
step between neighbours is tested too. A line without two such points is left out.

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

PAPER = Paper(
    "wu",
    "Wu, Farokhi, Smith & Kaafar, IEEE S&P 2020: the value of collaboration",
    "“The Value of Collaboration in Convex Machine Learning with Differential Privacy”, arXiv:1906.09679.",
    "[3, i] for run i; 7 for the order of rows",
)
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
METHODS = {
    LOANS_SUBGRADIENT.name: "Algorithm 2, where the paper has Algorithm 1",
    LOANS_PUBLISHED.name: "steps 1/M, because the printed ones leave the model where it began",
}
_COLUMNS = "12 numeric columns and λ = .1, where the paper has ten components and g₁ = 0"
VARIATIONS = METHODS | {
    LOANS.name: _COLUMNS,
    LOANS_SUBGRADIENT.name: f"{METHODS[LOANS_SUBGRADIENT.name]}; {_COLUMNS}",
    FRAUDS.name: "a subset of the transactions, with all frauds",
}
FILLED = (
    "noise fills the set that Algorithm 2 projects onto at each step that rises, and there ψ measures that set, whose "
    "size θ_max = 10 is ours, and not the noise"
)
CLIPPED = (
    "each example's gradient is clipped, so that the bound that the paper assumes is true; without a regulariser "
    "(g₁ = 0) only gradients pull weights back from where noise drove them, most are clipped there, and ψ falls faster "
    "than as the square"
)
UNREACHED = "fewer records are here than the paper has, and from these the law n⁻² does not lead to 90 % at its size"
NO_LINE = "at the sizes and budgets that are ours, noise dominates at fewer than two points of each line"
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
        f"two at ε = 10; n = {2 * n:,}": {0: Owners((n, n), (10.0, 10.0))},
        f"two at ε = 10; and an equal one; n = {3 * n:,}": {1: Owners((n, n, n), (10.0, 10.0, 10.0))},
        f"two at ε = 10; and a small one at .1; n = {2 * n + small:,}": {2: Owners((n, n, small), (10.0, 10.0, 0.1))},
        f"two at ε = 10; and a large one at .1; n = {3 * n:,}": {3: Owners((n, n, n), (10.0, 10.0, 0.1))},
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
    """What reads the runs of each line of a plan, round by round; the floor is that of the last round."""

    def read(results: Mapping[Any, Any]) -> list[Series]:
        every = [
            (name, owners, np.array(results[name, x]).T) for name, line in plan.items() for x, owners in line.items()
        ]
        return [
            Series(
                name,
                np.arange(1.0, len(psi) + 1),
                psi,
                np.ones(len(psi), dtype=np.bool_),
                np.full(len(psi), np.mean(results[owners.sizes])),
            )
            for name, owners, psi in every
        ]

    return read


def judge_rounds(setting: Setting) -> Judge:
    """Return a judge of what a larger budget brings at the end of the horizon."""

    def judge(series: Sequence[Series]) -> Iterable[Verdict]:
        last, floor = [float(one.median[-1]) for one in series], float(series[-1].floor[-1])
        evidence = (
            f"median ψ {_few(last)} at {', '.join(one.name for one in series)}, {floor:.2g} with hardly any noise"
        )
        case, ours = SUBJECTS[setting.name], VARIATIONS[setting.name]
        if setting.folder == LOANS.folder:
            fold, (least, most) = last[-2] / last[-1], HUNDREDFOLD
            reached = setting.name in METHODS and not series[-1].noisy[-1]
            method = METHODS.get(setting.name, "")
            why = f"with hardly any noise 100 rounds leave ψ = {floor:.2g}, which no budget lessens (ours: {method})"
            yield Verdict(
                "wu.hundredfold", case, Ruling.of(least <= fold <= most), f"{fold:.3g}-fold: {evidence}", ours,
                "parley" if reached else "", why if reached else "",
            )  # fmt: skip
        else:
            yield Verdict("wu.larger-budget", case, Ruling.of(last == sorted(last, reverse=True)), evidence, ours)

    return judge


def judge_surface(setting: Setting) -> Judge:
    """Return a judge of whether both axes help, all along, and of the fitness beside that without privacy."""

    def judge(series: Sequence[Series]) -> Iterable[Verdict]:
        grid, room = np.array([one.mean for one in series]), np.array([one.room for one in series])
        ratios = np.concatenate([(grid[1:] / grid[:-1]).ravel(), (grid[:, 1:] / grid[:, :-1]).ravel()])
        free = np.concatenate([(room[1:] & room[:-1]).ravel(), (room[:, 1:] & room[:, :-1]).ravel()])
        rises = ratios > NO_WORSE
        evidence = (
            f"mean ψ from {grid.max():.3g} down to {grid.min():.3g}; {rises.sum()} of {rises.size} steps rise by more "
            f"than a tenth; the largest ratio of neighbours is {ratios.max():.2f}"
        )
        filled = not (rises & free).any()
        yield Verdict(
            "wu.falls", SUBJECTS[setting.name], Ruling.of(not rises.any()), evidence, VARIATIONS[setting.name],
            "parley" if filled else "", FILLED if filled else "",
        )  # fmt: skip
        yield _within(setting, series)

    return judge


def _within(setting: Setting, series: Sequence[Series]) -> Verdict:
    """How near the fitness is to that without privacy, at the largest n here, and by the law at the paper's."""
    epsilon, records = RECORDS[setting.folder]
    column = EPSILONS.index(epsilon)
    line = Series(
        f"ε = {epsilon:g}",
        np.array([float(one.name) for one in series]),
        np.array([one.psi[column] for one in series]),
        np.array([one.room[column] for one in series]),
        np.array([one.floor[column] for one in series]),
    )
    n, psi, floor = float(line.x[-1]), float(line.mean[-1]), float(line.floor[-1])
    here = 1 / (1 + psi)
    evidence, ruling = f"{here:.1%} at n = {n:,.0f} and {line.name}", Ruling.of(here >= WITHIN)
    if ruling is Ruling.FAILS and line.noisy[-1] and _follows(line):
        there = 1 / (1 + floor + (psi - floor) * (n / records) ** 2)
        evidence = f"{evidence}; {there:.1%} at n = {records:,} by n⁻²"
        ruling = Ruling.ELSEWHERE if there >= WITHIN else Ruling.FAILS
    ours, why = f"n = {n:,.0f} of all owners; {VARIATIONS[setting.name]}", UNREACHED if ruling is Ruling.FAILS else ""
    return Verdict("wu.within-90", SUBJECTS[setting.name], ruling, evidence, ours, why=why)


def _follows(line: Series) -> bool:
    """Whether psi falls as x^-2 along a line where noise dominates, at two points or more."""
    fitted = line.fit()
    return (
        fitted is not None
        and abs(fitted[0] + 2) <= TOLERANCE
        and bool((np.abs(line.steps() + 2) <= STEP_TOLERANCE).all())
    )


def judge_slopes(x: str) -> Callable[[Setting], Judge]:
    """Return what makes a judge of whether psi falls as x^-2 along each line where noise dominates at two points."""

    def judge_of(setting: Setting) -> Judge:
        clipped = setting == LOANS_PUBLISHED
        verdict = partial(
            Verdict, "wu.inverse-squares", f"{SUBJECTS[setting.name]}: over {x}", ours=VARIATIONS[setting.name]
        )

        def judge(series: Sequence[Series]) -> Iterable[Verdict]:
            slopes = {one.name: fitted[0] for one in series if (fitted := one.fit())}
            if not slopes:
                yield verdict(
                    Ruling.UNTOLD, "no line has two points where noise dominates", cause="parley", why=NO_LINE
                )
                return
            lines = [one for one in series if one.name in slopes]
            evidence = "slopes " + ", ".join(
                f"{slopes[one.name]:.2f} at {one.name} over {one.noisy.sum()} points" for one in lines
            )
            if (steps := np.concatenate([one.steps() for one in lines])).size:
                evidence = f"{evidence}; steps between neighbours {steps.min():.2f} to {steps.max():.2f}"
            if left_out := [one.name for one in series if one.name not in slopes]:
                evidence = f"{evidence}; left out, as noise dominates at fewer than two points: {', '.join(left_out)}"
            follow = Ruling.of(all(_follows(one) for one in lines))
            yield verdict(follow, evidence, cause="parley" if clipped else "", why=CLIPPED if clipped else "")

        return judge

    return judge_of


def judge_collaborations(setting: Setting) -> Judge:
    """Return a judge of what an equal and a conservative owner bring, and of whether the forecast knows."""

    def judge(series: Sequence[Series]) -> Iterable[Verdict]:
        two, equal, small, large = (float(one.mean[0]) for one in series)
        case, ours = SUBJECTS[setting.name], VARIATIONS[setting.name]
        means = f"mean ψ {two:.3g} of two, {equal:.3g} with an equal third"
        evidence = f"{means}; {small:.3g} with a small conservative one, {large:.3g} with a large conservative one"
        yield Verdict("wu.conservative-harms", case, Ruling.of(min(small, large) > NO_WORSE * two), evidence, ours)
        chosen = {
            name: predicted(setting, owners)
            for name, line in collaborations(setting).items()
            for owners in line.values()
        }
        left_out = all("owner-3" not in chosen[one.name].coalition for one in series[2:])
        welcome = "owner-3" in chosen[series[1].name].coalition and equal <= NO_WORSE * two
        estimates = [answer.excess.estimate for answer in chosen.values()]
        evidence = f"estimated f − f* {_few(estimates)} of two, with an equal, a small and a large third; {means}"
        yield Verdict("wu.forecast-invites", case, Ruling.of(left_out and welcome), evidence, ours)

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
