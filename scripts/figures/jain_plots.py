"""How Jain & Thakurta's figures are drawn: lines over epsilon or the number of columns, both on a logarithm."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from scripts.figures.curves import Curve
from scripts.figures.frame import TWO_ERRORS, Line

LINES = {
    "non-private": Line("non-private", "#000000", "", ":"),
    "objective, L2-Laplace": Line("objective, L2-Laplace", "#E69F00", "s"),
    "output, L2-Laplace": Line("output, L2-Laplace", "#E69F00", "v", "--"),
    "output, Gaussian (paper)": Line("output, Gaussian (paper)", "#56B4E9", "v", "--"),
    "output, Gaussian (tight)": Line("output, Gaussian (tight)", "#0072B2", "v"),
    "objective, Gaussian (paper)": Line("objective, Gaussian (paper)", "#CC79A7", "s", "--"),
    "objective, Gaussian (tight)": Line("objective, Gaussian (tight)", "#D55E00", "s"),
    "samples (tight)": Line("samples (tight)", "#009E73", "o"),
    "samples (paper)": Line("samples (paper)", "#009E73", "o", "--"),
    "free": Line("free", "#0072B2", "o"),
    "in the orthant": Line("projected onto the positive orthant", "#D55E00", "o"),
    "ε = 1": Line("drawn each round, ε = 1", "#0072B2", "o"),
    "ε = 10": Line("drawn each round, ε = 10", "#D55E00", "o"),
    "ε = 1, drawn rarely": Line("drawn rarely, ε = 1", "#0072B2", "s", "--"),
    "ε = 10, drawn rarely": Line("drawn rarely, ε = 10", "#D55E00", "s", "--"),
    "counters, ε = 1": Line("counters, ε = 1", "#56B4E9", "v", "-."),
    "counters, ε = 10": Line("counters, ε = 10", "#E69F00", "v", "-."),
    "no privacy": Line("no privacy", "#000000", "o"),
    "any action": Line("any action", "#7F7F7F", ""),
}
_WIDTH = 90
"""The letters of a title on one line of two panels."""
_LEAST = 0.01
"""The least that is drawn of audits."""
_SPARE = ("#009E73", "#7F7F7F", "#0072B2", "#D55E00", "#CC79A7", "#E69F00")


def draw(x_label: str, y_label: str, title: str, curves: Sequence[Curve], path: Path) -> None:
    """A panel each on common axes; bars reach two standard errors. What is no accuracy is on a logarithm too."""
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    with mpl.rc_context({"backend": "agg", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        canvas, axes = plt.subplots(
            1, len(panels), sharey=True, squeeze=False, layout="constrained", figsize=(4.6 * max(len(panels), 1.5), 4.9)
        )
        for axis, panel in zip(axes[0], panels, strict=True):
            for place, curve in enumerate(curve for curve in curves if curve.panel == panel):
                _draw_curve(axis, curve, LINES.get(curve.name, Line(curve.name, _SPARE[place % len(_SPARE)], "o")))
            axis.set_xscale("log")
            axis.set_yscale("linear" if y_label.startswith("accuracy") else "log")
            axis.set_xlabel(x_label)
            axis.set_title(panel, fontsize=10, loc="left")
            axis.grid(color="0.9", linewidth=0.8)
        canvas.suptitle(textwrap.fill(title, _WIDTH), fontsize=12, x=0.01, ha="left")
        canvas.supylabel(y_label, fontsize=10)
        named = {name: one for axis in axes[0] for one, name in zip(*axis.get_legend_handles_labels(), strict=True)}
        canvas.legend(list(named.values()), list(named), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
        canvas.savefig(path, dpi=150)
        plt.close(canvas)


def draw_audits(names: Sequence[str], title: str, curves: Sequence[Curve], path: Path) -> None:
    """Lines of the number of draws over n; and a bar an audit, all of the last curve: what is above 1 falls short."""
    *lines, audited = curves
    with mpl.rc_context({"backend": "agg", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        canvas, (left, right) = plt.subplots(1, 2, layout="constrained", figsize=(10.4, 4.9))
        for curve, colour in zip(lines, _SPARE, strict=False):
            _draw_curve(left, curve, Line(curve.name, colour, "o"))
        left.axhline(1, color="0.3", linewidth=1.0)
        left.set_xscale("log")
        left.set_yscale("log")
        left.set_xlabel("examples n")
        left.set_ylabel("draws m; line: one draw")
        left.legend(frameon=False, fontsize=9)
        ratios = [audited.mean(place) for place in sorted(audited.runs)]
        right.set_yscale("log")
        right.bar(range(len(ratios)), ratios, color="#0072B2", width=0.6)
        for place, ratio in enumerate(ratios):
            words = f"{ratio:.3g}" if ratio else "below\n1e-300"
            right.annotate(words, (place, max(ratio, _LEAST)), (0, 3), textcoords="offset points", ha="center")
        right.axhline(1, color="#D55E00", linewidth=1.3)
        right.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=9)
        right.set_ylim(_LEAST, 1e3)
        right.set_ylabel("exact delta / promised delta; line: as promised")
        for axis in (left, right):
            axis.grid(axis="y", color="0.9", linewidth=0.8)
            axis.set_axisbelow(True)
        canvas.suptitle(title, fontsize=12, x=0.01, ha="left")
        canvas.savefig(path, dpi=150)
        plt.close(canvas)


def _draw_curve(axis: Axes, curve: Curve, line: Line) -> None:
    """A line with its bars, and dotted its bound."""
    points = sorted(curve.runs)
    bars = [TWO_ERRORS * curve.sd(x) / sqrt(len(curve.runs[x])) for x in points]
    axis.errorbar(
        points, [curve.mean(x) for x in points], bars, label=line.label, color=line.colour, marker=line.marker,
        linestyle=line.dash, markersize=4.5, linewidth=1.3, elinewidth=0.7, capsize=2,
    )  # fmt: skip
    if curve.bound is not None:
        axis.plot(points, [curve.bound[x] for x in points], ":", color=line.colour, linewidth=1.0)
