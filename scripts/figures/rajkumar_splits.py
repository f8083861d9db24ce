"""Rajkumar & Agarwal's figures on the splits of their paper, beside those of ours in `scripts.figures.rajkumar`.

Five parties of given shares, which are even, uneven, and such that one has a hundredth of the data; and 5, 10 and 15
parties whose shares are uniform on the simplex, drawn again in each repetition. The simulated points lie in the
interior of the ball, under a law that is ours (uniform); the cancer data are tested on in five folds, so N = 455.
Repetitions in the folds of one order share examples: the standard errors take them for independent.

What comes out: shares uniform on the simplex are so uneven (the least of five is .04 on average) that they take LA near
chance for all K, where it can fall little further: on the cancer data at epsilon = .1 no fall can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from parley.learner.experiments.simulation import SimulationSettings
from scripts.figures.frame import Figure, Verdict, errors
from scripts.figures.panels import Outcome, Panels, Place, draw, fall, sweep, write
from scripts.figures.rajkumar import EPSILONS, EQUAL, LINES, PAPER, PARTIES, QUICK_REPEAT, SURE, settings_of

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Deal:
    """How many parties have which shares at each x, and what is said of LA from the first x to the last."""

    name: str
    title: str
    x_label: str
    splits: Mapping[int, tuple[int, tuple[float, ...] | Literal["random"]]]
    harm: str


SHARES = ((0.2, 0.2, 0.2, 0.2, 0.2), (0.1, 0.2, 0.2, 0.25, 0.25), (0.01, 0.29, 0.2, 0.25, 0.25))
GIVEN = Deal(
    "shares",
    "K = 5",
    "split: 1 is even, 2 from .1 to .25, 3 from .01 to .29",
    {place: (len(shares), shares) for place, shares in enumerate(SHARES, start=1)},
    "falls from even shares to .01",
)
RANDOM = Deal(
    "simplex",
    "shares uniform on the simplex",
    "number of parties K",
    {parties: (parties, "random") for parties in PARTIES},
    "falls from 5 parties to 15",
)


def place(deal: Deal, epsilon: float, line: str, x: int) -> Place:
    """Return the place at which a line's point is drawn."""
    return Place(deal.title, f"ε = {epsilon:g}", line, x)


def simulations(data: SimulationSettings, deal: Deal) -> dict[Place, SimulationSettings]:
    """A panel for each epsilon, a line for each method."""
    return {
        place(deal, epsilon, line, x): replace(
            settings_of(data.data, line, parties, 0.0, epsilon), shares=shares, folds=data.folds
        )
        for epsilon in EPSILONS
        for line in LINES
        for x, (parties, shares) in deal.splits.items()
    }


def figure(number: int, title: str, data: SimulationSettings, deal: Deal) -> Figure[Panels]:
    """Return a figure of accuracy by split."""
    every = simulations(data, deal)
    return Figure(
        PAPER, f"rajkumar_fig{number}_{deal.name}", title, sweep(every), sweep(every, QUICK_REPEAT),
        Panels.of, write, partial(draw, LINES, deal.x_label), partial(judge, deal),
    )  # fmt: skip


def judge(deal: Deal, panels: Panels) -> Iterator[Verdict]:
    """The paper's claims at each epsilon, from the first split to the last."""
    for epsilon in EPSILONS:
        for verdict in _judged(deal, partial(_outcome, panels, deal, epsilon)):
            yield replace(verdict, claim=f"ε = {epsilon:g}: {verdict.claim}")


def _outcome(panels: Panels, deal: Deal, epsilon: float, line: str, x: int) -> Outcome:
    return panels.outcomes[place(deal, epsilon, line, x)]


def _judged(deal: Deal, outcome: Callable[[str, int], Outcome]) -> Iterator[Verdict]:
    """Judge the claims at one epsilon."""
    xs = list(deal.splits)
    first, last = (outcome("local_average", x) for x in (xs[0], xs[-1]))
    certainty = errors(fall(first, last))
    evidence = f"{first.mean:.3f} → {last.mean:.3f}, {certainty:.1f} standard errors"
    yield Verdict(f"LA {deal.harm}", certainty > SURE, evidence, "sensitive to the number of parties and the shares")
    means = [outcome("psgd", x).mean for x in xs]
    same = max(means) - min(means) < EQUAL
    yield Verdict("PSGD is the same at all splits", same, f"{min(means):.3f} to {max(means):.3f}", "depends on neither")
    psgd, gop, tight = (outcome(line, xs[-1]) for line in ("psgd", "gop", "dp_gd"))
    evidence = f"PSGD {psgd.mean:.3f}, GOP {gop.mean:.3f}"
    yield Verdict("PSGD does as well as GOP, without a curator", gop.mean - psgd.mean < EQUAL, evidence)
    evidence = f"PSGD {psgd.mean:.3f}, LA {last.mean:.3f}, dp_gd {tight.mean:.3f}"
    surely = psgd.mean - last.mean > SURE * math.hypot(psgd.standard_error, last.standard_error)
    yield Verdict("PSGD beats LA at the last split", surely, evidence)


BALL = SimulationSettings("simulated-ball")
CANCER = SimulationSettings("wdbc", folds=FOLDS)
FIGURES = (
    *(figure(1, "Simulated data in the ball, N = 1,000, d = 10, δ = 0.05", BALL, deal) for deal in (GIVEN, RANDOM)),
    *(figure(2, "Breast cancer, five folds, N = 455, d = 31, δ = 0.05", CANCER, deal) for deal in (GIVEN, RANDOM)),
)
