"""Lines of runs: what figures that are no accuracies by `run_simulation` read their points into, and write."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parley.common.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A line of a panel: at each x, of several runs, the accuracy, or (``bound`` above it) the excess risk."""

    panel: str
    name: str
    runs: Mapping[float, FloatArray]
    bound: Mapping[float, float] | None = None

    def mean(self, x: float) -> float:
        """Return the mean of the runs at x."""
        return float(self.runs[x].mean())

    def sd(self, x: float) -> float:
        """Return the standard deviation of the runs at x; 0 for one run."""
        return float(self.runs[x].std(ddof=1)) if len(self.runs[x]) > 1 else 0.0


def write(x: str, curves: Sequence[Curve], path: Path) -> None:
    """The figure's numbers as CSV: one line a point."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["panel", "line", x, "runs", "mean", "sd", "bound"])
        for curve in curves:
            for at, runs in sorted(curve.runs.items()):
                bound = f"{curve.bound[at]:.6g}" if curve.bound else ""
                writer.writerow([curve.panel, curve.name, f"{at:g}", len(runs), f"{curve.mean(at):.6g}",
                                 f"{curve.sd(at):.6g}", bound])  # fmt: skip
