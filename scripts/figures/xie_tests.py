"""When a statement of Xie's thesis about curves holds: criteria of ours, of runs compared one by one, along all x.

*Surely* is three standard errors of the runs' differences. A curve *rises* if the mean at some x is above that at an
earlier one with a t-test's chance below 1 % over all pairs of the curve, so that long curves get no more false alarms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy import stats

from parley.common.arrays import FloatArray
from scripts.figures.curves import Curve
from scripts.figures.frame import standard_error

SURE = 3.0
FALSE_ALARM = 0.01
HARDLY = 0.02
"""Error rates that a stable curve may move."""
SAME = 0.005
"""Error rates by which two curves that are about the same may differ."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether something holds, and in what numbers."""

    holds: bool
    words: str


def together(*findings: Finding) -> Finding:
    """Whether all hold, in the words of all."""
    return Finding(all(one.holds for one in findings), "; ".join(one.words for one in findings))


def sure(differences: FloatArray) -> bool:
    """Whether the mean of independent differences is above 0 by three of its standard errors."""
    return float(differences.mean()) > SURE * standard_error(differences)


def between(curve: Curve, least: float = -np.inf, most: float = np.inf) -> Curve:
    """A part of a curve."""
    return replace(curve, runs={x: runs for x, runs in curve.runs.items() if least <= x <= most})


def falls(curve: Curve) -> Finding:
    """Whether the last mean is surely below the first one, and the curve rises nowhere."""
    first, last = _ends(curve)
    rise = rises(curve)
    words = f"{curve.name} {curve.mean(first):.4f} → {curve.mean(last):.4f}"
    if rise:
        low, high = rise
        words += f", rises from {curve.mean(low):.4f} at {low:g} to {curve.mean(high):.4f} at {high:g}"
    return Finding(rise is None and sure(curve.runs[first] - curve.runs[last]), words)


def rises(curve: Curve) -> tuple[float, float] | None:
    """Between which two x the curve rises most surely; None if nowhere beyond chance."""
    pairs = list(combinations(sorted(curve.runs), 2))
    height, pair = max((_height(curve.runs[high] - curve.runs[low]), (low, high)) for low, high in pairs)
    freedom = len(curve.runs[pair[0]]) - 1
    return pair if stats.t.sf(height, freedom) * len(pairs) < FALSE_ALARM else None


def stable(curve: Curve) -> Finding:
    """Whether no mean is .02 or more, and two standard errors, away from the first one."""
    first, _ = _ends(curve)
    moved = [
        x for x, runs in curve.runs.items()
        if abs(curve.mean(x) - curve.mean(first)) >= HARDLY and abs(_height(runs - curve.runs[first])) >= 2  # noqa: PLR2004
    ]  # fmt: skip
    means = [curve.mean(x) for x in curve.runs]
    return Finding(not moved, f"{curve.name} from {min(means):.4f} to {max(means):.4f}")


def above(worse: Curve, better: Curve) -> Finding:
    """Whether one curve's error is surely larger on average over x, and surely smaller nowhere."""
    apart = {x: worse.runs[x] - better.runs[x] for x in worse.runs}
    mean = np.mean(list(apart.values()), axis=0)
    larger, smaller = (sum(sure(sign * difference) for difference in apart.values()) for sign in (1, -1))
    words = f"{worse.name} less {better.name}: {mean.mean():.5f} ± {standard_error(mean):.5f}, surely above 0 at "
    words += f"{larger} of {len(apart)}" + (f", surely below at {smaller}" if smaller else "")
    return Finding(sure(mean) and not smaller, words)


def no_worse(one: Curve, other: Curve) -> Finding:
    """Whether one curve's error is surely above the other's nowhere."""
    worse = [x for x in one.runs if sure(one.runs[x] - other.runs[x])]
    mean = np.mean([one.runs[x] - other.runs[x] for x in one.runs], axis=0)
    words = f"{one.name} less {other.name}: {mean.mean():.5f} ± {standard_error(mean):.5f}, surely above it at "
    return Finding(not worse, f"{words}{len(worse)} of {len(one.runs)}")


def about_same(one: Curve, other: Curve) -> Finding:
    """Whether the means differ by less than .005 at every x."""
    most = max(abs(one.mean(x) - other.mean(x)) for x in one.runs)
    return Finding(most < SAME, f"{one.name} and {other.name} differ by at most {most:.4f}")


def change(curve: Curve) -> FloatArray:
    """By how much the error falls from the first x to the last one, run by run."""
    first, last = _ends(curve)
    return curve.runs[first] - curve.runs[last]


def falls_less(less: Curve, more: Curve) -> Finding:
    """Whether one curve surely falls less than another."""
    words = f"{less.name} falls by {change(less).mean():.3f}, {more.name} by {change(more).mean():.3f}"
    return Finding(sure(change(more) - change(less)), words)


Lines = dict[str, Curve]
Condition = Callable[[Lines], Finding]


def panels(curves: Sequence[Curve]) -> dict[str, Lines]:
    """The curves of each panel, by their names."""
    return {
        panel: {curve.name: curve for curve in curves if curve.panel == panel}
        for panel in dict.fromkeys(curve.panel for curve in curves)
    }


def _height(differences: FloatArray) -> float:
    """How many standard errors the mean lies above 0; of differences that are all the same, infinitely many or 0."""
    error = standard_error(differences)
    mean = float(differences.mean())
    return mean / error if error > 0 else float(np.sign(mean)) * np.inf if mean else 0.0


def _ends(curve: Curve) -> tuple[float, float]:
    return min(curve.runs), max(curve.runs)
