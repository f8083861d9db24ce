"""The sweep and the claims of Rajkumar & Agarwal's two figures, which differ in their data alone.

"A Differentially Private Stochastic Gradient Descent Algorithm for Multiparty Classification", AISTATS 2012 (PMLR
22:933-941). What its abstract claims of them: the averaging of local classifiers (LA; Pathak, Rane & Raj 2010) "is
sensitive to the number of parties and the relative fractions of data owned by the different parties"; the guarantees of
PSGD "do not depend on the number of parties or the relative sizes of the individual data sets".

The sweep is ours; `scripts.figures.rajkumar_splits` has the paper's splits. K = 5, 10, 15 parties; the k-th of K owns
a share proportional to k^skew, from even (0) to steeper than 1 : 2 : ... : K (1.5); epsilon = .1, .2; delta = .05. All
parties add their noise in shares, as under secure sum.

What comes out: LA's noise goes as 1 / (K n_min). With even shares K n_min = N for all K, and more parties do LA no
harm; with uneven ones K n_min falls as K grows, so skew costs LA the more, the more parties there are. That is tested
at a mild skew, because a steep one takes LA down to chance for all K. PSGD's answers add up to the same sum however
the data is dealt, so it is flat in skew to the last bit.

The paper's three methods (GOP and PSGD as published, LA) share one regularisation, near the best for each of them; the
tight lines have theirs chosen from public facts. Promises differ: GOP's curator sees all raw data; PSGD's claim covers
the final model alone; dp_gd's covers all that the learner sees. The CSV has both epsilons of each point.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from parley.learner.experiments.simulation import SimulationSettings
from scripts.figures.frame import Figure, Line, Paper, Verdict, errors
from scripts.figures.panels import Panels, Place, draw, fall, sweep, write

PAPER = Paper("rajkumar", "Rajkumar & Agarwal, AISTATS 2012: private stochastic gradient descent among several parties")

PARTIES = (5, 10, 15)
SKEWS = (0.0, 0.5, 1.0, 1.5)
EPSILONS = (0.1, 0.2)
DELTA = 0.05
REPEAT, REPEAT_LOCAL_AVERAGE, QUICK_REPEAT = 100, 400, 10
MILD = 0.5
EQUAL = 0.05
"""Mean accuracies that differ by less pass as equal; their standard errors are up to .02."""
SURE = 2.0
"""A difference of so many standard errors is one."""

LINES = {
    "pooled": Line("not private, pooled data", "#000000", "", ":"),
    "gop_tight": Line("GOP, tight noise (trusted curator)", "#E69F00", "s", "--"),
    "dp_gd": Line("dp_gd, tight noise (no curator)", "#0072B2", "o"),
    "gop": Line("GOP as published (trusted curator)", "#CC79A7", "D", "--"),
    "psgd": Line("PSGD as published (no curator)", "#009E73", "^"),
    "local_average": Line("LA as published", "#D55E00", "v"),
}
_PAPER = {"regularization": 0.1}
_ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "pooled": ("pooled", {}),
    "gop_tight": ("gop", {"calibration": "tight"}),
    "dp_gd": ("dp_gd", {}),
    "gop": ("gop", _PAPER | {"calibration": "paper"}),
    "psgd": ("psgd", _PAPER | {"calibration": "paper"}),
    "local_average": ("local_average", _PAPER),
}


def simulations(data: str) -> dict[Place, SimulationSettings]:
    """A panel for each epsilon (row) and number of parties (column), a line for each method."""
    return {
        Place(f"ε = {epsilon:g}", f"K = {parties}", line, skew): settings_of(data, line, parties, skew, epsilon)
        for epsilon in EPSILONS
        for parties in PARTIES
        for line in LINES
        for skew in SKEWS
    }


def grid(name: str, data: str, title: str) -> Figure[Panels]:
    """Return a figure of accuracy by skew."""
    every, x_label = simulations(data), "skew (party k owns a share $\\propto k^{\\mathrm{skew}}$)"
    return Figure(
        PAPER, name, title, sweep(every), sweep(every, QUICK_REPEAT), Panels.of, write, partial(draw, LINES, x_label),
        judge,
    )  # fmt: skip


def settings_of(data: str, line: str, parties: int, skew: float, epsilon: float) -> SimulationSettings:
    """Return the settings of the simulation for a line at a point."""
    algorithm, parameters = _ALGORITHMS[line]
    return SimulationSettings(
        data, algorithm=algorithm, parameters=parameters, parties=parties, skew=skew, epsilon=epsilon, delta=DELTA,
        repeat=REPEAT_LOCAL_AVERAGE if line == "local_average" else REPEAT, seed=12,
    )  # fmt: skip


def judge(panels: Panels) -> Iterator[Verdict]:
    """The paper's claims, and ours of the tight noise, at each epsilon."""
    for epsilon in EPSILONS:
        yield from judge_at(panels, epsilon)


def judge_at(panels: Panels, epsilon: float) -> Iterator[Verdict]:
    """Judge the claims at one epsilon."""
    for parties in PARTIES:
        yield _suffers_from_skew(panels, epsilon, parties)
    yield _suffers_from_parties(panels, epsilon)
    yield _flat(panels, epsilon)
    yield _like_gop(panels, epsilon)
    yield _tight(panels, epsilon)


def _suffers_from_skew(panels: Panels, epsilon: float, parties: int) -> Verdict:
    """LA falls from even shares to 1 : 2 : ... : K."""
    even, skewed = (panels.outcome("local_average", epsilon=epsilon, parties=parties, skew=skew) for skew in (0.0, 1.0))
    certainty = errors(fall(even, skewed))
    evidence = f"{even.mean:.3f} → {skewed.mean:.3f}, {certainty:.1f} standard errors"
    return Verdict(f"ε = {epsilon:g}: LA falls with skew at K = {parties}", certainty > SURE, evidence)


def _suffers_from_parties(panels: Panels, epsilon: float) -> Verdict:
    """A mild skew costs LA more with 15 parties than with 5."""
    few, many = (
        fall(*(panels.outcome("local_average", epsilon=epsilon, parties=parties, skew=skew) for skew in (0.0, MILD)))
        for parties in (PARTIES[0], PARTIES[-1])
    )
    certainty = errors(many - few)
    evidence = f"skew {MILD:g} costs {few.mean():.3f} → {many.mean():.3f}, {certainty:.1f} standard errors"
    return Verdict(f"ε = {epsilon:g}: skew costs LA more as K grows from 5 to 15", certainty > SURE, evidence)


def _flat(panels: Panels, epsilon: float) -> Verdict:
    """Judge whether PSGD's mean accuracy is the same everywhere."""
    means = [panels.outcome("psgd", epsilon=epsilon, parties=k, skew=s).mean for k in PARTIES for s in SKEWS]
    evidence = f"{min(means):.3f} to {max(means):.3f}"
    return Verdict(f"ε = {epsilon:g}: PSGD is flat in K and skew", max(means) - min(means) < EQUAL, evidence)


def _like_gop(panels: Panels, epsilon: float) -> Verdict:
    """Judge whether PSGD's mean accuracy equals that of GOP."""
    psgd, gop = (panels.outcome(line, epsilon=epsilon, parties=10, skew=0.0).mean for line in ("psgd", "gop"))
    evidence = f"PSGD {psgd:.3f}, GOP {gop:.3f}"
    return Verdict(f"ε = {epsilon:g}: PSGD does as well as GOP, without a curator", gop - psgd < EQUAL, evidence)


def _tight(panels: Panels, epsilon: float) -> Verdict:
    """Judge whether dp_gd is far above PSGD."""
    tight, paper = (panels.outcome(line, epsilon=epsilon, parties=10, skew=0.0) for line in ("dp_gd", "psgd"))
    evidence = f"dp_gd {tight.mean:.3f}, PSGD {paper.mean:.3f}"
    claim = f"ε = {epsilon:g}: dp_gd beats PSGD and covers the whole transcript"
    return Verdict(claim, errors(fall(tight, paper)) > SURE, evidence)


FIGURES = (
    grid("rajkumar_fig1", "simulated", "Simulated data, N = 1,000, d = 10, δ = 0.05"),
    grid("rajkumar_fig2", "wdbc", "Breast cancer (Wisconsin diagnostic), N = 427, d = 31, δ = 0.05"),
)
