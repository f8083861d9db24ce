"""How the figures of Xie's thesis are drawn: lines over what varies, with error bars, and histograms of runs."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from scripts.figures.curves import Curve
from scripts.figures.frame import TWO_ERRORS, Line
from scripts.figures.xie_grids import NON_PRIVATE, OBJECTIVE, OUTPUT, PRINTED, RIGHT
from scripts.figures.xie_runs import AVERAGE, F_FULL, F_LOC, GLOBAL, LOCAL, UNIT_VIEWS
from scripts.figures.xie_theorems import LENGTH, NAMES

_COLOURS = {
    NON_PRIVATE: ("#000000", ""), OUTPUT: ("#E69F00", "v"), OBJECTIVE: ("#56B4E9", "s"), PRINTED: ("#CC79A7", "D"),
    RIGHT: ("#009E73", "^"), GLOBAL: ("#7F7F7F", "s"), LOCAL: ("#CC79A7", "D"), AVERAGE: ("#D55E00", "v"),
    F_LOC: ("#009E73", "^"), F_FULL: ("#0072B2", "o"), UNIT_VIEWS: ("#56B4E9", "s"),
    **dict(zip(NAMES, (("#009E73", "^"), ("#0072B2", "o"), ("#D55E00", "v")), strict=True)), LENGTH: ("#000000", ""),
}  # fmt: skip
ERROR = "error rate on test rows, mean ± 2 standard errors"
_LOGARITHMIC = ("Λ", "m = m0")


def line_of(name: str) -> Line:
    """Return the style of a line; one that no proof covers is dashed."""
    colour, marker = _COLOURS[name]
    return Line(f"{name}, as printed" if name == F_FULL else name, colour, marker, "--" if name == F_FULL else "-")


def draw_lines(x_label: str, y_label: str, title: str, curves: Sequence[Curve], path: Path) -> None:
    """A panel each, on common axes; bars reach two standard errors. What is no error rate is on a logarithm."""
    canvas, axes = _panels(curves, title)
    for axis, mine in axes:
        for curve in mine:
            line, points = line_of(curve.name), sorted(curve.runs)
            bars = [TWO_ERRORS * curve.sd(x) / sqrt(len(curve.runs[x])) for x in points]
            axis.errorbar(
                points, [curve.mean(x) for x in points], bars, label=line.label, color=line.colour, marker=line.marker,
                linestyle=line.dash, markersize=4, linewidth=1.3, elinewidth=0.7, capsize=2,
            )  # fmt: skip
        axis.set_xlabel(x_label)
        axis.grid(axis="y", color="0.9", linewidth=0.8)
        if x_label.startswith(_LOGARITHMIC):
            axis.set_xscale("log")
    if y_label == ERROR:
        axes[0][0].set_ylim(bottom=0)
    else:
        axes[0][0].set_yscale("log")
    named = {name: handle for axis, _ in axes for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    _save(canvas, y_label, path, named)


def draw_histograms(title: str, curves: Sequence[Curve], path: Path) -> None:
    """How many runs have which error rate."""
    canvas, axes = _panels(curves, title)
    every = [value for curve in curves for runs in curve.runs.values() for value in runs]
    for axis, mine in axes:
        for curve in mine:
            (runs,) = curve.runs.values()
            colour = line_of(curve.name).colour
            axis.hist(runs, bins=25, range=(min(every), max(every)), alpha=0.5, color=colour, label=curve.name)
        axis.set_xlabel("error rate on test rows")
    _save(canvas, "runs", path, dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True)))


def _panels(curves: Sequence[Curve], title: str) -> tuple[Canvas, list[tuple[Axes, list[Curve]]]]:
    """Return an empty panel for each of the curves' panels."""
    names = list(dict.fromkeys(curve.panel for curve in curves))
    with mpl.rc_context({"backend": "agg", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        canvas, axes = plt.subplots(
            1, len(names), sharey=True, squeeze=False, layout="constrained", figsize=(4.6 * max(len(names), 1.6), 4.6)
        )
    canvas.suptitle(title, fontsize=12, x=0.01, ha="left")
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(name, fontsize=10, loc="left")
    return canvas, [
        (axis, [curve for curve in curves if curve.panel == name]) for axis, name in zip(axes[0], names, strict=True)
    ]


def _save(canvas: Canvas, y_label: str, path: Path, named: dict[str, Artist]) -> None:
    """Save a canvas with one legend below all panels."""
    canvas.supylabel(y_label, fontsize=10)
    canvas.legend(list(named.values()), list(named), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    canvas.savefig(path, dpi=150)
    plt.close(canvas)
