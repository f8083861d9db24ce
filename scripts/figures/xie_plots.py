"""How the figures of Xie's thesis are drawn: lines over what varies, with error bars, and histograms of runs."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from textwrap import fill

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from scripts.figures.curves import Curve
from scripts.figures.frame import TWO_ERRORS, Line

TIGHT = ", tight"
"""Ends the name of a line of tight noise; the others' is the thesis's."""
_WIDEST = 44
"""Letters of a panel's title that stand beside the next one's."""
_LINES = {
    "non-private": Line("non-private", "#000000", "", ":"),
    "output": Line("output", "#E69F00", "v"),
    "objective": Line("objective", "#56B4E9", "s"),
    "generalized": Line("generalized", "#009E73", "^"),
    "thesis's Hessian bound": Line("thesis's Hessian bound", "#CC79A7", "D"),
    "global": Line("global", "#7F7F7F", "s"),
    "local": Line("local sites", "#CC79A7", "D"),
    "average": Line("average", "#D55E00", "v"),
    "average, noise once": Line("average, noise once", "#E69F00", "<"),
    "feature, public": Line("feature, public", "#009E73", "^"),
    "feature, full": Line("feature, full", "#0072B2", "o"),
}


def line_of(name: str) -> Line:
    """Return the style of a line; tight noise is dashed."""
    line = _LINES[name.removesuffix(TIGHT)]
    return Line(name, line.colour, line.marker, "--") if name.endswith(TIGHT) else line


def draw_lines(x_label: str, y_label: str, title: str, curves: Sequence[Curve], path: Path) -> None:
    """A panel each, on common axes, x on a logarithm; bars reach two standard errors. Squares are on one too."""
    canvas, axes = _panels(curves, title)
    for axis, mine in axes:
        for curve in mine:
            line, points = line_of(curve.name), sorted(curve.runs)
            bars = [TWO_ERRORS * curve.sd(x) / sqrt(len(curve.runs[x])) for x in points]
            axis.errorbar(
                points, [curve.mean(x) for x in points], bars, label=line.label, color=line.colour, marker=line.marker,
                linestyle=line.dash, markersize=4.5, linewidth=1.3, elinewidth=0.7, capsize=2,
            )  # fmt: skip
            if curve.bound is not None:
                axis.plot(points, [curve.bound[x] for x in points], ":", color="0.3", label="bound")
                axis.set_yscale("log")
        axis.set_xscale("log")
        axis.set_xlabel(x_label)
        axis.grid(axis="y", color="0.9", linewidth=0.8)
    if axes[0][0].get_yscale() == "linear":
        axes[0][0].set_ylim(bottom=0)
    named = {name: handle for axis, _ in axes for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    _save(canvas, y_label, path, named)


def draw_histograms(title: str, curves: Sequence[Curve], path: Path) -> None:
    """A panel each: how many runs have which error rate."""
    canvas, axes = _panels(curves, title)
    for axis, mine in axes:
        for curve in mine:
            (runs,) = curve.runs.values()
            axis.hist(runs, bins=30, range=(0, 1), alpha=0.6, color=line_of(curve.name).colour, label=curve.name)
        axis.set_xlabel("error rate on test rows")
    _save(canvas, "runs", path, dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True)))


def _panels(curves: Sequence[Curve], title: str) -> tuple[Canvas, list[tuple[Axes, list[Curve]]]]:
    """Return an empty panel for each of the curves' panels."""
    names = list(dict.fromkeys(curve.panel for curve in curves))
    with mpl.rc_context({"backend": "agg", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        canvas, axes = plt.subplots(
            1, len(names), sharey=True, squeeze=False, layout="constrained", figsize=(4.2 * max(len(names), 2), 4.6)
        )
    canvas.suptitle(title, fontsize=12, x=0.01, ha="left")
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(fill(name, _WIDEST), fontsize=10, loc="left")
    return canvas, [
        (axis, [curve for curve in curves if curve.panel == name]) for axis, name in zip(axes[0], names, strict=True)
    ]


def _save(canvas: Canvas, y_label: str, path: Path, named: dict[str, Artist]) -> None:
    """Save a canvas with one legend below all panels."""
    canvas.supylabel(y_label, fontsize=10)
    canvas.legend(list(named.values()), list(named), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    canvas.savefig(path, dpi=150)
    plt.close(canvas)
