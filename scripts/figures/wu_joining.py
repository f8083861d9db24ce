"""Figures 6 and 11 of Wu, Farokhi, Smith & Kaafar 2020 as surfaces: who gains when a first owner joins two others.

The relative fitness psi over the first owner's number of examples n_1 and budget epsilon_1, in four scenarios: the two
others are small or large, and have a small budget or a large one. Small others with 1,000 examples each and a budget of
.1 are those of the printed prediction, psi ~ sqrt(200 + 1 / epsilon_1^2) / (2000 + n_1), which is Theorem 3's bound
over its constant. The others of the other scenarios are ours, and have the prediction by the same rule. Beside each
surface is the prediction, scaled to the same geometric mean.

The power of the prediction that psi goes as is fitted over the points where noise dominates, for the printed scenario
and for the three others. Where its standard error, of runs left out one at a time, does not tell 1 from 2, no power is
claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from parley.common.algorithms.wu import theorem_3
from parley.common.arrays import FloatArray
from scripts.figures.frame import Figure, Ruling, Verdict
from scripts.figures.wu import (
    EPSILONS,
    PAPER,
    QUICK_REPEAT,
    SIZES,
    STEP_TOLERANCE,
    SUBJECTS,
    TOLERANCE,
    VARIATIONS,
    Plan,
    lines,
    sweep,
    write,
)
from scripts.figures.wu_plots import Series, Surface, draw_surfaces
from scripts.figures.wu_runs import FRAUDS, LOANS, Owners, Setting, psi_of_models

REPEAT = 10
PARTS = (20, 10, 4, 2, 1)
"""The first owner has this part of what a large one has."""
SMALL, CONSERVATIVE, LIBERAL = 1_000, 0.1, 10.0
PRINTED = f"two small ones, ε = {CONSERVATIVE:g}"
TELLS = 0.5
"""Twice the standard error of a power is at most half the way from 1 to 2, or it does not tell."""
TOO_FEW = "at the sizes and budgets that are ours, noise dominates at too few points to tell which power it is"
UPPER = (
    "the prediction is Theorem 3's bound, an upper one, and ψ goes as its square, as the abstract and Figures 4, 5, 9 "
    "and 10 have it"
)


def scenarios(setting: Setting) -> Mapping[str, tuple[int, float]]:
    """Return the number of examples and the budget of each of the two others, by scenario; the printed one first."""
    sizes = {"small": SMALL, "large": SIZES[setting.folder][-1] // 3}
    return {f"two {name} ones, ε = {e:g}": (n, e) for name, n in sizes.items() for e in (CONSERVATIVE, LIBERAL)}


def joining(setting: Setting) -> Plan:
    """A line for each number of examples of the first owner in each scenario, over its budget."""
    firsts = [SIZES[setting.folder][-1] // 3 // part for part in PARTS]
    return {
        f"{name}; {first}": {e: Owners((first, n, n), (e, epsilon, epsilon)) for e in EPSILONS}
        for name, (n, epsilon) in scenarios(setting).items()
        for first in firsts
    }


def by_scenario(series: Sequence[Series]) -> dict[str, Sequence[Series]]:
    """The lines of each scenario."""
    width = len(PARTS)
    return {series[i].name.partition(";")[0]: series[i : i + width] for i in range(0, len(series), width)}


def predictions(setting: Setting) -> FloatArray:
    """Return the printed prediction for each line and budget, up to a constant, (lines, budgets)."""
    every = [list(line.values()) for line in joining(setting).values()]
    return np.array([[theorem_3(sum(one.sizes), np.array(one.epsilons)) for one in line] for line in every])


@dataclass(frozen=True, slots=True)
class Power:
    """The power of the prediction that psi goes as, twice its standard error, and by how many times psi is off."""

    power: float
    error: float
    off: float
    evidence: str

    @classmethod
    def of(cls, predicted: FloatArray, series: Sequence[Series]) -> Power:
        """Fit it where noise dominates, for the prediction (lines, budgets); of too few points nothing is finite."""
        noisy = np.array([one.noisy for one in series])
        psi, logs = np.array([one.psi for one in series])[noisy], np.log(predicted[noisy])
        points, runs = psi.shape
        evidence = f"noise dominates at {points} of {noisy.size} points"
        if min(points, runs) < 2:  # noqa: PLR2004 -- two points make a line, and two runs an error
            return cls(np.nan, np.inf, np.nan, evidence)
        measured = np.log(psi.mean(axis=1))
        power, constant = np.polyfit(logs, measured, 1)
        without = [np.polyfit(logs, np.log(np.delete(psi, run, 1).mean(axis=1)), 1)[0] for run in range(runs)]
        error = 2 * np.sqrt(runs - 1) * np.std(without)
        off = np.exp(np.abs(measured - constant - power * logs).max())
        falls = [f"{float(f'{np.exp(np.ptp(values)):.3g}'):,g}-fold" for values in (logs, measured)]
        evidence = (
            f"ψ goes as the prediction to the power {power:.2f} ± {error:.2f}, off by at most {off:.2f} times; "
            f"{evidence}, over which the prediction falls {falls[0]} and ψ {falls[1]}"
        )
        return cls(float(power), float(error), float(off), evidence)


def judge(setting: Setting, series: Sequence[Series]) -> Iterable[Verdict]:
    """Which power of the prediction psi goes as: 1 by the printed prediction, 2 by the abstract."""
    expected, case, ours = predictions(setting), SUBJECTS[setting.name], VARIATIONS[setting.name]
    printed = np.array([one.name.startswith(PRINTED) for one in series])
    for scenario, of_it, also in (
        ("the printed scenario", printed, ours),
        ("the three other scenarios", ~printed, f"{ours}; these owners, and the prediction by the same rule"),
    ):
        fitted = Power.of(expected[of_it], [one for one, is_of in zip(series, of_it, strict=True) if is_of])
        yield _prediction(fitted, f"{case}: {scenario}", also)
    fitted = Power.of(expected, series)
    squared = abs(fitted.power - 2) <= TOLERANCE and fitted.off <= np.exp(STEP_TOLERANCE)
    owners = f"{ours}; the owners of all four scenarios"
    where = f"{case}: three owners, no two alike"
    yield Verdict("wu.inverse-squares", where, Ruling.of(bool(squared)), fitted.evidence, owners)


def _prediction(fitted: Power, case: str, ours: str) -> Verdict:
    if fitted.error > TELLS:
        return Verdict("wu.prediction", case, Ruling.UNTOLD, fitted.evidence, ours, "parley", TOO_FEW)
    ruling = Ruling.of(abs(fitted.power - 1) <= TOLERANCE)
    squared = abs(fitted.power - 2) <= TOLERANCE
    cause, why = ("paper", UPPER) if squared else ("", "")
    return Verdict("wu.prediction", case, ruling, fitted.evidence, ours, cause, why)


def draw(setting: Setting, title: str, series: Sequence[Series], path: Path) -> None:
    """For each scenario a panel of what was measured, and beside it the prediction."""
    expected = dict(zip((one.name for one in series), predictions(setting), strict=True))
    surfaces = []
    for name, first in by_scenario(series).items():
        grid, predicted = np.array([one.median for one in first]), np.array([expected[one.name] for one in first])
        scaled = predicted * np.exp(np.log(grid).mean() - np.log(predicted).mean())
        rows, columns = [one.name.rpartition(" ")[2] for one in first], [f"{x:g}" for x in first[0].x]
        source = "the printed prediction" if name == PRINTED else "the same rule"
        surfaces.append(Surface(f"joining {name}: median ψ", grid, rows, columns))
        surfaces.append(Surface(f"{source}, scaled to the left's geometric mean", scaled, rows, columns))
    draw_surfaces(title, ("ε₁", "n₁"), surfaces, path)


def _figure(setting: Setting, subject: str, number: int) -> Figure[list[Series]]:
    plan = joining(setting)
    drawn: Callable[[str, Sequence[Series], Path], None] = partial(draw, setting)
    return Figure(
        PAPER, f"wu_fig{number:02}_surfaces", f"{subject}: relative fitness ψ when a first owner joins two others",
        sweep(psi_of_models, setting, plan, REPEAT), sweep(psi_of_models, setting, plan, QUICK_REPEAT // 4),
        lines(setting, plan), write, drawn, partial(judge, setting),
    )  # fmt: skip


FIGURES = (_figure(LOANS, "Interest rates of loans", 6), _figure(FRAUDS, "Card frauds", 11))
