"""When a statement of Xie's thesis about curves holds: criteria of ours, of runs compared one by one, along all x.

*Surely* is by more than three standard errors of the runs' differences, and of several comparisons with a t-test's
chance below 1 % over all of them (Bonferroni), so that long curves get no more false alarms. A curve *rises* if the
mean at some x is surely above that at an earlier one, of all pairs. What differs in the claimed direction, of curves
at most x, but not surely, and nowhere surely in the other, is *untold*: so few runs neither show nor refute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy import stats

from parley.common.arrays import FloatArray
from scripts.figures.curves import Curve
from scripts.figures.frame import Ruling, standard_error

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
    """Whether something holds, in what numbers, and if it does not, whether that is because runs are too few."""

    holds: bool
    words: str
    untold: bool = False

    @property
    def ruling(self) -> Ruling:
        """That it holds, that it does not, or that these runs cannot tell."""
        return Ruling.UNTOLD if self.untold and not self.holds else Ruling.of(self.holds)


def together(*findings: Finding) -> Finding:
    """Whether all hold, in the words of all; untold if each one holds or is untold."""
    untold = all(one.holds or one.untold for one in findings)
    return Finding(all(one.holds for one in findings), "; ".join(one.words for one in findings), untold)


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
    down = change(curve)
    words = f"{curve.name} {curve.mean(first):.4f} → {curve.mean(last):.4f} (± {size(standard_error(down))})"
    if rise:
        low, high = rise
        words += f", rises from {curve.mean(low):.4f} at {low:g} to {curve.mean(high):.4f} at {high:g}"
    return Finding(rise is None and sure(down), words, rise is None and float(down.mean()) > 0)


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
    refuted = _surely_above_0([-differences for differences in apart.values()])
    words = _more(worse, better, list(apart.values()))
    if turned:
        words += f"; first reversed at x = {min(turned):g}, beyond chance at {refuted or 'none'}"
    untold = not refuted and float(average.mean()) > 0 and len(turned) < len(apart) / 2
    return Finding(sure(average) and not turned, f"{words}; mean difference {_mean(average)}", untold)


def told_apart(worse: Curve, better: Curve) -> Finding:
    """Whether one curve's error is surely larger at its first x."""
    x, *_ = worse.runs
    differences = worse.runs[x] - better.runs[x]
    holds, points = sure(differences), f"{100 * differences.mean():.1g} percentage points"
    verb = "are told apart" if holds else "are not told apart"
    words = f"{worse.name} less {better.name}: {points}, which {verb} by {len(differences)} paired runs"
    return Finding(holds, words, float(differences.mean()) > 0)


def no_worse(one: Curve, other: Curve) -> Finding:
    """Whether one curve's error is surely above the other's nowhere."""
    apart = [one.runs[x] - other.runs[x] for x in one.runs]
    words = f"{_more(one, other, apart)}; mean difference {_mean(np.mean(apart, axis=0))}"
    return Finding(not _surely_above_0(apart), words)


def about_same(one: Curve, other: Curve) -> Finding:
    """Whether the means differ by less than .005 at every x."""
    most = max(abs(one.mean(x) - other.mean(x)) for x in one.runs)
    return Finding(most < SAME, f"{one.name} and {other.name} differ by at most {most:.4f}")


def change(curve: Curve) -> FloatArray:
    """By how much the error falls from the first x to the last one, run by run."""
    first, last = _ends(curve)
    return curve.runs[first] - curve.runs[last]


def falls_little(curve: Curve) -> Finding:
    """Whether the last mean is less than .05 from the first one; untold if it is not, and more is not sure."""
    apart = change(curve)
    words = f"{curve.name} falls by {apart.mean():.4f} ± {size(standard_error(apart))}"
    return Finding(abs(float(apart.mean())) < LITTLE, words, not sure(np.sign(apart.mean()) * apart - LITTLE))


def falls_less(less: Curve, more: Curve) -> Finding:
    """Whether one curve surely falls less than another."""
    apart = change(more) - change(less)
    return Finding(sure(apart), f"{_moves(less)}, {_moves(more)}", float(apart.mean()) > 0)


def size(value: float, digits: int = 4) -> str:
    """A size in so many digits behind the point; of what they do not show, that it is smaller."""
    least = 10.0**-digits
    return f"{value:.{digits}f}" if value >= least else f"under {least:.{digits}f}"


Lines = dict[str, Curve]
Condition = Callable[[Lines], Finding]


def panels(curves: Sequence[Curve]) -> dict[str, Lines]:
    """The curves of each panel, by their names."""
    return {
        panel: {curve.name: curve for curve in curves if curve.panel == panel}
        for panel in dict.fromkeys(curve.panel for curve in curves)
    }


def _more(one: Curve, other: Curve, apart: Sequence[FloatArray]) -> str:
    """At how many points one curve errs more."""
    more, surely = sum(differences.mean() > 0 for differences in apart), _surely_above_0(apart)
    words = f"{one.name} errs more than {other.name} at {more} of {len(apart)} points"
    return f"{words}, beyond chance at {surely or 'none'}" if more else words


def _surely_above_0(apart: Sequence[FloatArray]) -> int:
    """How many of the means are surely above 0."""
    return sum(sure(differences, len(apart)) for differences in apart)


def _mean(differences: FloatArray) -> str:
    """The mean and its standard error, or that it is next to nothing."""
    mean = float(differences.mean())
    if (length := size(abs(mean))).startswith("under"):
        return length
    return f"{'-' if mean < 0 else ''}{length} ± {size(standard_error(differences))}"


def _moves(curve: Curve) -> str:
    """By how much a curve falls, or rises."""
    moved = f"{change(curve).mean():.3f}"
    if not float(moved):
        return f"{curve.name} does not move"
    return f"{curve.name} {'rises' if moved.startswith('-') else 'falls'} by {moved.removeprefix('-')}"


def _height(differences: FloatArray) -> float:
    """How many standard errors the mean lies above 0; of differences that are all the same, infinitely many or 0."""
    error = standard_error(differences)
    mean = float(differences.mean())
    return mean / error if error > 0 else float(np.sign(mean)) * np.inf if mean else 0.0


def _ends(curve: Curve) -> tuple[float, float]:
    return min(curve.runs), max(curve.runs)
