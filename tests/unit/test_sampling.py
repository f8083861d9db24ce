"""How many draws from a simplex a budget allows and what they cost, by the formulas; how they are told; refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Huber, Logistic, Loss
from parley.common.learning.simplex import SimplexProblem
from parley.common.privacy.events import DrawEvent
from parley.common.privacy.mechanisms.sampling import (
    MOST_COUNTED,
    SimplexSampling,
    allowed,
    best_sampling,
    counts_of,
    draws_of_theorem_3,
    encode_draws,
    range_of_a_draw,
    sampling,
)

STEEP = Logistic(lipschitz=2.5, smoothness=0.25)
"""A loss whose constants are told apart."""


def problem_of(strength: float, scale: float = 3.0, n: int = 1000, d: int = 5, loss: Loss = STEEP) -> SimplexProblem:
    return SimplexProblem(loss, n, d, d, scale, strength)


# ── costs ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("strength", [1e2, 1e3, 9e3, 1e5, 1e7])
def test_what_a_draw_costs_is_the_gradients_two_moves_and_the_solvers_error(strength: float) -> None:
    """With r = L R / lambda and a = n c R^2 / lambda: r (4 + min(4 a, 2 sqrt(a))), where the paper has 2 a."""
    problem = problem_of(strength)
    r, a = 2.5 / (1 + math.exp(-3)) * 3.0 / strength, 1000 * 0.25 * 3.0**2 / strength
    exact = r * (4 + (4 * a if a < 1 / 4 else 2 * math.sqrt(a)))
    assert range_of_a_draw(problem) == pytest.approx(exact, rel=1e-12)
    tight, paper = (allowed(problem, 1.0, 1e-5, calibration) for calibration in ("tight", "paper"))
    assert tight.error == paper.error
    assert tight.problem == paper.problem == problem
    assert 0 < tight.error < 0.01 * exact
    assert tight.spread == tight.pure == paper.spread == pytest.approx(exact + 2 * tight.error, rel=1e-12)
    assert paper.pure == pytest.approx(r * (4 + 2 * a), rel=1e-12)


@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-5, 0.05])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 7.0])
def test_the_paper_makes_as_many_draws_as_either_bullet_of_theorem_3_has(epsilon: float, delta: float) -> None:
    """With L R in both, and no more than are proven: which is so where n c R^2 is small beside lambda."""
    by_delta = fewer = 0
    for strength in np.geomspace(20, 1e6, 60):
        problem = problem_of(float(strength))
        reach, condition = 2.5 / (1 + math.exp(-3)) * 3.0, 1000 * 0.25 * 9.0 / strength
        first = epsilon * strength / reach / (4 + 2 * condition)
        second = (epsilon * strength / reach / math.log(1 / delta) / (32 + 16 * condition)) ** 2 if delta else 0.0
        site, tight = (allowed(problem, epsilon, delta, calibration) for calibration in ("paper", "tight"))
        assert draws_of_theorem_3(problem, epsilon, delta) == pytest.approx(max(first, second))
        assert site.draws == min(math.floor(max(first, second) * (1 + 1e-12)), tight.draws)
        by_delta += site.draws > first + 1
        fewer += site.draws < math.floor(max(first, second))
    assert by_delta or not delta or epsilon < 1
    assert fewer or delta or epsilon < 0.1


@pytest.mark.parametrize("calibration", ["tight", "paper"])
def test_all_draws_are_charged_and_no_more_are_made_than_are_counted(calibration: str) -> None:
    site = allowed(problem_of(1e5), 1.0, 1e-5, calibration)  # type: ignore[arg-type]
    assert site.draws > 1
    assert site.event == DrawEvent(site.spread, site.draws)
    endless = allowed(problem_of(1e9), 1e3, 1e-5, calibration)  # type: ignore[arg-type]
    assert endless.event.draws == MOST_COUNTED


@pytest.mark.parametrize(("scale", "draws", "loss"), [(3.0, 2, STEEP), (3.0, 40, STEEP), (0.5, 7, Huber(0.1))])
def test_the_bound_on_the_excess_risk_is_theorem_4s(scale: float, draws: int, loss: Loss) -> None:
    """Lambda log 2d of the mean loss, and the lesser of L s and c s^2 / 2 for draws that move scores by s^2."""
    problem = problem_of(70.0, scale, n=200, d=9, loss=loss)
    moves = scale / math.sqrt(draws)
    by_draws = min(loss.lipschitz * moves, loss.smoothness * moves * moves / 2)
    site = SimplexSampling(problem, 0.0, 1.0, draws, 1.0)
    assert site.excess == pytest.approx(0.35 * math.log(18) + by_draws)
    assert replace(site, draws=0).excess == math.inf


def test_the_best_lambda_is_one_that_a_solver_surely_reaches() -> None:
    """However large the budget is; without that condition it would be the least that is tried."""
    best = best_sampling(problem_of(1.0), 1e9, 1e-5, "tight")
    assert best.problem.is_solvable(best.error)
    assert best.draws == MOST_COUNTED


def test_the_best_lambda_is_found_where_only_the_largest_allow_a_draw() -> None:
    problem = problem_of(1.0, scale=1e3, n=10)
    assert allowed(replace(problem, strength=1e3 * 10), 0.01, 0.0, "tight").draws == 0
    assert best_sampling(problem, 0.01, 0.0, "tight").draws > 0


# ── answers ──────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.booleans())
def test_draws_are_told_as_counts_or_as_a_sorted_list_behind_zeros(drawn: list[int], listed: bool) -> None:  # noqa: FBT001
    width = 15 if listed else 6
    answer = encode_draws(np.array(drawn), width, 6)
    assert answer.shape == (width,)
    assert sorted(answer.tolist()) == answer.tolist() or not listed
    assert counts_of(answer, 6).tolist() == [drawn.count(vertex) for vertex in range(6)]


def test_no_count_includes_a_vertex_that_does_not_exist() -> None:
    assert counts_of(np.array([-5, 0, 1, 3, 99]), 3).tolist() == [1, 0, 2]
    assert counts_of(np.array([-5, 2, 0]), 3).tolist() == [0, 2, 0]


# ── refusals ─────────────────────────────────────────────────────────────────


def refusal(problem: SimplexProblem, epsilon: float, delta: float = 0.0) -> str:
    with pytest.raises(InvalidInputError) as refused:
        sampling(problem, epsilon, delta, "tight")
    return refused.value.detail


def test_one_example_is_enough_and_none_is_not() -> None:
    assert sampling(problem_of(1e3, n=1), 1.0, 1e-5, "tight").draws > 0
    assert refusal(problem_of(1e3, n=0), 1.0) == "a site without examples has no model to release"


@pytest.mark.parametrize(("scale", "epsilon"), [(3.0, 0.1), (1e4, 1e-3)])
def test_where_no_draw_fits_it_says_what_one_costs_and_which_lambda_would_do(scale: float, epsilon: float) -> None:
    problem = problem_of(1.0, scale, n=10_000)
    words = refusal(problem, epsilon)
    assert f"not one draw fits {epsilon:g}, delta = 0 at scale = {scale:g}, as one costs up to" in words
    assert f"{allowed(problem, epsilon, 0.0, 'tight').pure:.3g}; with" in words
    least = float(words.rpartition("regularization = ")[2].split()[0])
    assert words.endswith(" one would")
    assert sampling(replace(problem, strength=least * 10_000), epsilon, 0.0, "tight").draws > 0
    assert refusal(replace(problem, strength=0.985 * least * 10_000), epsilon)


def test_where_no_solver_surely_is_near_enough_it_says_so() -> None:
    problem = problem_of(1e-6)
    assert allowed(problem, 1e12, 0.0, "tight").draws > 0
    words = refusal(problem, 1e12)
    assert words.startswith("regularization is too small: no solver surely is near enough at scale = 3; with regul")
    assert "epsilon" not in words


def test_where_no_lambda_would_do_none_is_named() -> None:
    problem = problem_of(1.0, scale=1e6)
    words = refusal(problem, 1e-6)
    assert words.endswith(f"as one costs up to {allowed(problem, 1e-6, 0.0, 'tight').pure:.3g}")
