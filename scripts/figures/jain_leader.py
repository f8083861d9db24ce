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
from scripts.figures.frame import Figure, Sweep, Verdict
from scripts.figures.jain import PAPER
from scripts.figures.jain_leader_runs import ADVERSARIES, NO_PRIVACY, UNIFORM, WAYS, counters, regrets
from scripts.figures.jain_plots import draw
from scripts.figures.point import Point

ACTIONS = (10, 1_000, 100_000)
ROUNDS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
EPSILONS = (1.0, 10.0)
LEADERS = [f"ε = {epsilon:g}" for epsilon in EPSILONS]
RARELY = [f"{name}{ending}" for ending in WAYS if ending for name in LEADERS]
_SLOPE, _EXPONENT, _NEAR, _QUARTER = 0.05, 0.1, 1.1, 4


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
    """Bounds, slopes over T where they are less than half of the most that can be lost, exponents of log p, rivals."""
    by = {(curve.panel, curve.name): curve for curve in curves}
    panels = [f"p = {actions:,}" for actions in ACTIONS]
    bounded = [curve for curve in curves if curve.bound]
    shares = [float(curve.runs[t].max()) / curve.bound[t] for curve in bounded if curve.bound for t in ROUNDS]
    yield Verdict("expected regret is within its bound", max(shares) <= 1, f"at most {max(shares):.3f} of it")
    for name in (*LEADERS, NO_PRIVACY):
        slopes = [_slope(by[panel, name]) for panel in panels]
        holds = all(abs(value - 0.5) <= _SLOPE for value in slopes)
        yield Verdict(
            f"{name}: regret grows as √T, slope .5 ± .05 for each p", holds,
            ", ".join(f"{value:.3f}" for value in slopes), "√T",
        )  # fmt: skip
    for name in RARELY:
        slopes = [_slope(by[panel, name]) for panel in panels]
        yield Verdict(
            f"{name}: regret grows no faster than √T, slope at most .55 for each p", max(slopes) <= 0.5 + _SLOPE,
            ", ".join(f"{value:.3f}" for value in slopes), "√T",
        )  # fmt: skip
    logs = np.log(np.log(ACTIONS))
    for name in (*LEADERS, *RARELY, NO_PRIVACY):
        last = [by[panel, name].mean(ROUNDS[-1]) for panel in panels]
        exponent = float(np.polyfit(logs, np.log(last), 1)[0])
        evidence = f"exponent of log p {exponent:.2f} at T = 100,000"
        yield Verdict(
            f"{name}: regret grows as √(log p), exponent .5 ± .1", abs(exponent - 0.5) <= _EXPONENT, evidence,
            "√(T log p log(1/δ)) / ε",
        )  # fmt: skip
        if name in LEADERS:
            yield Verdict(
                f"{name}: it grows as log p, as privacy sets λ: exponent 1 ± .1", abs(exponent - 1) <= _EXPONENT,
                evidence,
            )  # fmt: skip
    roots = [_bound(by[panel, RARELY[-1]]) / _bound(by[panel, NO_PRIVACY]) for panel in panels]
    yield Verdict(
        f"{RARELY[-1]}: its bound at T = 100,000 is at most 1.1 × √(2 T log p), that of no privacy",
        max(roots) <= _NEAR,
        ", ".join(f"{root:.3f} ×" for root in roots),
    )
    gains = [by[panel, LEADERS[0]].mean(ROUNDS[-1]) / by[panel, RARELY[0]].mean(ROUNDS[-1]) for panel in panels]
    yield Verdict(
        "ε = 1: a leader that draws rarely regrets less than a quarter of one that draws each round, at T = 100,000",
        min(gains) > _QUARTER,
        ", ".join(f"1/{gain:.1f}" for gain in gains),
    )
    for epsilon, name in zip(EPSILONS * 2, LEADERS + RARELY, strict=True):
        for panel in panels[1:]:
            at = [t for t in ROUNDS if by[panel, name].mean(t) < by[panel, counters(epsilon)].mean(t)]
            yield Verdict(
                f"{name}, {panel}: the leader regrets less than counters of each action, at any T", at == list(ROUNDS),
                f"at T = {', '.join(f'{t:,}' for t in at) or 'none'}", "counters pay √p",
            )  # fmt: skip
    gains = [by[panel, UNIFORM].mean(ROUNDS[-1]) / by[panel, LEADERS[0]].mean(ROUNDS[-1]) for panel in panels]
    yield Verdict(
        "ε = 1: the leader regrets less than half of any action, at T = 100,000", min(gains) > 2,  # noqa: PLR2004
        ", ".join(f"1/{gain:.1f}" for gain in gains),
    )  # fmt: skip


def _bound(curve: Curve) -> float:
    """Return a curve's bound at the largest number of rounds."""
    return (curve.bound or {})[ROUNDS[-1]]


def _slope(curve: Curve) -> float:
    """Of log regret over log T, where the bound is at most T: half of the most that can be lost."""
    assert curve.bound is not None  # noqa: S101 -- those that are judged have one
    xs = [t for t in ROUNDS if curve.bound[t] <= t]
    return float(np.polyfit(np.log(xs), np.log([curve.mean(t) for t in xs]), 1)[0])


FIGURES = (
    Figure(PAPER, "jain_regret", "Regret of private leaders, δ = 1e-6, the worst of three adversaries",
           over_rounds(5), over_rounds(2), read, partial(write, "T"),
           partial(draw, "rounds T", "expected regret; dotted: its bound"), judge),
)  # fmt: skip
