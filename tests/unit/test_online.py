"""A private leader: what it promises, what it costs, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats

from parley.common.arrays import FloatArray, IntArray
from parley.common.errors import InvalidInputError
from parley.common.online import Leader, LeaderState
from parley.common.privacy.calibration import Calibration
from parley.common.privacy.draws import concentrated_epsilon, epsilon_of_draws, rho_of_draws
from parley.common.privacy.events import DrawEvent
from parley.common.privacy.mechanisms.leader import (
    COST_UNIT,
    LeaderTerms,
    best_scale,
    least_scale,
    regret_bound,
    spread_of_a_draw,
)
from parley.common.privacy.noise import Noise, SeededNoise
from tests.support.noises import Relay

DELTA = 1e-5


class Watched(Relay):
    """Noise that keeps the weights that it was last given."""

    def categorical(self, mantissas: IntArray, exponents: IntArray, n: int) -> IntArray:
        self.weights, self.drawn = (mantissas, exponents), n
        return super().categorical(mantissas, exponents, n)


def log_weights(terms: LeaderTerms, totals: IntArray) -> FloatArray:
    """The logarithms (p,) of the weights of a draw, which are what the noise is given, to the last digit of a float."""
    noise = Watched(SeededNoise(1))
    terms.draw(totals, noise)
    mantissas, exponents = noise.weights
    return np.asarray(np.log(mantissas) + exponents * math.log(2))


def chances(totals: FloatArray, scale: float) -> FloatArray:
    weights = np.exp(-(totals - totals.min()) / scale)
    return np.asarray(weights / weights.sum())


# ── privacy ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, DELTA), (10.0, DELTA), (0.1, 1e-9), (1.0, 0.0)])
@pytest.mark.parametrize("horizon", [1, 30, 10_000])
def test_all_actions_cost_what_the_budget_allows(epsilon: float, delta: float, horizon: int) -> None:
    terms = LeaderTerms(10, horizon, epsilon, delta)
    private = least_scale(horizon, epsilon, delta, "tight")
    assert terms.event == DrawEvent(spread_of_a_draw(terms.scale, horizon), horizon)
    assert epsilon_of_draws(terms.event, delta) <= epsilon
    assert terms.scale == max(private, best_scale(10, horizon))
    less = DrawEvent(spread_of_a_draw(private * (1 - 1e-6), horizon), horizon)
    assert epsilon_of_draws(less, delta) > epsilon, "no less of lambda is known to be private"
    assert terms.guarantee.epsilon == pytest.approx(epsilon_of_draws(terms.event, terms.guarantee.delta))
    assert terms.guarantee.epsilon <= epsilon
    assert terms.guarantee.delta in {0.0, delta}
    assert "before its action is seen" in terms.guarantee.assumptions[0]


@pytest.mark.parametrize("horizon", [1, 1000, 10**6])
def test_the_papers_lambda_is_its_formula(horizon: int) -> None:
    for epsilon in (0.1, 1.0, 10.0):
        scale = least_scale(horizon, epsilon, DELTA, "paper")
        printed = 2 * horizon / scale**2 + math.sqrt(8 * horizon * math.log(1 / DELTA)) / scale
        assert printed == pytest.approx(epsilon)
        rho = rho_of_draws(DrawEvent(4 / scale, horizon))
        assert rho + 2 * math.sqrt(rho * math.log(1 / DELTA)) == pytest.approx(epsilon)
        assert concentrated_epsilon(rho, DELTA) < epsilon
        assert least_scale(horizon, epsilon, DELTA, "tight") < scale
    with pytest.raises(InvalidInputError, match="delta above 0"):
        LeaderTerms(2, 5, 1.0, 0.0, "paper")


def neighbours(rng: np.random.Generator, rounds: int, actions: int) -> tuple[IntArray, IntArray]:
    """Sums (p,) of costs that differ in one: at random, or as far as it goes."""
    costs = rng.integers(-COST_UNIT, COST_UNIT + 1, (rounds, actions))
    other = costs.copy()
    place = rng.integers(rounds)
    other[place] = rng.integers(-COST_UNIT, COST_UNIT + 1, actions)
    if rng.random() < 0.5:
        costs[place] = COST_UNIT * rng.choice([-1, 1], actions)
        costs[place, :2] = COST_UNIT, -COST_UNIT
        other[place] = -costs[place]
    return costs.sum(axis=0), other.sum(axis=0)


@pytest.mark.parametrize(("actions", "rounds", "epsilon"), [(2, 10, 1.0), (50, 400, 10.0), (3, 5, 1e3)])
def test_no_cost_vector_moves_log_chances_by_more_than_the_spread(actions: int, rounds: int, epsilon: float) -> None:
    rng, largest = np.random.default_rng(5), 0.0
    terms = LeaderTerms(actions, rounds, epsilon, DELTA)
    for _ in range(500):
        one, other = neighbours(rng, rounds, actions)
        largest = max(largest, float(np.ptp(log_weights(terms, one) - log_weights(terms, other))))
    rounding = 1e-11  # of this test's own logarithms
    spread = spread_of_a_draw(terms.scale, rounds)
    print(f"500 neighbours: log-chances move by a range of {largest / spread:.6f} of the bound at most")
    assert largest <= spread + rounding
    assert largest > 0.999 * spread - rounding


@pytest.mark.parametrize("scale_of", [1.0, 37.0, 1e5])
def test_weights_are_off_by_no_more_than_is_counted(scale_of: float) -> None:
    rng, horizon = np.random.default_rng(8), 20_000
    terms = LeaderTerms(64, horizon, 1.0, DELTA)
    object.__setattr__(terms, "scale", scale_of)
    totals = rng.integers(-COST_UNIT * horizon, COST_UNIT * horizon, 64)
    noise = Watched(SeededNoise(1))
    terms.draw(totals, noise)
    with localcontext(prec=50):
        log_2 = Decimal(2).ln()
        factor = Decimal(-1 / (COST_UNIT * scale_of * math.log(2)))  # which stands for lambda
        assert abs(factor * COST_UNIT * Decimal(scale_of) * log_2 + 1) < 8 * 2.0**-53
        for total, mantissa, exponent in zip(totals - totals.min(), *noise.weights, strict=True):
            exact = int(total) * factor * log_2
            found = (Decimal(int(mantissa)) / 2**52).ln() + int(exponent) * log_2
            assert abs(found - exact) <= 2.0**-53 * (2 * horizon / scale_of + 16)


@pytest.mark.slow
def test_actions_are_drawn_with_the_chances_that_are_declared() -> None:
    terms, noise = LeaderTerms(4, 20, 10.0, DELTA), SeededNoise(3)
    totals = np.array([0, COST_UNIT, -3 * COST_UNIT, 7 * COST_UNIT])
    expected = chances(totals / COST_UNIT, terms.scale)
    counts = np.bincount([terms.draw(totals, noise) for _ in range(20_000)], minlength=4)
    assert stats.chisquare(counts, expected * counts.sum()).pvalue > 1e-6
    halved = chances(totals / COST_UNIT, terms.scale / 2)
    assert stats.chisquare(counts, halved * counts.sum()).pvalue < 1e-6, "half of lambda is caught"


def test_rounding_is_counted_of_both_neighbours_weights_and_of_the_factor() -> None:
    """Beyond 4 / lambda: 8 u of it, and four times u (2 T / lambda + 16); each in turn is all but all of it."""
    u = 2.0**-53
    for scale, horizon, expected in (
        (2.0**40, 1, 4 * u * 16),
        (2.0, 2**30, 4 * u * 2**30),
        (2.0**-20, 1, 4 * 2**20 * 8 * u + 4 * u * 2 * 2**20),
    ):
        beyond = Fraction(spread_of_a_draw(scale, horizon)) - 4 / Fraction(scale)
        assert float(beyond) == pytest.approx(expected, rel=1e-6, abs=0)


def test_a_calibration_sets_lambda_and_is_named_in_the_promise() -> None:
    for calibration in ("paper", "tight"):
        terms = LeaderTerms(2, 1000, 1.0, DELTA, calibration)
        assert terms.scale == least_scale(1000, 1.0, DELTA, calibration)
        assert (terms.guarantee.calibration, terms.guarantee.view) == (calibration, "transcript")
        assert terms.guarantee.epsilon <= 1


def test_delta_is_promised_where_pure_epsilon_is_not_enough_and_only_there() -> None:
    """The lambda of the least regret may be more private than was asked for."""
    beyond = []
    for horizon in (1, 2, 3, 10, 100):
        for epsilon in (0.1, 1.0, 40.0):
            terms = LeaderTerms(10, horizon, epsilon, DELTA)
            beyond.append(DrawEvent(spread_of_a_draw(terms.scale, horizon), horizon).epsilon / epsilon)
            assert terms.guarantee.delta == (DELTA if beyond[-1] > 1 + 1e-9 else 0.0)
    assert min(beyond) < 0.9
    assert any(1.001 < each < 1.9 for each in beyond)
    assert max(beyond) > 2


def test_the_largest_leader_is_allowed_and_rounding_that_costs_more_than_epsilon_is_not() -> None:
    assert isinstance(event := LeaderTerms(2**24, 2**30, 1.0, DELTA).event, DrawEvent)
    assert event.draws == 2**30
    with pytest.raises(InvalidInputError, match="horizon must lie between 1 and"):
        LeaderTerms(2, 2**30 + 1, 1.0, DELTA)
    for calibration in ("paper", "tight"):
        with pytest.raises(InvalidInputError, match="rounding of weights costs more"):
            LeaderTerms(2, 2**30, 1e-12, 1e-14, calibration)


@pytest.mark.parametrize("scale", [1.0, 1e15])
def test_one_action_is_drawn_by_integers_however_near_each_other_the_chances_are(scale: float) -> None:
    """A power of a little less than 0 has a mantissa that rounds to 2, which is cut off at the largest below."""
    terms, noise = LeaderTerms(2, 10, 1.0, DELTA), Watched(SeededNoise(1))
    object.__setattr__(terms, "scale", scale)
    terms.draw(np.array([1, 0]), noise)
    mantissas, exponents = noise.weights
    assert mantissas.dtype == exponents.dtype == np.int64
    assert exponents.tolist() == [-1, 0]
    assert 2**52 <= mantissas.min() <= mantissas.max() < 2**53
    assert noise.drawn == 1


# ── regret ───────────────────────────────────────────────────────────────────


def coins(rng: np.random.Generator, rounds: int, actions: int) -> FloatArray:
    return rng.choice([-1.0, 1.0], (rounds, actions))


def one_good(rng: np.random.Generator, rounds: int, actions: int) -> FloatArray:
    return np.where(np.arange(actions) == 0, -1.0, np.ones((rounds, actions)))


def in_turns(rng: np.random.Generator, rounds: int, actions: int) -> FloatArray:
    """What fools a player that follows the sums without noise."""
    sign = np.where(np.arange(rounds) % 2, 1.0, -1.0)[:, None] * np.where(np.arange(actions) % 2, 1.0, -1.0)
    sign[0] /= 2
    return sign


def test_a_budget_that_hides_every_cost_promises_no_more_than_any_actions_would_cost() -> None:
    """By the formula alone it was twenty times as much."""
    assert LeaderTerms(3, 10**9, 0.1, 0.0).regret == 2e9
    assert Leader(2, 1, 3.0, 1.0, DELTA).regret == pytest.approx(6.0, rel=1e-4)


@pytest.mark.parametrize("costs_of", [coins, one_good, in_turns])
@pytest.mark.parametrize("actions", [2, 100])
@pytest.mark.parametrize("epsilon", [1.0, 100.0])
def test_regret_is_within_its_bound(
    costs_of: Callable[[np.random.Generator, int, int], FloatArray], actions: int, epsilon: float
) -> None:
    for rounds in (1, 10, 300, 3000):
        terms = LeaderTerms(actions, rounds, epsilon, DELTA)
        costs = costs_of(np.random.default_rng(2), rounds, actions)
        totals = np.cumsum(costs, axis=0) - costs
        expected = sum(float(chances(total, terms.scale) @ cost) for total, cost in zip(totals, costs, strict=True))
        regret = expected - float(costs.sum(axis=0).min())
        assert regret <= terms.regret
        if costs_of is one_good and epsilon == 1.0 and rounds == 3000:
            assert regret > 0.7 * terms.regret, "and the bound is not idle"


def test_the_bound_is_least_at_its_own_lambda() -> None:
    best = best_scale(20, 500)
    assert regret_bound(20, 500, best) == pytest.approx(math.sqrt(2 * 500 * math.log(20)))
    assert all(regret_bound(20, 500, best * factor) > regret_bound(20, 500, best) for factor in (0.9, 1.1))
    bounds = [Leader(20, t, 3.0, 1.0, DELTA).regret for t in (400, 1600, 6400)]
    assert all(later / first == pytest.approx(2, rel=0.01) for first, later in pairwise(bounds))


# ── use ──────────────────────────────────────────────────────────────────────


def leader(noise: Noise | None = None, **terms: Any) -> Leader:  # noqa: ANN401
    given: dict[str, Any] = {"actions": 3, "horizon": 4, "bound": 2.0, "epsilon": 1.0, "delta": DELTA} | terms
    return Leader(**given, noise=noise)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"actions": 1}, "actions must lie between 2 and"),
        ({"actions": 2**24 + 1}, "actions must lie between 2 and"),
        ({"horizon": 0}, "horizon must lie between 1 and"),
        ({"horizon": 2**30 + 1}, "horizon must lie between 1 and"),
        *(({"actions": actions}, "a whole number, not be") for actions in (2.5, 3.0, "3", None, math.nan)),
        *(({"horizon": horizon}, "a whole number, not be") for horizon in (3.5, 3.0, True, math.inf)),
        *(({"bound": bound}, "bound must be positive") for bound in (0.0, -1.0, math.inf, math.nan)),
        *(({"epsilon": epsilon}, "epsilon") for epsilon in (0.0, -1.0, math.inf, math.nan)),
        *(({"epsilon": epsilon}, "between 1e-06 and 1e\\+12") for epsilon in (1e-7, 2e12, 1e160, 1e300)),
        *(({"delta": delta}, "delta must be") for delta in (-1e-9, 1.0, math.nan, 1e-19)),
    ],
)
@pytest.mark.parametrize("calibration", ["tight", "paper"])
def test_terms_that_are_none_are_refused(terms: dict[str, float], words: str, calibration: Calibration) -> None:
    with pytest.raises(InvalidInputError, match=words):
        leader(None, **terms, calibration=calibration)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"calibration": "Paper"}, "calibration must be 'tight' or 'paper', not 'Paper'"),
        ({"adversary": "Oblivious"}, "adversary must be 'adaptive' or 'oblivious', not 'Oblivious'"),
        ({"state": LeaderState(np.zeros(4, np.int64))}, "must hold 3 sums, one an action, not 4"),
    ],
)
def test_a_slip_is_not_taken_for_the_default(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        leader(**terms)


def test_a_budget_that_rounding_uses_up_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="epsilon is too small"):
        leader(horizon=2**30, epsilon=1e-6, delta=0.0)


def test_rounds_go_act_observe_and_end_with_the_horizon() -> None:
    one = leader(horizon=2)
    with pytest.raises(InvalidInputError, match="round 1 has no action yet"):
        one.observe([0, 0, 0])
    assert one.act() in range(3)
    with pytest.raises(InvalidInputError, match="round 1 has its action"):
        one.act()
    one.observe([2, -2.0, 1])
    assert one.state.totals.tolist() == [COST_UNIT, -COST_UNIT, COST_UNIT // 2]
    with pytest.raises(InvalidInputError, match="round 2 has no action yet"):
        one.observe([0, 0, 0])
    one.act()
    one.observe([0, 0, 0])
    for late in (one.act, lambda: one.observe([0, 0, 0])):
        with pytest.raises(InvalidInputError, match="horizon of 2 rounds is over"):
            late()


SECRET = 4111.25


@pytest.mark.parametrize(
    "cost",
    [
        [0, 0],
        [0, 0, 0, 0],
        [[0, 0, 0]],
        [],
        [0, 0, SECRET],
        [0, -2.0000001, 0],
        [0, math.nan, 0],
        [math.inf, 0, 0],
        ["a", 0, 0],
        ["1", "0", "0"],
        [True, 0, 0],
        np.array([True, False, True]),
        np.array(["1", "0", "0"]),
        [10**400, 0, 0],
        [1j, 0, 0],
        [None, 0, 0],
        [[0], [0, 1], 0],
        None,
    ],
)
def test_a_cost_that_is_none_changes_nothing_and_is_not_repeated(cost: Any) -> None:  # noqa: ANN401
    one = leader()
    one.act()
    before = one.state
    with pytest.raises(InvalidInputError, match="cost") as error:
        one.observe(cost)
    assert one.state is before
    assert str(SECRET) not in error.value.detail


@pytest.mark.parametrize(
    "cost", [(1, -0.5, 0), np.array([1, 0, -1]), np.array([1, 0, 0], np.float32), [np.int64(1), 0, 0]]
)
def test_anything_made_of_numbers_is_a_cost(cost: Any) -> None:  # noqa: ANN401
    one = leader()
    one.act()
    one.observe(cost)
    assert one.state.totals[0] == COST_UNIT // 2


def test_a_leader_goes_on_where_another_stood() -> None:
    costs = np.random.default_rng(1).uniform(-2, 2, (40, 3))

    def play(stops: set[int]) -> list[int]:
        one, actions = leader(horizon=40), []
        for round, cost in enumerate(costs):
            one.noise = SeededNoise([4, round])
            actions.append(one.act())
            if round in stops:
                one = Leader(3, 40, 2.0, 1.0, DELTA, state=one.state)
            one.observe(cost)
            if round + 1 in stops:
                one = Leader(3, 40, 2.0, 1.0, DELTA, state=one.state)
        return actions

    assert play(set()) == play({3, 17, 18, 39})
