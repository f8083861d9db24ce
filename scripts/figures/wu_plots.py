"""How Wu et al.'s figures are drawn: percentile bands, a surface, log-log slopes with fitted lines, boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from parley.common.arrays import FloatArray

Kind = Literal["bands", "surface", "slopes", "boxes"]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
"""Of the Okabe-Ito palette."""
ABOVE = 5.0
"""Noise dominates where psi is so many times its floor."""
LIGHT = "yellow is low, blue is high, by logarithms"
"""What the colours of a surface are."""
LEAST = 1e-8
"""Logarithms begin here: psi of a run may come out a rounding error below 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A named line: x (m,) and psi (m, runs).

    ``room`` (m,) tells where the projection has room for the noise, ``floor`` (m,) what psi is with hardly any noise.
    """

    name: str
    x: FloatArray
    psi: FloatArray
    room: npt.NDArray[np.bool_]
    floor: FloatArray

    @property
    def mean(self) -> FloatArray:
        """The mean of psi over the runs, (m,)."""
        return np.asarray(self.psi.mean(axis=1))

    @property
    def median(self) -> FloatArray:
        """The median of psi over the runs, (m,)."""
        return np.asarray(np.median(self.psi, axis=1))

    @property
    def noisy(self) -> npt.NDArray[np.bool_]:
        """Where noise dominates, (m,): psi is far above its floor, and the projection does not hold it down."""
        return np.asarray((self.mean > ABOVE * self.floor) & self.room)

    def steps(self) -> FloatArray:
        """The slope of log mean psi over log x between neighbours where noise dominates, (their number,)."""
        both = self.noisy[1:] & self.noisy[:-1]
        return np.asarray((np.diff(np.log(self.mean)) / np.diff(np.log(self.x)))[both])

    def fit(self) -> tuple[float, float] | None:
        """The slope and the intercept of log mean psi over log x where noise dominates; None without two points."""
        if self.noisy.sum() < 2:  # noqa: PLR2004 -- two points make a line
            return None
        slope, intercept = np.polyfit(np.log(self.x[self.noisy]), np.log(self.mean[self.noisy]), 1)
        return float(slope), float(intercept)


def two_digits(value: float) -> str:
    """A number in two digits, without a power of ten where it is large."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004 -- it has two digits


@contextmanager
def canvas(title: str, path: Path) -> Iterator[Axes]:
    """Yield the axes of one panel, which is saved at the end."""
    with mpl.rc_context({"backend": "agg", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
        figure.suptitle(title, fontsize=11, x=0.01, ha="left")
        axes.set_ylabel("relative fitness ψ")
        axes.set_axisbelow(True)
        yield axes
        figure.savefig(path, dpi=150)
        plt.close(figure)


def draw_bands(x_label: str, title: str, series: Sequence[Series], path: Path) -> None:
    """The median, and bands that hold half of the runs and nine tenths of them."""
    with canvas(title, path) as axes:
        for one, colour in zip(series, COLOURS, strict=False):
            p5, p25, p50, p75, p95 = np.maximum(np.percentile(one.psi, [5, 25, 50, 75, 95], axis=1), LEAST)
            axes.fill_between(one.x, p5, p95, color=colour, alpha=0.15, linewidth=0)
            axes.fill_between(one.x, p25, p75, color=colour, alpha=0.3, linewidth=0)
            axes.plot(one.x, p50, color=colour, label=one.name)
        axes.set(xlabel=x_label, yscale="log")
        axes.grid(axis="y", color="0.9")
        axes.legend(frameon=False, title="median, 25-75 % and 5-95 %")


def draw_slopes(x_label: str, title: str, series: Sequence[Series], path: Path) -> None:
    """The mean and the middle nine tenths of the runs: hollow where noise does not dominate, fitted elsewhere."""
    with canvas(title, path) as axes:
        for one, colour in zip(series, COLOURS, strict=False):
            low, high = np.maximum(np.percentile(one.psi, [5, 95], axis=1), LEAST)
            axes.vlines(one.x, low, high, color=colour, alpha=0.5)
            axes.plot(one.x, one.mean, "o", color=colour, markersize=5, markerfacecolor="white", linestyle="none")
            axes.plot(one.x[one.noisy], one.mean[one.noisy], "o", color=colour, markersize=5, linestyle="none")
            if fitted := one.fit():
                slope, intercept = fitted
                along = one.x[one.noisy]
                label = f"{one.name}: slope {slope:.2f}"
                axes.plot(along, np.exp(intercept) * along**slope, color=colour, linestyle="--", label=label)
        axes.set(xlabel=x_label, xscale="log", yscale="log")
        axes.grid(color="0.92")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, title="mean and 5-95 %; fitted where noise dominates")


def draw_surface(x_label: str, title: str, series: Sequence[Series], path: Path) -> None:
    """The median as colour over epsilon and n, with its value in each field."""
    with canvas(title, path) as axes:
        _colours(axes, np.array([one.median for one in series]))
        axes.set_xticks(range(len(series[0].x)), [f"{x:g}" for x in series[0].x])
        axes.set_yticks(range(len(series)), [f"{int(one.name):,}" for one in series])
        axes.set(xlabel=x_label, ylabel="n, examples of all owners")
        axes.set_title(f"median ψ; {LIGHT}", fontsize=9, loc="left")


def _colours(axes: Axes, grid: FloatArray) -> None:
    """A grid (rows, columns) as colours, the first row lowest, with its values."""
    logarithms = np.log10(np.maximum(grid, LEAST))
    axes.imshow(logarithms, origin="lower", aspect="auto", cmap="cividis_r")
    for (row, column), value in np.ndenumerate(grid):
        colour = "white" if logarithms[row, column] > logarithms.mean() else "black"
        axes.text(column, row, two_digits(value), ha="center", va="center", color=colour, fontsize=8)


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """A panel: its title, and a grid (rows, columns) with what stands at its rows and columns."""

    title: str
    grid: FloatArray
    rows: Sequence[str]
    columns: Sequence[str]


def draw_surfaces(title: str, labels: tuple[str, str], surfaces: Sequence[Surface], path: Path) -> None:
    """Panels two abreast, each with its own colours; ``labels`` are those of columns and of rows."""
    with mpl.rc_context({"backend": "agg", "font.size": 9}):
        rows = (len(surfaces) + 1) // 2
        figure, every = plt.subplots(rows, 2, figsize=(9.6, 3.6 * rows), layout="constrained", squeeze=False)
        figure.suptitle(f"{title}\n{LIGHT}", fontsize=11, x=0.01, ha="left")
        for axes, surface in zip(every.flat, surfaces, strict=False):
            _colours(axes, surface.grid)
            axes.set_xticks(range(len(surface.columns)), surface.columns)
            axes.set_yticks(range(len(surface.rows)), surface.rows)
            axes.set(xlabel=labels[0], ylabel=labels[1])
            axes.set_title(surface.title, fontsize=9, loc="left")
        figure.savefig(path, dpi=150)
        plt.close(figure)


def draw_boxes(x_label: str, title: str, series: Sequence[Series], path: Path) -> None:
    """A box that holds half of each series' runs, whiskers that hold nine tenths."""
    with canvas(title, path) as axes:
        axes.boxplot([np.maximum(one.psi[0], LEAST) for one in series], whis=(5, 95), showfliers=False, widths=0.5)
        axes.set_xticks(range(1, len(series) + 1), [one.name.replace("; ", "\n") for one in series], fontsize=8)
        axes.set(xlabel=x_label, yscale="log")
        axes.set_title("line: median; box: 25-75 % of the runs; whiskers: 5-95 %", fontsize=9, loc="left")
        axes.grid(axis="y", color="0.9")


DRAW: dict[Kind, Callable[[str, str, Sequence[Series], Path], None]] = {
    "bands": draw_bands,
    "slopes": draw_slopes,
    "surface": draw_surface,
    "boxes": draw_boxes,
}
