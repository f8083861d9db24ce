"""Integers, prices and promises as they were recorded: what no change of the code's shape may change.

``python -m tests.contracts.test_recorded`` records them again, which only a change of what Parley promises may ask for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.common.errors import BudgetExhaustedError
from parley.common.privacy.guarantee import View
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.runs.pricing import guarantees, schedule
from tests.contracts.algorithms import RECORDABLE, Case, conversation, federation

RECORD = Path(__file__).parents[1] / "vectors" / "recorded" / "algorithms.json"
SOLVED = {"gop", "release", "average", "local_average", "feature", "multilevel_feature", "matrix_perturbation"}
"""Algorithms that answer a solver's floating-point numbers, rounded to 2^-32; the last bits may differ."""
_SLACK = 64  # units of 2^-32: what a gradient of 1e-9 leaves undecided


def answers(case: Case) -> list[Any]:
    """The integers that each party of a fixed federation answers in each round to fixed queries, with noise fixed."""
    shard, facts = federation(case)
    noise = SeededNoise([17, 4])
    return [case.answer(query, shard, facts, noise).tolist() for query in conversation(case, facts, seed=2)[0]]


def prices(case: Case, facts: FederationFacts) -> list[Any]:
    """What each round costs each party, in whole units, by view; None for a run that no budget allows."""
    return [
        {view: _price(case, facts.of(index), view) for view in ("transcript", "model")}
        for index in range(len(facts.parties))
    ]


def _price(case: Case, facts: OwnFacts, view: View) -> list[list[int]] | None:
    try:
        return [[cost.epsilon, cost.delta] for cost in schedule(case.algorithm, facts, view)]
    except BudgetExhaustedError:
        return None


def promises(case: Case, facts: FederationFacts) -> list[Any]:
    """The guarantees of a run."""
    return [guarantee.to_json() for guarantee in guarantees(case.algorithm, facts)]


def record(case: Case) -> dict[str, Any]:
    """All that is recorded of a case, as JSON reads it back."""
    _, facts = federation(case)
    values = {"answers": answers(case), "prices": prices(case, facts), "guarantees": promises(case, facts)}
    parsed: dict[str, Any] = json.loads(json.dumps(values))
    return parsed


def flat(numbers: Any) -> list[int]:  # noqa: ANN401 -- lists of lists
    """Numbers in lists, in lists of them, and so on, in order."""
    return [number for part in numbers for number in flat(part)] if isinstance(numbers, list) else [numbers]


RECORDED: dict[str, dict[str, Any]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}


@pytest.mark.parametrize("label", RECORDED)
def test_answers_prices_and_guarantees_are_as_recorded(label: str) -> None:
    now, recorded = record(RECORDABLE[label]), RECORDED[label]
    assert now["prices"] == recorded["prices"]
    for promise, expected in zip(now["guarantees"], recorded["guarantees"], strict=True):
        assert promise | {"epsilon": None} == expected | {"epsilon": None}
        assert promise["epsilon"] == expected["epsilon"] or (  # a convolution's last bits vary
            promise["epsilon"] == pytest.approx(expected["epsilon"], rel=1e-12, abs=0)
        )
    if RECORDABLE[label].name in SOLVED:
        pairs = zip(flat(now["answers"]), flat(recorded["answers"]), strict=True)
        assert max(abs(one - other) for one, other in pairs) <= _SLACK
    else:
        assert now["answers"] == recorded["answers"]


def test_every_algorithm_is_recorded() -> None:
    ours = {case.name for case in RECORDABLE.values() if type(case.algorithm).__module__.startswith("parley.common.")}
    assert ours == {RECORDABLE[label].name for label in RECORDED}
    n = sum(
        len(answer) for case_record in RECORDED.values() for of_round in case_record["answers"] for answer in of_round
    )
    print(f"{len(RECORDED)} cases: {n} integers, all prices and guarantees as recorded before the first move")


if __name__ == "__main__":
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    lines = (f'"{label}":{json.dumps(record(case), separators=(",", ":"))}' for label, case in RECORDABLE.items())
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")  # a line a case, so that a change shows which
