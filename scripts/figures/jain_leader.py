"""Jain & Thakurta's private leader: its regret over rounds and numbers of actions, beside its bound and others'.

Drawn is the largest expected regret of three adversaries' (`scripts.figures.jain_leader_runs`), in units of the largest
cost, dotted the proven bound. The paper has regret grow as the root of T log p. That is so of the lambda of the least
regret; privacy asks for one that is larger and knows no p, with which regret is lambda log p: it grows as log p.

*Drawn rarely* is of Asi, Feldman, Koren & Talwar 2023, as costs here depend on no action: that lambda grows as T^(1/3)
alone, so that the root of T log p is what is left over many rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from scripts.figures.curves import Curve, write
from scripts.figures.frame import Figure, Ruling, Sweep, Verdict, power
from scripts.figures.jain import PAPER, below_bound
from scripts.figures.jain_leader_runs import ADVERSARIES, WAYS, counters, regrets
from scripts.figures.jain_plots import draw
from scripts.figures.point import Point

ACTIONS = (10, 1_000, 100_000)
ROUNDS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
EPSILONS = (1.0, 10.0)
LEADERS = [f"ε = {epsilon:g}" for epsilon in EPSILONS]
RARELY = [f"{name}{ending}" for ending in WAYS if ending for name in LEADERS]
_HALF, _SLOPE, _EXPONENT, _QUARTER = 0.5, 0.05, 0.1, 4


def over_rounds(runs: int) -> Sweep:
    """A point for each adversary, number of actions, number of rounds, and run."""
    points = {
        (adversary, actions, rounds, run): Point.of(
            regrets, about_seconds=actions / 5e4 + rounds * (1e-4 if adversary == "coins" else 1e-6),
            adversary=adversary, actions=actions, rounds=rounds, epsilons=EPSILONS, seed=run,
        )
        for adversary in ADVERSARIES for actions in ACTIONS for rounds in ROUNDS for run in range(runs)
    }  # fmt: skip
    return Sweep(points, str(runs))


def read(results: Mapping[Any, Any]) -> list[Curve]:
    """A panel a number of actions, a line a method: the regret against the worst adversary."""
    runs = list(dict.fromkeys(run for *_, run in results))
    names = [name for name in next(iter(results.values())) if not name.startswith("bound of ")]

    def worst(name: str, actions: int, rounds: int) -> list[float]:
        return [max(results[adversary, actions, rounds, run][name] for adversary in ADVERSARIES) for run in runs]

    def bound(name: str, actions: int) -> dict[float, float] | None:
        of = {float(rounds): results["coins", actions, rounds, runs[0]] for rounds in ROUNDS}
        key = f"bound of {name}"
        return {rounds: costs[key] for rounds, costs in of.items()} if key in of[ROUNDS[0]] else None

    return [
        Curve(f"p = {actions:,}", name, {rounds: np.array(worst(name, actions, rounds)) for rounds in ROUNDS},
              bound(name, actions))
        for actions in ACTIONS for name in names
    ]  # fmt: skip


def judge(curves: Sequence[Curve]) -> Iterator[Verdict]:
    """Powers of T where the proven bound is at most T, of log p, and of p for counters."""
    by = {(curve.panel, curve.name): curve for curve in curves}
    panels = [f"p = {actions:,}" for actions in ACTIONS]
    for name in LEADERS:
        rounds = {panel: _bounded(by[panel, name]) for panel in panels}
        slopes = {panel: power(xs, map(by[panel, name].mean, xs)) for panel, xs in rounds.items()}
        evidence = ", ".join(f"{panel}: T^{slopes[panel]:.2f} of {len(rounds[panel])} points" for panel in panels)
        yield Verdict("jain.root-of-rounds", name, Ruling.of(max(slopes.values()) <= _HALF + _SLOPE), evidence)
    for name in LEADERS:
        last = [by[panel, name].mean(ROUNDS[-1]) for panel in panels]
        exponent = power(np.log(ACTIONS), last)
        evidence = f"exponent of log p {exponent:.2f}, from p = 10 to 100,000 at T = 100,000"
        yield Verdict("jain.log-of-actions", name, Ruling.of(exponent <= 1 + _EXPONENT), evidence)
        yield Verdict("jain.root-of-log", name, Ruling.of(exponent <= _HALF + _EXPONENT), evidence)
    paid = [by[panel, counters(EPSILONS[-1])].mean(ROUNDS[-1]) for panel in panels]
    exponent = power(ACTIONS, paid)
    case, evidence = "ε = 10, T = 100,000", f"p^{exponent:.2f}"
    yield Verdict("jain.counters", case, Ruling.of(abs(exponent - _HALF) <= _EXPONENT), evidence)
    yield Verdict("jain.others", case, Ruling.UNTOLD, f"counters of ours, in place of these methods: {evidence}")
    gains = [by[panel, LEADERS[0]].mean(ROUNDS[-1]) / by[panel, RARELY[0]].mean(ROUNDS[-1]) for panel in panels]
    evidence = f"{', '.join(f'{1 / gain:.3f}' for gain in gains)} times as much at p = 10, 1,000 and 100,000"
    yield Verdict("jain.rarely", "ε = 1, T = 100,000", Ruling.of(min(gains) > _QUARTER), evidence)
    yield below_bound("leaders", curves)


def _bounded(curve: Curve) -> list[int]:
    """Return each T where the proven bound is at most T: half of the most that can be lost."""
    assert curve.bound is not None  # noqa: S101 -- those that are judged have one
    return [t for t in ROUNDS if curve.bound[t] <= t]


FIGURES = (
    Figure(PAPER, "jain_regret", "Regret of private leaders, δ = 1e-6, the worst of three adversaries",
           over_rounds(5), over_rounds(1), read, partial(write, "T"),
           partial(draw, "rounds T", "expected regret; dotted: its bound"), judge),
)  # fmt: skip
