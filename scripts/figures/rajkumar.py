"""The figures of Rajkumar & Agarwal, on the splits of their paper, and their claims of accuracy.

"A Differentially Private Stochastic Gradient Descent Algorithm for Multiparty Classification", AISTATS 2012 (PMLR
22:933-941). `scripts.figures.rajkumar_theorem51` has what its section 5 proves.

Five parties of given shares, which are even, uneven, and such that one has a hundredth of the data; and 5, 10 and 15
parties whose shares are uniform on the simplex, drawn again in each repetition. All parties add their noise in shares,
as under a secure sum. The simulated points lie in the interior of the ball, under a law that is ours (uniform); the
cancer data are tested on in five folds, so N = 455. Repetitions in the folds of one order share examples: the standard
errors take them for independent.

What comes out: the noise of LA (the average of local classifiers; Pathak, Rane & Raj 2010) goes as 1 / (K n_min). With
even shares K n_min = N for all K, and LA does better than PSGD on the simulated data. Shares uniform on the simplex are
so uneven (the least of five is .04 on average) that they take LA near chance for all K, where it can fall little
further. PSGD's answers add up to the same sum however the data is dealt, so it is the same for all shares.

The paper's three methods (GOP and PSGD as published, LA) share one regularisation, near the best for each of them; the
tight lines have theirs chosen from public facts. Promises differ: GOP's curator sees all raw data; PSGD's claim covers
the final model alone; dp_gd's covers all that the learner sees. The CSV has both epsilons of each point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from parley.learner.experiments.simulation import SimulationSettings
from scripts.figures.frame import Figure, Line, Paper, Ruling, Verdict, errors
from scripts.figures.panels import Outcome, Panels, Place, draw, fall, sweep, write

PAPER = Paper(
    "rajkumar",
    "Rajkumar & Agarwal, AISTATS 2012: private stochastic gradient descent among several parties",
    "“A Differentially Private Stochastic Gradient Descent Algorithm for Multiparty Classification”, PMLR 22:933-941.",
    "12 for accuracies; 51 and 53 for draws of theorems",
)

PARTIES = (5, 10, 15)
EPSILONS = (0.1, 0.2)
DELTA = 0.05
REGULARIZATION = 0.1
FOLDS = 5
REPEAT, REPEAT_LOCAL_AVERAGE, QUICK_REPEAT = 100, 400, 10
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
_PAPER = {"regularization": REGULARIZATION}
_ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "pooled": ("pooled", {}),
    "gop_tight": ("gop", {"calibration": "tight"}),
    "dp_gd": ("dp_gd", {}),
    "gop": ("gop", _PAPER | {"calibration": "paper"}),
    "psgd": ("psgd", _PAPER | {"calibration": "paper"}),
    "local_average": ("local_average", _PAPER | {"calibration": "paper"}),
}


@dataclass(frozen=True, slots=True)
class Deal:
    """How many parties have which shares at each x, and what the shares at each x are called."""

    name: str
    title: str
    x_label: str
    splits: Mapping[int, tuple[int, tuple[float, ...] | Literal["random"]]]
    names: tuple[str, ...]


SHARES = ((0.2, 0.2, 0.2, 0.2, 0.2), (0.1, 0.2, 0.2, 0.25, 0.25), (0.01, 0.29, 0.2, 0.25, 0.25))
GIVEN = Deal(
    "shares",
    "K = 5",
    "split: 1 is even, 2 from .1 to .25, 3 from .01 to .29",
    {place: (len(shares), shares) for place, shares in enumerate(SHARES, start=1)},
    ("K = 5, even shares", "K = 5, shares of .1 to .25", "K = 5, shares of .01 to .29"),
)
RANDOM = Deal(
    "simplex",
    "shares uniform on the simplex",
    "number of parties K",
    {parties: (parties, "random") for parties in PARTIES},
    tuple(f"K = {parties}, shares uniform on the simplex" for parties in PARTIES),
)


@dataclass(frozen=True, slots=True)
class Examples:
    """A data set of the paper: the number of its figure, what it is called, and how it is simulated."""

    number: int
    name: str
    data: str
    folds: int | None = None
    ours: str = ""


BALL = Examples(1, "simulated", "simulated-ball", ours="uniform in the ball")
CANCER = Examples(2, "breast cancer", "wdbc", FOLDS)


def place(deal: Deal, epsilon: float, line: str, x: int) -> Place:
    """Return the place at which a line's point is drawn."""
    return Place(deal.title, f"ε = {epsilon:g}", line, x)


def simulations(examples: Examples, deal: Deal) -> dict[Place, SimulationSettings]:
    """A panel for each epsilon, a line for each method."""
    return {
        place(deal, epsilon, line, x): SimulationSettings(
            examples.data, algorithm=algorithm, parameters=parameters, parties=parties, shares=shares, epsilon=epsilon,
            delta=DELTA, repeat=REPEAT_LOCAL_AVERAGE if line == "local_average" else REPEAT, seed=12,
            folds=examples.folds,
        )
        for epsilon in EPSILONS
        for line, (algorithm, parameters) in _ALGORITHMS.items()
        for x, (parties, shares) in deal.splits.items()
    }  # fmt: skip


def figure(title: str, examples: Examples, deal: Deal) -> Figure[Panels]:
    """Return a figure of accuracy by split."""
    every = simulations(examples, deal)
    return Figure(
        PAPER, f"rajkumar_fig{examples.number}_{deal.name}", title, sweep(every), sweep(every, QUICK_REPEAT),
        Panels.of, write, partial(draw, LINES, deal.x_label), partial(judge, examples, deal),
    )  # fmt: skip


# ── claims ───────────────────────────────────────────────────────────────────

UNTOLD = "PSGD's mean is above LA's, by less than the number of runs, which is ours, can tell"
_Outcomes = Callable[[float, str, int], Outcome]


def judge(examples: Examples, deal: Deal, panels: Panels) -> Iterator[Verdict]:
    """The paper's claims of a data set, and ours of the tight noise."""

    def outcome(epsilon: float, line: str, x: int) -> Outcome:
        return panels.outcomes[place(deal, epsilon, line, x)]

    every = f"{examples.name}, {deal.title}"
    yield from _sensitive(examples, deal, outcome)
    means = {epsilon: [outcome(epsilon, "psgd", x).mean for x in deal.splits] for epsilon in EPSILONS}
    ranges = _each(lambda epsilon: f"{min(means[epsilon]):.3f} to {max(means[epsilon]):.3f}")
    flat = all(max(one) - min(one) < EQUAL for one in means.values())
    yield Verdict("rajkumar.psgd-flat", every, Ruling.of(flat), ranges, examples.ours)
    behind = {
        epsilon: max(outcome(epsilon, "gop", x).mean - outcome(epsilon, "psgd", x).mean for x in deal.splits)
        for epsilon in EPSILONS
    }
    words = _each(lambda epsilon: f"GOP's mean less PSGD's is at most {behind[epsilon]:+.3f}")
    yield Verdict("rajkumar.psgd-gop", every, Ruling.of(max(behind.values()) < EQUAL), words, examples.ours)
    yield from _better_than_average(examples, deal, outcome)
    if deal is GIVEN:
        gains = {e: fall(outcome(e, "dp_gd", 1), outcome(e, "psgd", 1)) for e in EPSILONS}
        words = _each(lambda e: f"dp_gd {outcome(e, 'dp_gd', 1).mean:.3f}, PSGD {outcome(e, 'psgd', 1).mean:.3f}")
        sure = all(errors(gain) > SURE for gain in gains.values())
        yield Verdict("rajkumar.tight", f"{examples.name}, {deal.names[0]}", Ruling.of(sure), words)


def _sensitive(examples: Examples, deal: Deal, outcome: _Outcomes) -> Iterator[Verdict]:
    """LA falls from even shares to uneven ones, and from few parties to many, and rises nowhere between."""
    claim = "rajkumar.la-shares" if deal is GIVEN else "rajkumar.la-parties"
    for epsilon in EPSILONS:
        line = [outcome(epsilon, "local_average", x) for x in deal.splits]
        certainty = errors(fall(line[0], line[-1]))
        rises = any(errors(fall(before, after)) < -SURE for before, after in pairwise(line))
        evidence = f"{' → '.join(f'{one.mean:.3f}' for one in line)}, {certainty:.2f} paired standard errors"
        case = f"{examples.name}, ε = {epsilon:g}"
        ruling = Ruling.FAILS if rises or certainty < -SURE else Ruling.HOLDS if certainty > SURE else Ruling.UNTOLD
        yield Verdict(claim, case, ruling, evidence, examples.ours)


def _better_than_average(examples: Examples, deal: Deal, outcome: _Outcomes) -> Iterator[Verdict]:
    """PSGD is better than LA by more than the runs' error, at each split and both epsilons."""
    for x, name in zip(deal.splits, deal.names, strict=True):
        pairs = {epsilon: (outcome(epsilon, "psgd", x), outcome(epsilon, "local_average", x)) for epsilon in EPSILONS}
        better = all(
            psgd.mean - la.mean > SURE * math.hypot(psgd.standard_error, la.standard_error)
            for psgd, la in pairs.values()
        )
        words = _each(lambda epsilon, pairs=pairs: "PSGD {:.3f}, LA {:.3f}".format(*(o.mean for o in pairs[epsilon])))  # type: ignore[misc]
        untold = not better and all(psgd.mean > la.mean for psgd, la in pairs.values())
        yield Verdict(
            "rajkumar.psgd-la", f"{examples.name}, {name}", Ruling.UNTOLD if untold else Ruling.of(better), words,
            examples.ours, "parley" if untold else "", UNTOLD if untold else "",
        )  # fmt: skip


def _each(words: Callable[[float], str]) -> str:
    return "; ".join(f"ε = {epsilon:g}: {words(epsilon)}" for epsilon in EPSILONS)


FIGURES = (
    *(figure("Simulated data in the ball, N = 1,000, d = 10, δ = 0.05", BALL, deal) for deal in (GIVEN, RANDOM)),
    *(figure("Breast cancer, five folds, N = 455, d = 31, δ = 0.05", CANCER, deal) for deal in (GIVEN, RANDOM)),
)
