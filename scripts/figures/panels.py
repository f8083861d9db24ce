"""Figures of simulated accuracies: a grid of panels, in each a line an algorithm, with error bars, and a table.

A figure lists its simulations by their `Place` and has them measured by its `sweep`.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from parley.common.arrays import FloatArray
from parley.learner.experiments.simulation import SimulationSettings
from scripts.figures.frame import TWO_ERRORS, Line, Sweep, standard_error
from scripts.figures.point import Point
from scripts.figures.simulations import simulated


@dataclass(frozen=True, slots=True)
class Place:
    """Where a simulation is drawn: the panel (row, column) and the line it belongs to, and its x."""

    row: str
    column: str
    line: str
    x: float


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What came out of a simulation: accuracies (repeat,), and an epsilon for each view that is promised something."""

    settings: SimulationSettings
    accuracies: FloatArray
    n_train: int = 0
    n_test: int = 0
    epsilons: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Outcome:
        """Read an outcome from a `SimulationResult` as JSON."""
        stated = {field.name: document[field.name] for field in fields(SimulationSettings) if field.name in document}
        settings = SimulationSettings(**stated)
        epsilons = {promise["view"]: promise["epsilon"] for promise in reversed(document["guarantees"])}
        accuracies = np.array(document["accuracy"]["values"])
        return cls(settings, accuracies, document["n_train"], document["n_test"], epsilons)

    @property
    def mean(self) -> float:
        """The mean of the accuracies."""
        return math.fsum(self.accuracies.tolist()) / len(self.accuracies)

    @property
    def standard_error(self) -> float:
        """The standard error of the mean accuracy."""
        return standard_error(self.accuracies)


@dataclass(frozen=True, slots=True)
class Panels:
    """The outcomes of simulations, by place."""

    outcomes: Mapping[Place, Outcome]

    @classmethod
    def of(cls, results: Mapping[Place, Mapping[str, Any]]) -> Panels:
        """Read the outcomes from what `simulated` returned."""
        return cls({place: Outcome.of(document) for place, document in results.items()})


def sweep(simulations: Mapping[Place, SimulationSettings], most: int | None = None, data: Sequence[str] = ()) -> Sweep:
    """Simulations, each repeated at most so often, that read these folders of ``$PARLEY_DATA``."""
    run = {
        place: replace(settings, repeat=min(settings.repeat, most or settings.repeat))
        for place, settings in simulations.items()
    }
    points = {
        place: Point.of(simulated, *data, about_seconds=settings.repeat / 100, **asdict(settings))
        for place, settings in run.items()
    }
    return Sweep(points, " to ".join(map(str, sorted({settings.repeat for settings in run.values()}))))


def fall(before: Outcome, after: Outcome) -> FloatArray:
    """By how much the accuracy falls in each repetition, (repeat,); repetitions are paired by their data."""
    return before.accuracies - after.accuracies


def write(panels: Panels, path: Path) -> None:
    """A CSV: one line a simulation, with what was simulated, the accuracy, and the epsilons at its delta."""
    rows = [_csv_row(place, outcome) for place, outcome in panels.outcomes.items()]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _csv_row(place: Place, outcome: Outcome) -> dict[str, object]:
    """One line of the table; the epsilon of a view is empty where nothing is promised for it."""
    settings = outcome.settings
    return {
        "line": place.line,
        "data": settings.data,
        "algorithm": settings.algorithm,
        "parameters": json.dumps(dict(settings.parameters)),
        "parties": settings.parties,
        "skew": settings.skew,
        "shares": json.dumps(settings.shares) if settings.shares else "",
        "folds": settings.folds or "",
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "repeat": len(outcome.accuracies),
        "seed": settings.seed,
        "n_train": outcome.n_train,
        "n_test": outcome.n_test,
        "accuracy_mean": f"{outcome.mean:.5f}",
        "accuracy_sd": f"{np.std(outcome.accuracies, ddof=1):.5f}",
        "accuracy_standard_error": f"{outcome.standard_error:.5f}",
        "model_epsilon": _formatted(outcome.epsilons.get("model")),
        "transcript_epsilon": _formatted(outcome.epsilons.get("transcript")),
    }


def _formatted(epsilon: float | None) -> str:
    return "" if epsilon is None else f"{epsilon:.4g}"


def draw(lines: Mapping[str, Line], x_label: str, title: str, panels: Panels, path: Path) -> None:
    """A grid of panels, one row and column each by the places' own, on common axes, with error bars and one legend."""
    rows, columns = (
        list(dict.fromkeys(names)) for names in zip(*((p.row, p.column) for p in panels.outcomes), strict=True)
    )
    with mpl.rc_context({"backend": "agg", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        canvas, axes = plt.subplots(
            len(rows), len(columns), sharex=True, sharey=True, squeeze=False, layout="constrained",
            figsize=(3.6 * len(columns) + 0.6, 2.9 * len(rows) + 1.2),
        )  # fmt: skip
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                outcomes = {p: o for p, o in panels.outcomes.items() if (p.row, p.column) == (row, column)}
                _draw_panel(axes[i, j], lines, outcomes)
                axes[i, j].set_title(f"{row}, {column}", fontsize=10, loc="left")
                axes[-1, j].set_xlabel(x_label)
        canvas.suptitle(title, fontsize=12, x=0.01, ha="left")
        space = " " if len(rows) > 1 else "\n"
        canvas.supylabel(f"accuracy on held-out data,{space}mean ± 2 standard errors", fontsize=10)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=min(3, len(columns)), frameon=False)
        canvas.savefig(path, dpi=150)
        plt.close(canvas)


def _draw_panel(axes: Axes, lines: Mapping[str, Line], outcomes: Mapping[Place, Outcome]) -> None:
    """One panel's lines, set a little apart so that error bars in the same place can be told."""
    ticks = sorted({place.x for place in outcomes})
    apart = 0.012 * (ticks[-1] - ticks[0])
    for number, (name, line) in enumerate(lines.items()):
        mine = sorted(
            ((place.x, outcome) for place, outcome in outcomes.items() if place.line == name), key=itemgetter(0)
        )
        axes.errorbar(
            [x + apart * (number - len(lines) / 2) for x, _ in mine],
            [outcome.mean for _, outcome in mine],
            [TWO_ERRORS * outcome.standard_error for _, outcome in mine],
            label=line.label, color=line.colour, marker=line.marker, linestyle=line.dash,
            markersize=5, linewidth=1.4, capsize=2.5,
        )  # fmt: skip
    axes.set_xticks(ticks)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
