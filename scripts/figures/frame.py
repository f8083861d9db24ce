"""What all figures share: a figure is a sweep, a table and a plot, and claims that the table bears out or not.

A figure file says what is simulated at each of its points and what the paper claims; `main` runs the sweep, writes the
table (CSV) and the plot (PNG) and prints each claim with its verdict. All is seeded: the same versions of the libraries
give the same table.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from rich.console import Console
from rich.progress import track

from common.arrays import FloatArray
from learner.experiments.simulation import SimulationResult, SimulationSettings, run_simulation

OUT = Path(__file__).parents[2] / "figures"
QUICK_REPEAT = 20
TWO_ERRORS = 2.0
"""Error bars reach two standard errors of the mean either way, about 95 %."""


@dataclass(frozen=True, slots=True)
class Line:
    """How one algorithm is drawn: its name in the legend, a colour of the Okabe-Ito palette, a marker, a dash."""

    label: str
    colour: str
    marker: str
    dash: str = "-"


@dataclass(frozen=True, slots=True)
class Point:
    """One point: the panel (row, column) and the line it belongs to, its x, and what is simulated there."""

    row: str
    column: str
    line: str
    x: float
    settings: SimulationSettings


@dataclass(frozen=True, slots=True)
class Table:
    """A sweep's results, point by point."""

    points: tuple[Point, ...]
    results: tuple[SimulationResult, ...]

    def result(self, line: str, **settings: object) -> SimulationResult:
        """The result of a line at the point with these settings."""
        return next(
            result
            for point, result in zip(self.points, self.results, strict=True)
            if point.line == line and all(getattr(point.settings, name) == value for name, value in settings.items())
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim in words, whether the table bears it out, and the figures that say so."""

    claim: str
    holds: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: ``name`` is its files' stem; ``judge`` reads the claims off the table."""

    name: str
    title: str
    x_label: str
    lines: dict[str, Line]
    points: tuple[Point, ...]
    judge: Callable[[Table], Iterable[Verdict]]


def main(figure: Figure, arguments: Sequence[str] | None = None) -> int:
    """Draw a figure as the command line says; 1 if a claim was put to the test and does not hold, else 0."""
    parser = argparse.ArgumentParser(prog=figure.name, description=figure.title)
    parser.add_argument(
        "--quick", action="store_true", help=f"at most {QUICK_REPEAT} repetitions a point: shows, judges not"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="directory of the CSV and the PNG (default: %(default)s)")
    options = parser.parse_args(arguments)
    table = sweep(figure.points, QUICK_REPEAT if options.quick else None)
    options.out.mkdir(parents=True, exist_ok=True)
    write_table(table, options.out / f"{figure.name}.csv")
    draw(figure, table, options.out / f"{figure.name}.png")
    return announce(options.out / figure.name, figure.judge(table), "repetitions" if options.quick else None)


def redraw_named(  # noqa: PLR0913, PLR0917 -- a command line, and what it calls
    prog: str,
    description: str,
    names: Collection[str],
    quick: str,
    redraw: Callable[[str, Path, bool], int],
    arguments: Sequence[str] | None = None,
) -> int:
    """Redraw the figures of a paper that the command line names: 1 if one does not hold, else 0.

    ``redraw`` takes a name, a directory, and whether to be ``quick``, which that says in words.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("names", nargs="*", metavar="FIGURE", help=f"which of {', '.join(names)} (default: all)")
    parser.add_argument("--quick", action="store_true", help=f"{quick}: shows, judges not")
    parser.add_argument("--out", type=Path, default=OUT, help="directory of the CSVs and PNGs (default: %(default)s)")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(names)):
        parser.error(f"no such figure: {', '.join(unknown)}")
    options.out.mkdir(parents=True, exist_ok=True)
    return max([redraw(name, options.out, options.quick) for name in options.names or names])


def announce(stem: Path, judged: Iterable[Verdict], too_few: str | None) -> int:
    """Say what was written, and each claim with its verdict; 1 if one does not hold.

    ``too_few`` names what there is too little of to put claims to the test; None where there is enough.
    """
    print(f"{stem.name}: wrote {stem}.csv and .png")
    verdicts = tuple(judged)
    for verdict in verdicts:
        word = f"too few {too_few} to tell" if too_few else "holds" if verdict.holds else "DOES NOT HOLD"
        print(f"{stem.name}: {verdict.claim}: {word} ({verdict.evidence})")
    return int(not too_few and not all(verdict.holds for verdict in verdicts))


def sweep(points: Sequence[Point], most_repeats: int | None = None) -> Table:
    """Simulate every point, each at most so often; the progress bar goes to standard error."""
    results = []
    for point in track(points, "simulating", console=Console(stderr=True)):
        repeat = min(point.settings.repeat, most_repeats or point.settings.repeat)
        results.append(run_simulation(replace(point.settings, repeat=repeat)))
    return Table(tuple(points), tuple(results))


def standard_error(values: Sequence[float] | FloatArray) -> float:
    """The standard error of the mean of independent values."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def fall(before: SimulationResult, after: SimulationResult) -> FloatArray:
    """By how much the accuracy falls in each repetition, (repeat,); repetitions are paired by their data."""
    return np.subtract(before.accuracy.values, after.accuracy.values)


def errors(values: FloatArray) -> float:
    """How many of its standard errors the mean of independent values lies above 0."""
    return float(values.mean()) / standard_error(values)


def write_table(table: Table, path: Path) -> None:
    """The table as CSV: one line a point, with what was simulated, the accuracy, and the epsilons at its delta."""
    with path.open("w", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for point, result in zip(table.points, table.results, strict=True):
            row = _csv_row(point, result)
            if writer is None:
                writer = csv.DictWriter(file, list(row))
                writer.writeheader()
            writer.writerow(row)


def _csv_row(point: Point, result: SimulationResult) -> dict[str, object]:
    """One line of the table; the epsilon of a view is empty where nothing is promised for it."""
    settings = result.settings
    epsilons = {guarantee.view: guarantee.epsilon for guarantee in reversed(result.guarantees)}
    return {
        "line": point.line,
        "data": settings.data,
        "algorithm": settings.algorithm,
        "parameters": json.dumps(dict(settings.parameters)),
        "parties": settings.parties,
        "skew": settings.skew,
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "repeat": len(result.accuracy.values),
        "seed": settings.seed,
        "n_train": result.n_train,
        "n_test": result.n_test,
        "accuracy_mean": f"{result.accuracy.mean:.5f}",
        "accuracy_sd": f"{result.accuracy.sd:.5f}",
        "accuracy_standard_error": f"{standard_error(result.accuracy.values):.5f}",
        "model_epsilon": _finite(epsilons.get("model")),
        "transcript_epsilon": _finite(epsilons.get("transcript")),
    }


def _finite(epsilon: float | None) -> str:
    return f"{epsilon:.4g}" if epsilon is not None and math.isfinite(epsilon) else ""


def draw(figure: Figure, table: Table, path: Path) -> None:
    """A grid of panels, one row and column each by the points' own, on common axes, with error bars and one legend."""
    rows, columns = (
        list(dict.fromkeys(names)) for names in zip(*((p.row, p.column) for p in table.points), strict=True)
    )
    with mpl.rc_context({"backend": "agg", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        canvas, axes = plt.subplots(
            len(rows), len(columns), sharex=True, sharey=True, squeeze=False, layout="constrained",
            figsize=(3.6 * len(columns) + 0.6, 2.9 * len(rows) + 1.2),
        )  # fmt: skip
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                _draw_panel(axes[i, j], figure, table, row, column)
                axes[i, j].set_title(f"{row}, {column}", fontsize=10, loc="left")
                axes[-1, j].set_xlabel(figure.x_label)
        canvas.suptitle(figure.title, fontsize=12, x=0.01, ha="left")
        canvas.supylabel("accuracy on held-out data, mean ± 2 standard errors", fontsize=10)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        canvas.savefig(path, dpi=150)
        plt.close(canvas)


def _draw_panel(axes: Axes, figure: Figure, table: Table, row: str, column: str) -> None:
    """One panel's lines, set a little apart so that error bars in the same place can be told."""
    here = [
        (point, result)
        for point, result in zip(table.points, table.results, strict=True)
        if (point.row, point.column) == (row, column)
    ]
    ticks = sorted({point.x for point, _ in here})
    apart = 0.012 * (ticks[-1] - ticks[0])
    for place, (name, line) in enumerate(figure.lines.items()):
        mine = sorted(((point.x, result) for point, result in here if point.line == name), key=lambda pair: pair[0])
        axes.errorbar(
            [x + apart * (place - len(figure.lines) / 2) for x, _ in mine],
            [result.accuracy.mean for _, result in mine],
            [TWO_ERRORS * standard_error(result.accuracy.values) for _, result in mine],
            label=line.label, color=line.colour, marker=line.marker, linestyle=line.dash,
            markersize=5, linewidth=1.4, capsize=2.5,
        )  # fmt: skip
    axes.set_xticks(ticks)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
