"""When a statement of Xie's thesis about curves holds: criteria of ours, of runs compared one by one, along all x.

*Surely* is by more than three standard errors of the runs' differences, and of several comparisons with a t-test's
chance below 1 % over all of them (Bonferroni), so that long curves get no more false alarms. A curve *rises* if the
mean at some x is surely above that at an earlier one, of all pairs.
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
LITTLE = 0.05
"""Error rates by which a curve may fall that decreases little."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether something holds, and in what numbers."""

    holds: bool
    words: str


def together(*findings: Finding) -> Finding:
    """Whether all hold, in the words of all."""
    return Finding(all(one.holds for one in findings), "; ".join(one.words for one in findings))


def sure(differences: FloatArray, comparisons: int = 1) -> bool:
    """Whether the mean of independent differences is above 0 surely, one of so many comparisons."""
    height = _height(differences)
    return height > SURE and bool(stats.t.sf(height, len(differences) - 1) * comparisons < FALSE_ALARM)


def between(curve: Curve, least: float = -np.inf, most: float = np.inf) -> Curve:
    """A part of a curve."""
    return replace(curve, runs={x: runs for x, runs in curve.runs.items() if least <= x <= most})


def falls(curve: Curve) -> Finding:
    """Whether the last mean is surely below the first one, and the curve rises nowhere."""
    first, last = _ends(curve)
    rise = rises(curve)
    error = standard_error(change(curve))
    words = f"{curve.name} {curve.mean(first):.4f} → {curve.mean(last):.4f} (± {error:.4f})"
    if rise:
        low, high = rise
        words += f", rises from {curve.mean(low):.4f} at {low:g} to {curve.mean(high):.4f} at {high:g}"
    return Finding(rise is None and sure(curve.runs[first] - curve.runs[last]), words)


def rises(curve: Curve) -> tuple[float, float] | None:
    """Between which two x the curve rises most surely; None if nowhere beyond chance."""
    pairs = list(combinations(sorted(curve.runs), 2))
    low, high = max(pairs, key=lambda pair: _height(curve.runs[pair[1]] - curve.runs[pair[0]]))
    return (low, high) if sure(curve.runs[high] - curve.runs[low], len(pairs)) else None


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
    """Whether one curve's mean error is larger at every x, and on average over x surely."""
    apart = {x: worse.runs[x] - better.runs[x] for x in worse.runs}
    average = np.mean(list(apart.values()), axis=0)
    turned = [x for x, differences in apart.items() if differences.mean() <= 0]
    larger = sum(sure(differences, len(apart)) for differences in apart.values())
    words = f"{_apart(worse, better, average)}, above 0 beyond chance at {larger} of {len(apart)} points"
    if turned:
        words += f", not above 0 at {len(turned)}, {min(turned):g} the first"
    return Finding(sure(average) and not turned, words)


def no_worse(one: Curve, other: Curve) -> Finding:
    """Whether one curve's error is surely above the other's nowhere."""
    apart = {x: one.runs[x] - other.runs[x] for x in one.runs}
    larger = sum(sure(differences, len(apart)) for differences in apart.values())
    average = np.mean(list(apart.values()), axis=0)
    words = f"{_apart(one, other, average)}, above 0 beyond chance at {larger} of {len(apart)} points"
    return Finding(not larger, words)


def about_same(one: Curve, other: Curve) -> Finding:
    """Whether the means differ by less than .005 at every x."""
    most = max(abs(one.mean(x) - other.mean(x)) for x in one.runs)
    return Finding(most < SAME, f"{one.name} and {other.name} differ by at most {most:.4f}")


def change(curve: Curve) -> FloatArray:
    """By how much the error falls from the first x to the last one, run by run."""
    first, last = _ends(curve)
    return curve.runs[first] - curve.runs[last]


def falls_little(curve: Curve) -> Finding:
    """Whether the last mean is less than .05 from the first one."""
    apart = change(curve)
    words = f"{curve.name} falls by {apart.mean():.4f} ± {standard_error(apart):.4f}"
    return Finding(abs(float(apart.mean())) < LITTLE, words)


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


def _apart(one: Curve, other: Curve, differences: FloatArray) -> str:
    return f"{one.name} less {other.name}: {differences.mean():.5f} ± {standard_error(differences):.5f}"


def _height(differences: FloatArray) -> float:
    """How many standard errors the mean lies above 0; of differences that are all the same, infinitely many or 0."""
    error = standard_error(differences)
    mean = float(differences.mean())
    return mean / error if error > 0 else float(np.sign(mean)) * np.inf if mean else 0.0


def _ends(curve: Curve) -> tuple[float, float]:
    return min(curve.runs), max(curve.runs)
