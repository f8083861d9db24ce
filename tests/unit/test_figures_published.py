"""Figures in the papers' own scenarios: what is simulated, and that claims can hold and fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt

from scripts.figures import wu_joining
from scripts.figures.frame import Verdict
from scripts.figures.wu import EPSILONS
from scripts.figures.wu_joining import by_scenario, joining
from scripts.figures.wu_plots import Series
from scripts.figures.wu_runs import FRAUDS, LOANS, LOANS_PUBLISHED, SETTINGS, Owners, Setting
from scripts.utility.finance import reduced


def failed(verdicts: list[Verdict], words: str) -> bool:
    """Whether a claim of these words does not hold."""
    return any(words in verdict.claim and not verdict.holds for verdict in verdicts)


def series(setting: Setting, psi: Callable[[Owners], float]) -> list[Series]:
    """What a made-up psi of owners gives."""
    return [
        Series(
            name,
            np.array(list(line), dtype=np.float64),
            np.array([[psi(owners)] * 3 for owners in line.values()]),
            np.ones(len(line), dtype=np.bool_),
            np.zeros(len(line)),
        )
        for name, line in joining(setting).items()
    ]


def as_wu_says(owners: Owners) -> float:
    """Theorem 2's noise: the sum of 1 / epsilon^2 over n^2, and a floor."""
    return 1e4 * sum(epsilon**-2 for epsilon in owners.epsilons) / sum(owners.sizes) ** 2 + 1e-9


@pytest.mark.parametrize("setting", [LOANS, FRAUDS], ids=lambda setting: setting.name)
def test_the_joining_owners_are_those_of_four_scenarios(setting: Setting) -> None:
    surfaces = by_scenario(series(setting, as_wu_says))
    assert len(surfaces) == 4
    for *first, alone in surfaces.values():
        assert [one.x.tolist() for one in first] == [list(EPSILONS)] * 5
        assert len(alone.x) == 1
    largest = max(sum(owners.sizes) for line in joining(setting).values() for owners in line.values())
    assert largest <= {"loans": 21_000, "frauds": 8_700}[setting.name]


def test_wus_claims_can_hold_and_fail() -> None:
    said = list(wu_joining.judge(series(LOANS, as_wu_says)))
    assert all(verdict.holds for verdict in said)
    assert len(said) == 9
    otherwise: tuple[tuple[Callable[[Owners], float], str], ...] = (
        (lambda owners: 1 / as_wu_says(owners), "falls with n₁"),
        (lambda owners: 1.0 if len(owners.sizes) == 3 else 2.0, "harms with"),
        (lambda owners: 1.0 if len(owners.sizes) == 3 else float(owners.sizes[0]), "helps small ones more"),
    )
    for psi, words in otherwise:
        assert failed(list(wu_joining.judge(series(LOANS, psi))), words), words


@pytest.mark.slow
def test_four_surfaces_are_a_picture(tmp_path: Path) -> None:
    wu_joining.draw("Four", series(LOANS, as_wu_says), tmp_path / "four.png")
    picture = plt.imread(tmp_path / "four.png")
    assert min(picture.shape[:2]) > 400
    assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 10, "not blank"


def test_settings_are_found_by_their_names_and_know_their_width() -> None:
    assert all(SETTINGS[name].name == name for name in SETTINGS)
    assert LOANS_PUBLISHED.regularization < 1e-8
    found = reduced(LOANS_PUBLISHED.study)
    if found is None:
        pytest.skip("loans are not here: $PARLEY_DATA is not set")
    assert LOANS_PUBLISHED.n_features == found[1].n_features
