"""The frame of all figures: points to measure, a table and a plot of the results, and claims that they confirm or not.

A paper is a module of `PAPERS` that has its ``FIGURES``. A figure lists its points (`scripts.figures.point`) under
labels of its own, once in full and once reduced, and reads what came out into a table, which it writes, draws, judges:

    def sweep(repeat: int) -> Sweep:
        return Sweep({epsilon: Point.of(accuracies, "adult", epsilon=epsilon, repeat=repeat, seed=1)
                      for epsilon in EPSILONS}, f"{repeat}")

    FIGURES = (Figure(PAPER, "xie_fig1", "Accuracy over ε", sweep(100), sweep(10), read, write, draw, judge),)

where ``accuracies`` is in a module without drawing, ``read`` takes {label: what ``accuracies`` returned}, and the other
three take what ``read`` returns. ``python -m scripts.figures`` then measures, draws, judges and reports it. A figure of
accuracies by `run_simulation` has all that ready in `scripts.figures.panels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from parley.common.arrays import FloatArray
from scripts.figures.point import Point

PAPERS = (
    "rajkumar", "rajkumar_theorem51", "wu", "wu_joining", "wu_theorems", "hamm", "xie", "jain", "jain_simplex",
    "jain_leader",
)  # fmt: skip
TWO_ERRORS = 2.0
"""Error bars reach two standard errors of the mean either way, about 95 %."""
Table = TypeVar("Table")


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper: its module's name, how it is cited, its title and where it appeared, and in words its runs' seeds."""

    name: str
    citation: str
    title: str
    seeds: str


@dataclass(frozen=True, slots=True)
class Line:
    """How a line is drawn: its name in the legend, a colour of the Okabe-Ito palette, a marker, a dash."""

    label: str
    colour: str
    marker: str
    dash: str = "-"


class Ruling(StrEnum):
    """What runs say of a claim."""

    HOLDS = "holds"
    FAILS = "DOES NOT HOLD"
    ELSEWHERE = "holds at another size"
    VACUOUS = "vacuous as stated"
    OPEN = "the text leaves it open"
    UNTOLD = "cannot be told here"

    @classmethod
    def of(cls, holds: bool) -> Ruling:  # noqa: FBT001
        """Return that it holds, or that it does not."""
        return cls.HOLDS if holds else cls.FAILS


@dataclass(frozen=True, slots=True)
class Verdict:
    """What runs say of one case of a claim, an entry of `scripts.figures.claims` by its key, and the evidence.

    ``ours`` is what in this case is ours, a data set or a size; ``cause`` and ``why`` are this case's where the claim's
    are others.
    """

    claim: str
    case: str
    ruling: Ruling
    evidence: str
    ours: str = ""
    cause: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is measured, under labels of the figure's choice, and how many runs each is, in words for the page."""

    points: Mapping[Any, Point]
    runs: str


@dataclass(frozen=True, slots=True)
class Figure(Generic[Table]):
    """A figure, or a table: ``name`` is the stem of its files; ``quick`` has labels of ``full``, and fewer runs.

    ``draw`` takes the title, the table and the path of a PNG; ``write`` the table and the path of a CSV.
    """

    paper: Paper
    name: str
    title: str
    full: Sweep
    quick: Sweep
    read: Callable[[Mapping[Any, Any]], Table]
    write: Callable[[Table, Path], None]
    draw: Callable[[str, Table, Path], None]
    judge: Callable[[Table], Iterable[Verdict]]

    def redraw(self, results: Mapping[Any, Any], out: Path) -> tuple[Verdict, ...]:
        """Write and draw what came out under each label, and judge it."""
        table = self.read(results)
        self.write(table, out / f"{self.name}.csv")
        self.draw(self.title, table, out / f"{self.name}.png")
        return tuple(self.judge(table))


def all_figures() -> tuple[Figure[Any], ...]:
    """Return the figures of all papers, in their order."""
    return tuple(figure for paper in PAPERS for figure in import_module(f"scripts.figures.{paper}").FIGURES)


def standard_error(values: Sequence[float] | FloatArray) -> float:
    """The standard error of the mean of independent values."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def power(x: Iterable[float], y: Iterable[float]) -> float:
    """Return the exponent p of y ~ x^p: the slope of log y over log x, by least squares."""
    return float(np.polyfit(np.log(list(x)), np.log(list(y)), 1)[0])


def errors(values: FloatArray) -> float:
    """How many of its standard errors the mean of independent values lies above 0."""
    return float(values.mean()) / standard_error(values)
