"""How Hamm, Cao & Belkin's figures are drawn: accuracies over 1/epsilon, bars, and excess risks on logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from scripts.figures.curves import Curve
from scripts.figures.frame import Line

LINES = {
    "batch": Line("batch (all rows pooled, no noise)", "#000000", "", "-"),
    "vote, tight": Line("vote, tight: (ε, 1e-5)", "#0072B2", "o", "-"),
    "soft, tight": Line("soft labels, tight: (ε, 1e-5)", "#D55E00", "o", "-"),
    "average, tight": Line("average, tight: (ε, 1e-5)", "#009E73", "o", "-"),
    "soft, output_tight": Line("soft labels, tight, model alone: (ε, 1e-5)", "#D55E00", "^", ":"),
    "vote, paper": Line("vote, paper: pure ε", "#0072B2", "s", "--"),
    "soft, paper": Line("soft labels, paper: pure ε", "#D55E00", "s", "--"),
    "average, paper": Line("average, paper: pure ε", "#009E73", "s", "--"),
    "all released": Line("all classifiers released: (ε, 1e-5)", "#CC79A7", "D", "-."),
    "one by one": Line("1,000 predictions, one by one: (ε, 1e-5)", "#E69F00", "D", "-."),
    "individual": Line("individual (own rows, no noise)", "#7F7F7F", "", "-"),
}


def draw_accuracies(title: str, curves: Sequence[Curve], path: Path) -> None:
    """A panel for each data set, where 1/epsilon is evenly spaced; bars are deviations of the runs.

    What has no noise stands apart from what has: no line joins them. What has none at any epsilon is one line.
    """
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    with _styled():
        canvas, axes = plt.subplots(1, len(panels), sharey=True, squeeze=False, layout="constrained",
                                    figsize=(4.4 * max(len(panels), 2), 5.3))  # fmt: skip
        for axis, panel in zip(axes[0], panels, strict=True):
            mine = [curve for name in LINES for curve in curves if (curve.panel, curve.name) == (panel, name)]
            ticks = sorted({x for curve in mine for x in curve.runs})
            for curve in mine:
                points = sorted(curve.runs)
                if points == [0.0]:
                    _draw_line(axis, curve, [0, len(ticks) - 1], [0.0, 0.0], LINES[curve.name])
                    continue
                noisy = [x for x in points if x]
                _draw_line(axis, curve, [ticks.index(x) for x in noisy], noisy, LINES[curve.name])
                _draw_line(axis, curve, [0], [0.0], replace(LINES[curve.name], label="_without noise"))
            axis.set_xticks(range(len(ticks)), [f"{x:.2g}" for x in ticks])
            axis.set_xlabel("1/ε (0: no noise)")
            axis.set_title(panel, fontsize=10, loc="left")
            axis.grid(axis="y", color="0.9", linewidth=0.8)
            axis.set_ylim(0, 1)
        canvas.suptitle(title, fontsize=12, x=0.01, ha="left")
        canvas.supylabel("accuracy on test rows, mean ± sd", fontsize=10)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        columns = 2 if len(panels) == 1 else 3
        canvas.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
        canvas.savefig(path, dpi=150)
        plt.close(canvas)


def _draw_line(axis: Axes, curve: Curve, places: Sequence[int], points: Sequence[float], line: Line) -> None:
    """The means at these 1/epsilon, at these places of the axis, joined."""
    axis.errorbar(
        places, [curve.mean(x) for x in points], [curve.sd(x) for x in points], label=line.label,
        color=line.colour, marker=line.marker, linestyle=line.dash, markersize=4.5, linewidth=1.3,
        elinewidth=0.6, capsize=2,
    )  # fmt: skip


def draw_ways(title: str, curves: Sequence[Curve], path: Path) -> None:
    """A bar each, of what is averaged and of what is not, and the paper's average."""
    with _styled():
        canvas, axis = plt.subplots(layout="constrained", figsize=(7.2, 0.32 * len(curves) + 1.2))
        for place, curve in enumerate(curves):
            colour = "#009E73" if curve.name.startswith("average") else "0.6"
            axis.barh(place, curve.mean(0.0), xerr=curve.sd(0.0), color=colour, ecolor="0.3", capsize=2)
        axis.axvline(0.67, color="#D55E00", linestyle="--")
        axis.set_yticks(range(len(curves)), [curve.name for curve in curves])
        axis.invert_yaxis()
        axis.set_xlim(left=0.0)
        canvas.supxlabel("accuracy on test rows, mean ± sd; dashed: the paper's average", fontsize=10)
        axis.set_title(title, fontsize=11, loc="left")
        canvas.savefig(path, dpi=150)
        plt.close(canvas)


def draw_risks(title: str, curves: Sequence[Curve], path: Path) -> None:
    """Mean excess risks over M, a line an epsilon, and the bound of each, dashed."""
    with _styled():
        canvas, axis = plt.subplots(layout="constrained", figsize=(6.4, 4.8))
        for curve, colour in zip(curves, ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"), strict=False):
            x = np.array(sorted(curve.runs))
            axis.loglog(x, [curve.mean(m) for m in x.tolist()], "o-", color=colour, label=curve.name)
            if curve.bound is not None:
                axis.loglog(x, [curve.bound[m] for m in x.tolist()], "--", color=colour)
        axis.loglog([], [], "--", color="0.4", label="bound, 95 %")
        axis.set_xticks(x, [f"{m:,.0f}" for m in x])
        axis.minorticks_off()
        axis.set_xlabel("parties M")
        axis.set_ylabel("excess risk by the paper's noise")
        axis.set_title(title, fontsize=11, loc="left")
        axis.grid(color="0.9", linewidth=0.8)
        canvas.legend(loc="outside lower center", ncols=4, frameon=False)
        canvas.savefig(path, dpi=150)
        plt.close(canvas)


def _styled() -> AbstractContextManager[None]:
    """Without a screen, and without a frame above and to the right."""
    return mpl.rc_context({"backend": "agg", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
