"""Figures 2-11 of Wu, Farokhi, Smith & Kaafar 2020, redrawn: ``python -m scripts.figures.wu [fig02 ...] [--quick]``.

"The Value of Collaboration in Convex Machine Learning with Differential Privacy", IEEE S&P 2020. Interest rates of
loans by regression (Figures 2-6, Algorithm 1 with the mended steps) and card frauds by a support vector machine
(Figures 7-11, Algorithm 2): the relative fitness psi along the rounds, over the number of examples and the budget, and
in four collaborations. Owners are three of equal size where nothing else is said; the proportions are ours.

Two claims are judged on part of the points, a restriction made after seeing them all: that psi falls over the surface,
only where the noise does not fill the box that Algorithm 2 projects onto (in Figure 8 it fails beyond: psi at n = 600,
epsilon = .1 lies below that at n = 1,200); and slopes, only there and where psi is above 5 times its floor (the points
left out are drawn hollow).

The data are looked for in the folder that $PARLEY_DATA names; without it nothing is drawn, and that is said.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.arrays import FloatArray
from scripts.figures.frame import Verdict, announce, redraw_named
from scripts.figures.wu_plots import DRAW, Kind, Series
from scripts.figures.wu_runs import FRAUDS, LOANS, Owners, Setting, examples, line, path, predicted

REPEAT, REPEAT_SURFACE, QUICK_REPEAT = 100, 20, 4
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
SIZES = {LOANS: (900, 2_100, 4_500, 9_900, 21_000), FRAUDS: (600, 1_200, 2_400, 4_800, 8_700)}
TOLERANCE = 0.2
NO_WORSE = 1.1
"""What differs by a tenth passes as equal: the error of a mean over 100 runs."""
Judge = Callable[[Sequence[Series]], Iterable[Verdict]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: what is measured, how it is drawn, and what it claims."""

    title: str
    x_label: str
    kind: Kind
    measure: Callable[[int], list[Series]]
    judge: Judge
    setting: Setting
    repeat: int = REPEAT


def along_the_rounds(setting: Setting) -> Callable[[int], list[Series]]:
    """Psi of the iterates, for three budgets."""
    n = SIZES[setting][-2]

    def measure(repeat: int) -> list[Series]:
        return [path(setting, f"ε = {e:g}", Owners.alike(n, e), repeat) for e in EPSILONS[::2]]

    return measure


def over_budgets(setting: Setting) -> Callable[[int], list[Series]]:
    """Psi over epsilon, for each of two numbers of examples."""

    def measure(repeat: int) -> list[Series]:
        return [
            line(setting, f"n = {n:,}", {e: Owners.alike(n, e) for e in EPSILONS}, repeat) for n in SIZES[setting][1::2]
        ]

    return measure


def over_sizes(setting: Setting) -> Callable[[int], list[Series]]:
    """Psi over the number of examples, for each of three budgets."""

    def measure(repeat: int) -> list[Series]:
        return [
            line(setting, f"ε = {e:g}", {n: Owners.alike(n, e) for n in SIZES[setting]}, repeat) for e in EPSILONS[1:4]
        ]

    return measure


def surface(setting: Setting) -> Callable[[int], list[Series]]:
    """Psi over both."""

    def measure(repeat: int) -> list[Series]:
        return [line(setting, f"{n}", {e: Owners.alike(n, e) for e in EPSILONS}, repeat) for n in SIZES[setting]]

    return measure


def collaborations(setting: Setting) -> dict[str, Owners]:
    """Two owners who agree on a large budget, and who may join them."""
    n = SIZES[setting][-1] // 3
    small = n // 15
    return {
        "two, ε = 10": Owners((n, n), (10.0, 10.0)),
        "and one alike": Owners((n, n, n), (10.0, 10.0, 10.0)),
        "and a small one, ε = .1": Owners((n, n, small), (10.0, 10.0, 0.1)),
        "and a large one, ε = .1": Owners((n, n, n), (10.0, 10.0, 0.1)),
    }


def four_collaborations(setting: Setting) -> Callable[[int], list[Series]]:
    """Psi in each."""

    def measure(repeat: int) -> list[Series]:
        return [
            line(setting, name, {place: owners}, repeat)
            for place, (name, owners) in enumerate(collaborations(setting).items())
        ]

    return measure


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


def judge_slopes(x: str) -> Judge:
    """Psi ~ x^-2."""

    def judge(series: Sequence[Series]) -> Iterable[Verdict]:
        for one in series:
            slope, _ = one.fit() or (np.nan, np.nan)
            evidence = f"slope {slope:.2f} over {one.noisy.sum()} points where noise dominates"
            yield Verdict(f"ψ ∝ {x}⁻² at {one.name}", abs(slope + 2) <= TOLERANCE, evidence)

    return judge


def judge_collaborations(setting: Setting) -> Judge:
    """One alike helps, a conservative one harms, and the forecast knows."""

    def judge(series: Sequence[Series]) -> Iterable[Verdict]:
        two, alike, small, large = (float(one.mean[0]) for one in series)
        evidence = f"mean ψ {_few([two, alike, small, large])}"
        yield Verdict("one alike does no harm", alike <= NO_WORSE * two, evidence)
        worse = f"{small / two:.0f} and {large / two:.0f} times as much"
        yield Verdict("a conservative one makes ψ worse by orders of magnitude", min(small, large) > 100 * two, worse)
        chosen = {name: predicted(setting, owners) for name, owners in collaborations(setting).items()}
        left_out = all("owner-3" not in chosen[one.name].coalition for one in series[2:])
        welcome = "owner-3" in chosen[series[1].name].coalition
        estimates = [answer.excess.estimate for answer in chosen.values()]
        yield Verdict("the forecast invites the one alike and nobody else", left_out and welcome,
                      f"estimated excess {_few(estimates)}")  # fmt: skip

    return judge


def _few(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _five(setting: Setting, what: str) -> list[Figure]:
    """The five figures of one setting."""
    rows: tuple[tuple[str, str, Kind, Callable[[Setting], Callable[[int], list[Series]]], Judge, int], ...] = (
        ("along the rounds", "round", "bands", along_the_rounds, judge_rounds, REPEAT),
        ("over n and ε", "ε", "surface", surface, judge_surface, REPEAT_SURFACE),
        ("over the budget", "ε", "slopes", over_budgets, judge_slopes("ε"), REPEAT),
        ("over the number of examples", "n", "slopes", over_sizes, judge_slopes("n"), REPEAT),
        ("in four collaborations", "", "boxes", four_collaborations, judge_collaborations(setting), REPEAT),
    )
    return [
        Figure(f"{what}: relative fitness ψ {where}", x, kind, measure(setting), judge, setting, repeat)
        for where, x, kind, measure, judge, repeat in rows
    ]


FIGURES = dict(
    zip(
        (f"fig{number:02}" for number in range(2, 12)),
        [*_five(LOANS, "Interest rates of loans"), *_five(FRAUDS, "Card frauds")],
        strict=True,
    )
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw figures as the command line says; 1 if a claim was put to the test and does not hold, else 0."""
    return redraw_named(
        "wu",
        "Figures 2-11 of Wu, Farokhi, Smith & Kaafar 2020",
        FIGURES,
        f"{QUICK_REPEAT} runs a point",
        redraw,
        arguments,
    )


def redraw(name: str, out: Path, quick: bool) -> int:  # noqa: FBT001 -- as `redraw_named` calls it
    """Measure, draw, and print each claim with its verdict; 1 if one does not hold."""
    figure = FIGURES[name]
    if examples(figure.setting.study) is None:
        print(f"wu_{name}: not drawn, for {figure.setting.study.name} is not here ($PARLEY_DATA is not set)")
        return 0
    series = figure.measure(QUICK_REPEAT if quick else figure.repeat)
    write_table(series, out / f"wu_{name}.csv")
    DRAW[figure.kind](figure.title, figure.x_label, series, out / f"wu_{name}.png")
    return announce(out / f"wu_{name}", figure.judge(series), "runs" if quick else None)


def write_table(series: Sequence[Series], path: Path) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
