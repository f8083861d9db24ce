"""Figures 6 and 11 of Wu, Farokhi, Smith & Kaafar 2020 as surfaces: who gains when a first owner joins two others.

The relative fitness psi over the first owner's number of examples n_1 and budget epsilon_1, in four scenarios: the two
others are small or large, and have a small budget or a large one. Small others with 1,000 examples each and a budget of
.1 are those of the printed prediction, psi ~ sqrt(200 + 1 / epsilon_1^2) / (2000 + n_1), which is Theorem 3's bound
over its constant. The others of the other scenarios are ours, and have the prediction by the same rule. Beside each
surface is the prediction, scaled to the same geometric mean.

The power of the prediction that psi goes as is fitted over the points of all scenarios where noise dominates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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


def judge(setting: Setting, series: Sequence[Series]) -> Iterable[Verdict]:
    """Which power of the prediction psi goes as: 1 by the printed prediction, 2 by the abstract."""
    noisy, psi = np.array([one.noisy for one in series]), np.array([one.mean for one in series])
    logs, measured = np.log(predictions(setting)[noisy]), np.log(psi[noisy])
    power, constant = np.polyfit(logs, measured, 1)
    off = np.exp(np.abs(measured - constant - power * logs).max())
    widths = [np.exp(values.max() - values.min()) for values in (logs, measured)]
    evidence = (
        f"ψ goes as the prediction to the power {power:.2f} over {noisy.sum()} of {noisy.size} points, off by at most "
        f"{off:.2f} times: the prediction falls {widths[0]:,.0f}-fold and ψ {widths[1]:,.0f}-fold"
    )
    case = SUBJECTS[setting.name]
    yield Verdict("wu.prediction", case, Ruling.of(bool(abs(power - 1) <= TOLERANCE)), evidence)
    squared = bool(abs(power - 2) <= TOLERANCE) and off <= np.exp(STEP_TOLERANCE)
    yield Verdict("wu.inverse-squares", f"{case}: three owners, no two alike", Ruling.of(squared), evidence)


def draw(setting: Setting, title: str, series: Sequence[Series], path: Path) -> None:
    """For each scenario a panel of what was measured, and beside it the prediction."""
    expected = dict(zip((one.name for one in series), predictions(setting), strict=True))
    surfaces = []
    for name, first in by_scenario(series).items():
        grid, predicted = np.array([one.median for one in first]), np.array([expected[one.name] for one in first])
        scaled = predicted * np.exp(np.log(grid).mean() - np.log(predicted).mean())
        rows, columns = [one.name.rpartition(" ")[2] for one in first], [f"{x:g}" for x in first[0].x]
        source = "the printed prediction, scaled" if name == PRINTED else "the prediction by the same rule, scaled"
        surfaces.append(Surface(f"{name}: median ψ", grid, rows, columns))
        surfaces.append(Surface(source, scaled, rows, columns))
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
