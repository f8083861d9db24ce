"""Figures 6 and 11 of Wu, Farokhi, Smith & Kaafar 2020 as surfaces: who gains when a first owner joins two others.

The relative fitness psi over the first owner's number of examples n_1 and budget epsilon_1, in four scenarios: the two
others are large or small, and have a budget of 10 or of 1. The proportions are ours. Beside each is psi of the two
others alone. All psi are medians; those of a run are over the owners' own examples, so runs of more owners are measured
on more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from scripts.figures.frame import Figure, Verdict
from scripts.figures.wu import EPSILONS, NO_WORSE, PAPER, QUICK_REPEAT, REPEAT_SURFACE, SIZES, Plan, lines, sweep, write
from scripts.figures.wu_plots import Series, Surface, draw_surfaces
from scripts.figures.wu_runs import FRAUDS, LOANS, Owners, Setting, psi_of_models

PARTS = (20, 10, 4, 2, 1)
"""The first owner has this part of what a large one has."""
SMALL = 10
"""A small one has a tenth."""
ALONE = "without the first"


def scenarios(setting: Setting) -> Mapping[str, tuple[int, float]]:
    """Return the number of examples and the budget of each of the two others, by scenario."""
    large = SIZES[setting.folder][-1] // 3
    sizes = {"large": large, "small": large // SMALL}
    return {f"two {name} ones, ε = {e:g}": (n, e) for name, n in sizes.items() for e in (10.0, 1.0)}


def joining(setting: Setting) -> Plan:
    """A line for each number of examples of the first owner in each scenario, over its budget; last the two alone."""
    large = SIZES[setting.folder][-1] // 3
    plan: dict[str, Mapping[float, Owners]] = {}
    for name, (n, epsilon) in scenarios(setting).items():
        for first in (large // part for part in PARTS):
            plan[f"{name}; {first}"] = {e: Owners((first, n, n), (e, epsilon, epsilon)) for e in EPSILONS}
        plan[f"{name}; {ALONE}"] = {0: Owners((n, n), (epsilon, epsilon))}
    return plan


def by_scenario(series: Sequence[Series]) -> dict[str, Sequence[Series]]:
    """The lines of each scenario, of the two alone last."""
    width = len(PARTS) + 1
    return {series[i].name.partition(";")[0]: series[i : i + width] for i in range(0, len(series), width)}


def judge(series: Sequence[Series]) -> Iterable[Verdict]:
    """What a first owner brings: its data help, its noise harms, and the others decide how much."""
    surfaces = by_scenario(series)
    for name, (*first, alone) in surfaces.items():
        grid = np.array([np.where(one.room, one.median, np.inf) for one in first])
        falls = bool((grid[1:] <= NO_WORSE * grid[:-1]).all() and (grid[:, 1:] <= NO_WORSE * grid[:, :-1]).all())
        evidence = f"ψ from {grid[np.isfinite(grid)].max():.3g} down to {grid.min():.3g}"
        yield Verdict(f"{name}: ψ falls with n₁ and with ε₁ where the box holds the noise", falls, evidence)
        worst, best, without = (float(psi) for psi in (first[-1].median[0], first[-1].median[-1], alone.median[0]))
        evidence = f"ψ {without:.3g} alone, {worst:.3g} with ε₁ = .1, {best:.3g} with ε₁ = 10"
        claim = f"{name}: a large first owner harms with ε₁ = .1 and helps with 10"
        yield Verdict(claim, best < without < worst, evidence)
    gains = {name: _gain(surface) for name, surface in surfaces.items()}
    large, small = (min(gain for name, gain in gains.items() if size in name) for size in ("large", "small"))
    evidence = f"ψ falls at least {small:.3g} and {large:.3g} times"
    yield Verdict("a large first owner with ε₁ = 10 helps small ones more than large ones", small > large, evidence)


def _gain(surface: Sequence[Series]) -> float:
    """How many times smaller psi is with the largest first owner, at the largest budget."""
    *_, joined, alone = surface
    return float(alone.median[0] / joined.median[-1])


def draw(title: str, series: Sequence[Series], path: Path) -> None:
    """A panel for each scenario, the two alone in its title."""
    surfaces = [
        Surface(
            f"{name}: ψ {alone.median[0]:.2g} without the first",
            np.array([one.median for one in first]),
            [one.name.rpartition(" ")[2] for one in first],
            [f"{x:g}" for x in first[0].x],
        )
        for name, (*first, alone) in by_scenario(series).items()
    ]
    draw_surfaces(title, ("ε₁", "n₁"), surfaces, path)


def _figure(setting: Setting, subject: str, number: int) -> Figure[list[Series]]:
    plan = joining(setting)
    return Figure(
        PAPER, f"wu_fig{number:02}_surfaces", f"{subject}: relative fitness ψ when a first owner joins two others",
        sweep(psi_of_models, setting, plan, REPEAT_SURFACE), sweep(psi_of_models, setting, plan, QUICK_REPEAT),
        lines(setting, plan), write, draw, judge,
    )  # fmt: skip


FIGURES = (_figure(LOANS, "Interest rates of loans", 6), _figure(FRAUDS, "Card frauds", 11))
