"""The worst pairs that the benchmark of budgets composes, beside closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.benchmarks.worst_pairs import (
    WorstPair,
    all_of,
    approximate,
    draws,
    gaussian,
    l2_laplace,
    laplace,
    most,
    objective,
    symmetric,
    together,
)

EPSILONS = np.array([0.0, 0.05, 0.1, 0.2, 0.4])
PAIRS = {
    "gaussian": gaussian(0.1),
    "laplace": laplace(0.3),
    "l2_laplace": l2_laplace(0.5, 8),
    "draws": draws(0.02, 50),
    "approximate": approximate(0.3, 1e-6),
    "objective": objective(0.1, 0.08),
}


def test_the_profile_of_objective_perturbation_is_the_best_of_its_parts() -> None:
    mu, determinant = 0.3, 0.08
    left = np.linspace(0, 0.6, 13)
    first = np.linspace(0, 1, 2_001)[:, None] * left
    half = gaussian(mu / 2).deltas
    expected = (half(first) + np.exp(first) * half(left - first)).min(axis=0)
    profile = objective(mu, determinant).deltas(determinant + left)
    assert profile == pytest.approx(expected, rel=1e-4)
    assert (profile <= expected + 1e-12).all()


def test_what_holds_in_both_directions_is_randomised_response_where_only_epsilon_is_proven() -> None:
    losses = np.arange(0, 0.6, 1e-4)
    either_way = symmetric(losses, np.maximum(0.0, -np.expm1(losses - 0.5)))
    assert either_way == pytest.approx(approximate(0.5, 0.0).deltas(losses), abs=1e-4)
    own = gaussian(0.3).deltas(losses)
    assert symmetric(losses, own) == pytest.approx(own, abs=1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_numbers_on_a_grid_are_a_law_and_no_smaller_than_the_profile(name: str) -> None:
    pair = PAIRS[name]
    law = pair.masses(pair.deviation / 40)
    assert law.chances.sum() + law.infinite == pytest.approx(1, abs=1e-9)
    fine = np.linspace(0.0, 0.4, 4_001)
    exact = np.interp(EPSILONS, fine, symmetric(fine, pair.deltas(fine)))
    assert (law.deltas(EPSILONS) >= exact - 1e-8).all()
    assert law.deltas(EPSILONS) == pytest.approx(exact, rel=2e-3, abs=2e-5)
    others = pair.losses(pair.deviation / 40).get_delta_for_epsilon(EPSILONS)
    assert law.deltas(EPSILONS) == pytest.approx(others, rel=5e-3, abs=5e-5)


@pytest.mark.parametrize(("pair", "times", "whole"), [
    (gaussian(0.02), 25, gaussian(0.1)), (draws(0.02, 5), 10, draws(0.02, 50)),
])  # fmt: skip
def test_many_of_a_pair_are_what_the_closed_form_says(pair: WorstPair, times: int, whole: WorstPair) -> None:
    epsilons = whole.deviation * np.arange(5.0, dtype=np.float64)
    assert all_of({pair: times}).deltas(epsilons) == pytest.approx(whole.deltas(epsilons), rel=5e-3)
    composed = together({pair: times}).get_delta_for_epsilon(epsilons)
    assert composed == pytest.approx(whole.deltas(epsilons), rel=5e-3)


def test_a_pure_run_of_several_releases_has_no_loss_above_its_epsilon() -> None:
    four = all_of({laplace(0.1): 3, laplace(0.05): 1})
    assert four.largest == pytest.approx(0.35)
    assert four.masses(0.01).largest == pytest.approx(0.35)
    assert four.masses(0.01).deltas(np.array([0.35]))[0] == pytest.approx(0, abs=1e-12)
    assert four.masses(0.01).deltas(np.array([0.34]))[0] > 1e-4


@pytest.mark.parametrize("largest", [0, 1, 2, 3, 7, 8, 1000])
def test_the_most_that_holds_is_found(largest: int) -> None:
    assert most(lambda number: number <= largest) == largest
