"""What README.md says that the demonstration printed is what it prints, but for the noise of its three runs.

And figures that other documents state.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import get_args

import pytest

from parley.common.algorithms import settle
from parley.common.online import Leader
from parley.common.privacy.account import MICRO, SQUARE_UNITS, Cost, delta_units, limit
from parley.common.privacy.calibration import gaussian_mu
from parley.common.privacy.mechanisms.leader import Adversary
from parley.common.runs.pricing import guarantees
from scripts.demo import RUNS, Laboratory, deploy, figure, parameters

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DIGITS = 0.0021
"""Of a printed accuracy: other machines round sums otherwise, which may turn one biopsy of 142."""


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """The owners' shards, without services."""
    root = tmp_path_factory.mktemp("demo")
    deploy(root)
    return Laboratory.read(root)


@pytest.fixture(scope="module")
def printed() -> dict[str, list[str]]:
    """The cells of the table in README.md by what they are about; a cell may be broken into lines."""
    rows: dict[str, list[str]] = {}
    last: list[str] = []
    for line in re.findall(r"^│(.*)│$", README.read_text(encoding="utf-8"), re.MULTILINE):
        cells = [cell.strip() for cell in line.split("│")]
        if any(cells[1:]):
            last = cells
        else:
            rows.pop(last[0])
            last = [f"{last[0]} {cells[0]}", *last[1:]]
        rows[last[0]] = last[1:]
    return rows


def test_the_owners_are_as_many(laboratory: Laboratory) -> None:
    n = laboratory.shards.n_examples
    assert f"the hospitals hold {n.sum()} biopsies, {n.min()} to {n.max()} each" in README.read_text(encoding="utf-8")


def test_what_needs_no_noise_is_as_printed(laboratory: Laboratory, printed: dict[str, list[str]]) -> None:
    for row in laboratory.baselines():
        accuracy, expected, *promised = printed.pop(row.what)
        assert promised == [row.claim, row.transcript]
        for told, found in ((accuracy, row.accuracy), (expected, row.expected)):
            assert bool(told) == bool(found)
            assert not told or float(told) == pytest.approx(float(found), abs=DIGITS), row.what
    assert set(printed) == {f"{algorithm}, ε = {epsilon:g}" for algorithm, epsilon in RUNS}


@pytest.mark.parametrize(("algorithm", "epsilon"), RUNS)
def test_runs_are_as_printed(
    laboratory: Laboratory, printed: dict[str, list[str]], algorithm: str, epsilon: float
) -> None:
    accuracy, expected, claim, transcript = printed[f"{algorithm}, ε = {epsilon:g}"]
    mean, spread = map(float, expected.split(" ± "))
    found = [float(each) for each in laboratory.expected(algorithm, epsilon).split(" ± ")]
    assert [mean, spread] == pytest.approx(found, abs=DIGITS)
    assert abs(float(accuracy) - mean) <= 4 * spread, "one run, with noise that nobody can repeat"
    settled, _ = settle(algorithm, parameters(algorithm), facts := laboratory.facts(epsilon))
    promised = {each.view: figure({"epsilon": each.epsilon}) for each in reversed(guarantees(settled, facts))}
    assert [claim, transcript] == [promised.get("model", "-"), promised.get("transcript", "-")]
    sums = f"{algorithm}, ε = {epsilon:g}: trained; {len(settled.questions(facts))} sums opened and signed for"
    assert sums in README.read_text(encoding="utf-8")


def test_what_a_bet_moves_to_is_as_the_officer_reads() -> None:
    """(epsilon, 0): odds of 1 move to at most e^epsilon."""
    text = (ROOT / "docs" / "tutorials" / "privacy-officer.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d.]+) \| (\d+) % \|$", text, re.MULTILINE)
    assert len(rows) == 4
    for epsilon, percent in rows:
        odds = math.exp(float(epsilon))
        assert abs(100 * odds / (1 + odds) - float(percent)) <= 0.5


def test_a_budget_holds_as_many_runs_as_stated() -> None:
    text = " ".join((ROOT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8").split())
    found = re.findall(r"a budget of \(([\d.]+), (\S+)\) holds (\d+) runs of \(([\d.]+), (\S+)\) by `dp_gd`", text)[0]
    epsilon, delta, runs, each, its_delta = map(float, found)
    square = gaussian_mu(each, its_delta) ** 2
    run = Cost(math.ceil(each * MICRO), delta_units(its_delta), math.ceil(square * SQUARE_UNITS))
    assert limit(epsilon, delta).runs_left(run) == runs


def test_the_regret_of_a_stream_is_bounded_as_is_shown() -> None:
    text = (ROOT / "docs" / "how-to" / "commands.md").read_text(encoding="utf-8")
    asked = r"--actions (\d+) --horizon (\d+) --epsilon (\S+) --delta (\S+) < costs.jsonl\n.* regret at most ([\d.]+)"
    n_actions, horizon, epsilon, delta, bound = re.findall(asked, text)[0]
    leader = Leader(int(n_actions), int(horizon), 1.0, float(epsilon), float(delta))
    assert f"{leader.regret:.4g}" == bound


def test_what_a_leader_gains_by_keeping_its_action_is_as_stated() -> None:
    text = " ".join((ROOT / "docs/decisions/0017-a-leader-may-keep-its-action.md").read_text(encoding="utf-8").split())
    bounds = text.partition("drawn in every round and kept: ")[2].partition("Without")[0]
    horizon, found = "", list[str]()
    for shown, epsilon, fresh, kept in re.findall(r"(?:T = ([\d,]+), )?ε = (\d+): ([\d,]+) and ([\d,]*\d)", bounds):
        horizon = shown.replace(",", "") or horizon
        leaders = [
            Leader(10, int(horizon), 1.0, float(epsilon), 1e-6, adversary=choice) for choice in get_args(Adversary)
        ]
        found += [f"{leader.terms.regret:,.0f}" for leader in leaders]
        assert found[-2:] == [fresh, kept]
    assert len(found) == 6


def test_what_psgd_claims_and_spends_is_as_said() -> None:
    text = " ".join((ROOT / "docs" / "explanation" / "results.md").read_text(encoding="utf-8").split())
    claim, spent = re.findall(r"PSGD claims ε = (\S+) for the final model and spends (\S+) on the learner", text)[0]
    told = re.findall(
        r"^│ psgd, ε = 1 .*│ +ε = (\S+) │ +ε = (\S+) │$", README.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [(claim, f"{float(found[1]):.1f}") for found in told] == [(claim, spent)]
