"""Figures of Xie's thesis on privacy in distributed learning: one site's models, and those of many sites joined.

Error rates on test rows, of runs that each deal the rows again. The thesis's text was not at hand: what its figures
vary was, and a few of its numbers, which ``xie_numbers`` puts to the test; its grids, and all repeats but 360 and 200,
are ours (`scripts.figures.xie_grids`). Figures that vary one thing are drawn as panels of one. Lines without a word are
of the thesis's noise, of pure epsilon; *tight* is Gaussian, (epsilon, 1e-5), the least that a proof supports.

The published error rates of output and objective perturbation are held against one site with the rows of all ten; how
many the thesis's has is not known. Bands about them are ours: a fifth either way, and .01 about .03. *Sure* is three
standard errors of the runs' differences. What falls with m0 is asked of lines with an aggregator only. Claims marked
*ours* are no claims of the thesis that we know of.

How the thesis prepared its digits is not known either, and its number for output perturbation depends on it: rows of
norm 1 come near it, those of the other figures do not. Twelve preparations were tried (with and without the mean, 90 or
95 % of the variance, either norm), and these were chosen by the errors that are reported. ``xie_numbers`` had 40 runs
first, which could not tell objective perturbation from output perturbation, then 100, which could not tell *full* from
*average*; it has 200 now.

The feature method makes each view of a row 1 long, where the thesis divides all by the longest view of the aggregator's
own rows, which reveals something of them. Divided by the norm of all models, as they were here before, *full* had
errors of .44 at epsilon = .1 (.41 with the PCA of all rows); with the thesis's divisor .36 (.35), in 25 runs beside
those.

Table 6.1 is left out: what its cells are was not known. ``xie_theorems`` holds measured squared distances against
bounds that are derived here (`scripts.figures.xie_runs.distances_of`), for what the three theorems bound.

Digits and connections are looked for in the folder that $PARLEY_DATA names, and there Covertype too, which the user
may add (`scripts.figures.xie_data`); without them nothing is drawn, and that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from parley.common.arrays import FloatArray
from scripts.figures import xie_grids as grids
from scripts.figures.curves import Curve, write
from scripts.figures.frame import Figure, Paper, Verdict, standard_error
from scripts.figures.xie_grids import DIGITS, Grid, varying
from scripts.figures.xie_plots import TIGHT, draw_histograms, draw_lines

PAPER = Paper("xie", "Xie's thesis: local, global and distributed private models")
SURE = 3.0
_ERROR = "error rate on test rows, mean ± 2 standard errors"
Band = tuple[float, float, str]
Judge = Callable[[Sequence[Curve]], Iterable[Verdict]]


def sure(difference: FloatArray) -> bool:
    """Whether the mean of independent differences is above 0 by three of its standard errors."""
    return float(difference.mean()) > SURE * standard_error(difference)


def named(curves: Sequence[Curve]) -> dict[str, dict[str, Curve]]:
    """The curves of each panel, by their names."""
    return {
        panel: {curve.name: curve for curve in curves if curve.panel == panel}
        for panel in dict.fromkeys(curve.panel for curve in curves)
    }


def in_band(claim: str, curve: Curve, x: float, band: Band) -> Verdict:
    """Whether a mean lies in a band: from, to, and what the thesis has."""
    least, most, published = band
    return Verdict(f"{curve.panel}: {claim}", least <= curve.mean(x) <= most, _figure_at(curve, x), published)


def in_order(claim: str, x: float, curves: Sequence[Curve], published: str = "") -> Verdict:
    """Whether each curve's error at x is surely less than the next one's, run by run."""
    holds = all(sure(worse.runs[x] - better.runs[x]) for better, worse in pairwise(curves))
    evidence = ", ".join(f"{curve.name} {_figure_at(curve, x)}" for curve in curves)
    return Verdict(f"{curves[0].panel}: {claim}", holds, evidence, published)


def falls(curve: Curve, subject: str) -> Verdict:
    """Whether the error at the largest x is surely less than at the smallest."""
    first, last = min(curve.runs), max(curve.runs)
    holds = sure(curve.runs[first] - curve.runs[last])
    claim = f"{curve.panel}: the error of {curve.name} falls with {subject} (ours)"
    return Verdict(claim, holds, f"{_figure_at(curve, first)} → {_figure_at(curve, last)}")


def judge_numbers(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """The thesis's numbers on its digits, and their order on all data."""
    for panel, lines in named(curves).items():
        if panel in DIGITS:
            yield from _judge_published(lines)
        single, joined = (lines["objective"], lines["output"]), [lines[name] for name in _JOINED]
        yield in_order("ε = .1, one site, logistic: objective < output", 0.1, single, "objective < output")
        yield in_order("ε = .1, joined: public < full < average", 0.1, joined, "public < full < average")


_JOINED = ("feature, public", "feature, full", "average")


def _judge_published(lines: Mapping[str, Curve]) -> Iterable[Verdict]:
    yield in_band("no noise: error .02 to .04", lines["non-private"], 0.1, (0.02, 0.04, "~ .03"))
    for name, about in (("objective", 0.14), ("output", 0.31)):
        claim = f"ε = .1, one site, logistic: {name} within a fifth of {about}"
        yield in_band(claim, lines[name], 0.1, (0.8 * about, 1.2 * about, f"~ {about}"))
    for name, least, most in (("average", 0.34, 0.4), ("feature, public", 0.1, 0.16), ("feature, full", 0.22, 0.32)):
        claim, published = f"ε = .1, Huber, 10 sites: {name} from {least:g} to {most:g}", f"{least:g} to {most:g}"
        yield in_band(claim, lines[name], 0.1, (least, most, published))
    for name in _JOINED:
        yield in_band(f"ε = 1, Huber, 10 sites: {name} at most .06", lines[name], 1.0, (0.0, 0.06, "≤ .06"))


def judge_falls(subject: str, untouched: tuple[str, ...] = ("non-private",)) -> Judge:
    """Each line of the thesis's noise gets better along x, but those that x has no part in."""

    def judge(curves: Sequence[Curve]) -> Iterable[Verdict]:
        return (falls(curve, subject) for curve in curves if not curve.name.endswith((*untouched, TIGHT)))

    return judge


def judge_lambda(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """Neither the largest Lambda is the best, nor the smallest."""
    for curve in curves:
        if curve.name == "non-private":
            continue
        best = min(curve.runs, key=curve.mean)
        ends = [curve.runs[end] - curve.runs[best] for end in (min(curve.runs), max(curve.runs))]
        claim = f"{curve.panel}: a Λ between the ends is best for {curve.name} (ours; the best is drawn from the runs)"
        yield Verdict(claim, all(map(sure, ends)), f"{_figure_at(curve, best)} at Λ = {best:g}")


def judge_hessians(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """The right bound of the Hessian does better than the thesis's."""
    for lines in named(curves).values():
        right, thesis = lines["generalized"], lines["thesis's Hessian bound"]
        yield in_order("ε = .1: c does better than the thesis's bound on the Hessian (ours)", 0.1, (right, thesis))


def judge_own(subject: str) -> Judge:
    """A site that brings less harms the average more than it harms the feature method."""

    def judge(curves: Sequence[Curve]) -> Iterable[Verdict]:
        for panel, lines in named(curves).items():
            harm = {name: curve.runs[min(curve.runs)] - curve.runs[max(curve.runs)] for name, curve in lines.items()}
            for name in ("feature, public", "feature, full"):
                claim = f"{panel}: a site of less {subject} harms the average more than {name} (ours)"
                evidence = f"by {harm['average'].mean():.3f} and {harm[name].mean():.3f}"
                yield Verdict(claim, sure(harm["average"] - harm[name]), evidence)

    return judge


def judge_spread(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """The feature method's runs lie lower and closer together."""
    for lines in named(curves).values():
        average, feature = lines["average"], lines["feature, public"]
        (x,) = average.runs
        yield in_order(f"ε = {x:g}: public < average", x, (feature, average))
        claim = f"{average.panel}: ε = {x:g}: the public feature method's runs deviate less (ours)"
        yield Verdict(claim, feature.sd(x) < average.sd(x), f"sd {feature.sd(x):.3f} and {average.sd(x):.3f}")


def judge_everybody(subject: str) -> Judge:
    """Joined models lie between the global one and a site's own."""

    def judge(curves: Sequence[Curve]) -> Iterable[Verdict]:
        for lines in named(curves).values():
            for x in (min(lines["global"].runs), max(lines["global"].runs)):
                order = [lines[name] for name in ("global", "feature, public", "average", "local")]
                yield in_order(f"{subject} = {x:g}: global < public < average < local (ours)", x, order)

    return judge


def judge_bounds(curves: Sequence[Curve]) -> Iterable[Verdict]:
    """The mean squared distance is within its bound, with room for the runs' error, and falls as the noise does."""
    for curve in curves:
        bound = curve.bound or {}
        within = all(not sure(runs - bound[x]) for x, runs in curve.runs.items())
        ratios = [bound[x] / curve.mean(x) for x in curve.runs]
        evidence = f"the bound is {min(ratios):.3g} to {max(ratios):.3g} times the mean"
        yield Verdict(f"{curve.panel}: no mean squared distance is surely above its bound", within, evidence)


def _figure_at(curve: Curve, x: float) -> str:
    return f"{curve.mean(x):.3f} ± {standard_error(curve.runs[x]):.3f}"


def _figure(
    name: str, title: str, grid: Grid, judge: Judge, draw: Callable[[str, Sequence[Curve], Path], None] | None = None
) -> Figure[list[Curve]]:
    """A figure of error rates over what varies, unless it is drawn otherwise."""
    return Figure(
        PAPER, f"xie_{name}", title, grid.sweep(grid.repeat), grid.sweep(grid.few), grid.read,
        partial(write, grid.label), draw or partial(draw_lines, grid.label, _ERROR), judge,
    )  # fmt: skip


def _families() -> Iterable[Figure[list[Curve]]]:
    """Three privacy cases, and all models side by side, over each of what varies."""
    for field, (label, xs) in AXES.items():
        along = {"x": varying(field), "xs": xs, "label": label}
        cases, everybody = (replace(grid, **along) for grid in (grids.cases, grids.everybody))  # type: ignore[arg-type]
        yield _figure(f"fig5_10_{field}", f"Figures 5.10-5.30: three privacy cases over {label}", cases,
                      judge_falls(label, UNTOUCHED.get(field, ())))  # fmt: skip
        if field != "aggregator":
            yield _figure(f"fig5_31_{field}", f"Figures 5.31-5.41: local, global and joined models over {label}",
                          everybody, judge_everybody(label.split(",")[0]))  # fmt: skip


AXES: Mapping[str, tuple[str, Sequence[float]]] = {
    "rows": ("m, rows of a site", (50, 100, 200, 400, 789)),
    "aggregator": ("m0, rows of the aggregator", (50, 100, 200, 400, 789)),
    "sites": ("N, sites", (2, 4, 8, 12)),
    "epsilon": ("ε", grids.EPSILONS),
}
"""What the two families vary, and where; the rest is fixed at ten sites of 789 rows, and epsilon = .1."""
UNTOUCHED = {"aggregator": ("average", "average, noise once")}
"""Lines that what is varied has no part in."""
_OWN = "one site's own"
FIGURES = (
    _figure("numbers", "The thesis's numbers, Λ = .01", grids.numbers, judge_numbers),
    _figure("covertype", "The same of Covertype, Λ = .01", grids.forests, judge_numbers),
    _figure("fig3_1", "Figures 3.1-3.3: one site of 7,890 rows over ε", grids.over_epsilon, judge_falls("ε")),
    _figure("fig3_4", "Figure 3.4: one site over n, ε = .1", grids.over_rows, judge_falls("n")),
    _figure("fig3_5", "Figure 3.5: one site of 7,890 rows over Λ, ε = .1", grids.over_lambda, judge_lambda),
    _figure("fig3_6", "Figure 3.6: both bounds of the Hessian", grids.hessians, judge_hessians),
    _figure("fig5_2", f"Figures 5.2-5.5: {_OWN} ε', among nine of ε = 1", grids.own_epsilon, judge_own("ε'")),
    _figure("fig5_4", f"Figures 5.2-5.5: {_OWN} m', among nine of 789, ε = 1", grids.own_rows, judge_own("m'")),
    _figure("fig5_6", "Figures 5.6-5.9: 360 runs, ε = .1", grids.histograms, judge_spread, draw_histograms),
    _figure("fig5_8", "Figures 5.6-5.9: 200 runs, ε = 1", grids.few_histograms, judge_spread, draw_histograms),
    *_families(),
    _figure("theorems", "Squared distance to the best model of all rows, and derived bounds", grids.bounds,
            judge_bounds, partial(draw_lines, "ε", "squared distance")),
)  # fmt: skip
