"""Figures on the papers' own splits: what is simulated, and that claims can hold and fail."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from parley.learner.experiments.simulation import SimulationSettings
from scripts.figures import rajkumar_splits
from scripts.figures.frame import Verdict
from scripts.figures.panels import Outcome, Panels
from scripts.figures.rajkumar_splits import BALL, CANCER, GIVEN, RANDOM, SHARES, Deal, simulations


def failed(verdicts: list[Verdict], words: str) -> bool:
    """Whether a claim of these words does not hold."""
    return any(words in verdict.claim and not verdict.holds for verdict in verdicts)


def panels(deal: Deal, accuracy: Callable[[str, float], float]) -> Panels:
    """Made-up outcomes by line and x, with a little scatter."""
    rng = np.random.default_rng(5)
    return Panels(
        {
            place: Outcome(settings, accuracy(place.line, place.x) + rng.normal(0, 0.01, 50))
            for place, settings in simulations(BALL, deal).items()
        }
    )


def as_rajkumar_says(line: str, x: float) -> float:
    return {"local_average": 0.66 - 0.01 * x, "psgd": 0.7, "gop": 0.71}.get(line, 0.95)


def test_the_papers_splits_are_simulated() -> None:
    asked = [json.loads(point.arguments) for figure in rajkumar_splits.FIGURES for point in figure.full.points.values()]
    assert [sum(shares) for shares in SHARES] == pytest.approx([1, 1, 1])
    assert {tuple(each["shares"]) for each in asked if each["shares"] != "random"} == set(SHARES)
    assert {each["parties"] for each in asked if each["shares"] == "random"} == {5, 10, 15}
    assert {(each["data"], each["folds"]) for each in asked} == {("simulated-ball", None), ("wdbc", 5)}
    assert all(isinstance(SimulationSettings(**each), SimulationSettings) for each in asked), "as JSON has them"
    assert CANCER.folds == 5


@pytest.mark.parametrize("deal", [GIVEN, RANDOM], ids=lambda deal: deal.name)
def test_rajkumars_claims_can_hold_and_fail(deal: Deal) -> None:
    said = list(rajkumar_splits.judge(deal, panels(deal, as_rajkumar_says)))
    assert all(verdict.holds for verdict in said)
    assert len(said) == 8
    otherwise: tuple[tuple[Callable[[str, float], float], str], ...] = (
        (lambda line, _: as_rajkumar_says(line, 1), "LA falls"),
        (lambda line, x: 0.7 + 0.1 * x if line == "psgd" else as_rajkumar_says(line, x), "the same"),
        (lambda line, x: 0.8 if line == "gop" else as_rajkumar_says(line, x), "as well as GOP"),
        (lambda line, x: 0.72 if line == "local_average" else as_rajkumar_says(line, x), "beats LA"),
    )
    for accuracy, words in otherwise:
        assert failed(list(rajkumar_splits.judge(deal, panels(deal, accuracy))), words), words
