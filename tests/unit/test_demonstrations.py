"""What the drafts of PSGD lack is shown; they have no price, and the one that is private keeps within its budget."""

from __future__ import annotations

import math
from types import ModuleType

import pytest

from common.algorithms import REGISTRY
from common.runs.pricing import transcript
from scripts.demonstrations import attempts, averaging, differences, halving
from scripts.demonstrations.attempts import Composed, Draft, Finding, FreshNoise, Neighbours, OneTimeNoise, report

DRAFTS = (FreshNoise, OneTimeNoise, attempts.RedrawnNoise, Composed)


def test_no_party_knows_a_draft() -> None:
    assert not {REGISTRY[name] for name in REGISTRY} & set(DRAFTS)


@pytest.mark.parametrize("draft", DRAFTS[:3], ids=lambda draft: draft.__name__)
def test_a_broken_draft_has_no_price(draft: type[Draft]) -> None:
    facts = Neighbours.drawn(1.0).facts.of(0)
    assert math.isinf(transcript(draft(n_rounds=3), facts).epsilon)
    assert not draft().is_private(facts)
    assert draft().claims(facts) == ()


@pytest.mark.parametrize("halving", [True, False])
def test_composed_budgets_are_kept(*, halving: bool) -> None:
    promise = transcript(Composed(n_rounds=8, halving=halving), Neighbours.drawn(0.5, delta=1e-12).facts.of(0))
    assert 0.4 < promise.epsilon <= 0.5 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("demonstration", [averaging, differences, halving], ids=lambda module: module.__name__)
def test_each_finding_holds(demonstration: ModuleType) -> None:
    for finding in demonstration.findings():
        print(finding)
        assert finding.holds, finding


def test_what_does_not_hold_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert report("it", [Finding("so", holds=True, evidence="1"), Finding("thus", holds=False, evidence="2")]) == 1
    assert capsys.readouterr().out == "it: so: holds (1)\nit: thus: DOES NOT HOLD (2)\n"
    assert report("it", [Finding("so", holds=True, evidence="1")]) == 0
