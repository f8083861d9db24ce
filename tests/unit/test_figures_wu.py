"""Figures of Wu et al.: what is measured, the paper's worked numbers, and that their claims can hold and fail."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt

from scripts.figures import wu, wu_joining, wu_theorems
from scripts.figures.claims.table import claims
from scripts.figures.frame import Figure, Ruling, Sweep, Verdict
from scripts.figures.wu import EPSILONS, RECORDS, SIZES, Plan
from scripts.figures.wu_joining import PRINTED, by_scenario, joining, predictions
from scripts.figures.wu_plots import Series
from scripts.figures.wu_runs import (
    FRAUDS,
    LOANS,
    LOANS_PUBLISHED,
    LOANS_SUBGRADIENT,
    SETTINGS,
    Owners,
    Setting,
    psi_of_averages,
)
from scripts.figures.wu_theorems import AVERAGED, HORIZONS, Theorems
from scripts.utility.finance import reduced

FIGURES: tuple[Figure[Any], ...] = (*wu.FIGURES, *wu_joining.FIGURES, *wu_theorems.FIGURES)


def series(plan: Plan, psi: Callable[[Owners], float], *, floor: float = 0.0) -> list[Series]:
    """What a made-up psi of owners gives on a plan's lines."""
    return [
        Series(
            name,
            np.array(list(line), dtype=np.float64),
            np.array([[psi(owners)] * 3 for owners in line.values()]),
            np.ones(len(line), dtype=np.bool_),
            np.full(len(line), floor),
        )
        for name, line in plan.items()
    ]


def noise(owners: Owners, power: float = 1.0) -> float:
    """The abstract's law, the sum of 1 / epsilon^2 over n^2, or a power of it."""
    return float(1e4 * (sum(epsilon**-2 for epsilon in owners.epsilons) / sum(owners.sizes) ** 2) ** power)


def falling(owners: Owners, psi: float, power: float, largest: int) -> float:
    """What is psi at the largest n, and falls as a power of n."""
    return psi * math.pow(largest / sum(owners.sizes), power)


def rulings(verdicts: Iterable[Verdict]) -> dict[str, Ruling]:
    """The ruling of each claim, by its name."""
    return {verdict.claim.removeprefix("wu."): verdict.ruling for verdict in verdicts}


def test_each_claim_of_a_figure_is_in_the_table() -> None:
    judged = {"wu." + name for name in ("hundredfold", "larger-budget", "falls", "within-90", "inverse-squares",
              "conservative-harms", "forecast-invites", "prediction", "theorem-2", "theorem-3", "remark-2",
              "old-or-new")}  # fmt: skip
    assert judged == {key for key in claims() if key.startswith("wu.")}


def test_a_quick_run_costs_a_tenth_of_a_full_one_and_figures_share_points() -> None:
    def runs(sweeps: Iterable[Sweep]) -> int:
        points = {point for one in sweeps for point in one.points.values()}
        return sum(int(json.loads(point.arguments)["repeat"]) for point in points)

    full, quick = runs(one.full for one in FIGURES), runs(one.quick for one in FIGURES)
    print(f"runs: {full:,} in full, {quick:,} in a quick run")
    assert quick < full / 9
    asked = [point for one in FIGURES for point in one.full.points.values()]
    assert len(set(asked)) < 0.75 * len(asked)


@pytest.mark.parametrize("setting", [LOANS, FRAUDS], ids=lambda setting: setting.name)
class TestLaws:
    def test_squares_hold_and_other_powers_do_not(self, setting: Setting) -> None:
        for plan, x in ((wu.over_budgets(setting), "ε"), (wu.over_sizes(setting), "n")):
            judge = wu.judge_slopes(x)(setting)
            assert rulings(judge(series(plan, noise))) == {"inverse-squares": Ruling.HOLDS}
            assert rulings(judge(series(plan, partial(noise, power=0.5)))) == {"inverse-squares": Ruling.FAILS}
            (untold,) = judge(series(plan, noise, floor=1e9))
            assert untold.ruling is Ruling.UNTOLD, "no points"
            assert untold.cause == "parley"

    def test_a_line_without_two_noisy_points_is_left_out(self, setting: Setting) -> None:
        lines = series(wu.over_sizes(setting), noise)
        lines[1] = replace(lines[1], floor=np.full(len(lines[1].x), 1e9))
        (verdict,) = wu.judge_slopes("n")(setting)(lines)
        assert verdict.ruling is Ruling.HOLDS
        assert verdict.evidence.endswith(f"fewer than two points: {lines[1].name}")

    def test_a_bend_between_the_ends_is_seen(self, setting: Setting) -> None:
        def bent(owners: Owners) -> float:
            return noise(owners) * (2.5 if owners.epsilons[0] == 1.0 else 1.0)

        ruled = wu.judge_slopes("ε")(setting)(series(wu.over_budgets(setting), bent))
        assert rulings(ruled) == {"inverse-squares": Ruling.FAILS}

    def test_a_surface_that_rises_anywhere_does_not_fall(self, setting: Setting) -> None:
        judge, plan = wu.judge_surface(setting), wu.surface(setting)
        assert rulings(judge(series(plan, noise)))["falls"] is Ruling.HOLDS
        middle = SIZES[setting.folder][2] // 3

        def bump(owners: Owners) -> float:
            return noise(owners) * (20 if (owners.sizes[0], owners.epsilons[0]) == (middle, 1.0) else 1)

        assert rulings(judge(series(plan, bump)))["falls"] is Ruling.FAILS

    def test_the_papers_size_is_reached_by_the_law_where_it_holds(self, setting: Setting) -> None:
        judge, plan = wu.judge_surface(setting), wu.surface(setting)
        _, records = RECORDS[setting.folder]
        largest = SIZES[setting.folder][-1]
        shrinks = (largest / records) ** 2
        for psi, floor, power, ruling in (
            (0.1, 0.0, 2.0, Ruling.HOLDS),
            (0.1 / shrinks, 0.0, 2.0, Ruling.ELSEWHERE),
            (0.2 / shrinks, 0.0, 2.0, Ruling.FAILS),
            (0.1 / shrinks, 0.0, 1.0, Ruling.FAILS),
            (0.1 / shrinks, 0.03 / shrinks, 2.0, Ruling.FAILS),
        ):
            measured = partial(falling, psi=psi, power=power, largest=largest)
            (within,) = [v for v in judge(series(plan, measured, floor=floor)) if v.claim == "wu.within-90"]
            assert within.ruling is ruling, (psi, floor, power)
            assert bool(within.why) == (ruling is Ruling.FAILS)
        lawful = partial(falling, psi=0.1 / shrinks, power=2.0, largest=largest)
        held_down = [replace(one, room=~one.room) for one in series(plan, lawful)]
        assert rulings(judge(held_down))["within-90"] is Ruling.FAILS

    def test_only_steps_where_noise_fills_the_set_are_laid_on_it(self, setting: Setting) -> None:
        surface = series(wu.surface(setting), lambda owners: float(sum(owners.sizes)))
        for lines, cause in ((surface, ""), ([replace(one, room=~one.room) for one in surface], "parley")):
            falls, _ = wu.judge_surface(setting)(lines)
            assert (falls.ruling, falls.cause) == (Ruling.FAILS, cause)

    def test_a_conservative_owner_harms_or_does_not(self, setting: Setting) -> None:
        judge, plan = wu.judge_collaborations(setting), wu.collaborations(setting)
        assert set(rulings(judge(series(plan, noise))).values()) == {Ruling.HOLDS}
        ruled = rulings(judge(series(plan, lambda owners: noise(owners) if len(owners.sizes) < 3 else 1e-9)))
        assert ruled["conservative-harms"] is Ruling.FAILS
        ruled = rulings(judge(series(plan, lambda owners: float(len(owners.sizes)))))
        assert ruled["forecast-invites"] is Ruling.FAILS, "it invites who harms"

    def test_the_joining_owners_are_those_of_four_scenarios(self, setting: Setting) -> None:
        surfaces = by_scenario(series(joining(setting), noise))
        assert len(surfaces) == 4
        for first in surfaces.values():
            assert [one.x.tolist() for one in first] == [list(EPSILONS)] * 5
        largest = max(sum(owners.sizes) for line in joining(setting).values() for owners in line.values())
        assert largest <= SIZES[setting.folder][-1]

    def test_the_prediction_is_the_printed_one_and_can_hold_and_fail(self, setting: Setting) -> None:
        plan = joining(setting)
        printed = dict(zip(plan, predictions(setting), strict=True))
        for name, line in plan.items():
            if name.startswith(PRINTED):
                first = int(name.rpartition(" ")[2])
                expected = [math.sqrt(200 + 1 / epsilon**2) / (2_000 + first) for epsilon in line]
                assert printed[name] == pytest.approx(expected)
        for power, ruled, squared in ((1.0, Ruling.FAILS, Ruling.HOLDS), (0.5, Ruling.HOLDS, Ruling.FAILS)):
            verdicts = list(wu_joining.judge(setting, series(plan, partial(noise, power=power))))
            assert [verdict.ruling for verdict in verdicts] == [ruled, ruled, squared]
            assert verdicts[0].cause == ("paper" if ruled is Ruling.FAILS else "")

    def test_the_printed_scenario_is_judged_by_its_own_points(self, setting: Setting) -> None:
        lines = series(joining(setting), noise)
        lines = [replace(one, psi=one.psi**0.5) if one.name.startswith(PRINTED) else one for one in lines]
        printed, others, _ = wu_joining.judge(setting, lines)
        assert (printed.ruling, others.ruling) == (Ruling.HOLDS, Ruling.FAILS)

    def test_a_power_that_runs_do_not_tell_is_open(self, setting: Setting) -> None:
        lines = series(joining(setting), noise)
        filled = [replace(one, room=~one.room) if one.name.startswith(PRINTED) else one for one in lines]
        loose = np.random.default_rng(3)
        scattered = [replace(one, psi=one.psi * loose.lognormal(0, 3, one.psi.shape)) for one in lines]
        for unclear in (filled, scattered):
            assert next(iter(wu_joining.judge(setting, unclear))).ruling is Ruling.UNTOLD


def at_the_end(*last: float) -> list[Series]:
    """Lines along two rounds that end so, by the budgets of Figures 2 and 7."""
    flat = np.ones(2, dtype=np.bool_), np.zeros(2)
    return [Series(f"ε = {e:g}", np.arange(1.0, 3.0), np.array([[9.0] * 3, [psi] * 3]), *flat)
            for e, psi in zip(EPSILONS[::2], last, strict=True)]  # fmt: skip


def test_a_hundredfold_is_from_50_to_200() -> None:
    judge = wu.judge_rounds(LOANS)
    for last, ruling in ((0.01, Ruling.HOLDS), (0.0201, Ruling.FAILS), (0.0049, Ruling.FAILS)):
        assert rulings(judge(at_the_end(50, 1, last))) == {"hundredfold": ruling}


def test_only_what_is_left_without_noise_excuses_a_variation() -> None:
    lines = at_the_end(50, 1, 0.05)
    left = [replace(one, floor=np.full(2, 0.04)) for one in lines]
    for setting, measured, cause in (
        (LOANS_SUBGRADIENT, left, "parley"), (LOANS_PUBLISHED, left, "parley"), (LOANS, left, ""),
        (LOANS_SUBGRADIENT, lines, ""),
    ):  # fmt: skip
        (verdict,) = wu.judge_rounds(setting)(measured)
        assert (verdict.ruling, verdict.cause) == (Ruling.FAILS, cause)


def test_a_larger_budget_ends_lower_or_does_not() -> None:
    judge = wu.judge_rounds(FRAUDS)
    assert rulings(judge(at_the_end(3, 2, 1))) == {"larger-budget": Ruling.HOLDS}
    assert rulings(judge(at_the_end(3, 1, 2))) == {"larger-budget": Ruling.FAILS}


def theorems(gap: Mapping[int, float], central: Sequence[float] = (3.0, 1.0)) -> Theorems:
    """Made-up results."""
    averages = {e: np.array([[1.1 / e, 1 / e], [1.2 / e, 1 / e]]) for e in AVERAGED}
    return Theorems({T: np.full(2, gap[T]) for T in HORIZONS}, [np.full(2, psi) for psi in central], averages)


def test_theorem_2s_bound_is_the_worked_one_and_can_hold_and_fail() -> None:
    table = theorems(dict.fromkeys(HORIZONS, 0.039))
    assert table.bound == pytest.approx(2.2e-6, rel=0.02)
    assert rulings(wu_theorems.judge(table)) == {
        "theorem-2": Ruling.FAILS, "theorem-3": Ruling.OPEN, "remark-2": Ruling.HOLDS, "old-or-new": Ruling.OPEN,
    }  # fmt: skip
    long_enough = theorems({1: 0.1, 10: 0.1, 100: 0.1, 1_000: 2e-6}, (1.0, 1.0))
    ruled = rulings(wu_theorems.judge(long_enough))
    assert ruled["theorem-2"] is Ruling.HOLDS
    assert ruled["remark-2"] is Ruling.FAILS


@pytest.mark.slow
def test_pictures_are_not_blank(tmp_path: Path) -> None:
    wu_joining.draw(LOANS, "Four", series(joining(LOANS), noise), tmp_path / "four.png")
    wu_theorems.draw("Theorems", theorems(dict.fromkeys(HORIZONS, 0.039)), tmp_path / "theorems.png")
    for path in sorted(tmp_path.iterdir()):
        picture = plt.imread(path)
        assert min(picture.shape[:2]) > 400
        assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 10


def test_the_table_of_theorems_has_a_line_a_mean(tmp_path: Path) -> None:
    wu_theorems.write(theorems(dict.fromkeys(HORIZONS, 0.039)), tmp_path / "theorems.csv")
    lines = (tmp_path / "theorems.csv").read_text().splitlines()
    assert len(lines) == 1 + 1 + len(HORIZONS) + 2 + 2 * len(EPSILONS)


def test_settings_are_found_by_their_names_and_know_their_width() -> None:
    assert all(SETTINGS[name].name == name for name in SETTINGS)
    assert LOANS_PUBLISHED.regularization < 1e-8
    found = reduced(LOANS_PUBLISHED.study)
    if found is None:
        pytest.skip("loans are not here: $PARLEY_DATA is not set")
    assert LOANS_PUBLISHED.n_features == found[1].n_features


def test_either_average_is_of_the_same_run() -> None:
    if reduced(LOANS_PUBLISHED.study) is None:
        pytest.skip("card frauds are not here: $PARLEY_DATA is not set")
    (old, new), *_ = psi_of_averages(FRAUDS.name, (400, 400, 400), (10.0, 10.0, 10.0), 1)
    assert old != new
    assert old == pytest.approx(new, rel=0.3)
