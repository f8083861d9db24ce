"""The figure of private leaders: what it measures is what leaders do, and its claims can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parley.common.online import Leader
from parley.common.privacy.mechanisms.leader import Adversary
from parley.common.privacy.noise import SeededNoise
from scripts.figures.claims.table import claims
from scripts.figures.curves import Curve
from scripts.figures.frame import Ruling
from scripts.figures.jain_leader import ACTIONS, FIGURES, ROUNDS, judge
from scripts.figures.jain_leader_runs import (
    ADVERSARIES,
    DELTA,
    NO_PRIVACY,
    UNIFORM,
    WAYS,
    coins,
    counter_scale,
    counters,
    regrets,
    turning,
)

(FIGURE,) = FIGURES
HOLDS, FAILS = Ruling.HOLDS, Ruling.FAILS


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize(("ending", "against"), WAYS.items())
@pytest.mark.slow
def test_expected_regret_is_that_of_leaders_who_draw(adversary: str, ending: str, against: Adversary) -> None:
    actions, rounds = 4, 60
    world = ADVERSARIES[adversary](actions, rounds, 3)
    group = np.repeat(np.arange(len(world.sizes)), world.sizes)
    costs = np.concatenate([block for block, _ in world.blocks(rounds)])[:, group]
    best, found = costs.sum(axis=0).min(), []
    for seed in range(150):
        leader = Leader(actions, rounds, 1.0, 10.0, DELTA, noise=SeededNoise([2, seed]), adversary=against)
        paid = 0.0
        for cost in costs:
            paid += cost[leader.act()]
            leader.observe(cost)
        found.append(paid - best)
    expected = regrets(adversary, actions, rounds, [10.0], 3)[f"ε = 10{ending}"]
    assert abs(np.mean(found) - expected) < 5 * np.std(found) / len(found) ** 0.5


@pytest.mark.slow
def test_blocks_are_the_rounds_in_order() -> None:
    for world in (turning(5, 3000, 0), coins(2000, 3000, 0)):
        assert world.sizes.sum() in {5, 2000}
        blocks = list(world.blocks(3000))
        costs, before = (np.concatenate(each) for each in zip(*blocks, strict=True))
        assert len(costs) == 3000
        assert (before == np.cumsum(costs, axis=0) - costs).all()
    assert len(blocks) > 1


def test_counters_pay_for_each_action_and_level() -> None:
    assert counter_scale(400, 100, 1.0) == pytest.approx(2 * counter_scale(100, 100, 1.0))
    assert counter_scale(10, 127, 1.0) < counter_scale(10, 128, 1.0)
    few = regrets("one good", 3, 300, [1000.0], 1)
    assert few[counters(1000.0)] < 0.1 * few[UNIFORM]
    assert few[NO_PRIVACY] <= few[f"bound of {NO_PRIVACY}"]


def made_up(exponent: float = 1.0) -> list[Curve]:
    """Curves as if of a leader whose regret grows as a power of log p."""
    curves = []
    for actions in ACTIONS:
        size = np.log(actions) ** exponent / 2
        for name, factor in (
            ("ε = 1", 4.0),
            ("ε = 10", 2.0),
            (NO_PRIVACY, 1.0),
            ("ε = 1, drawn rarely", 0.9),
            ("ε = 10, drawn rarely", 1.05),
        ):
            runs = {float(t): np.full(2, factor * size * t**0.5) for t in ROUNDS}
            bound = {t: 1.1 * float(of[0]) for t, of in runs.items()}
            curves.append(Curve(f"p = {actions:,}", name, runs, bound))
        worse = {float(t): np.full(2, (actions * t) ** 0.5) for t in ROUNDS}
        curves += [Curve(f"p = {actions:,}", name, worse) for name in (UNIFORM, counters(1.0), counters(10.0))]
    return curves


def ruled(curves: list[Curve]) -> dict[str, list[Ruling]]:
    """What is ruled of each claim, in order; every claim is an entry of the table."""
    rulings: dict[str, list[Ruling]] = {}
    for verdict in judge(curves):
        assert verdict.claim in claims()
        rulings.setdefault(verdict.claim.removeprefix("jain."), []).append(verdict.ruling)
    return rulings


def times(curves: list[Curve], factors: Callable[[str, float], float]) -> list[Curve]:
    """The curves with regret so many times as large, by their names and T."""
    return [replace(curve, runs={t: factors(curve.name, t) * of for t, of in curve.runs.items()}) for curve in curves]


@pytest.mark.slow
def test_claims_hold_or_not_by_the_table(tmp_path: Path) -> None:
    assert ruled(made_up()) == {
        "root-of-rounds": [HOLDS, HOLDS], "log-of-actions": [HOLDS, HOLDS], "root-of-log": [FAILS, FAILS],
        "counters": [HOLDS], "others": [Ruling.UNTOLD], "rarely": [HOLDS], "below-bound": [HOLDS],
    }  # fmt: skip
    assert ruled(made_up(0.5))["root-of-log"] == [HOLDS, HOLDS]
    assert ruled(made_up(1.5))["log-of-actions"] == [FAILS, FAILS]
    steep = ruled(times(made_up(), lambda name, t: t**0.1 if name == "ε = 1" else 1.0))
    assert steep["root-of-rounds"] == [FAILS, HOLDS]
    assert ruled(times(made_up(), lambda name, _: 9.0 if "rarely" in name else 1.0))["rarely"] == [FAILS]
    flat = [replace(curve, runs={t: of * 0 + 1.0 for t, of in curve.runs.items()})
            if curve.name.startswith("counters") else curve for curve in made_up()]  # fmt: skip
    assert ruled(flat)["counters"] == [FAILS]
    assert ruled(flat)["others"] == [Ruling.UNTOLD]
    late = [replace(curve, bound={t: 2.0 * t if t < 10_000 else 1.0 * t for t in ROUNDS}) if curve.bound else curve
            for curve in times(made_up(), lambda _, t: t**-0.4 if t < 10_000 else 1.0)]  # fmt: skip
    verdict = next(each for each in judge(late) if each.claim == "jain.root-of-rounds")
    assert verdict.evidence.startswith("p = 10: T^0.50 of 3 points, ")
    assert ruled(times(made_up(), lambda *_: 1.2))["below-bound"] == [FAILS]
    FIGURE.draw(FIGURE.title, made_up(), tmp_path / "a.png")
    FIGURE.write(made_up(), tmp_path / "a.csv")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_what_is_measured_is_read_by_the_worst_adversary() -> None:
    results = {}
    for label in FIGURE.quick.points:
        adversary, _, rounds, _ = label
        results[label] = {"ε = 1": rounds * (2.0 if adversary == "turning" else 1.0), "bound of ε = 1": 3.0}
    curves = FIGURE.read(results)
    assert [curve.panel for curve in curves] == ["p = 10", "p = 1,000", "p = 100,000"]
    assert curves[0].mean(100) == 200.0
    assert curves[0].bound is not None
    assert curves[0].bound[100] == 3.0
